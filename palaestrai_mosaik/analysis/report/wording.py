"""From facts to sentences: the templates have the words, and whatever a user has named becomes text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from palaestrai_mosaik.text import count

from .numbers import Mark, column, percent, typeset

# What XML cannot hold (control characters and single surrogates), and marks of direction that
# would show what follows in another order.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_MOST_NAMED = 3


@dataclass(frozen=True)
class Fact:
    """What is to be said: ``kind`` names the macro of ``templates/sentences.html.j2`` that has the words.

    A ``caution`` weakens what it stands with.
    """

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)
    caution: bool = False


def fact(kind: str, **values: Any) -> Fact:
    """Return a fact of this ``kind``."""
    return Fact(kind, values)


def caution(kind: str, **values: Any) -> Fact:
    """Return a fact that weakens others."""
    return Fact(kind, values, caution=True)


@dataclass(frozen=True)
class Sentence:
    """A fact in words, as markup; names of users are set off."""

    text: Markup
    caution: bool = False

    def __str__(self) -> str:
        """Return the sentence as text for a terminal."""
        return plain(self.text)


def worded(one: Fact) -> Sentence:
    """Return a fact in words."""
    macro = getattr(_sentences(), one.kind)
    return Sentence(Markup(re.sub(r"[ \n]+", " ", macro(**one.values)).strip()), one.caution)


def plain(text: Markup) -> str:
    """Return markup as text for a terminal, in which numbers can be copied."""
    shown = " ".join(text.striptags().replace("\xa0", " ").split())
    return re.sub("\N{MINUS SIGN}(?=[0-9])", "-", shown)


def printable(value: object) -> str:
    """Return ``value`` as text that a page, a picture and XML can hold."""
    return _UNPRINTABLE.sub("\ufffd", str(value))


@cache
def environment() -> Environment:
    """Return the templates: what is no markup is escaped, and unknown names are errors."""
    found = Environment(
        loader=PackageLoader("palaestrai_mosaik.analysis.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value),
    )
    found.filters |= {
        "ranges": _ranges,
        "name": _name,
        "names": _names,
        "some": _some,
        "num": typeset,
        "in_one_unit": _in_one_unit,
        "differences": lambda pairs: _in_one_unit([(pair, pair["mark"]) for pair in pairs]),
        "pct": percent,
        "share": share,
        "told": _told,
        "counted": count,
        "p": _p,
    }
    return found


@cache
def _sentences() -> Any:
    return environment().get_template("sentences.html.j2").module


def _name(text: object) -> Markup:
    return Markup("<strong>{}</strong>").format(printable(text))


def _names(names: Sequence[object]) -> Markup:
    """Return ``a, b and c``."""
    parts = [_name(name) for name in names]
    if len(parts) < 2:
        return Markup("").join(parts)
    return Markup(", ").join(parts[:-1]) + " and " + parts[-1]


def _some(names: Sequence[object]) -> Markup:
    """Return the first names, and how many more there are."""
    if len(names) <= _MOST_NAMED + 1:
        return _names(names)
    return Markup(", ").join(map(_name, names[:_MOST_NAMED])) + f", and {len(names) - _MOST_NAMED} others"


def _in_one_unit(marks: Sequence[tuple[Any, Mark]]) -> list[tuple[Any, str]]:
    """Return what has a mark with the mark as text: all of these have one unit."""
    texts = column([mark for _, mark in marks]).texts
    return [(one, text or str(mark)) for (one, mark), text in zip(marks, texts, strict=True)]


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers in order as ranges, ``3, 4, 5, 7`` as ``(3, 5), (7, 7)``; two neighbours are no range."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    single = [
        [(first, first), (last, last)] if last == first + 1 else [(first, last)] for first, last in found
    ]
    return [one for parts in single for one in parts]


def share(mark: Mark) -> str:
    """Return a share as per cent, with its interval."""
    return f"nearly all ({_told(mark)})" if mark.value > 1 else _percent(mark, "")


def _told(mark: Mark) -> str:
    """Return estimate and interval for brackets."""
    return _percent(mark, ", interval ")


def _percent(mark: Mark, between: str) -> str:
    if not mark.spread:
        return f"{percent(mark.value)}\xa0%"
    ends = f"{percent(mark.low)} to {percent(mark.high)}\xa0%"
    return f"{percent(mark.value)} %" + (f"{between}{ends}" if between else f" ({ends})")


def _p(value: float) -> str:
    if math.isnan(value):
        return ""
    return "p\xa0<\xa00.001" if value < 0.001 else f"p\xa0=\xa0{typeset(value, 2)}"
