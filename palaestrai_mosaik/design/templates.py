"""Text with holes: what documents have in common is written once, then filled in.

The same placeholders stand in the data of a document before it becomes text, in YAML or in
canonical JSON; both write them as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from palaestrai_mosaik.experiment import dumps

#: characters of a key that needs no mark before it (YAML 1.2, 7.4.2: 1024; PyYAML: 128)
_LONGEST_KEY = 100


class Template:
    """A text with numbered holes, each any number of times."""

    def __init__(self, text: str, hole: re.Pattern[str]):
        """``hole`` matches a hole and has its number as its only group."""
        parts = hole.split(text)
        self._fixed = parts[::2]
        self._numbers = [int(number) for number in parts[1::2]]
        self.size = len(text)

    def fill(self, values: Sequence[str]) -> str:
        """Return the text with ``values`` by number in its holes."""
        fixed = self._fixed
        parts = [fixed[0]]
        for number, after in zip(self._numbers, fixed[1:], strict=True):
            parts += (values[number], after)
        return "".join(parts)


def is_scalar(value: Any) -> bool:
    """Whether ``value`` is text, a number, a boolean or nothing."""
    return value is None or type(value) in (str, float, int, bool)


def yaml_scalar(value: Any) -> str | None:
    """Return a scalar as it stands in YAML, ``None`` where it takes more than one line.

    It is written as :func:`~palaestrai_mosaik.experiment.dumps` writes it.
    """
    if type(value) is float:
        text = repr(value)
        if "e" in text and "." not in text:
            return text.replace("e", ".0e")
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(text, text)
    if type(value) is int:
        return str(value)
    if type(value) is str:
        return _yaml_text(value)
    return {None: "null", True: "true", False: "false"}[value]


def json_scalar(value: Any) -> str:
    """Return a scalar as it stands in canonical JSON."""
    return json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=2**14)
def _yaml_text(text: str) -> str | None:
    written = dumps([text]).removeprefix("- ").removesuffix("\n")
    return None if "\n" in written else written


class _Unusual(Exception):
    """Something takes more than one line."""


def yaml_text(data: Any) -> str:
    """Return a mapping of plain data as YAML text which reads back as the same data.

    As :func:`~palaestrai_mosaik.experiment.dumps`, to which it leaves texts of several lines, but
    in a third of the time: thousands of documents are mostly the same words.
    """
    lines: list[str] = []
    try:
        _write(data, "", "", lines.append)
    except _Unusual:
        return dumps(data)
    return "".join(lines)


def _write(value: Any, first: str, rest: str, add: Callable[[str], object]) -> None:
    """Add the lines of a collection that is not empty, with what stands before its first line and the rest."""
    if isinstance(value, dict):
        for key, item in value.items():
            name = _word(key)
            if not item or not isinstance(item, (dict, list)):
                add(f"{first}{name}: {_word(item)}\n")
            else:
                add(f"{first}{name}:\n")
                inside = f"{rest}  " if isinstance(item, dict) else rest
                _write(item, inside, inside, add)
            first = rest
        return
    for item in value:
        if not item or not isinstance(item, (dict, list)):
            add(f"{first}- {_word(item)}\n")
        else:
            _write(item, f"{first}- ", f"{rest}  ", add)
        first = rest


def _word(value: Any) -> str:
    if type(value) is str:
        return _text_word(value)
    if isinstance(value, (dict, list)):
        return "{}" if isinstance(value, dict) else "[]"
    return _one_line(yaml_scalar(value))


@lru_cache(maxsize=2**14)
def _text_word(text: str) -> str:
    return _one_line(_yaml_text(text))


def _one_line(word: str | None) -> str:
    # a longer key must be marked as one
    if word is None or len(word) > _LONGEST_KEY:
        raise _Unusual
    return word
