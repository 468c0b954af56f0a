"""The data of a picture of a box: the two axes that it limits most, its rows there, and its limits."""

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

#: the most rows to draw; of more, these are evenly spread
MOST_POINTS = 1500
#: whole numbers of a smaller range are drawn like levels
MOST_LEVELS = 24
#: width of the spread of points around the position of their level
_SPREAD = 0.6
# Steps of the golden ratio spread points evenly, whatever their number.
_GOLDEN = 0.6180339887498949
#: names of the groups of points, by the runs in which the condition holds
GROUPS = ("in no run", "in some runs", "in all runs")


@dataclass(frozen=True)
class PlaneAxis:
    """One axis of the picture.

    Attributes:
        name: the name of the axis of the design, with its unit.
        places: (points,) the coordinates of the points.
        span: both ends of the axis.
        limit: the limits of the box on it, or else the ends of the axis.
        levels: the names of the coordinates 0, 1, ...; empty for numbers.
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
    """A box in the plane of two axes.

    Attributes:
        x: the horizontal axis.
        y: the vertical axis.
        group: (points,) the index of each point's group in :data:`GROUPS`.
        inside: (points,) whether the point lies in the box, with all of its limits.
        rows: number of rows with a value.
        left_out: number of these in which one of the axes is inactive.
    """

    x: PlaneAxis
    y: PlaneAxis
    group: FloatVector
    inside: BoolVector
    rows: int
    left_out: int


def plane_of(discovery: Discovery, box: FoundBox) -> Plane | None:
    """Return the picture of a box, or None if the design has a single axis."""
    columns = discovery.columns
    if len(columns) < 2:
        return None
    share = shares(discovery.runs, len(columns[0].codes))
    order = sorted(range(len(columns)), key=lambda index: (_left(box.box, index, columns), index))
    x, y = order[:2]
    has_share = np.isfinite(share)
    drawn = has_share.copy()
    for index in (x, y):
        # An inactive factor has a position beside levels, but none beside numbers.
        if not columns[index].labels:
            drawn &= columns[index].active
    rows = np.flatnonzero(drawn)
    if len(rows) > MOST_POINTS:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_POINTS).round().astype(int)]
    group = np.where(share[rows] == 0, 0, np.where(share[rows] == 1, 2, 1)).astype(float)
    inside = box.box.contains(columns)[rows]
    axes = [_axis(columns[index], box.box, index, rows) for index in (x, y)]
    return Plane(axes[0], axes[1], group, inside, int(has_share.sum()), int((has_share & ~drawn).sum()))


def _left(box: Box, index: int, columns: Sequence[Column]) -> float:
    """Return the share of the rows within the limits of one axis; axes without limits come last."""
    if index not in box.limits:
        return 2.0
    return float(Box({index: box.limits[index]}).contains(columns).mean())


def _axis(column: Column, box: Box, index: int, rows: IndexVector) -> PlaneAxis:
    limit = box.limits.get(index)
    unit = f" ({column.unit})" if column.unit else ""
    codes = column.codes[rows]
    if column.labels:
        return _level_axis(column, limit, codes, f"{column.name}{unit}")
    factor = column.axis.factors[0]
    single = len(column.axis.factors) == 1
    active_codes = column.codes[column.active]
    low, high = float(active_codes.min()), float(active_codes.max())
    if single:
        low = min(low, factor.low) if factor.low is not None else low
        high = max(high, factor.high) if factor.high is not None else high
    inside = limit if isinstance(limit, tuple) else (-math.inf, math.inf)
    if column.kind == "whole" and high - low <= MOST_LEVELS:
        # Padding for the points around each number.
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
    """Build an axis of levels, with those of the box side by side, so that one rectangle holds them."""
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
    at = {code: position for position, code in enumerate(labels)}
    places = np.array([at[code] for code in codes.tolist()], dtype=float) + _spread(len(codes))
    ends = [at[code] for code in within]
    return PlaneAxis(
        name,
        places,
        (-0.5, len(labels) - 0.5),
        (min(ends) - 0.5, max(ends) + 0.5),
        tuple(column.label(code) for code in labels),
    )
