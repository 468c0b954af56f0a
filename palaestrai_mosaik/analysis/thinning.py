"""Fewer points where there are more than a page has room for."""

from __future__ import annotations

from typing import Any

import numpy as np

from .series import Curve

# Of more points than this, means of equal spans are drawn: a page has no room for more.
_MOST_POINTS = 2000
_SPANS = 300
_FEWEST_DAYS = 60


def thinned(curve: Curve) -> tuple[Curve, int]:
    """Return a curve of means where there are too many points, and of how many (0: of none)."""
    span = span_of(curve.x)
    if not span:
        return curve, 0
    if curve.colour is not None:
        # of a moving average, single points tell as much; those without a value are gaps
        kept = (np.arange(len(curve.x)) % span == 0) | ~np.isfinite(curve.y)
        kept[-1] = True
        low = None if curve.low is None else curve.low[kept]
        high = None if curve.high is None else curve.high[kept]
        return Curve(curve.label, curve.x[kept], curve.y[kept], low, high), 0
    y = means(curve.y, span)
    low, high = means(curve.y, span, np.fmin), means(curve.y, span, np.fmax)
    return Curve(curve.label, curve.x[::span][: len(y)], y, low, high), span


def span_of(x: np.ndarray[Any, Any]) -> int:
    """Return of how many points one is made; 0 if all are drawn.

    Where dates are known and there are enough of them, points are days: shorter spans
    would show the course of a day as a saw.
    """
    if len(x) <= _MOST_POINTS:
        return 0
    day = _points_of_a_day(x)
    return day if day and len(x) / day >= _FEWEST_DAYS else -(-len(x) // _SPANS)


def _points_of_a_day(x: np.ndarray[Any, Any]) -> int:
    if not np.issubdtype(x.dtype, np.datetime64):
        return 0
    whole, rest = divmod(np.timedelta64(1, "D"), x[1] - x[0])
    return 0 if rest else int(whole)


def means_of(x: np.ndarray[Any, Any], span: int) -> str:
    return "daily means" if span == _points_of_a_day(x) else f"each point is the mean of {span} steps"


def means(values: np.ndarray[Any, Any], span: int, fold: np.ufunc | None = None) -> np.ndarray[Any, Any]:
    """Return the mean of every ``span`` values (or ``fold`` of them), NaN left out.

    There are more than ``span`` values.
    """
    starts = np.arange(0, len(values), span)
    if len(values) - starts[-1] < span / 2:
        # a last span of a few values would be no mean like the others
        starts, values = starts[:-1], values[: starts[-1]]
    if fold is not None:
        result: np.ndarray[Any, Any] = fold.reduceat(values, starts)
        return result
    known = np.isfinite(values)
    counts = np.add.reduceat(known.astype(float), starts)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    return np.divide(sums, counts, out=np.full(len(starts), np.nan), where=counts > 0)
