"""How an outcome is distributed, and how it goes with each factor: every row is shown."""

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
#: of more rows, cells are drawn
MOST_POINTS = 1500
_COLUMNS, _ROWS = 60, 36
# so few points are drawn larger
_FEW = 100
_MOST_MEANS = 20
_FEWEST_PER_MEAN = 5
#: more levels than this are drawn as if they were numbers
MOST_LEVELS = 24
# Steps of the golden ratio spread points evenly, whatever their number.
_GOLDEN = 0.6180339887498949
# what the cells are drawn in; they darken with the rows in them, on paper as on a dark screen
_CELL = (0, 114, 178)


@dataclass(frozen=True)
class HorizontalAxis:
    """What lies on the x axis: numbers, or the index of each row's level where there are ``levels``.

    ``label``: the name with its unit. ``ends``: where the range of the factor ends, as far as it has ends.
    """

    name: str
    label: str
    x: FloatArray
    levels: tuple[str, ...] = ()
    ends: tuple[float | None, float | None] = (None, None)
    log: bool = False


@dataclass(frozen=True)
class VerticalAxis:
    """An outcome: its name, the label of its axis with the unit, and values that are limits."""

    name: str
    label: str
    limits: tuple[float, ...] = ()


def histogram(identity: str, outcome: VerticalAxis, values: FloatArray) -> Picture:
    """Return how many runs have which ``values`` of an outcome."""
    known = values[np.isfinite(values)]
    span = (
        (float(known.min()), float(known.max()))
        if len(known) and known.min() < known.max()
        else limits(known)
    )
    bins = max(5, min(_BINS, round(2 * len(known) ** (1 / 3))))
    counts, edges = np.histogram(known, bins=bins, range=span)
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
    picture.described = f"{len(known):,} runs"
    if len(known):
        ends = typeset(float(known.min()), 3), typeset(float(known.max()), 3)
        picture.described += f", from {ends[0]} to {ends[1]}"
    return picture


def scatter(identity: str, against: HorizontalAxis, outcome: VerticalAxis, y: FloatArray) -> Picture:
    """Return ``outcome`` (``y``, of the same rows) against a factor, with its running mean."""
    known = np.isfinite(against.x) & np.isfinite(y)
    x, y = against.x[known], y[known]
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
        shown, mean = x + spread, level_means(x, y, len(against.levels))
    else:
        span = (float(x.min()), float(x.max())) if against.log and len(x) else limits(x)
        span = span if span[0] < span[1] else (span[0], span[0] * 10 if against.log else span[0] + 1)
        x_axis(axes, span, against.label, PANEL - left - 12, log=against.log)
        shown, mean = x, running_mean(x, y)
    if len(x) > MOST_POINTS:
        picture.tell(_cells(axes, _shares(shown, span, against.log), _shares(y, up)), "cells")
    else:
        few = len(x) <= _FEW
        picture.tell(
            points(axes, shown, y, ec=SERIES[0], lw=6 if few else 3.4, alpha=0.6 if few else 0.4), "dots"
        )
    for value in outcome.limits:
        if up[0] <= value <= up[1]:
            picture.tell(axes.axhline(value, color=INK, lw=1, ls=(0, (5, 3))), "limit", f"limit {value:g}")
    if against.levels:
        for place, value in zip(*mean, strict=True):
            axes.plot([place - 0.3, place + 0.3], [value, value], color=SERIES[1], lw=2.6, clip_on=False)
    else:
        axes.plot(*mean, color=SERIES[1], lw=2.6, clip_on=False)
    first, last = (typeset(v, 3) for v in mean[1][[0, -1]]) if len(mean[1]) else ("unknown", "unknown")
    picture.described = (
        f"{len(x):,} rows. The mean of {outcome.name} goes from {first} on the left to {last} on the right."
    )
    return picture


def _name_levels(picture: Picture, axes: Axes, against: HorizontalAxis, left: float) -> None:
    """Write the levels below their places; names that would overlap take turns in two lines."""
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
    """Return where values lie between the ends of an axis, from 0 to 1."""
    low, high = span
    if log:
        values, low, high = np.log(values), float(np.log(low)), float(np.log(high))
    return np.asarray((values - low) / (high - low))


def _cells(axes: Axes, x: FloatArray, y: FloatArray) -> Artist:
    """Draw how many rows lie in each cell of a grid: the darker, the more."""
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


def level_means(x: FloatArray, y: FloatArray, levels: int) -> tuple[FloatArray, FloatArray]:
    """Return the levels that have rows, and the mean of each."""
    present: Sequence[int] = [i for i in range(levels) if (x == i).any()]
    return np.array(present, dtype=float), np.array([y[x == i].mean() for i in present])
