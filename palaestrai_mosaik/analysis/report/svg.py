"""What figures are drawn with: scales, axes, and the panel that holds them.

A panel is 360 units wide, the width of a phone's screen, so that its text can be read there;
wider screens show panels side by side. Colours are classes of the style sheet (``c0`` to
``c6``), which knows about dark screens and paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import east_asian_width

import numpy as np
import numpy.typing as npt

from .markup import Safe, number, pixel, shorten, tag

FloatArray = npt.NDArray[np.float64]

WIDTH = 360.0
#: where plots with a y axis begin and end
LEFT, RIGHT = 52.0, 350.0
#: so many colours can be told apart
COLOURS = 7
#: how a line is dashed; those of one colour differ in it
DASHES = (None, "5 2", "1.5 1.5", "6 2 1.5 2")
# Widths of characters by the size of the text, generous: fonts differ.
_PLAIN, _WIDE, _WIDEST = 0.62, 0.85, 1.05
#: sizes of text, as in the style sheet
SMALL, NORMAL, BOLD = 10.0, 11.0, 13.0


@dataclass(frozen=True)
class Scale:
    """Maps ``low`` to ``high`` (of the data) to ``start`` to ``end`` (of the panel)."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def many(self, values: npt.ArrayLike) -> FloatArray:
        """Return where the values lie."""
        data = np.asarray(values, dtype=float)
        low, high = self.low, self.high
        if self.log:
            low, high, data = math.log(low), math.log(high), np.log(data)
        return np.asarray(self.start + (data - low) / (high - low) * (self.end - self.start))

    def ticks(self, most: int = 6) -> list[float]:
        """Return round numbers within the scale, at most ``most`` of them."""
        if self.log:
            found = _log_ticks(self.low, self.high, most)
            if len(found) > 1:
                return found
        step = _step((self.high - self.low) / (most - 1))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(i * step, 12 - math.floor(math.log10(step))) for i in range(first, last + 1)]


def scale(values: npt.ArrayLike, start: float, end: float, *, zero: bool = False, log: bool = False) -> Scale:
    """Return a scale on which all finite ``values`` have a place, from and to round numbers.

    ``zero``: it begins at zero, or ends there. ``log``: all values are positive.
    """
    data = np.asarray(values, dtype=float).ravel()
    data = data[np.isfinite(data)]
    low, high = (float(data.min()), float(data.max())) if data.size else (0.0, 1.0)
    if log:
        return Scale(low, high if high > low else low * 10, start, end, log=True)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if not low < high:
        spread = abs(low) / 2 or 0.5
        low, high = low - spread * (not zero), high + spread
    step = _step((high - low) / 5)
    if not math.isfinite(step) or step <= 0 or low + step == low or high + step == high:
        return Scale(low, high, start, end)  # nearer together than round numbers can be
    return Scale(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, start, end)


