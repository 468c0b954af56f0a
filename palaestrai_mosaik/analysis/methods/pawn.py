"""PAWN from any sample: how far the outcome's distribution function moves with a factor.

Source: Pianosi and Wagener 2018, "Distribution-based sensitivity analysis from a generic
input-output sample", Environmental Modelling & Software 108. The index is the median (and the
maximum) over slices of a factor of the Kolmogorov-Smirnov distance between the outcome's
distribution in the slice and in all of the sample.
"""

from __future__ import annotations

import numpy as np

from .study import FloatArray, Index, Indices, IntArray, Refused, Study, ranks

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
    distances are biased upwards.
    """
    count = len(study.y)
    slices = min(SLICES, count // FEWEST)
    if slices < 2:
        raise Refused(f"{count} rows are too few for PAWN, which needs {2 * FEWEST}")
    place = np.argsort(np.argsort(study.y, kind="stable"), kind="stable")
    ends = np.flatnonzero(np.append(np.diff(np.sort(study.y)) > 0, True))
    rows = []
    for name, column in zip(study.names, study.unit.T, strict=True):
        distances = _distances(ranks(column, study.seed), place, ends, slices)
        rows.append(Index("median", name, float(np.median(distances))))
        rows.append(Index("maximum", name, float(distances.max())))
    rng = np.random.Generator(np.random.PCG64(study.seed))
    by_chance = [
        _distances((rng.permutation(count) + 0.5) / count, place, ends, slices)
        for _ in range(_IRRELEVANT_FACTORS)
    ]
    for index, of in (("median", np.median), ("maximum", np.max)):
        level = np.quantile(of(by_chance, axis=1), study.confidence)
        rows.append(Index(index, IRRELEVANT, float(level)))
    note = f"PAWN: {study.confidence:.0%} of factors without influence would stay below the row {IRRELEVANT}"
    return Indices(sorted(rows, key=lambda row: ("median", "maximum").index(row.index)), (note,))


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
