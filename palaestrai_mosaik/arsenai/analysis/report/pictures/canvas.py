"""Turn a matplotlib figure into SVG for a page: small, reproducible, in the colours of the page.

Figures are drawn in marker colours (:data:`INK`, :data:`SERIES`, ...). In the SVG these become variables of the style
sheet, which adapts to dark screens and paper. Text stays text, in the fonts of the page.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width
from warnings import catch_warnings, filterwarnings
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from palaestrai_mosaik.plot.columns import UNITS
from palaestrai_mosaik.types.arrays import FloatArray

from ..numbers import exponent_of, power_of_ten, shorten, times_ten
from ..wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Marker colours; variables of the style sheet replace them.
INK, QUIET, RULE, PAPER = "#010101", "#020202", "#030303", "#040404"
#: distinguishable for colour-blind people
SERIES = tuple(f"#0501{i:02x}" for i in range(1, 8))
#: box behind text on lines
BACK: Any = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
#: colours from the best outcome to the worst
RAMP = tuple(f"#0601{i:02x}" for i in range(1, 8))
_VARIABLES = {
    **{INK: "ink", QUIET: "quiet", RULE: "rule", PAPER: "paper"},
    **{colour: f"c{i}" for i, colour in enumerate(SERIES)},
    **{colour: f"r{i}" for i, colour in enumerate(RAMP)},
}
#: dashes, which distinguish lines of one colour
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
#: sizes of text in units of a picture
SMALL, NORMAL, BOLD = 10.5, 11.5, 13.0
#: the widths of pictures: in a row of several, of the whole page, and of the whole page on a phone
PANEL, WIDE, NARROW = 360, 820, 360

_RC: Any = {
    # Names given by users may contain dollar signs.
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "font.family": "DejaVu Sans",
    "font.size": NORMAL,
    "axes.titlesize": BOLD,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": SMALL,
    "axes.labelcolor": QUIET,
    "axes.edgecolor": RULE,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.bottom": False,
    "ytick.left": False,
    "figure.facecolor": "none",
    # The unit of a picture is a point.
    "figure.dpi": 72,
    "path.simplify": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "palaestrai-mosaik",
}
_EMPTY = {"Date": None, "Creator": None, "Format": None, "Type": None}
_NUMBER = re.compile(r"-?\d+\.\d+")
_XLINK, _SVG = "{http://www.w3.org/1999/xlink}href", "{http://www.w3.org/2000/svg}"
# An axis is longer than its values by this share at each end.
_MARGIN = 0.04
# Generous widths of characters relative to the text size, because fonts differ.
_CHARACTER, _CAPITAL, _WIDEST = 0.6, 0.8, 1.0


@contextmanager
def drawing() -> Iterator[None]:
    """Draw with the settings of reports instead of the user's."""
    import matplotlib as mpl

    with catch_warnings():
        # The reader's browser may have a font for characters that matplotlib has none for.
        filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(_RC)
            yield


