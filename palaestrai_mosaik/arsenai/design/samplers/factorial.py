"""The full factorial design: every combination of levels.

Source: Montgomery, "Design and Analysis of Experiments", chapter 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import did_you_mean

from ..model import Axis, DesignSpec
from ..sample import Sample
from .candidates import candidates, points
from .grid import axis_numbers, grid, grid_size
from .option import Fault, Option, Sampler, random_of, single_rows

#: Largest number of rows.
LARGEST = 1_000_000
#: Number of candidates that ``max_runs`` chooses from, if a factorial has more combinations.
CANDIDATES = 20_000


def draw(spec: DesignSpec) -> Sample:
    """Return all combinations; the level of the last axis changes with every row.

    If ``max_runs`` is set and there are more combinations than `CANDIDATES` (or four times ``max_runs``), only this
    many candidates are drawn from those that the constraints allow. The levels of an axis without constraints are
    equally frequent among them, +-1.
    """
    coordinates = [grid(axis, count_of(spec, axis)) for axis in spec.axes]
    sizes = [len(levels) for levels in coordinates]
    total = math.prod(sizes)
    arguments: dict[str, Any] = {"levels": dict(zip(_names(spec), sizes, strict=True)), "combinations": total}
    most = None if spec.max_runs is None else max(CANDIDATES, 4 * spec.max_runs)
    if most is None or total <= most:
        return single_rows(points(coordinates, np.indices(sizes).reshape(len(sizes), total).T), arguments)
    chosen = candidates(spec, coordinates, most, random_of(spec, "candidates"))
    if not chosen.whole:
        arguments["candidates"] = len(chosen.indices)
    if chosen.allowed is not None:
        arguments["allowed"] = chosen.allowed
    else:
        arguments["looked_at"] = chosen.looked_at
    return single_rows(points(coordinates, chosen.indices), arguments)


def count_of(spec: DesignSpec, axis: Axis) -> int | None:
    """Return the option ``levels`` for ``axis``, or None if the design has none."""
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
    if all(
        isinstance(count, int) and not isinstance(count, bool) and 2 <= count <= LARGEST for count in counts
    ):
        return None
    return f"a whole number of at least 2 (at most {LARGEST:,}), or a mapping of factors to such numbers"


def _check(spec: DesignSpec) -> list[Fault]:
    problems: list[Fault] = []
    levels = spec.sampler.options.get("levels")
    names = [*_names(spec), *(factor.name for factor in spec.factors)]
    for name in levels if isinstance(levels, Mapping) else ():
        if name not in names:
            listed = ", ".join(dict.fromkeys(names))
            problems.append(
                (
                    ("sampler", "levels", name),
                    f"no factor is called {name!r}{did_you_mean(name, names)}; known: {listed}",
                )
            )
    problems += [(("sampler",), message) for axis in spec.axes if (message := _axis_fault(spec, axis))]
    if not problems and spec.max_runs is None and _rows(spec) > LARGEST:
        message = (
            f"the full factorial has {_rows(spec):,} rows, more than {LARGEST:,}; "
            "cap them by max_runs, or choose fractional_factorial or lhs"
        )
        problems.append((("sampler",), message))
    return problems


def _axis_fault(spec: DesignSpec, axis: Axis) -> str | None:
    """Return why the values of an axis cannot all be taken, or None."""
    if axis.levels is None and axis_numbers(axis) is None and count_of(spec, axis) is None:
        return (
            f"{axis.name} is continuous, so a factorial design must be told how many values of it to take: "
            f"sampler: {{name: factorial, levels: {{{axis.name}: 3}}}}, or another sampler (lhs, sobol)"
        )
    if grid_size(axis, count_of(spec, axis)) > LARGEST:
        return (
            f"{axis.name} has {grid_size(axis, None):,} values; tell how many of them to take: "
            f"sampler: {{name: factorial, levels: {{{axis.name}: 3}}}}"
        )
    return None


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
