"""Latin hypercubes: in each axis, every n-th part holds exactly one of the n points.

Source: McKay, Beckman and Conover (1979), "A comparison of three methods for selecting values of
input variables"; the criterion phi_p of maximin designs: Morris and Mitchell (1995),
"Exploratory designs for computational experiments".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray

from ..distributions import levels, shares
from ..model import DesignSpec
from .sampler import Fault, Option, Sample, Sampler, one_of, random_of, single_rows, size_of

#: number of exchanges of two points in maximin, and the exponent p of its criterion
_EXCHANGES, _POWER = 4000, 10
#: Largest number of points in an optimised hypercube, which keeps the distances of all pairs.
_LARGEST = 2000


def draw(spec: DesignSpec) -> Sample:
    """Draw n points. Another n yields other points, because a hypercube cannot grow."""
    from scipy.stats import qmc

    n, optimize = size_of(spec), LHS.option(spec, "optimize")
    criterion = "random-cd" if optimize == "discrepancy" else None
    sequence = qmc.LatinHypercube(len(spec.axes), optimization=criterion, seed=random_of(spec))
    unit = sequence.random(n)
    if optimize == "maximin":
        unit = spread(spec, unit, random_of(spec, "maximin"))
    warnings = ("constraints leave a part of the Latin hypercube: its margins are no longer even",)
    return single_rows(unit, {"n": n, "optimize": optimize}, *(warnings if spec.constraints else ()))


def spread(spec: DesignSpec, unit: FloatArray, random: np.random.Generator) -> FloatArray:
    """Spread the points of the hypercube ``unit`` by exchanges within its columns.

    Minimises the sum over all pairs of d**-p (d: Euclidean distance; two levels of a nominal axis
    have the distance 1). For large p, this maximises the smallest distance. After an exchange within a
    column, the points are still a hypercube.

    Args:
        spec: the design.
        unit: (rows, axes) a Latin hypercube.
        random: the random generator.
    """
    unit = unit.copy()
    seen = np.stack([_seen(spec, unit, number) for number in range(unit.shape[1])], axis=1)
    nominal = [axis.nominal for axis in spec.axes]

    def squares(column: int, row: int) -> FloatArray:
        difference = seen[:, column] - seen[row, column]
        square: FloatArray = (difference != 0).astype(float) if nominal[column] else difference**2
        return square

    distances = sum(
        (np.stack([squares(column, row) for row in range(len(unit))]) for column in range(unit.shape[1])),
        start=np.zeros((len(unit), len(unit))),
    )
    for _ in range(_EXCHANGES):
        column = int(random.integers(unit.shape[1]))
        pair = random.choice(len(unit), 2, replace=False)
        before = [squares(column, row) for row in pair]
        old = distances[pair].copy()
        seen[pair, column] = seen[pair[::-1], column]
        new = old + [squares(column, row) - was for row, was in zip(pair, before, strict=True)]
        if _crowding(new, pair) < _crowding(old, pair):
            unit[pair, column] = unit[pair[::-1], column]
            distances[pair], distances[:, pair] = new, new.T
        else:
            seen[pair, column] = seen[pair[::-1], column]
    return unit


def _seen(spec: DesignSpec, unit: FloatArray, number: int) -> FloatArray:
    """Return the values that distances along an axis are computed from: coordinates, or nominal levels."""
    axis = spec.axes[number]
    if axis.nominal:
        return levels(shares(axis), unit[:, number]).astype(float)
    return unit[:, number].copy()


def _crowding(squares: FloatArray, pair: Any) -> float:
    distances = np.delete(squares, pair, axis=1)
    return float(np.sum(np.maximum(distances, 1e-12) ** (-_POWER / 2)))


def _check(spec: DesignSpec) -> list[Fault]:
    optimize = LHS.option(spec, "optimize")
    if optimize == "none" or size_of(spec) <= _LARGEST:
        return []
    message = (
        f"optimize: {optimize} compares all pairs of points, so n is at most {_LARGEST:,}; leave it out "
        "(it gains little with so many points)"
    )
    return [(("sampler", "optimize"), message)]


def _size(spec: DesignSpec, n: int) -> str | None:
    return None if n >= 2 else f"n must be at least 2, found {n}"


LHS: Sampler = Sampler(
    "lhs",
    "Latin hypercube",
    draw,
    size_of,
    size_check=_size,
    options=(
        Option("optimize", "none", one_of("none", "maximin", "discrepancy"), "what its points are spread by"),
    ),
    allows_constraints=True,
    check=_check,
    methods=("rbd_fast", "pawn", "delta"),
)
