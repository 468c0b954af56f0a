"""Kinds of fields: texts, numbers, words, classes, ids. What is wrong is reported, nothing raised."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from palaestrai_mosaik.errors import NameResolutionError, did_you_mean
from palaestrai_mosaik.importing import limit

from .canonical import copy
from .classes import name_fault, refusals, split_id
from .located import Fault, Field, Findings, Located, Schema, Section, show
from .model import ClassSpec
from .short_names import SHORT_NAMES, full_name, preset


def ref(name: str) -> Schema:
    """Return a reference to the definition ``name`` of a schema."""
    return {"$ref": f"#/$defs/{name}"}


def maybe(schema: Schema) -> Schema:
    """Return ``schema``, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


# --- single values ------------------------------------------------------------------------


def _text_faults(value: Any) -> Iterator[Fault]:
    if not (isinstance(value, str) and value):
        quotes = f'; put it in quotes: "{value}"' if isinstance(value, int | float) else ""
        yield (), f"must be a non-empty string, found {show(value)}{quotes}"


#: a text that is not empty; of a number, the message says how to quote it
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
    """Return the field of a whole number."""
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
    """Return the field of a finite number."""
    least = "" if minimum is None else f" of at least {minimum:g}"

    def faults(value: Any) -> Iterator[Fault]:
        sound = isinstance(value, int | float) and not isinstance(value, bool)
        # beyond the largest float there are integers
        if not sound or not abs(value) <= sys.float_info.max or (minimum is not None and value < minimum):
            yield (), f"must be a finite number{least}, found {show(value)}"

    limits = {} if minimum is None else {"minimum": minimum}
    return Field({"type": "number"} | limits, faults, nullable=False)


def word(
    table: Collection[str], default: Any = None, *, case: bool = True, shown: Collection[str] = ()
) -> Field:
    """Return the field of one of some words; of a mapping the value that the word stands for is kept.

    Without ``case``, upper and lower case are the same. Messages list the words that are ``shown`` (none: all).
    """

    def faults(value: Any) -> Iterator[Fault]:
        given = value if case or not isinstance(value, str) else value.lower()
        if not (isinstance(given, str) and given in table):
            near = did_you_mean(given, table) if isinstance(given, str) else ""
            yield (), f"is {show(given)}{near}; allowed: {', '.join(shown or table)}"

    def convert(value: str) -> Any:
        value = value if case else value.lower()
        return table[value] if isinstance(table, Mapping) else value

    schema: Schema = {"enum": list(table)}
    if not case:
        patterns = "|".join("".join(f"[{c}{c.upper()}]" for c in one) for one in table)
        schema = {"type": "string", "pattern": f"^({patterns})$", "examples": list(table)}
    return Field(schema, faults, convert, default=default)


# --- classes ------------------------------------------------------------------------------


def _parameters(found: Findings, at: Located | None, what: str = "params") -> dict[str, Any]:
    """Return an own copy of the ``params`` at ``at``; absent or null means none."""
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
    """Return the class to load at ``at``: ``name`` and ``params``, or the name alone."""
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
    else:
        parts = found.section(at, CLASS)
    if parts is None or found.missing(at.place, parts, CLASS):
        return None
    given = CLASS.values(found, parts)
    if given["name"] is None:
        return None
    name, params = with_full_name(found, parts, given["name"], given["params"], topic)
    check_modules(found, parts, name, params)
    return ClassSpec(name, params)


def with_full_name(
    found: Findings, parts: Mapping[str, Located], name: str, params: dict[str, Any], topic: str
) -> tuple[str, dict[str, Any]]:
    """Return name and params of a class, read from ``parts``, without a short name."""
    brought = preset(name, topic)
    for key in brought.keys() & params.keys():
        found.error(
            (*parts["params"].place, key), f"{key!r} is given by the name {name!r}; leave it out here"
        )
    return full_name(name, topic), {**brought, **params}


def check_modules(
    found: Findings, parts: Mapping[str, Located], name: str, params: Mapping[str, Any]
) -> None:
    """Note what a class and its ``params``, read from ``parts``, name of modules that are not allowed."""
    if limit() is not None:
        for message, (key, *way) in refusals(name, params):
            found.error((*parts[key].place, *way), message)
            found.refused = True


def optional_class(found: Findings, at: Located | None, what: str, topic: str) -> ClassSpec | None:
    """Return the class to load at ``at``; absent or null means none."""
    return None if at is None or at.value is None else class_spec(found, at, what, topic)


def class_list(found: Findings, at: Located | None, what: str, topic: str) -> tuple[ClassSpec, ...]:
    """Return the classes listed at ``at`` (``what``, a plural); absent or null means none."""
    if at is None or at.value is None:
        return ()
    if not isinstance(at.value, list):
        found.error(at.place, f"{what} must be a list, found {show(at.value)}")
        return ()
    specs = [class_spec(found, item, f"an entry of {what}", topic) for item in items_of(at)]
    return tuple(spec for spec in specs if spec is not None)


def one_class(topic: str) -> Field:
    """Return the field of a class for ``topic``."""
    return Field(ref(topic), reader=partial(class_spec, topic=topic))


def maybe_class(topic: str) -> Field:
    """Return the field of a class for ``topic``, or null."""
    return Field(maybe(ref(topic)), reader=partial(optional_class, topic=topic))


def class_items(topic: str) -> Field:
    """Return the field of a list of classes for ``topic``, or null."""
    return Field(maybe({"type": "array", "items": ref(topic)}), reader=partial(class_list, topic=topic))


def class_name_schema(topic: str) -> Schema:
    """Return the schema of a class name for ``topic``, with the short names for editors to complete."""
    known = sorted(SHORT_NAMES[topic])
    return {"anyOf": [{"enum": known}, TEXT.schema]} if known else TEXT.schema


def class_schema(topic: str) -> Schema:
    """Return the schema of a class for ``topic``: its name, or a mapping."""
    whole = CLASS.schema(CLASS.required)
    name = class_name_schema(topic)
    return {"anyOf": [name, whole | {"properties": whole["properties"] | {"name": name}}]}


# --- sensors and actuators ----------------------------------------------------------------


def id_list(
    found: Findings, at: Located | None, what: str, uids: Collection[str] | None = None
) -> tuple[str, ...]:
    """Return the sensor or actuator ids at ``at``, each below one of the environments ``uids``.

    Where ``uids`` is ``None``, they are not known and not compared.
    """
    if at is None:
        return ()
    if not isinstance(at.value, list):
        found.error(at.place, f"{what} must be a list of ids, found {show(at.value)}")
        return ()
    first: dict[str, int] = {}
    for index, value in enumerate(at.value):
        place = (*at.place, index)
        if TEXT.read(found, Located(value, place), f"an id in {what}") is None:
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
    return tuple(first)


_IDS: Schema = {"type": "array", "items": TEXT.schema, "uniqueItems": True}
#: null takes away those of a phase before, from an agent with bodies
IDS = Field(maybe(_IDS), reader=partial(id_list, uids=None))


# --- collections --------------------------------------------------------------------------


def items_of(at: Located | None) -> list[Located]:
    """Return the items of the list at ``at``, none where there is no list."""
    if at is None or not isinstance(at.value, list):
        return []
    return [at.child(index) for index in range(len(at.value))]
