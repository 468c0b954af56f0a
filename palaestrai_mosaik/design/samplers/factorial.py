"""The full factorial design: every combination of levels.

Source: Montgomery, "Design and Analysis of Experiments", chapter 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from palaestrai_mosaik.errors import did_you_mean

from ..model import Axis, DesignSpec
from ..sample import Sample
from .candidates import candidates, points
from .grid import axis_numbers, grid, grid_size
from .option import Found, Option, Sampler, random_of, single_rows

#: More rows than these are not made.
LARGEST = 1_000_000
#: Where ``max_runs`` leaves rows out of more combinations than this, it chooses among so many.
CANDIDATES = 20_000


def draw(spec: DesignSpec) -> Sample:
    """Return all combinations, those of the last axis varying fastest.

    With ``max_runs``, and more combinations than `CANDIDATES` (or four times ``max_runs``): those
    that the constraints allow, of more than that so many candidates, in which every level of an axis
    that is free of constraints is equally frequent, +-1.
    """
    coordinates = [grid(axis, count_of(spec, axis)) for axis in spec.axes]
    sizes = [len(levels) for levels in coordinates]
    total = math.prod(sizes)
    arguments: dict[str, Any] = {"levels": dict(zip(_names(spec), sizes, strict=True)), "combinations": total}
    wanted = None if spec.max_runs is None else max(CANDIDATES, 4 * spec.max_runs)
    if wanted is None or total <= wanted:
        return single_rows(points(coordinates, np.indices(sizes).reshape(len(sizes), total).T), arguments)
    found = candidates(spec, coordinates, wanted, random_of(spec, "candidates"))
    if not found.whole:
        arguments["candidates"] = len(found.indices)
    if found.allowed is not None:
        arguments["allowed"] = found.allowed
    else:
        arguments["looked_at"] = found.looked_at
    return single_rows(points(coordinates, found.indices), arguments)


def count_of(spec: DesignSpec, axis: Axis) -> int | None:
    """Return the option ``levels`` for ``axis``, ``None`` where it is not said."""
    levels = spec.sampler.options.get("levels")
    if isinstance(levels, Mapping):
        names = (axis.name, *(factor.name for factor in axis.factors))
        return next((levels[name] for name in names if name in levels), None)
    return levels


def _rows(spec: DesignSpec) -> int:
    return math.prod(grid_size(axis, count_of(spec, axis)) for axis in spec.axes)


def _names(spec: DesignSpec) -> list[str]:
    return [axis.name for axis in spec.axes]


def _levels(value: Any) -> str | None:
    counts = list(value.values()) if isinstance(value, Mapping) else [value]
    if all(isinstance(one, int) and not isinstance(one, bool) and 2 <= one <= LARGEST for one in counts):
        return None
    return f"a whole number of at least 2 (at most {LARGEST:,}), or a mapping of factors to such numbers"


def _check(spec: DesignSpec) -> list[Found]:
    found: list[Found] = []
    levels = spec.sampler.options.get("levels")
    names = [*_names(spec), *(factor.name for factor in spec.factors)]
    for name in levels if isinstance(levels, Mapping) else ():
        if name not in names:
            known = ", ".join(dict.fromkeys(names))
            found.append(
                (
                    ("sampler", "levels", name),
                    f"no factor is called {name!r}{did_you_mean(name, names)}; known: {known}",
                )
            )
    for axis in spec.axes:
        if axis.levels is None and axis_numbers(axis) is None and count_of(spec, axis) is None:
            message = (
                f"{axis.name} is continuous, so a factorial design must be told how many values of it to take: "
                f"sampler: {{name: factorial, levels: {{{axis.name}: 3}}}}, or another sampler (lhs, sobol)"
            )
            found.append((("sampler",), message))
        elif grid_size(axis, count_of(spec, axis)) > LARGEST:
            message = (
                f"{axis.name} has {grid_size(axis, None):,} values; tell how many of them to take: "
                f"sampler: {{name: factorial, levels: {{{axis.name}: 3}}}}"
            )
            found.append((("sampler",), message))
    if not found and spec.max_runs is None and _rows(spec) > LARGEST:
        message = (
            f"the full factorial has {_rows(spec):,} rows, more than {LARGEST:,}; "
            "cap them by max_runs, or choose fractional_factorial or lhs"
        )
        found.append((("sampler",), message))
    return found


FACTORIAL: Sampler = Sampler(
    "factorial",
    "full factorial",
    draw,
    _rows,
    size="none",
    options=(
        Option("levels", None, _levels, "values of a continuous factor: a number for all, or by factor"),
    ),
    allows_constraints=True,
    scales_with=lambda spec: None,
    includes_bounds=lambda spec: True,
    uses_weights=False,
    check=_check,
    methods=("anova",),
)
