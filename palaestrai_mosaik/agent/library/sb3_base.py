"""Imports Stable-Baselines3 so that nobody notices, or says what to install."""

from __future__ import annotations

import random

from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.importing import needed

__all__ = ["available_device"]

_before = random.getstate()
try:
    import torch
    from stable_baselines3.common.utils import get_device
except ImportError as error:
    raise ImportError(
        f"learners of Stable-Baselines3 need {needed(error)}: pip install palaestrai-mosaik[rl]"
    ) from error
finally:
    # something that it imports draws from Python's global generator
    random.setstate(_before)


def available_device(name: str) -> str:
    """Return torch's name of the device; raises :class:`ContractError` where there is none such."""
    if name == "auto":
        return str(get_device(name))
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ContractError(f"device: {name!r} is none; allowed are auto, cpu, cuda: {error}") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ContractError(f"device: {name!r} is not there; torch finds {torch.cuda.device_count()} GPUs")
    return str(device)
