"""Derivative-based global sensitivity measures from a sample of finite differences.

Source: Sobol' and Kucherenko 2009, "Derivative based global sensitivity measures and their
link with global sensitivity indices", Mathematics and Computers in Simulation 79: for uniform
coordinates of the unit cube, the mean squared derivative over pi^2 times the variance is an upper
bound of the total Sobol index. The estimates are SALib's; the intervals are from the spread between randomisations
of the sequence.
"""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray

from .jackknife import jackknife
from .method import Indices, Method, MethodDisplay, Refused, Study, no_resamples, require
from .significance import (
    about_noise,
    by_repetition,
    noise_of,
    noise_share,
    p_rows,
    randomization_test,
)

# variances below this share of the mean square are rounding errors
_ROUNDING = 1e-12
# two points are so close that noise hides every effect, with repetitions, too
_REMEDY = "a larger delta would show effects that exceed the noise"


def dgsm(study: Study) -> Indices:
    """Compute ``dgsm``, the bound of ST, and ``vi``, the mean squared derivative, of every axis.

    Intervals are Student's t intervals, from the spread between randomisations of the sequence; they end at 0. The
    variance is that of the base points. With repetitions, the noise in the mean squared derivative is subtracted.

    Raises:
        Refused: the rows are no sample of finite differences with two base points, or the outcome is constant at the
            base points.
    """
    require(_lacking_points(study))
    size = len(study.names)
    x, y = study.unit.reshape(-1, size + 1, size), study.y.reshape(-1, size + 1)
    base = y[:, 0] - y[:, 0].mean()
    if np.ptp(base) == 0:
        raise Refused("the outcome is the same at all base points: there is no variance to relate slopes to")
    steps = np.diagonal(x[:, 1:] - x[:, :1], axis1=1, axis2=2)
    slopes = (y[:, 1:] - y[:, :1]) / steps
    runs = by_repetition(study)
    runs = runs.reshape(len(y), size + 1, runs.shape[1])
    repeated = runs[:, 1:] - runs[:, :1]

    def indices(means: FloatArray) -> FloatArray:
        variance = means[:, [1]] - means[:, [0]] ** 2
        variance[variance <= _ROUNDING * means[:, [1]]] = np.nan
        return np.concatenate([means[:, 2:] / (np.pi**2 * variance), means[:, 2:]], axis=1)

    estimates = jackknife(
        study, np.column_stack([base, base**2, slopes**2 - noise_of(repeated) / steps**2]), indices
    )
    rows = estimates.never_negative("dgsm", study.names, 0, study.confidence)
    rows += estimates.never_negative("vi", study.names, size, study.confidence)
    number = study.executed.reshape(-1, size + 1)
    pairs = np.stack(np.broadcast_arrays(number[:, :1], number[:, 1:]), axis=-1)
    rows += p_rows(study.names, randomization_test(repeated, study, pairs, 1 / steps))
    return Indices(rows, (*estimates.notes, about_noise(noise_share(study), study, "dgsm and vi", _REMEDY)))


def _lacking_points(study: Study) -> str | None:
    size = len(study.names) + 1
    if len(study.y) % size:
        return "the rows are no sample of finite differences (sampler: finite_differences)"
    if len(study.y) < 2 * size:
        return "of one base point there is no variance to relate slopes to: DGSM needs 2"
    return None


DGSM = Method(
    "dgsm",
    dgsm,
    indices=("dgsm", "vi"),
    samplers=("finite_differences",),
    why="it needs small steps from every point",
    factors="float",
    reason="there is no derivative by levels or whole numbers",
    needs=_lacking_points,
    drops="block",
    resamples=no_resamples,
    display=MethodDisplay(
        "Derivative-based measures (DGSM)",
        ("dgsm",),
        "dgsm",
        False,
        "An upper bound for ST from the mean square of the derivative: small values say that a factor does "
        "not matter, large ones do not say how much it does.",
        measure="upper bound of its share of the variance (DGSM)",
    ),
)
