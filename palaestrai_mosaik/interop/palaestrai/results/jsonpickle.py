"""Decoder of palaestrAI's JSON: lists of information objects written by jsonpickle.

An object is encoded as ``{"py/object": CLASS, "py/state": {...}}``, a repeated object as ``{"py/id": N}``, and a NumPy
value with its type (https://jsonpickle.github.io, 4.0). Nothing is imported and no object is created. Only the contents
of palaestrAI's sensors, actuators and rewards are decoded. Depth and size are limited, so that no text can exhaust
memory or time.
"""

from __future__ import annotations

import base64
import json
import math
import re
import reprlib
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.text import shorten

_OBJECT, _STATE, _ID, _TUPLE = "py/object", "py/state", "py/id", "py/tuple"
#: maximum length of excerpts in messages
_SHOWN = 60
#: maximum nesting depth, and maximum number of values in one text after references are resolved
_DEEPEST, _MOST = 100, 10_000_000
#: numeric types as written by NumPy; ``numpy.dtype`` would evaluate others
_DTYPE = re.compile(r"[<>|=]?[fiub][1248]|bool|u?int(8|16|32|64)|float(16|32|64)")
_INT64 = 2**63


class Information(NamedTuple):
    """The value of a sensor, actuator or reward: numbers or nested lists; ``space`` is its text form."""

    uid: str
    value: Any
    space: str


def informations(text: str | None) -> list[Information]:
    """Decode a JSON list of information objects; without a text, return an empty list.

    Raises :class:`StoreError` for any other content.
    """
    data = _parsed(text)
    if data is None:
        return []
    if not isinstance(data, list):
        raise _unreadable(data, "expected is a list of sensors, actuators or rewards")
    if _ID in str(text):
        data = _Objects().restored(data)
    return [_information(item) for item in data]


def mapping(text: str | None, what: str) -> dict[str, Any]:
    """Decode a mapping as in :func:`plain`; without a text, return an empty mapping."""
    data = plain(text)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise _unreadable(data, f"expected is {what}, a mapping")
    return data


def plain(text: str | None) -> Any:
    """Decode other data of palaestrAI to plain data: objects become their state, no text becomes ``None``."""
    data = _parsed(text)
    return None if data is None else _plain(_Objects().restored(data))


def as_float(value: Any, what: str = "a number") -> float:
    """Convert a number to a float. Raises :class:`StoreError` for other types and too large numbers."""
    if not isinstance(value, int | float):
        raise _unreadable(value, f"expected is {what}")
    try:
        return float(value)
    except OverflowError:
        raise _unreadable(value, f"{what} of 64 bits cannot be so large") from None


def as_int(value: Any, what: str) -> int:
    """Convert a number to a 64-bit integer. Raises :class:`StoreError` if it is not one."""
    if not isinstance(value, int | float) or not -_INT64 <= value < _INT64 or value != int(value):
        raise _unreadable(value, f"expected is {what}, a whole number")
    return int(value)


def numbers(value: Any, depth: int = 0) -> Iterator[float]:
    """Yield the numbers in a value, in order, with NaN for missing ones.

    ``depth`` is the number of enclosing lists. Raises :class:`StoreError` if a value is not numeric.
    """
    _check_depth(value, depth)
    if isinstance(value, int | float):
        yield as_float(value)
    elif value is None:
        yield math.nan
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item, depth + 1)
    elif isinstance(value, dict) and "value" in value:
        yield from numbers(value["value"], depth + 1)
    elif isinstance(value, dict) and "values" in value:
        yield from numbers(_array(value), depth + 1)
    elif isinstance(value, dict) and _TUPLE in value:
        yield from numbers(value[_TUPLE], depth + 1)
    else:
        raise _unreadable(value, "expected is a number, a list of numbers, or a value of numpy")


def _parsed(text: str | None) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, TypeError) as error:
        raise _unreadable(text, str(error)) from error
    except RecursionError:
        raise _unreadable(text, f"more than {_DEEPEST} lists and objects are in one another") from None


