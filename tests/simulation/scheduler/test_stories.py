"""Stories of small worlds: who steps when, with which inputs, and how far it may look ahead.

Each is a drawing and what it demands of each simulator, written down by hand from what mosaik's documentation says:
one text a step, with the time (``0:1``: its second repetition), the inputs, and, where a story is about it, up to
when nothing can trigger the simulator (max_advance). They hold for mosaik's own scheduler and for ours.

In the drawings time goes to the right; ``p1`` is the first value of a persistent attribute, ``n1`` the first event.
What is said of ``m``, ``e``, ``p`` and ``n``: :mod:`scheduler.worlds`.
"""

from __future__ import annotations

import gc
import itertools
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import ClassVar
from unittest.mock import patch

import mosaik
import mosaik_api_v3
import pytest
from simulation.scheduler.running import (
    StuckError,
    Trace,
    by_direct,
    by_general,
    by_mosaik_at_random,
    by_mosaik_choosing,
    execute,
    first_name,
    slow,
)
from simulation.scheduler.worlds import Link, Scenario, Sim

from palaestrai_mosaik.simulation.scheduler import run, run_world
from palaestrai_mosaik.simulation.scheduler.versions import runners


def by_mosaik(world: mosaik.World, scenario: Scenario) -> None:
    run_world(world, scenario.until, print_progress=False, lazy_stepping=scenario.lazy, scheduler="mosaik")


def in_its_stead(world: mosaik.World, scenario: Scenario) -> None:
    """Run the world as mosaik does, in its event loop, with our schedule in the stead of its scheduler."""
    with patch("mosaik.scheduler.run", run):
        world.run(scenario.until, print_progress=False, lazy_stepping=scenario.lazy)


#: mosaik's own scheduler as it is; of those that may step, the first by the alphabet steps
mosaik_as_it_is = by_mosaik_choosing(first_name, mended=False)

SCHEDULERS = {"mosaik": by_mosaik, "direct": by_direct, "general": by_general, "in its stead": in_its_stead}


@dataclass(frozen=True)
class Story:
    scenario: Scenario
    steps: dict[str, list[str]]
    #: whether the steps say how far the simulators may look ahead
    ahead: bool = False


def told(trace: Trace, sid: str, *, ahead: bool = False) -> list[str]:
    """Return a simulator's steps as stories tell them."""
    steps = [call.arguments for call in trace.of(sid) if call.method == "step"]
    return [
        " ".join(
            [
                str(time),
                *(
                    f"{attr}={value}"
                    for attrs in inputs.values()
                    for attr, values in attrs.items()
                    for value in values.values()
                ),
                *([f"to {max_advance}"] if ahead else []),
            ]
        )
        for time, inputs, max_advance in steps
    ]


def event_sim(name: str, **more) -> Sim:
    """A simulator that steps when it is triggered."""
    return Sim(name, "event-based", (None,), **more)


CHAIN = """
    t       0      1      2
    A       p1     p2     p3
            |      |      |
    B       p1     p2     p3
            |      |      |
    C       .      .      .      each gets what was made at the same time
"""
chain = Story(
    Scenario((Sim("C"), Sim("B"), Sim("A")), (Link("A", "B", "p", "m"), Link("B", "C", "p", "m")), until=3),
    {"A": ["0", "1", "2"], "B": ["0 m=p1", "1 m=p2", "2 m=p3"], "C": ["0 m=p1", "1 m=p2", "2 m=p3"]},
)

SLOW_AND_FAST = """
    t       0      1      2      3      4
    A       p1 --.        p2 --.        p3
            |     \\       |     \\       |
    B       .      .      .      .      .      what is persistent stays
"""
slow_and_fast = Story(
    Scenario((Sim("A", steps=(2,)), Sim("B")), (Link("A", "B", "p", "m"),), until=5),
    {"A": ["0", "2", "4"], "B": ["0 m=p1", "1 m=p1", "2 m=p2", "3 m=p2", "4 m=p3"]},
)

FAST_AND_SLOW = """
    t       0      1      2      3      4
    A       p1     p2     p3     p4     p5
            |             |             |
    B       .             .             .      in between nobody looks
"""
fast_and_slow = Story(
    Scenario((Sim("A"), Sim("B", steps=(2,))), (Link("A", "B", "p", "m"),), until=5),
    {"A": ["0", "1", "2", "3", "4"], "B": ["0 m=p1", "2 m=p3", "4 m=p5"]},
)

