"""Scenario stories: who steps when, who sees what, when a set-point takes effect.

Each story is a diagram and the trace that it demands, written down by hand. Events of
one tick stand on one line; environments of one tick have no order among each other, so
theirs are compared as a set and everything else in order.
"""

from __future__ import annotations

import pytest
from support.engine import Adder, Counter, Total, make_coordinator, run_episodes

from palaestrai_mosaik.simulation import mosaik_internals as internals

SCHEDULERS = ["direct", "mosaik"]

VANILLA_ONE = """
    t          0              1              2              3
    E        reset          step           step          step, ends
              |  \\         ^ |  \\         ^ |  \\         ^ |
    a       acts  |       /  acts |       /  acts |       /  closes its row
    b           acts ----/      acts ----/      acts ----/   closes its row
"""
VANILLA_ONE_TRACE = [
    ["E resets", "a sees 0 sets 100", "b sees 0 sets 200"],
    [
        "E steps to 1 with 100 200",
        "a gets 10 for 100",
        "b gets 10 for 200",
        "a sees 1 sets 101",
        "b sees 1 sets 201",
    ],
    [
        "E steps to 2 with 101 201",
        "a gets 20 for 101",
        "b gets 20 for 201",
        "a sees 2 sets 102",
        "b sees 2 sets 202",
    ],
    ["E steps to 3 with 102 202", "a gets 30 for 102", "b gets 30 for 202"],
]

TURNS_ONE = """
    t          0              1              2              3
    E        reset          step           step          step, ends
              |            ^ |            ^ |            ^
    a       acts ---------/  |           /  acts -------/  closes its row
    b                       acts -------/
"""
TURNS_ONE_TRACE = [
    ["E resets", "a sees 0 sets 100"],
    ["E steps to 1 with 100 -", "a gets 10 for 100", "b sees 1 sets 201"],
    ["E steps to 2 with 100 201", "b gets 20 for 201", "a sees 2 sets 102"],
    ["E steps to 3 with 102 201", "a gets 30 for 102"],
]

VANILLA_TWO = """
    A steps at every tick, B at every second one. a reads A and B, b reads B only;
    both set something in A and in B.

    t          0              1              2              3              4
    A        reset          step           step           step          step, ends
    B        reset                         step                          step
    a       acts           acts           acts           acts           closes
    b       acts                          acts                          closes

    At t=2, B gets what a set at t=1 and what b set at t=0.
    At t=1, a's row is closed by A's reward alone: B has none to give (0).
    b acts again when B has a new state, so its row gets all that A gave until then.
"""
VANILLA_TWO_TRACE = [
    ["A resets", "B resets", "a sees 0 0 sets 100", "b sees 0 sets 200"],
    ["A steps to 1 with 100 200", "a gets 10 0 for 100", "a sees 1 0 sets 101"],
    [
        "A steps to 2 with 101 200",
        "B steps to 1 with 101 200",
        "a gets 20 10 for 101",
        "b gets 30 10 for 200",
        "a sees 2 1 sets 102",
        "b sees 1 sets 201",
    ],
    ["A steps to 3 with 102 201", "a gets 30 0 for 102", "a sees 3 1 sets 103"],
    [
        "A steps to 4 with 103 201",
        "B steps to 2 with 103 201",
        "a gets 40 20 for 103",
        "b gets 70 20 for 201",
    ],
]

TURNS_TWO = """
    As above, but in turns: the next agent acts when both environments have been stepped.

    t          0              1              2              3              4
    A        reset          step           step           step          step, ends
    B        reset                         step                          step
    a       acts
    b                                     acts
"""
TURNS_TWO_TRACE = [
    ["A resets", "B resets", "a sees 0 0 sets 100"],
    ["A steps to 1 with 100 -", "a gets 10 0 for 100"],
    ["A steps to 2 with 100 -", "B steps to 1 with 100 -", "b sees 1 sets 201"],
    ["A steps to 3 with 100 201"],
    ["A steps to 4 with 100 201", "B steps to 2 with 100 201", "b gets 70 20 for 201"],
]


def one(log: list[str], taking_turns: bool):
    return make_coordinator(
        [Counter("E", log)],
        [
            ("a", Adder(100, log), Total("a", log), ["E.x"], ["E.u1"]),
            ("b", Adder(200, log), Total("b", log), ["E.x"], ["E.u2"]),
        ],
        taking_turns=taking_turns,
    )


def two(log: list[str], taking_turns: bool):
    return make_coordinator(
        [Counter("A", log, steps=4), Counter("B", log, steps=99, step_size=2)],
        [
            ("a", Adder(100, log), Total("a", log), ["A.x", "B.x"], ["A.u1", "B.u1"]),
            ("b", Adder(200, log), Total("b", log), ["B.x"], ["B.u2", "A.u2"]),
        ],
        taking_turns=taking_turns,
    )


STORIES = {
    "vanilla, one environment": (one, False, VANILLA_ONE_TRACE),
    "taking turns, one environment": (one, True, TURNS_ONE_TRACE),
    "vanilla, two environments of different speed": (two, False, VANILLA_TWO_TRACE),
    "taking turns, two environments of different speed": (two, True, TURNS_TWO_TRACE),
}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("story", STORIES)
def test_story(story, scheduler):
    build, taking_turns, expected = STORIES[story]
    log: list[str] = []
    coordinator = build(log, taking_turns)
    run_episodes(coordinator, scheduler=scheduler)
    position = 0
    for tick in expected:
        happened = log[position : position + len(tick)]
        position += len(tick)
        steps = sum(event.split()[1] in ("resets", "steps") for event in tick)
        assert sorted(happened[:steps]) == sorted(tick[:steps])
        # mosaik lets agents of one tick act in either order
        order = sorted if scheduler == "mosaik" else list
        assert order(happened[steps:]) == order(tick[steps:])
    assert log[position:] == []


