"""Reading what palaestrAI keeps as JSON: lists of information objects, written with jsonpickle.

An object is written as ``{"py/object": CLASS, "py/state": {...}}``, one that was written before as
``{"py/id": N}``, and a numpy value with its type. Nothing is imported and no object is made: only
what palaestrAI's sensors, actuators and rewards consist of is read
(https://jsonpickle.github.io, 4.0).
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from palaestrai_mosaik.errors import StoreError

_OBJECT, _STATE, _ID, _TUPLE = "py/object", "py/state", "py/id", "py/tuple"
#: how long what cannot be read is shown
_SHOWN = 60


class Information(NamedTuple):
    """The value of a sensor, an actuator or a reward: numbers, or lists of them; ``space`` is its text."""

    uid: str
    value: Any
    space: str


def informations(text: str | None) -> list[Information]:
    """Return the information objects in ``text``, a JSON list; none where there is no text.

    Raises :class:`StoreError` for anything else.
    """
    data = _parsed(text)
    if data is None:
        return []
    if not isinstance(data, list):
        raise _unreadable(data, "expected is a list of sensors, actuators or rewards")
    if _ID in str(text):
        data = _Objects().restored(data)
    return [_information(item) for item in data]


def plain(text: str | None) -> Any:
    """Return other data of palaestrAI as plain data: objects are their state. ``None`` where there is none."""
    data = _parsed(text)
    return None if data is None else _plain(_Objects().restored(data))


def numbers(value: Any) -> Iterator[float]:
    """Yield the numbers that a value consists of, in order; NaN for what is missing.

    Raises :class:`StoreError` for what is no number.
    """
    if isinstance(value, int | float):
        yield float(value)
    elif value is None:
        yield math.nan
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, dict) and "value" in value:
        yield from numbers(value["value"])
    elif isinstance(value, dict) and "values" in value:
        yield from numbers(_array(value))
    elif isinstance(value, dict) and _TUPLE in value:
        yield from numbers(value[_TUPLE])
    else:
        raise _unreadable(value, "expected is a number, a list of numbers, or a value of numpy")


def _parsed(text: str | None) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise _unreadable(text, str(error)) from error


def _information(item: Any) -> Information:
    try:
        state = item[_STATE]
        return Information(str(state["uid"]), state["value"], str(state["space"]))
    except (KeyError, TypeError):
        raise _unreadable(item, "expected is an object with uid, value and space") from None


def _array(data: dict[str, Any]) -> Any:
    """Return the values of a numpy array; large ones are compressed."""
    values = data["values"]
    if not isinstance(values, str):
        return values
    try:
        array = np.frombuffer(zlib.decompress(base64.b64decode(values)), dtype=np.dtype(data["dtype"]))
        if data.get("byteorder") == "S":
            array = array.byteswap()
        return array.reshape(data["shape"], order=data.get("order", "C")).tolist()
    except (ValueError, TypeError, KeyError, zlib.error) as error:
        raise _unreadable(data, str(error)) from error


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _TUPLE in value:
        return _plain(value[_TUPLE])
    if _STATE in value:
        return _plain(value[_STATE])
    if str(value.get(_OBJECT, "")).startswith("numpy."):
        return _array(value) if "values" in value else value.get("value")
    return {key: _plain(item) for key, item in value.items() if key != _OBJECT}


class _Objects:
    """Puts what ``py/id`` refers to in its place: objects, mappings and lists are counted as they begin."""

    def __init__(self) -> None:
        self._known: list[Any] = []

    def restored(self, data: Any) -> Any:
        if isinstance(data, list):
            # (the list that stands for it is filled while what is in it is read)
            items: list[Any] = []
            self._known.append(items)
            items.extend(self.restored(item) for item in data)
            return items
        if not isinstance(data, dict):
            return data
        if _ID in data:
            try:
                return self._known[data[_ID]]
            except (IndexError, TypeError):
                raise _unreadable(data, f"{len(self._known)} objects stand before it") from None
        if _TUPLE in data:
            return [self.restored(item) for item in data[_TUPLE]]
        found: dict[str, Any] = {}
        self._known.append(found)
        for key, item in data.items():
            found[key] = self.restored(item)
        return found


def _unreadable(data: Any, why: str) -> StoreError:
    shown = str(data)
    return StoreError(f"cannot read {shown[:_SHOWN]}{'...' if len(shown) > _SHOWN else ''}: {why}")
