"""Rows of values with their intervals: the leading effects, sensitivity indices, levels and differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray

from ..numbers import Mark, column
from .canvas import INK, QUIET, SERIES, SMALL, Picture, limits, points, width_of, x_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: limit on the single values of a row
MOST_DOTS = 200
_LINE, _NAME, _HEAD, _AXIS = 13.0, 16.0, 30.0, 38.0
_MARKS, _SYMBOLS = ("o", "D", "s", "^"), "●◆■▲"
# Smallest width of a picture with names beside the values.
_BESIDE = 500


@dataclass(frozen=True)
class Row:
    """A name with a mark for each series; ``dots``: single values behind the first series."""

    name: str
    marks: tuple[Mark, ...]
    dots: FloatArray = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class Block:
    """Rows that share an axis.

    Attributes:
        title: the heading.
        axis: the label of the axis.
        rows: the rows.
        series: the names of the marks of each row.
        origin: the position of a line, which the axis includes.
        ends: further values that the axis includes.
        stems: whether values are drawn as bars from the origin.
    """

    title: str
    axis: str
    rows: tuple[Row, ...]
    series: tuple[str, ...] = ()
    origin: float | None = None
    ends: tuple[float, ...] = ()
    stems: bool = False

    @property
    def height(self) -> float:
        """The height of a row."""
        lines = max((len(row.marks) for row in self.rows), default=1)
        return _NAME + _LINE * lines + (9 if any(len(row.dots) for row in self.rows) else 0) + 5


def rows_picture(identity: str, title: str, blocks: Sequence[Block], width: float) -> Picture:
    """Draw the blocks one below the other, each with its axis."""
    beside = width >= _BESIDE
    sizes = [_HEAD + _room(block, beside) + _AXIS for block in blocks]
    picture = Picture(identity, title, width, sum(sizes))
    top = 0.0
    for index, block in enumerate(blocks):
        _draw(picture, block, top, beside, index)
        top += sizes[index]
    descriptions = (
        f"{block.title}, {block.axis}: "
        + "; ".join(
            f"{row.name} {', '.join(map(_told, _series(block), row.marks))}" for row in block.rows[:20]
        )
        for block in blocks
    )
    picture.described = f"Points with intervals. {'. '.join(descriptions)}."
    return picture


def _told(name: str, mark: Mark) -> str:
    return f"{name} {mark}".strip()


def _series(block: Block) -> tuple[str, ...]:
    return block.series or ("",) * max(len(row.marks) for row in block.rows)


def _room(block: Block, beside: bool) -> float:
    return len(block.rows) * (max(26.0, block.height - _NAME + 6) if beside else block.height)


def _draw(picture: Picture, block: Block, top: float, beside: bool, index: int) -> None:
    """Draw a block below ``top``, the block at ``index`` of the picture."""
    height = _room(block, beside)
    each = height / max(1, len(block.rows))
    behind = [_thinned(row.dots) for row in block.rows]
    texts = _texts(block)
    left, right = 8.0, picture.width - 8.0
    if beside:
        left = min(0.34 * picture.width, max(width_of(row.name) for row in block.rows) + 18)
        right -= max(width_of(text, SMALL) for text in texts) + 12
    axes = picture.axes((left, right, top + _HEAD, top + _HEAD + height))
    picture.heading(block.title, y=top + 14)
    _legend(picture, block.series, top)
    span = _span(block, behind)
    x_axis(axes, span, block.axis, right - left)
    axes.set_ylim(height, 0)
    axes.set_yticks([])
    axes.spines["bottom"].set_visible(False)
    if block.origin is not None or (block.stems and span[0] < 0):
        axes.axvline(block.origin or 0.0, color=INK, lw=1)
    for i, (row, values) in enumerate(zip(block.rows, behind, strict=True)):
        y = i * each
        picture.tell(axes.axhspan(y, y + each, color="none"), "row", f"{row.name}: {texts[i]}")
        lines = _LINE * (len(row.marks) - 1)
        first = (each - lines - (9 if len(values) else 0)) / 2 + y if beside else y + _NAME + 7
        base_line = top + _HEAD + (first + lines / 2 + 4 if beside else y + 12)
        room = left - 16 if beside else picture.width - 24 - width_of(texts[i], SMALL)
        picture.text(8, base_line, row.name, room)
        picture.text(
            picture.width - 8, base_line, texts[i], picture.width, size=SMALL, ha="right", color=QUIET
        )
        _draw_marks(picture, axes, block, row, first)
        if len(values):
            below = np.full(len(values), first + lines + 10)
            picture.tell(points(axes, values, below, ec=SERIES[1], lw=4.5, alpha=0.55), "dots")


def _span(block: Block, behind: Sequence[FloatArray]) -> tuple[float, float]:
    """Return the ends of the axis of a block; ``behind``: the single values of each row."""
    ends = [end for row in block.rows for mark in row.marks for end in (mark.value, mark.low, mark.high)]
    ends += [float(value) for values in behind for value in values]
    # If values have no known scatter, an axis from the least to the largest would exaggerate any difference.
    scatters = any(mark.spread for row in block.rows for mark in row.marks) or any(
        len(np.unique(values)) > 1 for values in behind
    )
    origin = [] if block.origin is None else [block.origin]
    # Equal values without scatter would have no position on an axis that does not begin at zero.
    return limits([*ends, *block.ends, *origin], zero=not scatters or block.stems)


def _draw_marks(picture: Picture, axes: Axes, block: Block, row: Row, first: float) -> None:
    """Draw the marks of a row one below the other, the first one at the height ``first``."""
    base = block.origin or 0.0
    for k, mark in enumerate(row.marks):
        if not mark.known:
            continue
        at, colour = first + k * _LINE, SERIES[k % len(SERIES)]
        if block.stems:
            axes.plot([base, mark.value], [at, at], color=colour, lw=6, alpha=0.25, solid_capstyle="butt")
        if mark.spread:
            (line,) = axes.plot([mark.low, mark.high], [at, at], color=colour, lw=2.2, clip_on=False)
            picture.tell(line, "interval")
        symbol, size = _MARKS[k % len(_MARKS)], 8 if k == 0 else 7
        (point,) = axes.plot([mark.value], [at], symbol, color=colour, ms=size, clip_on=False)
        picture.tell(point, "point", f"{row.name}: {_told(_series(block)[k], mark)}")


def _texts(block: Block) -> list[str]:
    """Return the texts beside the rows: the last mark of each, in the unit of the axis."""
    marks = [row.marks[-1] for row in block.rows]
    # The ends of the axis influence its unit.
    formatted = column([*marks, *map(Mark, block.ends)]).texts
    name = f"{block.series[-1]} " if len(block.series) > 1 else ""
    return [
        f"{name}{text}" if mark.known else "unknown" for mark, text in zip(marks, formatted, strict=False)
    ]


def _legend(picture: Picture, series: Sequence[str], top: float) -> None:
    if len(series) < 2:
        return
    x = picture.width - 10
    for k, name in reversed(list(enumerate(series))):
        picture.text(x, top + 14, name, 120, size=SMALL, ha="right")
        x -= width_of(name, SMALL) + 8
        symbol = _SYMBOLS[k % len(_MARKS)]
        colour = SERIES[k % len(SERIES)]
        picture.text(x, top + 14, symbol, 20, size=SMALL, ha="right", color=colour, kind="symbol")
        x -= 20


def _thinned(values: FloatArray) -> FloatArray:
    """Return at most ``MOST_DOTS`` of the values, evenly spread over their ranks."""
    ordered = np.sort(values[np.isfinite(values)])
    indices = np.linspace(0, len(ordered) - 1, min(len(ordered), MOST_DOTS)).round().astype(int)
    return np.asarray(ordered[indices])
