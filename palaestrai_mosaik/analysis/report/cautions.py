"""What weakens results: each caution once, with a number, and where it applies."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

from .wording import Fact, Sentence, printable, worded


class Cautions:
    """Cautions in the order in which they are first referred to."""

    def __init__(self) -> None:
        self._numbers: dict[Markup, int] = {}

    def refer(self, found: Iterable[Fact | Sentence | str | None]) -> list[int]:
        """Return the numbers of cautions, which get new ones where they are not known yet, each once."""
        numbers = (self._number(one) for one in found if one)
        return sorted(dict.fromkeys(numbers))

    def _number(self, one: Fact | Sentence | str) -> int:
        if isinstance(one, Fact):
            # the list says that these are cautions
            one = one.values["text"] if one.kind == "warning" else worded(one)
        text = one.text if isinstance(one, Sentence) else escape(f"{printable(one).rstrip('.')}.")
        return self._numbers.setdefault(text, len(self._numbers) + 1)

    def texts(self) -> list[Markup]:
        """Return all cautions in the order of their numbers."""
        return list(self._numbers)
