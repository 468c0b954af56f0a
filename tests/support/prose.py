"""The wording of the documentation: phrases that we have misused, and what to write instead.

``python -m tests.support.prose`` (``make lint``) checks README, CONTRIBUTING, ``docs/*.md`` and what is unreleased in the
changelog. Code, and messages quoted as code, are left out. General linters (vale, proselint) know clichés; the trouble
here is translated idiom, which only a list of our own finds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: a phrase (regular expression, any case) -> what to write instead
PHRASES = {
    r"(?:is|are|be|been) told(?! apart)": "gets, is warned, is reported",
    r"told of|tells? of": "reports",
    r"told": "reported, given, said",
    r"alike": "identical, equal, both",
    r"anew": "again, for each",
    r"afresh": "from the start",
    r"beg[iau]ns? again|begun again": "restart",
    r"whose": "with, of which; or a second sentence",
    r"lived? through": "replay, record",
    r"in the midst": "unfinished, during",
    r"(?:is|are) taken for": "is treated as",
    r"(?:can|may|to) be had": "is available",
    r"what is there": "what exists",
    r"(?:all|whatever) that must hold": "all checks",
    r"in (?:its|their) stead": "instead",
    r"(?:is|are) at hand": "is available",
    r"came? into being": "is created",
    r"of one's own": "your own",
    r"he who|who wants to": "you",
}
_FOUND = re.compile(
    "|".join(rf"(?P<p{i}>\b(?:{phrase})\b)" for i, phrase in enumerate(PHRASES)).replace(" ", r"\s+"),
    re.IGNORECASE,
)

_FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
_CODE = re.compile(r"`[^`\n]+`")


@dataclass(frozen=True)
class Finding:
    """A phrase in a line of a page."""

    page: str
    line: int
    phrase: str
    instead: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.phrase!r}; instead: {self.instead}"


def findings(page: str, text: str) -> Iterator[Finding]:
    """Yield the phrases of a page that are to be written otherwise."""
    for pattern in (_FENCE, _CODE):
        # line numbers stay
        text = pattern.sub(lambda found: re.sub(r"[^\n]", "x", found[0]), text)
    instead = list(PHRASES.values())
    for found in _FOUND.finditer(text):
        number = int(str(found.lastgroup)[1:])
        yield Finding(
            page, text.count("\n", 0, found.start()) + 1, found[0].replace("\n", " "), instead[number]
        )


def pages() -> dict[str, str]:
    """Return the text of every page by its path."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    end = re.search(r"^## \[\d", changelog, flags=re.M)
    found["CHANGELOG.md"] = changelog[: end.start()] if end else changelog
    return found


def main() -> int:
    """Print what is found in all pages; return the exit code."""
    found = [one for name, text in pages().items() for one in findings(name, text)]
    for one in found:
        print(one)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
