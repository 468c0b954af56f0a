"""Text for people: counts, lists of names, shortened text, what may be printed. Every package may import it."""

from __future__ import annotations

import re
from collections.abc import Sequence

# What a terminal would obey, or show in another order: control characters but tabs and line ends,
# marks of direction that change the order of what follows, single surrogates.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def count(number: int, noun: str, plural: str = "") -> str:
    """Return ``1 run``, ``2,000 runs``; ``plural`` where it is not ``noun`` with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[object], most: int) -> str:
    """Return ``"a, b, c"`` of at most ``most`` names, with ``", ..."`` where there are more."""
    return ", ".join(map(str, names[:most])) + (", ..." if len(names) > most else "")


def joined(names: Sequence[str]) -> str:
    """Return ``"a"``, ``"a and b"``, ``"a, b and c"``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def shorten(text: str, width: int) -> str:
    """Return ``text``, cut to ``width`` characters, the last three of which are dots then."""
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."


def escape_control_characters(text: str) -> str:
    """Return ``text`` as it may be printed: what a terminal would obey is written out (``\\x1b``)."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
