"""An environment of Gymnasium with a given observation and reward at its third step."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from support import spoiled


class Fixed(gymnasium.Env[Any, Any]):
    """Gives ``observation`` and ``reward`` at its third step, and 0 at all others."""

    def __init__(self, observation: Any = 0.0, reward: float = 0.0):
        self.observation_space = gymnasium.spaces.Box(-0.1, 0.1, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.given = observation, reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        observation, reward = self.given if self.count == 3 else (0.0, 0.0)
        return np.array([observation]), reward, False, self.count == spoiled.STEPS, {}
