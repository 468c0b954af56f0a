"""Set-points of many elements that several senders give in parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import SimulationError


class Setpoints:
    """The set-points in force: a vector of shape ``(n,)``, NaN where none was ever given.

    A sender's vector holds NaN in the places that it does not set; there, what was holds.
    """

    def __init__(self, n: int, values: npt.ArrayLike = np.nan):
        self.values: npt.NDArray[np.float64] = np.full(n, values, dtype=np.float64)
        self.given = ~np.isnan(self.values)
        self.any = bool(self.given.any())
        self._last: dict[str, Any] = {}

    def accept(self, senders: Mapping[str, Any]) -> bool:
        """Take over the vectors that mosaik delivered, by sender. Return whether there was a new one.

        mosaik delivers what persists again at every step: the very object seen before is
        not accepted twice. New ones are taken in the order of the senders' names. Raises
        :class:`~palaestrai_mosaik.errors.SimulationError` for a vector of another length.
        """
        news = False
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
                news = True
        if news:
            self.given = ~np.isnan(self.values)
            self.any = True
        return news
