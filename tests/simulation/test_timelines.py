"""Environments with timelines of their own: they end and begin again while others go on.

In the stories, environments count their steps and say so, in the way of ``test_stories.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.documents import AGENT_OBJECTIVE, ENVIRONMENT_ENDS, agent, document, environment, named, phase
from support.engine import ANY, Adder, Counter, Total, make_coordinator, run_episodes

from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.environment.matrix_game import MatrixGame
from palaestrai_mosaik.runner import execute, inspect
from palaestrai_mosaik.simulation.conditions import (
    AgentObjectiveTerminationCondition,
    EnvironmentTerminationCondition,
    TerminationCondition,
    VanillaRunGovernorTerminationCondition,
)
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import (
    ActuatorInformation,
    RewardInformation,
    SensorInformation,
    SimulationFlowControl,
)

SCHEDULERS = ["direct", "mosaik"]
HERE = __name__


class Forgetful(Adder):
    """Says when it is reset."""

    def reset(self) -> None:
        self.log.append(f"{self.uid} forgets")


class Seen(TerminationCondition):
    """Notes what conditions are told; ends nothing."""

    def __init__(self) -> None:
        self.endings: list[dict[str, int]] = []
        self.ended: list[dict[str, tuple[bool, bool]]] = []

    def episode_flow_control(self, view: Any) -> SimulationFlowControl:
        self.endings.append(dict(view.endings))
        self.ended.append(dict(view.ended))
        return SimulationFlowControl.CONTINUE


def both(log: list[str], *conditions: TerminationCondition, turns: bool = False) -> Any:
    """Return A, which ends after 2 steps, and B (every second tick, 2 steps), with an agent in each."""
    return make_coordinator(
        [Counter("A", log, steps=2), Counter("B", log, steps=2, step_size=2)],
        [
            ("a", Forgetful(100, log), Total("a", log), ["A.x"], ["A.u1"]),
            ("b", Forgetful(200, log), Total("b", log), ["B.x"], ["B.u1"]),
        ],
        conditions=list(conditions),
        taking_turns=turns,
    )


OWN_TIMELINES = """
    t          0         1         2         3         4         5         6
    A        reset     step      ends      reset     step      ends
    B        reset               step                ends
    a        acts      acts     closes     acts      acts     closes
    b        acts                acts               closes

    With ``all``, the episode is over at 4, when B has ended for the first time: A has ended once, at 2.
