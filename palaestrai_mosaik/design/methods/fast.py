"""Sobol indices by the extended Fourier amplitude sensitivity test (eFAST).

Source: Saltelli, Tarantola and Chan 1999, "A quantitative model-independent method for global
sensitivity analysis of model output", Technometrics 41. By SALib.
"""

from __future__ import annotations

from math import floor

from .method import NEEDS_SMOOTH_FACTORS, Index, Indices, Method, MethodDisplay, Refused, Study, no_resamples

#: harmonics that are summed where the sampler was not told
HARMONICS = 4
NO_INTERVAL = "eFAST gives no intervals: its points lie on a curve, so that they cannot be resampled"


def fast(study: Study) -> Indices:
    """Return S1 and ST of every axis, without intervals.

    (SALib's intervals are over pieces of the curve, and it warns of them itself.)
    """
    from SALib.analyze.fast import compute_orders

    size = len(study.names)
    if len(study.y) % size:
        raise Refused("the rows are no eFAST sample (sampler: fast)")
    points = len(study.y) // size
    harmonics = int(study.arguments.get("M", HARMONICS))
    frequency = floor((points - 1) / (2 * harmonics))
    rows: list[Index] = []
    for name, curve in zip(study.names, study.y.reshape(size, points), strict=True):
        if curve.min() == curve.max():
            raise Refused(f"the outcome is the same along the whole curve of {name}")
        first, total = compute_orders(curve, points, harmonics, frequency)
        rows += [Index("S1", name, float(first)), Index("ST", name, float(total))]
    return Indices(sorted(rows, key=lambda row: row.index), (NO_INTERVAL,))


FAST = Method(
    "fast",
    fast,
    indices=("S1", "ST"),
    samplers=("fast",),
    why="it needs the search curves of eFAST",
    factors="smooth",
    reason=NEEDS_SMOOTH_FACTORS,
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
