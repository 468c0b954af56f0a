"""Tests of the effects of factors against noise, and the share of noise in the variance.

An index of pure noise is not 0: a total Sobol index is 1 then. So each method computes ``p_adjusted`` of each factor: the
probability of an effect as large as this in noise, adjusted for the number of factors. If the outcome is pure noise, the
smallest ``p_adjusted`` is below 0.05 in 5 % of the studies.

Methods that move one factor at a time use a randomization test. If the factor has no effect, the outcomes of the two rows
are exchangeable, so the sign of their difference is random, whatever other factors do and however the noise is distributed
(Fisher 1935, "The Design of Experiments", section 21). With repetitions, the statistic is the sum of the products of the
differences of two repetitions. Its mean is 0 in noise, and otherwise proportional to the total variance of the factor: noise
and interactions are distinguished. Without repetitions, two tests share the level equally: one of the mean difference, which is
an effect of the factor alone; and one of the mean square. Noise is the same in all differences, so if there is nothing but
noise, it does not matter which difference of a block belongs to which factor.

Other methods use a permutation test: the outcomes are permuted over the runs, and the largest statistic of all factors counts
(Westfall and Young 1993, "Resampling-Based Multiple Testing", maxT). p values are computed as by Phipson and Smyth 2010,
"Permutation p-values should never be zero".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray, IndexVector, IntArray

from ..remark import INSEPARABLE, Remark
from .method import Index, Study

#: name of the index of p values, and name of the row for the share of noise
P_ADJUSTED, NOISE = "p_adjusted", "(noise)"
#: how the note begins that shares contain noise
_FLIPS, _DEALS, _PERMUTATIONS = 1999, 999, 199
# largest number of values in memory at once; relative rounding errors of sums
_HELD, _ROUNDING = 1_000_000, 1e-9


def holm(p: Sequence[float] | FloatArray) -> FloatArray:
    """Adjust p values by Holm's method; NaN stay NaN and do not count.

    The smallest of m values is multiplied by m, the next one by m - 1, and so on, and they never decrease.
    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    values = np.asarray(p, dtype=float)
    corrected = np.full(len(values), np.nan)
    valid: IndexVector = np.flatnonzero(~np.isnan(values))
    order = valid[np.argsort(values[valid], kind="stable")]
    raised = values[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(raised))
    return corrected


def p_rows(names: Sequence[str], p: FloatArray) -> Iterator[Index]:
    """Yield an index for each adjusted p value, (factors,), that is not NaN."""
    yield from (
        Index(P_ADJUSTED, name, float(value))
        for name, value in zip(names, p, strict=True)
        if not np.isnan(value)
    )


def by_repetition(study: Study) -> FloatArray:
    """Return the outcome of each run, (rows, repetitions), NaN if it is missing."""
    runs = study.repetitions
    if runs is None:
        return study.y[:, None]
    y = np.full((len(study.y), int(runs.number.max()) + 1), np.nan)
    y[runs.row, runs.number] = runs.y
    return y


def noise_share(study: Study) -> float:
    """Compute the share of noise in the variance of the means of the rows; NaN without repetitions.

    With common seeds, the main effect of a seed is not noise: it is the same in all rows.
    """
    y = by_repetition(study)
    present = ~np.isnan(y)
    count = present.sum(axis=1)
    freedom = int((count - 1).sum())
    common = study.repetitions is not None and study.repetitions.common
    if common:
        y = y - np.nanmean(y, axis=0)
        freedom -= y.shape[1] - 1
    if freedom < 1:
        return float("nan")
    within = y - np.nanmean(y, axis=1, keepdims=True)
    noise = float(np.nansum(within**2)) / freedom * float(np.mean(1 / count))
    return min(1.0, noise / float(np.var(study.y)))


def noise_of(differences: FloatArray) -> FloatArray:
    """Compute the variance of means over the last axis that is due to noise, from the spread of the repetitions.

    The square of such a mean is too large by this, on average. 0 if fewer than two repetitions are present.
    """
    present = ~np.isnan(differences)
    count = present.sum(axis=-1)
    mean = np.where(present, differences, 0.0).sum(axis=-1) / np.maximum(count, 1)
    squares = np.where(present, (differences - mean[..., None]) ** 2, 0.0).sum(axis=-1)
    return np.asarray(squares / np.maximum(count - 1, 1) / np.maximum(count, 1))


def noise_row(index: str, value: float) -> list[Index]:
    """Return the row of an index for noise; empty if the value is NaN."""
    return [] if np.isnan(value) else [Index(index, NOISE, value)]


def about_noise(
    share: float, study: Study, indices: str, remedy: str = "repetitions: 2 would separate them"
) -> str:
    """Build a note about noise.

    Args:
        share: the share of noise, NaN without repetitions.
        study: the study.
        indices: names of the indices that contain noise, or that it is subtracted from.
        remedy: the advice if rows were run once.
    """
    if np.isnan(share):
        return Remark(
            INSEPARABLE,
            f"each row was run once, so that noise and interactions cannot be told apart: {indices} contain both ({remedy})",
        )
    return (
        f"noise explains {share:.0%} of the variance of rows, which are means of {by_repetition(study).shape[1]} repetitions; "
        f"it is subtracted from {indices}"
    )


