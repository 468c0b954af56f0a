"""Text for people: counts, lists of names, shortened and escaped text. Every package may import it."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Characters that a terminal obeys, hides, or reorders: control characters but tabs and line ends, format
# characters (Unicode's category Cf: directions, joiners, spaces without width), separators of lines and paragraphs,
# single surrogates. A test compares the list with Python's tables, which take a second to search.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)

#: the maximum length of a message, which may quote any text of a document
LONGEST_MESSAGE = 2000


def count(number: int, noun: str, plural: str = "") -> str:
    """Format ``1 run``, ``2,000 runs``; ``plural`` if it is not ``noun`` with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[object], most: int) -> str:
    """Join at most ``most`` names to ``"a, b, c"``, followed by ``", ..."`` if there are more."""
    return ", ".join(map(str, names[:most])) + (", ..." if len(names) > most else "")


def joined(names: Sequence[str]) -> str:
    """Join names to ``"a"``, ``"a and b"``, ``"a, b and c"``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def shorten(text: str, width: int) -> str:
    """Cut ``text`` to ``width`` characters; the last three of a shortened text are dots."""
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."


def abridge(text: str) -> str:
    """Cut the middle of ``text`` if it is too long for a message; beginning and end have the gist."""
    left_out = len(text) - LONGEST_MESSAGE
    if left_out <= 0:
        return text
    head = LONGEST_MESSAGE * 2 // 3
    return f"{text[:head]} [... {left_out:,} characters ...] {text[head + left_out :]}"


def one_line(text: str) -> str:
    """Abridge and escape ``text`` for one line, including line ends and tabs."""
    return escape_control_characters(abridge(text)).replace("\n", "\\n").replace("\t", "\\t")


def escape_control_characters(text: str) -> str:
    """Escape all characters in ``text`` that a terminal would obey (``\\x1b``)."""
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
