"""Combinations of levels to choose from, if a factorial has too many to enumerate.

Constraints refer to a few axes only. Combinations of these are enumerated, or drawn until enough are
allowed. The levels of all other axes are free, and equally frequent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types.arrays import FloatArray

from ..decode import decode, keep
from ..expressions import Expression
from ..model import DesignSpec

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
