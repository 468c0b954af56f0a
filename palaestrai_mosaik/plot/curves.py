"""Turn values over episodes into lines: moving averages, bands, and thinning of long lines.

A mean is drawn only while every repetition has values, because it would jump when one ends. The remaining
values of single repetitions are drawn faintly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.types.arrays import FloatVector

from .series import Curve

if TYPE_CHECKING:
    import pandas as pd

# Longer curves are drawn as means of equal spans, because a page has no space for more points.
_MOST_POINTS = 2000
_SPANS = 300
_FEWEST_DAYS = 60


def thinned(curve: Curve) -> tuple[Curve, int]:
    """Return the curve with means of spans if it has too many points, and the length of the spans (0: unchanged)."""
    span = span_of(curve.x)
    if not span:
        return curve, 0
    if curve.colour is not None:
        # A moving average needs no means: single points are enough. Points without a value are gaps.
        kept = (np.arange(len(curve.x)) % span == 0) | ~np.isfinite(curve.y)
        kept[-1] = True
        low = None if curve.low is None else curve.low[kept]
        high = None if curve.high is None else curve.high[kept]
        return Curve(curve.label, curve.x[kept], curve.y[kept], low, high), 0
    y = means(curve.y, span)
    low, high = means(curve.y, span, np.fmin), means(curve.y, span, np.fmax)
    return Curve(curve.label, curve.x[::span][: len(y)], y, low, high), span


def span_of(x: np.ndarray[Any, Any]) -> int:
    """Return the number of points to combine into one; 0 if all are drawn.

    With dates, and enough of them, a point is a day: shorter spans would show the daily course as a
    sawtooth.
    """
    if len(x) <= _MOST_POINTS:
        return 0
    day = _points_of_a_day(x)
    return day if day and len(x) / day >= _FEWEST_DAYS else -(-len(x) // _SPANS)


def _points_of_a_day(x: np.ndarray[Any, Any]) -> int:
    if not np.issubdtype(x.dtype, np.datetime64):
        return 0
    whole, remainder = divmod(np.timedelta64(1, "D"), x[1] - x[0])
    return 0 if remainder else int(whole)


def means_of(x: np.ndarray[Any, Any], span: int) -> str:
    return "daily means" if span == _points_of_a_day(x) else f"each point is the mean of {span} steps"


def means(values: np.ndarray[Any, Any], span: int, fold: np.ufunc | None = None) -> np.ndarray[Any, Any]:
    """Return the mean of every ``span`` values, or their ``fold``, ignoring NaN.

    ``values`` must be longer than ``span``.
    """
    starts = np.arange(0, len(values), span)
    if len(values) - starts[-1] < span / 2:
        # A short last span would have a less reliable mean than the others.
        starts, values = starts[:-1], values[: starts[-1]]
    if fold is not None:
        result: np.ndarray[Any, Any] = fold.reduceat(values, starts)
        return result
    finite = np.isfinite(values)
    counts = np.add.reduceat(finite.astype(float), starts)
    sums = np.add.reduceat(np.where(finite, values, 0.0), starts)
    averages: np.ndarray[Any, Any] = np.divide(
        sums, counts, out=np.full(len(starts), np.nan), where=counts > 0
    )
    return averages


def percentiles(
    curves: Sequence[Curve], levels: Sequence[float]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return percentiles over curves at each x with a value.

    Args:
        curves: at least one. Agents that act at different times have different x; each x counts the curves with a
            value there.
        levels: percentiles, 0 to 100.

    Returns:
        x, and the percentiles of shape (levels, x).
    """
    x = np.unique(np.concatenate([np.asarray(curve.x) for curve in curves]))
    values = np.full((len(curves), len(x)), np.nan)
    for row, curve in zip(values, curves, strict=True):
        row[np.searchsorted(x, np.asarray(curve.x))] = curve.y
    has_value = np.isfinite(values).any(axis=0)
    x, values = x[has_value], values[:, has_value]
    if not len(x):
        return x, np.empty((len(levels), 0))
    return x, percentiles_across(values, levels)


def percentiles_across(values: np.ndarray[Any, Any], levels: Sequence[float]) -> np.ndarray[Any, Any]:
    """Return percentiles over the rows of each column, NaN left out; shape (levels, columns).

    Args:
        values: shape (rows, columns), with a value in each column.
        levels: percentiles, 0 to 100.
    """
    result = np.empty((len(levels), values.shape[1]))
    is_whole = np.isfinite(values).all(axis=0)
    # numpy takes columns with NaN one by one
    result[:, is_whole] = np.percentile(values[:, is_whole], levels, axis=0)
    if not is_whole.all():
        result[:, ~is_whole] = np.nanpercentile(values[:, ~is_whole], levels, axis=0)
    return result


