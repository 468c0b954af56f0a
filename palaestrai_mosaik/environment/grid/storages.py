"""Storages: batteries with a state of charge, efficiency and limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .setpoints import Setpoints

FloatVector = npt.NDArray[np.float64]
BoolVector = npt.NDArray[np.bool_]

#: capacity (MWh) of a storage of which none is known: never full, never empty
_ENDLESS = 1e9
_DEFAULT_EFFICIENCY = 0.95


class Storages:
    """All storages of a grid as vectors of shape ``(n,)``. Charging is positive, as in pandapower.

    A storage that an agent has set charges or discharges with that power, cut to the
    rating of its converter and to what the state of charge allows until the next step:

    - charging with P for h hours adds ``P * h * efficiency`` MWh, up to the capacity;
    - discharging takes ``P * h / efficiency`` MWh, down to the minimum.

    Until then it follows its profile. A profile is the recorded exchange of a storage
    (SimBench's only ever feed in), not a model of one, so it is followed as it is and
    leaves the state of charge alone.

    Parameters
    ----------
    rating
        Largest power in MW, either way.
    capacity, minimum
        Largest and smallest stored energy in MWh.
    efficiency
        Of charging and of discharging, each (0 to 1).
    initial_soc
        State of charge at the start, as a share of the capacity.
    hours
        Length of a step.
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

    @classmethod
    def of(cls, net: Any, initial_soc: float = 0.5, hours: float = 0.25) -> Storages:
        """Make storages of a pandapower net's table ``storage``.

        The rating is ``sn_mva``, else the largest of the given powers; an unknown capacity
        counts as endless; the efficiency is ``efficiency_percent`` where the table has it
        (SimBench gives a fraction there), else 0.95.
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
            np.where(capacity > 0, capacity, _ENDLESS),
            column("min_e_mwh", 0.0),
            np.where(efficiency > 1.0, efficiency / 100.0, efficiency),
            initial_soc,
            hours,
        )

    @property
    def soc(self) -> FloatVector:
        """State of charge as a share of the capacity (0 to 1)."""
        return self.energy / self.capacity

    def step(self, p_profile: FloatVector) -> tuple[FloatVector, FloatVector]:
        """Return P (MW) during the step that begins, and the state of charge at its beginning."""
        soc = self.soc
        profile = np.asarray(p_profile, dtype=np.float64)
        if not self.p_set.any:
            self.p = profile
            return profile, soc
        self.p, self.energy = self.exchange(self.energy, profile, self.p_set.values, self.p_set.given)
        return self.p, soc

    def exchange(
        self, energy: FloatVector, profile: FloatVector, p_set: FloatVector, given: BoolVector
    ) -> tuple[FloatVector, FloatVector]:
        """Return P (MW) during a step, and the energy (MWh) after it, of ``energy`` before it.

        ``p_set`` counts where it is ``given``, elsewhere ``profile``. All have the shape
        ``(..., n)``.
        """
        most = np.minimum(self.rating, np.maximum(self.capacity - energy, 0.0) / self._charge)
        least = -np.minimum(self.rating, np.maximum(energy - self.minimum, 0.0) / self._discharge)
        p = np.minimum(np.maximum(np.where(given, p_set, 0.0), least), most)
        change = np.where(p > 0, p * self._charge, p * self._discharge)
        # Rounding must not leave the limits by an ulp.
        after = np.minimum(np.maximum(energy + change, self.minimum), self.capacity)
        return np.where(given, p, profile), after