TRIGGER = """
    t       0      1      2      3      4      5 (end)
    A       p1            p2            p3
            |             |             |
    B       .             .             .      a hybrid simulator: steps at 0, and when it is triggered
    it looks   as far as 1   as far as 3   to the end, since A asks for no step before it
"""
trigger = Story(
    Scenario((Sim("A", steps=(2,)), Sim("B", "hybrid", (None,))), (Link("A", "B", "p", "e"),), until=5),
    {"A": ["0 to 5", "2 to 5", "4 to 5"], "B": ["0 e=p1 to 1", "2 e=p2 to 3", "4 e=p3 to 5"]},
    ahead=True,
)

OWN_AND_TRIGGERED = """
    t       0      1      2      3      4      5      6 (end)
    A       p1                   p2
            |                    |
    B       . -- 2 -----> . -- 2 |----> . -- 2 ----->      its own steps, every two ticks,
                                 . -- 2 -----> .           and what A has triggered; p1 stays until p2
    looks   to 2          to 2   to 3   to 4   to 6        A triggers next at 3; then its own steps come first
"""
own_and_triggered = Story(
    Scenario((Sim("A", steps=(3,)), Sim("B", "hybrid", (2,))), (Link("A", "B", "p", "e"),), until=6),
    {
        "A": ["0 to 6", "3 to 6"],
        "B": ["0 e=p1 to 2", "2 e=p1 to 2", "3 e=p2 to 3", "4 e=p2 to 4", "5 e=p2 to 6"],
    },
    ahead=True,
)

EVENTS_NOW_AND_THEN = """
    t       0      1      2      3      4
    A       n1     -      n3     n4     -      it has no event for some of its steps
            |             |      |
    B       .             .      .             asks for no step, so it steps when there is an event
"""
events_now_and_then = Story(
    Scenario(
        (Sim("A", "hybrid", emits=("n", "", "n")), event_sim("B", emits=("",))),
        (Link("A", "B", "n", "e"),),
        until=5,
    ),
    {"A": ["0", "1", "2", "3", "4"], "B": ["0 e=n1", "2 e=n3", "3 e=n4"]},
)

EVENTS_HANDED_ON = """
    t       0      1      2      3      4      5      6      7 (end)
    A       n1                   n2                   n3
            |                    |                    |
    B       n1                   n2                   n3
            |                    |                    |
    C       .                    .                    .      A's next step is what can trigger it next
"""
events_handed_on = Story(
    Scenario(
        (Sim("A", "hybrid", (3,)), event_sim("B"), event_sim("C", emits=("",))),
        (Link("A", "B", "n", "e"), Link("B", "C", "n", "e")),
        until=7,
    ),
    {
        "A": ["0 to 7", "3 to 7", "6 to 7"],
        "B": ["0 e=n1 to 2", "3 e=n2 to 5", "6 e=n3 to 7"],
        "C": ["0 e=n1 to 2", "3 e=n2 to 5", "6 e=n3 to 7"],
    },
    ahead=True,
)

RING = """
    t       0      1      2      3
    A       p1  .> p2  .> p3  .> p4
       i -> |  /   |  /   |  /   |
    B       p1'    p2'    p3'    p4      one of the two connections is shifted by a tick: it begins with i
"""
ring = Story(
    Scenario(
        (Sim("A"), Sim("B")),
        (Link("A", "B", "p", "m"), Link("B", "A", "p", "m", shift=1, initial="i")),
        until=4,
    ),
    {
        "A": ["0 m=i", "1 m=p1", "2 m=p2", "3 m=p3"],
        "B": ["0 m=p1", "1 m=p2", "2 m=p3", "3 m=p4"],
    },
)

SHIFTED_TRIGGER = """
    t       0      1      2      3      4      5
    A       n1 ----------.       n2 ----------.
                          \\                    \\
    B                      .                    .      an event that is two ticks on its way
"""
shifted_trigger = Story(
    Scenario((Sim("A", "hybrid", (3,)), event_sim("B")), (Link("A", "B", "n", "e", shift=2),), until=6),
    {"A": ["0", "3"], "B": ["2 e=n1", "5 e=n2"]},
)

FUTURE = """
    t       0      1      2      3      4      5
    A       n1 (time: 2) -.      n2 (time: 5) -.
                           \\                    \\
    B                       .                    .      the sender says from when its output counts
"""
future = Story(
    Scenario(
        (Sim("A", "hybrid", (3,), emits=("n+2",)), event_sim("B", emits=("",))),
        (Link("A", "B", "n", "e"),),
        until=6,
    ),
    {"A": ["0", "3"], "B": ["2 e=n1", "5 e=n2"]},
)

ONCE_AND_KEPT = """
    t       0      1      2      3
    A       p1 n1         p2 n2
            |  |  \\       |  |  \\
    B       p1 n1  p1     p2 n2  p2      an event is there once, a persistent value until the next
"""
once_and_kept = Story(
    Scenario(
        (Sim("A", "hybrid", (2,)), Sim("B")), (Link("A", "B", "p", "m"), Link("A", "B", "n", "e")), until=4
    ),
    {"A": ["0", "2"], "B": ["0 e=n1 m=p1", "1 m=p1", "2 e=n2 m=p2", "3 m=p2"]},
)

