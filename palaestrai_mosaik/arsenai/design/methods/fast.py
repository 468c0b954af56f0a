"""Sobol' indices by Fourier amplitudes: eFAST, and RBD-FAST for any sample."""

from __future__ import annotations

from math import floor

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from .method import (
    NEEDS_INDEPENDENT_ROWS,
    NEEDS_SMOOTH_FACTORS,
    Index,
    Indices,
    Method,
    MethodDisplay,
    Refused,
    Study,
    around,
    few,
    half_samples,
    no_resamples,
    normal_quantile,
    ranks,
    require,
    rows_of,
    worth,
)
from .significance import about_noise, noise_row, noise_share, p_rows, permutation_test

#: number of harmonics to sum, if the sampler has no argument M
_DEFAULT_HARMONICS = 4
NO_INTERVAL = "eFAST gives no intervals: its points lie on a curve, so that they cannot be resampled"


def fast(study: Study) -> Indices:
    """Compute S1 and ST of every axis, without intervals.

    SALib's intervals come from pieces of the curve, and SALib itself warns about them. Noise has the same power at all
    frequencies; with repetitions, this power is subtracted.

    Raises:
        Refused: the rows are no eFAST sample, or the outcome is constant along a curve.
    """
    require(_lacking_curves(study))
    size = len(study.names)
    for name, curve in zip(study.names, study.y.reshape(size, -1), strict=True):
        if curve.min() == curve.max():
            raise Refused(f"the outcome is the same along the whole curve of {name}")
    points = len(study.y) // size
    harmonics = int(study.arguments.get("M", _DEFAULT_HARMONICS))
    noise, frequencies = noise_share(study), (points + 1) // 2 - 1
    first, total = _orders(study.y, size, harmonics)
    notes = (NO_INTERVAL, about_noise(noise, study, "total indices"))
    if noise > 0:
        first = first - noise * harmonics / frequencies
        total = total - noise * (1 - _frequency(points, harmonics) // 2 / frequencies)
    rows = [
        Index(index, name, float(value))
        for index, values in (("S1", first), ("ST", total))
        for name, value in zip(study.names, values, strict=True)
    ]
    rows += noise_row("ST", noise)
    rows += p_rows(study.names, permutation_test(study, lambda y: _orders(y, size, harmonics)[0]))
    return Indices(rows, notes)


def _orders(y: FloatArray, size: int, harmonics: int) -> tuple[FloatArray, FloatArray]:
    """Compute S1 and ST of each of the ``size`` axes."""
    from SALib.analyze.fast import compute_orders

    curves = y.reshape(size, -1)
    points = curves.shape[1]
    frequency = _frequency(points, harmonics)
    first, total = np.array([compute_orders(curve, points, harmonics, frequency) for curve in curves]).T
    return first, total


def _frequency(points: int, harmonics: int) -> int:
    return floor((points - 1) / (2 * harmonics))


def _lacking_curves(study: Study) -> str | None:
    return "the rows are no eFAST sample (sampler: fast)" if len(study.y) % len(study.names) else None


FAST = Method(
    "fast",
    fast,
    indices=("S1", "ST"),
    samplers=("fast",),
    why="it needs the search curves of eFAST",
    factors="smooth",
    reason=NEEDS_SMOOTH_FACTORS,
    needs=_lacking_curves,
    drops="nothing",
    resamples=no_resamples,
    display=MethodDisplay(
        "Extended Fourier amplitude test (eFAST)",
        ("S1", "ST"),
        "ST",
        True,
        "S1 is the share of the variance that a factor explains on its own, ST the share with all of its "
        "interactions.",
    ),
)


#: number of harmonics to sum, and fewest points that can separate half of them
_HARMONICS = 10
_FEWEST = 60
_MOST_RESAMPLES = 200


def rbd_fast(study: Study) -> Indices:
    """Compute S1 of every axis.

    Intervals are normal, from the standard deviation over random halves. SALib's bootstrap draws points twice, which
    looks like structure and makes intervals half as wide again as they should be. The halves are of executed runs,
    each with all rows that share it; the bias is corrected for the number of independent rows that these are worth.

    Raises:
        Refused: the rows are worth fewer than 60 independent ones.
    """
    require(_lacking_rows(study))
    columns = np.column_stack([ranks(column, study.seed) for column in study.unit.T])
    resamples = _resamples(study)
    run = study.executed
    first = _estimate(columns, study.y, run)
    drawn = half_samples(int(run.max()) + 1, resamples, study.seed)
    halves = []
    for done, half in enumerate((rows_of(run, runs) for runs in drawn), 1):
        halves.append(_estimate(columns[half], study.y[half], run[half]))
        study.progress(done, resamples)
    reach = normal_quantile(study.confidence) * np.std(halves, axis=0, ddof=1)
    rows = [around("S1", name, first[i], reach[i]) for i, name in enumerate(study.names)]
    rows += p_rows(study.names, permutation_test(study, lambda y: _estimate(columns, y, run)))
    return Indices(rows)


def _lacking_rows(study: Study) -> str | None:
    return few(study, _FEWEST, "RBD-FAST")


def _resamples(study: Study) -> int:
    return min(study.resamples, _MOST_RESAMPLES)


def _estimate(columns: FloatArray, y: FloatArray, run: IntArray) -> FloatArray:
    from SALib.analyze.rbd_fast import compute_first_order, permute_outputs, unskew_S1

    raw = [compute_first_order(permute_outputs(column, y), _HARMONICS) for column in columns.T]
    return np.array([unskew_S1(value, _HARMONICS, worth(run)) for value in raw])


RBD_FAST = Method(
    "rbd_fast",
    rbd_fast,
    indices=("S1",),
    samplers=("lhs", "random", "points"),
    why=NEEDS_INDEPENDENT_ROWS,
    factors="smooth",
    reason=NEEDS_SMOOTH_FACTORS,
    needs=_lacking_rows,
    shared_runs="sample",
    resamples=_resamples,
    display=MethodDisplay(
        "Random balance designs (RBD-FAST)",
        ("S1",),
        "S1",
        True,
        "S1 is the share of the variance that a factor explains on its own; interactions are not seen.",
    ),
)