"""
OWN_TIMELINES_TRACE = [
    ["A resets", "B resets", "a sees 0 sets 100", "b sees 0 sets 200"],
    ["A steps to 1 with 100 -", "a gets 10 for 100", "a sees 1 sets 101"],
    [
        "A steps to 2 with 101 -",
        "B steps to 1 with 200 -",
        "a gets 20 for 101",
        "b gets 10 for 200",
        "b sees 1 sets 201",
    ],
    # the set-points of A's last episode are gone
    ["A resets", "a forgets", "a sees 0 sets 100"],
    [
        "A steps to 1 with 100 -",
        "B steps to 2 with 201 -",
        "a gets 10 for 100",
        "b gets 20 for 201",
    ],
]


def by_actor(events: list[str]) -> dict[str, list[str]]:
    """Return the events of each environment and agent, whose names they begin with."""
    return {name: [event for event in events if event.startswith(name)] for name in "ABab"}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_each_environment_ends_and_begins_on_its_own(scheduler):
    log: list[str] = []
    seen = Seen()
    coordinator = both(log, seen, EnvironmentTerminationCondition("all"))
    run_episodes(coordinator, scheduler=scheduler)
    assert by_actor(log) == by_actor([event for tick in OWN_TIMELINES_TRACE for event in tick])
    if scheduler == "direct":
        # what has nothing to do with each other may come in any order under mosaik's scheduler
        position = 0
        for tick in OWN_TIMELINES_TRACE:
            happened = log[position : position + len(tick)]
            position += len(tick)
            steps = sum(" resets" in event or " steps " in event for event in tick)
            assert sorted(happened[:steps]) == sorted(tick[:steps])
            assert happened[steps:] == tick[steps:]
    assert (coordinator.time, coordinator.ended_by) == (4, "EnvironmentTerminationCondition")
    assert [tuple(endings.values()) for endings in seen.endings] == [(0, 0), (0, 0), (1, 0), (1, 0), (1, 1)]
    assert [ended["A"] for ended in seen.ended] == [(False, False)] * 2 + [(True, False)] + [
        (False, False)
    ] * 2


def test_rows_know_the_episode_of_their_environment():
    coordinator = both([], EnvironmentTerminationCondition("all"))
    run_episodes(coordinator)
    a, b = ([(r[2], r[3], r[12], r[8], r[9]) for r in body.stream.rows] for body in coordinator.bodies)
    # step (it runs on), time, environment_episode, terminated, truncated
    assert a == [(0, 0, 0, False, False), (1, 1, 0, True, False), (2, 3, 1, False, True)]
    assert b == [(0, 0, 0, False, False), (1, 2, 0, True, False)]
    states = {
        handle.uid: [(r[2], r[3], r[10], r[6]) for r in handle.stream.rows] for handle in coordinator.handles
    }
    # step, time, environment_episode, terminated: the terminal state is one of the episode that it ends
    assert states["A"] == [
        (0, 0, 0, False),
        (1, 1, 0, False),
        (2, 2, 0, True),
        (3, 3, 1, False),
        (4, 4, 1, False),
    ]
    assert states["B"] == [(0, 0, 0, False), (1, 2, 0, False), (2, 4, 0, True)]


def test_every_environment_ends_as_often_as_is_asked_for():
    seen = Seen()
    coordinator = both([], seen, EnvironmentTerminationCondition("all", episodes=3))
    run_episodes(coordinator)
    # A ends at 2, 5, 8, ..., B at 4, 10, 16: a first state takes a step of its own
    assert coordinator.time == 16
    assert seen.endings[-1] == {"A": 5, "B": 3}
    episodes = [row[12] for row in coordinator.bodies[1].stream.rows]
    assert episodes == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("conditions", "time"),
    [
        ([EnvironmentTerminationCondition()], 2),
        ([EnvironmentTerminationCondition("any")], 2),
        ([EnvironmentTerminationCondition("all")], 4),
        # the default gives way, a word that was said does not
        ([EnvironmentTerminationCondition("all"), EnvironmentTerminationCondition()], 4),
        ([VanillaRunGovernorTerminationCondition(), EnvironmentTerminationCondition("all")], 4),
        ([EnvironmentTerminationCondition("any"), EnvironmentTerminationCondition("all")], 2),
        # nobody says that they begin again: over when nobody can be stepped
        ([], 4),
    ],
)
def test_any_is_the_default_and_gives_way_to_all(conditions, time):
    coordinator = both([], *conditions)
    run_episodes(coordinator)
    assert coordinator.time == time


def test_without_all_nothing_begins_again():
    log: list[str] = []
    run_episodes(both(log))
    assert log.count("A resets") == 1
    assert not any("forgets" in line for line in log)


def test_the_phase_episodes_begin_all_of_them_anew():
    log: list[str] = []
    coordinator = both(log, EnvironmentTerminationCondition("all"))
    run_episodes(coordinator, episodes=2)
    half = len(log) // 2
    assert log[:half] == log[half:]
    assert [row[12] for row in coordinator.bodies[0].stream.rows] == [0, 0, 1] * 2


def test_a_condition_may_end_the_episode_before_they_all_have():
    log: list[str] = []
    # the sum of rewards of the newest row of a: 10, 20 (A ends), 10, ...; ends the episode at 2
    soon = AgentObjectiveTerminationCondition(a={"brain_avg1": 20})
    coordinator = both(log, EnvironmentTerminationCondition("all"), soon)
    run_episodes(coordinator)
    assert (coordinator.time, coordinator.ended_by) == (2, "AgentObjectiveTerminationCondition")
    a, b = ([(r[3], r[8], r[9]) for r in body.stream.rows] for body in coordinator.bodies)
    # a's environment has terminated in this very step, b is cut off
    assert a == [(0, False, False), (1, True, False)]
    assert b == [(0, False, True)]


def test_in_turns_who_has_ended_passes_the_turn_on():
    log: list[str] = []
    coordinator = make_coordinator(
        [Counter("A", log, steps=1), Counter("B", log, steps=4)],
        [
            ("a", Adder(100, log), None, ["A.x"], ["A.u1"]),
            ("b", Adder(200, log), None, ["B.x"], ["B.u1"]),
        ],
        conditions=[EnvironmentTerminationCondition("all")],
        taking_turns=True,
    )
    run_episodes(coordinator)
    acted = [line for line in log if " sees " in line]
    # A begins at 0 and 2 and ends at 1 and 3; at 1 and 3 it is the turn of b, at 2 again that of a
    assert acted == ["a sees 0 sets 100", "b sees 1 sets 201", "a sees 0 sets 100", "b sees 3 sets 203"]


def test_a_body_over_two_environments_goes_on_when_both_do():
    """
    t          0      1      2      3      4      5      6      7
    A          0      1     2, ends 0      1     2, ends 0      1
    B          0      1      2     3, ends 0      1      2     3, ends
    a        acts   acts   closes         acts  closes  acts  closes
    """
    log: list[str] = []
    coordinator = make_coordinator(
        [Counter("A", log, steps=2), Counter("B", log, steps=3)],
        [("a", Forgetful(100, log), None, ["A.x", "B.x"], ["A.u1", "B.u1"])],
        conditions=[EnvironmentTerminationCondition("all", episodes=2)],
    )
    run_episodes(coordinator)
    (body,) = coordinator.bodies
    # time, number of the episode, terminated
    assert [(r[3], r[12], r[8]) for r in body.stream.rows] == [
        (0, 0, False), (1, 0, True), (4, 1, True), (6, 2, True),
    ]  # fmt: skip
    assert log.count("a forgets") == 2
    # at 3 A begins and at 4 it steps with nothing that was set in its last episode; B goes on with what it had
    assert [line for line in log if line.startswith("A")] == [
        "A resets", "A steps to 1 with 100 -", "A steps to 2 with 101 -", "A resets", "A steps to 1 with - -",
        "A steps to 2 with 101 -", "A resets", "A steps to 1 with 100 -",
    ]  # fmt: skip
    assert "B steps to 3 with 101 -" in log


class SoonOver(Counter):
    """Its second episode is over with its first state."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.begun = 0

    def reset(self) -> EnvironmentState:
        self.begun += 1
        state = super().reset()
        if self.begun == 2:
            state.terminated = True
        return state


