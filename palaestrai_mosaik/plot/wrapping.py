"""Texts of figures in lines of limited width."""

from __future__ import annotations

import re
from textwrap import wrap


def wrapped(text: str, width: int, most: int) -> str:
    """Wrap ``text`` to at most ``most`` lines of ``width`` characters."""
    lines = [
        part
        for line in wrap(text, width, break_long_words=False, break_on_hyphens=False)
        for part in _broken(line, width)
    ]
    if len(lines) > most:
        lines[most - 1 :] = [f"{lines[most - 1][: width - 4]} ..."]
    return "\n".join(lines)


def _broken(word: str, width: int) -> list[str]:
    """Break an overlong word, preferably after dots, colons, slashes, dashes and underscores."""
    lines = [""]
    for piece in re.findall(r"[^.:,/_-]*[.:,/_-]|[^.:,/_-]+", word):
        if len(lines[-1]) + len(piece) > width and lines[-1]:
            lines.append("")
        whole = lines.pop() + piece
        lines += [whole[i : i + width] for i in range(0, len(whole), width)]
    return lines