def _step(least: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is at least ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, -(-(last - first + 1) // most))
    decades = [10.0**i for i in range(first, last + 1, every)]
    if len(decades) > 1:
        return decades
    places = [m * 10.0**i for i in range(first - 1, last + 1) for m in (1, 2, 5)]
    return [place for place in places if low * (1 - 1e-9) <= place <= high * (1 + 1e-9)]


def label(value: float, ticks: Sequence[float]) -> str:
    """Return the text of a tick, with the decimals that tell all of them apart."""
    if any(value and not 1e-4 <= abs(value) < 1e6 for value in ticks):
        return number(value, 3)
    for decimals in range(7):
        shown = [f"{tick:.{decimals}f}" for tick in ticks]
        if len(set(shown)) == len(ticks) and all(
            abs(float(text) - tick) <= 1e-6 * abs(tick) for text, tick in zip(shown, ticks, strict=True)
        ):
            return f"{value:.{decimals}f}"
    return number(value)


def x_axis(across: Scale, top: float, bottom: float, title: str) -> Safe:
    """Return grid lines from ``top`` to ``bottom`` with their numbers and the axis's title below."""
    ticks = across.ticks()
    parts = []
    for tick in ticks:
        x = across(tick)
        parts.append(
            tag(
                "g",
                tag("line", x1=x, x2=x, y1=top, y2=bottom),
                tag("text", label(tick, ticks), x=_within(x, label(tick, ticks)), y=bottom + 13.0),
                class_="tick",
            )
        )
    middle = (across.start + across.end) / 2
    parts.append(_title(title, middle, bottom + 28.0, across.end - across.start + 40, class_="axis-title"))
    return tag("g", *parts, class_="axis x")


def y_axis(up: Scale, left: float, right: float, title: str) -> Safe:
    """Return grid lines from ``left`` to ``right`` with their numbers, the axis's title above."""
    ticks = up.ticks()
    parts = []
    for tick in ticks:
        y = up(tick)
        parts.append(
            tag(
                "g",
                tag("line", x1=left, x2=right, y1=y, y2=y),
                tag("text", label(tick, ticks), x=left - 5.0, y=y + 3.5),
                class_="tick",
            )
        )
    parts.append(_title(title, 4.0, min(up.start, up.end) - 10.0, WIDTH - 10, class_="axis-title"))
    return tag("g", *parts, class_="axis y")


def x_names(places: Sequence[float], names: Sequence[str], top: float, bottom: float, title: str) -> Safe:
    """Return an axis of named places; names that would overlap take turns in two lines."""
    room = (places[1] - places[0]) if len(places) > 1 else RIGHT - LEFT
    two = any(width_of(name, SMALL) > room - 4 for name in names) and len(names) > 1
    width = room * (2 if two else 1) - 4
    parts = []
    for i, (x, name) in enumerate(zip(places, names, strict=True)):
        shown = fitted(name, width, SMALL)
        y = bottom + 13.0 + 11.0 * (two and i % 2)
        parts.append(
            tag(
                "g",
                tag("line", x1=x, x2=x, y1=top, y2=bottom),
                tag("text", tag("title", name), shown, x=_within(x, shown), y=y),
                class_="tick",
            )
        )
    middle = (LEFT + RIGHT) / 2
    parts.append(_title(title, middle, bottom + (39.0 if two else 28.0), RIGHT - LEFT, class_="axis-title"))
    return tag("g", *parts, class_="axis x")


def _within(x: float, text: str) -> float:
    """Return where the middle of ``text`` goes so that it does not leave the panel."""
    half = width_of(text, SMALL) / 2
    return min(max(x, half), max(WIDTH - half, half))


def _title(text: str, x: float, y: float, width: float, **attributes: Any) -> Safe:
    return tag("text", tag("title", text), fitted(text, width, SMALL), x=x, y=y, **attributes)


def width_of(text: str, size: float = NORMAL) -> float:
    """Return about how wide ``text`` is, rather too much than too little."""
    return size * sum(_width(character) for character in text)


def _width(character: str) -> float:
    if east_asian_width(character) in "WF" or character in "mwMW@%\u2026":
        return _WIDEST
    return _WIDE if character.isupper() or character in "&<>=+~#" else _PLAIN


def fitted(text: str, width: float, size: float = NORMAL) -> str:
    """Return ``text``, cut to what fits into ``width`` units."""
    shown, most = shorten(text, 400), 399
    while most > 2 and width_of(shown, size) > width:
        most = min(most, len(shown)) - 1
        shown = shorten(text, most)
    return shown


def whisker(scale: Scale, low: float, high: float, y: float, *, cap: float = 3.0) -> Safe:
    """Return an interval as a horizontal line with caps; nothing where there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return Safe("")
    a, b = pixel(scale(low)), pixel(scale(high))
    top, bottom = pixel(y - cap), pixel(y + cap)
    return tag("path", class_="whisker", d=f"M{a} {pixel(y)}H{b}M{a} {top}V{bottom}M{b} {top}V{bottom}")


def polyline(x: FloatArray, y: FloatArray, **attributes: Any) -> Safe:
    """Return a line through the points; it is interrupted where a coordinate is not finite."""
    return tag("path", d=path(x, y), **attributes)


def path(x: FloatArray, y: FloatArray) -> str:
    """Return the ``d`` of a line through the points, interrupted where one is not finite."""
    parts = []
    pen = "M"
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if math.isfinite(a) and math.isfinite(b):
            parts.append(f"{pen}{pixel(a)} {pixel(b)}")
            pen = "L"
        else:
            pen = "M"
    return "".join(parts)


def band(x: FloatArray, low: FloatArray, high: FloatArray, **attributes: Any) -> Safe:
    """Return the area between two lines, in pieces where they are interrupted."""
    known = np.isfinite(x) & np.isfinite(low) & np.isfinite(high)
    parts = []
    edges = np.flatnonzero(np.diff(np.concatenate(([False], known, [False])).astype(int)))
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        piece = slice(int(start), int(end))
        outline = np.concatenate((x[piece], x[piece][::-1])), np.concatenate((low[piece], high[piece][::-1]))
        parts.append(path(*outline) + "Z")
    return tag("path", d="".join(parts), **attributes) if parts else Safe("")


def dots(x: FloatArray, y: FloatArray, **attributes: Any) -> Safe:
    """Return the points as one path of strokes without length, to be drawn with round ends."""
    d = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    return tag("path", d=d, **attributes)


def panel(identity: str, title: str, description: str, height: float, *content: object) -> Safe:
    """Return a picture with a title, and a description for those who cannot see it."""
    return tag(
        "svg",
        tag("title", title, id=f"{identity}-t"),
        tag("desc", description, id=f"{identity}-d"),
        *content,
        id=identity,
        class_="panel",
        viewBox=f"0 0 {pixel(WIDTH)} {pixel(height)}",
        role="img",
        aria_labelledby=f"{identity}-t {identity}-d",
    )


def heading(text: str) -> Safe:
    """Return the first line of a panel."""
    shown = fitted(text, WIDTH - 8, BOLD)
    return tag("text", tag("title", text), shown, class_="heading", x=4.0, y=13.0)


def colour(number: int) -> str:
    """Return the class of the colour ``number``."""
    return f"c{number % COLOURS}"


def dash(number: int) -> str | None:
    """Return how the line ``number`` is dashed."""
    return DASHES[number // COLOURS % len(DASHES)]


def legend(names: Sequence[str]) -> Safe:
    """Return which name has which colour, as a list below a figure."""
    entries = []
    for i, name in enumerate(names):
        line = tag("path", d="M0 5H22", stroke_dasharray=dash(i), class_="line")
        swatch = tag("svg", line, class_=colour(i), viewBox="0 0 22 10", aria_hidden="true")
        entries.append(tag("li", swatch, name))
    return tag("ul", *entries, class_="legend")
