"""How far readings are from a target, squared."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .deviation import DeviationFilter

FloatVector = npt.NDArray[np.float64]


class QuadraticPenaltyFilter(DeviationFilter):
    """Shows ``(target - x)**2`` in place of a reading ``x``; see :class:`DeviationFilter`."""

    @staticmethod
    def measure(distance: FloatVector) -> FloatVector:
        return np.square(distance)