NO_CACHE = """
    The same, in a world that sends persistent values instead of keeping outputs for those who come for them. They
    are kept where they arrive, and all that arrives beside them is kept, too: also the events.
"""
no_cache = Story(
    Scenario(
        (Sim("A", "hybrid", (2,)), Sim("B")),
        (Link("A", "B", "p", "m"), Link("A", "B", "n", "e")),
        until=4,
        cache=False,
    ),
    {"A": ["0", "2"], "B": ["0 m=p1 e=n1", "1 m=p1 e=n1", "2 m=p2 e=n2", "3 m=p2 e=n2"]},
)

EVENTS_BESIDE_KEPT_ONES = """
    t       0      1      2      3      4
    A     i \\  n1 \\   n2 \\   n3 \\   n4         events of A are kept where they arrive, for the first of them is given
    C       n1  \\      \\      n2     \\
    B       i n1   n1 n1  n2 n1  n3 n2  n4 n2      ... and all that arrives beside them is kept, too
"""
events_beside_kept_ones = Story(
    Scenario(
        (Sim("A", "hybrid"), Sim("C", "hybrid", (3,)), Sim("B", "hybrid")),
        (Link("A", "B", "n", "m", shift=1, initial="i"), Link("C", "B", "n", "e")),
        until=5,
    ),
    {
        "A": ["0", "1", "2", "3", "4"],
        "C": ["0", "3"],
        "B": ["0 m=i e=n1", "1 m=n1 e=n1", "2 m=n2 e=n1", "3 m=n3 e=n2", "4 m=n4 e=n2"],
    },
)

LOOP = """
    t       0:0   0:1   0:2       2:0   2:1   2:2
    A       n1    n2    -         n4    n5    -       no event in its third step of a time: the loop settles
            |  ^  |  ^            |  ^  |  ^
            v  '  v  '            v  '  v  '          down: at once; up: weak, in the next repetition
    B       n1    n2              n3    n4
"""
loop = Story(
    Scenario(
        (Sim("A", "hybrid", (2,), rounds=2, group=(0,)), event_sim("B", group=(0,))),
        (Link("A", "B", "n", "e"), Link("B", "A", "n", "e", weak=True)),
        until=4,
    ),
    {
        "A": ["0", "0 e=n1", "0 e=n2", "2", "2 e=n3", "2 e=n4"],
        "B": ["0 e=n1", "0 e=n2", "2 e=n4", "2 e=n5"],
    },
)

LOOP_IN_A_LOOP = """
    t       0:0:0   0:0:1     0:1:0   0:1:1     0:2
    A       n1                n2                -       A is in the outer group, B and C are in one within it
            v              .> v              .>
    B       n1   .> n2    '   n3   .> n4    '           C answers B at first (n, weak in the inner group),
            v   '   v    '    v   '   v    '            and A then (p, weak in the outer group)
    C       n1 '    p2  '     n3 '    p4  '
"""
loop_in_a_loop = Story(
    Scenario(
        (
            Sim("A", "hybrid", (None,), rounds=2, group=(0,)),
            event_sim("B", group=(0, 0)),
            event_sim("C", emits=("n", "p"), group=(0, 0)),
        ),
        (
            Link("A", "B", "n", "e"),
            Link("B", "C", "n", "e"),
            Link("C", "B", "n", "e", weak=True),
            Link("C", "A", "p", "e", weak=True),
        ),
        until=2,
    ),
    {
        "A": ["0", "0 e=p2", "0 e=p4"],
        "B": ["0 e=n1", "0 e=n1", "0 e=n2", "0 e=n3"],
        "C": ["0 e=n1", "0 e=n2", "0 e=n3", "0 e=n4"],
    },
)

OUT_OF_A_LOOP = """
    t       0:0   0:1   0:2
    A       n1    n2    -
            | '.  | '.
            v ^ | v ^ |                               (A and B are a loop, as above)
    B       n1' | n2' |
                '-----+--.--> C   in another group
                          '-> D   in none           both step when the loop has settled, once
"""
out_of_a_loop = Story(
    Scenario(
        (
            event_sim("C", group=(1,)),
            event_sim("D"),
            Sim("A", "hybrid", (None,), rounds=2, group=(0,)),
            event_sim("B", group=(0,)),
        ),
        (
            Link("A", "B", "n", "e"),
            Link("B", "A", "n", "e", weak=True),
            Link("A", "C", "n", "e"),
            Link("A", "D", "n", "e"),
        ),
        until=2,
    ),
    {"A": ["0", "0 e=n1", "0 e=n2"], "B": ["0 e=n1", "0 e=n2"], "C": ["0 e=n2"], "D": ["0 e=n2"]},
)

