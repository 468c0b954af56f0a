"""Kinds of fields: texts, numbers, words, classes, ids. Problems are reported, not raised."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from palaestrai_mosaik.errors import NameResolutionError, did_you_mean
from palaestrai_mosaik.importing import limit

from .canonical import copy
from .classes import name_fault, refusals, split_id
from .located import Fault, Field, Findings, Located, Schema, Section, show, unquoted
from .model import UNREAD, ClassSpec
from .short_names import SHORT_NAMES, full_name, preset


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

    def faults(value: Any) -> Iterator[Fault]:
        sound = isinstance(value, int) and not isinstance(value, bool)
        if (
            not sound
            or (minimum is not None and value < minimum)
            or (maximum is not None and value > maximum)
        ):
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


def _parameters(found: Findings, at: Located | None, what: str = "params") -> dict[str, Any]:
    """Copy the ``params`` at ``at``; absent or null means none."""
    if at is None or at.value is None:
        return {}
    if not isinstance(at.value, dict):
        found.error(at.place, f"{what} must be a mapping, found {show(at.value)}")
        return {}
    for key in at.value:
        if not isinstance(key, str):
            found.error((*at.place, key), f"a parameter's name must be a string, found {show(key)}")
    return {str(key): copy(value) for key, value in at.value.items()}


def _class_name(found: Findings, at: Located | None, what: str) -> str | None:
    name: str | None = TEXT.read(found, at, "a class name")
    fault = name_fault(name) if name is not None else None
    if at is not None and fault is not None:
        found.error(at.place, fault)
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


def class_spec(found: Findings, at: Located | None, what: str, topic: str) -> ClassSpec | None:
    """Read the class to load at ``at``: ``name`` and ``params``, or the name alone."""
    if at is None:
        return None
    parts: dict[str, Located] | None
    if isinstance(at.value, str):
        parts = {"name": at}
    elif not isinstance(at.value, dict):
        found.error(
            at.place, f"{what} must be a name, or a mapping with name and params, found {show(at.value)}"
        )
        return None
    elif advice := unquoted(at.value, CLASS):
        found.error(
            at.place, f"{what} must be a name, or a mapping with name and params, found a mapping{advice}"
        )
        return None
    else:
        parts = found.section(at, CLASS)
    if parts is None or found.missing(at.place, parts, CLASS):
        return None
    values = CLASS.values(found, parts)
    if values["name"] is None:
        return None
    name, params = with_full_name(found, parts, values["name"], values["params"], topic)
    check_modules(found, parts, name, params)
    return ClassSpec(name, params)


def with_full_name(
    found: Findings, parts: Mapping[str, Located], name: str, params: dict[str, Any], topic: str
) -> tuple[str, dict[str, Any]]:
    """Expand the short name of a class, read from ``parts``, into name and params."""
    defaults = preset(name, topic)
    for key in defaults.keys() & params.keys():
        found.error(
            (*parts["params"].place, key), f"{key!r} is given by the name {name!r}; leave it out here"
        )
    return full_name(name, topic), {**defaults, **params}


def check_modules(
    found: Findings, parts: Mapping[str, Located], name: str, params: Mapping[str, Any]
) -> None:
    """Report forbidden modules that a class and its ``params``, read from ``parts``, name."""
    if limit() is not None:
        for message, (key, *way) in refusals(name, params):
            found.error((*parts[key].place, *way), message)
            found.refused = True


def optional_class(found: Findings, at: Located | None, what: str, topic: str) -> ClassSpec | None:
    """Read the class to load at ``at``; absent or null means none."""
    return None if at is None or at.value is None else class_spec(found, at, what, topic)


def class_list(found: Findings, at: Located | None, what: str, topic: str) -> tuple[ClassSpec, ...]:
    """Read the classes listed at ``at`` (``what``, a plural); absent or null means none."""
    if at is None or at.value is None:
        return ()
    if not isinstance(at.value, list):
        found.error(at.place, f"{what} must be a list, found {show(at.value)}")
        return ()
    return tuple(class_spec(found, item, f"an entry of {what}", topic) or UNREAD for item in items_of(at))


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
    found: Findings, at: Located | None, what: str, uids: Collection[str] | None = None
) -> tuple[str, ...]:
    """Read the sensor or actuator ids at ``at``, each below one of the environments ``uids``.

    If ``uids`` is ``None``, they are unknown and not compared. An entry that is not a text becomes ``""``, so that
    the others keep their positions.
    """
    if at is None:
        return ()
    if not isinstance(at.value, list):
        found.error(at.place, f"{what} must be a list of ids, found {show(at.value)}")
        return ()
    first: dict[str, int] = {}
    ids: list[str] = []
    for index, value in enumerate(at.value):
        place = (*at.place, index)
        sound = TEXT.read(found, Located(value, place), f"an id in {what}") is not None
        ids.append(value if sound else "")
        if not sound:
            continue
        if value in first:
            found.error(place, f"{value!r} stands twice in {what}: first as entry {first[value]}")
            continue
        first[value] = index
        if uids is None:
            continue
        try:
            split_id(value, uids)
        except NameResolutionError as error:
            found.error(place, str(error))
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
