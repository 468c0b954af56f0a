"""Attackers that misuse the reactive power of their inverters.

Sensors and actuators are paired as in :mod:`.voltage_control`.
"""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector, IndexVector

from .voltage_control import InverterMuscle


class GreedyVoltageAttacker(InverterMuscle):
    """Drives the voltage further away from ``target``.

    All inverters feed in or draw their whole rating, by the sign of the mean deviation of the attacker's
    voltages from ``target``.

    Args:
        target: voltage in p.u.
        strength: share of the rating in use, from 0 to 1.
    """

    def __init__(self, target: float = 1.0, strength: float = 1.0):
        self.target = float(target)
        self.strength = _share(strength)

    def reactive_powers(
        self, voltages: FloatMatrix, ratings: FloatVector, bodies: IndexVector
    ) -> FloatMatrix:
        above = np.ascontiguousarray(voltages).mean(axis=1, keepdims=True) >= self.target
        ratings = self.strength * ratings
        return np.where(above, ratings, np.negative(ratings))


class OscillatingVoltageAttacker(InverterMuscle):
    """Swings all inverters between their limits.

    Aims at controllers with a delay: their reaction to one half of the period adds to the other half.

    Args:
        half_period: steps on either side, at least 1.
        strength: share of the rating in use, from 0 to 1.
    """

    def __init__(self, half_period: int = 1, strength: float = 1.0):
        if half_period < 1:
            raise ContractError(f"half_period must be at least 1, not {half_period}")
        self.half_period = int(half_period)
        self.strength = _share(strength)

    def reactive_powers(
        self, voltages: FloatMatrix, ratings: FloatVector, bodies: IndexVector
    ) -> FloatMatrix:
        up = self._actions[bodies, np.newaxis] // self.half_period % 2 == 0
        self._actions[bodies] += 1
        ratings = self.strength * ratings
        return np.where(up, ratings, np.negative(ratings))


def _share(strength: float) -> float:
    if not 0 <= strength <= 1:
        raise ContractError(f"strength must be from 0 to 1, not {strength}")
    return float(strength)
