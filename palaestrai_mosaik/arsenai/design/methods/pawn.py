"""PAWN from any sample: how far the outcome's distribution function moves with a factor.

Source: Pianosi and Wagener 2018, "Distribution-based sensitivity analysis from a generic
input-output sample", Environmental Modelling & Software 108. The index is the median (and the
maximum) over slices of a factor of the Kolmogorov-Smirnov distance between the outcome's
distribution in the slice and in all of the sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from .method import (
    NEEDS_INDEPENDENT_ROWS,
    Index,
    Indices,
    Method,
    MethodDisplay,
    Study,
    few,
    no_resamples,
    ranks,
    require,
)
from .significance import maxt_adjusted, p_rows, permuted

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
    ),
)
