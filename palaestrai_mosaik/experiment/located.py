"""Data that knows where it stands: paths, lines, sections and their fields, and the list of what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from palaestrai_mosaik.errors import Problem, did_you_mean

from .model import Place, join

# The line tree: a leaf is its line; a collection is (line, children), its children a
# dict or a list of such nodes. Aliases share their children, so the tree is as small as
# the text, however much it would expand to.
Tree = Any


class Lines(Mapping[str, int]):
    """The line of every path of a text, ``schedule.0.phase_0`` -> 12.

    A view on a tree: an entry is found by walking, so nothing is expanded up front.
    Keys that contain dots are found, too.
    """

    def __init__(self, tree: Tree = None):
        self._tree = tree

    def nearest(self, place: Place) -> int | None:
        """Return the line of ``place``, or of the nearest thing around it that is there."""
        node = self._tree
        for part in place:
            try:
                node = node[1][part]
            except (TypeError, KeyError, IndexError):
                break
        return _line(node)

    def __getitem__(self, path: str) -> int:
        node = self._find(self._tree, path) if self._tree is not None else None
        if node is None:
            raise KeyError(path)
        return _line(node) or 0

    def _find(self, node: Tree, path: str) -> Tree:
        if not path:
            return node
        if not isinstance(node, tuple):
            return None
        pieces = path.split(".")
        for taken in range(1, len(pieces) + 1):
            child = _child(node[1], ".".join(pieces[:taken]))
            if child is not None:
                found = self._find(child, ".".join(pieces[taken:]))
                if found is not None:
                    return found
        return None

    def __iter__(self) -> Iterator[str]:
        return self._walk(self._tree, ())

    def _walk(self, node: Tree, place: Place) -> Iterator[str]:
        if isinstance(node, tuple):
            entries = node[1].items() if isinstance(node[1], dict) else enumerate(node[1])
            for key, child in entries:
                yield join((*place, key))
                yield from self._walk(child, (*place, key))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _line(node: Tree) -> int | None:
    line: int | None = node[0] if isinstance(node, tuple) else node
    return line


def _child(children: Any, name: str) -> Tree:
    if isinstance(children, list):
        return children[int(name)] if name.isdecimal() and int(name) < len(children) else None
    if name in children:
        return children[name]
    return next((child for key, child in children.items() if str(key) == name), None)


class Located(NamedTuple):
    """A value and the place where it was written."""

    value: Any
    place: Place

    def child(self, key: Any) -> Located:
        return Located(self.value[key], (*self.place, key))


#: what is wrong with a value: the place below it, and what follows its name in the message
Fault = tuple[Place, str]
Schema = dict[str, Any]


@dataclass(frozen=True)
class Field:
    """What a key may hold: one statement for the check, for editors (JSON Schema) and for the reference.

    ``faults`` yields everything that is wrong with a value, ``convert`` turns a sound one into what the
    model keeps. Where it is ``nullable``, null is as good as leaving the key out: the ``default`` holds.
    ``title`` is what messages call it, if that is not its key. ``reader`` reads what is more than one
    value (a list of classes, for instance), and reports what is wrong by itself.
    """

    schema: Schema
    faults: Callable[[Any], Iterator[Fault]] = lambda value: iter(())
    convert: Callable[[Any], Any] = lambda value: value
    nullable: bool = True
    default: Any = None
    title: str = ""
    reader: Callable[[Findings, Located | None, str], Any] | None = None

    def read(self, found: Findings, at: Located | None, what: str) -> Any:
        """Return the value at ``at``, called ``what`` in messages; the default where it is not sound."""
        if self.reader is not None:
            return self.reader(found, at, what)
        if at is None or (at.value is None and self.nullable):
            return self.default
        sound = True
        for place, message in self.faults(at.value):
            found.error((*at.place, *place), f"{what} {message}")
            sound = False
        return self.convert(at.value) if sound else self.default

    def called(self, title: str, **schema: Any) -> Field:
        """Return the field with another title, and with more in its schema."""
        return replace(self, title=title, schema=self.schema | schema)


@dataclass(frozen=True)
class Section:
    """A mapping of a document.

    ``keys``: what it may hold; ``required``: what must be there (after the cascade);
    ``spellings``: other words for a key; ``ignored``: keys of palaestrAI that load, but
    have no effect here, with what there is to say about them.
    """

    title: str
    keys: Mapping[str, Field]
    required: tuple[str, ...] = ()
    spellings: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str, ...]:
        """Every word that may stand in the document."""
        return (*self.keys, *self.spellings, *self.ignored)

    def schema(self, required: tuple[str, ...] = ()) -> Schema:
        """Return the JSON Schema of the mapping: its keys, their spellings, the keys without effect.

        A required key that has several spellings is not required, as any of them may stand.
        """
        words = {key: one.schema for key, one in self.keys.items()}
        words |= {word: self.keys[key].schema for word, key in self.spellings.items()}
        words |= {word: {"description": "of palaestrAI; no effect here"} for word in self.ignored}
        schema: Schema = {"type": "object", "properties": words, "additionalProperties": False}
        needed = [key for key in required if key not in self.spellings.values()]
        return schema | {"required": needed} if needed else schema

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield what is wrong with a mapping that stands in no text, in which every key is needed."""
        if not isinstance(value, Mapping):
            yield (), f"{self.title} must be a mapping, found {show(value)}"
            return
        for key, one in value.items():
            if key in self.keys:
                for place, message in self.keys[key].faults(one):
                    yield (key, *place), f"{key} {message}"
            else:
                yield (key,), self.unknown(key)
        for key in self.keys:
            if key not in value:
                yield (), self.lacks(key)

    def unknown(self, word: Any) -> str:
        """Return the message for a word that is none of the section's."""
        near, allowed = did_you_mean(word, self.words), ", ".join(self.keys)
        return f"unknown key {word!r} in {self.title}{near}; allowed: {allowed}"

    def lacks(self, key: str) -> str:
        """Return the message for a key that is missing."""
        return f"{self.title} needs the key {key!r}, which is missing"

    def values(self, found: Findings, parts: Mapping[str, Located], owner: str = "") -> dict[str, Any]:
        """Return the value of every key; ``owner`` stands before the keys in messages (``"load's "``)."""
        return {
            key: one.read(found, parts.get(key), f"{owner}{one.title or key}")
            for key, one in self.keys.items()
        }


