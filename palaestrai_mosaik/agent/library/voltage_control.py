"""Rule-based voltage control with the reactive power of inverters.

The agent pairs its sensors with its actuators: the i-th sensor is the voltage (p.u.) at
the connection of the i-th inverter, whose reactive power (Mvar, feeding in is positive
and raises the voltage) is the i-th actuator. In a document, two patterns do that::

    sensors: ["grid.sgen-*.vm_pu"]
    actuators: ["grid.sgen-*.q_mvar"]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent.muscle import Muscle
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types import ActuatorInformation, SensorInformation
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, SensorReadings

FloatVector = npt.NDArray[np.float64]


class InverterMuscle(Muscle):
    """Base of muscles that map voltages to reactive powers, vector to vector."""

    _ratings: FloatVector | None = None

    def propose_actions(
        self, sensors: Sequence[SensorInformation], actuators_available: Sequence[ActuatorInformation]
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        assert isinstance(sensors, SensorReadings) and isinstance(actuators_available, ActuatorSetpoints)
        if self._ratings is None:
            if len(sensors) != len(actuators_available):
                raise ContractError(
                    f"{type(self).__name__} {self.uid!r} pairs voltages with inverters, but has {len(sensors)} "
                    f"sensors and {len(actuators_available)} actuators"
                )
            self._ratings = np.concatenate([a.space.flat_high for a in actuators_available])
            if not np.isfinite(self._ratings).all():
                raise ContractError(f"{type(self).__name__} {self.uid!r} needs actuators with finite limits")
        actuators_available.vector = self.reactive_power(sensors.vector, self._ratings)
        return actuators_available, None

    def reactive_power(self, voltages: FloatVector, ratings: FloatVector) -> FloatVector:
        """Return the reactive powers (Mvar), each between ``-ratings`` and ``ratings``.

        ``voltages``: (n,) in p.u.; ``ratings``: (n,) in Mvar.
        """
        raise NotImplementedError


class IntegratingVoltageController(InverterMuscle):
    """Integrates the voltage error: ``q[t] = q[t-1] - gain * rating * (V[t] - target)``.

    It settles where the error is zero or the inverter is at its limit, and does so
    whatever the delay of its readings, if ``gain`` is small enough. For an inverter that
    moves its voltage by ``s`` p.u. with its whole rating, the loop is stable for
    ``gain < 2 / s`` in vanilla (a set-point shows in the next reading), and for
    ``gain < 1 / s`` with one more step of delay. ``gain`` is the share of the rating per
    step and p.u. of error.
    """

    def __init__(self, gain: float = 10.0, target: float = 1.0):
        self.gain = float(gain)
        self.target = float(target)
        self._q: FloatVector | None = None

    def reset(self) -> None:
        self._q = None

    def reactive_power(self, voltages: FloatVector, ratings: FloatVector) -> FloatVector:
        last = np.zeros_like(ratings) if self._q is None else self._q
        self._q = np.clip(last - self.gain * ratings * (voltages - self.target), -ratings, ratings)
        return self._q


class DroopController(InverterMuscle):
    """Q(V) droop, damped by a first-order filter.

    Outside of ``target`` +- ``deadband`` (p.u.) the wanted reactive power falls linearly
    with the voltage and reaches the rating at ``target`` +- ``saturation``. Of the way
    from the last set-point to the wanted one, only the share ``damping`` is gone in a
    step: 1 is the plain droop. That one acts on readings one step old and hunts between
    its limits on a weak grid, which is why it is not the default.

    Source: the Q(V) characteristic of VDE-AR-N 4110 (2018), 10.2.2.4, whose settling time
    of several seconds is a filter of this kind.
    """

    def __init__(
        self, target: float = 1.0, deadband: float = 0.01, saturation: float = 0.05, damping: float = 0.1
    ):
        if not 0 <= deadband < saturation:
            raise ContractError(f"0 <= deadband < saturation does not hold: {deadband}, {saturation}")
        if not 0 < damping <= 1:
            raise ContractError(f"damping must be above 0 and at most 1, not {damping}")
        self.target, self.deadband = float(target), float(deadband)
        self.saturation, self.damping = float(saturation), float(damping)
        self._q: FloatVector | None = None

    def reset(self) -> None:
        self._q = None

    def reactive_power(self, voltages: FloatVector, ratings: FloatVector) -> FloatVector:
        error = voltages - self.target
        beyond = np.sign(error) * np.maximum(np.abs(error) - self.deadband, 0.0)
        wanted = ratings * np.clip(-beyond / (self.saturation - self.deadband), -1.0, 1.0)
        last = np.zeros_like(ratings) if self._q is None else self._q
        # clipped, because rounding may carry the sum just over the rating
        self._q = np.clip(last + self.damping * (wanted - last), -ratings, ratings)
        return self._q
