"""What weakens results: each caution once, with a number, and where it applies."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from markupsafe import Markup, escape

from .wording import Fact, Sentence, printable, worded


class Cautions:
    """Cautions in the order in which they are first referred to.

    Args:
        names: what users have named; a caution that begins with such a name does not get a capital letter.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = names
        self._places: dict[Markup, dict[str, dict[str, None]]] = {}

    def refer(
        self, found: Iterable[Fact | Sentence | str | None], outcome: str = "", part: str = ""
    ) -> list[int]:
        """Return the numbers of cautions, each once; those that are not known yet get new ones.

        They apply to an ``outcome``, or to a ``part`` of what the report says of it, such as a comparison.
        """
        return sorted({self._number(one, outcome, part) for one in found if one})

    def _number(self, one: Fact | Sentence | str, outcome: str, part: str) -> int:
        if isinstance(one, Fact):
            # the list says that these are cautions
            one = one.values["text"] if one.kind == "warning" else worded(one)
        text = (
            one.text if isinstance(one, Sentence) else escape(f"{self._begun(printable(one)).rstrip('.')}.")
        )
        places = self._places.setdefault(text, {})
        if outcome:
            places.setdefault(outcome, {})
        if part:
            places[outcome][part] = None
        return list(self._places).index(text) + 1

    def _begun(self, text: str) -> str:
        """Return a text with a capital letter, as a sentence begins."""
        return text if text.split(" ", 1)[0] in self._names else text[:1].upper() + text[1:]

    def texts(self) -> list[Markup]:
        """Return all cautions in the order of their numbers."""
        return list(self._places)

    def listed(self) -> list[tuple[Markup, dict[str, list[str]]]]:
        """Return all cautions with the outcomes that they apply to, and with the parts of these."""
        return [
            (text, {outcome: list(parts) for outcome, parts in places.items()})
            for text, places in self._places.items()
        ]
