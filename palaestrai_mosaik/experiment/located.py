"""Data with its location: paths, lines, sections and their fields, and the list of problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from palaestrai_mosaik.errors import Problem, did_you_mean
from palaestrai_mosaik.text import count

from .model import Place, join

# The line tree: a leaf is its line; a collection is (line, children), with the children in a
# dict or a list of such nodes. Aliases share their children, so the tree is as small as
# the text, even if it would expand to much more.
Tree = Any


class Lines(Mapping[str, int]):
    """The lines of all paths of a text, ``schedule.0.phase_0`` -> 12.

    A view of the tree: an entry is found by walking, so nothing is expanded in advance.
    Keys that contain dots are found, too.
    """

    def __init__(self, tree: Tree = None):
        self._tree = tree

    def nearest(self, place: Place) -> int | None:
        """Return the line of ``place``, or of its innermost parent with a line."""
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
                result = self._find(child, ".".join(pieces[taken:]))
                if result is not None:
                    return result
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
    """A value and its place in the text."""

    value: Any
    place: Place

    def child(self, key: Any) -> Located:
        return Located(self.value[key], (*self.place, key))


#: a problem of a value: the place below it, and the message after its name
Fault = tuple[Place, str]
Schema = dict[str, Any]


@dataclass(frozen=True)
class Field:
    """The allowed values of a key, for the check, for editors (JSON Schema) and for the reference.

    ``faults`` yields all problems of a value, ``convert`` turns a sound one into the model's
    value. If ``nullable``, null is the same as leaving the key out: the ``default`` holds.
    ``title`` is the key's name in messages, if it differs from the key. ``reader`` reads a composite
    value (such as a list of classes), and reports its problems by itself.
    """

    schema: Schema
    faults: Callable[[Any], Iterator[Fault]] = lambda value: iter(())
    convert: Callable[[Any], Any] = lambda value: value
    nullable: bool = True
    default: Any = None
    title: str = ""
    reader: Callable[[Findings, Located | None, str], Any] | None = None

    def read(self, found: Findings, at: Located | None, what: str) -> Any:
        """Return the value at ``at``, called ``what`` in messages; the default if it is not sound."""
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
        """Copy the field with another title, and additions to its schema."""
        return replace(self, title=title, schema=self.schema | schema)


@dataclass(frozen=True)
class Section:
    """The allowed keys of a mapping in a document.

    ``keys``: the fields by key; ``required``: the keys that must be there (after the cascade);
    ``spellings``: other words for a key; ``ignored``: keys of palaestrAI that load, but
    have no effect here, each with a remark.
    """

    title: str
    keys: Mapping[str, Field]
    required: tuple[str, ...] = ()
    spellings: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str, ...]:
        """All words that are accepted as keys."""
        return (*self.keys, *self.spellings, *self.ignored)

    def schema(self, required: tuple[str, ...] = ()) -> Schema:
        """Build the JSON Schema of the mapping: its keys, their spellings, the keys without effect.

        A required key with several spellings is not required, because any of them may be used.
        """
        words = {key: key_field.schema for key, key_field in self.keys.items()}
        words |= {word: self.keys[key].schema for word, key in self.spellings.items()}
        words |= {word: {"description": "of palaestrAI; no effect here"} for word in self.ignored}
        schema: Schema = {"type": "object", "properties": words, "additionalProperties": False}
        needed = [key for key in required if key not in self.spellings.values()]
        return schema | {"required": needed} if needed else schema

    def faults(self, value: Any) -> Iterator[Fault]:
        """Yield the problems of a mapping that is not in a text and needs every key."""
        if not isinstance(value, Mapping):
            yield (), f"{self.title} must be a mapping, found {show(value)}"
            return
        for key, item in value.items():
            if key in self.keys:
                for place, message in self.keys[key].faults(item):
                    yield (key, *place), f"{key} {message}"
            else:
                yield (key,), self.unknown(key)
        for key in self.keys:
            if key not in value:
                yield (), self.lacks(key)

    def unknown(self, word: Any) -> str:
        """Build the message for an unknown word."""
        near, allowed = did_you_mean(word, self.words), ", ".join(self.keys)
        return f"unknown key {word!r} in {self.title}{near}; allowed: {allowed}"

    def lacks(self, key: str) -> str:
        """Build the message for a missing key."""
        return f"{self.title} needs the key {key!r}, which is missing"

    def values(self, found: Findings, parts: Mapping[str, Located], owner: str = "") -> dict[str, Any]:
        """Read the value of every key; messages put ``owner`` before the keys (``"load's "``)."""
        return {
            key: key_field.read(found, parts.get(key), f"{owner}{key_field.title or key}")
            for key, key_field in self.keys.items()
        }


#: the maximum number of problems of one kind (errors, warnings, notes) per document; the others are only counted
MOST_PROBLEMS = 1_000


class Findings:
    """Collects the problems of a document, without duplicates."""

    def __init__(self, source: str, lines: Lines):
        self.source = source
        self.lines = lines
        #: whether the document names forbidden modules: then no other may be imported to look for more errors
        self.refused = False
        self._errors: dict[Problem, None] = {}
        #: the places of all errors, and their parents
        self._unsound: set[Place] = set()
        self._warnings: dict[Problem, None] = {}
        self._notes: dict[Problem, None] = {}
        #: the number of errors without a message
        self._more = 0

    def error(self, place: Place, message: str, line: int | None = None) -> None:
        if self.is_full:
            self._more += 1
        else:
            self._errors[self._problem(place, message, line)] = None
        self._unsound.update(place[:length] for length in range(len(place) + 1))

    def warn(self, place: Place, message: str) -> None:
        if len(self._warnings) < MOST_PROBLEMS:
            self._warnings[self._problem(place, message, None)] = None

    def note(self, place: Place, message: str) -> None:
        """Add a note, which only ``check --verbose`` prints."""
        if len(self._notes) < MOST_PROBLEMS:
            self._notes[self._problem(place, message, None)] = None

    @property
    def is_full(self) -> bool:
        """Whether further errors are only counted, without their messages."""
        return len(self._errors) >= MOST_PROBLEMS

    def _problem(self, place: Place, message: str, line: int | None) -> Problem:
        return Problem(message, join(place), self.source, line or self.lines.nearest(place))

    @property
    def count(self) -> int:
        """The number of errors so far."""
        return len(self._errors) + self._more

    def is_sound(self, *places: Place) -> bool:
        """Whether these places, and all inside of them, are without errors."""
        return self._unsound.isdisjoint(places)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """All errors in the order of the text; of more than :data:`MOST_PROBLEMS`, the first ones found."""
        problems = _in_order(self._errors)
        if self._more:
            message = f"{count(self._more, 'more problem')}: the first {MOST_PROBLEMS:,} are listed here"
            problems += (Problem(message, file=self.source),)
        return problems

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """All warnings in the order of the text."""
        return _in_order(self._warnings)

    @property
    def notes(self) -> tuple[Problem, ...]:
        """All notes in the order of the text."""
        return _in_order(self._notes)

    def section(self, at: Located, section: Section) -> dict[str, Located] | None:
        """Split a mapping into its parts by canonical key; ``None`` if it is not a mapping.

        Unknown keys, keys in two spellings and keys without effect are reported.
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
                self.error(place, "" if self.is_full else section.unknown(word))
            elif key in parts:
                self.error(place, f"{word!r} and {parts[key].place[-1]!r} are the same key; keep one of them")
            else:
                parts[key] = Located(value, place)
        return parts

    def missing(self, place: Place, parts: Mapping[str, Located], section: Section) -> bool:
        """Report the required keys of ``section`` that ``parts`` lacks; return whether there are any."""
        absent = [key for key in section.required if key not in parts]
        for key in absent:
            self.error(place, section.lacks(key))
        return bool(absent)


def _in_order(problems: Mapping[Problem, None]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda p: (p.line is None, p.line or 0)))


def show_unquoted(value: Any) -> str:
    """Describe a value in a file that a document names, without quoting text, which may be secret."""
    return "a text" if isinstance(value, str) else show(value)


def unquoted(value: Any, section: Section | None = None) -> str:
    """Advise to quote a text that YAML reads as a mapping, such as ``{building: House}``; else ``""``.

    A mapping with a key of ``section``, perhaps misspelt, is taken as a mapping.
    """
    if not isinstance(value, dict) or len(value) != 1:
        return ""
    key, inner = next(iter(value.items()))
    if not isinstance(key, str) or not isinstance(inner, str | None):
        return ""
    if section is not None and (key in section.words or did_you_mean(key, section.words)):
        return ""
    if inner is None and ":" not in key:
        return ""
    return f'; if it is one text, put it in quotes: "{key if inner is None else f"{key}:{inner}"}"'


def show(value: Any) -> str:
    """Describe a value in a document in a few words."""
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
