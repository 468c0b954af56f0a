"""A co-simulation whose only simulator takes and gives vectors."""

from __future__ import annotations

from typing import Any

import mosaik_api_v3
import numpy as np

from palaestrai_mosaik.environment.cosimulation import (
    ActuatorPort,
    CoSimulation,
    CoSimulationPlan,
    EntitySpec,
    SensorPort,
    SimulatorSpec,
)
from palaestrai_mosaik.environment.environment import EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation

ANY = Box(-np.inf, np.inf, shape=())
SIZE = 3


class BoxSimulator(mosaik_api_v3.Simulator):
    """Gives back the set-points that it holds, as ``x``."""

    def __init__(self) -> None:
        super().__init__(
            {
                "api_version": "3.0",
                "type": "time-based",
                "models": {"Box": {"public": True, "params": [], "attrs": ["u", "x"]}},
            }
        )
        self.held = np.zeros(SIZE)

    def init(self, sid: str, time_resolution: float = 1.0) -> Any:
        return self.meta

    def create(self, num: int, model: str) -> Any:
        return [{"eid": "box", "type": model}]

    def step(self, time: int, inputs: Any, max_advance: int) -> int:
        held = self.held.copy()
        for vector in inputs.get("box", {}).get("u", {}).values():
            given = ~np.isnan(vector)
            held[given] = vector[given]
        self.held = held
        return time + 1

    def get_data(self, outputs: Any) -> Any:
        return {"box": {"x": self.held}}


class VectorWorld(CoSimulation):
    """Three actuators ``u0`` to ``u2``, three sensors ``x0`` to ``x2``, a reward: their sum."""

    def setup(self) -> EnvironmentBaseline:
        plan = self.plan()
        return EnvironmentBaseline(
            [handle.information for handle in plan.sensors],
            [handle.information for handle in plan.actuators],
            [RewardInformation(0.0, ANY, "sum")],
        )

    def plan(self) -> CoSimulationPlan:
        return CoSimulationPlan(
            [SimulatorSpec("box", factory=BoxSimulator)],
            [EntitySpec("box", "box", "Box")],
            [],
            [SensorPort(SensorInformation(0.0, ANY, f"x{i}"), "box", "x", i) for i in range(SIZE)],
            [ActuatorPort(ActuatorInformation(None, ANY, f"u{i}"), "box", "u", i, SIZE) for i in range(SIZE)],
        )

    def judge(self, time: int, readings: Any) -> EnvironmentState:
        return EnvironmentState(readings, (float(readings.sum()),), truncated=time >= 3)
