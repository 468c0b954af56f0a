"""What a picture of a box shows: the two axes that it limits most, its rows there, and its limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.types.arrays import BoolVector, FloatVector, IndexVector

from .boxes import Box, Column
from .discover import Discovery, FoundBox, shares

if TYPE_CHECKING:
    from collections.abc import Sequence

#: of more rows, so many are drawn, evenly spread
MOST_POINTS = 1500
#: whole numbers of a smaller range are drawn as levels are
MOST_LEVELS = 24
#: how far points of one level are spread around its place
_SPREAD = 0.6
# Steps of the golden ratio spread points evenly, whatever their number.
_GOLDEN = 0.6180339887498949
#: the names of the groups of points, and in which share of its runs the condition holds in each
GROUPS = ("in no run", "in some runs", "in all runs")


@dataclass(frozen=True)
class PlaneAxis:
    """One axis of the picture.

    Attributes:
        name: the name of the axis of the design, with its unit.
        places: (points,) where the points lie.
        span: from where to where the axis goes.
        limit: the limits of the box on it, those of the axis where it has none.
        levels: what the places 0, 1, ... are called; empty for numbers.
        log: whether the scale is logarithmic.
    """

    name: str
    places: FloatVector
    span: tuple[float, float]
    limit: tuple[float, float]
    levels: tuple[str, ...] = ()
    log: bool = False


@dataclass(frozen=True)
class Plane:
    """A box in the plane of two axes; ``group``: (points,) the index of each point's group in :data:`GROUPS`.

    ``inside``: (points,) whether it lies in the box, with all of its limits. ``left_out``: rows in which one of the
    axes is inactive.
    """

    x: PlaneAxis
    y: PlaneAxis
    group: FloatVector
    inside: BoolVector
    rows: int
    left_out: int


def plane_of(found: Discovery, one: FoundBox) -> Plane | None:
    """Return the picture of a box; ``None`` where the design has a single axis."""
    columns = found.columns
    if len(columns) < 2:
        return None
    share = shares(found.runs, len(columns[0].codes))
    order = sorted(range(len(columns)), key=lambda place: (_left(one.box, place, columns), place))
    x, y = order[:2]
    known = np.isfinite(share)
    drawn = known.copy()
    for place in (x, y):
        # beside levels, being inactive has a place; beside numbers it has none
        if not columns[place].labels:
            drawn &= columns[place].active
    rows = np.flatnonzero(drawn)
    if len(rows) > MOST_POINTS:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_POINTS).round().astype(int)]
    group = np.where(share[rows] == 0, 0, np.where(share[rows] == 1, 2, 1)).astype(float)
    inside = one.box.contains(columns)[rows]
    axes = [_axis(columns[place], one.box, place, rows) for place in (x, y)]
    return Plane(axes[0], axes[1], group, inside, int(known.sum()), int((known & ~drawn).sum()))


def _left(box: Box, place: int, columns: Sequence[Column]) -> float:
    """Return which share of the rows the limits on one axis leave; a restricted axis comes before all others."""
    if place not in box.limits:
        return 2.0
    return float(Box({place: box.limits[place]}).contains(columns).mean())


def _axis(column: Column, box: Box, place: int, rows: IndexVector) -> PlaneAxis:
    limit = box.limits.get(place)
    unit = f" ({column.unit})" if column.unit else ""
    codes = column.codes[rows]
    if column.labels:
        return _level_axis(column, limit, codes, f"{column.name}{unit}")
    factor = column.axis.factors[0]
    single = len(column.axis.factors) == 1
    known = column.codes[column.active]
    low, high = float(known.min()), float(known.max())
    if single:
        low = min(low, factor.low) if factor.low is not None else low
        high = max(high, factor.high) if factor.high is not None else high
    inside = limit if isinstance(limit, tuple) else (-math.inf, math.inf)
    if column.kind == "whole" and high - low <= MOST_LEVELS:
        # room for the points around each number
        return PlaneAxis(
            f"{column.name}{unit}",
            codes + _spread(len(codes)),
            (low - 0.5, high + 0.5),
            (max(inside[0], low) - 0.5, min(inside[1], high) + 0.5),
        )
    log = single and factor.dist in ("loguniform", "lognormal") and low > 0
    return PlaneAxis(
        f"{column.name}{unit}" if single else f"{column.name} (share of the range)",
        codes,
        (low, high) if low < high else (low - 0.5, high + 0.5),
        (max(inside[0], low), min(inside[1], high)),
        log=log,
    )


def _spread(points: int) -> FloatVector:
    return np.asarray(((np.arange(points) * _GOLDEN) % 1 - 0.5) * _SPREAD, dtype=np.float64)


def _level_axis(
    column: Column, limit: tuple[float, float] | frozenset[int] | None, codes: FloatVector, name: str
) -> PlaneAxis:
    """Return the axis of levels: those of the box side by side, so that one rectangle holds them."""
    labels = [
        *map(float, range(len(column.labels))),
        *([column.inactive] if column.inactive is not None else []),
    ]
    if isinstance(limit, frozenset):
        labels.sort(key=lambda code: (code not in limit, code))
        within = [code for code in labels if code in limit]
    elif isinstance(limit, tuple):
        labels.sort()
        within = [code for code in labels if limit[0] <= code <= limit[1]]
    else:
        within = labels
    at = {code: place for place, code in enumerate(labels)}
    places = np.array([at[code] for code in codes.tolist()], dtype=float) + _spread(len(codes))
    ends = [at[code] for code in within]
    return PlaneAxis(
        name,
        places,
        (-0.5, len(labels) - 0.5),
        (min(ends) - 0.5, max(ends) + 0.5),
        tuple(column.label(code) for code in labels),
    )
