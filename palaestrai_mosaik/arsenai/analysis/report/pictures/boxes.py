"""Boxes in which a condition holds: in the plane of two factors, and the trade-off of coverage and density."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...discovery import FoundBox
from ...discovery.figure import GROUPS, Plane, PlaneAxis
from ..numbers import number
from .canvas import (
    PANEL,
    QUIET,
    SERIES,
    SMALL,
    Picture,
    fitted,
    limits,
    points,
    width_of,
    x_axis,
    y_axis,
    y_room,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEIGHT, _BOTTOM, _TOP = 320.0, 262.0, 46.0
#: colour, size and opacity of the points of each group
_MARKS = ((QUIET, 3.0, 0.45), (SERIES[5], 4.0, 0.9), (SERIES[1], 4.0, 0.9))
_LONGEST_LEVEL = 90.0


def box_picture(identity: str, title: str, plane: Plane) -> Picture:
    """Draw all rows in the plane of two factors, coloured by the share of runs with the condition, and the box."""
    from matplotlib.patches import Rectangle

    picture = Picture(identity, title, PANEL, _HEIGHT)
    picture.heading()
    left = _level_room(plane.y) if plane.y.levels else y_room(limits(plane.y.span))
    axes = picture.axes((left, PANEL - 12.0, _TOP, _BOTTOM))
    _across(axes, plane.x, PANEL - 12.0 - left)
    _upwards(axes, plane.y)
    for group, (colour, size, alpha) in enumerate(_MARKS):
        here = plane.group == group
        if here.any():
            points(axes, plane.x.places[here], plane.y.places[here], ec=colour, lw=size, alpha=alpha)
    corner = plane.x.limit[0], plane.y.limit[0]
    width, height = plane.x.limit[1] - corner[0], plane.y.limit[1] - corner[1]
    patch = Rectangle(corner, width, height, fill=False, ec=SERIES[0], lw=2.0, zorder=3)
    axes.add_patch(patch)
    picture.tell(patch, "box", title)
    x = 8.0
    for (colour, _, _), name in zip(_MARKS, GROUPS, strict=True):
        picture.text(x, _HEIGHT - 8, f"\N{BLACK CIRCLE} {name}", 110, size=SMALL, color=colour)
        x += 14 + width_of(name, SMALL) + 12
    inside = int(plane.inside.sum())
    picture.described = (
        f"{plane.x.name} to the right, {plane.y.name} upwards. Of {len(plane.group):,} rows, {inside:,} lie in the box, "
        f"which goes from {number(plane.x.limit[0], 3)} to {number(plane.x.limit[1], 3)} and from "
        f"{number(plane.y.limit[0], 3)} to {number(plane.y.limit[1], 3)}."
    )
    return picture


def _level_room(axis: PlaneAxis) -> float:
    return min(_LONGEST_LEVEL, max(width_of(name, SMALL) for name in axis.levels)) + 12


def _across(axes: Axes, axis: PlaneAxis, room: float) -> None:
    if not axis.levels:
        span = axis.span if axis.log else limits(axis.span)
        x_axis(axes, span, axis.name, room, log=axis.log)
        return
    axes.set_xlim(*axis.span)
    each = room / len(axis.levels)
    axes.set_xticks(range(len(axis.levels)), [fitted(name, each, SMALL) for name in axis.levels])
    axes.set_xlabel(fitted(axis.name, room, SMALL), labelpad=2)


def _upwards(axes: Axes, axis: PlaneAxis) -> None:
    from .canvas import log_ticks

    span = axis.span if axis.log or axis.levels else limits(axis.span)
    y_axis(axes, span, axis.name)
    if axis.log:
        axes.set_yscale("log")
        values, texts = log_ticks(*span)
        axes.set_ylim(*span)
        axes.set_yticks(values, texts)
        axes.set_yticks([], minor=True)
    if axis.levels:
        axes.set_yticks(
            range(len(axis.levels)), [fitted(level, _LONGEST_LEVEL, SMALL) for level in axis.levels]
        )


def trade_off(identity: str, title: str, boxes: Sequence[FoundBox]) -> Picture:
    """Draw coverage and density of the boxes with their intervals, and PRIM's trajectories to them."""
    picture = Picture(identity, title, PANEL, _HEIGHT)
    picture.heading()
    span = (-0.03, 1.03)
    left = y_room(span)
    axes = picture.axes((left, PANEL - 12.0, _TOP, _BOTTOM))
    y_axis(axes, span, "density")
    x_axis(axes, span, "coverage", PANEL - 12.0 - left)
    descriptions = []
    for index, box in enumerate(boxes):
        colour = SERIES[index % len(SERIES)]
        if box.trajectory is not None:
            steps = box.trajectory
            (line,) = axes.plot(steps["coverage"], steps["density"], "-", color=colour, lw=1.2, alpha=0.6)
            picture.tell(line, "line", f"{box.method} {box.number}")
        x, y = box.figures["coverage"], box.figures["density"]
        ends = [box.figures[f"{name}_{end}"] for name in ("coverage", "density") for end in ("low", "high")]
        if all(map(math.isfinite, ends)):
            axes.plot(ends[:2], [y, y], color=colour, lw=1.6)
            axes.plot([x, x], ends[2:], color=colour, lw=1.6)
        (point,) = axes.plot([x], [y], "o", color=colour, ms=8)
        name = f"{box.method} {box.number}: coverage {number(x, 3)}, density {number(y, 3)}"
        picture.tell(point, "point", name)
        descriptions.append(name)
    x = 8.0
    for index, box in enumerate(boxes[:4]):
        name = f"\N{BLACK CIRCLE} {box.method} {box.number}"
        picture.text(x, _HEIGHT - 8, name, 80, size=SMALL, color=SERIES[index % len(SERIES)])
        x += width_of(name, SMALL) + 10
    picture.described = f"Coverage to the right, density upwards. {'; '.join(descriptions)}."
    return picture
