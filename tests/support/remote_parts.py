"""Environments for another interpreter: whoever imports this needs numpy and this package alone."""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import PowerFlowError
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    Discrete,
    MultiBinary,
    Node,
    RewardInformation,
    SensorInformation,
    Topology,
)

ANY = Box(-np.inf, np.inf, shape=())


class Walk(Environment):
    """A random walk with sensors and actuators of several spaces; ``fault`` says what goes wrong in step 2."""

    def __init__(self, steps: int = 4, fault: str = "", log: str | None = None, seconds: float = 0.0):
        self.steps, self.fault, self.log, self.seconds = steps, fault, log, seconds
        self.episodes_begun = 0
        self._fail("init")

    def setup(self) -> EnvironmentBaseline:
        self._note(f"setup {os.getpid()}")
        self._fail("setup")
        self.without_effect = {"seconds": "there is nothing to wait for"} if self.fault == "useless" else {}
        return EnvironmentBaseline(
            sensors=[
                SensorInformation(0.0, ANY, "x"),
                SensorInformation(np.int64(1), Discrete(3, start=-1), "mode"),
                SensorInformation(np.array([0, 1], np.int8), MultiBinary(2), "flags"),
                SensorInformation(np.zeros((2, 2), np.float32), Box(-1, 1, (2, 2), np.float32), "matrix"),
            ],
            actuators=[
                ActuatorInformation(0.5, Box(-1.0, 1.0, shape=()), "push"),
                ActuatorInformation(None, Discrete(3), "gear"),
            ],
            rewards=[RewardInformation(0.0, ANY, "near"), RewardInformation(0.0, ANY, "cost")],
            start=datetime(2020, 3, 1, 12),
            world_model={"pair": (1, 2), 3: np.arange(3)},
            topology=Topology((Node("walker", x=0.5, sensor="matrix[3]"),)),
        )

    def reset(self) -> EnvironmentState:
        self.count, self.x = 0, float(self.rng.normal())
        self.episodes_begun += 1
        return self._state()

    def step(self, setpoints: Any) -> EnvironmentState:
        assert not setpoints.flags.writeable
        self.count += 1
        if self.seconds:
            self._note("step")
            time.sleep(self.seconds)
        if self.count == 2:
            self._fail("step")
        self.x += float(np.nansum(setpoints)) + float(self.rng.normal())
        return self._state()

    def shutdown(self) -> None:
        self._note("shutdown")
        self._fail("shutdown")

    def state(self) -> Any:
        return {"begun": self.episodes_begun} if self.fault == "keeps" else None

    def restore(self, state: Any) -> None:
        self.episodes_begun = state["begun"]

    def _state(self) -> EnvironmentState:
        said: Any = {"count": np.int64(self.count), "where": (self.worker, self.episode, self.uid)}
        said["begun"], said["missing"] = self.episodes_begun, [float("nan"), None]
        if self.fault == "object":
            said["object"] = self
        readings = np.array([self.x, self.count % 3 - 1, 1, 0, *np.full(4, self.x)], float)
        return EnvironmentState(
            readings if self.fault != "shape" else readings[1:],
            (-abs(self.x), float(self.count)),
            terminated=self.count >= self.steps,
            world_state=said,
        )

    def _note(self, text: str) -> None:
        if self.log is not None:
            with Path(self.log).open("a") as file:
                file.write(f"{text}\n")

    def _fail(self, where: str) -> None:
        kind, _, place = self.fault.partition(" ")
        if place != where:
            return
        if kind == "value":
            raise ValueError(f"no gas left in {where}")
        if kind == "ours":
            raise PowerFlowError("it diverged")
        if kind == "exit":
            raise SystemExit(4)
        if kind == "dies":
            os._exit(3)
        if kind == "killed":
            os.kill(os.getpid(), 9)
        if kind == "hangs":
            time.sleep(3600)


class Pulses(Walk):
    """Knows which set-points are new, and makes a step in two ticks."""

    hold_setpoints = False
    step_size = 2


class Spawning(Walk):
    """Begins where a generator says that is spawned from its own."""

    def reset(self) -> EnvironmentState:
        self.rng = self.rng.spawn(2)[1]
        return super().reset()


class Versioned(Walk):
    """Reads the version of a package of which there are two."""

    def reset(self) -> EnvironmentState:
        import exclusive  # type: ignore[import-not-found]

        state = super().reset()
        state.world_state["version"] = exclusive.VERSION
        state.readings[0] = exclusive.VERSION
        return state


class NoEnvironment:
    """Is none."""
