"""Imports Stable-Baselines3 so that nobody notices, or says what to install."""

from __future__ import annotations

import random

__all__ = ["get_device"]

_before = random.getstate()
try:
    from stable_baselines3.common.utils import get_device
except ImportError as error:
    raise ImportError(
        f"learners of Stable-Baselines3 need {error.name}: pip install palaestrai-mosaik[rl]"
    ) from error
finally:
    # something that it imports draws from Python's global generator
    random.setstate(_before)
