"""HTML and SVG from plain values: whatever is not markup already becomes text."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

# What XML cannot hold (control characters and single surrogates), and marks of direction that
# would show what follows in another order.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_LONGEST_SLUG = 60
_DIGITS = 4


class Safe(str):
    """Text that is markup: :func:`tag` leaves it as it is."""

    __slots__ = ()


class Name(str):
    """What a user named, within a sentence; set off on the page."""

    __slots__ = ()


#: parts that read as one sentence
Sentence = tuple[str, ...]


class Caution(Sentence):
    """A sentence that weakens those that it stands with."""

    __slots__ = ()


def escape(value: object) -> Safe:
    """Return ``value`` as text of a page or an attribute."""
    if isinstance(value, Safe):
        return value
    return Safe(html.escape(_UNPRINTABLE.sub("\ufffd", str(value))))


def join(parts: Iterable[object]) -> Safe:
    """Return the parts one after the other, those that are no markup escaped."""
    return Safe("".join(map(escape, parts)))


def tag(element: str, *content: object, **attributes: object) -> Safe:
    """Return ``<element>`` with what is in it.

    Attributes that are ``None`` are left out; ``class_`` is ``class``, ``data_x`` is
    ``data-x``. Numbers are written as coordinates, with two decimals.
    """
    written = []
    for name, value in attributes.items():
        if value is not None:
            name = name.rstrip("_").replace("_", "-")
            written.append(f' {name}="{escape(pixel(value) if isinstance(value, float) else value)}"')
    start = f"<{element}{''.join(written)}"
    if element in {"meta", "link", "br"}:
        return Safe(f"{start}>")
    return Safe(f"{start}>{join(content)}</{element}>")


def pixel(value: float) -> str:
    """Return a coordinate with two decimals, without a tail of zeros."""
    shown = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if shown == "-0" else shown


def sentence(parts: Sequence[str]) -> Safe:
    """Return a sentence as markup, its names set off."""
    return join(tag("strong", part) if isinstance(part, Name) else part for part in parts)


def plain(parts: Sequence[str]) -> str:
    """Return a sentence as text for a terminal."""
    return " ".join("".join(parts).replace("\xa0", " ").split())


def cell(value: Any) -> str:
    """Return ``value`` as the cell of a table: four significant digits, nothing for nothing."""
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
    """Return ``value`` with ``digits`` significant digits: ``0.3139``, ``12,350``, ``1.2e-06``."""
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
    shown = f"{rounded:,.{decimals}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def percent(share: float) -> str:
    """Return a share as per cent: ``61``, ``3.2``, ``0.4``; whole numbers from ten on."""
    value = 100 * share
    shown = f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}"
    shown = shown.removesuffix(".0")
    return "0" if shown == "-0" else shown


def listed(names: Sequence[str]) -> Sentence:
    """Return ``a, b and c`` as parts of a sentence."""
    parts: list[str] = []
    for i, name in enumerate(names):
        if i:
            parts.append(" and " if i == len(names) - 1 else ", ")
        parts.append(name)
    return tuple(parts)


def shorten(text: str, width: int) -> str:
    """Return ``text`` on one line, cut in the middle to ``width`` characters."""
    line = " ".join(text.split()) or text
    if len(line) <= width:
        return line
    head = (width - 1) // 2
    return f"{line[:head]}\u2026{line[len(line) - (width - 1 - head) :]}"


def slug(text: str) -> str:
    """Return ``text`` as the name of a file or of an anchor: small letters, digits, ``-``.

    What had to be changed gets an ending by which different texts stay different.
    """
    kept = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_SLUG].strip("-")
    if kept and kept == text:
        return kept
    ending = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{kept}-{ending}" if kept else ending