def test_an_episode_that_is_over_as_it_begins_counts_for_agent_and_environment_alike():
    coordinator = make_coordinator(
        [SoonOver("A", [], steps=2)],
        [("a", Adder(100, []), None, ["A.x"], ["A.u1"])],
        conditions=[EnvironmentTerminationCondition("all", episodes=3)],
    )
    run_episodes(coordinator)
    assert [(r[3], r[12]) for r in coordinator.bodies[0].stream.rows] == [(0, 0), (1, 0), (4, 2), (5, 2)]
    assert [(r[3], r[10]) for r in coordinator.handles[0].stream.rows] == [
        (0, 0), (1, 0), (2, 0), (3, 1), (4, 2), (5, 2), (6, 2),
    ]  # fmt: skip


class Echo(Environment):
    """Its reward is its set-point; ends after ``steps``."""

    def __init__(self, steps: int = 3, ends: bool = True):
        self.steps, self.ends = steps, ends

    def setup(self) -> EnvironmentBaseline:
        return EnvironmentBaseline(
            [SensorInformation(0.0, ANY, "x")],
            [ActuatorInformation(0.0, ANY, "u")],
            [RewardInformation(0.0, ANY, "r")],
        )

    def reset(self) -> EnvironmentState:
        self.count = 0
        return EnvironmentState(np.zeros(1), (0.0,))

    def step(self, setpoints: Any) -> EnvironmentState:
        self.count += 1
        over = self.ends and self.count >= self.steps
        return EnvironmentState(np.array([float(self.count)]), (float(setpoints[0]),), terminated=over)


