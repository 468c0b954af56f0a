"""Bootstrap intervals from what is independent: seeds where runs share them, else runs within their setting.

A seed that several settings share is drawn with its runs of all of them. Were runs drawn one by one, what
the seed does to all settings at once would be counted as often as there are settings, and intervals would be
too narrow. Settings themselves are chosen, not drawn, so each keeps its weight.

Intervals are percentile intervals, expanded for few units: the bootstrap's variance of a mean of n values is too
small by (n - 1) / n, and n values tell little of their own spread, so quantiles further out are taken, such
that the interval of a mean is as wide as Student's. Source: Hesterberg 2015, "What teachers should know about
the bootstrap", The American Statistician 69.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types.arrays import Array, FloatArray, IndexVector

#: (values in ascending order, the weights of each resample) -> the number of each resample
Weighted = Callable[[FloatArray, FloatArray], FloatArray]
#: numbers that differ by less than this, relative to the largest, differ by rounding only
ROUNDING = 1e-12

NOTHING = (float("nan"), float("nan"))
# So many weights are held at once.
_HELD = 1_000_000
_Name = TypeVar("_Name")


@dataclass(frozen=True)
class Sample:
    """Values with what they are drawn by.

    ``strata``: the setting of each value, all of which count the same. ``units``: the unit of each
    value; values of one unit are drawn together. ``blocks``: the block of each unit; as many units
    are drawn from each block as it has. There are two of both where rows and seeds are drawn: a value
    is there as often as its row and its seed are, multiplied.
    """

    values: FloatArray
    strata: IndexVector
    units: tuple[IndexVector, ...]
    blocks: tuple[IndexVector, ...]

    @classmethod
    def of(
        cls, strata: Sequence[FloatArray], seeds: Sequence[npt.ArrayLike] | None = None, *, pool: bool = True
    ) -> Sample:
        """Return the sample of these strata; ``seeds``: of each value, where strata share them.

        ``pool``: where each of several strata has a single value, it is the strata that are drawn; the
        interval then says how results vary from setting to setting.
        """
        values = np.concatenate([*strata, np.empty(0)])
        every = np.arange(len(values))
        if pool and len(strata) > 1 and all(len(stratum) == 1 for stratum in strata):
            nothing = np.zeros(len(values), dtype=np.intp)
            return cls(values, nothing, (every,), (nothing,))
        places = np.repeat(np.arange(len(strata)), [len(stratum) for stratum in strata])
        if seeds is None or not len(values):
            return cls(values, places, (every,), (places,))
        units = coded(np.concatenate([np.asarray(one) for one in seeds]))
        return cls(values, places, (units,), (np.zeros(units.max() + 1, dtype=np.intp),))

    @classmethod
    def of_rows(cls, sides: Sequence[UnpairedRuns]) -> Sample:
        """Return the sample of one or more sides of which rows are drawn, and seeds where they share them."""
        values = np.concatenate([side.values for side in sides])
        strata = np.repeat(np.arange(len(sides)), [len(side.values) for side in sides])
        firsts = np.cumsum([0, *(side.rows.max(initial=-1) + 1 for side in sides)])
        rows = np.concatenate([side.rows + first for side, first in zip(sides, firsts, strict=False)])
        blocks = np.repeat(np.arange(len(sides)), np.diff(firsts))
        given_seeds = [side.seeds for side in sides if side.seeds is not None]
        if not given_seeds or len(np.unique(np.concatenate(given_seeds))) < 2:
            return cls(values, strata, (rows,), (blocks,))
        seeds = coded(np.concatenate(given_seeds))
        return cls(values, strata, (rows, seeds), (blocks, np.zeros(seeds.max() + 1, dtype=np.intp)))

    @property
    def known(self) -> bool:
        """Whether each stratum and each block has two at least: else how they vary cannot be seen."""
        if not len(self.values):
            return False
        return bool(min(np.bincount(one).min() for one in (self.strata, *self.blocks)) > 1)

    @property
    def scale(self) -> float:
        """The largest absolute value."""
        return float(np.abs(self.values).max(initial=0.0))

    def draws(
        self, resamples: int, generator: np.random.Generator, more: int = 0
    ) -> Iterator[tuple[IndexVector, ...]]:
        """Yield how often each unit is drawn: (some resamples, units). ``more``: of what is held beside."""
        batch = max(1, _HELD // (len(self.values) + more))
        for first in range(0, resamples, batch):
            rows = min(batch, resamples - first)
            yield tuple(_drawn(blocks, rows, generator) for blocks in self.blocks)

    def weights(self, counts: Sequence[IndexVector] | None = None) -> FloatArray:
        """Return the weight of each value in each resample, which has its units as often as ``counts`` says.

        (resamples, values); nothing given: each unit once.
        """
        drawn = np.ones((1, len(self.values)))
        for count, units in zip(counts or (), self.units, strict=bool(counts)):
            drawn = drawn * count[:, units]
        totals = np.stack([drawn[:, self.strata == s].sum(axis=1) for s in range(self.strata.max() + 1)], 1)
        # a setting of which nothing was drawn leaves its weight to the others
        present = np.maximum((totals > 0).sum(axis=1, keepdims=True), 1)
        return np.asarray(drawn / np.maximum(totals, 1)[:, self.strata] / present)


@dataclass(frozen=True)
class UnpairedRuns:
    """The runs of a level that shares no setting with another: their values, the row of each (0, 1, ...), and
    its seed, where rows share seeds.
    """

    values: FloatArray
    rows: IndexVector
    seeds: IndexVector | None

    @classmethod
    def of(cls, values: FloatArray, rows: npt.ArrayLike, seeds: npt.ArrayLike | None) -> UnpairedRuns:
        """Return the runs with any names of rows and seeds (whole numbers)."""
        return cls(values, coded(np.asarray(rows)), None if seeds is None else np.asarray(seeds))

    @property
    def means(self) -> FloatArray:
        """The mean of each row."""
        return np.asarray(np.bincount(self.rows, self.values) / np.bincount(self.rows))


def coded(names: Array) -> IndexVector:
    """Return a number for each name: 0, 1, ..."""
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
    """Return the interval of each of the statistics, all from the same draws; NaN where there is none."""
    if not sample.known:
        return dict.fromkeys(statistics, NOTHING)
    order = np.argsort(sample.values, kind="stable")
    values = sample.values[order]
    found: dict[_Name, list[FloatArray]] = {name: [] for name in statistics}
    for counts in sample.draws(resamples, generator):
        weights = sample.weights(counts)[:, order]
        # rows and seeds that were drawn may have no run in common
        weights = weights[weights.any(axis=1)]
        for name, statistic in statistics.items():
            found[name].append(statistic(values, weights))
    tail_share = tail(sample.blocks, confidence)
    return {name: ends(np.concatenate(parts), tail_share, sample.scale) for name, parts in found.items()}


def ends(drawn: FloatArray, tail_share: float, scale: float) -> tuple[float, float]:
    """Return the interval that the ``drawn`` numbers give; NaN where it has no width.

    An interval without width says that nothing was seen to vary, not that nothing can. ``outside``: the share
    of the draws beyond either end. ``scale``: of the values, to know a width from rounding.
    """
    low, high = np.quantile(drawn, [tail_share, 1 - tail_share])
    return (float(low), float(high)) if high - low > ROUNDING * scale else NOTHING


def tail(blocks: Sequence[IndexVector], confidence: float) -> float:
    """Return the share of the draws that lie outside on either side: the smallest that one of ``blocks`` asks for."""
    from scipy.stats import norm, t

    found = []
    for sizes in map(np.bincount, blocks):
        freedom = int((sizes - 1).sum())
        # of n values, the bootstrap sees the variance (n - 1) / n^2 of their mean, not 1 / n
        wider = np.sqrt((1 / sizes).sum() / ((sizes - 1) / sizes**2).sum())
        found.append(float(norm.cdf(-wider * t.ppf((1 + confidence) / 2, freedom))))
    return min(found)


def distinct(values: FloatArray) -> int:
    """Return how many values there are that differ by more than rounding."""
    if not len(values):
        return 0
    ordered = np.sort(values)
    gaps = np.diff(ordered) > ROUNDING * max(abs(ordered[0]), abs(ordered[-1]))
    return int(1 + np.count_nonzero(gaps))


def levelled(values: FloatArray) -> FloatArray:
    """Return the values with those made equal that differ by rounding only, so that they are ties."""
    scale = np.abs(values).max(initial=0.0)
    return np.round(values / scale, 12) * scale if scale else values
