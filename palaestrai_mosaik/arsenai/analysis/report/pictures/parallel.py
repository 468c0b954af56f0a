"""Parallel coordinates: a line for each run through its factors to its outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray, IntVector

from ..numbers import typeset
from .canvas import (
    BACK,
    INK,
    QUIET,
    RAMP,
    SMALL,
    Picture,
    fitted,
    in_units,
    legend_entry,
    log_ticks,
    ticks,
    width_of,
)

#: limit on the runs behind the best and the worst, evenly spread over the ranks of the outcome
MOST_RUNS = 350
#: limit on the emphasised best runs, and worst runs
EMPHASISED = 10
#: limits on the factors, on a page and on a phone
MOST_FACTORS, MOST_FACTORS_NARROW = 9, 3
#: names of the first and the last runs, by the better direction of the outcome
ENDS = {"higher": ("best", "worst"), "lower": ("best", "worst"), None: ("highest", "lowest")}
_NARROW = 500
# Upper limit on the number of ticks.
_TICKS = 7
_INACTIVE = -0.09


@dataclass(frozen=True)
class Coordinate:
    """An axis: the values of the runs (NaN: inactive), its ends, and its levels if it has no numbers."""

    name: str
    values: FloatArray
    span: tuple[float, float]
    levels: tuple[str, ...] = ()
    log: bool = False

    def places(self) -> FloatArray:
        """Return the positions of the values on the axis, from 0 to 1."""
        low, high = self.span
        values = self.values
        if self.log:
            values, low, high = np.log(values), math.log(low), math.log(high)
        positions = (values - low) / (high - low)
        return np.where(np.isfinite(positions), positions, _INACTIVE)

    def marks(self, narrow: bool) -> list[tuple[float, str]]:
        """Return the positions and texts of the ticks."""
        if self.levels:
            return [(i / max(1, len(self.levels) - 1) if len(self.levels) > 1 else 0.5, text)
                    for i, text in enumerate(self.levels)]  # fmt: skip
        low, high = self.span
        if self.log:
            values, texts = log_ticks(low, high, 4 if narrow else 6)
            return [
                (math.log(value / low) / math.log(high / low), text)
                for value, text in zip(values, texts, strict=True)
            ]
        values, texts, _ = ticks(low, high, _TICKS)
        pairs = [((value - low) / (high - low), text) for value, text in zip(values, texts, strict=True)]
        return [(position, text) for position, text in pairs if -1e-9 <= position <= 1 + 1e-9]

    @property
    def exponent(self) -> int:
        """The exponent of the unit of the ticks' numbers, a power of ten."""
        return 0 if self.levels or self.log else ticks(*self.span, _TICKS)[2]

    @property
    def label(self) -> str:
        """The name with the unit and the power of ten of its numbers."""
        return in_units(self.name, self.exponent)


@dataclass(frozen=True)
class Drawn:
    """The runs to draw: the best and the worst, and ``others`` behind them, in the order of their ranks."""

    best: IntVector
    worst: IntVector
    others: IntVector
    runs: int

    @property
    def all(self) -> int:
        """The number of lines."""
        return len(self.best) + len(self.worst) + len(self.others)


@dataclass(frozen=True)
class Lines:
    """Runs as lines.

    Attributes:
        coordinates: the axes; the last one is the outcome.
        uids: the uids of the runs.
        drawn: the runs to draw.
        ends: the names of the best and the worst runs.
    """

    coordinates: Sequence[Coordinate]
    uids: Sequence[str]
    drawn: Drawn
    ends: tuple[str, str]


