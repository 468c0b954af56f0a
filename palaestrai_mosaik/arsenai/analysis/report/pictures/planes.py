"""Morris' plane of mean effects against their spread, and the heat map of interactions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..numbers import Mark, typeset
from .canvas import (
    BACK,
    INK,
    NORMAL,
    PANEL,
    QUIET,
    SERIES,
    SMALL,
    Picture,
    fitted,
    limits,
    width_of,
    x_axis,
    y_axis,
    y_room,
)

_Box = tuple[float, float, float, float]
_LONGEST = 130.0
# Height for the rotated names of columns.
_TURNED = 90.0
# Smallest value of the darkest cell, so that negligible interactions do not look large.
_FAINT = 0.1
# Opacity of the cells with the smallest and the largest value; numbers are legible on both.
_SHADES = (0.04, 0.6)
#: limit on factors; the names of more would be too small to read
MOST_CELLS = 20


def morris_plane(identity: str, title: str, rows: Sequence[tuple[str, Mark, float]], width: float) -> Picture:
    """Draw factors in the plane of mu* (a mark) and sigma.

    The lines sigma = 0.1, 0.5 and 1 mu* separate effects that are almost linear, monotonic, almost
    monotonic, and not monotonic or interacting (Garcia Sanchez et al. 2014, Energy and
    Buildings 68).
    """
    across = limits([(m.value, m.low, m.high) for _, m, _ in rows], zero=True)
    up = limits([sigma for _, _, sigma in rows], zero=True)
    picture = Picture(identity, title, width, 340)
    picture.heading()
    box = (y_room(up), width - 12.0, 46.0, 302.0)
    axes = picture.axes(box)
    y_axis(axes, up, "sigma: spread of the effects")
    x_axis(axes, across, "mu*: mean size of the effects", box[1] - box[0])

    def position_of(x: float, y: float) -> tuple[float, float]:
        return (
            box[0] + (x - across[0]) / (across[1] - across[0]) * (box[1] - box[0]),
            box[3] - (y - up[0]) / (up[1] - up[0]) * (box[3] - box[2]),
        )

    for slope in (0.1, 0.5, 1.0):
        end = min(across[1], up[1] / slope)
        axes.plot([0, end], [0, slope * end], color=QUIET, lw=0.9, ls=(0, (3, 3)))
        text = "sigma = mu*" if slope == 1 else f"sigma = {slope} mu*"
        x, y = position_of(end, slope * end)
        # Above the axes is their label.
        y = y + 13 if y < box[2] + 12 else y - 3
        picture.text(min(x, box[1]) - 6, y, text, 120, size=SMALL, ha="right", color=QUIET, bbox=BACK)
    points = [(name, mark, sigma) for name, mark, sigma in rows if mark.known and math.isfinite(sigma)]
    points.sort(key=lambda row: (-row[1].value, row[0]))
    taken = [_covered(position_of, mark, sigma) for _, mark, sigma in points]
    for i, (name, mark, sigma) in enumerate(points):
        if mark.spread:
            axes.plot([mark.low, mark.high], [sigma, sigma], color=SERIES[0], lw=1.6, clip_on=False)
        (point,) = axes.plot([mark.value], [sigma], "o", color=SERIES[0], ms=8, clip_on=False)
        picture.tell(point, "point", f"{name}: mu* {mark}, sigma {typeset(sigma, 3)}")
        free = _free_place(taken[i], position_of(mark.value, sigma), fitted(name, _LONGEST), taken, box)
        if free is not None:
            picture.text(*free, name, _LONGEST)
    descriptions = "; ".join(
        f"{name}: mu* {mark}, sigma {typeset(sigma, 3)}" for name, mark, sigma in points[:20]
    )
    picture.described = f"mu* to the right, sigma upwards. {descriptions}"
    return picture


def _covered(position_of: object, mark: Mark, sigma: float) -> _Box:
    """Return the box that a point covers with its interval."""
    ends = [position_of(end, sigma) for end in (mark.low, mark.value, mark.high) if math.isfinite(end)]  # type: ignore[operator]
    return min(x for x, _ in ends) - 5, ends[0][1] - 5, max(x for x, _ in ends) + 5, ends[0][1] + 5


def _free_place(
    point_box: _Box, point: tuple[float, float], text: str, taken: list[_Box], box: Sequence[float]
) -> tuple[float, float] | None:
    """Return a position for a name beside the point that covers nothing, and reserve it; None if there is no space."""
    width, (x, y) = width_of(text), point
    for left, base in (
        (point_box[2] + 2, y + 4),
        (point_box[0] - 2 - width, y + 4),
        (x - width / 2, y - 9),
        (x - width / 2, y + 18),
        (x + 5, y - 8),
        (x + 5, y + 16),
        (x - 5 - width, y - 8),
        (x - 5 - width, y + 16),
    ):
        covered = (left, base - NORMAL + 2, left + width, base + 2)
        inside = (
            covered[0] >= box[0]
            and covered[2] <= box[1] + 12
            and covered[1] >= box[2] - 8
            and covered[3] <= box[3]
        )
        if inside and not any(_overlap(covered, other) for other in taken):
            taken.append(covered)
            return left, base
    return None


def _overlap(a: _Box, b: _Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def heat_map(
    identity: str, title: str, names: Sequence[str], pairs: Mapping[tuple[str, str], Mark], what: str
) -> Picture:
    """Draw a cell for each pair of ``names``, darker for larger values, with a frame if the interval is above zero."""
    from matplotlib.patches import Rectangle

    most = max([_FAINT, *(mark.value for mark in pairs.values() if mark.known)])
    left = min(110.0, 14 + max(width_of(name, SMALL) for name in names))
    size = min(48.0, (PANEL - 10 - left) / (len(names) - 1))
    top, columns = 30.0, names[:-1]
    below = min(_TURNED, max(width_of(column, SMALL) for column in columns))
    bottom = top + (len(names) - 1) * size
    picture = Picture(identity, title, PANEL, bottom + 20 + below)
    picture.heading()
    axes = picture.axes((0, PANEL, 0, picture.height))
    axes.set_xlim(0, PANEL)
    axes.set_ylim(picture.height, 0)
    axes.axis("off")
    for i, row in enumerate(names[1:], start=1):
        y = top + (i - 1) * size
        picture.text(left - 5, y + size / 2 + 4, row, left - 8, size=SMALL, ha="right", color=QUIET)
        for j, column in enumerate(columns[:i]):
            mark = pairs.get((row, column)) or pairs.get((column, row)) or Mark(math.nan)
            share = max(0.0, mark.value / most) if mark.known else 0.0
            sure = math.isfinite(mark.low) and mark.low > 0
            x = left + j * size
            cell = Rectangle(
                (x + 1, y + 1),
                size - 2,
                size - 2,
                fc=SERIES[0],
                alpha=_SHADES[0] + (_SHADES[1] - _SHADES[0]) * share,
                ec="none",
            )
            axes.add_patch(cell)
            picture.tell(cell, "cell sure" if sure else "cell", f"{column} and {row}: {mark}")
            if sure:
                axes.add_patch(Rectangle((x + 1, y + 1), size - 2, size - 2, fill=False, ec=INK, lw=1.4))
            if size >= 34 and mark.known:
                text = typeset(round(mark.value, 3), 2)
                picture.text(x + size / 2, y + size / 2 + 4, text, size, size=SMALL, ha="center")
    for j, column in enumerate(columns):
        picture.text(
            left + (j + 0.5) * size,
            bottom + 6,
            column,
            _TURNED,
            size=SMALL,
            ha="center",
            va="top",
            color=QUIET,
            rotation=90,
        )
    order = sorted(((m.value, pair, m) for pair, m in pairs.items() if m.known), reverse=True)[:10]
    described = "; ".join(f"{a} and {b}: {mark}" for _, (a, b), mark in order)
    picture.described = f"{what} of pairs. {described}"
    return picture