LOOP_INTO_THE_FUTURE = """
    t       0:0   0:1               2:0   2:1
    A       n1    n2 (time: 2)-.          -
            |  ^               |      ^
            v  '               v      '
    B       n1                 n2 ---'      a later time begins with its first repetition:
            ^                  ^            B gets both at once
    C       n1                 n2
"""
loop_into_the_future = Story(
    Scenario(
        (
            Sim("A", "hybrid", (None,), emits=("n", "n+2", ""), group=(0,)),
            event_sim("B", group=(0,)),
            Sim("C", "hybrid", (2,), group=(0,)),
        ),
        (Link("A", "B", "n", "e"), Link("B", "A", "n", "e", weak=True), Link("C", "B", "n", "e")),
        until=4,
    ),
    {
        "A": ["0", "0 e=n1", "2 e=n2"],
        "B": ["0 e=n1 e=n1", "2 e=n2 e=n2"],
        "C": ["0", "2"],
    },
)

INITIAL_EVENTS = """
    t       0      1      2      3
    A              p1     p2     p3      begins at 1 instead of 0
    B                     n1             steps once, by its initial event
                          |
    C       .      .      .      .
"""
initial_events = Story(
    Scenario(
        (Sim("A"), event_sim("B"), Sim("C", "hybrid")),
        (Link("B", "C", "n", "e"),),
        initial_events=(("A", 1), ("B", 2)),
    ),
    {"A": ["1", "2", "3"], "B": ["2"], "C": ["0", "1", "2 e=n1", "3"]},
)

MANY_SOURCES = """
    A's second entity --.
    A's first, doubled --+--> B      in the order in which they were connected, those of one simulator together
    C, in a box --------'
"""
many_sources = Story(
    Scenario(
        (Sim("A", entities=2), Sim("C"), Sim("B")),
        (
            Link("A", "B", "p", "m", src_entity=1),
            Link("C", "B", "p", "m", transform="boxed"),
            Link("A", "B", "p", "m", transform="twice"),
        ),
        until=2,
    ),
    {"A": ["0", "1"], "C": ["0", "1"], "B": ["0 m=p1 m=p1p1 m=['p1']", "1 m=p2 m=p2p2 m=['p2']"]},
)

SET_DATA = """
    t       0      1      2
    C       p1     p2     p3
            |      |      |
    A       p1 .-> p2 .-> p3      gets with its next step what B has set, before what is fetched
            | /    | /    |
    B       .'     .'     .
"""
set_data = Story(
    Scenario(
        (Sim("A"), Sim("B", requests=("set_data A",)), Sim("C")),
        (Link("A", "B", "p", "m"), Link("A", "B", requests=True), Link("C", "A", "p", "m")),
        until=3,
    ),
    {
        "A": ["0 m=p1", "1 m=set1 m=p2", "2 m=set2 m=p3"],
        "B": ["0 m=p1", "1 m=p2", "2 m=p3"],
    },
)

STORIES = {name: story for name, story in globals().items() if isinstance(story, Story)}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("name", STORIES)
def test_story(name, scheduler):
    story = STORIES[name]
    trace = execute(story.scenario, SCHEDULERS[scheduler])
    assert trace.error is None
    assert {sid: told(trace, sid, ahead=story.ahead) for sid in story.steps} == story.steps
    for sim in story.scenario.sims:
        methods = [call.method for call in trace.of(sim.name)]
        assert methods[0] == "setup_done"
        assert methods[-1] == "finalize"


# -- requests


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_simulators_get_what_they_ask_for(scheduler):
    """An output that is sent is given as of the asker's last step; others are asked for at once.

    t       0         1         2
    A       p1 n1     p2 n2     p3 n3
    B       p1 n1     p1 n2     p2 n3
    """
    scenario = Scenario(
        (Sim("A"), Sim("B", requests=("get_data A", "get_related_entities"))),
        (Link("A", "B", "p", "m"), Link("A", "B", requests=True)),
        until=3,
    )
    trace = execute(scenario, SCHEDULERS[scheduler])
    related = {"A.0": {"sid": "A", "type": "Model"}}
    assert [call.answers for call in trace.of("B") if call.method == "step"] == [
        [{"A.0": {"p": "p1", "n": "n1"}}, related],
        [{"A.0": {"p": "p1", "n": "n2"}}, related],
        [{"A.0": {"p": "p2", "n": "n3"}}, related],
    ]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_simulators_ask_for_the_progress(scheduler):
    """It is the mean of all when the last step was over, in percent; B has nothing to do up to the end."""
    scenario = Scenario((Sim("A", steps=(2,), requests=("get_progress",)), event_sim("B")), until=8)
    trace = execute(scenario, SCHEDULERS[scheduler])
    answers = [call.answers for call in trace.of("A") if call.method == "step"]
    assert answers == [[0.0], [62.5], [75.0], [87.5]]