class Picture:
    """A figure with a title, and a description for readers who cannot see it."""

    def __init__(self, identity: str, title: str, width: float, height: float):
        from matplotlib.figure import Figure

        self.identity, self.title, self.described = identity, title, ""
        self.width, self.height = width, height
        self.figure: Figure = Figure(figsize=(width / 72, height / 72))
        self._told: dict[str, tuple[str, str]] = {}

    def axes(self, box: Sequence[float]) -> Axes:
        """Add axes within ``box``: left, right, top and bottom in units of the picture, from its upper left."""
        left, right, top, bottom = box
        shares = (left / self.width, 1 - bottom / self.height)
        size = ((right - left) / self.width, (bottom - top) / self.height)
        axes: Axes = self.figure.add_axes((*shares, *size))
        return axes

    def heading(self, text: str | None = None, x: float = 4, y: float = 14) -> None:
        """Write the title, or another ``text``, above the axes."""
        self.text(
            x,
            y,
            self.title if text is None else text,
            self.width - x - 4,
            size=BOLD,
            weight="bold",
            color=INK,
        )

    def text(self, x: float, y: float, text: str, room: float, **how: Any) -> None:
        """Write ``text`` at a position in units of the picture, cut to ``room``; its tooltip has the full text."""
        size, kind = how.pop("size", NORMAL), how.pop("kind", "text")
        fitted_text = fitted(text, room, size)
        drawn = self.figure.text(
            x / self.width, 1 - y / self.height, fitted_text, size=size, color=how.pop("color", INK), **how
        )
        self.tell(drawn, kind, text)

    def tell(self, artist: Artist, kind: str, text: str = "") -> None:
        """Give an artist a class, ``kind``, and a tooltip."""
        key = f"told-{len(self._told)}"
        self._told[key] = (kind, text)
        artist.set_gid(key)

    def svg(self, kind: str = "panel") -> Markup:
        """Render the picture as an element of a page."""
        stream = io.StringIO()
        self.figure.savefig(stream, format="svg", metadata=_EMPTY)
        root = ElementTree.fromstring(stream.getvalue())
        parts = [_written(child, self.identity, self._told) for child in root]
        title, described = escape(printable(self.title)), escape(printable(self.described))
        return Markup(
            f'<svg id="{self.identity}" class="picture {kind}" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'role="img" aria-labelledby="{self.identity}-t {self.identity}-d">'
            f'<title id="{self.identity}-t">{title}</title><desc id="{self.identity}-d">{described}</desc>'
            f"{''.join(parts)}</svg>"
        )


def wide(identity: str, draw: Callable[[str, float], Picture]) -> Markup:
    """Draw pictures for a page and for a phone by ``draw(identity, width)``; the style sheet shows one of them."""
    return draw(identity, WIDE).svg("wide") + draw(f"{identity}-narrow", NARROW).svg("narrow")


def _written(element: ElementTree.Element, prefix: str, labels: dict[str, tuple[str, str]]) -> str:
    """Serialise an element of matplotlib's SVG without the parts that a page does not need."""
    name = element.tag.removeprefix(_SVG)
    identity = element.get("id", "")
    if name in ("metadata", "style", "clipPath"):
        return ""
    inside = "".join(_written(child, prefix, labels) for child in element)
    if name == "text":
        inside = str(escape(printable(element.text or "")))
    attributes = _attributes(element, name, prefix)
    if name == "g":
        kind, text = labels.get(identity, ("", ""))
        for start, axis_kind in (("matplotlib.axis_", "axis"), ("xtick_", "tick"), ("ytick_", "tick")):
            if identity.startswith(start):
                kind = axis_kind
        if identity == "patch_1" or not inside:
            # The page provides the background.
            return ""
        if kind:
            attributes = f' class="{kind}"{attributes}'
        if text:
            inside = f"<title>{escape(printable(text))}</title>{inside}"
        if not attributes:
            return inside
    if name == "image" and identity in labels:
        attributes = f' class="{labels[identity][0]}"{attributes}'
    if name == "defs" and not inside:
        return ""
    return f"<{name}{attributes}>{inside}</{name}>" if inside else f"<{name}{attributes}/>"


def _attributes(element: ElementTree.Element, name: str, prefix: str) -> str:
    found = []
    for key, value in element.attrib.items():
        key = "href" if key == _XLINK else key
        if key == "clip-path" or (key == "transform" and value.startswith("rotate(-0 ")):
            continue
        if key == "id":
            if name == "g":
                continue
            value = f"{prefix}-{value}"
        elif key == "href" and value.startswith("#"):
            value = f"#{prefix}-{value[1:]}"
        elif key == "href":
            value = "".join(value.split())
        elif key == "style":
            value = _style(value, name)
        else:
            value = _NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value)
            value = re.sub(r"\s*([A-Za-z])\s*", r"\1", value).strip() if key == "d" else value
            value = _without_length(value) if key == "d" else value
        if value:
            found.append(f' {key}="{escape(value)}"')
    return "".join(found)


def _without_length(path: str) -> str:
    """Shorten the strokes of zero length in a path, which are points."""
    return re.sub(r"M(\S+ \S+?)L\1(?=[MLz]|$)", r"M\1h0", path)


