"""Combinations of levels to choose from, where a factorial has too many to look at each.

Constraints look at a few axes only. Their combinations are enumerated, or drawn until enough are
allowed; the levels of all other axes are free, and each is equally frequent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..decode import decode, keep
from ..expressions import Expression
from ..model import DesignSpec
from ..sample import FloatArray

Indices = npt.NDArray[np.int64]

#: So many combinations of the axes that constraints look at are drawn at most, or enumerated.
LOOKED_AT = 1_000_000
#: Up to so many are enumerated at once, not drawn.
_FEW = 100_000
#: Drawing ends with so many that are allowed, or four times the rows of the design.
_ENOUGH = 1000
#: combinations that are decoded at a time
_CHUNK = 1000


@dataclass(frozen=True)
class Candidates:
    """Combinations that constraints allow, ``indices`` (rows, axes) of levels, rising, no row twice.

    ``allowed``: how many there are in all, ``None`` where not all were looked at; then ``looked_at``
    tells how many were.
    """

    indices: Indices
    allowed: int | None
    looked_at: int = 0

    @property
    def whole(self) -> bool:
        """Whether these are all that the constraints allow."""
        return self.allowed == len(self.indices)


def candidates(
    spec: DesignSpec, coordinates: Sequence[FloatArray], wanted: int, random: np.random.Generator
) -> Candidates:
    """Return all combinations of levels that the constraints allow if these are up to ``wanted``.

    Of more, ``wanted`` are drawn, less those that come twice. ``coordinates``: those of the levels
    of each axis. Where few are allowed, and more than `LOOKED_AT` would have to be enumerated, so many
    are looked at.
    """
    sizes = [len(levels) for levels in coordinates]
    bound = _bound_axes(spec)
    free = [axis for axis in range(len(sizes)) if axis not in bound]
    part = replace(spec, axes=tuple(spec.axes[axis] for axis in bound))
    found, looked_at = _allowed(part, [coordinates[axis] for axis in bound], wanted, random)
    exact = looked_at == 0
    total = len(found) * math.prod(sizes[axis] for axis in free)
    if total <= wanted:
        crossed = np.indices((len(found), *(sizes[axis] for axis in free))).reshape(1 + len(free), total)
        chosen, others = crossed[0], list(crossed[1:])
    else:
        chosen = _even(len(found), wanted, random)
        others = [_even(sizes[axis], wanted, random) for axis in free]
    indices = np.empty((len(chosen), len(sizes)), dtype=np.int64)
    indices[:, bound] = found[chosen]
    for axis, column in zip(free, others, strict=True):
        indices[:, axis] = column
    return Candidates(np.unique(indices, axis=0), total if exact else None, looked_at)


def _even(size: int, count: int, random: np.random.Generator) -> Indices:
    """Return ``count`` numbers below ``size`` in random order, each equally often, +-1."""
    return random.permutation(np.resize(random.permutation(size), count))


def _bound_axes(spec: DesignSpec) -> list[int]:
    """Return the axes that constraints look at, and those that decide what of these is active."""
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
    part: DesignSpec, coordinates: Sequence[FloatArray], wanted: int, random: np.random.Generator
) -> tuple[Indices, int]:
    """Return combinations that the constraints of ``part`` allow, and how many were looked at.

    0 stands for every one.
    """
    sizes = [len(levels) for levels in coordinates]
    total = math.prod(sizes)
    if total > max(wanted, _FEW):
        found = np.empty((0, len(sizes)), dtype=np.int64)
        looked_at, most = 0, LOOKED_AT if total > LOOKED_AT else 5 * wanted
        enough = max(_ENOUGH, 4 * (part.max_runs or 0))
        while len(found) < enough and looked_at < most:
            drawn = np.stack([_even(size, wanted, random) for size in sizes], axis=1)
            kept = drawn[list(_kept(part, coordinates, drawn))]
            found = np.unique(np.concatenate([found, kept]), axis=0)
            looked_at += wanted
        if len(found) >= enough or total > LOOKED_AT:
            return found, looked_at
    everything = np.indices(sizes).reshape(len(sizes), total).T
    return everything[list(_kept(part, coordinates, everything))], 0


def _kept(part: DesignSpec, coordinates: Sequence[FloatArray], indices: Indices) -> Iterator[int]:
    for start in range(0, len(indices), _CHUNK):
        unit = points(coordinates, indices[start : start + _CHUNK])
        yield from (start + index for index in keep(part, decode(part, unit)))


def points(coordinates: Sequence[FloatArray], indices: Indices) -> FloatArray:
    """Return the points (rows, axes) at the ``indices`` of the coordinates of each axis."""
    columns = [levels[indices[:, number]] for number, levels in enumerate(coordinates)]
    return np.stack(columns, axis=1) if columns else np.empty((len(indices), 0))
