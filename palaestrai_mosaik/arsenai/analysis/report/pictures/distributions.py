"""The distribution of an outcome, and its relation to each factor. Every row is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray

from ..numbers import typeset
from .canvas import (
    INK,
    PANEL,
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
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_BINS = 30
#: with more rows than this, cells are drawn instead of points
MOST_POINTS = 1500
_COLUMNS, _ROWS = 60, 36
# Up to this number of rows, points are larger.
_FEW = 100
_MOST_MEANS = 20
_FEWEST_PER_MEAN = 5
# A line through fewer means has no shape.
_FEWEST_MEANS = 4
#: with more levels than this, they are drawn like numbers
MOST_LEVELS = 24
# Steps of the golden ratio spread points evenly, whatever their number.
_GOLDEN = 0.6180339887498949
# Colour of the cells. Their opacity grows with their number of rows, on light and dark backgrounds.
_CELL = (0, 114, 178)


@dataclass(frozen=True)
class HorizontalAxis:
    """The x axis: numbers, or indices of ``levels``.

    Attributes:
        name: the name of the factor.
        label: the name with its unit.
        x: (rows,) the number or the index of the level of each row.
        levels: the names of the levels; empty for numbers.
        ends: the ends of the factor's range, ``None`` if it is unbounded.
        log: whether the scale is logarithmic.
    """

    name: str
    label: str
    x: FloatArray
    levels: tuple[str, ...] = ()
    ends: tuple[float | None, float | None] = (None, None)
    log: bool = False


@dataclass(frozen=True)
class VerticalAxis:
    """The y axis: the name of an outcome, its label with the unit, and the limits of its values."""

    name: str
    label: str
    limits: tuple[float, ...] = ()


def histogram(identity: str, outcome: VerticalAxis, values: FloatArray) -> Picture:
    """Draw the distribution of an outcome over runs."""
    finite = values[np.isfinite(values)]
    span = (
        (float(finite.min()), float(finite.max()))
        if len(finite) and finite.min() < finite.max()
        else limits(finite)
    )
    bins = max(5, min(_BINS, round(2 * len(finite) ** (1 / 3))))
    counts, edges = np.histogram(finite, bins=bins, range=span)
    up = limits([0, int(counts.max(initial=1))], zero=True)
    picture = Picture(identity, f"How {outcome.name} is distributed", PANEL, 250)
    picture.heading()
    left = y_room(up)
    axes = picture.axes((left, PANEL - 12, 46, 212))
    y_axis(axes, up, "runs")
    x_axis(axes, limits(span), outcome.label, PANEL - left - 12)
    for n, a, b in zip(counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if n:
            (bar,) = axes.bar((a + b) / 2, n, 0.96 * (b - a), color=SERIES[0], alpha=0.8)
            picture.tell(bar, "bar", f"{n:,} from {typeset(a, 3)} to {typeset(b, 3)}")
    for value in outcome.limits:
        if span[0] <= value <= span[1]:
            picture.tell(
                axes.axvline(value, color=SERIES[1], lw=1.4, ls=(0, (5, 3))), "limit", f"limit {value:g}"
            )
    picture.described = f"{len(finite):,} runs"
    if len(finite):
        ends = typeset(float(finite.min()), 3), typeset(float(finite.max()), 3)
        picture.described += f", from {ends[0]} to {ends[1]}"
    return picture


def scatter(
    identity: str, against: HorizontalAxis, outcome: VerticalAxis, y: FloatArray, *, means: bool
) -> Picture:
    """Draw ``outcome`` (``y``, of the same rows) against a factor.

    ``means``: whether to draw the means of levels, or of neighbouring rows. Without an effect of the factor, they would
    show the effects of others.
    """
    finite = np.isfinite(against.x) & np.isfinite(y)
    x, y = against.x[finite], y[finite]
    picture = Picture(identity, f"{outcome.name} against {against.name}", PANEL, 262)
    picture.heading()
    up = limits(y)
    left = y_room(up)
    axes = picture.axes((left, PANEL - 12, 46, 212))
    y_axis(axes, up, outcome.label)
    if against.levels:
        span = (-0.5, len(against.levels) - 0.5)
        _name_levels(picture, axes, against, left)
        spread = (np.arange(len(x)) * _GOLDEN % 1 - 0.5) * 0.6
        drawn_x, mean = x + spread, level_means(x, y, len(against.levels))
    else:
        ends = (float(x.min()), float(x.max())) if len(x) else (1.0, 10.0)
        span = ends if against.log else limits(x)
        span = span if span[0] < span[1] else (span[0], span[0] * 10 if against.log else span[0] + 1)
        x_axis(axes, span, against.label, PANEL - left - 12, log=against.log)
        drawn_x, mean = x, running_mean(x, y)
    if len(x) > MOST_POINTS:
        picture.tell(_cells(axes, _shares(drawn_x, span, against.log), _shares(y, up)), "cells")
    else:
        few = len(x) <= _FEW
        picture.tell(
            points(axes, drawn_x, y, ec=SERIES[0], lw=6 if few else 3.4, alpha=0.6 if few else 0.4), "dots"
        )
    for value in outcome.limits:
        if up[0] <= value <= up[1]:
            picture.tell(axes.axhline(value, color=INK, lw=1, ls=(0, (5, 3))), "limit", f"limit {value:g}")
    picture.described = f"{outcome.name} against {against.name}: {len(x):,} rows."
    if not means or not len(mean[1]):
        return picture
    if against.levels:
        for position, value in zip(*mean, strict=True):
            axes.plot(
                [position - 0.3, position + 0.3], [value, value], color=SERIES[1], lw=2.6, clip_on=False
            )
    else:
        axes.plot(*mean, color=SERIES[1], lw=2.6, clip_on=False)
    first, last = (typeset(v, 3) for v in mean[1][[0, -1]])
    picture.described += f" The mean of {outcome.name} goes from {first} on the left to {last} on the right."
    return picture


def _name_levels(picture: Picture, axes: Axes, against: HorizontalAxis, left: float) -> None:
    """Write the levels below the axis; names that would overlap alternate between two lines."""
    count = len(against.levels)
    each = (PANEL - 12 - left) / count
    two = count > 1 and any(width_of(name, SMALL) > each - 4 for name in against.levels)
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_xticks(range(count), [])
    axes.xaxis.grid(True)
    room = each * (2 if two else 1) - 4
    for i, name in enumerate(against.levels):
        half = width_of(fitted(name, room, SMALL), SMALL) / 2
        x = min(max(left + (i + 0.5) * each, half + 2), PANEL - half - 2)
        picture.text(x, 226 + 13 * (two and i % 2), name, room, size=SMALL, ha="center")
    picture.text(
        (left + PANEL - 12) / 2,
        254 if two else 241,
        against.label,
        PANEL - left - 12,
        size=SMALL,
        ha="center",
    )


def _shares(values: FloatArray, span: tuple[float, float], log: bool = False) -> FloatArray:
    """Return the positions of values between the ends of an axis, from 0 to 1."""
    low, high = span
    if log:
        values, low, high = np.log(values), float(np.log(low)), float(np.log(high))
    return np.asarray((values - low) / (high - low))


def _cells(axes: Axes, x: FloatArray, y: FloatArray) -> Artist:
    """Draw the number of rows in each cell of a grid as its opacity."""
    counts, _, _ = np.histogram2d(y, x, bins=(_ROWS, _COLUMNS), range=((0, 1), (0, 1)))
    shade = np.sqrt(counts / counts.max())
    image = np.zeros((_ROWS, _COLUMNS, 4), dtype=np.uint8)
    image[..., :3] = _CELL
    image[..., 3] = np.where(counts > 0, 40 + 215 * shade, 0)
    drawn: Artist = axes.imshow(
        image,
        extent=(0, 1, 0, 1),
        transform=axes.transAxes,
        origin="lower",
        aspect="auto",
        interpolation="none",
        zorder=1,
    )
    return drawn


def running_mean(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return means of neighbours, over spans with about equal numbers of rows.

    Rows with equal x stay together, whatever their number. Dividing them by their y would create a peak without runs.
    """
    spans = min(_MOST_MEANS, len(x) // _FEWEST_PER_MEAN)
    if spans < _FEWEST_MEANS:
        return np.empty(0), np.empty(0)
    _, index, counts = np.unique(x, return_inverse=True, return_counts=True)
    # The span of an x is that of the middle of its rows.
    middle = np.cumsum(counts) - counts / 2
    span = np.unique(np.floor(middle * spans / len(x)), return_inverse=True)[1][index]
    sizes = np.bincount(span)
    if len(sizes) < 2:
        return np.empty(0), np.empty(0)
    return np.bincount(span, x) / sizes, np.bincount(span, y) / sizes


def level_means(x: FloatArray, y: FloatArray, levels: int) -> tuple[FloatArray, FloatArray]:
    """Return the levels that have rows, and the mean of each."""
    present: Sequence[int] = [i for i in range(levels) if (x == i).any()]
    return np.array(present, dtype=float), np.array([y[x == i].mean() for i in present])
