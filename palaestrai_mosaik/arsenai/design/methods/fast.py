"""Sobol indices by the extended Fourier amplitude sensitivity test (eFAST).

Source: Saltelli, Tarantola and Chan 1999, "A quantitative model-independent method for global
sensitivity analysis of model output", Technometrics 41. The implementation is SALib's.
"""

from __future__ import annotations

from math import floor

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray

from .method import (
    NEEDS_SMOOTH_FACTORS,
    Index,
    Indices,
    Method,
    MethodDisplay,
    Refused,
    Study,
    no_resamples,
    require,
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
