"""Environments, muscles, objectives and conditions that tests name in documents."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np

from palaestrai_mosaik.agent import Brain, Muscle, Objective
from palaestrai_mosaik.agent.library.dummy import DummyMuscle
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    RewardInformation,
    SensorInformation,
    SimulationFlowControl,
)


class Ramp(Environment):
    """Its only reward is the number of steps of the episode: 1, 2, 3, ...

    ``max_steps`` truncates (``None``: it never ends); ``offset`` is added to the reward.
    """

    def __init__(self, max_steps: int | None = None, offset: float = 0.0):
        self.max_steps = max_steps
        self.offset = offset
        self.ends = max_steps is not None
        self.count = 0

    def setup(self) -> EnvironmentBaseline:
        space = Box(-np.inf, np.inf, shape=())
        return EnvironmentBaseline(
            [SensorInformation(0.0, space, "x")],
            [ActuatorInformation(None, space, "u")],
            [RewardInformation(0.0, space, "n")],
        )

    def reset(self) -> EnvironmentState:
        self.count = 0
        return EnvironmentState(np.zeros(1), (0.0,))

    def step(self, setpoints: Any) -> EnvironmentState:
        self.count += 1
        return EnvironmentState(
            np.array([float(self.count)]),
            (self.count + self.offset,),
            truncated=self.max_steps is not None and self.count >= self.max_steps,
        )


class Noisy(Ramp):
    """Reads noise from its own generator; ends after ``max_steps``."""

    def step(self, setpoints: Any) -> EnvironmentState:
        state = super().step(setpoints)
        state.readings = self.rng.normal(size=1)
        return state


class Slow(Ramp):
    """Takes ``seconds`` for a step."""

    def __init__(self, seconds: float, max_steps: int | None = None):
        super().__init__(max_steps)
        self.seconds = seconds

    def step(self, setpoints: Any) -> EnvironmentState:
        time.sleep(self.seconds)
        return super().step(setpoints)


class Broken(Ramp):
    """Raises at the ``at``-th step, in ``where``: step, reset, setup, or shutdown."""

    def __init__(self, where: str = "step", at: int = 3):
        super().__init__(10)
        self.where, self.at = where, at

    def _maybe(self, where: str, count: int | None = None) -> None:
        if self.where == where and (count is None or count == self.at):
            raise RuntimeError(f"broken in {where}")

    def setup(self) -> EnvironmentBaseline:
        self._maybe("setup")
        return super().setup()

    def reset(self) -> EnvironmentState:
        self._maybe("reset")
        return super().reset()

    def step(self, setpoints: Any) -> EnvironmentState:
        self._maybe("step", self.count + 1)
        return super().step(setpoints)

    def shutdown(self) -> None:
        self._maybe("shutdown")


class Raising(DummyMuscle):
    """Raises after ``after`` actions."""

    def __init__(self, after: int = 3):
        super().__init__()
        self.left = after

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        if self.left == 0:
            raise ValueError("this muscle has had enough")
        self.left -= 1
        return super().propose_actions(sensors, actuators_available)


class Telling(DummyMuscle):
    """Reports the reading of its first sensor."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        self.add_statistics("reading", sensors.vector[0])
        return super().propose_actions(sensors, actuators_available)


class TellingBrain(Brain):
    """Reports the objective of the row that it thinks about."""

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        self.add_statistics("objective", self.memory.tail(1).objective[0])


class Returning(Muscle):
    """Returns whatever ``what`` names, to break the contract."""

    def __init__(self, what: str):
        self.what = what

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        actuators = list(actuators_available)
        foreign = ActuatorInformation(1, actuators[0].space, "foreign.1")
        wild = np.full(len(actuators), 1e9)
        if self.what == "wild vector":
            actuators_available.vector = wild
            return actuators_available, None
        if self.what == "wild value":
            actuators[1].value = -5
        return {
            "nothing": None,
            "foreign": ([foreign], None),
            "numbers": ([1, 2, 3], None),
            "list only": actuators,
            "good list": (actuators, None),
        }[self.what]


class GloballyRandom(Muscle):
    """Draws from the global generators, as nobody should."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        for actuator in actuators_available:
            actuator.value = random.randrange(100)
        return actuators_available, None


class Constant(Objective):
    """Always the same value."""

    def __init__(self, value: float):
        super().__init__()
        self.value = value

    def internal_reward(self, memory: Any, **kwargs: Any) -> float:
        return self.value


class Absent(Objective):
    """Has no value on odd steps."""

    def internal_reward(self, memory: Any, **kwargs: Any) -> float | None:
        reading = memory.tail(1).sensor_readings[-1, 0]
        return float(reading) if reading % 2 == 0 else None


class RaisingBrain(Brain):
    """Raises in ``where``: setup, thinking or store."""

    def __init__(self, where: str):
        self.where = where

    def setup(self) -> None:
        if self.where == "setup":
            raise RuntimeError("brain broken in setup")

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        if self.where == "thinking":
            raise RuntimeError("brain broken in thinking")

    def store(self) -> None:
        if self.where == "store":
            raise RuntimeError("brain broken in store")


class Wishes(TerminationCondition):
    """Wishes for ``flow`` in the step in which the time is ``at``."""

    def __init__(self, flow: str, at: int = 2):
        self.flow = SimulationFlowControl[flow]
        self.at = at

    def episode_flow_control(self, view: Any) -> SimulationFlowControl:
        return self.flow if view.time == self.at else SimulationFlowControl.CONTINUE
