"""The rules for readings and rewards: every value is finite (unless it may be missing) and in its space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import FloatVector
from .spaces import Space, Tuple
from .vectors import Layout


class ValueRules:
    """The allowed numbers of several channels (sensors or rewards), for flat vectors of all of them.

    A value may exceed a bound by the rounding of the space's type, ``eps`` relative to the larger bound. So a
    float32 observation counts as inside, whether it or the bound was rounded.
    """

    def __init__(self, channels: Sequence[Any]):
        self.layout = layout = Layout.of(channels)
        sizes = [space.size for space in layout.spaces]
        missing = [bool(getattr(channel, "may_be_missing", False)) for channel in channels]
        self._may_be_missing = np.repeat(np.array(missing, dtype=bool), sizes)
        slack = np.concatenate([_slack(space) for space in layout.spaces] or [np.empty(0)])
        self._integral = np.flatnonzero(layout.integral)
        self._low, self._high = layout.low, layout.high
        layout.low, layout.high = layout.low - slack, layout.high + slack
        #: whether any value can lie outside its space
        self.restricts = layout.any_integral or bool(
            np.isfinite(layout.low).any() or np.isfinite(layout.high).any()
        )

    def not_finite(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Mark the numbers of a vector or matrix that are infinite, or NaN without ``may_be_missing``."""
        wrong: npt.NDArray[np.bool_] = ~np.isfinite(values)
        wrong &= ~(self._may_be_missing & np.isnan(values))
        return wrong

    def outside(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Mark the numbers of a vector or matrix that are outside their spaces; NaN never is."""
        return self.layout.outside(values)

    def contains(self, lowest: FloatVector, highest: FloatVector, rows: npt.NDArray[np.float64]) -> bool:
        """Return whether all ``rows`` lie in the spaces.

        Args:
            lowest: the smallest value of each column.
            highest: the largest value of each column.
            rows: (n, numbers). NaN is ignored, and so are columns after those of the channels.
        """
        layout = self.layout
        if (lowest < layout.low).any() or (highest > layout.high).any():
            return False
        if not layout.any_integral:
            return True
        whole = rows[:, self._integral]
        return bool(((whole == np.rint(whole)) | np.isnan(whole)).all())

    def excess(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the distance of a vector, or of each row of a matrix, to the spaces."""
        layout = self.layout
        distance: npt.NDArray[np.float64] = np.maximum(self._low - values, values - self._high)
        if layout.any_integral:
            distance = np.where(
                layout.integral, np.maximum(distance, abs(values - np.rint(values))), distance
            )
        return distance


def _slack(space: Space) -> FloatVector:
    """Return the tolerance of each bound for rounding to the space's type, shape ``(size,)``."""
    if isinstance(space, Tuple):
        members: FloatVector = np.concatenate([_slack(member) for member in space.spaces])
        return members
    if space.dtype is None or space.dtype.kind != "f":
        return np.zeros(space.size)
    bounds = abs(np.array([space.flat_low, space.flat_high]))
    scale = np.where(np.isfinite(bounds), bounds, 0.0).max(axis=0)
    slack: FloatVector = np.where(scale > 0.0, scale, 1.0) * float(np.finfo(space.dtype).eps)
    return slack
