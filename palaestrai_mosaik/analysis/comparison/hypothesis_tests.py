"""Whether two levels differ: rank tests, exact where they can be, and Holm's correction.

Rank tests ask little of the distribution; returns of learning agents are skewed and have
outliers, which would rule a t test.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .aggregates import FloatArray, batches

#: draws of a permutation test
PERMUTATIONS = 9999
#: up to so many pairs or runs, normal approximations are not good enough
EXACT = 100


def signed_rank(differences: FloatArray) -> tuple[float, str]:
    """Return the two-sided p of Wilcoxon's signed-rank test, and how it was computed.

    Pairs without a difference say nothing and are left out; if none is left, p is 1 (NaN where
    there was no pair at all). p is exact for up to ``EXACT`` pairs, tied or not, and normal
    beyond. Source: Wilcoxon 1945.
    """
    from scipy.stats import rankdata, wilcoxon

    told = differences[differences != 0]
    if not len(told):
        return (1.0 if len(differences) else float("nan")), "none (no pair differs)"
    if len(told) > EXACT:
        return float(wilcoxon(told).pvalue), "Wilcoxon signed-rank (normal)"
    ranks = rankdata(np.abs(told))
    probability = rank_sum_distribution(ranks)
    place = round(2 * ranks[told > 0].sum())
    tails = probability[: place + 1].sum(), probability[place:].sum()
    return float(min(1.0, 2 * min(tails))), "Wilcoxon signed-rank (exact)"


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
    ``PERMUTATIONS`` times, or p is normal, from ``EXACT`` runs on. NaN where a side has no run. Sources: Mann & Whitney 1947, van Elteren 1960.
    """
    from scipy.stats import mannwhitneyu

    strata = [(x, y) for x, y in zip(a, b, strict=True) if len(x) and len(y)]
    if not strata:
        return float("nan"), "none (no runs)"
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
        for part in batches(drawn, size):
            orders = np.broadcast_to(scores, (len(part), size))
            part += generator.permuted(orders, axis=1)[:, :n].sum(axis=1)
    if not few:
        # where all runs are tied, nothing speaks for a difference
        return float(2 * norm.sf(abs(observed) / np.sqrt(variance))) if variance else 1.0, "normal"
    # sums of the same numbers in another order may differ in the last digits
    extreme = np.count_nonzero(np.abs(drawn) >= abs(observed) - 1e-9)
    return float((1 + extreme) / (1 + PERMUTATIONS)), "permutations"


def holm(p: Sequence[float] | FloatArray) -> FloatArray:
    """Return the p values corrected for how many there are; NaN stay NaN and are not counted.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none falls below the
    one before it. Source: Holm 1979.
    """
    values = np.asarray(p, dtype=float)
    corrected = np.full(len(values), np.nan)
    known: npt.NDArray[np.intp] = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(values[known], kind="stable")]
    raised = values[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(raised))
    return corrected
