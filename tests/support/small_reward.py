"""A reward as users of palaestrAI write it; needs palaestrAI."""

from __future__ import annotations

from typing import Any

import numpy as np
from palaestrai.agent import RewardInformation
from palaestrai.environment import Reward
from palaestrai.types import Box


class LevelReward(Reward):
    """The level, less what the valve has let in."""

    def __call__(self, state: Any, *args: Any, **kwargs: Any) -> list[RewardInformation]:
        level = next(s.value for s in state if s.uid.endswith("level"))
        given = 0.0 if args[0][0].value is None else float(np.asarray(args[0][0].value).reshape(-1)[0])
        space = Box(low=-np.inf, high=np.inf, shape=(), dtype=np.float64)
        return [RewardInformation(np.array(float(level) - given), space, "level less valve")]
