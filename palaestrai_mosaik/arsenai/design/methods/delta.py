"""Methods independent of moments: the delta of densities, and PAWN of distribution functions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import numpy as np

from palaestrai_mosaik.core.progress import PartsProgress
from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from .method import (
    NEEDS_INDEPENDENT_ROWS,
    Index,
    Indices,
    Method,
    MethodDisplay,
    Study,
    above_zero,
    few,
    half_samples,
    no_resamples,
    normal_quantile,
    ranks,
    require,
    rows_of,
)
from .significance import maxt_adjusted, p_rows, permutation_test, permuted

#: number of slices of a factor, and fewest points in a slice
_SLICES, _ROWS_PER_SLICE = 10, 10
#: name of the row for a factor without any influence
IRRELEVANT = "(irrelevant)"


def pawn(study: Study) -> Indices:
    """Compute ``median`` and ``maximum`` of every axis.

    The distance between two samples is never 0, so an index must be compared with that of a factor without
    influence: outcomes are permuted over the executed runs, and the row :data:`IRRELEVANT` is the quantile (at the
    confidence) of the largest index of all factors. There are no intervals, because resampled distances are biased
    upwards.

    Raises:
        Refused: there are too few rows for two slices.
    """
    require(_lacking_slices(study))
    slices = min(_SLICES, len(study.y) // _ROWS_PER_SLICE)
    columns = [ranks(column, study.seed) for column in study.unit.T]
    by_factor = _by_factor(columns, study.y, slices)
    rows = []
    for name, distances in zip(study.names, by_factor, strict=True):
        rows.append(Index("median", name, float(np.median(distances))))
        rows.append(Index("maximum", name, float(distances.max())))
    by_chance = np.array([_by_factor(columns, y, slices) for y in permuted(study)])
    for index, of in (("median", np.median), ("maximum", np.max)):
        level = np.quantile(of(by_chance, axis=-1).max(axis=1), study.confidence, method="higher")
        rows.append(Index(index, IRRELEVANT, float(level)))
    rows.sort(key=lambda row: ("median", "maximum").index(row.index))
    rows += p_rows(study.names, maxt_adjusted(np.median(by_factor, axis=-1), np.median(by_chance, axis=-1)))
    note = (
        f"PAWN: if no factor had any influence, all of them would stay below the row {IRRELEVANT} in {study.confidence:.0%} of "
        "samples"
    )
    return Indices(rows, (note,))


def _lacking_slices(study: Study) -> str | None:
    return few(study, 2 * _ROWS_PER_SLICE, "PAWN")  # two slices


def _by_factor(columns: Sequence[FloatArray], y: FloatArray, slices: int) -> FloatArray:
    """Compute the distances of each factor in each slice, (factors, slices); ``columns`` are ranks in (0, 1)."""
    order = np.argsort(np.argsort(y, kind="stable"), kind="stable")
    ends = np.flatnonzero(np.append(np.diff(np.sort(y)) > 0, True))
    return np.array([_distances(column, order, ends, slices) for column in columns])


def _distances(column: FloatArray, order: IntArray, ends: IntArray, slices: int) -> FloatArray:
    """Compute the Kolmogorov-Smirnov distance in each slice of a factor, (slices,).

    Args:
        column: ranks of the factor, in (0, 1).
        order: rank of each row's outcome, from 0.
        ends: last rank of each distinct outcome, at which the distributions are compared.
        slices: number of slices.
    """
    count = len(column)
    inside = np.zeros((slices, count))
    inside[np.minimum((column * slices).astype(int), slices - 1), order] = 1.0
    sliced = np.cumsum(inside, axis=1)
    overall = np.arange(1, count + 1) / count
    return np.asarray(np.abs(sliced / sliced[:, -1:] - overall)[:, ends].max(axis=1))


PAWN = Method(
    "pawn",
    pawn,
    indices=("median", "maximum"),
    samplers=("lhs", "random", "points", "sobol"),
    why=NEEDS_INDEPENDENT_ROWS,
    needs=_lacking_slices,
    shared_runs="sample",
    resamples=no_resamples,
    display=MethodDisplay(
        "PAWN",
        ("median",),
        "median",
        False,
        "The median of the Kolmogorov-Smirnov distances between the outcome's distribution and that where "
        "the factor is fixed: 0 no effect, at most 1. (irrelevant) is what factors without any effect "
        "would seldom exceed in a sample of this size.",
        measure="median Kolmogorov-Smirnov distance between the distributions of all rows and of those with the factor fixed",
        scale="0 (no effect) to 1",
    ),
)


_FEWEST = 40
_ENOUGH_CLASSES = 8
#: points of the outcome at which densities are compared
_GRID = 100
#: kernel densities are slow, so the points of all resamples together are limited
_MOST_POINTS, _LEAST_RESAMPLES, _MOST_RESAMPLES = 200_000, 20, 100
#: number of permutations, enough to distinguish p = 0.05 from p = 0.03
_PERMUTATIONS = 39

#: Delta misleads with fewer rows. Measured on the Ishigami function with 128 rows: its second factor, the most
#: important one, has 0.005 [-0.05, 0.06].
_DEFAULT_ROWS = 2000


def delta(study: Study) -> Indices:
    """Compute delta of every axis: 0 if the outcome does not depend on it, at most 1.

    The bias is corrected by a bootstrap; intervals are normal, from the standard deviation
    over random halves. Both draw executed runs, each with all rows that share it.

    Raises:
        Refused: the rows are worth fewer than 40 independent ones.
    """
    count = len(study.y)
    require(_lacking_rows(study))
    columns = np.column_stack([ranks(column, study.seed) for column in study.unit.T])
    resamples = _resamples(study)
    counted = PartsProgress(study.progress, 2 * resamples + 1 + _PERMUTATIONS)
    rng = np.random.Generator(np.random.PCG64(study.seed))
    estimates = _estimate(columns, study.y)
    run = study.executed
    executed = int(run.max()) + 1

    def resampled(draws: Iterable[IntArray]) -> list[FloatArray]:
        resampled_estimates = []
        for drawn in draws:
            rows = rows_of(run, drawn)
            resampled_estimates.append(_estimate(columns[rows], study.y[rows]))
            counted.end()
        return resampled_estimates

    boots = resampled(rng.integers(executed, size=executed) for _ in range(resamples))
    values = 2 * estimates - np.mean(boots, axis=0)
    halves = resampled(half_samples(executed, resamples, study.seed))
    reach = normal_quantile(study.confidence) * np.std(halves, axis=0, ddof=1)
    rows = [above_zero("delta", name, values[i], reach[i]) for i, name in enumerate(study.names)]

    def statistic(y: FloatArray) -> FloatArray:
        counted.end()
        return _estimate(columns, y)

    rows += p_rows(study.names, permutation_test(study, statistic, _PERMUTATIONS))
    return Indices(rows, (*_few_classes(count), *_constant_classes(columns, study.y)))


def _lacking_rows(study: Study) -> str | None:
    return few(study, _FEWEST, "DELTA")


def _resamples(study: Study) -> int:
    """Return the number of bootstrap resamples, which is also the number of halves."""
    return min(study.resamples, _MOST_RESAMPLES, max(_LEAST_RESAMPLES, _MOST_POINTS // max(len(study.y), 1)))


def classes(count: int) -> int:
    """Return the number of classes of equal size that a factor is cut into, as in SALib.

    Args:
        count: number of rows.
    """
    exponent = 2 / (7 + np.tanh((1500 - count) / 500))
    return int(np.round(min(int(np.ceil(count**exponent)), 48)))


def _estimate(columns: FloatArray, y: FloatArray) -> FloatArray:
    from SALib.analyze.delta import calc_delta

    edges = np.linspace(0, len(y), classes(len(y)) + 1)
    grid = np.linspace(y.min(), y.max(), _GRID)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about classes of equal outcomes: see _constant_classes
        return np.array([calc_delta(y, grid, column, edges) for column in columns.T])


def _few_classes(count: int) -> tuple[str, ...]:
    number = classes(count)
    if number >= _ENOUGH_CLASSES:
        return ()
    return (
        f"DELTA cuts factors into {number} classes for {count} rows: variation within a class is not detected",
    )


def _constant_classes(columns: FloatArray, y: FloatArray) -> tuple[str, ...]:
    parts = np.minimum((columns * classes(len(y))).astype(int), classes(len(y)) - 1)
    constant = sum(np.ptp(y[part == number]) == 0 for part in parts.T for number in range(classes(len(y))))
    if not constant:
        return ()
    return (
        f"DELTA leaves out {constant} of {parts.shape[1] * classes(len(y))} classes in which the outcome is "
        "the same in all runs, and is too low by what they would add",
    )


DELTA = Method(
    "delta",
    delta,
    indices=("delta",),
    samplers=("lhs", "random", "points", "sobol"),
    why=NEEDS_INDEPENDENT_ROWS,
    default_rows=_DEFAULT_ROWS,
    needs=_lacking_rows,
    shared_runs="sample",
    resamples=lambda study: 2 * _resamples(study) + 1 + _PERMUTATIONS,
    display=MethodDisplay(
        "Moment-independent importance (DELTA)",
        ("delta",),
        "delta",
        False,
        "delta says how far the whole distribution of the outcome moves when a factor is fixed: 0 not at "
        "all, at most 1. Small samples give small values to factors without any effect, too.",
        measure="shift of the density between all rows and those with the factor fixed (delta)",
        scale="0 (no effect) to 1",
    ),
)
