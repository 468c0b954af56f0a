"""The stability of boxes: how much of them is found again in resamples of the settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from palaestrai_mosaik.types.arrays import BoolVector, FloatVector

from ..comparison.resampling import percentiles
from .algorithms import Points
from .boxes import Box, Column, Side

#: the most resamples; each is searched for boxes
MOST_RESAMPLES = 100

Interval = tuple[float, float]


@dataclass
class Stability:
    """The boxes of resamples that are most similar to one box.

    Attributes:
        resamples: number of resamples.
        overlap: for each, the Jaccard index of the rows of both boxes; 0 if no box was found.
        limits: for each restriction, the values of this limit in the resamples that have it; NaN for levels.
    """

    resamples: int = 0
    overlap: list[float] = field(default_factory=list)
    limits: dict[tuple[int, Side], list[float]] = field(default_factory=dict)

    def present(self, axis: int, side: Side) -> float:
        """Return the share of the resamples with a box that has this restriction too."""
        return len(self.limits.get((axis, side), ())) / self.resamples if self.resamples else math.nan

    def interval_of(self, axis: int, side: Side, confidence: float) -> Interval:
        """Return the interval of this limit in the resamples that have it."""
        return percentiles(self.limits.get((axis, side), ()), confidence)


def resamples(points: Points, number: int, generator: np.random.Generator) -> Iterator[Points]:
    """Yield ``number`` resamples of the points: settings are drawn with replacement, with all of their runs."""
    settings, setting_of = np.unique(points.setting, return_inverse=True)
    for _ in range(number):
        times = np.bincount(generator.integers(len(settings), size=len(settings)), minlength=len(settings))
        yield points.only(np.repeat(np.arange(len(setting_of)), times[setting_of]))


def stability(box: Box, resampled: Sequence[Sequence[Box]], measured: Sequence[Column]) -> Stability:
    """Compare a box with those of resamples.

    Args:
        box: the box.
        resampled: the boxes of each resample; only the most similar one is compared.
        measured: the axes of the points by which boxes are compared.
    """
    result, rows = Stability(len(resampled)), box.contains(measured)
    for candidates in resampled:
        shares = [jaccard(rows, other.contains(measured)) for other in candidates]
        result.overlap.append(max(shares, default=0.0))
        if not candidates:
            continue
        like = candidates[int(np.argmax(shares))]
        sides = set(like.sides())
        for axis, side in box.sides():
            if (axis, side) in sides:
                limit = like.limit(axis, side)
                value = math.nan if isinstance(limit, frozenset) else limit
                result.limits.setdefault((axis, side), []).append(value)
    return result


def jaccard(a: BoolVector, b: BoolVector) -> float:
    """Return the Jaccard index of two sets of points: their intersection over their union; 0 if both are empty."""
    return float((a & b).sum() / max(1, (a | b).sum()))


def mean(values: Sequence[float]) -> float:
    """Return the mean of the finite ``values``, NaN without any."""
    finite: FloatVector = np.array([value for value in values if math.isfinite(value)], dtype=float)
    return float(finite.mean()) if len(finite) else math.nan
