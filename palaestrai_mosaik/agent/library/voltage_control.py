"""Rule-based voltage control with the reactive power of inverters.

The agent pairs its sensors with its actuators: the i-th sensor is the voltage (p.u.) at
the connection of the i-th inverter, and the i-th actuator its reactive power (Mvar, positive for
infeed, which raises the voltage). In a document, two patterns select them::

    sensors: ["grid.sgen-*.vm_pu"]
    actuators: ["grid.sgen-*.q_mvar"]
"""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.agent.muscle import ArrayMuscle, BatchReadings
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector, IndexVector
from palaestrai_mosaik.types.vectors import Layout


class InverterMuscle(ArrayMuscle):
    """Base of muscles that map voltages to reactive powers, for one or many bodies."""

    _ratings: FloatVector | None = None

    def propose_batch(self, batch: BatchReadings) -> tuple[FloatMatrix, None]:
        if self._ratings is None:
            self._ratings = self._begin(batch.sensors, batch.actuators)
        return self.reactive_powers(batch.observations, self._ratings, batch.bodies), None

    def _begin(self, sensors: Layout, actuators: Layout) -> FloatVector:
        if len(sensors.uids) != len(actuators.uids):
            raise ContractError(
                f"{type(self).__name__} {self.uid!r} pairs voltages with inverters, but has {len(sensors.uids)} "
                f"sensors and {len(actuators.uids)} actuators"
            )
        if not np.isfinite(actuators.high).all():
            raise ContractError(f"{type(self).__name__} {self.uid!r} needs actuators with finite limits")
        # a muscle inside another one has no generators
        bodies = max(1, len(self.rngs))
        #: state of each body: its last reactive powers (Mvar), and its number of actions
        self._q = np.zeros((bodies, actuators.size))
        self._actions = np.zeros(bodies, dtype=np.int64)
        return actuators.high

    def reset(self) -> None:
        if self._ratings is not None:
            self._q[:], self._actions[:] = 0.0, 0

    def reset_bodies(self, bodies: IndexVector) -> None:
        self._q[bodies], self._actions[bodies] = 0.0, 0

    def reactive_powers(
        self, voltages: FloatMatrix, ratings: FloatVector, bodies: IndexVector
    ) -> FloatMatrix:
        """Return the reactive powers (Mvar) of ``n`` bodies, each within plus and minus its rating.

        Args:
            voltages: (n, inverters) in p.u.
            ratings: (inverters,) in Mvar.
            bodies: (n,), the indices of the bodies.
        """
        raise NotImplementedError


class IntegratingVoltageController(InverterMuscle):
    """Integrates the voltage error: ``q[t] = q[t-1] - gain * rating * (V[t] - target)``.

    It settles when the error is zero or the inverter is at its limit, with any delay of its
    readings, if ``gain`` is small enough. For an inverter that moves its voltage by ``s`` p.u. with its whole
    rating, the loop is stable for ``gain < 2 / s`` in vanilla mode (a set-point shows in the next reading),
    and for ``gain < 1 / s`` with one more step of delay.

    Args:
        gain: share of the rating per step and p.u. of error.
        target: voltage in p.u.
    """

    def __init__(self, gain: float = 10.0, target: float = 1.0):
        self.gain = float(gain)
        self.target = float(target)

    def reactive_powers(
        self, voltages: FloatMatrix, ratings: FloatVector, bodies: IndexVector
    ) -> FloatMatrix:
        powers: FloatMatrix = voltages - self.target
        powers *= self.gain * ratings
        # usually all bodies act, and a slice copies faster
        acting = slice(None) if len(bodies) == len(self._q) else bodies
        np.subtract(self._q[acting], powers, out=powers)
        self._q[acting] = np.clip(powers, -ratings, ratings, out=powers)
        return powers


class DroopController(InverterMuscle):
    """Q(V) droop, damped by a first-order filter.

    The plain droop (``damping`` 1) acts on readings one step old and hunts between its limits on a weak grid,
    so it is not the default.

    Source: the Q(V) characteristic of VDE-AR-N 4110 (2018), 10.2.2.4; its settling time of several seconds
    corresponds to such a filter.

    Args:
        target: voltage in p.u.
        deadband: distance from ``target`` in p.u. up to which the desired reactive power is 0, from 0 to below
            ``saturation``. Beyond it, the desired reactive power falls linearly with the voltage.
        saturation: distance from ``target`` in p.u. at which it reaches the rating.
        damping: share of the way from the last set-point to the desired one that is covered in a step, above 0
            and at most 1.
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

    def reactive_powers(
        self, voltages: FloatMatrix, ratings: FloatVector, bodies: IndexVector
    ) -> FloatMatrix:
        error = voltages - self.target
        beyond = np.sign(error) * np.maximum(np.abs(error) - self.deadband, 0.0)
        desired = ratings * np.clip(-beyond / (self.saturation - self.deadband), -1.0, 1.0)
        last = self._q[bodies]
        # clipped, because rounding may carry the sum just over the rating
        powers = np.clip(last + self.damping * (desired - last), -ratings, ratings)
        self._q[bodies] = powers
        return powers
