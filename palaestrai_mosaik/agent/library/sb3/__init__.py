"""The algorithms of Stable-Baselines3 as a brain and its muscles: the brain trains, the muscles act.

Needs the extra ``rl``. The algorithms are those of Raffin
et al. (2021), "Stable-Baselines3: Reliable Reinforcement Learning Implementations", JMLR 22(268).
Given the same transitions and random states, a brain makes the same updates as Stable-Baselines3,
bit by bit.
"""

from __future__ import annotations

import random

from palaestrai_mosaik.core.importing import needed
from palaestrai_mosaik.core.installation import install_extra

_before = random.getstate()
try:
    from .brain import SB3Brain
    from .muscle import SB3Muscle, SB3Update
except ImportError as error:
    raise ImportError(f"learners of Stable-Baselines3 need {needed(error)}: {install_extra('rl')}") from error
finally:
    # one of its imports draws from Python's global generator
    random.setstate(_before)

__all__ = ["SB3Brain", "SB3Muscle", "SB3Update"]