class OnePlus(Muscle):
    """Sets one more than its first reading."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        actuators_available.vector = np.array([1.0 + sensors[0].value])
        return actuators_available, None


@pytest.mark.parametrize("batched", [False, True])
def test_a_set_point_does_not_outlive_the_episode_that_it_was_given_in(batched, tmp_path):
    """In turns, b sets something in e at the tick at which e has ended: it comes too late for that episode.

    e ends at 3, 7, 11; b sets 2, 4, 6, 8, ... at 1, 3, 5, 7 from what it reads in o, so that e has 2 at
    2 and 3, then 0 at 5 (what was set at 3 is gone), and 6 at 6.
    """
    here = f"{HERE}:Echo"
    e = environment("e", here)
    if batched:
        params = {"name": here, "batch": 2}
        e["environment"] |= {"name": "palaestrai_mosaik.environment.copies:Copies", "params": params}
    channel = "e.1" if batched else "e"
    agents = [
        agent("a", brain=None, muscle=named(f"{HERE}:OnePlus"), sensors=["o.x"], actuators=["o.u"]),
        agent("b", brain=None, muscle=named(f"{HERE}:OnePlus"), sensors=["o.x"], actuators=[f"{channel}.u"]),
    ]
    ends = [named(ENVIRONMENT_ENDS, when="all")]
    doc = document(phase([e, environment("o", here, steps=8)], agents, ends, "taking_turns", mode="test"))
    with Store(tmp_path, create=True) as store:
        run = execute(doc, store=store).instance
        incarnation = {"incarnation": 1} if batched else {}
        states = store.environment_states(run, environment="e", **incarnation)
    (column,) = [name for name in states if name.startswith("reward.")]
    assert states[column].tolist() == [0, 0, 2, 2, 0, 0, 6, 6, 0]


class Undecided(MatrixGame):
    """Nothing holds until somebody has chosen."""

    def get_idle_actions(self) -> Any:
        return [np.array(np.nan), np.array(np.nan)]


def test_who_begins_again_needs_no_set_point_before_it_acts(tmp_path):
    """Of whole numbers, a missing one is an error, but not where it has no effect."""
    games = environment("game", f"{HERE}:Undecided", batch=2, max_steps=2)
    random = named("palaestrai_mosaik.agent.library.random_agent:RandomMuscle")
    player = {"name": "a", "muscle": random, "bodies": [{"environment": "game", "count": 2}]}
    doc = document(phase([games], [player], [named(ENVIRONMENT_ENDS, when="all", episodes=2)], mode="test"))
    with Store(tmp_path, create=True) as store:
        run = execute(doc, store=store).instance
        assert store.steps(run, agent="a", body=1)["time"].tolist() == [0, 1, 3, 4]


def constant(end: int) -> dict[str, Any]:
    """Return the entry of a co-simulation of one of mosaik's own simulators, which is cut off at ``end``."""
    return environment(
        "co",
        "palaestrai_mosaik.environment.described:DescribedCoSimulation",
        step_size=1,
        end=end,
        simulators={
            "constant": {
                "python": "mosaik.basic_simulators.input_simulator:InputSimulator",
                "params": {"step_size": 1},
            }
        },
        entities=[{"uid": "seven", "simulator": "constant", "model": "Constant", "params": {"constant": 7}}],
        sensors=[{"uid": "seven", "entity": "seven", "attribute": "value", "space": "Box(0, 10, ())"}],
    )


def test_a_co_simulation_ends_once_while_the_others_go_on(tmp_path):
    """It cannot begin again: it ends at 2, the hall at 3."""
    watcher = agent("w", brain=None, sensors=["co.seven"], actuators=["hall.9"])
    other = agent("a", brain=None, uid="hall")
    both = [constant(end=2), environment("hall", max_iter=3)]
    doc = document(phase(both, [watcher, other], [named(ENVIRONMENT_ENDS, when="all")], mode="test"))
    with Store(tmp_path, create=True) as store:
        run = execute(doc, store=store).instance
        times = {
            uid: store.environment_states(run, environment=uid)["time"].tolist() for uid in ("co", "hall")
        }
        watched, acted = (store.steps(run, agent=name) for name in ("w", "a"))
    assert times == {"co": [0, 1, 2], "hall": [0, 1, 2, 3]}
    # who watches the co-simulation is over with it
    flags = ["time", "terminated", "truncated"]
    assert watched[flags].to_numpy().tolist() == [[0, False, False], [1, False, True]]
    assert acted[flags].to_numpy().tolist() == [[0, False, False], [1, False, False], [2, True, False]]
    twice = document(phase(both, [watcher, other], [named(ENVIRONMENT_ENDS, when="all", episodes=2)]))
    (problem,) = inspect(twice)
    assert "environment 'co' ends once and cannot begin again, but is to end 2 times" in str(problem)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"when": "all"}, "environment 'o' never ends, so that 'when: all' would wait forever"),
        ({"when": "any"}, None),
    ],
)
def test_waiting_for_what_never_ends_is_told_before_anything_runs(wanted, said):
    one = agent("a", brain=None, muscle=named(f"{HERE}:OnePlus"), sensors=["e.x"], actuators=["e.u"])
    environments = [environment("e", f"{HERE}:Echo"), environment("o", f"{HERE}:Echo", ends=False)]
    problems = inspect(document(phase(environments, [one], [named(ENVIRONMENT_ENDS, **wanted)])))
    assert len(problems) == (said is not None) and all(str(said) in str(problem) for problem in problems)
    until = [named(ENVIRONMENT_ENDS, when="all"), named(AGENT_OBJECTIVE, a={"brain_avg1": 3})]
    assert inspect(document(phase(environments, [one], until))) == []


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"when": "alle"}, "'when' must be 'any' or 'all', not 'alle' (did you mean 'all'?)"),
        ({"when": "all", "episodes": 0}, "'episodes' must be a whole number of at least 1, not 0"),
        ({"when": "any", "episodes": 2}, "'episodes' needs 'when: all'"),
        ({"episodes": 2}, "'episodes' needs 'when: all'"),
    ],
)
def test_wrong_words_are_refused(params, said):
    with pytest.raises(ContractError) as caught:
        EnvironmentTerminationCondition(**params)
    assert said in str(caught.value)
