"""Corners of the engine in which something was once wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.documents import MAX_EPISODES, agent, document, environment, named, phase
from support.engine import Adder, Counter, Total, make_coordinator, run_episodes
from support.parts import Ramp

from palaestrai_mosaik.agent import Brain, Muscle, Objective
from palaestrai_mosaik.agent.library.dummy import DummyBrain
from palaestrai_mosaik.core.errors import ActionError, ContractError, DocumentError
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import ActuatorInformation, Box


def two_ends(taking_turns: bool):
    """a lives in E, which ends at 2; b in F, which ends at 6. No condition ends the episode."""
    log: list[str] = []
    coordinator = make_coordinator(
        [Counter("E", log, steps=2), Counter("F", log, steps=6)],
        [
            ("a", Adder(100, log), Total("a", log), ["E.x"], ["E.u1"]),
            ("b", Adder(200, log), Total("b", log), ["F.x"], ["F.u1"]),
        ],
        taking_turns=taking_turns,
        conditions=[],
    )
    return log, coordinator


def test_an_agent_whose_environment_has_ended_acts_no_more():
    log, coordinator = two_ends(False)
    run_episodes(coordinator)
    a, b = (body.stream.rows for body in coordinator.bodies)
    # (worker, episode, step, time, readings, setpoints, rewards, objective, terminated, truncated, wall)
    assert [(r[3], r[7], r[8], r[9]) for r in a] == [(0, 10.0, False, False), (1, 20.0, True, False)]
    assert [r[3] for r in b] == [0, 1, 2, 3, 4, 5]
    assert [line for line in log if line.startswith("a sees")] == ["a sees 0 sets 100", "a sees 1 sets 101"]


def test_in_turns_an_agent_that_is_out_is_left_out():
    _, coordinator = two_ends(True)
    run_episodes(coordinator)
    a, b = (body.stream.rows for body in coordinator.bodies)
    # E ends at t=2, at which it would have been a's turn again
    assert [(r[3], r[8], r[9]) for r in a] == [(0, True, False)]
    assert [r[3] for r in b] == [1, 2, 3, 4, 5]
    assert [(r[8], r[9]) for r in b][-1] == (True, False)


def test_rewards_of_an_environment_that_is_only_acted_in_are_added_up():
    log: list[str] = []
    coordinator = make_coordinator(
        [Counter("E", log, steps=99), Counter("F", log, steps=2, step_size=3)],
        [("a", Adder(0, log), Total("a", log), ["F.x"], ["E.u1", "F.u1"])],
    )
    run_episodes(coordinator)
    (body,) = coordinator.bodies
    # E gives 10, 20, 30 until F's first state (10), then 40, 50, 60 until its second (20)
    assert [r[6].tolist() for r in body.stream.rows] == [[60.0, 10.0], [150.0, 20.0]]


class Returned(Muscle):
    """Returns actuators of its own making."""

    def __init__(self, how: str):
        self.how = how

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        first = actuators_available[0]
        own = ActuatorInformation(1.5, Box(0.0, 1e12, shape=()), first.uid)
        if self.how == "twice":
            return [first, first], None
        if self.how == "exchange":
            first.space = own.space
        return [own], None


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("own space", ActionError, r"1.5.* of actuator 'myenv.0' is not in Discrete\(100\)"),
        ("twice", ContractError, "'myenv.0' was returned twice"),
        ("exchange", AttributeError, "space"),
    ],
)
def test_no_set_point_outside_its_space_gets_through(how, error, words):
    with pytest.raises(error, match=words):
        execute(document(phase(agents=[agent("a", muscle=named(f"{__name__}:Returned", how=how))])))


class Odd(Ramp):
    """Returns a state that is wrong in one way."""

    def __init__(self, what: str, value: Any):
        super().__init__(5)
        self.what, self.value = what, value

    def step(self, setpoints: Any) -> Any:
        return replace(super().step(setpoints), **{self.what: self.value})


@pytest.mark.parametrize(
    ("what", "value", "words"),
    [
        ("readings", [1.0, 2.0], r"not a vector of shape \(1,\): their shape is \(2,\)"),
        ("readings", None, "readings are not numbers: found None; expected are those of x"),
        ("readings", ["1"], "readings are not numbers"),
        ("rewards", None, "rewards are not numbers: found None"),
        ("rewards", [1.0, 2.0], r"1 reward declared, others given: found \[1.0, 2.0\], a list; .*: n;"),
        ("terminated", "no", "terminated is neither True nor False: found 'no'"),
    ],
)
def test_what_an_environment_returns_is_checked(what, value, words):
    odd = environment("e", f"{__name__}:Odd", what=what, value=value)
    one = agent(
        "a", sensors=["e.x"], actuators=["e.u"], muscle=named("support.parts:Returning", what="good list")
    )
    with pytest.raises(ContractError, match=words):
        execute(document(phase([odd], [one])))


class Scribbler(Muscle):
    """Writes to what it reads."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        sensors.vector[:] = -99.0
        return actuators_available, None


