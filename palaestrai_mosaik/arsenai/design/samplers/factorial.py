"""Full factorials: all combinations of levels, or some of those that constraints allow if there are too many to enumerate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import did_you_mean
from palaestrai_mosaik.types.arrays import FloatArray

from ..decode import decode, keep
from ..distributions import axis_numbers, grid, grid_size
from ..expressions import Expression
from ..model import Axis, DesignSpec
from .sampler import Fault, Option, Sample, Sampler, random_of, single_rows

Indices = npt.NDArray[np.int64]

#: Largest number of combinations of the constrained axes that are drawn or enumerated.
LOOKED_AT = 1_000_000
#: Number of combinations up to which they are enumerated, not drawn.
_FEW = 100_000
#: Drawing ends with this many allowed combinations, or four times the rows of the design.
_ENOUGH = 1000
#: number of combinations to decode at a time
_CHUNK = 1000


@dataclass(frozen=True)
class Candidates:
    """Combinations of levels that the constraints allow.

    Attributes:
        indices: (rows, axes) indices of levels, in ascending order, without duplicates.
        allowed: number of all allowed combinations, or None if not all were checked.
        looked_at: number of combinations that were checked, if not all were.
    """

    indices: Indices
    allowed: int | None
    looked_at: int = 0

    @property
    def whole(self) -> bool:
        """Whether these are all combinations that the constraints allow."""
        return self.allowed == len(self.indices)


def candidates(
    spec: DesignSpec, coordinates: Sequence[FloatArray], wanted: int, random: np.random.Generator
) -> Candidates:
    """Return combinations of levels that the constraints allow: all of them, if there are at most ``wanted``.

    Otherwise, ``wanted`` are drawn and duplicates dropped. If only few are allowed, and enumerating all would take more
    than `LOOKED_AT` combinations, that many are drawn and checked.

    Args:
        spec: the design.
        coordinates: (levels,) coordinates of each axis.
        wanted: largest number of combinations.
        random: the random generator.
    """
    sizes = [len(levels) for levels in coordinates]
    bound = _bound_axes(spec)
    free = [axis for axis in range(len(sizes)) if axis not in bound]
    part = replace(spec, axes=tuple(spec.axes[axis] for axis in bound))
    allowed, looked_at = _allowed(part, [coordinates[axis] for axis in bound], wanted, random)
    exact = looked_at == 0
    total = len(allowed) * math.prod(sizes[axis] for axis in free)
    if total <= wanted:
        crossed = np.indices((len(allowed), *(sizes[axis] for axis in free))).reshape(1 + len(free), total)
        chosen, columns = crossed[0], list(crossed[1:])
    else:
        chosen = _even(len(allowed), wanted, random)
        columns = [_even(sizes[axis], wanted, random) for axis in free]
    indices = np.empty((len(chosen), len(sizes)), dtype=np.int64)
    indices[:, bound] = allowed[chosen]
    for axis, column in zip(free, columns, strict=True):
        indices[:, axis] = column
    return Candidates(np.unique(indices, axis=0), total if exact else None, looked_at)


def _even(size: int, count: int, random: np.random.Generator) -> Indices:
    """Return ``count`` numbers below ``size`` in random order, equally often, +-1."""
    return random.permutation(np.resize(random.permutation(size), count))


def _bound_axes(spec: DesignSpec) -> list[int]:
    """Return the axes in constraints, and those that decide whether these are active."""
    axis_of = {factor.name: number for number, axis in enumerate(spec.axes) for factor in axis.factors}

    def axes(texts: Sequence[str]) -> set[int]:
        return {axis_of[name] for text in texts for name in Expression.parse(text, spec.factors).names}

    bound: set[int] = set()
    new = axes(spec.constraints)
    while new:
        bound |= new
        new = axes([f.when for axis in new for f in spec.axes[axis].factors if f.when is not None]) - bound
    return sorted(bound)


def _allowed(
    part: DesignSpec, coordinates: Sequence[FloatArray], count: int, random: np.random.Generator
) -> tuple[Indices, int]:
    """Return combinations that the constraints of ``part`` allow, and how many were checked; 0 means all of them."""
    sizes = [len(levels) for levels in coordinates]
    total = math.prod(sizes)
    if total > max(count, _FEW):
        rows = np.empty((0, len(sizes)), dtype=np.int64)
        looked_at, most = 0, LOOKED_AT if total > LOOKED_AT else 5 * count
        enough = max(_ENOUGH, 4 * (part.max_runs or 0))
        while len(rows) < enough and looked_at < most:
            drawn = np.stack([_even(size, count, random) for size in sizes], axis=1)
            kept = drawn[list(_kept(part, coordinates, drawn))]
            rows = np.unique(np.concatenate([rows, kept]), axis=0)
            looked_at += count
        if len(rows) >= enough or total > LOOKED_AT:
            return rows, looked_at
    everything = np.indices(sizes).reshape(len(sizes), total).T
    return everything[list(_kept(part, coordinates, everything))], 0


def _kept(part: DesignSpec, coordinates: Sequence[FloatArray], indices: Indices) -> Iterator[int]:
    for start in range(0, len(indices), _CHUNK):
        unit = points(coordinates, indices[start : start + _CHUNK])
        yield from (start + index for index in keep(part, decode(part, unit)))


def points(coordinates: Sequence[FloatArray], indices: Indices) -> FloatArray:
    """Return the points, (rows, axes), for ``indices`` into the coordinates of each axis."""
    columns = [levels[indices[:, number]] for number, levels in enumerate(coordinates)]
    return np.stack(columns, axis=1) if columns else np.empty((len(indices), 0))


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
