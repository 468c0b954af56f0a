"""The full factorial design: every combination of levels.

Source: Montgomery, "Design and Analysis of Experiments", chapter 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import did_you_mean

from ..model import Axis, DesignSpec
from ..sample import FloatArray, Sample
from .grid import axis_numbers, grid
from .option import Found, Option, Sampler, random_of, single_rows

#: More rows than these are not made.
LARGEST = 1_000_000
#: Where ``max_runs`` leaves rows out of more combinations than this, it chooses among so many.
CANDIDATES = 20_000


def draw(spec: DesignSpec) -> Sample:
    """Return all combinations, those of the last axis varying fastest.

    With ``max_runs``, and more combinations than `CANDIDATES`, candidates: that many combinations
    (at least four times ``max_runs``) in which every level of an axis is equally frequent, +-1.
    """
    coordinates = [grid(axis, count_of(spec, axis)) for axis in spec.axes]
    sizes = [len(levels) for levels in coordinates]
    total = math.prod(sizes)
    arguments: dict[str, Any] = {"levels": dict(zip(_names(spec), sizes, strict=True)), "combinations": total}
    wanted = None if spec.max_runs is None else max(CANDIDATES, 4 * spec.max_runs)
    if wanted is None or total <= wanted:
        indices = np.indices(sizes).reshape(len(sizes), total).T
    else:
        indices = _candidates(sizes, wanted, random_of(spec, "candidates"))
        arguments["candidates"] = len(indices)
    return single_rows(_points(coordinates, indices), arguments)


def count_of(spec: DesignSpec, axis: Axis) -> int | None:
    """Return the option ``levels`` for ``axis``, ``None`` where it is not said."""
    levels = spec.sampler.options.get("levels")
    if isinstance(levels, Mapping):
        names = (axis.name, *(factor.name for factor in axis.factors))
        return next((levels[name] for name in names if name in levels), None)
    return levels


def _points(coordinates: list[FloatArray], indices: npt.NDArray[np.int64]) -> FloatArray:
    columns = [levels[indices[:, number]] for number, levels in enumerate(coordinates)]
    return np.stack(columns, axis=1) if columns else np.empty((len(indices), 0))


def _candidates(sizes: list[int], count: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    columns = [random.permutation(np.resize(random.permutation(size), count)) for size in sizes]
    return np.unique(np.stack(columns, axis=1), axis=0)


def _rows(spec: DesignSpec) -> int:
    return math.prod(len(grid(axis, count_of(spec, axis))) for axis in spec.axes)


def _names(spec: DesignSpec) -> list[str]:
    return [axis.name for axis in spec.axes]


def _levels(value: Any) -> str | None:
    counts = list(value.values()) if isinstance(value, Mapping) else [value]
    if all(isinstance(one, int) and not isinstance(one, bool) and one >= 2 for one in counts):
        return None
    return "a whole number of at least 2, or a mapping of factors to such numbers"


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
    rejects=True,
    knob=lambda spec: None,
    ends=lambda spec: True,
    check=_check,
)
