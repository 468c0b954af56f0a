"""Points with a small step along every axis, for derivative-based measures (DGSM).

Source: Sobol' and Kucherenko (2009), "Derivative based global sensitivity measures and their link
with global sensitivity indices"; by SALib.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..model import DesignSpec
from ..sample import Sample
from .option import Option, Sampler, problem, size_of


def draw(spec: DesignSpec) -> Sample:
    """Return blocks of D + 1 rows: a point of Sobol's sequence, and one step along each axis.

    A step is ``delta`` times the coordinate. Nothing is random; the blocks of a smaller n are the
    first ones.
    """
    from SALib.sample import finite_diff

    n, delta = size_of(spec), FINITE_DIFFERENCES.option(spec, "delta")
    unit = finite_diff.sample(problem(spec), n, delta=delta)
    block = np.repeat(np.arange(n, dtype=np.int64), len(spec.axes) + 1)
    return Sample(unit, block, {"n": n, "delta": delta})


def _delta(value: Any) -> str | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return None if number and 0 < value <= 0.5 else "a number above 0 and at most 0.5"


FINITE_DIFFERENCES: Sampler = Sampler(
    "finite_differences",
    "finite differences",
    draw,
    lambda spec: size_of(spec) * (len(spec.axes) + 1),
    unit="points",
    options=(Option("delta", 0.01, _delta, "length of a step, as a share of the coordinate"),),
    made_for="dgsm",
    methods=("dgsm",),
)