def _check_depth(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise _unreadable(value, f"more than {_DEEPEST} lists and objects are in one another")


def _information(item: Any) -> Information:
    try:
        state = item[_STATE]
        uid, value, space = state["uid"], state["value"], state["space"]
    except (KeyError, TypeError, IndexError):
        raise _unreadable(item, "expected is an object with uid, value and space") from None
    if not isinstance(uid, str | int) or not isinstance(space, str):
        raise _unreadable(item, "expected is an object whose uid and space are text")
    return Information(str(uid), value, space)


def _array(data: dict[str, Any]) -> Any:
    """Return the values of a NumPy array; large arrays are compressed."""
    values = data["values"]
    if not isinstance(values, str):
        return values
    dtype, shape = str(data.get("dtype")), data.get("shape")
    if not _DTYPE.fullmatch(dtype):
        raise _unreadable(data, f"{dtype[:_SHOWN]} is no type of numbers")
    sizes: list[Any] = shape if isinstance(shape, list) else [shape]
    if not all(type(size) is int and size >= 0 for size in sizes) or math.prod(sizes) > _MOST:
        raise _unreadable(data, f"expected is a shape of at most {_MOST:,} numbers")
    try:
        kind = np.dtype(dtype)
        size = math.prod(sizes) * kind.itemsize
        # limit the output to one byte more than expected, as a protection against decompression bombs
        unpacked = zlib.decompressobj().decompress(base64.b64decode(values), size + 1)
        if len(unpacked) != size:
            raise _unreadable(data, f"it does not have the {size} bytes of its shape")
        array = np.frombuffer(unpacked, dtype=kind)
        if data.get("byteorder") == "S":
            array = array.byteswap()
        return array.reshape(sizes, order=data.get("order", "C")).tolist()
    except (ValueError, TypeError, zlib.error) as error:
        raise _unreadable(data, str(error)) from error


def _plain(value: Any, depth: int = 0) -> Any:
    _check_depth(value, depth)
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if _TUPLE in value:
        return _plain(value[_TUPLE], depth + 1)
    if _STATE in value:
        return _plain(value[_STATE], depth + 1)
    if str(value.get(_OBJECT, "")).startswith("numpy."):
        return _array(value) if "values" in value else value.get("value")
    return {key: _plain(item, depth + 1) for key, item in value.items() if key != _OBJECT}


class _Objects:
    """Resolves ``py/id`` references. Objects, mappings and lists are numbered in the order in which they begin."""

    def __init__(self) -> None:
        self._known: list[Any] = []
        #: the size of each object including references, or 0 while it is being read
        self._sizes: list[int] = []
        self._size = 0

    def restored(self, data: Any, depth: int = 0) -> Any:
        """Return ``data`` with resolved references. Raises :class:`StoreError` if an object contains itself."""
        _check_depth(data, depth)
        self._grow(1)
        if not isinstance(data, list | dict):
            return data
        if _ID in data and isinstance(data, dict):
            return self._referred(data)
        if _TUPLE in data and isinstance(data, dict):
            items = data[_TUPLE]
            if not isinstance(items, list):
                raise _unreadable(data, "expected is a list of what is in it")
            return [self.restored(item, depth + 1) for item in items]
        # reserve the index before reading the contents
        index, before = len(self._known), self._size
        self._known.append(None)
        self._sizes.append(0)
        restored: Any
        if isinstance(data, list):
            restored = [self.restored(item, depth + 1) for item in data]
        else:
            restored = {key: self.restored(item, depth + 1) for key, item in data.items()}
        self._known[index], self._sizes[index] = restored, self._size - before + 1
        return restored

    def _referred(self, data: dict[str, Any]) -> Any:
        index = data[_ID]
        if type(index) is not int or not 0 <= index < len(self._known):
            raise _unreadable(data, f"{len(self._known)} objects stand before it")
        if not self._sizes[index]:
            raise _unreadable(data, "it refers to what it is in")
        self._grow(self._sizes[index])
        return self._known[index]

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > _MOST:
            raise StoreError(f"cannot read more than {_MOST:,} values in one text")


def _unreadable(data: Any, why: str) -> StoreError:
    # abbreviated, because the data may be large or too deeply nested
    excerpt = data if isinstance(data, str) else reprlib.repr(data)
    return StoreError(f"cannot read {shorten(excerpt, _SHOWN)}: {why}")
