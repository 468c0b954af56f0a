"""Random worlds under mosaik's scheduler and ours.

**What is compared.** mosaik promises no order among simulators that may step at the same moment, and some of what
they see depends on it (:mod:`scheduler.test_orders`). So two things are demanded of a run of ours:

* Its order is one that mosaik could take, and all else follows from it: when mosaik's own scheduler is made to
  choose ours among all that may step, every call is the same, with the same arguments (also the order of the keys
  in the inputs, which decides about sums), results, answers to requests, progress, warnings and graph, and it ends
  with the same exception. mosaik gets stuck where it would not let the next one step.
* It is the same each time.

Where mosaik's own order cannot matter, each simulator's calls are also compared with a plain run of mosaik.

After an error two things are left open: how many simulators are set up beside one that fails in its
``setup_done``, and the rest of mosaik's tasks, which go on until the event loop ends.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, event, given, note, settings
from scheduler.random_worlds import scenarios
from scheduler.running import by_direct, by_general, differences, execute, in_the_order_of
from scheduler.worlds import Scenario

RUNNERS = {"direct": by_direct, "general": by_general}

common = settings(
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
#: the same worlds on each run; what fails is made smaller
fast = settings(common, max_examples=60)
#: other worlds on each run
slow = settings(
    common, max_examples=1200, derandomize=False, phases=[Phase.explicit, Phase.generate, Phase.shrink]
)


def check(scenario: Scenario, by: str) -> None:
    """Compare one world with mosaik's scheduler in our order, and with itself."""
    ours = execute(scenario, RUNNERS[by])
    event("with an error" if ours.error else "without an error")
    found = differences(ours, in_the_order_of(ours, scenario), scenario)
    again = execute(scenario, RUNNERS[by])
    if again != ours:
        found = [*found, "a second run differs:", *again.lines()]
    if found:
        note("\n".join([repr(scenario), *found]))
    assert not found


def check_plain(scenario: Scenario) -> None:
    """Compare each simulator's calls with a plain run of mosaik."""
    ours, its = execute(scenario, by_direct), execute(scenario)
    note("\n".join(["ours", *ours.lines(), "mosaik's", *its.lines()]))
    assert ours.error == its.error
    for sim in scenario.sims:
        assert ours.of(sim.name) == its.of(sim.name)


@pytest.mark.parametrize("by", RUNNERS)
@fast
@given(scenarios())
def test_a_world_is_executed_as_mosaik_does_in_our_order(by, scenario):
    check(scenario, by)


@fast
@given(scenarios(faults=False, asking=False, ordered=True))
def test_a_world_without_choice_is_executed_as_mosaik_does(scenario):
    check_plain(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("by", RUNNERS)
@slow
@given(scenarios())
def test_many_worlds_are_executed_as_mosaik_does_in_our_order(by, scenario):
    check(scenario, by)


@pytest.mark.slow
@pytest.mark.parametrize("by", RUNNERS)
@slow
@given(scenarios(max_sims=4, grouped=True, faults=False, asking=False))
def test_many_same_time_loops_are_executed_as_mosaik_does_in_our_order(by, scenario):
    check(scenario, by)


@pytest.mark.slow
@slow
@given(scenarios(faults=False, asking=False, ordered=True))
def test_many_worlds_without_choice_are_executed_as_mosaik_does(scenario):
    check_plain(scenario)
