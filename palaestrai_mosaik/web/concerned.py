"""Where in the text of a run document a failure belongs: what its message, its notes and its frames name.

The text is read as YAML only: nothing that it names is imported, and what it says may be of anybody.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestrai_mosaik.errors import DocumentError
from palaestrai_mosaik.experiment.located import Lines
from palaestrai_mosaik.experiment.model import Place
from palaestrai_mosaik.experiment.short_names import SHORT_NAMES, full_name
from palaestrai_mosaik.experiment.yaml_text import read

#: of a traceback, so many characters are looked at: its end says what was raised, and where
_MOST = 20_000
#: places that are looked at; a text can be made to have any number of them
_MOST_PLACES = 200_000
#: keys of an agent that name classes
_CLASSES = ("muscle", "brain", "objective", "memory", "name")
_NAMED = re.compile(r"\b(agent|environment|sensor|actuator) ('(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")")
_PATH = re.compile(r"(?<![\w.])(?:schedule|run_config|definitions)(?:\.[\w-]+)+")
_FRAME = re.compile(r'^ *File "([^"\n]+)", line \d+', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mark:
    """A line of a document, counted from 1, and what stands there that a failure concerns."""

    line: int
    what: str


def marks(text: str, said: str, phase: int | None = None) -> list[Mark]:
    """Return the lines of a run document that a failure concerns, the most telling one first.

    Args:
        text: the document.
        said: the failure's traceback, message included.
        phase: number of the phase in which it happened: what other phases say of an agent comes later.

    Returns:
        None where nothing in the document is named, or where the text cannot be read.
    """
    try:
        reading = read(text, "")
    except DocumentError:
        return []
    said = said[-_MOST:]
    document = _Document(reading.value, reading.lines, phase)
    found = [*document.of_paths(said), *document.of_names(said)] or list(document.of_classes(said))
    seen: dict[int, Mark] = {}
    for mark in found:
        seen.setdefault(mark.line, mark)
    return list(seen.values())


class _Document:
    """The plain data of a document, with its lines."""

    def __init__(self, value: Any, lines: Lines, phase: int | None):
        self._lines = lines
        places = list(_places(value))
        # what holds in a phase is written there, or in one before
        order = sorted(range(len(places)), key=lambda k: _distance(places[k][0], phase))
        self._places = [places[k] for k in order]

    def of_paths(self, said: str) -> Iterator[Mark]:
        """Yield the places whose paths are written out (``schedule.0.train.agents.1``)."""
        for path in dict.fromkeys(_PATH.findall(said)):
            parts = path.split(".")
            for length in range(len(parts), 1, -1):
                line = self._lines.get(".".join(parts[:length]))
                if line:
                    yield Mark(line, path)
                    break

    def of_names(self, said: str) -> Iterator[Mark]:
        """Yield the agents, environments and channels that are named, the last named first."""
        files = _files(said)
        for kind, quoted in reversed(list(dict.fromkeys(_NAMED.findall(said)))):
            name = _unquoted(quoted)
            entries = [place for place, value in self._places if _is_called(place, value, kind, name)]
            if not entries:
                continue
            # the class that raised may be named elsewhere: in an earlier phase, from which this one inherits
            classes = [mark for place in entries for mark in self._classes(place, files)]
            yield from classes[:1]
            yield from self._mark(entries[0], f"{kind} {name!r}")

    def of_classes(self, said: str) -> Iterator[Mark]:
        """Yield the classes in whose files the traceback has frames, the innermost first."""
        files = _files(said)
        for place, value in self._places:
            if isinstance(value, str) and place and _is_class_in(place, value, files):
                yield from self._mark(place, value)

    def _classes(self, entry: Place, files: Sequence[str]) -> Iterator[Mark]:
        for place, value in self._places:
            inside = place[: len(entry)] == entry and len(place) <= len(entry) + 2
            if inside and isinstance(value, str) and _is_class_in(place, value, files):
                yield from self._mark(place, value)

    def _mark(self, place: Place, what: str) -> Iterator[Mark]:
        line = self._lines.nearest(place)
        if line:
            yield Mark(line, what)


def _places(value: Any) -> Iterator[tuple[Place, Any]]:
    """Yield all values with their places; what stands at several places by aliases, once."""
    seen: set[int] = set()
    waiting: list[tuple[Place, Any]] = [((), value)]
    for _ in range(_MOST_PLACES):
        if not waiting:
            return
        place, one = waiting.pop()
        yield place, one
        if not isinstance(one, dict | list) or id(one) in seen:
            continue
        seen.add(id(one))
        entries: Iterable[tuple[Any, Any]] = one.items() if isinstance(one, dict) else enumerate(one)
        waiting += reversed([((*place, key), child) for key, child in entries])


def _distance(place: Place, phase: int | None) -> int:
    if len(place) < 2 or place[0] != "schedule" or not isinstance(place[1], int):
        return 1_000_000
    return place[1] if phase is None else phase - place[1] if place[1] <= phase else 1_000 + place[1]


def _is_called(place: Place, value: Any, kind: str, name: str) -> bool:
    if kind in ("sensor", "actuator"):
        return value == name and f"{kind}s" in place
    key = {"agent": "name", "environment": "uid"}[kind]
    return isinstance(value, Mapping) and value.get(key) == name and f"{kind}s" in place


def _is_class_in(place: Place, name: str, files: Iterable[str]) -> bool:
    """Whether the class that stands at a place, also by its short name, is in one of the files."""
    if place[-1] not in _CLASSES:
        return False
    topic = place[-2] if place[-1] == "name" and len(place) > 1 else place[-1]
    return _is_in(full_name(name, str(topic)) if topic in SHORT_NAMES else name, files)


def _files(said: str) -> list[str]:
    """Return the files of a traceback's frames, the innermost first."""
    return [file.replace("\\", "/") for file in reversed(_FRAME.findall(said))]


def _is_in(name: str, files: Iterable[str]) -> bool:
    """Whether the module of ``module:Class`` is one of the files."""
    module, found, _ = name.partition(":")
    if not found or not module:
        return False
    path = "/" + module.replace(".", "/")
    return any(file.endswith((f"{path}.py", f"{path}/__init__.py")) for file in files)


def _unquoted(text: str) -> str:
    try:
        return str(ast.literal_eval(text))
    except (SyntaxError, ValueError):
        return text[1:-1]