# -- what goes wrong

WRONG = {
    "a loop that does not settle": (
        Scenario(
            (Sim("A", "hybrid", (2,), group=(0,)), event_sim("B", group=(0,))),
            (Link("A", "B", "n", "e"), Link("B", "A", "n", "e", weak=True)),
            max_loop_iterations=3,
        ),
        "Simulator A has performed a sub-step more than 3 times. (The complete now is 0:3.)",
        {"A": ["0", "0 e=n1", "0 e=n2"], "B": ["0 e=n1", "0 e=n2", "0 e=n3"]},
    ),
    "a step that is not later": (
        Scenario((Sim("A", fault=("step", 2, "now")),)),
        "the next step time returned by step must be later than the current step's time, but 1 <= 1 for simulator "
        '"A"',
        {"A": ["0", "1"]},
    ),
    "a step that is no integer": (
        Scenario((Sim("A", fault=("step", 2, "float")),)),
        "the next step time returned by the step method must be of type int, but is of type <class 'float'> for "
        'simulator "A"',
        {"A": ["0", "1"]},
    ),
    "a time-based simulator without a next step": (
        Scenario((Sim("A", fault=("step", 2, "none")),)),
        "A time-based simulator must always return a next step",
        {"A": ["0", "1"]},
    ),
    "an output from before": (
        Scenario((Sim("A", fault=("get_data", 2, "past")), Sim("B")), (Link("A", "B", "p", "m"),)),
        'Output time (0) is not >= time (1) for simulator "A".',
        {"A": ["0", "1"], "B": ["0 m=p1"]},
    ),
    "an exception in a step": (
        Scenario((Sim("A", fault=("step", 2, "ValueError")), Sim("B")), (Link("A", "B", "p", "m"),)),
        "A fails in its step 2",
        {"A": ["0", "1"], "B": ["0 m=p1"]},
    ),
    "a lost connection": (
        Scenario((Sim("A", fault=("step", 2, "ConnectionError")), Sim("B")), (Link("A", "B", "p", "m"),)),
        'A fails in its step 2: Simulator "A" closed its connection.',
        {"A": ["0", "1"], "B": ["0 m=p1"]},
    ),
    "an exception in setup_done": (
        Scenario((Sim("A", fault=("setup_done", 1, "ValueError")), Sim("B"))),
        "A fails in its setup_done 1",
        {"A": [], "B": []},
    ),
    "an exception in finalize": (
        Scenario((Sim("A", fault=("finalize", 1, "ValueError")), Sim("B")), until=1),
        "A fails in its finalize 1",
        {"A": ["0"], "B": ["0"]},
    ),
    "a transform that fails": (
        Scenario((Sim("A"), Sim("B")), (Link("A", "B", "p", "m", transform="picky"),)),
        "p2 is not wanted",
        {"A": ["0", "1"], "B": ["0 m=p1"]},
    ),
    "data that nobody may set": (
        Scenario((Sim("A"), Sim("B", requests=("set_data A",))), (Link("A", "B", "p", "m"),)),
        "Async. requests not enabled for the connection from A to B.",
        {"A": ["0"], "B": ["0 m=p1"]},
    ),
    "an event set without real time": (
        Scenario((Sim("A", requests=("set_event 3",)),)),
        "Simulator 'A' tried to set an event in non-real-time mode.",
        {"A": ["0"]},
    ),
}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("name", WRONG)
def test_what_goes_wrong(name, scheduler):
    scenario, message, steps = WRONG[name]
    trace = execute(scenario, SCHEDULERS[scheduler])
    assert trace.error is not None
    assert trace.error[1].startswith(message)
    assert {sid: told(trace, sid) for sid in steps} == steps
    for sim in scenario.sims:
        methods = [call.method for call in trace.of(sim.name)]
        assert [methods[0], methods[-1]] == ["setup_done", "finalize"]


# -- where ours differs