class Findings:
    """Collects what is wrong with a document, each thing once."""

    def __init__(self, source: str, lines: Lines):
        self.source = source
        self.lines = lines
        #: whether modules are named that are not allowed: then no other may be imported to look for more errors
        self.refused = False
        self._errors: dict[Problem, None] = {}
        self._warnings: dict[Problem, None] = {}

    def error(self, place: Place, message: str, line: int | None = None) -> None:
        self._errors[self._problem(place, message, line)] = None

    def warn(self, place: Place, message: str) -> None:
        self._warnings[self._problem(place, message, None)] = None

    def _problem(self, place: Place, message: str, line: int | None) -> Problem:
        return Problem(message, join(place), self.source, line or self.lines.nearest(place))

    @property
    def count(self) -> int:
        """The number of errors so far."""
        return len(self._errors)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """All errors in the order of the text."""
        return _in_order(self._errors)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """All warnings in the order of the text."""
        return _in_order(self._warnings)

    def section(self, at: Located, section: Section) -> dict[str, Located] | None:
        """Return the parts of a mapping by their canonical key, ``None`` if it is none.

        Unknown keys, keys given in two spellings and keys without effect are reported.
        """
        if not isinstance(at.value, dict):
            self.error(at.place, f"{section.title} must be a mapping, found {show(at.value)}")
            return None
        parts: dict[str, Located] = {}
        for word, value in at.value.items():
            key = section.spellings.get(word, word) if isinstance(word, str) else word
            place = (*at.place, word)
            if key in section.ignored:
                self.warn(place, f"{word!r} has no effect here: {section.ignored[key]}")
            elif key not in section.keys:
                self.error(place, section.unknown(word))
            elif key in parts:
                self.error(place, f"{word!r} and {parts[key].place[-1]!r} are the same key; keep one of them")
            else:
                parts[key] = Located(value, place)
        return parts

    def missing(self, place: Place, parts: Mapping[str, Located], section: Section) -> bool:
        """Report the required keys of ``section`` that ``parts`` lacks; tell whether any."""
        absent = [key for key in section.required if key not in parts]
        for key in absent:
            self.error(place, section.lacks(key))
        return bool(absent)


def _in_order(problems: Mapping[Problem, None]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda p: (p.line is None, p.line or 0)))


def show(value: Any) -> str:
    """Return a short text of what was found in a document."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    text = repr(value)
    if len(text) > 60:
        text = text[:50] + "..." + text[-1]
    kind = (
        "the string " if isinstance(value, str) else "the number " if isinstance(value, (int, float)) else ""
    )
    return kind + text