@pytest.mark.parametrize("story", STORIES)
def test_both_schedulers_record_the_same(story):
    build, taking_turns, _ = STORIES[story]
    recorded = []
    for scheduler in SCHEDULERS:
        coordinator = build([], taking_turns)
        run_episodes(coordinator, episodes=2, scheduler=scheduler)
        # without the wall-clock time
        rows = [[repr(row[:10] + row[11:]) for row in body.stream.rows] for body in coordinator.bodies]
        states = [[repr(row) for row in handle.stream.rows] for handle in coordinator.handles]
        recorded.append((rows, states))
    assert recorded[0] == recorded[1]


def test_nobody_is_left_waiting_in_mosaiks_scheduler(monkeypatch):
    """Agents do not step of their own accord: mosaik lets them wait for the end of the world, anew after each step."""
    waiting = []
    mended = internals._set_progress

    def counted(runner, set_progress, time):
        mended(runner, set_progress, time)
        waiting.append(len(runner.progress._futures))

    monkeypatch.setattr(internals, "_set_progress", counted)
    log: list[str] = []
    agents = [(name, Adder(100, log), None, ["A.x"], [f"A.u{i}"]) for i, name in enumerate("ab", 1)]
    run_episodes(make_coordinator([Counter("A", log, steps=40)], agents), scheduler="mosaik")
    assert len(waiting) > 60
    assert max(waiting) < 8


def test_rows_say_how_the_episode_ended():
    log: list[str] = []
    coordinator = two(log, False)
    run_episodes(coordinator)
    a, b = (body.stream.rows for body in coordinator.bodies)
    # (worker, episode, step, time, readings, setpoints, rewards, objective, terminated, truncated, wall,
    # body, environment_episode, proposed)
    assert [(r[2], r[3], r[8], r[9]) for r in a] == [(0, 0, False, False), (1, 1, False, False),
                                                     (2, 2, False, False), (3, 3, True, False)]  # fmt: skip
    # b acts in A and in B, so the end of A ends it too, although its row was closed before
    assert [(r[2], r[3], r[8], r[9]) for r in b] == [(0, 0, False, False), (1, 2, True, False)]
    assert coordinator.time == 4
    assert coordinator.ended_by == "EnvironmentTerminationCondition"


def test_an_agent_is_cut_off_where_another_environment_ends_the_episode():
    log: list[str] = []
    coordinator = make_coordinator(
        [Counter("A", log, steps=2), Counter("B", log, steps=99)],
        [("b", Adder(0, log), Total("b", log), ["B.x"], ["B.u1"])],
    )
    run_episodes(coordinator)
    (body,) = coordinator.bodies
    assert [(row[8], row[9]) for row in body.stream.rows] == [(False, False), (False, True)]


def test_without_a_condition_the_episode_ends_when_all_environments_have():
    log: list[str] = []
    coordinator = make_coordinator(
        [Counter("A", log, steps=2), Counter("B", log, steps=4)],
        [("b", Adder(0, log), Total("b", log), ["A.x", "B.x"], ["B.u1"])],
        conditions=[],
    )
    run_episodes(coordinator)
    assert [line for line in log if line.startswith("A")][-1] == "A steps to 2 with - -"
    assert [line for line in log if line.startswith("B")][
        -1
    ] == "B steps to 4 with 2 -"  # A has ended at 2, and still reads so
    assert coordinator.ended_by == "environments"


def test_a_shared_actuator_takes_the_latest_setpoint_then_the_later_agent():
    log: list[str] = []
    coordinator = make_coordinator(
        [Counter("E", log, steps=2, actuators=1)],
        [
            ("a", Adder(100, log), None, ["E.x"], ["E.u1"]),
            ("b", Adder(200, log), None, ["E.x"], ["E.u1"]),
        ],
    )
    run_episodes(coordinator)
    assert "E steps to 1 with 200" in log
    log.clear()
    coordinator = make_coordinator(
        [Counter("E", log, steps=3, actuators=1)],
        [
            ("a", Adder(100, log), None, ["E.x"], ["E.u1"]),
            ("b", Adder(200, log), None, ["E.x"], ["E.u1"]),
        ],
        taking_turns=True,
    )
    run_episodes(coordinator)
    assert [line for line in log if line.startswith("E")] == [
        "E resets", "E steps to 1 with 100", "E steps to 2 with 201", "E steps to 3 with 102",
    ]  # fmt: skip


def test_an_environment_without_agents_is_stepped_too():
    log: list[str] = []
    coordinator = make_coordinator([Counter("E", log, steps=3)], [])
    run_episodes(coordinator)
    assert log == ["E resets", "E steps to 1 with - -", "E steps to 2 with - -", "E steps to 3 with - -"]


@pytest.mark.parametrize("uid", ["my-env", "my.env", "a b", "ü", "0", "x.0.y-1"])
def test_any_environment_uid_receives_its_setpoints(uid):
    log: list[str] = []
    coordinator = make_coordinator(
        [Counter(uid, log, steps=2)], [("a", Adder(100, log), None, [f"{uid}.x"], [f"{uid}.u2"])]
    )
    run_episodes(coordinator)
    assert f"{uid} steps to 1 with - 100" in log