def test_mosaik_forgets_what_is_needed():
    """mosaik forgets outputs that are older than the last step of each simulator.

    t           0      1      2      3      4
    A           p1     p2     p3     p4     p5
                   \\______        two ticks later
                          \\
    B           i      i      p1     p2     p3
    in mosaik   None   None   None   None   None
    """
    scenario = Scenario((Sim("A"), Sim("B")), (Link("A", "B", "p", "m", shift=2, initial="i"),), until=5)
    right = ["0 m=i", "1 m=i", "2 m=p1", "3 m=p2", "4 m=p3"]
    for scheduler in (by_direct, by_general):
        trace = execute(scenario, scheduler)
        assert told(trace, "B") == right
        assert trace.warnings == []
    forgetful = execute(scenario, mosaik_as_it_is)
    assert told(forgetful, "B") == [f"{time} m=None" for time in range(5)]
    assert "did not produce output on its persistent attribute p" in forgetful.warnings[0]
    # where outputs are sent, nothing is forgotten
    sent = Scenario(scenario.sims, scenario.links, until=5, cache=False)
    assert told(execute(sent, mosaik_as_it_is), "B") == right


def test_mosaik_forgets_depending_on_who_goes_first():
    """The output of a slow simulator, a tick later.

    t           0      1      2      3      4      5      6
    A           p1                   p2                   p3
    B           i      p1     p1     p1     p2     p2     p2
    in mosaik   i      p1     p1     None   p2     p2     None    if A goes first
    """
    scenario = Scenario(
        (Sim("A", steps=(3,)), Sim("B")), (Link("A", "B", "p", "m", shift=1, initial="i"),), until=7
    )
    right = ["0 m=i", "1 m=p1", "2 m=p1", "3 m=p1", "4 m=p2", "5 m=p2", "6 m=p2"]
    for scheduler in (by_direct, by_general):
        assert told(execute(scenario, scheduler), "B") == right
    forgetful = ["0 m=i", "1 m=p1", "2 m=p1", "3 m=None", "4 m=p2", "5 m=p2", "6 m=None"]
    assert told(execute(scenario, mosaik_as_it_is), "B") == forgetful


def test_initial_data_of_mosaik_hide_each_other():
    """Data that are given to begin with belong to a time shift; those for another one are not there.

    t           0          1          2          3
    A           p1 n1      p2 n2      p3 n3
                  '--.-----------.---- p one tick, n two ticks later
    B           i j        p1 j       p2 n1      p3 n2
    in mosaik   None ...   (if nobody has stepped before it)
    """
    links = (Link("A", "B", "p", "m", shift=1, initial="i"), Link("A", "B", "n", "e", shift=2, initial="j"))
    scenario = Scenario((Sim("B"), Sim("A")), links)
    right = ["0 m=i e=j", "1 m=p1 e=j", "2 m=p2 e=n1", "3 m=p3 e=n2"]
    for scheduler in (by_direct, by_general):
        assert told(execute(scenario, scheduler), "B") == right
    by_alphabet_backwards = by_mosaik_choosing(
        lambda waiting: max(waiting, key=lambda sim: sim.sid, default=None), mended=False
    )
    assert told(execute(scenario, by_alphabet_backwards), "B")[0] == "0 m=None e=j"


def test_an_output_that_is_written_again_comes_last():
    """A speaks of time 2 first, of 1 then, and of 2 again; mosaik takes what it wrote at its second step for newer.

    t             0         1         2         3
    A             p1 (2)    p2        p3        p4 (5)
    B             i         p2        p3        p3
    C             i         i         p2        p3        the same, a tick later; i is given for it, and B finds it
    B in mosaik   nothing   p2        p2        p3        (without C)
    """
    scenario = Scenario(
        (Sim("A", emits=("p+2", "p", "p")), Sim("B"), Sim("C")),
        (Link("A", "B", "p", "m"), Link("A", "C", "p", "m", shift=1, initial="i")),
    )
    for scheduler, soon in itertools.product((by_direct, by_general), (1, 32)):
        with patch("simulation.scheduler.running.SOON", soon):
            trace = execute(scenario, scheduler)
        assert told(trace, "B") == ["0 m=i", "1 m=p2", "2 m=p3", "3 m=p3"]
        assert told(trace, "C") == ["0 m=i", "1 m=i", "2 m=p2", "3 m=p3"]
    its = told(execute(Scenario(scenario.sims[:2], scenario.links[:1]), mosaik_as_it_is), "B")
    assert its == ["0 m=None", "1 m=p2", "2 m=p2", "3 m=p3"]


def test_mosaik_waits_for_an_event_after_the_end():
    """B is triggered for a time after the end; mosaik waits for it for ever.

    t       0      1      2      3 (end)     ...    9
    A       n1 (time: 9) --------------------------.
            .      .      .                         .
    B
    """
    scenario = Scenario(
        (Sim("A", "hybrid", emits=("n+9", "")), event_sim("B")), (Link("A", "B", "n", "e"),), until=3
    )
    for scheduler in (by_direct, by_general):
        trace = execute(scenario, scheduler)
        assert (trace.error, trace.order) == (None, ["A", "A", "A"])
    error = execute(scenario, mosaik_as_it_is).error
    assert error is not None
    assert error[0] == StuckError.__name__


