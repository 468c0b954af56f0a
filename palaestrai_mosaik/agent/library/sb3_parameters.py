"""What the numbers among the parameters of Stable-Baselines3 must be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from palaestrai_mosaik.errors import ContractError

#: parameters that are whole numbers, and the least that each may be
_WHOLE = {
    "batch_size": 1,
    "buffer_size": 1,
    "gradient_steps": -1,
    "learning_starts": 0,
    "n_epochs": 1,
    "n_steps": 1,
    "policy_delay": 1,
    "sde_sample_freq": -1,
    "target_update_interval": 1,
}
_UNITS = ("step", "episode")


def check_whole(name: str, value: Any, least: int) -> None:
    """Raise :class:`ContractError` unless ``value`` is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ContractError(f"{name} must be a whole number of at least {least}, not {value!r}")


def check_numbers(hyperparameters: Mapping[str, Any]) -> None:
    """Raise :class:`ContractError` for the first of the given parameters that cannot be."""
    for name, least in _WHOLE.items():
        if name in hyperparameters:
            check_whole(name, hyperparameters[name], least)
    frequency = hyperparameters.get("train_freq", 1)
    count, unit = (
        frequency if isinstance(frequency, list | tuple) and len(frequency) == 2 else (frequency, "step")
    )
    if isinstance(count, bool) or not isinstance(count, int) or count < 1 or unit not in _UNITS:
        raise ContractError(
            f"train_freq must be a whole number of at least 1, or [number, {' | '.join(_UNITS)}], not {frequency!r}"
        )
    if not isinstance(hyperparameters.get("policy_kwargs") or {}, Mapping):
        raise ContractError(f"policy_kwargs must be a mapping, not {hyperparameters['policy_kwargs']!r}")


def check_noise(noise: Mapping[str, Any]) -> None:
    """Raise :class:`ContractError` unless the numbers of ``action_noise`` are finite, and none is negative."""
    for name in ("mean", "sigma", "theta", "dt"):
        value = noise[name]
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or (name != "mean" and value < 0):
            least = "" if name == "mean" else " of at least 0"
            raise ContractError(f"action_noise: {name} must be a finite number{least}, not {value!r}")
