"""Readers of single values of a document: what is wrong is reported, nothing raised."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from palaestrai_mosaik.errors import NameResolutionError, did_you_mean
from palaestrai_mosaik.importing import limit

from .canonical import copy
from .classes import name_fault, refusals, split_id
from .located import Findings, Located, show
from .model import ClassSpec
from .vocabulary import CLASS

Spec = TypeVar("Spec")


def identifier(found: Findings, at: Located, what: str) -> str | None:
    """Return the non-empty string at ``at``; numbers are answered with how to quote them."""
    if isinstance(at.value, str) and at.value:
        return at.value
    quotes = f'; put it in quotes: "{at.value}"' if isinstance(at.value, (int, float)) else ""
    found.error(at.place, f"{what} must be a non-empty string, found {show(at.value)}{quotes}")
    return None


def class_name(found: Findings, at: Located) -> str | None:
    """Return the name of a class, its form checked."""
    name = identifier(found, at, "a class name")
    fault = name_fault(name) if name is not None else None
    if fault is not None:
        found.error(at.place, fault)
        return None
    return name


def class_spec(found: Findings, at: Located, what: str) -> ClassSpec | None:
    """Return the class to load at ``at`` (``name`` and ``params``)."""
    if not isinstance(at.value, dict):
        found.error(at.place, f"{what} must be a mapping with name and params, found {show(at.value)}")
        return None
    parts = found.section(at, CLASS)
    if parts is None or found.missing(at.place, parts, CLASS):
        return None
    name = class_name(found, parts["name"])
    params = parameters(found, parts.get("params"))
    if name is None:
        return None
    check_modules(found, parts, name, params)
    return ClassSpec(name, params)


def check_modules(
    found: Findings, parts: Mapping[str, Located], name: str, params: Mapping[str, Any]
) -> None:
    """Note what a class and its ``params``, read from ``parts``, name of modules that are not allowed."""
    if limit() is not None:
        for message, (key, *way) in refusals(name, params):
            found.error((*parts[key].place, *way), message)


def optional_class(found: Findings, at: Located | None, what: str) -> ClassSpec | None:
    """Return the class to load at ``at``; absent or null means none."""
    return None if at is None or at.value is None else class_spec(found, at, what)


def parameters(found: Findings, at: Located | None) -> dict[str, Any]:
    """Return an own copy of the ``params`` at ``at``; absent or null means none."""
    if at is None or at.value is None:
        return {}
    if not isinstance(at.value, dict):
        found.error(at.place, f"params must be a mapping, found {show(at.value)}")
        return {}
    for key in at.value:
        if not isinstance(key, str):
            found.error((*at.place, key), f"a parameter's name must be a string, found {show(key)}")
    return {str(key): copy(value) for key, value in at.value.items()}


def integer(
    found: Findings, at: Located | None, what: str, minimum: int | None, *, nullable: bool = True
) -> int | None:
    """Return the integer at ``at``; absent, or null where that is ``nullable``, gives ``None``."""
    if at is None or (at.value is None and nullable):
        return None
    value = at.value
    if isinstance(value, int) and not isinstance(value, bool) and (minimum is None or value >= minimum):
        return value
    least = "" if minimum is None else f" of at least {minimum}"
    null = " or null" if nullable else ""
    found.error(at.place, f"{what} must be an integer{least}{null}, found {show(value)}")
    return None


def boolean(found: Findings, at: Located | None, what: str) -> bool:
    """Return the boolean at ``at``; absent or null means false."""
    if at is None or at.value is None:
        return False
    if isinstance(at.value, bool):
        return at.value
    found.error(at.place, f"{what} must be true or false, found {show(at.value)}")
    return False


def choice(found: Findings, at: Located | None, what: str, table: Mapping[str, Spec], default: Spec) -> Spec:
    """Return what the word at ``at`` stands for in ``table``; absent or null: ``default``."""
    if at is None or at.value is None:
        return default
    if isinstance(at.value, str) and at.value in table:
        return table[at.value]
    near = did_you_mean(at.value, table) if isinstance(at.value, str) else ""
    found.error(at.place, f"{what} is {show(at.value)}{near}; allowed: {', '.join(table)}")
    return default


def id_list(found: Findings, at: Located | None, what: str, uids: Collection[str] | None) -> tuple[str, ...]:
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
        if identifier(found, Located(value, place), f"an id in {what}") is None:
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


def class_list(found: Findings, at: Located | None, what: str) -> tuple[ClassSpec, ...]:
    """Return the classes listed at ``at`` (``what``, a plural); absent or null means none."""
    if at is None or at.value is None:
        return ()
    if not isinstance(at.value, list):
        found.error(at.place, f"{what} must be a list, found {show(at.value)}")
        return ()
    specs = [class_spec(found, item, f"an entry of {what}") for item in items_of(at)]
    return tuple(spec for spec in specs if spec is not None)


def items_of(at: Located | None) -> list[Located]:
    """Return the items of the list at ``at``, none where there is no list."""
    if at is None or not isinstance(at.value, list):
        return []
    return [at.child(index) for index in range(len(at.value))]


def lower(at: Located | None) -> Located | None:
    """Return ``at`` with its text in lower case, for words whose case does not matter."""
    return at._replace(value=at.value.lower()) if at is not None and isinstance(at.value, str) else at