@pytest.mark.parametrize("sensors", [["myenv.0", "myenv.1"], ["myenv.1", "myenv.0"], ["myenv.0", "other.0"]])
def test_readings_cannot_be_written_to(sensors):
    one = agent("a", sensors=sensors, muscle=named(f"{__name__}:Scribbler"))
    with pytest.raises(ValueError, match="read-only"):
        execute(document(phase([environment(), environment("other")], [one])))


def test_an_ambiguous_name_is_refused():
    one = environment("a.b", "support.parts:Ramp", max_steps=3)
    two = environment("a", f"{__name__}:DottedRamp", max_steps=3)
    with pytest.raises(DocumentError, match=r"several environments offer a sensor 'a\.b\.x'"):
        execute(document(phase([one, two], [agent("c", sensors=["a.b.x"], actuators=["a.b.u"])])))


class DottedRamp(Ramp):
    """Has a sensor whose name begins like another environment's."""

    def setup(self) -> Any:
        baseline = super().setup()
        for channel in (*baseline.sensors, *baseline.actuators):
            channel.uid = f"b.{channel.uid}"
        return baseline


class Wordy(Objective):
    """Returns what is no number."""

    def internal_reward(self, memory: Any, **kwargs: Any) -> Any:
        return "5"


class Yes(TerminationCondition):
    """Returns a bare truth value."""

    def episode_flow_control(self, view: Any) -> Any:
        return True


class Talker(DummyBrain):
    """Reports under the muscle's key."""

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        self.add_statistics("reading", 1.0)
        return super().thinking(muscle_id, data_from_muscle)


def test_answers_of_the_wrong_type_are_told_by_name():
    with pytest.raises(ContractError, match=r"agent 'a' \(.*:Wordy\): internal_reward must return a number"):
        execute(document(phase(agents=[agent("a", objective=named(f"{__name__}:Wordy"))])))
    with pytest.raises(
        ContractError, match=r"Yes, episode_flow_control: it must return a SimulationFlowControl, not True"
    ):
        execute(document(phase(conditions=[named(f"{__name__}:Yes")])))
    both = agent("a", muscle=named("support.parts:Telling"), brain=named(f"{__name__}:Talker"))
    with pytest.raises(ContractError, match="both report the statistic 'reading'"):
        execute(document(phase(agents=[both])))
    with pytest.raises(TypeError, match="statistic 'x' must be a number, not 'high'"):
        DummyBrain().add_statistics("x", "high")


class Forgetful(Brain):
    """Cannot be loaded."""

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        return np.arange(3)


class Follower(Muscle):
    """Notes the updates that it gets, of all its instances."""

    updates: list[list[Any]] = []

    def __init__(self) -> None:
        self.mine: list[Any] = []
        self.updates.append(self.mine)

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        return actuators_available, None

    def update(self, update: Any) -> None:
        self.mine.append(update)


def test_load_needs_somebody_who_can():
    kinds = {"brain": named(f"{__name__}:Forgetful"), "muscle": named(f"{__name__}:Follower")}
    one = agent("a", **kinds, load={"base": ".", "phase_name": "phase_0"})
    with pytest.raises(DocumentError, match=r"neither Forgetful.load nor Follower.prepare_model"):
        execute(document(phase(agents=[one])))


def test_after_a_restart_the_new_muscle_knows_what_the_brain_has_learned():
    Follower.updates.clear()
    one = agent("a", brain=named(f"{__name__}:Forgetful"), muscle=named(f"{__name__}:Follower"))
    wish = named("support.parts:Wishes", flow="RESTART")
    execute(document(phase(agents=[one], conditions=[wish], episodes=2)))
    first, second, *_ = Follower.updates
    # rows closed at t = 1 and 2; the second muscle begins with the latest update
    assert len(first) == 2
    assert len(second) == 3
    assert second[0].tolist() == [0, 1, 2]


def test_the_reason_of_a_phase_that_conditions_ended_worker_by_worker(tmp_path):
    wish = named("support.parts:Wishes", flow="STOP_SIMULATION")
    with Store(tmp_path, create=True) as store:
        result = execute(
            document(phase(conditions=[wish], episodes=5, workers=2), run=[named(MAX_EPISODES)]), store=store
        )
    assert [p.reason for p in result.phases] == ["Wishes"]
    assert result.phases[0].episodes == 2