def _style(style: str, name: str) -> str:
    kept = []
    for part in style.split("; "):
        key, _, value = part.partition(": ")
        if key in ("font-family", "stroke-linejoin") or part in (
            "stroke-linecap: square",
            "stroke-opacity: 1",
        ):
            continue
        if value in _VARIABLES:
            value = f"var(--{_VARIABLES[value]})"
        kept.append(f"{key}:{value}")
    if name == "text" and not any(part.startswith("fill:") for part in kept):
        kept.append(f"fill:var(--{_VARIABLES[INK]})")
    return ";".join(kept)


def width_of(text: str, size: float = NORMAL) -> float:
    """Estimate the width of ``text``, with a tendency to overestimate."""
    return size * sum(map(_width, text))


def _width(character: str) -> float:
    if east_asian_width(character) in "WF" or character in "mwMW@%\u2026":
        return _WIDEST
    return _CAPITAL if character.isupper() or character in "&<>=+~#" else _CHARACTER


def fitted(text: str, width: float, size: float = NORMAL) -> str:
    """Cut ``text`` to what fits into ``width`` units, and make it printable."""
    result, most = shorten(printable(text), 400), 399
    while most > 2 and width_of(result, size) > width:
        most = min(most, len(result)) - 1
        result = shorten(result, most)
    return result


def limits(values: npt.ArrayLike, *, zero: bool = False) -> tuple[float, float]:
    """Return the ends of an axis for all finite ``values``, with a margin.

    ``zero``: whether the axis begins or ends at zero.
    """
    data = np.asarray(values, dtype=float).ravel()
    data = data[np.isfinite(data)]
    low, high = (float(data.min()), float(data.max())) if data.size else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if not low < high:
        spread = abs(low) / 2 or 0.5
        low, high = low - spread * (not zero), high + spread
    margin = _MARGIN * (high - low)
    if not math.isfinite(margin) or low - margin == low or high + margin == high:
        return low, high  # floats cannot represent the margin
    return low - margin * (not zero or low < 0), high + margin * (not zero or high > 0)


