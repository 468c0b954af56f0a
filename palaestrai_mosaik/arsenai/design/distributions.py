"""Distributions of factors: from coordinates in [0, 1] to values, and the coordinates of fixed levels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from .model import Axis, Factor

#: Tolerance below the edge of a level's share, within which a coordinate counts as being on the edge, so that 1/3 +
#: 1/3 and 2/3 give the same level.
EDGE = 1e-9

#: Half of the finest step of a Sobol' sequence (30 bits). The points of such a sequence are at the lower ends of their
#: cells, so 0 means "below 2**-30", and unbounded distributions are evaluated this far inside.
INSIDE = 2.0**-31

#: Largest whole number that is exact, and largest float that can be rounded.
_LARGEST_WHOLE, _LARGEST = 2.0**53, 1e305


def values(factor: Factor, unit: FloatArray) -> FloatArray:
    """Compute the values of a continuous or whole-number ``factor``.

    Args:
        factor: the factor.
        unit: coordinates, of any shape.

    Returns:
        The values, of the same shape; whole numbers as floats. Unbounded distributions are infinite at 0 and 1.
    """
    if factor.kind == "int":
        low, high = whole_bounds(factor)
        if factor.dist == "uniform":
            return np.minimum(low + np.floor(unit * (high - low + 1) + EDGE), high)
        return np.clip(np.rint(_quantile(_whole_cells(factor), unit)), low, high)
    low, high = bounds(factor)
    return np.clip(_quantile(factor, unit), low, high)


def levels(edges: FloatArray, unit: FloatArray) -> IntArray:
    """Return the indices of the levels at ``unit``; ``edges`` are the cumulative shares (`shares`)."""
    return np.minimum(np.searchsorted(edges, unit + EDGE, side="right"), len(edges) - 1)


def shares(axis: Axis) -> FloatArray:
    """Return the cumulative shares of an axis with levels, (levels,); the last is 1.

    Zipped factors have the same weights, so those of the first one are used.
    """
    factor = next(factor for factor in axis.factors if factor.kind == "levels")
    weights = factor.weights or (1.0,) * len(factor.levels)
    edges = np.cumsum(weights) / math.fsum(weights)
    edges[-1] = 1.0
    return edges


def middles(axis: Axis) -> FloatArray:
    """Return the coordinate in the middle of each level's share, (levels,)."""
    edges = shares(axis)
    return (np.concatenate(([0.0], edges[:-1])) + edges) / 2


def position(factor: Factor, value: float) -> float:
    """Compute the coordinate of ``value``, the inverse of `values`; of a whole number, the middle of its share.

    Raises:
        ValueError: the factor does not have this value.
    """
    low, high = whole_bounds(factor) if factor.kind == "int" else bounds(factor)
    if not low <= value <= high:
        raise ValueError(f"{value:g} lies outside {_number(low)} to {_number(high)}")
    if factor.kind == "float":
        return _share_below(factor, value)
    if value != round(value):
        raise ValueError(f"{value:g} is not a whole number")
    if factor.dist == "uniform":
        return (value - low + 0.5) / (high - low + 1)
    cells = _whole_cells(factor)
    below = 0.0 if value == low else _share_below(cells, value - 0.5)
    above = 1.0 if value == high else _share_below(cells, value + 0.5)
    return (below + above) / 2


def bounds(factor: Factor) -> tuple[float, float]:
    """Return the smallest and the largest value; infinite without a bound."""
    floor = 0.0 if factor.dist == "lognormal" else -math.inf
    return (
        floor if factor.low is None else max(factor.low, floor),
        math.inf if factor.high is None else factor.high,
    )


def whole_bounds(factor: Factor) -> tuple[float, float]:
    """Return the smallest and the largest whole number of an ``int`` factor."""
    low, high = bounds(factor)
    return (
        math.ceil(low) if math.isfinite(low) else low,
        math.floor(high) if math.isfinite(high) else high,
    )


def whole_numbers(factor: Factor) -> int | None:
    """Return how many whole numbers an ``int`` factor has; None if it is unbounded, or another kind of factor."""
    low, high = whole_bounds(factor) if factor.kind == "int" else (0.0, math.inf)
    return int(high - low) + 1 if math.isfinite(high - low) else None


def bounded(factor: Factor) -> bool:
    """Return whether the coordinates 0 and 1 have finite values."""
    return factor.kind == "levels" or all(math.isfinite(end) for end in bounds(factor))


