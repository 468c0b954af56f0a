"""Turn facts into sentences, and number the cautions. The templates have the words, and names given by users are escaped."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from palaestrai_mosaik.core.printing import count

from .numbers import Mark, column, percent, typeset

# Characters that XML forbids (control characters and single surrogates), and marks of direction, which would reorder
# the text after them.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
# What Markdown or HTML in it would act on; a "<" or ">" between spaces is text.
_ACTIVE = re.compile(r"[\\`*_\[\]#|~&]|<(?=[A-Za-z!/?])|^>")
_MOST_NAMED = 3


@dataclass(frozen=True)
class Fact:
    """A statement to be worded by a macro.

    Attributes:
        kind: name of the macro in ``templates/sentences.html.j2``.
        values: the arguments of the macro.
        caution: whether it weakens other statements.
    """

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)
    caution: bool = False


def fact(kind: str, **values: Any) -> Fact:
    """Build a fact."""
    return Fact(kind, values)


def caution(kind: str, **values: Any) -> Fact:
    """Build a fact that weakens others."""
    return Fact(kind, values, caution=True)


@dataclass(frozen=True)
class Sentence:
    """A fact as markup, with names given by users in bold."""

    text: Markup
    caution: bool = False

    def __str__(self) -> str:
        """Return the sentence as text for a terminal."""
        return plain(self.text)


def worded(statement: Fact) -> Sentence:
    """Put a fact into words."""
    macro = getattr(_sentences(), statement.kind)
    return Sentence(Markup(re.sub(r"[ \n]+", " ", macro(**statement.values)).strip()), statement.caution)


def plain(text: Markup) -> str:
    """Convert markup to text for a terminal, with numbers that can be copied."""
    line = " ".join(text.striptags().replace("\xa0", " ").split())
    return re.sub("\N{MINUS SIGN}(?=[0-9])", "-", line)


def markdown(text: object) -> Markup:
    """Convert markup or text to Markdown on one line: bold names, all else as it is written."""
    parts = re.split(r"</?strong>", str(text)) if isinstance(text, Markup) else [printable(text)]
    plain_parts = (Markup(part).unescape() if isinstance(text, Markup) else part for part in parts)
    texts = (_ACTIVE.sub(r"\\\g<0>", re.sub(r"\s+", " ", part)) for part in plain_parts)
    return Markup("**".join(texts).strip())


def printable(value: object) -> str:
    """Convert ``value`` to text that is valid in a page, a picture and XML."""
    return _UNPRINTABLE.sub("\ufffd", str(value))


@cache
def environment() -> Environment:
    """Build the environment of the templates, which escapes texts and rejects unknown names."""
    templates = Environment(
        loader=PackageLoader("palaestrai_mosaik.arsenai.analysis.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value),
    )
    templates.filters |= {
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
        "md": markdown,
        "line": lambda text: Markup(" ".join(printable(text).split())),
        "verbatim": lambda text: Markup(printable(text)),
    }
    return templates


@cache
def _sentences() -> Any:
    return environment().get_template("sentences.html.j2").module


def _name(text: object) -> Markup:
    return Markup("<strong>{}</strong>").format(printable(text))


def _names(names: Sequence[object]) -> Markup:
    """Join names: ``a, b and c``."""
    parts = [_name(name) for name in names]
    if len(parts) < 2:
        return Markup("").join(parts)
    return Markup(", ").join(parts[:-1]) + " and " + parts[-1]


def _some(names: Sequence[object]) -> Markup:
    """Join the first names, with the number of the others."""
    if len(names) <= _MOST_NAMED + 1:
        return _names(names)
    return Markup(", ").join(map(_name, names[:_MOST_NAMED])) + f", and {len(names) - _MOST_NAMED} others"


def _in_one_unit(marks: Sequence[tuple[Any, Mark]]) -> list[tuple[Any, str]]:
    """Format the mark of each entry, all in one unit."""
    texts = column([mark for _, mark in marks]).texts
    return [(item, text or str(mark)) for (item, mark), text in zip(marks, texts, strict=True)]


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Join ascending numbers to ranges, ``3, 4, 5, 7`` to ``(3, 5), (7, 7)``; two neighbours stay separate."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    single = [
        [(first, first), (last, last)] if last == first + 1 else [(first, last)] for first, last in ranges
    ]
    return [part for parts in single for part in parts]


def share(mark: Mark) -> str:
    """Format a share as a percentage with its interval."""
    return f"nearly all ({_told(mark)})" if mark.value > 1 else _percent(mark, "")


def _told(mark: Mark) -> str:
    """Format an estimate and its interval for use in brackets."""
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


class Cautions:
    """Cautions in the order of their first references.

    Args:
        names: names given by users; cautions that begin with one of these are not capitalised.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = names
        self._places: dict[Markup, dict[str, dict[str, None]]] = {}

    def refer(
        self, cautions: Iterable[Fact | Sentence | str | None], outcome: str = "", part: str = ""
    ) -> list[int]:
        """Return the sorted numbers of cautions, adding those that are new.

        Args:
            cautions: the cautions; None and empty texts are skipped.
            outcome: the outcome that they apply to, if any.
            part: the part of the outcome's section that they apply to, such as a comparison.
        """
        return sorted({self._number(item, outcome, part) for item in cautions if item})

    def _number(self, item: Fact | Sentence | str, outcome: str, part: str) -> int:
        if isinstance(item, Fact):
            # The list already says that these are cautions.
            item = item.values["text"] if item.kind == "warning" else worded(item)
        text = (
            item.text
            if isinstance(item, Sentence)
            else escape(f"{self._begun(printable(item)).rstrip('.')}.")
        )
        places = self._places.setdefault(text, {})
        if outcome:
            places.setdefault(outcome, {})
        if part:
            places[outcome][part] = None
        return list(self._places).index(text) + 1

    def _begun(self, text: str) -> str:
        """Capitalise the first letter, unless the text begins with a name."""
        return text if text.split(" ", 1)[0] in self._names else text[:1].upper() + text[1:]

    def texts(self) -> list[Markup]:
        """Return all cautions in the order of their numbers."""
        return list(self._places)

    def listed(self) -> list[tuple[Markup, dict[str, list[str]]]]:
        """Return all cautions with the outcomes that they apply to, and the parts of these."""
        return [
            (text, {outcome: list(parts) for outcome, parts in places.items()})
            for text, places in self._places.items()
        ]
