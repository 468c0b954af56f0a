"""The picture of a discovery: each box in the plane of two factors, and the trade-off on the way to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.core.printing import escape_control_characters
from palaestrai_mosaik.plot.figures import COLOURS, GREY, STYLE, WIDTH, save_figure

from .discover import Discovery, FoundBox
from .plane import GROUPS, Plane, PlaneAxis, plane_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
