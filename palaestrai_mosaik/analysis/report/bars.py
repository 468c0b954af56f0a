"""Bars of sensitivity indices with their intervals, and intervals beside each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .markup import Safe, number, tag
from .svg import (
    SMALL,
    WIDTH,
    FloatArray,
    Scale,
    colour,
    dots,
    fitted,
    heading,
    panel,
    scale,
    whisker,
    width_of,
    x_axis,
)

_START, _END = 8.0, 348.0
_TOP = 26.0
_BAR, _GAP = 9.0, 3.0
_LABEL = 16.0
# room for dots below an interval
_DOTS = 10.0
#: of more single values, so many are drawn
MOST_DOTS = 200


@dataclass(frozen=True)
class Mark:
    """A value with its interval (NaN: none)."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def known(self) -> bool:
        return math.isfinite(self.value)

    @property
    def spread(self) -> bool:
        """Whether there is an interval; one without width comes from one distinct value and is none."""
        return math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high

    def __str__(self) -> str:
        if not self.known:
            return "unknown"
        if not self.spread:
            return number(self.value, 3)
        return f"{number(self.value, 3)} ({number(self.low, 3)} to {number(self.high, 3)})"


def bars(
    identity: str, title: str, rows: Sequence[tuple[str, Sequence[Mark]]], series: Sequence[str], axis: str
) -> Safe:
    """Return horizontal bars: for each of ``rows`` a name and a mark for each of ``series``."""
    found = [(mark.value, mark.low, mark.high) for _, marks in rows for mark in marks]
    across = scale(found, _START, _END, zero=True)
    step = _LABEL + len(series) * (_BAR + _GAP) + 6
    bottom = _TOP + step * len(rows)
    last = f"{series[-1]} " if len(series) > 1 else ""
    drawn = [_bar_row(across, _TOP + i * step, name, marks, last) for i, (name, marks) in enumerate(rows)]
    described = "; ".join(
        f"{name}: " + ", ".join(f"{one} {mark}" for one, mark in zip(series, marks, strict=True))
        for name, marks in rows[:20]
    )
    return panel(
        identity,
        title,
        f"Bars of {' and '.join(series)}. {described}",
        bottom + 34,
        heading(title),
        x_axis(across, _TOP, bottom, axis),
        *drawn,
    )


def _bar_row(across: Scale, y: float, name: str, marks: Sequence[Mark], last: str) -> Safe:
    parts = [_row_label(name, f"{last}{marks[-1]}", y)]
    zero = across(0.0)
    for i, mark in enumerate(marks):
        top = y + _LABEL + i * (_BAR + _GAP)
        if mark.known:
            end = across(mark.value)
            bar = tag(
                "rect",
                tag("title", f"{name}: {mark}"),
                class_=f"bar {colour(i)}",
                x=min(zero, end),
                y=top,
                width=abs(end - zero),
                height=_BAR,
            )
            parts += [bar, whisker(across, mark.low, mark.high, top + _BAR / 2)]
    return tag("g", *parts, class_="row")


def intervals(
    identity: str,
    title: str,
    rows: Sequence[tuple[str, Mark]],
    axis: str,
    *,
    origin: float | None = None,
    ends: tuple[float, ...] = (),
    single: Sequence[FloatArray] = (),
) -> Safe:
    """Return a point with its interval for each of ``rows``; ``origin`` is marked by a line.

    The axis holds ``origin`` and ``ends``, whatever the values, and 0 where no value has an interval, or
    several values behind it. ``single``: for each row the values
    that stand behind it, drawn as dots below its interval (of many, ``MOST_DOTS`` quantiles).
    """
    behind = [_thinned(values) for values in single] or [np.empty(0)] * len(rows)
    found = [end for _, mark in rows for end in (mark.value, mark.low, mark.high)]
    found += [float(value) for values in behind for value in values]
    # where nothing tells how values scatter, an axis from the least to the largest would make much of any difference
    scatters = any(mark.spread for _, mark in rows) or any(len(np.unique(values)) > 1 for values in behind)
    across = scale([*found, *ends, *([] if origin is None else [origin])], _START, _END, zero=not scatters)
    room = _DOTS if any(map(len, behind)) else 0.0
    step = _LABEL + 16 + room
    bottom = _TOP + step * len(rows)
    drawn = []
    if origin is not None:
        x = across(origin)
        drawn.append(tag("line", class_="origin", x1=x, x2=x, y1=_TOP, y2=bottom))
    for i, ((name, mark), values) in enumerate(zip(rows, behind, strict=True)):
        y = _TOP + i * step
        parts = [_row_label(name, str(mark), y)]
        if mark.known:
            parts.append(whisker(across, mark.low, mark.high, y + _LABEL + 6, cap=4.0))
            place = {"cx": across(mark.value), "cy": y + _LABEL + 6, "r": 4.0}
            parts.append(tag("circle", tag("title", f"{name}: {mark}"), class_="point", **place))
        if len(values):
            places = across.many(values), np.full(len(values), y + _LABEL + 6 + room)
            parts.append(dots(*places, class_=f"dots single {colour(1)}"))
        drawn.append(tag("g", *parts, class_=f"row {colour(0)}"))
    described = "; ".join(f"{name}: {mark}" for name, mark in rows[:20])
    return panel(
        identity,
        title,
        f"Points with intervals. {described}",
        bottom + 34,
        heading(title),
        x_axis(across, _TOP, bottom, axis),
        *drawn,
    )


def _thinned(values: FloatArray) -> FloatArray:
    """Return at most ``MOST_DOTS`` of the values, evenly spread over their ranks."""
    ordered = np.sort(values)
    places = np.linspace(0, len(ordered) - 1, min(len(ordered), MOST_DOTS)).round().astype(int)
    return np.asarray(ordered[places])


def _row_label(name: str, value: str, y: float) -> Safe:
    """Return the name on the left and the number on the right, above what is drawn."""
    room = WIDTH - 24 - width_of(value, SMALL)
    return tag(
        "g",
        tag("text", tag("title", name), fitted(name, room), class_="name", x=_START, y=y + 12),
        tag("text", value, class_="value", x=_END, y=y + 12),
    )
