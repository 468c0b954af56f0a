"""Random worlds under mosaik's scheduler and ours.

**What is compared.** mosaik promises no order among simulators that may step at the same moment, and some of what
they see depends on it (the last of :mod:`scheduler.test_stories`). So two things are demanded of a run of ours:

* Its order is one that mosaik could take, and all else follows from it: when mosaik's own scheduler is made to
  choose ours among all that may step, every call is the same, with the same arguments (also the order of the keys
  in the inputs, which decides about sums), results, answers to requests, progress, warnings and graph, and it ends
  with the same exception. mosaik gets stuck where it would not let the next one step.
* It is the same each time.

Where mosaik's own order cannot matter, each simulator's calls are also compared with a plain run of mosaik. Measured
over 1,500 random worlds, in some orders each: step times, inputs and outputs are the same in all orders where no
connection is weak and no simulator changes its outputs in place; max_advance where, beyond that, none is shifted
and stepping is lazy.

Stated differences (:mod:`scheduler.test_stories` shows each): mosaik here never forgets an output, what it writes
again comes last, and initial data do not hide each other; it ends where by itself it would wait for an event after
the end; where it gets stuck by itself, ours must say that the world came to a standstill; a TypeError of a simulator
is not hidden. A KeyError of a transform, which mosaik swallows, is not drawn.

After an error two things are left open: how many simulators are set up beside one that fails in its
``setup_done``, and the rest of mosaik's tasks, which go on until the event loop ends.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, event, given, note, reject, settings
from hypothesis import strategies as st
from mosaik.exceptions import ScenarioError
from simulation.scheduler.random_worlds import scenarios
from simulation.scheduler.running import (
    Runner,
    Trace,
    apart,
    by_direct,
    by_general,
    differences,
    execute,
    in_the_order_of,
)
from simulation.scheduler.worlds import Call, Scenario

RUNNERS = {"direct": by_direct, "general": by_general}

common = settings(
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
#: the same worlds on each run; what fails is made smaller
fast = settings(common, max_examples=80)
#: many more; with this variable set, other worlds on each run
slow = settings(
    common,
    max_examples=300,
    derandomize="PALAESTRAI_MOSAIK_TEST_OTHER_WORLDS" not in os.environ,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)


def check(scenario: Scenario, by: str) -> None:
    """Compare one world with mosaik's scheduler in our order, and with itself."""
    ours = _executed(scenario, RUNNERS[by])
    event("with an error" if ours.error else "without an error")
    found = differences(ours, in_the_order_of(ours, scenario), scenario)
    again = execute(scenario, RUNNERS[by])
    if again != ours:
        found = [*found, "a second run differs:", *again.lines()]
    if found:
        note("\n".join([repr(scenario), *found]))
    assert not found


def check_ordered(scenario: Scenario) -> None:
    """Compare each simulator's calls with a plain run of mosaik."""
    ours, its = _executed(scenario, by_direct), execute(scenario)
    note("\n".join([repr(scenario), "ours", *ours.lines(), "mosaik's", *its.lines()]))
    assert (ours.error, its.error) == (None, None)
    exact = scenario.lazy and not any(link.shift for link in scenario.links)
    for sim in scenario.sims:
        one, other = ours.of(sim.name), its.of(sim.name)
        if not exact:
            one, other = map(_without_max_advance, (one, other))
        assert one == other


def check_apart(scenario: Scenario, seed: int) -> None:
    """Compare a world with itself when some of its simulators take their time, several at once.

    All is the same but max_advance, which then knows less; but it never promises too much.
    """
    together = _executed(scenario, by_general)
    some_apart = _executed(scenario, apart(by_general, seed))
    note("\n".join([repr(scenario), "together", *together.lines(), "apart", *some_apart.lines()]))
    assert (together.error, some_apart.error) == (None, None)
    for sim in scenario.sims:
        one, other = (_without_max_advance(trace.of(sim.name)) for trace in (together, some_apart))
        assert [repr(call) for call in one] == [repr(call) for call in other]
        if not any(link.shift for link in scenario.links):
            assert _broken_promises(some_apart.of(sim.name)) == []


def _broken_promises(calls: list[Call]) -> list[str]:
    """Return the steps up to max_advance that a simulator did not ask for itself."""
    steps = [call for call in calls if call.method == "step"]
    asked_for = {call.result for call in steps}
    return [
        f"{later.arguments[0]}, promised at {step.arguments[0]}: none up to {step.arguments[2]}"
        for step, later in itertools.pairwise(steps)
        if later.arguments[0] <= step.arguments[2] and later.arguments[0] not in asked_for
    ]


def _executed(scenario: Scenario, run: Runner) -> Trace:
    """Execute a world that mosaik does not refuse."""
    try:
        return execute(scenario, run)
    except ScenarioError:
        reject()


def _without_max_advance(calls: list[Call]) -> list[Call]:
    return [replace(call, arguments=call.arguments[:2]) for call in calls]


@pytest.mark.parametrize("by", RUNNERS)
@fast
@given(scenarios())
def test_a_world_is_executed_as_mosaik_does_in_our_order(by, scenario):
    check(scenario, by)


@fast
@given(scenarios(ordered=True))
def test_an_ordered_world_is_executed_as_mosaik_does(scenario):
    check_ordered(scenario)


@fast
@given(scenarios(ordered=True), st.integers(0, 1000))
def test_simulators_in_other_processes_get_the_same_at_the_same_times(scenario, seed):
    check_apart(scenario, seed)


@pytest.mark.parametrize("by", RUNNERS)
@slow
@given(scenarios())
def test_many_worlds_are_executed_as_mosaik_does_in_our_order(by, scenario):
    check(scenario, by)


@pytest.mark.parametrize("by", RUNNERS)
@slow
@given(scenarios(max_sims=4, grouped=True, faults=False, asking=False))
def test_many_same_time_loops_are_executed_as_mosaik_does_in_our_order(by, scenario):
    check(scenario, by)


@slow
@given(scenarios(ordered=True))
def test_many_ordered_worlds_are_executed_as_mosaik_does(scenario):
    check_ordered(scenario)


@slow
@given(scenarios(ordered=True), st.integers(0, 1000))
def test_many_simulators_in_other_processes_get_the_same_at_the_same_times(scenario, seed):
    check_apart(scenario, seed)