def test_a_standstill_is_an_error():
    """A and D are a loop. E, in their group, gets values of A and what B, outside of it, makes of them.

    t       0:0   0:1
    A       n1    (waits for E: no simulator runs ahead of those that it feeds)
            |  ^
    D       n1-'
    B       (waits for A to have done all of 0)
    E       (waits for B)

    mosaik waits for ever. Without lazy stepping A does not wait.
    """
    scenario = Scenario(
        (
            Sim("A", "hybrid", (None,), rounds=1, group=(1,)),
            Sim("B"),
            event_sim("D", group=(1,)),
            Sim("E", group=(1,)),
        ),
        (
            Link("A", "D", "n", "e"),
            Link("D", "A", "n", "e", weak=True),
            Link("A", "B", "p", "m"),
            Link("A", "E", "p", "m"),
            Link("B", "E", "p", "m"),
        ),
        until=1,
    )
    for scheduler in (by_direct, by_general):
        trace = execute(scenario, scheduler)
        assert trace.error == (
            "SimulationError",
            "the world came to a standstill, because simulators wait for each other: A (at time 0:1), E (at time 0:0), "
            "B (at time 0)",
        )
    error = execute(scenario, mosaik_as_it_is).error
    assert error is not None
    assert error[0] == StuckError.__name__
    for scheduler in (by_direct, by_general, mosaik_as_it_is):
        trace = execute(replace(scenario, lazy=False), scheduler)
        assert (trace.error, trace.order) == (None, ["A", "D", "A", "B", "E"])


def test_an_exception_of_a_simulator_is_not_hidden():
    """With inputs that are no JSON, mosaik takes a TypeError of a simulator in this process for one of theirs."""
    scenario = Scenario(
        (Sim("A", opaque=True), Sim("B", fault=("step", 1, "TypeError"))), (Link("A", "B", "p", "m"),)
    )
    assert execute(scenario, by_direct).error == ("TypeError", "B fails in its step 1")


def test_a_missing_key_in_a_transform_is_an_error():
    """mosaik takes a KeyError of a transform for an output that is missing, if the output is sent."""
    scenario = Scenario(
        (Sim("A", "hybrid"), event_sim("B")), (Link("A", "B", "n", "e", transform="missing"),), until=4
    )
    for ours in (by_direct, by_general):
        assert execute(scenario, ours).error == ("KeyError", "'n2 is missing'")
    assert execute(scenario, by_mosaik).error is None


# -- where mosaik leaves it open


def test_a_weak_connection_without_a_way_back_depends_on_who_goes_first():
    """B may step before A or after it; ours goes by the order of start.

    t       0:0   0:1
    A       n1
            |  \\
    B       n1  .       or:   .   n1
    """
    links = (Link("A", "B", "n", "e", weak=True),)
    a, b = Sim("A", "hybrid", (None,), group=(0,)), Sim("B", "hybrid", (None,), group=(0,))
    ways = {
        tuple(told(execute(Scenario((a, b), links, until=2), by_mosaik_at_random(seed)), "B"))
        for seed in range(20)
    }
    assert ways == {("0 e=n1", "0"), ("0", "0 e=n1")}
    for scheduler in (by_direct, by_general):
        assert told(execute(Scenario((a, b), links, until=2), scheduler), "B") == ["0 e=n1", "0"]
        assert told(execute(Scenario((b, a), links, until=2), scheduler), "B") == ["0", "0 e=n1"]


def test_how_far_ahead_one_may_look_depends_on_who_goes_first():
    """With a shifted trigger: has A made its step of the same time, or not yet?

    t       0      1      2
    A       -      n2 .   -        nothing comes of A's first step
                       \\
    B       .           .          its own first step looks as far as 1, or only as far as 0
    """
    links = (Link("A", "B", "n", "e", shift=1),)
    a, b = Sim("A", "hybrid", emits=("", "n", "")), Sim("B", "hybrid", (None,))

    def first(sims: tuple[Sim, Sim], scheduler) -> str:
        return told(execute(Scenario(sims, links, until=3), scheduler), "B", ahead=True)[0]

    assert {first((a, b), by_mosaik_at_random(seed)) for seed in range(20)} == {"0 to 0", "0 to 1"}
    for scheduler in (by_direct, by_general):
        assert first((a, b), scheduler) == "0 to 1"
        assert first((b, a), scheduler) == "0 to 0"


# -- memory