def reach(factor: Factor) -> tuple[float, float]:
    """Return the smallest and the largest value that a continuous ``factor`` has in a sample.

    These are its ends; if it lacks one of them, its quantiles at `INSIDE` and 1 - `INSIDE`.
    """
    ends = (0.0, 1.0) if bounded(factor) else (INSIDE, 1 - INSIDE)
    low, high = values(factor, np.array(ends)).tolist()
    return low, high


def fault(factor: Factor) -> str | None:
    """Return why the values of a continuous ``factor`` are useless, or None."""
    limit = _LARGEST_WHOLE if factor.kind == "int" else _LARGEST
    with np.errstate(all="ignore"):
        low, high = reach(factor)
        middle = float(values(factor, np.array([0.5]))[0])
    for value in (low, high, middle):
        if not abs(value) < limit:
            size = "2**53, beyond which they are not exact" if factor.kind == "int" else f"{limit:g}"
            return (
                f"values of {factor.name} ({factor.dist}) reach from {_number(low)} to {_number(high)}; they must "
                f"stay below {size}"
            )
    if low == high:
        return f"{factor.name} ({factor.dist}) always has the value {low:g}; widen the distribution"
    return None


def _whole_cells(factor: Factor) -> Factor:
    """Return a continuous factor with values that, rounded, are those of an ``int`` factor.

    Its ends are the outer edges of the first and the last cell. A triangular distribution is
    stretched with its mode, so that a mode which is a whole number is the most probable one.
    """
    low, high = factor.low, factor.high
    params = factor.params
    if factor.dist == "triangular":
        first, last = _ends(factor)
        mode = params["mode"]
        params = {**params, "mode": mode + (mode - first) / (last - first) - 0.5}
    return replace(
        factor,
        kind="float",
        low=None if low is None else low - 0.5,
        high=None if high is None else high + 0.5,
        params=params,
    )


def _quantile(factor: Factor, unit: FloatArray) -> FloatArray:
    if factor.dist in {"normal", "lognormal"}:
        quantiles = _normal(factor).ppf(unit)
        result: FloatArray = np.exp(quantiles) if factor.dist == "lognormal" else quantiles
        return result
    low, high = _ends(factor)
    if factor.dist == "loguniform":
        return np.exp(math.log(low) + unit * (math.log(high) - math.log(low)))
    if factor.dist == "triangular":
        return _triangular(factor, unit)
    return low + unit * (high - low)


def _triangular(factor: Factor, unit: FloatArray) -> FloatArray:
    low, high = _ends(factor)
    mode = factor.params["mode"]
    width = high - low
    rising = low + np.sqrt(unit * width * (mode - low))
    falling = high - np.sqrt((1 - unit) * width * (high - mode))
    return np.where(unit < (mode - low) / width, rising, falling)


def _share_below(factor: Factor, value: float) -> float:
    if factor.dist in {"normal", "lognormal"}:
        if factor.dist == "lognormal":
            value = math.log(value) if value > 0 else -math.inf
        return float(_normal(factor).cdf(value))
    low, high = _ends(factor)
    value = min(max(value, low), high)
    if factor.dist == "loguniform":
        return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
    if factor.dist == "triangular":
        mode, width = factor.params["mode"], high - low
        if value < mode:
            return (value - low) ** 2 / (width * (mode - low))
        return 1 - (high - value) ** 2 / (width * (high - mode)) if value < high else 1.0
    return (value - low) / (high - low)


def _normal(factor: Factor) -> Any:
    from scipy import stats

    mean, std = factor.params["mean"], factor.params["std"]
    if factor.low is None and factor.high is None:
        return stats.norm(mean, std)
    low, high = bounds(factor)
    if factor.dist == "lognormal":
        low = math.log(low) if low > 0 else -math.inf
        high = math.log(high) if math.isfinite(high) else math.inf
    return stats.truncnorm((low - mean) / std, (high - mean) / std, loc=mean, scale=std)


def _ends(factor: Factor) -> tuple[float, float]:
    """Return the ends of a bounded distribution."""
    assert factor.low is not None and factor.high is not None, factor.name
    return factor.low, factor.high


def _number(value: float) -> str:
    if math.isnan(value):
        return "what cannot be computed"
    return f"{value:g}" if math.isfinite(value) else ("minus infinity" if value < 0 else "infinity")


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
