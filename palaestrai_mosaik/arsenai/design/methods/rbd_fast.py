"""First-order Sobol indices from any sample of independent factors (RBD-FAST).

Sources: Tarantola, Gatelli and Mara 2006, "Random balance designs for the estimation of first
order global sensitivity indices", Reliability Engineering & System Safety 91; bias correction
of Tissot and Prieur 2012, ibid. 107. The estimator is SALib's.
"""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from .method import (
    NEEDS_INDEPENDENT_ROWS,
    NEEDS_SMOOTH_FACTORS,
    Indices,
    Method,
    MethodDisplay,
    Study,
    around,
    few,
    half_samples,
    normal_quantile,
    ranks,
    require,
    rows_of,
    worth,
)
from .significance import p_rows, permutation_test

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
