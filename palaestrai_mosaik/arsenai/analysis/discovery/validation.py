"""Tests of boxes: against chance, in settings that did not choose them, and in resamples of the settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from palaestrai_mosaik.types.arrays import BoolVector, FloatVector, IntVector

from ..comparison.aggregates import NOTHING, percentiles
from .algorithms import MOST_BOXES, FoundLimits, Points, correlations
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


#: number of searches in permuted outcomes, and level of the test
PERMUTATIONS, LEVEL = 99, 0.02
#: total number of held-out parts, and the number of parts in a division of the settings
PARTS, FOLDS = 30, 10

Find = Callable[[Points, int], list[FoundLimits]]


# --- chance -------------------------------------------------------------------------------


def beyond_chance(
    points: Points, boxes: Sequence[Box], find: Find, generator: np.random.Generator
) -> BoolVector:
    """Return whether each box is better than boxes found in permuted outcomes.

    In noise, the share :data:`LEVEL` of the searches has such a box. The outcomes of a setting stay together, so
    repetitions need not be independent.

    Args:
        points: the runs that the boxes were found in.
        boxes: the boxes.
        find: the method that found them.
        generator: permutes the outcomes.

    Returns:
        (boxes,) True for boxes that chance does not explain.
    """
    statistics = np.array([_correlation(points, box) for box in boxes])
    as_good = np.zeros(len(boxes))
    for _ in range(PERMUTATIONS):
        if (as_good >= LEVEL * (PERMUTATIONS + 1)).all():
            break
        dealt = _dealt(points, generator)
        as_good += statistics <= max(
            (_correlation(dealt, candidate.box) for candidate in find(dealt, MOST_BOXES)), default=0.0
        )
    beyond: BoolVector = as_good + 1 <= LEVEL * (PERMUTATIONS + 1)
    return beyond


def _correlation(points: Points, box: Box) -> float:
    inside = points.inside(box)
    n, k = np.array([inside.sum()], dtype=float), np.array([points.holds[inside].sum()], dtype=float)
    return float(correlations(n, k, points.holds)[0])


def _dealt(points: Points, generator: np.random.Generator) -> Points:
    """Exchange the outcomes of settings with equal numbers of runs."""
    order = np.argsort(points.setting, kind="stable")
    _, begins, sizes = np.unique(points.setting[order], return_index=True, return_counts=True)
    holds = points.holds.copy()
    for size in np.unique(sizes):
        indices = order[begins[sizes == size][:, None] + np.arange(size)]
        holds[indices] = points.holds[generator.permutation(indices)]
    return Points(points.columns, points.row, holds, points.setting)


# --- held-out settings --------------------------------------------------------------------


@dataclass(frozen=True)
class HeldOut:
    """The quality of a box in settings that did not choose it.

    Attributes:
        coverage: the share of the runs with the condition that are in the box, and its interval.
        density: the share of the runs in the box with the condition, and its interval.
    """

    coverage: tuple[float, Interval]
    density: tuple[float, Interval]


def folds(points: Points, generator: np.random.Generator, number: int = FOLDS) -> Iterator[BoolVector]:
    """Yield the held-out points of :data:`PARTS` parts, (points,) each.

    The points of a setting are in one part. Parts have about the same number of settings in which the condition holds.

    Args:
        points: the runs.
        generator: divides the settings.
        number: number of parts in each division of the settings, a divisor of :data:`PARTS`.
    """
    settings, setting_of = np.unique(points.setting, return_inverse=True)
    share = np.bincount(setting_of, weights=points.holds) / np.bincount(setting_of)
    part: IntVector = np.empty(len(settings), dtype=np.int64)
    for _ in range(PARTS // number):
        part[np.lexsort((generator.random(len(settings)), share))] = np.arange(len(settings)) % number
        for i in range(number):
            yield part[setting_of] == i


def held_out(
    points: Points,
    box: Box,
    parts: Sequence[tuple[BoolVector, Sequence[Box]]],
    measured: Points,
    weight: FloatVector,
    confidence: float,
) -> HeldOut:
    """Return coverage and density of a box in settings that did not choose it; NaN if no part finds a box.

    The estimate is from cross-validation, adjusted because its boxes are found in fewer settings (Davison and Hinkley
    1997, "Bootstrap Methods and their Application", equation 6.48). The interval extends at least to the share among
    the points that chose the box, which is too high if anything. With cross-validation alone, the interval would
    exclude a box with all cases if the outermost case is outside the box found without it.

    Args:
        points: the runs.
        box: the box that was found in all of them.
        parts: for each part, the held-out points, and the boxes that were found without them. The one with the most
            points in common with ``box`` represents it.
        measured: the points that the box was found in: the runs, or the points that replace them.
        weight: (points,) the weight of a point in the design's distribution.
        confidence: confidence level of the intervals.
    """
    holds, rows = points.holds.astype(float), box.contains(measured.columns)
    tested, times = np.zeros(len(holds)), np.zeros(len(holds))
    whole = []
    for left, candidates in parts:
        shares = [jaccard(rows, other.contains(measured.columns)) for other in candidates]
        if shares and max(shares) > 0:
            inside = points.inside(candidates[int(np.argmax(shares))])
            tested, times = tested + left, times + (left & inside)
            whole.append(_shares(inside.astype(float), holds, weight))
    if not whole:
        return HeldOut((np.nan, NOTHING), (np.nan, NOTHING))
    on_all_runs = _shares(points.inside(box).astype(float), holds, weight)
    apparent = _shares(
        measured.inside(box).astype(float), measured.holds.astype(float), np.ones(len(measured.holds))
    )
    member, tested_weight = times / np.maximum(tested, 1), weight * (tested > 0)
    estimate = np.clip(
        _shares(member, holds, tested_weight) - np.nanmean(np.array(whole) - on_all_runs, axis=0), 0, 1
    )
    _, setting_of = np.unique(points.setting, return_inverse=True)
    spread = np.nanvar(whole, axis=0)
    sizes = (
        _settings(setting_of, tested_weight * holds, member, tested_weight * holds, float(spread[0])),
        _settings(setting_of, tested_weight * member, holds, tested_weight, float(spread[1])),
    )
    coverage, density = (
        (float(estimate[i]), _interval(float(estimate[i]), sizes[i], float(apparent[i]), confidence))
        for i in range(2)
    )
    return HeldOut(coverage, density)


def _shares(member: FloatVector, holds: FloatVector, weight: FloatVector) -> FloatVector:
    """Return coverage (NaN without cases) and density (NaN for an empty box)."""
    inside, cases = (weight * member).sum(), (weight * member * holds).sum()
    all_cases = (weight * holds).sum()
    return np.array(
        [
            cases / all_cases if all_cases > 0 else np.nan,
            cases / inside if inside > 0 else np.nan,
        ]
    )


def _settings(
    setting_of: IntVector, weight: FloatVector, value: FloatVector, whole: FloatVector, spread: float
) -> float:
    """Return the effective number of settings: of independent ones with the same information on a weighted mean.

    Args:
        setting_of: (points,) the number of the setting.
        weight: (points,) the weight of a point.
        value: (points,) from 0 to 1.
        whole: (points,) its weight, not reduced by the probability of being in the box.
        spread: the part of the variance that is due to differences between the boxes of the parts.
    """
    total = float(weight.sum())
    if total <= 0:
        return 0.0
    each = np.bincount(setting_of, weights=weight)
    most = total**2 / float((each * np.bincount(setting_of, weights=whole)).sum())
    mean = float((weight * value).sum() / total)
    deviations = np.bincount(setting_of, weights=weight * (value - mean)) / total
    variance = float((deviations**2).sum()) * len(each) / max(1, len(each) - 1)
    most_variance = mean * (1 - mean)
    if variance <= 0 or most_variance <= 0:
        return most
    return most_variance / (max(variance, most_variance / most) + spread)


def _interval(mean: float, settings: float, apparent: float, confidence: float) -> Interval:
    """Return Clopper and Pearson's interval of a ``mean`` over ``settings``, extended to ``apparent``."""
    from scipy.special import betaincinv

    if not np.isfinite(mean):
        return NOTHING
    tail, cases = (1 - confidence) / 2, mean * settings
    low = float(betaincinv(cases, settings - cases + 1, tail)) if cases > 0 else 0.0
    high = float(betaincinv(cases + 1, settings - cases, 1 - tail)) if cases < settings else 1.0
    return min(low, mean), max(high, mean, apparent)
