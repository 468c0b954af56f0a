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
    Refused,
    Study,
    few,
    no_resamples,
    ranks,
)

#: slices of a factor, fewest points in one
SLICES, FEWEST = 10, 10
#: name of the factor that stands for one without any influence
IRRELEVANT = "(irrelevant)"
_IRRELEVANT_FACTORS = 200


def pawn(study: Study) -> Indices:
    """Return ``median`` and ``maximum`` of every axis.

    The distance between two samples is never 0, so an index has no sense without what a
    factor of no influence would have: the row of the factor :data:`IRRELEVANT` is the quantile
    (at the confidence) over factors drawn at random. There are no intervals: resampled
    distances are biased upwards. Where rows share executed runs, outcomes are dealt at random to
    these runs instead, and the row is the highest quantile of all factors.
    """
    count = len(study.y)
    slices = min(SLICES, count // FEWEST)
    if slices < 2:
        raise Refused(f"{count} rows are too few for PAWN, which needs {2 * FEWEST}")
    few(study, 2 * FEWEST, "PAWN")
    columns = [ranks(column, study.seed) for column in study.unit.T]
    found = _by_factor(columns, study.y, slices)
    rows = []
    for name, distances in zip(study.names, found, strict=True):
        rows.append(Index("median", name, float(np.median(distances))))
        rows.append(Index("maximum", name, float(distances.max())))
    by_chance = _by_chance(study, columns, slices)
    for index, of in (("median", np.median), ("maximum", np.max)):
        level = np.quantile(of(by_chance, axis=-1), study.confidence, axis=0).max()
        rows.append(Index(index, IRRELEVANT, float(level)))
    note = f"PAWN: {study.confidence:.0%} of factors without influence would stay below the row {IRRELEVANT}"
    return Indices(sorted(rows, key=lambda row: ("median", "maximum").index(row.index)), (note,))


def _by_chance(study: Study, columns: Sequence[FloatArray], slices: int) -> FloatArray:
    """Return distances that mean nothing: (draws, factors, slices)."""
    rng = np.random.Generator(np.random.PCG64(study.seed))
    count, run = len(study.y), study.run
    if run is None:
        drawn = ([(rng.permutation(count) + 0.5) / count] for _ in range(_IRRELEVANT_FACTORS))
        return np.array([_by_factor(draw, study.y, slices) for draw in drawn])
    outcomes = study.y[np.unique(run, return_index=True)[1]]
    dealt = (rng.permutation(outcomes)[run] for _ in range(_IRRELEVANT_FACTORS))
    return np.array([_by_factor(columns, y, slices) for y in dealt])


def _by_factor(columns: Sequence[FloatArray], y: FloatArray, slices: int) -> FloatArray:
    """Return the distances of each factor in each slice, (factors, slices); ``columns``: ranks in (0, 1)."""
    place = np.argsort(np.argsort(y, kind="stable"), kind="stable")
    ends = np.flatnonzero(np.append(np.diff(np.sort(y)) > 0, True))
    return np.array([_distances(column, place, ends, slices) for column in columns])


def _distances(column: FloatArray, place: IntArray, ends: IntArray, slices: int) -> FloatArray:
    """Return the distance in each slice.

    ``column``: ranks in (0, 1); ``place``: the place of each row in the order of the outcome;
    ``ends``: the last place of each distinct outcome, where the distributions are compared.
    """
    count = len(column)
    inside = np.zeros((slices, count))
    inside[np.minimum((column * slices).astype(int), slices - 1), place] = 1.0
    sliced = np.cumsum(inside, axis=1)
    overall = np.arange(1, count + 1) / count
    return np.asarray(np.abs(sliced / sliced[:, -1:] - overall)[:, ends].max(axis=1))


PAWN = Method(
    "pawn",
    pawn,
    indices=("median", "maximum"),
    samplers=("lhs", "random", "points", "sobol"),
    why=NEEDS_INDEPENDENT_ROWS,
    shared_runs="sample",
    resamples=no_resamples,
    display=MethodDisplay(
        "PAWN",
        ("median",),
        "median",
        False,
        "The median of the Kolmogorov-Smirnov distances between the outcome's distribution and that where "
        "the factor is fixed: 0 no effect, at most 1. (irrelevant) is what a factor without any effect "
        "would seldom exceed in a sample of this size.",
    ),
)
