"""Entries of the index for a message: what users can search for, without the names in it."""

from __future__ import annotations

import re

#: a part of a message with fewer words says too little
_WORDS = 2


def entries_of(message: str) -> list[str]:
    """Return the message, and its parts between names and semicolons; Sphinx splits an entry at a semicolon."""
    parts = [part.strip(" :,()?'") for part in re.split(r"\.\.\.|'[^']*'|;", message)]
    whole = [message] if ";" not in message else []
    return list(dict.fromkeys([*whole, *(part for part in parts if len(part.split()) >= _WORDS)]))
