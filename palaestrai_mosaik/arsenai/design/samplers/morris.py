"""Morris trajectories for elementary effects.

Source: Morris (1991), "Factorial sampling plans for preliminary computational experiments";
optimal trajectories: Campolongo, Cariboni and Saltelli (2007), by the search of Ruano et al.
(2012). The implementation is SALib's.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray

from ..distributions import levels as levels_at
from ..distributions import shares, whole_numbers
from ..model import Axis, DesignSpec
from .sampler import Fault, Option, Sample, Sampler, problem, random_of, size_of, units, whole

#: largest number of levels of the grid, and largest number of trajectories that ``optimal`` chooses from
_MOST_LEVELS, _MOST_COMPARED = 200, 2000


def draw(spec: DesignSpec) -> Sample:
    """Draw trajectories of G + 1 rows (G: groups and single axes); each step moves one of these."""
    from SALib.sample import morris

    n, levels, optimal = size_of(spec), MORRIS.option(spec, "levels"), MORRIS.option(spec, "optimal")
    unit = morris.sample(
        problem(spec), n, num_levels=levels, optimal_trajectories=optimal, seed=random_of(spec)
    )
    # rounding errors can exceed the ends
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
        if axis.levels is not None:
            yield from _of_levels(axis, levels)
            continue
        count = min((count for factor in axis.factors if (count := whole_numbers(factor))), default=None)
        if count is not None and count <= levels and levels % count:
            yield _uneven(axis, count, levels, count if count % 2 == 0 else 2 * count)


def _of_levels(axis: Axis, levels: int) -> Iterator[str]:
    """Yield a warning if the grid misses levels of an axis, or hits them in other shares than their weights."""
    edges = shares(axis)

    def hits(count: int) -> FloatArray:
        hit = levels_at(edges, np.linspace(0.0, 1.0, count))
        return np.bincount(hit, minlength=len(edges)) / count

    hit, weights = hits(levels), np.diff(edges, prepend=0.0)
    sizes = range(2, _MOST_LEVELS + 1, 2)
    if not hit.all():
        labels = next(factor.labels for factor in axis.factors if factor.kind == "levels")
        missed = ", ".join(label for label, share in zip(labels, hit, strict=True) if not share)
        enough = next((count for count in sizes if hits(count).all()), None)
        hint = "" if enough is None else f"; levels: {enough} hits all"
        yield f"{axis.name}: Morris moves on {levels} points of the range and never takes {missed}{hint}"
    elif not np.allclose(hit, weights, rtol=0.0, atol=1e-9):
        alike = next((size for size in sizes if np.allclose(hits(size), weights, rtol=0.0, atol=1e-9)), None)
        yield _uneven(axis, len(edges), levels, alike)


def _uneven(axis: Axis, count: int, levels: int, alike: int | None) -> str:
    hint = "" if alike is None else f"; levels: {alike} hits each by its share"
    return (
        f"{axis.name} has {count} levels and Morris moves on {levels}, so some come more often than their "
        f"share{hint}"
    )


def _rows(spec: DesignSpec) -> int:
    return (MORRIS.option(spec, "optimal") or size_of(spec)) * (len(units(spec)) + 1)


def _levels(value: object) -> str | None:
    sound = whole(2, _MOST_LEVELS)(value) is None and isinstance(value, int) and value % 2 == 0
    if sound:
        return None
    return f"an even number from 2 to {_MOST_LEVELS} (or steps up and down are not equally likely)"


def _size(spec: DesignSpec, n: int) -> str | None:
    return None if n >= 2 else f"Morris' method needs at least 2 trajectories, found {n}"


def _check(spec: DesignSpec) -> list[Fault]:
    optimal = MORRIS.option(spec, "optimal")
    if optimal is not None and size_of(spec) > _MOST_COMPARED:
        message = f"optimal compares all pairs of the n trajectories, so n is at most {_MOST_COMPARED:,}"
        return [(("sampler", "optimal"), message)]
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
    includes_bounds=lambda spec: True,
    made_for="morris",
    alias="trajectories",
    scales_with=_knob,
    check=_check,
    methods=("morris",),
)
