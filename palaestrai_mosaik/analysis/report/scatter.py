"""Outcomes against factors: every row is shown, as a point or, of many, as part of a cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .markup import Safe, number, tag
from .svg import (
    LEFT,
    RIGHT,
    FloatArray,
    Scale,
    dots,
    heading,
    panel,
    polyline,
    scale,
    x_axis,
    x_names,
    y_axis,
)

_TOP, _BOTTOM = 44.0, 220.0
#: of more rows, cells are drawn
MOST_POINTS = 1500
_COLUMNS, _ROWS = 60, 36
# so few points are drawn larger
_FEW = 100
_SHADES = 5
_MOST_MEANS = 20
_FEWEST_PER_MEAN = 5
#: more levels than this are drawn as if they were numbers
MOST_LEVELS = 24
# Steps of the golden ratio spread points evenly, whatever their number.
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class HorizontalAxis:
    """What lies on the x axis: numbers, or the index of each row's level where there are ``levels``."""

    name: str
    x: FloatArray
    levels: tuple[str, ...] = ()
    log: bool = False


def scatter(identity: str, against: HorizontalAxis, outcome: str, y: FloatArray) -> Safe:
    """Return ``outcome`` (``y``, of the same rows) against a factor, with its running mean."""
    known = np.isfinite(against.x) & np.isfinite(y)
    x, y = against.x[known], y[known]
    up = scale(y, _BOTTOM, _TOP)
    if against.levels:
        across = Scale(-0.5, len(against.levels) - 0.5, LEFT, RIGHT)
        centres = [across(i) for i in range(len(against.levels))]
        axis = x_names(centres, against.levels, _TOP, _BOTTOM, against.name)
        spread = (np.arange(len(x)) * _GOLDEN % 1 - 0.5) * 0.6
        shown, mean = x + spread, _level_means(x, y, len(against.levels))
    else:
        across = scale(x, LEFT, RIGHT, log=against.log)
        axis = x_axis(across, _TOP, _BOTTOM, against.name)
        shown, mean = x, _running_mean(x, y)
    a, b = across.many(shown), up.many(y)
    marks = (
        _cells(a, b)
        if len(a) > MOST_POINTS
        else [dots(a, b, class_="dots few c0" if len(a) <= _FEW else "dots c0")]
    )
    line = _mean_line(across.many(mean[0]), up.many(mean[1]), bool(against.levels))
    title = f"{outcome} against {against.name}"
    first, last = (number(v, 3) for v in mean[1][[0, -1]]) if len(mean[1]) else ("unknown", "unknown")
    told = f"{len(a):,} rows. The mean of {outcome} goes from {first} on the left to {last} on the right."
    height = _BOTTOM + (46 if against.levels else 34)
    return panel(
        identity, title, told, height, heading(title), y_axis(up, LEFT, RIGHT, outcome), axis, *marks, line
    )


def _running_mean(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return means of neighbours: of spans that hold about equally many rows.

    Rows of one x stay together, whatever their number: divided by their y, they would make a peak
    where no run is.
    """
    spans = min(_MOST_MEANS, len(x) // _FEWEST_PER_MEAN)
    if spans < 2:
        return np.empty(0), np.empty(0)
    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    # the span of a place is that of the middle of its rows
    middle = np.cumsum(counts) - counts / 2
    span = np.unique(np.floor(middle * spans / len(x)), return_inverse=True)[1][place]
    sizes = np.bincount(span)
    if len(sizes) < 2:
        return np.empty(0), np.empty(0)
    return np.bincount(span, x) / sizes, np.bincount(span, y) / sizes


def _level_means(x: FloatArray, y: FloatArray, levels: int) -> tuple[FloatArray, FloatArray]:
    present = [i for i in range(levels) if (x == i).any()]
    return np.array(present, dtype=float), np.array([y[x == i].mean() for i in present])


def _mean_line(x: FloatArray, y: FloatArray, levels: bool) -> Safe:
    if levels:
        ticks = "".join(f"M{a - 9:.1f} {b:.1f}h18" for a, b in zip(x.tolist(), y.tolist(), strict=True))
        return tag("path", class_="mean c1", d=ticks)
    return polyline(x, y, class_="mean c1")


def _cells(x: FloatArray, y: FloatArray) -> list[Safe]:
    """Return cells of the plot, shaded by how many points they hold."""
    width, height = (RIGHT - LEFT) / _COLUMNS, (_BOTTOM - _TOP) / _ROWS
    column = np.clip(((x - LEFT) / width).astype(int), 0, _COLUMNS - 1)
    row = np.clip(((y - _TOP) / height).astype(int), 0, _ROWS - 1)
    counts = np.bincount(row * _COLUMNS + column, minlength=_ROWS * _COLUMNS)
    most = int(counts.max())
    # a shade is a span of counts that doubles, so that single rows can be seen beside heaps
    limits = np.unique(np.geomspace(1, most + 1, _SHADES + 1).astype(int))
    paths = []
    for low, high in zip(limits[:-1].tolist(), limits[1:].tolist(), strict=True):
        found = np.flatnonzero((counts >= low) & (counts < high)).tolist()
        if found:
            paths.append(_shade(found, (width, height), (low, high - 1), high / (most + 1)))
    return paths


def _shade(cells: Sequence[int], size: tuple[float, float], span: tuple[int, int], share: float) -> Safe:
    width, height = size
    d = "".join(
        f"M{LEFT + i % _COLUMNS * width:.1f} {_TOP + i // _COLUMNS * height:.1f}"
        f"h{width:.1f}v{height:.1f}h-{width:.1f}"
        for i in cells
    )
    told = f"{span[0]:,} to {span[1]:,} rows in a cell" if span[1] > span[0] else f"{span[0]:,} in a cell"
    return tag("path", tag("title", told), class_="heat c0", d=d, fill_opacity=f"{0.15 + 0.75 * share:.2f}")
