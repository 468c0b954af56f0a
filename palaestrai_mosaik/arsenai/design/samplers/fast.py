"""Search curves for the extended Fourier amplitude sensitivity test (eFAST).

Source: Saltelli, Tarantola and Chan (1999), "A quantitative model-independent method for global
sensitivity analysis of model output". The implementation is SALib's.
"""

from __future__ import annotations

import numpy as np

from ..model import DesignSpec
from .sampler import Option, Sample, Sampler, problem, random_of, size_of, whole


def draw_curves(spec: DesignSpec) -> Sample:
    """Return one curve of n points per axis; the indices of an axis use only its own curve."""
    from SALib.sample import fast_sampler

    n, harmonics = size_of(spec), FAST.option(spec, "M")
    unit = np.clip(fast_sampler.sample(problem(spec), n, M=harmonics, seed=random_of(spec)), 0.0, 1.0)
    block = np.repeat(np.arange(len(spec.axes), dtype=np.int64), n)
    return Sample(unit, block, {"n": n, "M": harmonics})


def _curve_size(spec: DesignSpec, n: int) -> str | None:
    least = 4 * FAST.option(spec, "M") ** 2
    return None if n > least else f"n must be larger than 4 M**2 = {least}, found {n}"


FAST: Sampler = Sampler(
    "fast",
    "eFAST search curves",
    draw_curves,
    lambda spec: size_of(spec) * len(spec.axes),
    unit="points per factor",
    size_check=_curve_size,
    options=(Option("M", 4, whole(1), "harmonics that are summed"),),
    includes_bounds=lambda spec: True,
    made_for="fast",
    methods=("fast",),
)