def _step(least: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is at least ``least``."""
    if not 0 < least < math.inf:
        return least
    power = 10.0 ** math.floor(math.log10(least))
    if not 0 < power < math.inf:
        return least
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def ticks(low: float, high: float, most: int = 7) -> tuple[list[float], list[str], int]:
    """Return round numbers from ``low`` to ``high``, their texts, and the exponent of their unit, a power of ten."""
    step = _step((high - low) / (most - 1))
    if not 0 < step < math.inf or low + step == low:
        values = [low, high]
    else:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        digits = 12 - math.floor(math.log10(step))
        values = [round(i * step, min(digits, 300)) for i in range(first, last + 1)]
    exponent = exponent_of(max(map(abs, values), default=0.0))
    unit = 10.0**exponent
    # Numbers that are close together differ in the digits of their step.
    decimals = max(0, -math.floor(math.log10(step / unit) + 1e-9)) if step > 0 else 0
    texts = [f"{value / unit:,.{min(decimals, 15)}f}".replace("-", "\N{MINUS SIGN}") for value in values]
    return values, texts, exponent


def log_ticks(low: float, high: float, most: int = 6) -> tuple[list[float], list[str]]:
    """Return decades between ``low`` and ``high`` with their texts, or 1, 2 and 5 times decades if there are few."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, -(-(last - first + 1) // most))
    decades = list(range(first, last + 1, every))
    if len(decades) > 1:
        plain = all(-3 <= number <= 4 for number in decades)
        return [10.0**number for number in decades], [
            f"{10.0**number:g}" if plain else power_of_ten(number) for number in decades
        ]
    values = [m * 10.0**i for i in range(first - 1, last + 1) for m in (1, 2, 5)]
    values = [number for number in values if low * (1 - 1e-9) <= number <= high * (1 + 1e-9)] or [low, high]
    return values, [f"{number:.3g}" for number in values]


def in_units(label: str, exponent: int) -> str:
    """Return the label of an axis with a power of ten as the unit of its numbers."""
    if not exponent:
        return label
    # The label may end with a unit.
    name, bracket, unit = label.rpartition(" (")
    if bracket and unit.removesuffix(")") in UNITS.values():
        return f"{name} ({times_ten(exponent)} {unit}"
    return f"{label} ({times_ten(exponent)})"


def x_axis(axes: Axes, span: tuple[float, float], label: str, room: float, *, log: bool = False) -> None:
    """Set the numbers and the label of the horizontal axis."""
    exponent = 0
    most = max(4, int(room // 50))
    if log:
        axes.set_xscale("log")
        values, texts = log_ticks(*span, most)
    else:
        values, texts, exponent = ticks(*span, min(most, 8))
    axes.set_xlim(*span)
    axes.set_xticks(values, texts)
    axes.set_xticks([], minor=True)
    axes.xaxis.grid(True)
    axes.set_xlabel(fitted(in_units(label, exponent), room, SMALL), labelpad=2)


def y_axis(axes: Axes, span: tuple[float, float], label: str) -> None:
    """Set the numbers of the vertical axis, and the label above it."""
    values, texts, exponent = ticks(*span)
    axes.set_ylim(*span)
    axes.set_yticks(values, texts)
    axes.yaxis.grid(True)
    axes.set_title(
        fitted(in_units(label, exponent), 300, SMALL), fontsize=SMALL, color=QUIET, fontweight="normal", pad=5
    )


def y_room(span: tuple[float, float]) -> float:
    """Return the width that the numbers of a vertical axis need, in units."""
    return max([width_of(text, SMALL) for text in ticks(*span)[1]], default=0.0) * 0.95 + 12


def points(axes: Axes, x: npt.ArrayLike, y: npt.ArrayLike, **how: Any) -> Artist:
    """Draw points as one path of strokes of zero length, which takes a tenth of the bytes of markers."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    vertices = np.repeat(np.column_stack([np.asarray(x, float), np.asarray(y, float)]), 2, axis=0)
    codes = np.tile([Path.MOVETO, Path.LINETO], len(vertices) // 2)
    patch = PathPatch(Path(vertices, codes), fill=False, capstyle="round", clip_on=False, **how)
    axes.add_patch(patch)
    return patch


def steps(x: FloatArray, *lines: FloatArray) -> tuple[FloatArray, ...]:
    """Return step lines that keep each value until the next x."""
    return np.repeat(x, 2)[1:], *(np.repeat(line, 2)[:-1] for line in lines)


def _legend_places(names: Sequence[str], width: float) -> Iterator[tuple[float, float, float]]:
    """Yield x, y and width of each name of a legend, in lines as wide as the picture."""
    x, y = 8.0, 10.0
    for name in names:
        room = min(width_of(name, SMALL), width - 60)
        if x > 8 and x + 34 + room > width - 8:
            x, y = 8.0, y + 16
        yield x, y, room
        x += 30 + room + 16


def legend(picture: Picture, names: Sequence[str], top: float) -> None:
    """Write a legend of colours and dashes, in lines from ``top`` on."""
    for i, (x, below, room) in enumerate(_legend_places(names, picture.width)):
        look = {"color": SERIES[i % len(SERIES)], "ls": DASHES[i // len(SERIES) % len(DASHES)]}
        legend_entry(picture, (x, top + below), names[i], room, **look)


def legend_entry(picture: Picture, place: tuple[float, float], name: str, room: float, **look: Any) -> None:
    """Write a name after a sample of its line."""
    from matplotlib.lines import Line2D

    x, y = place
    across = [x / picture.width, (x + 24) / picture.width]
    picture.figure.add_artist(Line2D(across, [1 - (y - 3.5) / picture.height] * 2, lw=2.2, **look))
    picture.text(x + 30, y, name, room, size=SMALL)


def legend_height(names: Sequence[str], width: float) -> float:
    """Return the height that :func:`legend` needs."""
    return 8 + max(y for _, y, _ in _legend_places(names, width))
