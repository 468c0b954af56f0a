"""Devices by vectors: the set-points that agents give them, inverters and storages.

They need no grid: batteries and PV plants are simulators of their own, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import SimulationError
from palaestrai_mosaik.types.arrays import BoolVector, FloatVector


class Setpoints:
    """The set-points in force: a vector of shape ``(n,)``, NaN for elements that never received one.

    In a sender's vector, NaN leaves the element's set-point unchanged.
    """

    def __init__(self, n: int, values: npt.ArrayLike = np.nan):
        self.values: npt.NDArray[np.float64] = np.full(n, values, dtype=np.float64)
        self.commanded = ~np.isnan(self.values)
        self.any = bool(self.commanded.any())
        self._last: dict[str, Any] = {}

    def accept(self, senders: Mapping[str, Any]) -> bool:
        """Apply the vectors delivered by mosaik, by sender, and return whether any was new.

        mosaik delivers persistent values again at every step, so an object seen before is ignored. New
        ones are applied in the order of the senders' names. Raises
        :class:`~palaestrai_mosaik.core.errors.SimulationError` for a vector of another length.
        """
        changed = False
        for sender in sorted(senders):
            packet = senders[sender]
            if packet is None or packet is self._last.get(sender):
                continue
            self._last[sender] = packet
            vector = np.asarray(packet, dtype=np.float64)
            if vector.shape != self.values.shape:
                raise SimulationError(
                    f"set-points from {sender} have shape {vector.shape}, expected {self.values.shape}"
                )
            missing = np.isnan(vector)
            if np.count_nonzero(missing) < len(vector):
                self.values = np.where(missing, self.values, vector)
                changed = True
        if changed:
            self.commanded = ~np.isnan(self.values)
            self.any = True
        return changed


class Inverters:
    """All inverters of a grid as vectors of shape ``(n,)``.

    An inverter feeds in the available active power and, within the rest of its rating, the reactive
    power that is set: ``|Q| <= sqrt(S**2 - P**2)``, with priority for active power. A larger set-point
    is clipped, as by the real device. Without a set-point, an inverter feeds in its ``own_q``, unlimited.

    Args:
        rating: apparent power S of each inverter in MVA.
        own_q: reactive power without a set-point in Mvar.
    """

    def __init__(self, rating: FloatVector, own_q: FloatVector):
        self.rating = np.asarray(rating, dtype=np.float64)
        self.own_q = np.asarray(own_q, dtype=np.float64)
        self.q_set = Setpoints(len(self.rating))
        self._rating_squared = self.rating**2
        self.p, self.q = np.zeros_like(self.rating), self.own_q.copy()

    @classmethod
    def of(cls, net: Any) -> Inverters:
        """Make inverters from a pandapower net's static generators.

        The rating is ``sn_mva``, or the generator's nominal power if that is missing.
        """
        sgen = net.sgen
        nominal = np.abs((sgen.p_mw * sgen.scaling).to_numpy(dtype=float))
        rating = sgen.sn_mva.to_numpy(dtype=float)
        own_q = (sgen.q_mvar * sgen.scaling).to_numpy(dtype=float)
        return cls(np.where(np.isfinite(rating) & (rating > 0), rating, nominal), own_q)

    def step(self, p_available: FloatVector) -> tuple[FloatVector, FloatVector]:
        """Return the infeed, P in MW and Q in Mvar, for the available power ``p_available`` (MW)."""
        self.p = np.asarray(p_available, dtype=np.float64)
        if not self.q_set.any:
            self.q = self.own_q.copy()
            return self.p, self.q
        self.q = self.reactive_power(self.p, self.q_set.values, self.q_set.commanded)
        return self.p, self.q

    def reactive_power(self, p: FloatVector, q_set: FloatVector, commanded: BoolVector) -> FloatVector:
        """Return Q (Mvar) at ``p`` (MW): ``q_set``, clipped, if ``commanded``, else ``own_q``.

        All have the shape ``(..., n)``.
        """
        # in place: with many states, allocating a matrix costs as much as the operation itself
        limit = p * p
        np.subtract(self._rating_squared, limit, out=limit)
        np.sqrt(np.maximum(limit, 0.0, out=limit), out=limit)
        clipped = np.negative(limit)
        np.minimum(np.maximum(q_set, clipped, out=clipped), limit, out=clipped)
        return clipped if commanded.all() else np.where(commanded, clipped, self.own_q)


#: default capacity (MWh) of a storage, so large that it is never full nor empty
_UNKNOWN_CAPACITY = 1e9
_DEFAULT_EFFICIENCY = 0.95


class Storages:
    """All storages of a grid as vectors of shape ``(n,)``. Charging is positive, as in pandapower.

    A storage with a set-point charges or discharges with that power, clipped to the
    rating of its converter and to the limits of its state of charge until the next step:

    - charging with P for h hours adds ``P * h * efficiency`` MWh, up to the capacity;
    - discharging takes ``P * h / efficiency`` MWh, down to the minimum.

    Without a set-point it follows its profile. A profile is the recorded exchange of a storage
    (SimBench's only ever feed in), not a model of one, so it is applied unchanged and does not
    affect the state of charge.
    Args:
        rating: largest power in MW, either way.
        capacity, minimum: largest and smallest stored energy in MWh.
        efficiency: of charging and of discharging, each (0 to 1).
        initial_soc: state of charge at the start, as a share of the capacity.
        hours: length of a step.
    """

    def __init__(
        self,
        rating: FloatVector,
        capacity: FloatVector,
        minimum: FloatVector,
        efficiency: FloatVector,
        initial_soc: float = 0.5,
        hours: float = 0.25,
    ):
        self.rating = np.asarray(rating, dtype=np.float64)
        self.capacity = np.asarray(capacity, dtype=np.float64)
        self.minimum = np.asarray(minimum, dtype=np.float64)
        self.efficiency = np.asarray(efficiency, dtype=np.float64)
        self.hours = hours
        self.energy = np.maximum(self.capacity * initial_soc, self.minimum)
        self.p_set = Setpoints(len(self.rating))
        self.p = np.zeros_like(self.rating)
        self._charge = self.efficiency * hours
        self._discharge = hours / self.efficiency
        #: energy before the last step, and the mask of storages with a set-point in it
        self._before, self._commanded = self.energy, self.p_set.commanded

    @classmethod
    def of(cls, net: Any, initial_soc: float = 0.5, hours: float = 0.25) -> Storages:
        """Make storages from a pandapower net's table ``storage``.

        The rating is ``sn_mva``, otherwise the largest of the table's powers; an unknown capacity counts as
        unlimited; the efficiency is the table's ``efficiency_percent``, in SimBench a
        fraction; default 0.95.
        """
        table = net.storage
        n = len(table)

        def column(name: str, default: float) -> FloatVector:
            values = table[name].to_numpy(dtype=float) if name in table else np.full(n, np.nan)
            return np.where(np.isfinite(values), values, default)

        powers = [np.abs(column(name, 0.0)) for name in ("p_mw", "min_p_mw", "max_p_mw")]
        rating = column("sn_mva", 0.0)
        efficiency = column("efficiency_percent", _DEFAULT_EFFICIENCY)
        capacity = column("max_e_mwh", 0.0)
        return cls(
            np.where(rating > 0, rating, np.max(powers, axis=0)),
            np.where(capacity > 0, capacity, _UNKNOWN_CAPACITY),
            column("min_e_mwh", 0.0),
            np.where(efficiency > 1.0, efficiency / 100.0, efficiency),
            initial_soc,
            hours,
        )

    @property
    def soc(self) -> FloatVector:
        """State of charge as a share of the capacity (0 to 1)."""
        return self.energy / self.capacity

    def step(
        self, p_profile: FloatVector, p_taken: FloatVector | None = None
    ) -> tuple[FloatVector, FloatVector]:
        """Return P (MW) during the next step, and the state of charge at its start.

        ``p_taken`` is P during the step before as the grid had it: a storage without voltage exchanges
        nothing. ``None``: the P returned by that step.
        """
        if p_taken is not None and not np.array_equal(p_taken, self.p):
            self.energy = self._energy_after(self._before, np.where(self._commanded, p_taken, 0.0))
        soc = self.soc
        profile = np.asarray(p_profile, dtype=np.float64)
        if not self.p_set.any:
            self.p = profile
            return profile, soc
        self._before, self._commanded = self.energy, self.p_set.commanded
        self.p, self.energy = self.exchange(self.energy, profile, self.p_set.values, self.p_set.commanded)
        return self.p, soc

    def exchange(
        self, energy: FloatVector, profile: FloatVector, p_set: FloatVector, commanded: BoolVector
    ) -> tuple[FloatVector, FloatVector]:
        """Return P (MW) during a step, and the energy (MWh) after it, from ``energy`` before it.

        P is ``p_set``, clipped, if ``commanded``, else ``profile``. All have the shape ``(..., n)``.
        """
        most = np.minimum(self.rating, np.maximum(self.capacity - energy, 0.0) / self._charge)
        least = -np.minimum(self.rating, np.maximum(energy - self.minimum, 0.0) / self._discharge)
        p = np.minimum(np.maximum(np.where(commanded, p_set, 0.0), least), most)
        return np.where(commanded, p, profile), self._energy_after(energy, p)

    def _energy_after(self, energy: FloatVector, p: FloatVector) -> FloatVector:
        """Return the energy (MWh) after a step with ``p`` (MW), from ``energy`` before it."""
        change = np.where(p > 0, p * self._charge, p * self._discharge)
        # rounding must not exceed the limits by an ulp
        return np.minimum(np.maximum(energy + change, self.minimum), self.capacity)
