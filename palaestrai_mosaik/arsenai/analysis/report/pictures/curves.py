"""Lines with bands: learning curves and performance profiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.plot.curves import means
from palaestrai_mosaik.types.arrays import FloatArray

from ..numbers import typeset
from .canvas import (
    DASHES,
    SERIES,
    Picture,
    legend,
    legend_height,
    limits,
    steps,
    x_axis,
    y_axis,
    y_room,
)

if TYPE_CHECKING:
    import pandas as pd

#: longer lines are drawn as means of equal spans
MOST_PLACES = 200
#: with more lines, bands would hide each other
MOST_BANDS = 4


@dataclass(frozen=True)
class Curves:
    """A line with a band for each ``level`` of ``frame``.

    Attributes:
        frame: ``level``, the columns of x and y, ``low`` and ``high``.
        columns: the names of the columns of x and y.
        labels: the labels of the axes.
        share: whether y is a share, from 0 to 1, that falls in steps.
    """

    frame: pd.DataFrame
    columns: tuple[str, str]
    labels: tuple[str, str]
    share: bool = False


def line_picture(identity: str, title: str, lines: Curves, width: float) -> Picture:
    """Draw the lines over the whole ``width``."""
    frame, (x_name, y_name) = lines.frame, lines.columns
    levels = list(dict.fromkeys(map(str, frame["level"])))
    names = levels if len(levels) > 1 else []
    above = 24 + (legend_height(names, width) if names else 0)
    top, room = above + 24, 300.0 if width > 500 else 230.0
    picture = Picture(identity, title, width, top + room + 38)
    picture.heading()
    if names:
        legend(picture, names, 22)
    drawn = frame[[y_name, "low", "high"]] if len(levels) <= MOST_BANDS else frame[[y_name]]
    up = (0.0, 1.0) if lines.share else limits(drawn)
    ends = float(frame[x_name].min()), float(frame[x_name].max())
    across = ends if ends[0] < ends[1] else limits(ends)
    axes = picture.axes((y_room(up), width - 12, top, top + room))
    y_axis(axes, up, lines.labels[1])
    x_axis(axes, across, lines.labels[0], width - y_room(up) - 12)
    descriptions = []
    for i, level in enumerate(levels):
        rows = frame[frame["level"].astype(str) == level]
        x, y, low, high = (rows[name].to_numpy(float) for name in (x_name, y_name, "low", "high"))
        descriptions.append(f"{level}: from {typeset(float(y[0]), 3)} to {typeset(float(y[-1]), 3)}")
        x, y, low, high = (_shown(values) for values in (x, y, low, high))
        if lines.share:
            x, y, low, high = steps(x, y, low, high)
        colour = SERIES[i % len(SERIES)]
        if len(levels) <= MOST_BANDS and np.isfinite(low).any():
            axes.fill_between(x, low, high, color=colour, alpha=0.16, lw=0)
        (line,) = axes.plot(
            x, y, color=colour, lw=2, linestyle=DASHES[i // len(SERIES) % len(DASHES)], clip_on=False
        )
        picture.tell(line, "line", level)
    picture.described = f"{lines.labels[1]} against {lines.labels[0]}. {'; '.join(descriptions)}."
    return picture


def _shown(values: FloatArray) -> FloatArray:
    span = -(-len(values) // MOST_PLACES)
    return np.asarray(means(values, span)) if span > 1 else values
