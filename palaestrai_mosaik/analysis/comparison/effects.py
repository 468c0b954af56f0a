"""How much two levels differ, in units that can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray, IndexVector

from .hypothesis_tests import EXACT, rank_sum_distribution
from .resampling import NOTHING, Sample, ends, tail


def cohens_dz(differences: FloatArray) -> float:
    """Return the mean of paired differences over their standard deviation (Cohen 1988).

    0 where no pair differs; NaN for fewer than two pairs, and where all differ by the same.
    """
    if len(differences) < 2:
        return float("nan")
    if np.ptp(differences) == 0:
        return float("nan") if differences[0] else 0.0
    return float(differences.mean() / differences.std(ddof=1))


def rank_biserial(differences: FloatArray) -> float:
    """Return the matched-pairs rank-biserial correlation (Kerby 2014), from -1 to 1.

    The share of the ranks of absolute differences that belongs to positive ones, less that of
    negative ones. Pairs that do not differ are left out; 0 if none is left, NaN without pairs.
    """
    from scipy.stats import rankdata

    if not len(differences):
        return float("nan")
    nonzero = differences[differences != 0]
    if not len(nonzero):
        return 0.0
    ranks = rankdata(np.abs(nonzero))
    return float((np.sign(nonzero) * ranks).sum() / ranks.sum())


def improvement(a: Sequence[FloatArray], b: Sequence[FloatArray]) -> float:
    """Return the probability that a run of ``a`` gives more than one of ``b``; ties count half.

    ``a`` and ``b`` give the runs of each stratum, whose probabilities are averaged. This is the
    probability of improvement of Agarwal et al. 2021 and, for one stratum, A12 of Vargha &
    Delaney 2000; Cliff's delta is twice it less one.
    """
    found = []
    for x, y in zip(a, b, strict=True):
        below, up_to = _places(x, np.sort(y))
        found.append((below + up_to).sum() / (2 * len(x) * len(y)))
    return float(np.mean(found))


def improvement_interval(
    a: Sample,
    b: Sample,
    paired: bool,
    confidence: float,
    resamples: int,
    generator: np.random.Generator,
) -> tuple[float, float]:
    """Return the bootstrap interval of the probability of improvement of ``a`` over ``b``.

    ``paired``: value i of both sides is drawn together. NaN where a side cannot say how its runs vary, and
    where every resample gives the same. Only how often each run is drawn is looked at: nothing is sorted anew.
    """
    if not (a.known and b.known):
        return NOTHING
    strata = [
        (x, y, *_places(a.values[x], b.values[y]))
        for x, y in ((np.flatnonzero(a.strata == s), _sorted(b, s)) for s in range(a.strata.max() + 1))
    ]
    found = []
    others = b.draws(resamples, generator, len(a.values))
    for counts in a.draws(resamples, generator, len(b.values)):
        weights, against = a.weights(counts), b.weights(counts if paired else next(others))
        total, present = np.zeros(len(weights)), np.zeros(len(weights))
        for x, y, below, up_to in strata:
            own = weights[:, x]
            # entry k: the weight of the k smallest of b
            sums = np.concatenate([np.zeros((len(own), 1)), np.cumsum(against[:, y], axis=1)], axis=1)
            pairs = 2 * own.sum(axis=1) * sums[:, -1]
            won = (own * (sums[:, below] + sums[:, up_to])).sum(axis=1)
            total += np.divide(won, pairs, out=np.zeros(len(own)), where=pairs > 0)
            present += pairs > 0
        found.append((total / np.maximum(present, 1))[present > 0])
    outside = tail(a.blocks if paired else _joined(a, b), confidence)
    return ends(np.concatenate(found), outside, 1.0)


def _joined(a: Sample, b: Sample) -> list[IndexVector]:
    """Return the blocks of two samples that are drawn each on its own; a side left with one seed draws rows only."""
    nothing = np.empty(0, dtype=np.intp)
    both = zip_longest(a.blocks, b.blocks, fillvalue=nothing)
    return [np.concatenate([x, y + x.max(initial=-1) + 1]) for x, y in both]


def _sorted(sample: Sample, stratum: int) -> IndexVector:
    """Return the places of the stratum's values in ascending order of these."""
    own = np.flatnonzero(sample.strata == stratum)
    return own[np.argsort(sample.values[own], kind="stable")]


def _places(x: FloatArray, y: FloatArray) -> tuple[IndexVector, IndexVector]:
    """Return for each of ``x`` how many of the sorted ``y`` are less, and how many at most as much."""
    return np.searchsorted(y, x, side="left"), np.searchsorted(y, x, side="right")


def hodges_lehmann(differences: FloatArray, confidence: float) -> tuple[float, float, float]:
    """Return the Hodges-Lehmann shift of paired differences, and its interval.

    The shift is the median of the Walsh averages (d_i + d_j) / 2, i <= j. The interval inverts
    the signed-rank test: exact ranks for up to ``EXACT`` pairs, normal ones beyond. NaN where so few
    pairs cannot give that confidence (fewer than 6 for 95 %), and where it has no width. Source:
    Hollander & Wolfe 1999.
    """
    n = len(differences)
    if not n:
        return float("nan"), float("nan"), float("nan")
    values = np.sort(differences)
    count = n * (n + 1) // 2

    def at(rank: int) -> float:
        return _kth_average(values, rank)

    shift = (at((count + 1) // 2) + at(count // 2 + 1)) / 2
    outside = _rank_of_bound(n, 1 - confidence)
    if outside < 1:
        return shift, *NOTHING
    low, high = at(outside), at(count + 1 - outside)
    return shift, *((low, high) if low < high else NOTHING)


def _kth_average(values: FloatArray, rank: int) -> float:
    """Return the Walsh average of that rank (from 1) of sorted ``values``.

    There may be too many averages to list them: counting how many lie below a number takes
    one search in ``values``, so the place of the one that is looked for is found by halving.
    """
    places = np.arange(len(values))

    def partners(x: float) -> IndexVector:
        """Return, for each value, how many values give an average of at most ``x`` with it."""
        found: IndexVector = np.searchsorted(values, 2 * x - values, side="right")
        return found

    # (below the smallest average: what is at most `low` must never be enough)
    low, high = float(np.nextafter(values[0], -np.inf)), float(values[-1])
    close = 2.0**-51 * max(abs(low), abs(high))
    while high - low > close:
        middle = (low + high) / 2
        if not low < middle < high:
            break  # the smallest numbers lie further apart than that
        if np.maximum(partners(middle) - places, 0).sum() >= rank:
            high = middle
        else:
            low = middle
    # the largest average up to there, free of what halving rounded
    last = partners(high)
    own = last > places
    return float(((values[own] + values[last[own] - 1]) / 2).max())


def _rank_of_bound(n: int, alpha: float) -> int:
    """Return how far from either end of the sorted Walsh averages the bounds lie; 0: nowhere."""
    from scipy.stats import norm

    if n > EXACT:
        width = np.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return int(np.floor(n * (n + 1) / 4 + norm.ppf(alpha / 2) * width))
    sums = rank_sum_distribution(np.arange(1.0, n + 1))[::2]
    return int(np.count_nonzero(np.cumsum(sums) <= alpha / 2))
