"""The dummy environment: ten sensors, ten actuators, no physics."""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.types import ActuatorInformation, Box, Discrete, RewardInformation, SensorInformation
from palaestrai_mosaik.types.arrays import FloatVector

from .environment import Environment, EnvironmentBaseline, EnvironmentState


class DummyEnvironment(Environment):
    """Counts its steps and terminates after ``max_iter`` of them; set-points do nothing.

    Sensors and actuators have the ids ``0`` to ``9``. The reward, ``Dummy Reward``, is the number of steps
    modulo ``max_iter``.

    Args:
        discrete: sensors read the number of steps modulo ``max_iter`` (``Discrete(max_iter + 1)``) and
            actuators take ``Discrete(100)``; without, sensors read 0 or 1 at random (``Box(0, 2)``) and
            actuators take ``Box(0, 10)``.
        max_iter: the number of steps of an episode.
    """

    CHANNELS = 10

    def __init__(self, discrete: bool = True, max_iter: int = 10):
        self.discrete = bool(discrete)
        self.max_iter = int(max_iter)
        self.iter = 0

    def setup(self) -> EnvironmentBaseline:
        count = Discrete(self.max_iter + 1)
        sensor = count if self.discrete else Box(0.0, 2.0, shape=())
        actuator = Discrete(100) if self.discrete else Box(0.0, 10.0, shape=())
        return EnvironmentBaseline(
            sensors=[SensorInformation(0, sensor, str(i)) for i in range(self.CHANNELS)],
            actuators=[ActuatorInformation(0, actuator, str(i)) for i in range(self.CHANNELS)],
            rewards=[RewardInformation(0, count, "Dummy Reward")],
        )

    def reset(self) -> EnvironmentState:
        self.iter = 0
        return self._state()

    def step(self, setpoints: FloatVector) -> EnvironmentState:
        self.iter += 1
        return self._state()

    def _state(self) -> EnvironmentState:
        count = self.iter % self.max_iter
        if self.discrete:
            readings = np.full(self.CHANNELS, float(count))
        else:
            readings = self.rng.integers(0, 2, self.CHANNELS).astype(np.float64)
        return EnvironmentState(readings, (float(count),), terminated=self.iter >= self.max_iter)