@dataclass(frozen=True)
class Span:
    """The position of a phase on the axis of episodes: its episode 0 is at ``start``."""

    start: int
    length: int
    name: str
    mode: str


@dataclass(frozen=True)
class Axis:
    """Phases one after the other; ``window`` is the length of the moving average in episodes."""

    spans: dict[int, Span]
    window: int
    #: the runs with several workers
    parallel: frozenset[str]
    #: whether there are episodes of environments that restart on their own
    restarts: bool = False

    @property
    def label(self) -> str:
        training = all(span.mode == "train" for span in self.spans.values())
        kind = "training episode" if training else "episode"
        kind += " of the environments" if self.restarts else ""
        kind += " of each worker" if self.parallel else ""
        kind += ", counted in each phase" if len(self.spans) > 1 else ""
        return kind if training else f"{kind} (grey: test mode)"

    @property
    def modes(self) -> str:
        """The kind of the episodes: ``training``, ``test``, or ``training and test``."""
        mode_names = {span.mode for span in self.spans.values()}
        return " and ".join(
            name for mode, name in (("train", "training"), ("test", "test")) if mode in mode_names
        )

    @property
    def marks(self) -> tuple[tuple[float, str], ...]:
        return tuple((span.start - 0.5, span.name) for span in self.spans.values())

    @property
    def shades(self) -> tuple[tuple[float, float], ...]:
        tests = [span for span in self.spans.values() if span.mode != "train"]
        return tuple((span.start - 0.5, span.start + span.length - 0.5) for span in tests)


def line_curves(series: Sequence[pd.Series[float]], axis: Axis, label: str, colour: int) -> Iterator[Curve]:
    """Yield the mean of the series, each averaged over the last episodes of its phase.

    ``series`` are values by position on the axis. Episodes without a value are interpolated
    linearly before the mean is taken.
    """
    if not series:
        return
    x: list[FloatVector] = []
    raw: list[FloatVector] = []
    values: list[FloatVector] = []
    for span in axis.spans.values():
        parts = [
            item[(item.index >= span.start) & (item.index < span.start + span.length)] for item in series
        ]
        positions = np.unique(np.concatenate([part.index.to_numpy(float) for part in parts]))
        smooth = [_moving_average(part, axis.window) for part in parts]
        # A point without a value between two phases interrupts the lines.
        x.append(np.array([span.start - 0.5, *positions]))
        values.append(np.array([_connected(part, x[-1]) for part in smooth]))
        raw.append(_connected(parts[0], x[-1]))
    lines = _mean_curves(np.concatenate(x), np.concatenate(values, axis=1), label, colour)
    pale = np.concatenate(raw) if len(series) == 1 and axis.window > 1 else None
    yield from (replace(curve, raw=pale) for curve in lines)


def point_curves(series: Sequence[pd.Series[float]], label: str, colour: int) -> Iterator[Curve]:
    """Yield the mean of the series, to be drawn as points."""
    if not series:
        return
    positions = np.unique(np.concatenate([item.index.to_numpy(float) for item in series]))
    values = np.array([item.reindex(positions).to_numpy(float) for item in series])
    yield from (replace(curve, points=True) for curve in _mean_curves(positions, values, label, colour))


def _moving_average(values: pd.Series[float], window: int) -> pd.Series[float]:
    """Return, at each episode with a value, the mean over the last ``window`` episodes."""
    if values.empty:
        return values
    every = values.reindex(np.arange(values.index.min(), values.index.max() + 1))
    return every.rolling(window, min_periods=1).mean().reindex(values.index)


def _connected(values: pd.Series[float], positions: FloatVector) -> FloatVector:
    """Interpolate the values at ``positions``; NaN before the first and after the last one."""
    finite = values.dropna()
    if finite.empty:
        return np.full(len(positions), np.nan)
    known_positions = finite.index.to_numpy(float)
    return np.interp(positions, known_positions, finite.to_numpy(float), left=np.nan, right=np.nan)


def _mean_curves(x: FloatVector, values: FloatVector, label: str, colour: int) -> Iterator[Curve]:
    """Yield the mean of the rows of ``values`` with a band, and faint curves of single rows for the remaining x."""
    # NaN in one row is NaN in all of these.
    mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
    if len(values) == 1:
        yield Curve(label, x, mean, colour=colour)
        return
    yield Curve(label, x, mean, low, high, colour=colour)
    for row in values:
        alone = ~np.isnan(row) & np.isnan(mean)
        if alone.any():
            # From the last position that all share.
            near = alone | np.append(alone[1:], False) | np.append(False, alone[:-1])
            first, last = np.flatnonzero(near)[[0, -1]]
            part = slice(first, last + 1)
            y = np.where(near, row, np.nan)[part]
            yield Curve(label, x[part], y, colour=colour, faint=True)
