"""A numbered list of cautions without duplicates, with the outcomes that each applies to."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from markupsafe import Markup, escape

from .wording import Fact, Sentence, printable, worded


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
