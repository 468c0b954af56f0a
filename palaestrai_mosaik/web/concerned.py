"""Locates failures in the text of a run document, by the names in their messages, notes and frames.

The text is only read as YAML; nothing is imported, because the author of the text is not trusted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment.class_names import SHORT_NAMES, full_name
from palaestrai_mosaik.experiment.model import Place
from palaestrai_mosaik.experiment.yaml_text import Lines, read

#: number of characters at a traceback's end that are searched: the end has the error and its origin
_MOST = 20_000
#: maximum number of paths that are searched; a text can be crafted to have any number
_MOST_PLACES = 200_000
#: keys of an agent that name classes
_CLASSES = ("muscle", "brain", "objective", "memory", "name")
_NAMED = re.compile(r"\b(agent|environment|sensor|actuator) ('(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")")
_PATH = re.compile(r"(?<![\w.])(?:schedule|run_config|definitions)(?:\.[\w-]+)+")
_FRAME = re.compile(r'^ *File "([^"\n]+)", line \d+', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mark:
    """A line of a document, counted from 1, and the part of the document there that a failure concerns."""

    line: int
    what: str


def marks(text: str, said: str, phase: int | None = None) -> list[Mark]:
    """Return the lines of a run document that a failure concerns, most relevant first.

    Args:
        text: the document.
        said: the failure's traceback with its message.
        phase: number of the phase in which the failure happened; entries of other phases come later.

    Returns:
        The marks; none if the failure names no part of the document, or the text cannot be read.
    """
    try:
        reading = read(text, "")
    except DocumentError:
        return []
    said = said[-_MOST:]
    document = _Document(reading.value, reading.lines, phase)
    candidates = [*document.of_paths(said), *document.of_names(said)] or list(document.of_classes(said))
    seen: dict[int, Mark] = {}
    for mark in candidates:
        seen.setdefault(mark.line, mark)
    return list(seen.values())


class _Document:
    """The plain data of a document, with its lines."""

    def __init__(self, value: Any, lines: Lines, phase: int | None):
        self._lines = lines
        entries = list(_places(value))
        # a phase's values are written in the phase itself, or in an earlier one
        order = sorted(range(len(entries)), key=lambda k: _distance(entries[k][0], phase))
        self._places = [entries[k] for k in order]

    def of_paths(self, said: str) -> Iterator[Mark]:
        """Yield the lines of paths that are written out (``schedule.0.train.agents.1``)."""
        for path in dict.fromkeys(_PATH.findall(said)):
            parts = path.split(".")
            for length in range(len(parts), 1, -1):
                line = self._lines.get(".".join(parts[:length]))
                if line:
                    yield Mark(line, path)
                    break

    def of_names(self, said: str) -> Iterator[Mark]:
        """Yield the lines of agents, environments and channels that are named, last named first."""
        files = _files(said)
        for kind, quoted in reversed(list(dict.fromkeys(_NAMED.findall(said)))):
            name = _unquoted(quoted)
            entries = [path for path, value in self._places if _is_called(path, value, kind, name)]
            if not entries:
                continue
            # the class that raised may be named in an earlier phase, because phases inherit agents
            classes = [mark for path in entries for mark in self._classes(path, files)]
            yield from classes[:1]
            yield from self._mark(entries[0], f"{kind} {name!r}")

    def of_classes(self, said: str) -> Iterator[Mark]:
        """Yield the lines of classes from the traceback's frames, innermost first."""
        files = _files(said)
        for path, value in self._places:
            if isinstance(value, str) and path and _is_class_in(path, value, files):
                yield from self._mark(path, value)

    def _classes(self, entry: Place, files: Sequence[str]) -> Iterator[Mark]:
        for path, value in self._places:
            inside = path[: len(entry)] == entry and len(path) <= len(entry) + 2
            if inside and isinstance(value, str) and _is_class_in(path, value, files):
                yield from self._mark(path, value)

    def _mark(self, path: Place, what: str) -> Iterator[Mark]:
        line = self._lines.nearest(path)
        if line:
            yield Mark(line, what)


def _places(value: Any) -> Iterator[tuple[Place, Any]]:
    """Yield all values with their paths. A value with several aliases is only expanded once."""
    seen: set[int] = set()
    stack: list[tuple[Place, Any]] = [((), value)]
    for _ in range(_MOST_PLACES):
        if not stack:
            return
        path, item = stack.pop()
        yield path, item
        if not isinstance(item, dict | list) or id(item) in seen:
            continue
        seen.add(id(item))
        entries: Iterable[tuple[Any, Any]] = item.items() if isinstance(item, dict) else enumerate(item)
        stack += reversed([((*path, key), child) for key, child in entries])


def _distance(path: Place, phase: int | None) -> int:
    if len(path) < 2 or path[0] != "schedule" or not isinstance(path[1], int):
        return 1_000_000
    return path[1] if phase is None else phase - path[1] if path[1] <= phase else 1_000 + path[1]


def _is_called(path: Place, value: Any, kind: str, name: str) -> bool:
    if kind in ("sensor", "actuator"):
        return value == name and f"{kind}s" in path
    key = {"agent": "name", "environment": "uid"}[kind]
    return isinstance(value, Mapping) and value.get(key) == name and f"{kind}s" in path


def _is_class_in(path: Place, name: str, files: Iterable[str]) -> bool:
    """Whether the class at this path, possibly given by its short name, is defined in one of the files."""
    if path[-1] not in _CLASSES:
        return False
    topic = path[-2] if path[-1] == "name" and len(path) > 1 else path[-1]
    return _is_in(full_name(name, str(topic)) if topic in SHORT_NAMES else name, files)


def _files(said: str) -> list[str]:
    """Return the files of a traceback's frames, innermost first."""
    return [file.replace("\\", "/") for file in reversed(_FRAME.findall(said))]


def _is_in(name: str, files: Iterable[str]) -> bool:
    """Whether one of the files is the module of ``module:Class``."""
    module, colon, _ = name.partition(":")
    if not colon or not module:
        return False
    path = "/" + module.replace(".", "/")
    return any(file.endswith((f"{path}.py", f"{path}/__init__.py")) for file in files)


def _unquoted(text: str) -> str:
    try:
        return str(ast.literal_eval(text))
    except (SyntaxError, ValueError):
        return text[1:-1]
