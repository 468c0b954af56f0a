"""Samplers, one per file: they choose the points of a design.

:mod:`~palaestrai_mosaik.arsenai.design.registry` explains how to add one.
"""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.core.errors import ContractError

from ..model import DesignSpec
from ..registry import Registry
from ..subset import capped
from .adaptive import ADAPTIVE
from .factorial import FACTORIAL
from .fast import FAST
from .finite_differences import FINITE_DIFFERENCES
from .fractional_factorial import FRACTIONAL_FACTORIAL
from .lhs import LHS
from .morris import MORRIS
from .plackett_burman import PLACKETT_BURMAN
from .points import POINTS
from .random import RANDOM
from .sampler import (
    MAX_VALUES,
    Option,
    Sample,
    Sampler,
    flag,
    one_of,
    problem,
    random_of,
    single_rows,
    size_of,
    units,
    whole,
)
from .sobol import SOBOL

#: Every sampler by its name.
SAMPLERS: Registry[Sampler] = Registry(
    Sampler,
    "sampler",
    "palaestrai_mosaik.samplers",
    (
        FACTORIAL,
        FRACTIONAL_FACTORIAL,
        PLACKETT_BURMAN,
        LHS,
        SOBOL,
        MORRIS,
        FAST,
        FINITE_DIFFERENCES,
        RANDOM,
        ADAPTIVE,
        POINTS,
    ),
)


def sample(spec: DesignSpec) -> Sample:
    """Draw the points of the design, including those that constraints will reject.

    If ``max_runs`` is smaller than a factorial, a subset of the rows that the constraints allow is drawn (`subset`).
    The same design always yields the same points.

    Args:
        spec: a valid design: ``rules.check_sampler`` finds no problem.

    Raises:
        ContractError: the sampler returned an invalid sample.
    """
    sampler = SAMPLERS[spec.sampler.name]
    drawn = sampler.draw(spec)
    _check(spec, sampler, drawn)
    if spec.max_runs is None or (len(drawn.unit) <= spec.max_runs and sampler.rows(spec) <= spec.max_runs):
        return drawn
    return capped(spec, drawn, spec.max_runs)


def in_rounds(spec: DesignSpec) -> bool:
    """Return whether rows are added to the design after earlier ones have been executed."""
    return spec.search is None and SAMPLERS[spec.sampler.name].in_rounds(spec)


def _check(spec: DesignSpec, sampler: Sampler, drawn: Sample) -> None:
    """Raise :class:`ContractError` if the sampler, possibly a third-party one, broke its contract."""
    rows, unit, block = sampler.rows(spec), drawn.unit, drawn.block
    if spec.max_runs is not None:
        # a factorial that is too large is not drawn completely
        rows = min(rows, len(unit))
    wrong = None
    if unit.shape != (rows, len(spec.axes)):
        wrong = f"the shape {unit.shape}, not {(rows, len(spec.axes))}"
    elif not bool(((unit >= 0) & (unit <= 1)).all()):
        wrong = "coordinates outside of [0, 1]"
    elif block.shape != (rows,) or bool((np.diff(block) < 0).any()):
        wrong = f"blocks that are not {rows} whole numbers in ascending order"
    if wrong is not None:
        raise ContractError(f"the sample of the sampler {sampler.name!r} has {wrong}")


__all__ = [
    "MAX_VALUES",
    "SAMPLERS",
    "Option",
    "Sample",
    "Sampler",
    "flag",
    "in_rounds",
    "one_of",
    "problem",
    "random_of",
    "sample",
    "single_rows",
    "size_of",
    "units",
    "whole",
]
