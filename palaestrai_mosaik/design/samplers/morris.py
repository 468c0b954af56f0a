"""Trajectories for elementary effects.

Source: Morris (1991), "Factorial sampling plans for preliminary computational experiments";
optimal trajectories: Campolongo, Cariboni and Saltelli (2007), by the search of Ruano et al.
(2012); by SALib.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..distributions import whole_numbers
from ..model import Axis, DesignSpec
from ..sample import Sample
from .option import Found, Option, Sampler, problem, random_of, size_of, units, whole


def draw(spec: DesignSpec) -> Sample:
    """Return trajectories of G + 1 rows (G: groups and single axes), each moving one at a time."""
    from SALib.sample import morris

    n, levels, optimal = size_of(spec), MORRIS.option(spec, "levels"), MORRIS.option(spec, "optimal")
    unit = morris.sample(
        problem(spec), n, num_levels=levels, optimal_trajectories=optimal, seed=random_of(spec)
    )
    # the ends are missed by rounding errors
    unit = np.clip(unit, 0.0, 1.0)
    count = len(unit) // (len(units(spec)) + 1)
    block = np.repeat(np.arange(count, dtype=np.int64), len(units(spec)) + 1)
    return Sample(unit, block, {"n": n, "levels": levels, "optimal": optimal}, tuple(_warnings(spec, levels)))


def _warnings(spec: DesignSpec, levels: int) -> Iterator[str]:
    inactive = [factor.name for factor in spec.factors if factor.when is not None]
    if inactive:
        yield (
            f"{', '.join(inactive)}: elementary effects are 0 wherever the factor is inactive, "
            "which mu, mu_star and sigma include"
        )
    for axis in spec.axes:
        count = _steps(axis)
        if count is not None and count <= levels and levels % count:
            yield (
                f"{axis.name} has {count} levels and Morris moves on {levels}, so some come more often than "
                f"others; levels: {count if count % 2 == 0 else 2 * count} hits all alike"
            )


def _steps(axis: Axis) -> int | None:
    if axis.levels is not None:
        return axis.levels
    return min((count for factor in axis.factors if (count := whole_numbers(factor))), default=None)


def _rows(spec: DesignSpec) -> int:
    return (MORRIS.option(spec, "optimal") or size_of(spec)) * (len(units(spec)) + 1)


def _levels(value: object) -> str | None:
    sound = whole(2)(value) is None and isinstance(value, int) and value % 2 == 0
    return None if sound else "an even number of at least 2 (or steps up and down are not equally likely)"


def _size(spec: DesignSpec, n: int) -> str | None:
    return None if n >= 2 else f"Morris' method needs at least 2 trajectories, found {n}"


def _check(spec: DesignSpec) -> list[Found]:
    optimal = MORRIS.option(spec, "optimal")
    if optimal is None or optimal < size_of(spec):
        return []
    message = (
        f"optimal: {optimal} trajectories are chosen of n, so n must be larger; found n: {size_of(spec)}"
    )
    return [(("sampler", "optimal"), message)]


def _knob(spec: DesignSpec) -> tuple[str, int]:
    optimal = MORRIS.option(spec, "optimal")
    return ("n", size_of(spec)) if optimal is None else ("optimal", optimal)


MORRIS: Sampler = Sampler(
    "morris",
    "Morris' trajectories",
    draw,
    _rows,
    unit="trajectories",
    size_check=_size,
    options=(
        Option("trajectories", None, whole(2), "another word for n"),
        Option("levels", 4, _levels, "values of every factor, an even number"),
        Option(
            "optimal", None, whole(2, none=True), "keep so many of the n trajectories, far from each other"
        ),
    ),
    groups=True,
    ends=lambda spec: True,
    serves="morris",
    alias="trajectories",
    knob=_knob,
    check=_check,
)
