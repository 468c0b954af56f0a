"""Aggregates of runs, and their bootstrap intervals from independent units: seeds if runs share them, else runs within their setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types.arrays import Array, FloatArray, IndexVector

#: strata -> number; arrays of any shape, the runs along ``axis``
Statistic = Callable[..., Any]


def mean(*strata: FloatArray, axis: int = -1) -> Any:
    """Return the mean of the strata's means, so that each setting has the same weight, whatever is lost there."""
    return np.mean([np.mean(stratum, axis=axis) for stratum in strata], axis=0)


def iqm(*strata: FloatArray, axis: int = -1) -> Any:
    """Return the interquartile mean: the mean of the middle half of all runs.

    Runs at the edge of the middle half have a partial weight, so that the weights add up to half of any number of
    runs: of three runs, the outer ones have a quarter of the weight of the middle one; of two or one, it is the mean.
    If the number is divisible by four, it is the mean without the lower and the upper quarter. If strata lost
    different numbers of runs, their runs are weighted so that each stratum counts the same; otherwise, one lost run
    would move the middle towards the settings that lost none.
    """
    return _middle(*_weighted(strata, axis))


def _middle(values: FloatArray, weights: FloatArray, end: FloatArray) -> Any:
    inside = np.clip(np.minimum(end, 0.75) - np.maximum(end - weights, 0.25), 0, None)
    return (values * inside).sum(axis=-1) / inside.sum(axis=-1)


def median(*strata: FloatArray, axis: int = -1) -> Any:
    """Return the median of all runs, weighted as for the interquartile mean."""
    if _alike(strata, axis):
        return np.median(np.concatenate(strata, axis=axis), axis=axis)
    values, _, end = _weighted(strata, axis)
    return np.mean([np.take_along_axis(values, i[..., None], -1)[..., 0] for i in _halves(end)], axis=0)


def _halves(end: FloatArray) -> list[IndexVector]:
    """Return the indices at which the weight reaches a half. They differ if it does so exactly between two runs."""
    return [np.argmax(end >= 0.5 + rounding, axis=-1) for rounding in (-1e-9, 1e-9)]


def _alike(strata: Sequence[FloatArray], axis: int) -> bool:
    return len({stratum.shape[axis] for stratum in strata}) == 1


