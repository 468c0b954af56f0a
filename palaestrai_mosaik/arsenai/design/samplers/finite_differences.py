"""Points with a small step along every axis, for derivative-based measures (DGSM).

Source: Sobol' and Kucherenko (2009), "Derivative based global sensitivity measures and their link
with global sensitivity indices". The steps are SALib's; the base points are those of
:func:`~.sobol.randomized`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..model import DesignSpec, is_number
from .sampler import Option, Sample, Sampler, size_of
from .sobol import randomized

#: smallest coordinate of a point, half of the finest step of the sequence, which has 30 bits
_LEAST = 2.0**-31


def draw_steps(spec: DesignSpec) -> Sample:
    """Draw blocks of D + 1 rows: a point of a Sobol' sequence, and one step along each axis.

    A step is ``delta`` times the coordinate, and ends at 1. A smaller n yields the first blocks.
    """
    n, delta, axes = size_of(spec), FINITE_DIFFERENCES.option(spec, "delta"), len(spec.axes)
    base, arguments = randomized(spec, n, axes)
    # a step from 0 has no length
    base = np.maximum(base, _LEAST)
    unit = np.repeat(base[:, None], axes + 1, axis=1)
    each = np.arange(axes)
    unit[:, each + 1, each] = np.minimum(base * (1 + delta), 1.0)
    block = np.repeat(np.arange(n, dtype=np.int64), axes + 1)
    return Sample(unit.reshape(-1, axes), block, {"n": n, "delta": delta, **arguments})


def _delta(value: Any) -> str | None:
    return None if is_number(value) and 0 < value <= 0.5 else "a number above 0 and at most 0.5"


FINITE_DIFFERENCES: Sampler = Sampler(
    "finite_differences",
    "finite differences",
    draw_steps,
    lambda spec: size_of(spec) * (len(spec.axes) + 1),
    unit="points",
    options=(Option("delta", 0.01, _delta, "length of a step, as a share of the coordinate"),),
    made_for="dgsm",
    methods=("dgsm",),
)
