"""Faults in users' classes: the message names class, method, environment or agent, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.documents import ENVIRONMENT_ENDS, agent, document, environment, named, phase

from palaestrai_mosaik.agent import Brain, Muscle, Objective
from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.environment import (
    Environment,
    EnvironmentBaseline,
    EnvironmentState,
    EnvironmentStateTransformer,
    Reward,
)
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.preflight import inspect
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.testing import ConformanceError, check_environment, check_reward
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    RewardInformation,
    SensorInformation,
    SimulationFlowControl,
)

HERE = __name__
UNIT = Box(0.0, 1.0, shape=())


class Tank(Environment):
    """Two sensors, an actuator, a reward; ends after two steps."""

    def setup(self) -> Any:
        return self.baseline_of()

    def baseline_of(self, **kinds: Any) -> EnvironmentBaseline:
        return EnvironmentBaseline(
            **{
                "sensors": [SensorInformation(0.0, UNIT, "level"), SensorInformation(0.0, UNIT, "flow")],
                "actuators": [ActuatorInformation(0.0, UNIT, "valve")],
                "rewards": [RewardInformation(0.0, UNIT, "fill")],
                **kinds,
            }
        )

    def reset(self) -> Any:
        self.count = 0
        return self.state_of()

    def step(self, setpoints: Any) -> Any:
        self.count += 1
        return self.state_of()

    def state_of(self, **values: Any) -> EnvironmentState:
        return EnvironmentState(
            **{"readings": np.zeros(2), "rewards": (0.0,), "terminated": self.count == 2, **values}
        )


class Half(Muscle):
    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        actuators_available[0].value = 0.5
        return actuators_available, None


class Fill(Reward):
    def setup(self, baseline: Any) -> Any:
        return [RewardInformation(0.0, UNIT, "fill")]

    def __call__(self, state: Any) -> Any:
        return 0.5


class Plain(Objective):
    def internal_reward(self, memory: Any, **kwargs: Any) -> Any:
        return 0.0


class Idle(Brain):
    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        return None


class Never(TerminationCondition):
    def episode_flow_control(self, view: Any) -> SimulationFlowControl:
        return SimulationFlowControl.CONTINUE


class Same(EnvironmentStateTransformer):
    def __call__(self, environment_state: EnvironmentState) -> Any:
        return environment_state


BASES: dict[str, type] = {
    "environment": Tank,
    "reward": Fill,
    "muscle": Half,
    "objective": Plain,
    "brain": Idle,
    "condition": Never,
    "run_condition": Never,
    "state_transformer": Same,
}


def broken(topic: str, **members: Any) -> tuple[str, str]:
    """Add a class that breaks ``topic`` to this module, so that a document can name it; return both."""
    base = BASES[topic]
    name = f"Broken{len([one for one in globals() if one.startswith('Broken')])}"
    globals()[name] = type(name, (base,), {"__module__": HERE, **members})
    return topic, name


def returning(value: Any) -> Callable[..., Any]:
    return lambda self, *given: value


def story(topic: str, name: str) -> Any:
    """Return a document of one agent in one environment in which ``name`` stands for ``topic``."""
    names = {one: f"{HERE}:{base.__name__}" for one, base in BASES.items()} | {topic: f"{HERE}:{name}"}
    world = environment("tank", names["environment"])
    for part in ("reward", "state_transformer"):
        if topic == part:
            world[part] = named(names[part])
    one = agent("a", uid="tank", sensors=["tank.level"], actuators=["tank.valve"])
    one |= {part: named(names[part]) for part in ("muscle", "objective", "brain")}
    conditions = [named(names["condition"]), named(ENVIRONMENT_ENDS)]
    vanilla = named("palaestrai_mosaik.simulation.conditions:VanillaRunGovernorTerminationCondition")
    return document(
        phase([world], [one], conditions=conditions), run=[named(names["run_condition"]), vanilla]
    )


#: what breaks which rule when it is set up, or by its signature, and what the message has
AT_SETUP = [
    (broken("environment", setup=returning([1, 2])), ["setup: returns no EnvironmentBaseline: found [1, 2], a list"]),
    (broken("environment", setup=returning(None)), ["found None (is a return missing?); write return EnvironmentBase"]),
    (
        broken("environment", setup=lambda self: self.baseline_of(sensors=["level", "flow"])),
        ["setup: a sensor is no SensorInformation: number 0 is 'level', a str; write SensorInformation(0.0, Box("],
    ),
    (
        broken("environment", setup=lambda self: self.baseline_of(sensors=SensorInformation(0.0, UNIT, "level"))),
        ["setup: its sensors are no list: found SensorInformation(", "write [SensorInformation("],
    ),
    (
        broken("environment", setup=lambda self: self.baseline_of(rewards=None)),
        ["setup: its rewards are no list: found None", "or [] for none"],
    ),
    (
        broken(
            "environment",
            setup=lambda self: self.baseline_of(actuators=[ActuatorInformation(0.0, (0.0, 1.0), "valve")]),  # type: ignore[arg-type]
        ),
        ["actuator 'valve' has no space, but (0.0, 1.0); write", "such as Box(0.0, 1.0, shape=())", "test_users_faults.py:"],
    ),
    (
        broken("environment", setup=lambda self: self.baseline_of(sensors=[SensorInformation(0.0, (0, 1), "level")])),  # type: ignore[arg-type]
        ["setup: a sensor has no space: 'level' has (0, 1), of builtins:tuple; write a space"],
    ),
    (
        broken("environment", setup=lambda self: self.baseline_of(sensors=[SensorInformation("level", UNIT, 0.0)])),  # type: ignore[arg-type]
        ["setup: a sensor has no uid: the uid of number 0 is 0.0, not a name"],
    ),
    (
        broken("environment", setup=lambda self: Box(1.0, 0.0, shape=())),
        ["SpaceError: a Box needs low <= high, found low=1.0, high=0.0", "test_users_faults.py:"],
    ),
    (
        broken("environment", setup=lambda self: self.baseline_of(sensors=[SensorInformation(0.0, UNIT, "level")] * 2)),
        ["setup: several sensors have the same uid: 'level'"],
    ),
    (
        broken("environment", setup=lambda self: self.baseline_of(rewards=[RewardInformation(0.0, UNIT, "fill")] * 2)),
        ["setup: several rewards have the same uid: 'fill'"],
    ),
    (broken("environment", step_size=0.5), ["step_size is not a whole number of at least 1: found 0.5"]),
    (
        broken("environment", reset=lambda self, seed: None),
        ["'reset' takes (self, seed), but is called with (self): write `def reset(self):`"],
    ),
    (
        broken("environment", step=lambda self: None),
        ["'step' takes (self), but is called with (self, setpoints): write `def step(self, setpoints):`"],
    ),
    (broken("environment", state=3.0), ["'state' is a float, but must be a method: write `def state(self):`, or rename"]),
    (broken("reward", __call__=lambda self: 1.0), ["'__call__' takes (self), but is called with (self, state)"]),
    (broken("reward", setup=returning(None)), ["of environment 'tank', setup: its rewards are no list: found None"]),
    (broken("reward", setup=returning(["fill"])), ["a reward is no RewardInformation: number 0 is 'fill', a str"]),
    (
        broken("state_transformer", __call__=lambda self: None),
        ["'__call__' takes (self), but is called with (self, environment_state)"],
    ),
    (
        broken("muscle", propose_actions=lambda self, sensors: None),
        ["'propose_actions' takes (self, sensors), but is called with (self, sensors, actuators_available)"],
    ),
    (broken("muscle", reset=lambda self, x: None), ["'reset' takes (self, x), but is called with (self)"]),
    (
        broken("brain", thinking=lambda self, muscle_id: None),
        ["'thinking' takes (self, muscle_id), but is called with (self, muscle_id, data_from_muscle)"],
    ),
    (broken("objective", internal_reward=lambda self: 1.0), ["'internal_reward' takes (self), but is called with (self, memory)"]),
    (
        broken("condition", episode_flow_control=lambda self: None),
        ["'episode_flow_control' takes (self), but is called with (self, view)"],
    ),
]  # fmt: skip

#: what breaks which rule when it is asked, and what the message has
IN_A_RUN = [
    (
        broken("environment", step=lambda self, setpoints: None),
        ["step: returns no EnvironmentState: found None (is a return missing?); write return EnvironmentState("],
    ),
    (
        broken("environment", reset=lambda self: (np.zeros(2), {})),
        ["reset: returns no EnvironmentState: found (array([0., 0.]), {}), a tuple"],
    ),
    (
        broken("environment", state_of=lambda self: Tank.state_of(self, readings=np.zeros(3))),
        ["reset: readings are not a vector of shape (2,): their shape is (3,); expected are those of level, flow"],
    ),
    (
        broken("environment", state_of=lambda self: Tank.state_of(self, readings=[[1.0], [1.0, 2.0]])),
        ["reset: readings are not numbers: found [[1.0], [1.0, 2.0]], a list"],
    ),
    (
        broken("environment", state_of=lambda self: Tank.state_of(self, rewards=["high"])),
        ["reset: rewards are not numbers: found ['high'], a list; expected is one number for each of: fill"],
    ),
    (
        broken("environment", state_of=lambda self: Tank.state_of(self, rewards=[1.0, 2.0])),
        ["reset: 1 reward declared, others given: found [1.0, 2.0], a list"],
    ),
    (
        broken("environment", state_of=lambda self: Tank.state_of(self, terminated=None)),
        ["reset: terminated is neither True nor False: found None; write terminated=bool(...)"],
    ),
    (
        broken("reward", __call__=returning(None)),
        ["of environment 'tank', __call__: rewards are not numbers: found None (is a return missing?)"],
    ),
    (broken("reward", __call__=returning([1.0, 2.0])), ["__call__: 1 reward declared, others given: found [1.0, 2.0]"]),
    (broken("reward", __call__=returning("high")), ["__call__: rewards are not numbers: found 'high', a str"]),
    (broken("reward", __call__=returning([[1.0], [1.0, 2.0]])), ["__call__: rewards are not numbers: found [[1.0], "]),
    (
        broken("muscle", propose_actions=returning(None)),
        ["propose_actions must return (actuators, data), not None (is a return missing?); write `return actuators_"],
    ),
    (broken("muscle", propose_actions=lambda self, s, a: a), ["propose_actions must return (actuators, data), not [Act"]),
    (broken("muscle", propose_actions=returning(("on", None))), ["propose_actions must return actuators, not 'on'; set `"]),
    (broken("muscle", propose_actions=returning(((0.5,), None))), ["propose_actions must return actuators, not 0.5; set `"]),
    (
        broken("muscle", propose_actions=lambda self, s, a: (setattr(a, "vector", np.zeros(3)), (a, None))[1]),
        ["the vector of set-points has shape (3,), expected is (1,) for tank.valve"],
    ),
    (
        broken("muscle", propose_actions=lambda self, s, a: (a[0]("on"), (a, None))[1]),
        ["set-point 'on' of actuator 'tank.valve' is not in Box("],
    ),
    (
        broken("objective", internal_reward=returning("much")),
        ["internal_reward must return a number or None, not 'much'"],
    ),
    (
        broken("objective", internal_reward=returning(np.zeros(2))),
        ["internal_reward must return a number or None, not array([0., 0.]); of several values, return their sum"],
    ),
    (
        broken("condition", episode_flow_control=returning(True)),
        ["episode_flow_control: it must return a SimulationFlowControl, not True; write `return", "RESET` to end the episode"],
    ),
    (broken("condition", episode_flow_control=returning(None)), ["not None (is a return missing?)"]),
    (
        broken("run_condition", phase_flow_control=returning(True)),
        ["phase_flow_control: it must return a SimulationFlowControl, not True", "STOP_PHASE` to end the phase"],
    ),
    (
        broken("state_transformer", __call__=returning(None)),
        ["of environment 'tank', __call__: returns no EnvironmentState: found None (is a return missing?)"],
    ),
]  # fmt: skip


def ids(cases: list[Any]) -> list[str]:
    return [f"{topic}-{texts[0][:40]}" for (topic, _), texts in cases]


@pytest.mark.parametrize(("part", "texts"), AT_SETUP, ids=ids(AT_SETUP))
def test_what_can_be_found_without_a_step_is_found_by_the_check(
    part: tuple[str, str], texts: list[str]
) -> None:
    topic, name = part
    (problem,) = inspect(story(topic, name))
    assert f"{HERE}:{name}" in str(problem)
    assert not [text for text in texts if text not in str(problem)], str(problem)


@pytest.mark.parametrize(("part", "texts"), IN_A_RUN, ids=ids(IN_A_RUN))
def test_what_a_run_finds_names_the_class_at_fault(
    tmp_path: Path, part: tuple[str, str], texts: list[str]
) -> None:
    topic, name = part
    spec = story(topic, name)
    assert inspect(spec) == []
    with Store(tmp_path, create=True) as store, pytest.raises(PalaestraiMosaikError) as error:
        execute(spec, store=store)
    owner = {"environment": "tank", "reward": "tank", "state_transformer": "tank"}.get(topic, "a")
    wanted = [f"{HERE}:{name}", *texts, *([] if "condition" in topic else [f"'{owner}'"])]
    assert not [text for text in wanted if text not in str(error.value)], str(error.value)


def test_tuples_stand_for_lists() -> None:
    _, name = broken(
        "environment",
        setup=lambda self: self.baseline_of(
            **{kind: tuple(getattr(self.baseline_of(), kind)) for kind in ("sensors", "actuators", "rewards")}
        ),
    )
    execute(story("environment", name))


def test_what_a_reward_raises_is_not_said_of_the_environment() -> None:
    def fails(self: Any, state: Any) -> float:
        raise ValueError("no level")

    _, name = broken("reward", __call__=fails)
    with pytest.raises(ValueError, match="no level") as error:
        execute(story("reward", name))
    assert error.value.__notes__ == [f"raised in the reward {HERE}:{name} of environment 'tank'"]


def test_a_method_that_is_nearly_called_as_needed_is_named() -> None:
    class Near(Muscle):
        def propose_action(self, sensors: Any, actuators_available: Any) -> Any:
            return actuators_available, None

    globals()["Near"] = Near
    Near.__qualname__ = "Near"
    (problem,) = inspect(story("muscle", "Near"))
    assert "is abstract: it does not implement propose_actions, but has 'propose_action'" in str(problem)


@pytest.mark.parametrize("case", [0, 2, 9, 11, 12, 13])
def test_the_conformance_check_says_the_same_of_an_environment(case: int) -> None:
    (_, name), texts = AT_SETUP[case]
    rule = texts[0].removeprefix("setup: ").partition(": ")[0]
    with pytest.raises(ConformanceError) as error:
        check_environment(globals()[name])
    assert rule in str(error.value)


def test_the_conformance_check_says_the_same_of_a_reward() -> None:
    for (topic, name), texts in IN_A_RUN:
        if topic == "reward":
            with pytest.raises(ConformanceError) as error:
                check_reward(globals()[name], Tank().baseline_of())
            assert texts[0].partition("__call__: ")[2].partition(": ")[0] in str(error.value)
