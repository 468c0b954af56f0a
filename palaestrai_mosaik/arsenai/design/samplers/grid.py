"""The coordinates of an axis in designs with fixed levels."""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray

from ..distributions import middles, whole_numbers
from ..model import Axis


def grid(axis: Axis, count: int | None) -> FloatArray:
    """Return the coordinates of ``axis``, (levels,), in ascending order.

    All levels are taken, in the middle of their shares. Whole numbers of equal share count as levels.

    Args:
        axis: the axis.
        count: number of coordinates, evenly spaced from 0 to 1, of a continuous axis. Of whole numbers, this many from
            the first to the last; None or a larger number takes all of them.
    """
    if axis.levels is not None:
        return middles(axis)
    numbers = axis_numbers(axis)
    if numbers is None:
        assert count is not None, axis.name
        return np.linspace(0.0, 1.0, count)
    taken = np.arange(numbers) if count is None else np.linspace(0, numbers - 1, min(count, numbers)).round()
    return (taken + 0.5) / numbers


def grid_size(axis: Axis, count: int | None) -> int:
    """Return the number of coordinates in `grid`, without computing them."""
    if axis.levels is not None:
        return axis.levels
    numbers = axis_numbers(axis)
    if numbers is None:
        assert count is not None, axis.name
        return count
    return numbers if count is None else min(count, numbers)


def axis_numbers(axis: Axis) -> int | None:
    """Return how many whole numbers of equal share the axis has, or None if it has other values."""
    counts = {whole_numbers(factor) if factor.dist == "uniform" else None for factor in axis.factors}
    return counts.pop() if len(counts) == 1 else None
