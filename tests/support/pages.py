"""The fenced blocks of the documentation's pages, which ``tests/docs/test_docs.py`` executes, and the listed messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^```(?P<info>.*)$")
_NOT_RUN = re.compile(r"^<!-- not run: \S.* -->$")


@dataclass(frozen=True)
class Block:
    """A fenced block; ``line`` is that of its first line of text."""

    line: int
    words: tuple[str, ...]
    text: str
    runs: bool

    @property
    def language(self) -> str:
        return self.words[0] if self.words else ""

    @property
    def file(self) -> str | None:
        names = self._given("file=")
        return names[0] if names else None

    @property
    def needs(self) -> list[str]:
        return self._given("needs=")

    @property
    def exits(self) -> int:
        """The exit code that a block of commands must have."""
        return int((self._given("exits=") or ["0"])[0])

    def _given(self, key: str) -> list[str]:
        return [word.removeprefix(key) for word in self.words if word.startswith(key)]


def messages() -> list[str]:
    """Return the messages on the page of messages: what is bold and code, with line ends as spaces."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    return [" ".join(message.split()) for message in re.findall(r"\*\*`([^`]+)`\*\*", page)]


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    blocks = []
    opened: tuple[int, str, bool] | None = None
    lines = page.split("\n")
    for number, line in enumerate(lines, start=1):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if opened is None:
            before = lines[number - 2] if number > 1 else ""
            opened = (number, fence["info"], not _NOT_RUN.match(before))
        else:
            start, info, runs = opened
            text = "\n".join(lines[start : number - 1]) + "\n"
            blocks.append(Block(start + 1, tuple(info.split()), text, runs))
            opened = None
    assert opened is None, f"the block that begins in line {opened[0] if opened else 0} has no end"
    return blocks
