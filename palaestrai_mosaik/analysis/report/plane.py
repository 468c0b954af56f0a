"""The plane of Morris: mean effect against its spread; and the heat map of interactions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .bars import Mark
from .markup import Safe, number, pixel, tag
from .svg import (
    LEFT,
    RIGHT,
    SMALL,
    WIDTH,
    Scale,
    colour,
    fitted,
    heading,
    panel,
    scale,
    whisker,
    width_of,
    x_axis,
    y_axis,
)

_TOP, _BOTTOM = 44.0, 290.0
_LONGEST = 130.0
# room for the names of columns, which are turned
_TURNED = 90.0
# the darkest cell is at least such a share: what is next to nothing shall not look like much
_FAINT = 0.1
#: of more factors, names would be too small to be read
MOST_CELLS = 20


def morris_plane(identity: str, title: str, rows: Sequence[tuple[str, Mark, float]]) -> Safe:
    """Return factors in the plane of mu* (a mark) and sigma.

    The lines sigma = 0.1, 0.5 and 1 mu* part effects that are almost linear, monotonic, almost
    monotonic, and not monotonic or interacting (Garcia Sanchez et al. 2014, Energy and
    Buildings 68).
    """
    across = scale([(m.value, m.low, m.high) for _, m, _ in rows], LEFT, RIGHT, zero=True)
    up = scale([sigma for _, _, sigma in rows], _BOTTOM, _TOP, zero=True)
    lines = []
    for slope in (0.1, 0.5, 1.0):
        end = min(across.high, up.high / slope)
        points = {"x1": across(0), "y1": up(0), "x2": across(end), "y2": up(slope * end)}
        lines.append(tag("line", class_="slope", **points))
        shown = "sigma = mu*" if slope == 1 else f"sigma = {slope} mu*"
        x, y = across(end), up(slope * end)
        lines.append(tag("text", shown, class_="slope", x=min(x, RIGHT) - 2, y=y - 3))
    known = [(name, mark, sigma) for name, mark, sigma in rows if mark.known and math.isfinite(sigma)]
    known.sort(key=lambda row: (-row[1].value, row[0]))
    drawn = []
    taken = [_box(across, up, mark, sigma) for _, mark, sigma in known]
    for name, mark, sigma in known:
        x, y = across(mark.value), up(sigma)
        described = f"{name}: mu* {mark}, sigma {number(sigma, 3)}"
        parts = [
            whisker(across, mark.low, mark.high, y),
            tag("circle", tag("title", described), class_="point", cx=x, cy=y, r=4.0),
        ]
        ends = _box(across, up, mark, sigma)
        place = _free_place((ends[0], ends[2]), (x, y), fitted(name, _LONGEST), taken)
        if place is not None:
            parts.append(tag("text", fitted(name, _LONGEST), class_="name", **place))
        drawn.append(tag("g", *parts, class_=f"row {colour(0)}"))
    described = "; ".join(f"{name}: mu* {mark}, sigma {number(sigma, 3)}" for name, mark, sigma in known[:20])
    return panel(
        identity,
        title,
        f"mu* to the right, sigma upwards. {described}",
        _BOTTOM + 34,
        heading(title),
        y_axis(up, LEFT, RIGHT, "sigma (spread of the effects)"),
        x_axis(across, _TOP, _BOTTOM, "mu* (mean size of the effects)"),
        *lines,
        *drawn,
    )


def _box(across: Scale, up: Scale, mark: Mark, sigma: float) -> tuple[float, float, float, float]:
    """Return what a point covers with its whisker."""
    ends = [across(end) for end in (mark.low, mark.value, mark.high) if math.isfinite(end)]
    return min(ends) - 4, up(sigma) - 4, max(ends) + 4, up(sigma) + 4


def _free_place(
    ends: tuple[float, float],
    point: tuple[float, float],
    text: str,
    taken: list[tuple[float, float, float, float]],
) -> dict[str, float] | None:
    """Return where a name beside the point covers nothing, and take that place; ``None`` if nowhere."""
    width, height, (x, y) = width_of(text), 11.0, point
    for left, base in (
        (ends[1] + 3, y + 4),
        (ends[0] - 3 - width, y + 4),
        (x - width / 2, y - 8),
        (x - width / 2, y + 17),
        (x + 5, y - 7),
        (x + 5, y + 15),
        (x - 5 - width, y - 7),
        (x - 5 - width, y + 15),
    ):
        box = (left, base - height + 2, left + width, base + 2)
        inside = box[0] >= LEFT and box[2] <= WIDTH and box[1] >= _TOP - 8 and box[3] <= _BOTTOM
        if inside and not any(_overlap(box, other) for other in taken):
            taken.append(box)
            return {"x": left, "y": base}
    return None


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def heat_map(
    identity: str, title: str, names: Sequence[str], pairs: Mapping[tuple[str, str], Mark], what: str
) -> Safe:
    """Return a cell for each pair of ``names``: the darker, the larger; framed where the interval
    lies above zero.
    """
    most = max([_FAINT, *(mark.value for mark in pairs.values() if mark.known)])
    left = min(110.0, 14 + max(width_of(name, SMALL) for name in names))
    size = min(44.0, (RIGHT - left) / (len(names) - 1))
    top, columns = 28.0, names[:-1]
    cells = []
    for i, row in enumerate(names[1:], start=1):
        y = top + (i - 1) * size
        row_name = tag(
            "text",
            tag("title", row),
            fitted(row, left - 8, SMALL),
            class_="value",
            x=left - 5,
            y=y + size / 2 + 4,
        )
        cells.append(row_name)
        for j, column in enumerate(columns[:i]):
            mark = pairs.get((row, column)) or pairs.get((column, row)) or Mark(math.nan)
            cells.append(_cell(f"{column} and {row}: {mark}", mark, (left + j * size, y, size), most))
    bottom = top + (len(names) - 1) * size
    for j, column in enumerate(columns):
        x, y = left + (j + 0.5) * size + 3, bottom + 8
        turned = f"rotate(-60 {pixel(x)} {pixel(y)})"
        cells.append(
            tag(
                "text",
                tag("title", column),
                fitted(column, _TURNED, SMALL),
                class_="value",
                x=x,
                y=y,
                transform=turned,
            )
        )
    longest = min(_TURNED, max(width_of(column, SMALL) for column in columns))
    ranked = sorted(((m.value, pair, m) for pair, m in pairs.items() if m.known), reverse=True)[:10]
    described = "; ".join(f"{a} and {b}: {mark}" for _, (a, b), mark in ranked)
    height = bottom + 16 + 0.87 * longest + 8
    return panel(identity, title, f"{what} of pairs. {described}", height, heading(title), *cells)


def _cell(described: str, mark: Mark, place: tuple[float, float, float], most: float) -> Safe:
    x, y, size = place
    share = max(0.0, mark.value / most) if mark.known else 0.0
    sure = " sure" if math.isfinite(mark.low) and mark.low > 0 else ""
    parts = [
        tag(
            "rect",
            tag("title", described),
            class_=f"cell {colour(0)}{sure}",
            x=x + 1,
            y=y + 1,
            width=size - 2,
            height=size - 2,
            fill_opacity=f"{0.04 + 0.86 * share:.2f}",
        )
    ]
    if size >= 34 and mark.known:
        dark = " dark" if share > 0.6 else ""
        shown = number(round(mark.value, 3), 2)
        parts.append(tag("text", shown, class_=f"number{dark}", x=x + size / 2, y=y + size / 2 + 4))
    return tag("g", *parts)
