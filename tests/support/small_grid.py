"""A small grid that is made by hand: it needs no pandapower, and its voltages are computed here."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    Device,
    Discrete,
    Edge,
    Node,
    RewardInformation,
    SensorInformation,
    Topology,
)

#: text that would do something if a page took it for markup
HOSTILE = "<script>window.planted=1</script><img src=x onerror=window.planted=1>"
BUSES = 5


class SmallGrid(Environment):
    """Five buses; bus 3 hangs on a line that an agent switches, and line 4 is never in service.

    The voltage of bus k at step t is ``1 + shift + 0.02 k sin(t)``; without its line, that of bus 3 is 0. A step takes
    ``seconds``.
    """

    def __init__(self, steps: int = 12, shift: float = 0.0, seconds: float = 0.0):
        self.steps, self.shift, self.seconds = steps, shift, seconds
        self.count = 0

    def setup(self) -> EnvironmentBaseline:
        voltage, loading = Box(0.0, 2.0, shape=()), Box(0.0, np.inf, shape=())
        return EnvironmentBaseline(
            [
                *(SensorInformation(1.0, voltage, f"bus-{k}.vm_pu") for k in range(BUSES)),
                *(SensorInformation(0.0, loading, f"line-{k}.loading") for k in range(4)),
                SensorInformation(0.0, Box(-2.0, 2.0, shape=()), "sgen-0.q_mvar"),
            ],
            [
                ActuatorInformation(None, Box(-2.0, 2.0, shape=()), "sgen-0.q_mvar"),
                ActuatorInformation(1, Discrete(2), "line-2.in_service"),
            ],
            [RewardInformation(0.0, Box(-np.inf, np.inf, shape=()), "r")],
            topology=self._topology(),
        )

    def _topology(self) -> Topology:
        ends = [(0, 1), (1, 2), (2, 3), (0, 4), (3, 4)]
        return Topology(
            tuple(
                Node(
                    f"bus-{k}",
                    HOSTILE if k == 4 else f"Bus {k}",
                    kind="bus",
                    sensor=f"bus-{k}.vm_pu",
                )
                for k in range(BUSES)
            ),
            tuple(
                Edge(
                    f"line-{k}",
                    f"bus-{source}",
                    f"bus-{target}",
                    f"Line {k}",
                    sensor=f"line-{k}.loading" if k < 4 else None,
                    in_service=k < 4,
                    actuator="line-2.in_service" if k == 2 else None,
                )
                for k, (source, target) in enumerate(ends)
            ),
            (
                Device("sgen-0", "bus-2", "Inverter", "sgen", ("sgen-0.q_mvar",), ("sgen-0.q_mvar",)),
                Device("ext_grid-0", "bus-0", "Grid", "ext_grid"),
            ),
        )

    def reset(self) -> EnvironmentState:
        self.count = 0
        return self._state(0.0, 1.0)

    def step(self, setpoints: Any) -> EnvironmentState:
        self.count += 1
        time.sleep(self.seconds)
        return self._state(float(setpoints[0]), float(setpoints[1]))

    def _state(self, q: float, closed: float) -> EnvironmentState:
        t = self.count
        voltages = 1 + self.shift + 0.02 * np.arange(BUSES) * np.sin(t)
        if closed < 0.5:
            voltages[3] = 0.0
        loadings = np.array([10.0 * t, 50.0, 30.0 * (closed >= 0.5), 120.0])
        readings = np.concatenate([voltages, loadings, [q]])
        return EnvironmentState(readings, (0.0,), truncated=t >= self.steps)


class Switching(Muscle):
    """Sets the inverter to 0.25 times the number of its step, and opens the line in steps 4 to 6."""

    def __init__(self) -> None:
        self.count = 0

    def setup(self) -> None:
        self.count = 0

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        for actuator in actuators_available:
            switch = actuator.uid.endswith("in_service")
            actuator.value = int(not 4 <= self.count <= 6) if switch else 0.25 * (self.count % 8)
        self.count += 1
        return actuators_available, None


def small_grid_document(uid: str = "small", **params: Any) -> dict[str, Any]:
    """Return a run document of two phases in the small grid: calm, and with voltages that are higher by 0.03."""

    def phase(shift: float) -> dict[str, Any]:
        name = "support.small_grid:SmallGrid"
        return {
            "environments": [
                {"environment": {"uid": "net", "name": name, "params": {**params, "shift": shift}}}
            ],
            "agents": [
                {
                    "name": "operator",
                    "muscle": "support.small_grid:Switching",
                    "sensors": ["net.bus-2.vm_pu"],
                    "actuators": ["net.sgen-0.q_mvar", "net.line-2.in_service"],
                }
            ],
            "phase_config": {"mode": "test", "episodes": 1},
        }

    return {"uid": uid, "seed": 1, "schedule": [{"calm": phase(0.0)}, {"high": phase(0.03)}]}
