"""Numbers as text: single ones with significant digits, columns with one unit and one number of decimals."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

_LONGEST_SLUG = 60
_DIGITS = 4
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Columns within these limits need no power of ten.
_PLAIN = (0.01, 1e5)
# Upper limit on decimals.
_MOST_DECIMALS = 6


@dataclass(frozen=True)
class Mark:
    """A value with its interval; NaN if missing."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def numbers(self) -> list[float]:
        """The finite ones of the value and the ends of its interval."""
        return [number for number in (self.value, self.low, self.high) if math.isfinite(number)]

    @property
    def known(self) -> bool:
        """Whether the value is finite."""
        return math.isfinite(self.value)

    @property
    def spread(self) -> bool:
        """Whether there is an interval; one without width comes from one distinct value and does not count."""
        return math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high

    def __str__(self) -> str:
        if not self.known:
            return "unknown"
        return column([self]).texts[0]


def cell(value: Any) -> str:
    """Format ``value``: floats with four significant digits, None as an empty string."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return ""
    if isinstance(value, float):
        return number(float(value))
    if isinstance(value, bool | str):
        return str(value)
    if hasattr(value, "item"):
        return cell(value.item())
    return f"{value:,}" if isinstance(value, int) else str(value)


def number(value: float, digits: int = _DIGITS) -> str:
    """Format ``value`` with ``digits`` significant digits: ``0.3139``, ``12,350``, ``1.2e-06``."""
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "-inf" if value < 0 else "inf"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    if not 1e-4 <= abs(rounded) < 1e9:
        return re.sub(r"\.?0*e", "e", f"{value:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def typeset(value: float, digits: int = _DIGITS) -> str:
    """Format ``value`` like :func:`number`, but with a power of ten for ``7.2e-05``, and a minus sign."""
    text = number(value, digits)
    if match := re.fullmatch(r"(-?[\d.]+)e([-+]\d+)", text):
        text = f"{match[1]}{times_ten(int(match[2]))}"
    return text.replace("-", "\N{MINUS SIGN}")


def percent(share: float) -> str:
    """Format a share as a percentage: ``61``, ``3.2``, ``0.4``; whole numbers from ten on."""
    value = 100 * share
    text = f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}"
    text = text.removesuffix(".0")
    return "0" if text == "-0" else text.replace("-", "\N{MINUS SIGN}")


def duration(seconds: float) -> str:
    """Format a time in a suitable unit: ``0.42 s``, ``3.1 min``, ``12 h``."""
    for size, unit in ((86400 * 3, "days"), (3600 * 2, "h"), (60 * 2, "min")):
        if seconds >= size:
            each = {"days": 86400, "h": 3600, "min": 60}[unit]
            return f"{number(seconds / each, 2)}\xa0{unit}"
    return f"{number(seconds, 2)}\xa0s"


def power_of_ten(exponent: int) -> str:
    """Format a power of ten: ``10⁻³``."""
    return f"10{str(exponent).translate(_SUPERSCRIPTS)}"


def times_ten(exponent: int) -> str:
    """Format a power of ten with a multiplication sign."""
    return f"\N{MULTIPLICATION SIGN}{power_of_ten(exponent)}"


def exponent_of(largest: float) -> int:
    """Return the exponent of the unit for numbers up to ``largest``: 0, or a multiple of 3."""
    if not math.isfinite(largest) or largest <= 0 or _PLAIN[0] <= largest < _PLAIN[1]:
        return 0
    return 3 * math.floor((math.log10(largest) + 1) / 3)


@dataclass(frozen=True)
class Column:
    """The numbers of a column as text, all in units of ``10 ** exponent``."""

    cells: tuple[str, ...]
    exponent: int = 0

    @property
    def unit(self) -> str:
        """The power of ten for the heading of the column, or an empty string."""
        return times_ten(self.exponent) if self.exponent else ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The cells with the unit, for use outside the column."""
        return tuple(f"{text}\xa0{self.unit}" if self.unit and text else text for text in self.cells)


def column(marks: Sequence[Mark], *, smallest: bool = False) -> Column:
    """Format values and their intervals with one unit and one number of decimals.

    Half the width of a typical interval keeps two digits. Values without intervals keep four digits of the largest
    one, or five if some are much smaller. With ``smallest``, the smallest one keeps at least two digits, if necessary
    with a power of ten for each number. Missing values are empty strings.
    """
    ends = [abs(end) for mark in marks for end in mark.numbers]
    if all(end == int(end) for end in ends):
        return Column(tuple(_interval(mark, 0, 0) for mark in marks))
    exponent = exponent_of(max(ends))
    scaled = [end / 10.0**exponent for end in ends]
    halves = sorted((mark.high - mark.low) / 2 / 10.0**exponent for mark in marks if mark.spread)
    decimals = 1 - _magnitude(halves[len(halves) // 2]) if halves else _decimals(scaled, smallest)
    if smallest and not halves and decimals > _MOST_DECIMALS:
        return Column(tuple(typeset(mark.value, 3) for mark in marks))
    decimals = _without_zeros(scaled, max(0, min(decimals, _MOST_DECIMALS)))
    return Column(tuple(_interval(mark, decimals, exponent) for mark in marks), exponent)


def _without_zeros(scaled: Sequence[float], decimals: int) -> int:
    """Reduce the decimals as long as the last one is 0 in all numbers."""
    while decimals and all(f"{number:.{decimals}f}".endswith("0") for number in scaled):
        decimals -= 1
    return decimals


def _decimals(scaled: Sequence[float], smallest: bool) -> int:
    """Return the decimals of values without intervals, given their absolute values."""
    sizes = [number for number in scaled if number]
    most, least = 3 - _magnitude(max(sizes)), 1 - _magnitude(min(sizes))
    return max(most, least if smallest else min(least, most + 1))


def _magnitude(value: float) -> int:
    return math.floor(math.log10(value))


def _interval(mark: Mark, decimals: int, exponent: int) -> str:
    def shown(value: float) -> str:
        if not math.isfinite(value):
            return number(value)
        text = f"{value / 10.0**exponent:,.{decimals}f}"
        return text.removeprefix("-") if not text.strip("-0.,") else text

    text = shown(mark.value)
    if mark.known and mark.spread:
        text += f" ({shown(mark.low)} to {shown(mark.high)})"
    return text.replace("-", "\N{MINUS SIGN}")


def shorten(text: str, width: int) -> str:
    """Put ``text`` on one line, and cut it in the middle to ``width`` characters."""
    line = " ".join(text.split()) or text
    if len(line) <= width:
        return line
    head = (width - 1) // 2
    return f"{line[:head]}\u2026{line[len(line) - (width - 1 - head) :]}"


def slug(text: str) -> str:
    """Turn ``text`` into the name of a file or anchor: lower case letters, digits, ``-``, ``_``.

    Changed texts get a hash as a suffix, so that different texts have different names.
    """
    kept = re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")[:_LONGEST_SLUG].strip("-")
    if kept and kept == text:
        return kept
    ending = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{kept}-{ending}" if kept else ending
