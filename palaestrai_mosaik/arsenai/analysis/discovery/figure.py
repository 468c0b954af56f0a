"""The picture of a discovery: each box in the plane of two factors, and the trade-off on the way to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.core.printing import escape_control_characters
from palaestrai_mosaik.plot.colours import COLOURS, GREY
from palaestrai_mosaik.plot.figures import STYLE, WIDTH, save_figure
from palaestrai_mosaik.types.arrays import BoolVector, FloatVector, IndexVector

from .boxes import Box, Column
from .discover import Discovery, FoundBox, shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


_ROW = 2.9
_LONGEST_RULE = 74
#: colour, size and opacity of the points of each group
_MARKS: tuple[dict[str, Any], ...] = (
    {"color": GREY, "ms": 2.6, "alpha": 0.45},
    {"color": COLOURS[5], "ms": 3.4, "alpha": 0.9},
    {"color": COLOURS[1], "ms": 3.4, "alpha": 0.9},
)


def discovery_figure(discovery: Discovery, method: str | None = None) -> Figure:
    """Draw the boxes of a discovery: a row for each, its plane beside the trade-off of coverage and density.

    Args:
        discovery: the discovery.
        method: only the boxes of this method, ``PRIM`` or ``CART``; ``None``: all.

    Returns:
        The figure.

    Raises:
        PalaestraiMosaikError: there is no box to draw.
    """
    import matplotlib as mpl
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from palaestrai_mosaik.plot.notebook import NotebookFigure

    boxes = [box for box in discovery.boxes if method in (None, box.method)]
    if not boxes:
        raise PalaestraiMosaikError(f"there is no box to draw of {discovery.condition}")
    with mpl.rc_context(STYLE):
        size = (WIDTH, 0.4 + _ROW * len(boxes))
        figure = NotebookFigure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.09))
        figure.suptitle(escape_control_characters(discovery.title), x=0.01, ha="left", fontsize=10.5)
        rows = figure.subplots(len(boxes), 2, squeeze=False, gridspec_kw={"width_ratios": [1.35, 1]})
        for (left, right), box in zip(rows, boxes, strict=True):
            plane = plane_of(discovery, box)
            if plane is None:
                left.set_axis_off()
            else:
                _draw_plane(left, plane, box)
            _draw_trade_off(right, box)
    return figure


def plot_discovery(discovery: Discovery, path: str | Path) -> Path:
    """Write :func:`discovery_figure` into a file (``.png``, ``.svg``, ``.pdf``), and return its path."""
    return save_figure(discovery_figure(discovery), Path(path))


def _draw_plane(axes: Axes, plane: Plane, box: FoundBox) -> None:
    from matplotlib.patches import Rectangle

    title = escape_control_characters(f"{box.method} {box.number}: {box.rule}")
    if len(title) > _LONGEST_RULE:
        title = f"{title[: _LONGEST_RULE - 1]}\N{HORIZONTAL ELLIPSIS}"
    axes.set_title(title, fontsize=8)
    for group, (name, marks) in enumerate(zip(GROUPS, _MARKS, strict=True)):
        here = plane.group == group
        if here.any():
            axes.plot(plane.x.places[here], plane.y.places[here], "o", mec="none", label=name, **marks)
    corner = (plane.x.limit[0], plane.y.limit[0])
    size = (plane.x.limit[1] - corner[0], plane.y.limit[1] - corner[1])
    axes.add_patch(Rectangle(corner, *size, fill=False, ec=COLOURS[0], lw=1.8, zorder=3))
    for axis, of, scale, ticks in (
        (plane.x, axes.set_xlim, axes.set_xscale, axes.set_xticks),
        (plane.y, axes.set_ylim, axes.set_yscale, axes.set_yticks),
    ):
        if axis.log:
            scale("log")
        of(*_span(axis))
        if axis.levels:
            ticks(range(len(axis.levels)), list(map(escape_control_characters, axis.levels)))
    axes.set_xlabel(escape_control_characters(plane.x.name))
    axes.set_ylabel(escape_control_characters(plane.y.name))
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.16), ncols=len(GROUPS), handlelength=1.0)


def _span(axis: PlaneAxis) -> tuple[float, float]:
    if axis.log or axis.levels:
        return axis.span
    margin = 0.03 * (axis.span[1] - axis.span[0])
    return axis.span[0] - margin, axis.span[1] + margin


def _draw_trade_off(axes: Axes, found_box: FoundBox) -> None:
    if found_box.trajectory is not None:
        axes.plot(
            found_box.trajectory["coverage"], found_box.trajectory["density"], "o-", color=GREY, ms=3, lw=0.8
        )
    axes.plot([found_box.figures["coverage"]], [found_box.figures["density"]], "o", color=COLOURS[1], ms=7)
    box = [found_box.figures[f"{name}_{end}"] for name in ("coverage", "density") for end in ("low", "high")]
    if np.isfinite(box).all():
        y, x = found_box.figures["density"], found_box.figures["coverage"]
        axes.plot(box[:2], [y, y], color=COLOURS[1], lw=1.4)
        axes.plot([x, x], box[2:], color=COLOURS[1], lw=1.4)
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("coverage")
    axes.set_ylabel("density")
    axes.set_title("Trade-off" if found_box.trajectory is not None else "Coverage and density", fontsize=8)
