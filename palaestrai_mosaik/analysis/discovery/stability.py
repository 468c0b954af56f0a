"""How stable boxes are: found again in resamples of the settings, and measured on settings that were not drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from palaestrai_mosaik.progress import PartsProgress
from palaestrai_mosaik.types.arrays import BoolVector, FloatVector

from .algorithms import FoundLimits, Points
from .boxes import Box, Side

#: resamples that are drawn at most; each is searched for boxes again
MOST_RESAMPLES = 100

Interval = tuple[float, float]
NO_INTERVAL: Interval = (math.nan, math.nan)


@dataclass
class Stability:
    """What resamples say of one box.

    Attributes:
        resamples: how many there are.
        overlap: of each, the rows that both boxes have as a share of those that one of them has (Jaccard); 0 where
            no box was found.
        coverage: of each, the coverage of its box among the settings that were not drawn, NaN without a case.
        density: of each, its density there, NaN without a run.
        limits: of each restriction, the values of this limit in the resamples that have it; NaN for levels.
    """

    resamples: int = 0
    overlap: list[float] = field(default_factory=list)
    coverage: list[float] = field(default_factory=list)
    density: list[float] = field(default_factory=list)
    limits: dict[tuple[int, Side], list[float]] = field(default_factory=dict)

    def present(self, place: int, side: Side) -> float:
        """Return the share of the resamples whose box has this restriction, too."""
        return len(self.limits.get((place, side), ())) / self.resamples if self.resamples else math.nan

    def interval_of(self, place: int, side: Side, confidence: float) -> Interval:
        """Return from where to where this limit goes in the resamples that have it."""
        return percentiles(self.limits.get((place, side), ()), confidence)


def percentiles(values: Sequence[float], confidence: float) -> Interval:
    """Return the percentile interval of the finite ``values``, NaN where there are none."""
    known = np.array([value for value in values if math.isfinite(value)], dtype=float)
    if not len(known):
        return NO_INTERVAL
    low, high = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def resample(
    given: tuple[Points, Points],
    boxes: Sequence[Box],
    find: Callable[[Points, int], list[FoundLimits]],
    generator: np.random.Generator,
    counted: tuple[int, PartsProgress],
) -> list[Stability]:
    """Return how stable the ``boxes`` are that ``find`` has found of the runs.

    Settings are drawn with replacement, with all of their runs, and searched for as many boxes. Of these, each box is
    compared with the one that it shares most rows with.

    Args:
        given: the runs, and the points whose shares boxes have in common (the same, or those of a surrogate).
        boxes: the boxes.
        find: the method.
        generator: draws the settings.
        counted: how many resamples are drawn, and what counts them.
    """
    (points, measured), (resamples, progress) = given, counted
    found = [Stability(resamples) for _ in boxes]
    inside = [box.contains(measured.columns) for box in boxes]
    settings, place = np.unique(points.setting, return_inverse=True)
    for _ in range(resamples):
        times = np.bincount(generator.integers(len(settings), size=len(settings)), minlength=len(settings))
        drawn = points.only(np.repeat(np.arange(len(place)), times[place]))
        again: list[FoundLimits] = []
        if drawn.holds.any() and not drawn.holds.all():
            again = find(drawn, len(boxes))
        candidates = [(one.box, one.box.contains(measured.columns)) for one in again]
        for one, box, rows in zip(found, boxes, inside, strict=True):
            _compare(one, box, rows, candidates, points.only(times[place] == 0))
        progress.add(1)
    return found


def _compare(
    one: Stability, box: Box, rows: BoolVector, candidates: Sequence[tuple[Box, BoolVector]], left: Points
) -> None:
    """Take note of the candidate that is most like the ``box``."""
    if not candidates:
        one.overlap.append(0.0)
        one.coverage.append(math.nan)
        one.density.append(math.nan)
        return
    shares = [jaccard(rows, other) for _, other in candidates]
    best = int(np.argmax(shares))
    like = candidates[best][0]
    one.overlap.append(shares[best])
    within = left.inside(like)
    one.coverage.append(_share(left.holds & within, left.holds))
    one.density.append(_share(left.holds & within, within))
    sides = set(like.sides())
    for place, side in box.sides():
        if (place, side) in sides:
            limit = like.limit(place, side)
            value = math.nan if isinstance(limit, frozenset) else limit
            one.limits.setdefault((place, side), []).append(value)


def jaccard(a: BoolVector, b: BoolVector) -> float:
    """Return the points that both have, as a share of those that one of them has; 0 where none has any."""
    return float((a & b).sum() / max(1, (a | b).sum()))


def _share(some: BoolVector, of: BoolVector) -> float:
    return float(some.sum() / of.sum()) if of.any() else math.nan


def mean(values: Sequence[float]) -> float:
    """Return the mean of the finite ``values``, NaN where there are none."""
    known: FloatVector = np.array([value for value in values if math.isfinite(value)], dtype=float)
    return float(known.mean()) if len(known) else math.nan
