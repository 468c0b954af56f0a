"""Whether two levels differ: rank tests, exact where they can be, and Holm's correction.

Rank tests ask little of the distribution; returns of learning agents are skewed and have
outliers, which would rule a t test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray, IndexVector

from .resampling import ROUNDING, UnpairedRuns

#: draws of a permutation test
PERMUTATIONS = 9999
#: up to so many pairs or runs, normal approximations are not good enough
EXACT = 100
#: the test of what does not differ, and of what cannot say how it varies
NO_DIFFERENCE = "none (no pair differs)"
ONE_PAIR, ONE_SEED, ONE_ROW = "none (one pair)", "none (one seed)", "none (one row)"
# So many dealt scores are held at once.
_DEALT = 1_000_000


def signed_rank(differences: FloatArray) -> tuple[float, str]:
    """Return the two-sided p of Wilcoxon's signed-rank test, and how it was computed.

    Pairs without a difference say nothing and are left out; there is no test (NaN) if none is left, and of
    one pair, which would give p = 1 whatever it is. p is exact for up to ``EXACT`` pairs, tied or not, and
    normal beyond. Source: Wilcoxon 1945.
    """
    from scipy.stats import rankdata, wilcoxon

    if len(differences) < 2:
        return float("nan"), ONE_PAIR if len(differences) else "none (no pairs)"
    nonzero = differences[differences != 0]
    if not len(nonzero):
        return float("nan"), NO_DIFFERENCE
    if len(nonzero) > EXACT:
        return float(wilcoxon(nonzero).pvalue), "Wilcoxon signed-rank (normal)"
    ranks = rankdata(np.abs(nonzero))
    probability = rank_sum_distribution(ranks)
    place = round(2 * ranks[nonzero > 0].sum())
    tails = probability[: place + 1].sum(), probability[place:].sum()
    return float(min(1.0, 2 * min(tails))), "Wilcoxon signed-rank (exact)"


def smallest_signed_rank(pairs: int) -> float:
    """Return the smallest p that the signed-rank test of so many pairs can give."""
    return float(2.0 ** (1 - pairs))


def smallest_rank_sum(a: Sequence[FloatArray], b: Sequence[FloatArray]) -> float:
    """Return the smallest p that the rank-sum test of so many runs can give."""
    return min(1.0, 2 / math.prod(math.comb(len(x) + len(y), len(x)) for x, y in zip(a, b, strict=True)))


def rank_sum_distribution(ranks: FloatArray) -> FloatArray:
    """Return the probability of each sum of positive ranks where signs are heads and tails.

    Entry i is that of the sum i / 2, because the ranks of ties are multiples of a half.
    """
    probability = np.ones(1)
    for rank in np.rint(2 * ranks).astype(int):
        # a rank adds to the sum of the positive ones, or it does not
        nothing = np.zeros(rank)
        probability = (np.append(probability, nothing) + np.append(nothing, probability)) / 2
    return probability


def rank_sum(
    a: Sequence[FloatArray], b: Sequence[FloatArray], generator: np.random.Generator
) -> tuple[float, str]:
    """Return the two-sided p of the rank-sum test of ``a`` against ``b``, and how it was computed.

    ``a`` and ``b`` give the runs of each stratum (not paired). One stratum: Mann-Whitney, exact
    where the smaller side has at most 8 runs and no two are tied. Several: van Elteren's test,
    which compares runs within a stratum only. Tied or stratified runs are dealt to the sides anew
    ``PERMUTATIONS`` times, or p is normal, from ``EXACT`` runs on. NaN where a side has no run, and where all
    runs of each stratum are equal. Sources: Mann & Whitney 1947, van Elteren 1960.
    """
    from scipy.stats import mannwhitneyu

    strata = [(x, y) for x, y in zip(a, b, strict=True) if len(x) and len(y)]
    if not strata:
        return float("nan"), "none (no runs)"
    if all(np.ptp(np.concatenate(one)) == 0 for one in strata):
        return float("nan"), NO_DIFFERENCE
    if len(strata) == 1:
        x, y = strata[0]
        tied = len(np.unique(np.concatenate([x, y]))) < len(x) + len(y)
        few = 8
        if not tied or min(len(x), len(y)) > few:
            how = "exact" if not tied and min(len(x), len(y)) <= few else "normal"
            return float(mannwhitneyu(x, y, method="auto").pvalue), f"Mann-Whitney ({how})"
        name = "Mann-Whitney"
    else:
        name = "van Elteren"
    p, how = _van_elteren(strata, generator)
    return p, f"{name} ({how})"


def _van_elteren(
    strata: Sequence[tuple[FloatArray, FloatArray]], generator: np.random.Generator
) -> tuple[float, str]:
    from scipy.stats import norm, rankdata

    few = sum(len(x) + len(y) for x, y in strata) <= EXACT
    observed = variance = 0.0
    drawn = np.zeros(PERMUTATIONS if few else 0)
    for x, y in strata:
        n, size = len(x), len(x) + len(y)
        ranks = rankdata(np.concatenate([x, y]))
        # centred, and weighted as van Elteren does: small strata count less
        scores = (ranks - ranks.mean()) / (size + 1)
        observed += scores[:n].sum()
        variance += n * (size - n) / (size * (size - 1)) * (scores**2).sum()
        batch = max(1, _DEALT // size)
        for first in range(0, len(drawn), batch):
            part = drawn[first : first + batch]
            orders = np.broadcast_to(scores, (len(part), size))
            part += generator.permuted(orders, axis=1)[:, :n].sum(axis=1)
    if not few:
        return float(2 * norm.sf(abs(observed) / np.sqrt(variance))), "normal"
    # sums of the same numbers in another order may differ in the last digits
    extreme = np.count_nonzero(np.abs(drawn) >= abs(observed) - 1e-9)
    return float((1 + extreme) / (1 + PERMUTATIONS)), "permutations"


def two_way(a: UnpairedRuns, b: UnpairedRuns) -> tuple[float, str]:
    """Return the two-sided p of two levels that share seeds but no setting, and how it was computed.

    Both a row (a setting, drawn at random) and a seed can be good or bad for a level in all its runs. So the
    difference of the mean ranks is measured by the variance of rows added to that of seeds, with as few degrees
    of freedom as the fewer of them have. That counts what is noise of single runs twice, so the
    test is careful. NaN for one seed, one row of a level, and where all runs are equal. Sources: Conover & Iman 1981, "Rank transformations";
    Cameron, Gelbach & Miller 2011, "Robust inference with multiway clustering".
    """
    from scipy.stats import rankdata, t

    assert a.seeds is not None and b.seeds is not None
    _, seeds = np.unique(np.concatenate([a.seeds, b.seeds]), return_inverse=True)
    count = len(np.unique(seeds))
    if count < 2:
        return float("nan"), ONE_SEED
    both = np.concatenate([a.values, b.values])
    if np.ptp(both) == 0:
        return float("nan"), NO_DIFFERENCE
    ranks = rankdata(both)
    parts, difference, of_rows = [], 0.0, 0.0
    for side, sign, own in ((a, 1, ranks[: len(a.values)]), (b, -1, ranks[len(a.values) :])):
        sizes = np.bincount(side.rows)
        if len(sizes) < 2:
            return float("nan"), ONE_ROW
        weights = sign / (len(sizes) * sizes[side.rows])
        mean = float(np.abs(weights) @ own)
        parts.append(weights * (own - mean))
        difference += sign * mean
        of_rows += float((np.bincount(side.rows, parts[-1]) ** 2).sum()) * len(sizes) / (len(sizes) - 1)
    of_seeds = float((np.bincount(seeds, np.concatenate(parts)) ** 2).sum()) * count / (count - 1)
    variance = of_rows + of_seeds
    if variance <= (ROUNDING * len(ranks)) ** 2:
        # each level gave one value, and all that is left is rounding
        return rank_sum([a.means], [b.means], np.random.default_rng(0))
    freedom = min(count, a.rows.max() + b.rows.max() + 1) - 1
    return float(2 * t.sf(abs(difference) / np.sqrt(variance), freedom)), "t of ranks, by rows and seeds"


def holm(p: Sequence[float] | FloatArray) -> FloatArray:
    """Return the p values corrected for how many there are; NaN stay NaN and are not counted.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none falls below the
    one before it. Source: Holm 1979.
    """
    values = np.asarray(p, dtype=float)
    corrected = np.full(len(values), np.nan)
    known: IndexVector = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(values[known], kind="stable")]
    raised = values[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(raised))
    return corrected
