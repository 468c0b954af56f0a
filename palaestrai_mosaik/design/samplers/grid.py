"""The coordinates that designs with fixed levels use of an axis."""

from __future__ import annotations

import numpy as np

from ..distributions import middles, whole_numbers
from ..model import Axis
from ..sample import FloatArray


def grid(axis: Axis, count: int | None) -> FloatArray:
    """Return the coordinates (levels,) of ``axis``, rising.

    Levels are all taken, each in the middle of its share. Of a continuous axis ``count``
    coordinates are, evenly from 0 to 1. Whole numbers of equal share are levels: all of them
    where ``count`` is ``None`` or larger, else ``count`` from the first to the last.
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
    """Return how many coordinates `grid` gives, without making them."""
    if axis.levels is not None:
        return axis.levels
    numbers = axis_numbers(axis)
    if numbers is None:
        assert count is not None, axis.name
        return count
    return numbers if count is None else min(count, numbers)


def axis_numbers(axis: Axis) -> int | None:
    """Return how many whole numbers of equal share the axis has, ``None`` where it has others, too."""
    counts = {whole_numbers(factor) if factor.dist == "uniform" else None for factor in axis.factors}
    return counts.pop() if len(counts) == 1 else None