@pytest.mark.parametrize("scheduler", [by_direct, by_general])
@pytest.mark.parametrize(
    "scenario",
    {
        "slow": Scenario(
            (Sim("A", steps=(3,)), Sim("B")), (Link("A", "B", "p", "m", shift=3, initial="i"),), until=300
        ),
        "some ahead": Scenario(
            (Sim("A", emits=("p+1", "p", "p+3")), Sim("B")),
            (Link("A", "B", "p", "m", shift=3, initial="i"),),
            until=300,
        ),
        "asked for": Scenario(
            (Sim("A"), Sim("B", requests=("get_data A",))),
            (Link("A", "B", "p", "m"), Link("A", "B", requests=True)),
            until=300,
        ),
    }.items(),
    ids=lambda item: item[0],
)
def test_outputs_that_nobody_needs_are_forgotten(scenario, scheduler):
    kept = []

    def counting(world: mosaik.World, scenario: Scenario) -> None:
        scheduler(world, scenario)
        kept.append(len(runners(world._async_world)[0].outputs))

    assert execute(scenario[1], counting).error is None
    assert kept[0] < 20


# -- the order of ours


@pytest.mark.parametrize("scheduler", [by_direct, by_general])
def test_simulators_that_nothing_orders_step_in_the_order_of_start(scheduler):
    """B needs A, C needs nobody; B still comes before C."""
    scenario = Scenario((Sim("A"), Sim("B"), Sim("C")), (Link("A", "B", "p", "m"),), until=2)
    assert execute(scenario, scheduler).order == ["A", "B", "C", "A", "B", "C"]


@pytest.mark.parametrize("turns", [{"A": 9, "B": 1}, {"A": 1, "B": 9}], ids=["A is slow", "B is slow"])
def test_the_order_of_inputs_does_not_depend_on_who_answers_first(turns):
    """Two simulators in other processes send an event to a third one."""
    scenario = Scenario(
        (Sim("A", "hybrid"), Sim("B", "hybrid"), event_sim("C")),
        (Link("A", "C", "n", "e"), Link("B", "C", "n", "e")),
        until=2,
    )
    trace = execute(scenario, slow(by_general, turns))
    steps = [call.arguments for call in trace.of("C") if call.method == "step"]
    assert [(time, list(inputs["0"]["e"])) for time, inputs, _ in steps] == [
        (0, ["A.0", "B.0"]),
        (1, ["A.0", "B.0"]),
    ]


def test_a_step_under_way_counts_for_how_far_ahead_one_may_look():
    """A and D are in other processes. When D has answered at last, A makes its step of time 1.

    t       0              1
    A       n1            (under way)
            |
    B       n1
            |
    C       .             looks as far as 0: at 1, it may be triggered again
            |
    D       p1  (slow)
    """
    scenario = Scenario(
        (Sim("A", "hybrid"), event_sim("B"), Sim("D"), Sim("C", "hybrid", (None,))),
        (Link("A", "B", "n", "e"), Link("B", "C", "n", "e"), Link("D", "C", "p", "m")),
        until=2,
    )
    trace = execute(scenario, slow(by_general, {"A": 30, "D": 45}))
    begun = [f"{call.sid}@{call.arguments[0]}" for call in trace.calls if call.method == "step"]
    assert begun[:4] == ["A@0", "D@0", "B@0", "C@0"]
    assert told(trace, "C", ahead=True) == ["0 e=n1 m=p1 to 0", "1 e=n2 m=p2 to 2"]


class Wide(mosaik_api_v3.Simulator):
    """As many entities as it is asked for; notes whether Python collects garbage while it steps."""

    collecting: ClassVar[list[bool]] = []

    def __init__(self) -> None:
        super().__init__(
            {"type": "time-based", "models": {"E": {"public": True, "params": [], "attrs": ["a", "b"]}}}
        )

    def create(self, num, model):
        return [{"eid": f"e{i}", "type": model} for i in range(num)]

    def step(self, time, inputs, max_advance):
        self.collecting.append(gc.isenabled())
        return time + 1

    def get_data(self, outputs):
        return {eid: dict.fromkeys(attrs, 1.0) for eid, attrs in outputs.items()}


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_the_garbage_collector_is_paused_while_many_inputs_are_put_together(enabled, fails):
    """No dictionary of them is garbage yet. Afterwards all is as it was, whatever happens."""
    seen = []

    def transform(value):
        seen.append(gc.isenabled())
        if fails and len(seen) > 300:
            raise ValueError("no such value")
        return value

    Wide.collecting.clear()
    world = mosaik.World(
        {"Wide": {"python": f"{__name__}:Wide"}}, skip_greetings=True, configure_logging=False
    )
    (source,) = world.start("Wide").E.create(1)
    for each in world.start("Wide").E.create(300):
        world.connect(source, each, ("a", "b"), transform=transform)
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ValueError, match="no such value") if fails else nullcontext():
            run_world(world, 3, print_progress=False)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
        if not world.loop.is_closed():
            world.shutdown()
    assert set(seen) == {False}
    assert set(Wide.collecting) == {enabled}