def randomization_test(
    differences: FloatArray, study: Study, runs: IntArray, weight: FloatArray | None = None
) -> FloatArray:
    """Compute adjusted p values, (factors,), from differences between rows in which one factor differs.

    Args:
        differences: (blocks, factors, repetitions) of the outcome; NaN if one of the two runs is missing.
        study: the study, for its seed and confidence.
        runs: (blocks, factors, rows) numbers of the executed runs: first the two of the difference, then those of the
            weight. Blocks that share a run have the same noise, so only the first of them is used.
        weight: (blocks, factors) factors of the differences without repetitions. Swapping the two rows may change
            their signs only.
    """
    blocks, factors, repetitions = differences.shape
    values = np.nan_to_num(differences)
    if repetitions > 1:
        return _flip_signs(values, study, runs)
    alone = _flip_signs(values if weight is None else values * weight[:, :, None], study, runs)
    # both rows of an inactive factor are one run
    usable = (runs[:, :, 0] != runs[:, :, 1]).all(axis=1)
    if study.run is not None:
        usable[_repeated(runs[:, :, :2].reshape(blocks, -1))] = False
    squares = values[usable, :, 0] ** 2
    if factors == 1 or not len(squares):
        return alone
    rng = np.random.Generator(np.random.PCG64(study.seed + 1))
    dealt = np.array([rng.permuted(squares, axis=1).sum(axis=0) for _ in range(_DEALS)])
    observed = squares.sum(axis=0)
    return np.asarray(
        np.minimum(1.0, 2 * np.minimum(alone, maxt_adjusted(observed * (1 - _ROUNDING), dealt)))
    )


def _flip_signs(values: FloatArray, study: Study, runs: IntArray) -> FloatArray:
    """Compute p values, (factors,), by random signs of the differences, adjusted by Holm's method.

    Args:
        values: (blocks, factors, repetitions) the differences.
        study: the study, for its seed and confidence.
        runs: (blocks, factors, rows) numbers of the executed runs.
    """
    blocks, factors, repetitions = values.shape
    draws = max(_FLIPS, int(4 * factors / (1 - study.confidence)))
    rng = np.random.Generator(np.random.PCG64(study.seed))
    if study.run is not None:
        values = values.copy()
        for factor in range(factors):
            values[_repeated(runs[:, factor]), factor] = 0.0
    observed, reached = _sums(values, np.ones((1, blocks, repetitions))), np.zeros(factors)
    size = max(1, _HELD // values.size)
    for start in range(0, draws, size):
        signs = rng.choice((-1.0, 1.0), size=(min(size, draws - start), blocks, repetitions))
        reached += (_sums(values, signs) >= observed - _ROUNDING * np.abs(observed)).sum(axis=0)
    return holm((1 + reached) / (1 + draws))


def _sums(values: FloatArray, signs: FloatArray) -> FloatArray:
    """Compute the statistics, (draws, factors), for ``signs``, (draws, blocks, repetitions)."""
    if values.shape[2] == 1:
        return np.abs(signs[..., 0] @ values[..., 0])
    # twice the sum of the products of two repetitions
    together = np.einsum("dbr,bfr->dbf", signs, values)
    return np.asarray((together**2).sum(axis=1) - (values**2).sum(axis=(0, 2)))


def _repeated(runs: IntArray) -> list[int]:
    """Return the indices of blocks that share a run with an earlier block; ``runs`` has the shape (blocks, rows)."""
    seen: set[int] = set()
    repeated = []
    for block, numbers in enumerate(runs.tolist()):
        if seen.intersection(numbers):
            repeated.append(block)
        else:
            seen.update(numbers)
    return repeated


def permutation_test(
    study: Study, statistic: Callable[[FloatArray], FloatArray], draws: int = _PERMUTATIONS
) -> FloatArray:
    """Compute adjusted p values, (factors,), by permutations of the outcomes of the executed runs.

    Args:
        study: the study.
        statistic: computes a statistic of each factor, (factors,), from outcomes of all rows, (rows,); large values
            are evidence of an effect.
        draws: the number of permutations.
    """
    return maxt_adjusted(statistic(study.y), np.array([statistic(y) for y in permuted(study, draws)]))


def maxt_adjusted(statistics: FloatArray, by_chance: FloatArray) -> FloatArray:
    """Compute p values, (factors,), adjusted by the largest statistic of each permutation.

    Args:
        statistics: (factors,) the statistics of the study.
        by_chance: (permutations, factors) those of permuted outcomes.
    """
    largest = by_chance.max(axis=1)[:, None]
    return np.asarray((1 + (largest >= statistics).sum(axis=0)) / (1 + len(largest)))


def permuted(study: Study, draws: int = _PERMUTATIONS) -> Iterator[FloatArray]:
    """Yield outcomes of all rows, (rows,), permuted over the executed runs."""
    rng = np.random.Generator(np.random.PCG64(study.seed))
    run = study.executed
    outcomes = study.y[np.unique(run, return_index=True)[1]]
    for _ in range(draws):
        yield rng.permutation(outcomes)[run]