def choose(outcome: FloatArray, sign: int) -> Drawn:
    """Select the runs to draw; ``sign``: 1 if higher is better, -1 if lower is."""
    finite = np.flatnonzero(np.isfinite(outcome))
    order = finite[np.argsort(-sign * outcome[finite], kind="stable")]
    each = min(EMPHASISED, len(order) // 3)
    best, worst = order[:each], order[len(order) - each :]
    middle = order[each : len(order) - each]
    kept = np.unique(np.linspace(0, len(middle) - 1, min(len(middle), MOST_RUNS)).round().astype(int))
    return Drawn(best, worst, middle[kept] if len(middle) else middle, len(order))


def parallel_picture(identity: str, lines: Lines, width: float) -> Picture:
    """Draw the runs as lines through their factors to their outcome."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    narrow, drawn = width < _NARROW, lines.drawn
    *factors, outcome = lines.coordinates
    coordinates = [*factors[: MOST_FACTORS_NARROW if narrow else MOST_FACTORS], outcome]
    height = 330.0 if narrow else 380.0
    picture = Picture(identity, f"The runs, their factors and {outcome.name}", width, height)
    picture.heading()
    each = (width - 24) / len(coordinates)
    # The numbers of an axis are on its left.
    at = [12 + each * (i + 0.62) for i in range(len(coordinates))]
    two = any(width_of(item.label) > each - 6 for item in coordinates)
    top = 80.0 if two else 64.0
    some_inactive = any(not np.isfinite(item.values).all() for item in coordinates[:-1])
    bottom = height - (36.0 if some_inactive else 18.0)
    axes = picture.axes((0, width, 0, height))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    heights = np.column_stack([bottom - coordinate.places() * (bottom - top) for coordinate in coordinates])

    def path(rows: IntVector) -> Path:
        vertices = np.column_stack([np.tile(at, len(rows)), heights[rows].ravel()])
        codes = np.full(len(vertices), Path.LINETO)
        codes[:: len(at)] = Path.MOVETO
        return Path(vertices, codes)

    for colour, part in zip(RAMP, np.array_split(drawn.others, len(RAMP)), strict=True):
        if len(part):
            runs = PathPatch(path(part), fill=False, ec=colour, lw=0.8, alpha=0.32)
            picture.tell(axes.add_patch(runs), "runs")
    for rows, colour, style, kind in (
        (drawn.worst, RAMP[-1], (0, (5, 2)), "worst"),
        (drawn.best, RAMP[0], "solid", "best"),
    ):
        for row in rows.tolist():
            item = PathPatch(path(np.array([row])), fill=False, ec=colour, lw=1.8, ls=style, alpha=0.9)
            value = typeset(float(outcome.values[row]))
            picture.tell(axes.add_patch(item), kind, f"{lines.uids[row]}: {outcome.name} {value}")
    for i, (x, coordinate) in enumerate(zip(at, coordinates, strict=True)):
        row = i % 2 if two else None
        _draw_axis(picture, coordinate, (x, top, bottom, each), row, last=coordinate is outcome)
    _legend(picture, len(drawn.best), lines.ends)
    picture.described = (
        f"Parallel coordinates of {drawn.all:,} of {drawn.runs:,} runs: {', '.join(c.name for c in coordinates)}. "
        f"The {lines.ends[0]} {len(drawn.best)} and the {lines.ends[1]} {len(drawn.worst)} stand out."
    )
    return picture


def _draw_axis(
    picture: Picture,
    coordinate: Coordinate,
    box: tuple[float, float, float, float],
    row: int | None,
    *,
    last: bool,
) -> None:
    from matplotlib.lines import Line2D

    x, top, bottom, each = box
    width, height = picture.width, picture.height
    line = Line2D([x / width] * 2, [1 - top / height, 1 - bottom / height], color=INK, lw=2 if last else 1.2)
    picture.tell(picture.figure.add_artist(line), "coordinate", coordinate.name)
    # Names without enough space alternate between two lines.
    room = each - 6 if row is None else 2 * each - 10
    # The outermost names stay inside.
    half = width_of(fitted(coordinate.label, room)) / 2
    centre = min(max(x, half + 4), width - half - 4)
    weight = "bold" if last else "normal"
    picture.text(centre, top - 14 - 15 * (row or 0), coordinate.label, room, ha="center", weight=weight)
    marks = coordinate.marks(width < _NARROW)
    if not last and not np.isfinite(coordinate.values).all():
        marks.append((_INACTIVE, "inactive"))
    for share, text in marks:
        y = bottom - share * (bottom - top)
        picture.text(x - 5, y + 3.5, text, 0.85 * each, size=SMALL, ha="right", color=QUIET, bbox=BACK)


def _legend(picture: Picture, each: int, ends: tuple[str, str]) -> None:
    x = 8.0
    for colour, style, end in ((RAMP[0], "solid", ends[0]), (RAMP[-1], (0, (5, 2)), ends[1])):
        text = f"{end} {each}"
        legend_entry(picture, (x, 34.0), text, 100, color=colour, ls=style)
        x += 44 + width_of(text, SMALL)
