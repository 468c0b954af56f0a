"""Environments of every kind that give one bad value; a document says which, where and when."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import mosaik_api_v3
import numpy as np

from palaestrai_mosaik.environment import (
    Environment,
    EnvironmentBaseline,
    EnvironmentState,
    Reward,
)
from palaestrai_mosaik.environment.batch import BatchEnvironment
from palaestrai_mosaik.environment.functions import FunctionEnvironment
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    Discrete,
    RewardInformation,
    SensorInformation,
    Space,
)

#: the largest value that is inside, in all of them
LIMIT = 10.0
STEPS = 8


def value_of(bad: Any) -> float:
    """Return ``nan``, ``inf`` or a number of a document as a number; ``None`` stays one."""
    return None if bad is None else float(bad)


class Spoiled(Environment):
    """Reads the number of its steps, ends after eight.

    At step ``at``, and at the next ``times - 1`` ones, its reading ``x`` or its reward ``r`` (``what``) is ``bad``.
    """

    def __init__(
        self,
        what: str = "reading",
        bad: Any = "nan",
        at: int = 3,
        times: int = 1,
        may_be_missing: bool = False,
    ):
        self.what, self.bad, self.spoiled = what, value_of(bad), range(at, at + times)
        self.may_be_missing = may_be_missing

    def setup(self) -> EnvironmentBaseline:
        space = Box(-LIMIT, LIMIT, shape=())
        return EnvironmentBaseline(
            [
                SensorInformation(0.0, Box(-1.0, 1.0, shape=(2,)), "pair"),
                SensorInformation(0.0, space, "x", may_be_missing=self.may_be_missing),
                SensorInformation(0, Discrete(3), "level"),
            ],
            [ActuatorInformation(0.0, Box(-1.0, 1.0, shape=()), "u")],
            [RewardInformation(0.0, space, "r")],
        )

    def reset(self) -> EnvironmentState:
        self.count = 0
        return self._state()

    def step(self, setpoints: Any) -> EnvironmentState:
        self.count += 1
        return self._state()

    def _state(self) -> EnvironmentState:
        values = {"reading": 1.0, "reward": 1.0, "pair": 0.5, "level": 1.0}
        if self.count in self.spoiled:
            values[self.what] = self.bad
        readings = np.array([0.0, values["pair"], values["reading"], values["level"]])
        return EnvironmentState(readings, (values["reward"],), truncated=self.count >= STEPS)


class SpoiledReward(Reward):
    """Gives one bad reward."""

    def __init__(self, bad: Any = "nan", at: int = 3):
        self.bad, self.at, self.count = value_of(bad), at, -1

    def __call__(self, state: EnvironmentState) -> float:
        self.count += 1
        return self.bad if self.count == self.at else 0.0


class SpoiledBatch(BatchEnvironment):
    """As :class:`Spoiled`, in the incarnation ``k``, with one sensor."""

    observation_names = ("x",)

    def __init__(
        self,
        what: str = "reading",
        bad: Any = "nan",
        at: int = 3,
        k: int = 1,
        ends_at: int | None = None,
        **keys: Any,
    ):
        super().__init__(**keys)
        self.what, self.bad, self.at, self.k, self.ends_at = what, value_of(bad), at, k, ends_at

    def get_observation_spaces(self) -> list[Space]:
        return [Box(-LIMIT, LIMIT, shape=())]

    def get_first_states(self, incarnations: Any) -> Any:
        zeros = np.zeros(len(incarnations))
        return [zeros], [zeros]

    def get_action_results(self, last_states: Any, actions: Any) -> Any:
        counts = last_states[0] + 1
        return [counts], [self._spoil("reading", counts)]

    def get_rewards(self, last_states: Any, actions: Any, new_states: Any) -> Any:
        return self._spoil("reward", new_states[0])

    def get_ends(self, new_states: Any) -> Any:
        over = np.zeros(self.batch, dtype=bool)
        over[self.k] = new_states[0][self.k] == self.ends_at
        return over, np.zeros(self.batch, dtype=bool)

    def _spoil(self, what: str, counts: Any) -> Any:
        values = np.ones(self.batch)
        if what == self.what and counts[self.k] == self.at:
            values[self.k] = self.bad
        return values


class SpoiledSimulator(mosaik_api_v3.Simulator):
    """A mosaik simulator with entities that have a spoiled attribute ``x``."""

    def __init__(self) -> None:
        models = {"M": {"public": True, "params": [], "attrs": ["x", "u"]}}
        super().__init__({"type": "time-based", "models": models})

    def init(self, sid: str, time_resolution: float = 1.0, bad: Any = "nan", at: int = 3) -> Any:
        self.bad, self.at = value_of(bad), at
        return self.meta

    def create(self, num: int, model: str) -> Any:
        return [{"eid": f"e{i}", "type": model} for i in range(num)]

    def step(self, time: int, inputs: Any, max_advance: int) -> int:
        self.now = time
        return time + 1

    def get_data(self, outputs: Any) -> Any:
        value = self.bad if self.now == self.at else 1.0
        return {eid: dict.fromkeys(attributes, value) for eid, attributes in outputs.items()}


class SpoiledFunction(FunctionEnvironment):
    """A function whose rewards are NaN in a share ``invalid`` of the episodes."""

    def __init__(self, function: str = "ishigami", invalid: float = 0.0, **params: Any):
        super().__init__(function, **params)
        self.invalid = float(invalid)

    def setup(self) -> EnvironmentBaseline:
        baseline = super().setup()
        rewards = [RewardInformation(r.value, r.space, r.uid, may_be_missing=True) for r in baseline.rewards]
        return replace(baseline, rewards=rewards)

    def reset(self) -> EnvironmentState:
        state = super().reset()
        self.missing = self.rng.random() < self.invalid
        return state

    def step(self, setpoints: Any) -> EnvironmentState:
        state = super().step(setpoints)
        return replace(state, rewards=(math.nan,)) if self.missing else state


if __name__ == "__main__":
    mosaik_api_v3.start_simulation(SpoiledSimulator())