def _weighted(strata: Sequence[FloatArray], axis: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the values sorted along the last axis, their weights and the cumulative weights.

    If all runs have the same weight, weights and sums have the shape (runs,).
    """
    moved = [np.moveaxis(stratum, axis, -1) for stratum in strata]
    sizes = [stratum.shape[-1] for stratum in moved]
    if _alike(strata, axis):
        count = sum(sizes)
        return (
            np.sort(np.concatenate(moved, axis=-1)),
            np.full(count, 1 / count),
            np.arange(1, count + 1) / count,
        )
    weights = np.concatenate([np.full(size, 1 / (size * len(sizes))) for size in sizes])
    values = np.concatenate(moved, axis=-1)
    order = np.argsort(values, axis=-1, kind="stable")
    sorted_weights = weights[order]
    return np.take_along_axis(values, order, -1), sorted_weights, np.cumsum(sorted_weights, axis=-1)


AGGREGATES: dict[str, Statistic] = {"mean": mean, "iqm": iqm, "median": median}
#: maps ascending values and the weights of each resample, which sum to 1, to a statistic of each resample
Weighted = Callable[[FloatArray, FloatArray], FloatArray]
#: the same aggregates of weighted values
WEIGHTED: dict[str, Weighted] = {
    "mean": lambda values, weights: weights @ values,
    "iqm": lambda values, weights: np.asarray(_middle(values, weights, np.cumsum(weights, axis=-1))),
    "median": lambda values, weights: np.asarray(
        np.mean([values[i] for i in _halves(np.cumsum(weights, axis=-1))], axis=0)
    ),
}


def spread(strata: Sequence[FloatArray]) -> float:
    """Return the pooled standard deviation within strata, NaN if no stratum has two runs.

    Variances are pooled by their degrees of freedom, so differences between settings do not count.
    """
    freedom = sum(len(stratum) - 1 for stratum in strata)
    if freedom < 1:
        return float("nan")
    squares = sum(float(((stratum - stratum.mean()) ** 2).sum()) for stratum in strata)
    return float(np.sqrt(squares / freedom))


#: differences below this, relative to the largest value, are due to rounding
ROUNDING = 1e-12

NOTHING = (float("nan"), float("nan"))
# Limit on the number of weights in memory at once.
_HELD = 1_000_000
_Name = TypeVar("_Name")


@dataclass(frozen=True)
class Sample:
    """Values with their units of resampling.

    ``strata``: the setting of each value; all settings have the same weight. ``units``: the unit of each value; values
    of one unit are drawn together. ``blocks``: the block of each unit; resamples have as many units of each block as
    the sample. Units and blocks have two entries if rows and seeds are drawn: the count of a value is the product of
    the counts of its row and its seed.
    """

    values: FloatArray
    strata: IndexVector
    units: tuple[IndexVector, ...]
    blocks: tuple[IndexVector, ...]

    @classmethod
    def of(cls, strata: Sequence[FloatArray], seeds: Sequence[npt.ArrayLike] | None = None) -> Sample:
        """Build the sample of these strata; ``seeds``: those of each value, if strata share them.

        If each of several strata has a single value, strata are drawn. The interval then describes the variation over
        settings.
        """
        values = np.concatenate([*strata, np.empty(0)])
        every = np.arange(len(values))
        if len(strata) > 1 and all(len(stratum) == 1 for stratum in strata):
            nothing = np.zeros(len(values), dtype=np.intp)
            return cls(values, nothing, (every,), (nothing,))
        stratum_of = np.repeat(np.arange(len(strata)), [len(stratum) for stratum in strata])
        if seeds is None or not len(values):
            return cls(values, stratum_of, (every,), (stratum_of,))
        units = coded(np.concatenate([np.asarray(seed_values) for seed_values in seeds]))
        return cls(values, stratum_of, (units,), (np.zeros(units.max() + 1, dtype=np.intp),))

    @classmethod
    def of_rows(cls, runs: UnpairedRuns) -> Sample:
        """Build a sample that draws the rows of the runs, and their seeds if rows share them."""
        strata = np.zeros(len(runs.values), dtype=np.intp)
        units = [runs.rows]
        if runs.seeds is not None and len(np.unique(runs.seeds)) > 1:
            units.append(coded(runs.seeds))
        blocks = tuple(np.zeros(indices.max(initial=-1) + 1, dtype=np.intp) for indices in units)
        return cls(runs.values, strata, tuple(units), blocks)

    @property
    def known(self) -> bool:
        """Whether each stratum and each block has at least two members, which a variance needs."""
        if not len(self.values):
            return False
        return bool(min(np.bincount(indices).min() for indices in (self.strata, *self.blocks)) > 1)

    def few(self, confidence: float) -> bool:
        """Whether there are too few units for an interval: its ends are rarer than the rarest resample."""
        return any(
            _tail(sizes, confidence) < float(np.prod(1.0 / sizes**sizes))
            for sizes in (np.bincount(block).astype(float) for block in self.blocks)
        )

    @property
    def scale(self) -> float:
        """The largest absolute value."""
        return float(np.abs(self.values).max(initial=0.0))

    def draws(
        self, resamples: int, generator: np.random.Generator, more: int = 0
    ) -> Iterator[tuple[IndexVector, ...]]:
        """Yield the counts of the units, (resamples, units) in batches. ``more``: other numbers per resample."""
        batch = max(1, _HELD // (len(self.values) + more))
        for first in range(0, resamples, batch):
            rows = min(batch, resamples - first)
            yield tuple(_drawn(blocks, rows, generator) for blocks in self.blocks)

    def weights(self, counts: Sequence[IndexVector] | None = None) -> FloatArray:
        """Return the weight of each value in each resample, (resamples, values).

        ``counts``: the counts of the units in each resample; ``None``: each unit once.
        """
        drawn = np.ones((1, len(self.values)))
        for count, units in zip(counts or (), self.units, strict=bool(counts)):
            drawn = drawn * count[:, units]
        totals = np.stack([drawn[:, self.strata == s].sum(axis=1) for s in range(self.strata.max() + 1)], 1)
        # The weight of settings without a drawn value goes to the others.
        present = np.maximum((totals > 0).sum(axis=1, keepdims=True), 1)
        return np.asarray(drawn / np.maximum(totals, 1)[:, self.strata] / present)


@dataclass(frozen=True)
class UnpairedRuns:
    """The runs of a level that shares no setting with another.

    Attributes:
        values: (runs,) their values.
        rows: (runs,) the row of each, numbered from 0.
        seeds: (runs,) the seed of each, if rows share seeds.
    """

    values: FloatArray
    rows: IndexVector
    seeds: IndexVector | None

    @classmethod
    def of(cls, values: FloatArray, rows: npt.ArrayLike, seeds: npt.ArrayLike | None) -> UnpairedRuns:
        """Build the runs from arbitrary identifiers of rows, and seeds (whole numbers)."""
        return cls(values, coded(np.asarray(rows)), None if seeds is None else np.asarray(seeds))

    @property
    def means(self) -> FloatArray:
        """The mean of each row."""
        return np.asarray(np.bincount(self.rows, self.values) / np.bincount(self.rows))


def coded(names: Array) -> IndexVector:
    """Number the distinct names from 0, and return the number of each entry."""
    return np.asarray(np.unique(names, return_inverse=True)[1], dtype=np.intp).reshape(-1)


def _drawn(blocks: IndexVector, resamples: int, generator: np.random.Generator) -> IndexVector:
    counts = np.empty((resamples, len(blocks)), dtype=np.intp)
    for block, size in enumerate(np.bincount(blocks)):
        counts[:, blocks == block] = generator.multinomial(size, np.full(size, 1 / size), size=resamples)
    return counts


def intervals(
    sample: Sample,
    statistics: Mapping[_Name, Weighted],
    confidence: float,
    resamples: int,
    generator: np.random.Generator,
) -> dict[_Name, tuple[float, float]]:
    """Return the interval of each statistic, all from the same draws; NaN if the sample is too small."""
    if not sample.known or sample.few(confidence):
        return dict.fromkeys(statistics, NOTHING)
    order = np.argsort(sample.values, kind="stable")
    values = sample.values[order]
    draws: dict[_Name, list[FloatArray]] = {name: [] for name in statistics}
    for counts in sample.draws(resamples, generator):
        weights = sample.weights(counts)[:, order]
        # The rows and seeds of a resample may have no run in common.
        weights = weights[weights.any(axis=1)]
        for name, statistic in statistics.items():
            draws[name].append(statistic(values, weights))
    tail_share = tail(sample.blocks, confidence)
    return {name: ends(np.concatenate(parts), tail_share, sample.scale) for name, parts in draws.items()}


def ends(drawn: FloatArray, tail_share: float, scale: float) -> tuple[float, float]:
    """Return the interval of the ``drawn`` numbers; NaN if it has no width.

    An interval without width means that no variation was observed, not that it is impossible.

    Args:
        drawn: (resamples,) the statistic of each.
        tail_share: the share of the draws beyond either end.
        scale: the magnitude of the data, to separate a width from rounding errors.
    """
    low, high = np.quantile(drawn, [tail_share, 1 - tail_share])
    return (float(low), float(high)) if high - low > ROUNDING * scale else NOTHING


def percentiles(drawn: Sequence[float] | FloatArray, confidence: float) -> tuple[float, float]:
    """Return the percentile interval of the finite ones among the ``drawn`` numbers; NaN without any."""
    numbers = np.asarray(drawn, dtype=float)
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        return NOTHING
    low, high = np.quantile(finite, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def tail(blocks: Sequence[IndexVector], confidence: float) -> float:
    """Return the share of the draws beyond either end of an interval, the smallest of those for each of ``blocks``."""
    return min(_tail(np.bincount(block).astype(float), confidence) for block in blocks)


def _tail(sizes: FloatArray, confidence: float) -> float:
    """Return the share for blocks with these numbers of units."""
    from scipy.stats import norm, t

    freedom = (sizes - 1).sum()
    # For n values, the bootstrap variance of their mean is (n - 1) / n^2, not 1 / n.
    wider = np.sqrt((1 / sizes).sum() / ((sizes - 1) / sizes**2).sum())
    return float(norm.cdf(-wider * t.ppf((1 + confidence) / 2, freedom)))


def distinct(values: FloatArray) -> int:
    """Count the values that differ by more than rounding."""
    if not len(values):
        return 0
    ordered = np.sort(values)
    gaps = np.diff(ordered) > ROUNDING * max(abs(ordered[0]), abs(ordered[-1]))
    return int(1 + np.count_nonzero(gaps))


def levelled(values: FloatArray) -> FloatArray:
    """Round the values so that those that differ only by rounding become ties."""
    scale = np.abs(values).max(initial=0.0)
    return np.round(values / scale, 12) * scale if scale else values
