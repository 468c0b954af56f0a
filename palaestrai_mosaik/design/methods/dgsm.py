"""Derivative-based global sensitivity measures from a sample of finite differences.

Source: Sobol' and Kucherenko 2009, "Derivative based global sensitivity measures and their
link with global sensitivity indices", Mathematics and Computers in Simulation 79: for uniform
coordinates of the unit cube, the mean squared derivative over pi^2 times the variance is an upper
bound of the total Sobol index. By SALib.
"""

from __future__ import annotations

import numpy as np

from .method import (
    Index,
    Indices,
    Method,
    MethodDisplay,
    Refused,
    Study,
    above_zero,
    global_generator_untouched,
)


def dgsm(study: Study) -> Indices:
    """Return ``dgsm``, the bound of ST, and ``vi``, the mean squared derivative, of every axis.

    Intervals are normal, from the standard deviation of the mean squared derivative over
    bootstrapped points. The variance is that of the base points.
    """
    from SALib.analyze import dgsm as analyser

    size = len(study.names)
    if len(study.y) % (size + 1):
        raise Refused("the rows are no sample of finite differences (sampler: finite_differences)")
    base = study.y[:: size + 1]
    if len(base) < 2 or np.ptp(base) == 0:
        raise Refused("the outcome is the same at all base points: there is no variance to relate slopes to")
    with global_generator_untouched(study.seed):
        found = analyser.analyze(
            {**study.problem, "groups": None},
            study.unit,
            study.y,
            num_resamples=study.resamples,
            conf_level=study.confidence,
        )
    # SALib's half-width is that of the mean squared derivative, also where it stands beside dgsm
    scale = np.pi**2 * np.var(base)
    rows: list[Index] = []
    for i, name in enumerate(study.names):
        rows.append(above_zero("dgsm", name, found["dgsm"][i], found["dgsm_conf"][i] / scale))
        rows.append(above_zero("vi", name, found["vi"][i], found["dgsm_conf"][i]))
    return Indices(sorted(rows, key=lambda row: row.index))


DGSM = Method(
    "dgsm",
    dgsm,
    indices=("dgsm", "vi"),
    samplers=("finite_differences",),
    why="it needs small steps from every point",
    factors="float",
    reason="there is no derivative by levels or whole numbers",
    drops="block",
    display=MethodDisplay(
        "Derivative-based measures (DGSM)",
        ("dgsm",),
        "dgsm",
        False,
        "An upper bound for ST from the mean square of the derivative: small values say that a factor does "
        "not matter, large ones do not say how much it does.",
    ),
)
