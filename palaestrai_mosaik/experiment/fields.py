"""Fields and sections of a document: what is allowed, how a value is read, and which problems it has.

Problems are collected with the path and line of the value, not raised.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from palaestrai_mosaik.core.errors import NameResolutionError, Problem, did_you_mean
from palaestrai_mosaik.core.importing import limit
from palaestrai_mosaik.core.printing import count, listed

from .class_names import SHORT_NAMES, full_name, name_fault, preset, refusals
from .model import UNREAD, ClassSpec, Place, join
from .yaml_text import Lines, copy


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

    def read(self, findings: Findings, at: Located | None, what: str) -> Any:
        """Return the value at ``at``, called ``what`` in messages; the default if it is not sound."""
        if self.reader is not None:
            return self.reader(findings, at, what)
        if at is None or (at.value is None and self.nullable):
            return self.default
        sound = True
        for path, message in self.faults(at.value):
            findings.error((*at.place, *path), f"{what} {message}")
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
                for path, message in self.keys[key].faults(item):
                    yield (key, *path), f"{key} {message}"
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

    def values(self, findings: Findings, parts: Mapping[str, Located], owner: str = "") -> dict[str, Any]:
        """Read the value of every key; messages put ``owner`` before the keys (``"load's "``)."""
        return {
            key: key_field.read(findings, parts.get(key), f"{owner}{key_field.title or key}")
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

    def error(self, path: Place, message: str, line: int | None = None) -> None:
        if self.is_full:
            self._more += 1
        else:
            self._errors[self._problem(path, message, line)] = None
        self._unsound.update(path[:length] for length in range(len(path) + 1))

    def warn(self, path: Place, message: str) -> None:
        if len(self._warnings) < MOST_PROBLEMS:
            self._warnings[self._problem(path, message, None)] = None

    def note(self, path: Place, message: str) -> None:
        """Add a note, which only ``check --verbose`` prints."""
        if len(self._notes) < MOST_PROBLEMS:
            self._notes[self._problem(path, message, None)] = None

    @property
    def is_full(self) -> bool:
        """Whether further errors are only counted, without their messages."""
        return len(self._errors) >= MOST_PROBLEMS

    def _problem(self, path: Place, message: str, line: int | None) -> Problem:
        return Problem(message, join(path), self.source, line or self.lines.nearest(path))

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
            path = (*at.place, word)
            if key in section.ignored:
                self.warn(path, f"{word!r} has no effect here: {section.ignored[key]}")
            elif key not in section.keys:
                self.error(path, "" if self.is_full else section.unknown(word))
            elif key in parts:
                self.error(path, f"{word!r} and {parts[key].place[-1]!r} are the same key; keep one of them")
            else:
                parts[key] = Located(value, path)
        return parts

    def items(self, at: Located | None, what: str, kind: str = "a list") -> list[Located]:
        """List the items at ``at``, called ``what`` in messages; an absent list has none."""
        if at is not None and not isinstance(at.value, list):
            self.error(at.place, f"{what} must be {kind}, found {show(at.value)}")
        return items_of(at)

    def missing(self, path: Place, parts: Mapping[str, Located], section: Section) -> bool:
        """Report the required keys of ``section`` that ``parts`` lacks; return whether there are any."""
        absent = [key for key in section.required if key not in parts]
        for key in absent:
            self.error(path, section.lacks(key))
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
    key, inner = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else (None, None)
    if not isinstance(key, str) or not isinstance(inner, str | None):
        return ""
    if section is not None and (key in section.words or did_you_mean(key, section.words)):
        return ""
    text = key if inner is None else f"{key}:{inner}"
    return f'; if it is one text, put it in quotes: "{text}"' if ":" in text else ""


def show(value: Any) -> str:
    """Describe a value in a document in a few words."""
    if value is None:
        return "nothing (null)"
    kind = "mapping" if isinstance(value, dict) else "string" if isinstance(value, str) else "list"
    if isinstance(value, (str, dict, list, tuple)) and not value:
        return f"an empty {kind}"
    if isinstance(value, (dict, list, tuple)):
        return f"a {kind}"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    text = repr(value)
    if len(text) > 60:
        text = text[:50] + "..." + text[-1]
    if isinstance(value, str):
        return f"the string {text}"
    return f"the number {text}" if isinstance(value, (int, float)) else text


def ref(name: str) -> Schema:
    """Build a reference to the definition ``name`` of a schema."""
    return {"$ref": f"#/$defs/{name}"}


def maybe(schema: Schema) -> Schema:
    """Extend ``schema`` by null."""
    return {"anyOf": [schema, {"type": "null"}]}


# --- single values ------------------------------------------------------------------------


def _text_faults(value: Any) -> Iterator[Fault]:
    if not (isinstance(value, str) and value):
        quotes = f'; put it in quotes: "{value}"' if isinstance(value, int | float) else unquoted(value)
        yield (), f"must be a non-empty string, found {show(value)}{quotes}"


#: a non-empty text; the message for a number says how to quote it
TEXT = Field({"type": "string", "minLength": 1}, _text_faults, nullable=False)
MAYBE_TEXT = Field({"type": ["string", "null"], "minLength": 1}, _text_faults)


def _flag_faults(value: Any) -> Iterator[Fault]:
    if not isinstance(value, bool):
        yield (), f"must be true or false, found {show(value)}"


FLAG = Field({"type": ["boolean", "null"]}, _flag_faults, default=False)


def integer(
    minimum: int | None = None,
    maximum: int | None = None,
    *,
    nullable: bool = True,
    default: int | None = None,
) -> Field:
    """Build the field of an integer."""
    kind = f"an integer of {minimum} to {maximum:,}" if maximum is not None else "an integer"
    if minimum is not None and maximum is None:
        kind += f" of at least {minimum}"
    null = " or null" if nullable else ""
    least, most = (-math.inf if minimum is None else minimum), (math.inf if maximum is None else maximum)

    def faults(value: Any) -> Iterator[Fault]:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            yield (), f"must be {kind}{null}, found {show(value)}"

    limits = {"minimum": minimum, "maximum": maximum}
    schema: Schema = {"type": ["integer", "null"] if nullable else "integer"}
    schema |= {name: value for name, value in limits.items() if value is not None}
    return Field(schema, faults, nullable=nullable, default=default)


def number(minimum: float | None = None) -> Field:
    """Build the field of a finite number."""
    least = "" if minimum is None else f" of at least {minimum:g}"

    def faults(value: Any) -> Iterator[Fault]:
        sound = isinstance(value, int | float) and not isinstance(value, bool)
        # integers may be greater than the largest float
        if not sound or not abs(value) <= sys.float_info.max or (minimum is not None and value < minimum):
            yield (), f"must be a finite number{least}, found {show(value)}"

    limits = {} if minimum is None else {"minimum": minimum}
    return Field({"type": "number"} | limits, faults, nullable=False)


def _seconds_faults(value: Any) -> Iterator[Fault]:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        yield (), f"must be a number of seconds > 0, found {show(value)}"


#: a maximum duration in seconds
SECONDS = Field({"type": ["number", "null"], "exclusiveMinimum": 0}, _seconds_faults)


def word(
    table: Collection[str], default: Any = None, *, case: bool = True, shown: Collection[str] = ()
) -> Field:
    """Build the field for a choice of words.

    Args:
        table: the words; the field's value is the word itself, or its value if this is a mapping.
        default: the value of a missing key.
        case: distinguish upper and lower case.
        shown: the words that messages list; all if it is empty.
    """

    def faults(value: Any) -> Iterator[Fault]:
        key = value if case or not isinstance(value, str) else value.lower()
        if not (isinstance(key, str) and key in table):
            near = did_you_mean(key, table) if isinstance(key, str) else ""
            yield (), f"is {show(key)}{near}; allowed: {', '.join(shown or table)}"

    def convert(value: str) -> Any:
        value = value if case else value.lower()
        return table[value] if isinstance(table, Mapping) else value

    schema: Schema = {"enum": list(table)}
    if not case:
        patterns = "|".join("".join(f"[{c}{c.upper()}]" for c in text) for text in table)
        schema = {"type": "string", "pattern": f"^({patterns})$", "examples": list(table)}
    return Field(schema, faults, convert, default=default)


# --- classes ------------------------------------------------------------------------------


def _parameters(findings: Findings, at: Located | None, what: str = "params") -> dict[str, Any]:
    """Copy the ``params`` at ``at``; absent or null means none."""
    if at is None or at.value is None:
        return {}
    if not isinstance(at.value, dict):
        findings.error(at.place, f"{what} must be a mapping, found {show(at.value)}")
        return {}
    for key in at.value:
        if not isinstance(key, str):
            findings.error((*at.place, key), f"a parameter's name must be a string, found {show(key)}")
    return {str(key): copy(value) for key, value in at.value.items()}


def _class_name(findings: Findings, at: Located | None, what: str) -> str | None:
    name: str | None = TEXT.read(findings, at, "a class name")
    fault = name_fault(name) if name is not None else None
    if at is not None and fault is not None:
        findings.error(at.place, fault)
        return None
    return name


#: the name of a class, its form checked
CLASS_NAME = Field(TEXT.schema, reader=_class_name)
PARAMS = Field({"type": ["object", "null"]}, reader=_parameters)
SPELLINGS = {"parameters": "params"}
CLASS = Section(
    "a class",
    {"name": CLASS_NAME, "params": PARAMS},
    required=("name",),
    spellings=SPELLINGS,
    ignored={"uid": "palaestrAI passes over it, too; an environment's stands beside its name"},
)


def class_spec(findings: Findings, at: Located | None, what: str, topic: str) -> ClassSpec | None:
    """Read the class to load at ``at``: ``name`` and ``params``, or the name alone."""
    if at is None:
        return None
    parts: dict[str, Located] | None = {"name": at}
    if not isinstance(at.value, str):
        advice = unquoted(at.value, CLASS)
        if not isinstance(at.value, dict) or advice:
            message = (
                f"{what} must be a name, or a mapping with name and params, found {show(at.value)}{advice}"
            )
            findings.error(at.place, message)
            return None
        parts = findings.section(at, CLASS)
    if parts is None or findings.missing(at.place, parts, CLASS):
        return None
    values = CLASS.values(findings, parts)
    if values["name"] is None:
        return None
    name, params = with_full_name(findings, parts, values["name"], values["params"], topic)
    return ClassSpec(name, params)


def with_full_name(
    findings: Findings, parts: Mapping[str, Located], name: str, params: dict[str, Any], topic: str
) -> tuple[str, dict[str, Any]]:
    """Expand the short name of a class, read from ``parts``, into name and params; report forbidden modules."""
    defaults = preset(name, topic)
    for key in defaults.keys() & params.keys():
        findings.error(
            (*parts["params"].place, key), f"{key!r} is given by the name {name!r}; leave it out here"
        )
    name, params = full_name(name, topic), {**defaults, **params}
    if limit() is not None:
        for message, (key, *way) in refusals(name, params):
            findings.error((*parts[key].place, *way), message)
            findings.refused = True
    return name, params


def optional_class(findings: Findings, at: Located | None, what: str, topic: str) -> ClassSpec | None:
    """Read the class to load at ``at``; absent or null means none."""
    return None if at is None or at.value is None else class_spec(findings, at, what, topic)


def class_list(findings: Findings, at: Located | None, what: str, topic: str) -> tuple[ClassSpec, ...]:
    """Read the classes listed at ``at`` (``what``, a plural); absent or null means none."""
    if at is None or at.value is None:
        return ()
    items = findings.items(at, what)
    return tuple(class_spec(findings, item, f"an entry of {what}", topic) or UNREAD for item in items)


def one_class(topic: str) -> Field:
    """Build the field of a class for ``topic``."""
    return Field(ref(topic), reader=partial(class_spec, topic=topic))


def maybe_class(topic: str) -> Field:
    """Build the field of a class for ``topic``, or null."""
    return Field(maybe(ref(topic)), reader=partial(optional_class, topic=topic))


def class_items(topic: str) -> Field:
    """Build the field of a list of classes for ``topic``, or null."""
    return Field(maybe({"type": "array", "items": ref(topic)}), reader=partial(class_list, topic=topic))


def class_name_schema(topic: str) -> Schema:
    """Build the schema of a class name for ``topic``, with the short names for editors to complete."""
    names = sorted(SHORT_NAMES[topic])
    return {"anyOf": [{"enum": names}, TEXT.schema]} if names else TEXT.schema


def class_schema(topic: str) -> Schema:
    """Build the schema of a class for ``topic``: its name, or a mapping."""
    whole = CLASS.schema(CLASS.required)
    name = class_name_schema(topic)
    return {"anyOf": [name, whole | {"properties": whole["properties"] | {"name": name}}]}


# --- sensors and actuators ----------------------------------------------------------------


def id_list(
    findings: Findings, at: Located | None, what: str, uids: Collection[str] | None = None
) -> tuple[str, ...]:
    """Read the sensor or actuator ids at ``at``, each below one of the environments ``uids``.

    If ``uids`` is ``None``, they are unknown and not compared. An entry that is not a text becomes ``""``, so that
    the others keep their positions.
    """
    first: dict[str, int] = {}
    ids: list[str] = []
    for index, item in enumerate(findings.items(at, what, "a list of ids")):
        full_id: str = TEXT.read(findings, item, f"an id in {what}") or ""
        ids.append(full_id)
        if full_id in first:
            message = f"{full_id!r} stands twice in {what}: first as entry {first[full_id]}"
            findings.error(item.place, message)
        elif full_id:
            first[full_id] = index
            try:
                if uids is not None:
                    split_id(full_id, uids)
            except NameResolutionError as error:
                findings.error(item.place, str(error))
    return tuple(ids)


_IDS: Schema = {"type": "array", "items": TEXT.schema, "uniqueItems": True}
#: null removes the inherited ids of an agent with bodies
IDS = Field(maybe(_IDS), reader=partial(id_list, uids=None))
# --- collections --------------------------------------------------------------------------


def items_of(at: Located | None) -> list[Located]:
    """List the items of the list at ``at``; empty if it is not a list."""
    if at is None or not isinstance(at.value, list):
        return []
    return [at.child(index) for index in range(len(at.value))]


def split_id(full_id: str, uids: Collection[str]) -> tuple[str, str]:
    """Split a sensor's or actuator's full id into environment uid and local id.

    The uid ends at a dot, and uids may contain dots themselves: the longest match wins.

    Args:
        full_id: the id, such as ``grid.bus-3.vm_pu``.
        uids: the uids of the environments.

    Returns:
        The uid, and the local id.

    Raises:
        NameResolutionError: the id begins with none of ``uids``.
    """
    end = full_id.rfind(".")
    while end > 0:
        if full_id[:end] in uids and end + 1 < len(full_id):
            return full_id[:end], full_id[end + 1 :]
        end = full_id.rfind(".", 0, end)
    raise NameResolutionError(_no_environment(full_id, uids))


def _no_environment(full_id: str, uids: Collection[str]) -> str:
    """Build the message for an id that begins with none of ``uids``."""
    if full_id in uids:
        return f"{full_id!r} is an environment; name one of its sensors or actuators: '{full_id}.<id>'"
    near = ""
    for head, _, tail in (full_id.rpartition("."), full_id.partition(".")):  # local ids may have dots, too
        if not near and did_you_mean(head, uids):
            near = did_you_mean(full_id, [f"{uid}.{tail}" for uid in uids])
    allowed = listed([repr(uid) for uid in sorted(uids)], 5)
    return (
        f"{full_id!r} must start with the uid of an environment of the phase and a dot{near}; "
        f"environments: {allowed or 'none'}"
    )
