"""The ways to choose the points of a design, one a file."""

from __future__ import annotations

from collections.abc import Mapping

from ..model import DesignSpec
from ..sample import Sample
from ..subset import capped
from .factorial import FACTORIAL
from .fast import FAST
from .finite_differences import FINITE_DIFFERENCES
from .fractional_factorial import FRACTIONAL_FACTORIAL
from .lhs import LHS
from .morris import MORRIS
from .option import MOST_NUMBERS, Option, Sampler, problem, units
from .plackett_burman import PLACKETT_BURMAN
from .points import POINTS
from .random import RANDOM
from .sobol import SOBOL

#: Every sampler by its name.
SAMPLERS: Mapping[str, Sampler] = {
    sampler.name: sampler
    for sampler in (
        FACTORIAL,
        FRACTIONAL_FACTORIAL,
        PLACKETT_BURMAN,
        LHS,
        SOBOL,
        MORRIS,
        FAST,
        FINITE_DIFFERENCES,
        RANDOM,
        POINTS,
    )
}


def sample(spec: DesignSpec) -> Sample:
    """Return the points of the design; those that constraints reject are still among them.

    ``max_runs`` is kept: of a factorial with more rows it takes a subset of those that the
    constraints allow (`subset`). The design must be sound (``rules.check_sampler`` finds nothing).
    Same design, same points.
    """
    sampler = SAMPLERS[spec.sampler.name]
    drawn = sampler.draw(spec)
    if spec.max_runs is None or (len(drawn.unit) <= spec.max_runs and sampler.rows(spec) <= spec.max_runs):
        return drawn
    return capped(spec, drawn, spec.max_runs)


__all__ = ["MOST_NUMBERS", "SAMPLERS", "Option", "Sampler", "problem", "sample", "units"]
