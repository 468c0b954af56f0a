"""Lines with bands: learning curves and performance profiles; and how an outcome is distributed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..curves import means
from .markup import Safe, number, tag
from .svg import (
    COLOURS,
    LEFT,
    RIGHT,
    FloatArray,
    Scale,
    band,
    colour,
    dash,
    heading,
    panel,
    polyline,
    scale,
    x_axis,
    y_axis,
)

if TYPE_CHECKING:
    import pandas as pd

_TOP, _BOTTOM = 44.0, 240.0
#: of longer lines, means of equal spans are drawn
MOST_PLACES = 200
_BINS = 30


def line_panel(
    identity: str,
    title: str,
    lines: pd.DataFrame,
    columns: tuple[str, str],
    labels: tuple[str, str],
    *,
    share: bool = False,
) -> Safe:
    """Return a line with a band for each ``level`` of ``lines``.

    ``columns`` are those of x and y, beside ``low`` and ``high``; ``labels`` name the axes.
    ``share``: y is a share, from 0 to 1, and falls in steps.
    """
    x_name, y_name = columns
    across = scale(lines[x_name], LEFT, RIGHT)
    up = Scale(0.0, 1.0, _BOTTOM, _TOP) if share else scale(lines[[y_name, "low", "high"]], _BOTTOM, _TOP)
    bands, drawn, told = [], [], []
    levels = list(dict.fromkeys(lines["level"]))
    for i, level in enumerate(levels):
        own = lines[lines["level"] == level]
        x, y, low, high = (own[name].to_numpy(float) for name in (x_name, y_name, "low", "high"))
        told.append(f"{level}: from {number(float(y[0]), 3)} to {number(float(y[-1]), 3)}")
        x, y, low, high = (_shown(values) for values in (x, y, low, high))
        if share:
            x, y, low, high = _steps(x, y, low, high)
        if len(levels) <= COLOURS:
            edges = up.many(low), up.many(high)
            bands.append(band(across.many(x), *edges, class_=f"band {colour(i)}"))
        line = tag("title", level)
        way = polyline(across.many(x), up.many(y), class_="line", stroke_dasharray=dash(i))
        drawn.append(tag("g", line, way, class_=f"level {colour(i)}"))
    return panel(
        identity,
        title,
        f"{labels[1]} against {labels[0]}. " + "; ".join(told),
        _BOTTOM + 34,
        heading(title),
        y_axis(up, LEFT, RIGHT, labels[1]),
        x_axis(across, _TOP, _BOTTOM, labels[0]),
        *bands,
        *drawn,
    )


def _shown(values: FloatArray) -> FloatArray:
    span = -(-len(values) // MOST_PLACES)
    return np.asarray(means(values, span)) if span > 1 else values


def _steps(x: FloatArray, *lines: FloatArray) -> tuple[FloatArray, ...]:
    """Return lines that keep each value until the next place."""
    return np.repeat(x, 2)[1:], *(np.repeat(line, 2)[:-1] for line in lines)


def histogram(identity: str, outcome: str, values: FloatArray) -> Safe:
    """Return how many runs have which ``values`` of an outcome."""
    known = values[np.isfinite(values)]
    across = scale(known, LEFT, RIGHT)
    bins = max(5, min(_BINS, round(2 * len(known) ** (1 / 3))))
    counts, edges = np.histogram(known, bins=bins, range=(across.low, across.high))
    up = scale([0, int(counts.max(initial=1))], 150.0, _TOP, zero=True)
    rects = []
    for n, a, b in zip(counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if n:
            hint = tag("title", f"{n:,} from {number(a, 3)} to {number(b, 3)}")
            place = {"x": across(a), "y": up(n), "width": across(b) - across(a) - 0.5}
            rects.append(tag("rect", hint, class_="bar c0", **place, height=up(0) - up(n)))
    title = f"How {outcome} is distributed"
    told = f"{len(known):,} runs"
    if len(known):
        told += f", from {number(float(known.min()), 3)} to {number(float(known.max()), 3)}"
    axes = y_axis(up, LEFT, RIGHT, "runs"), x_axis(across, _TOP, 150.0, outcome)
    return panel(identity, title, told, 184.0, heading(title), *axes, *rects)
