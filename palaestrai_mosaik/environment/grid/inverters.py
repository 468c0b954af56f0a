"""Inverters: static generators whose reactive power can be set."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .setpoints import Setpoints

FloatVector = npt.NDArray[np.float64]
BoolVector = npt.NDArray[np.bool_]


class Inverters:
    """All inverters of a grid as vectors of shape ``(n,)``.

    An inverter feeds in the active power that is available and, within what its rating
    leaves, the reactive power that it was told to: ``|Q| <= sqrt(S**2 - P**2)``, active
    power having priority. A set-point beyond that is cut to it, as the device would. An
    inverter that nobody ever set feeds in its ``own_q``, unlimited.

    Parameters
    ----------
    rating
        Apparent power S of each inverter in MVA.
    own_q
        Reactive power without a set-point in Mvar.
    """

    def __init__(self, rating: FloatVector, own_q: FloatVector):
        self.rating = np.asarray(rating, dtype=np.float64)
        self.own_q = np.asarray(own_q, dtype=np.float64)
        self.q_set = Setpoints(len(self.rating))
        self._rating_squared = self.rating**2
        self.p, self.q = np.zeros_like(self.rating), self.own_q.copy()

    @classmethod
    def of(cls, net: Any) -> Inverters:
        """Make inverters of a pandapower net's static generators.

        The rating is ``sn_mva``; where that is missing, the generator's own power.
        """
        sgen = net.sgen
        nominal = np.abs((sgen.p_mw * sgen.scaling).to_numpy(dtype=float))
        rating = sgen.sn_mva.to_numpy(dtype=float)
        own_q = (sgen.q_mvar * sgen.scaling).to_numpy(dtype=float)
        return cls(np.where(np.isfinite(rating) & (rating > 0), rating, nominal), own_q)

    def step(self, p_available: FloatVector) -> tuple[FloatVector, FloatVector]:
        """Return what is fed in, P in MW and Q in Mvar, when ``p_available`` MW can be."""
        self.p = np.asarray(p_available, dtype=np.float64)
        if not self.q_set.any:
            self.q = self.own_q.copy()
            return self.p, self.q
        self.q = self.reactive_power(self.p, self.q_set.values, self.q_set.given)
        return self.p, self.q

    def reactive_power(self, p: FloatVector, q_set: FloatVector, given: BoolVector) -> FloatVector:
        """Return Q (Mvar) at ``p`` (MW) for set-points ``q_set`` where they are ``given``.

        All have the shape ``(..., n)``.
        """
        # in place, because of many states each new matrix costs as much as the operation itself
        limit = p * p
        np.subtract(self._rating_squared, limit, out=limit)
        np.sqrt(np.maximum(limit, 0.0, out=limit), out=limit)
        wish = np.negative(limit)
        np.minimum(np.maximum(q_set, wish, out=wish), limit, out=wish)
        return wish if given.all() else np.where(given, wish, self.own_q)
