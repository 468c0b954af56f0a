"""A deterministic environment with its agents, as a user of palaestrAI writes them; needs nothing else."""

from __future__ import annotations

import numpy as np
from palaestrai.agent import ActuatorInformation, Muscle, Objective, RewardInformation, SensorInformation
from palaestrai.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai.types import Box, Discrete, SimTime


class Tanks(Environment):
    """Two tanks: level i rises by what is set, and loses a fifth. Over after ``steps`` steps."""

    def __init__(self, uid: str, broker_uri: str, seed: int, steps: int):
        super().__init__(uid, broker_uri, seed)
        self.duration = steps

    def start_environment(self) -> EnvironmentBaseline:
        self.levels, self.now = [1.0, 2.0], 0
        valves = [
            ActuatorInformation(np.array([0.0]), Box(0, 4, (1,), np.float64), f"valve-{i}") for i in (0, 1)
        ]
        return EnvironmentBaseline(self._sensors(), valves, SimTime(0, None))

    def update(self, actuators: list[ActuatorInformation]) -> EnvironmentState:
        self.now += 1
        self.levels = [0.8 * level for level in self.levels]
        for actuator in actuators:
            self.levels[int(actuator.uid[-1])] += float(np.asarray(actuator.value).reshape(-1)[0])
        rewards = [
            RewardInformation(-abs(level - 3), Box(-99, 0, ()), f"near-{i}")
            for i, level in enumerate(self.levels)
        ]
        done = self.now >= self.duration
        return EnvironmentState(self._sensors(), rewards, done, list(self.levels), SimTime(self.now, None))

    def _sensors(self) -> list[SensorInformation]:
        return [
            *(
                SensorInformation(np.array([level]), Box(0, 99, (1,), np.float64), f"level-{i}")
                for i, level in enumerate(self.levels)
            ),
            SensorInformation(self.now % 3, Discrete(3), "third"),
        ]


class Opener(Muscle):
    """Opens its valve by a quarter of its first reading, and by ``more`` in every third step."""

    def __init__(self, more: float):
        super().__init__()
        self.more = more

    def setup(self):
        pass

    def propose_actions(self, sensors, actuators_available):
        level, third = float(np.asarray(sensors[0].value).reshape(-1)[0]), int(sensors[1].value)
        for actuator in actuators_available:
            actuator.value = np.array([level / 4 + (self.more if third == 0 else 0.0)])
        return actuators_available, None

    def update(self, update):
        pass


class Weighted(Objective):
    """The newest rewards, the first one twice."""

    def internal_reward(self, memory, **kwargs):
        rewards = memory.tail(1).rewards
        return 2 * rewards["near-0"].item() + rewards["near-1"].item() if len(rewards) else None
