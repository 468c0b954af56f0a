"""Reading what a mosaik world that was made for palaestrai-mosaik says of itself.

Descriptions of sensors and actuators are objects (palaestrAI's or ours) or dictionaries; values on
their way between entities and agents are converted as palaestrai-mosaik does.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import ActionError, ContractError, SpaceError, did_you_mean
from palaestrai_mosaik.types import ActuatorInformation, SensorInformation, Space, Tuple

#: what a sensor's (an actuator's) dictionary may be called by: uid, space and value
_SENSOR_KEYS = (("uid", "sensor_id"), ("space", "observation_space"), ("value", "sensor_value"))
_ACTUATOR_KEYS = (("uid", "actuator_id"), ("space", "action_space"), ("value", "setpoint"))

#: how dates are written in documents and handed to worlds
DATE_FORMAT = "%Y-%m-%d %H:%M:%S%z"

#: longer texts are shortened in messages
_SHOWN = 100

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def read_ticks(found: Any, name: str) -> int:
    """Return the number of ticks that ``found`` means: a number or text such as ``15*60*96``.

    ``name``: the parameter, for the message. Fractions of a tick are cut off. Raises :class:`ContractError`.
    """
    try:
        value = _evaluate(ast.parse(found.strip(), mode="eval").body) if isinstance(found, str) else found
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        return int(value)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        shown = repr(found)
        raise ContractError(
            f"{name} must be a number of ticks, or a product or sum of numbers such as '15*60*96', found "
            + (shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}...")
        ) from None


def read_seconds(found: Any, name: str) -> float:
    """Return the positive number of seconds ``found``; ``name``: the parameter. Raises :class:`ContractError`."""
    if isinstance(found, bool) or not isinstance(found, int | float) or not found > 0:
        raise ContractError(f"{name} must be a positive number of seconds, found {found!r}")
    return float(found)


def _evaluate(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.operand))
    raise ValueError


def read_start(start: Any, rng: np.random.Generator) -> str | None:
    """Return the date of tick 0 as worlds want it (:data:`DATE_FORMAT`); ``None`` if there is none.

    ``random`` stands for an hour of a day in 2020, ``2017_random`` in that year, ``2017-03_random``
    in that month. Raises :class:`ContractError`.
    """
    if start is None:
        return None
    if isinstance(start, datetime):
        return (start if start.tzinfo else start.replace(tzinfo=UTC)).strftime(DATE_FORMAT)
    text = str(start)
    if text == "random" or text.endswith("_random"):
        year, _, month = ("2020" if text == "random" else text.removesuffix("_random")).partition("-")
        with suppress(ValueError):  # told below
            text = (
                f"{int(year):04d}-{int(month) if month else rng.integers(1, 13):02d}-{rng.integers(1, 29):02d} "
                f"{rng.integers(0, 24):02d}:00:00+0100"
            )
    parse_date(text)
    return text


def parse_date(text: str) -> datetime:
    """Return the date that ``text`` (:data:`DATE_FORMAT`) means. Raises :class:`ContractError`."""
    try:
        return datetime.strptime(text, DATE_FORMAT)
    except (TypeError, ValueError):
        raise ContractError(
            "start_date must be a date such as '2020-01-31 12:00:00+0100', or 'random', '2020_random' or "
            f"'2020-03_random', found {text!r}"
        ) from None


def read_sensors(described: Any) -> list[SensorInformation]:
    """Return the sensors of a description. Raises :class:`ContractError`."""
    found = []
    for place, one in enumerate(_listed(described, "sensors")):
        uid, space, value = _parts(one, "sensor", place, _SENSOR_KEYS)
        found.append(SensorInformation(readable(space, uid)(value), space, uid))
    return found


def read_actuators(described: Any) -> list[ActuatorInformation]:
    """Return the actuators of a description. Raises :class:`ContractError`."""
    found = []
    for place, one in enumerate(_listed(described, "actuators")):
        uid, space, value = _parts(one, "actuator", place, _ACTUATOR_KEYS)
        try:
            found.append(ActuatorInformation(value, space, uid))
        except ActionError as error:
            raise ContractError(f"the description of an actuator: {error}") from None
    return found


def _listed(described: Any, what: str) -> Sequence[Any]:
    if isinstance(described, str | bytes | Mapping) or not isinstance(described, Sequence):
        raise ContractError(f"a description must give a list of {what}, found {described!r}")
    return described


def _parts(one: Any, kind: str, place: int, keys: Sequence[tuple[str, str]]) -> tuple[str, Space, Any]:
    """Return uid, space and value of one description."""
    where = f"the description of {kind} {place}"
    if isinstance(one, Mapping):
        allowed = [key for pair in keys for key in pair]
        for key in one:
            if key not in allowed:
                raise ContractError(
                    f"{where}: unknown key {key!r}{did_you_mean(str(key), allowed)}; allowed: {', '.join(allowed)}"
                )
        uid, space, value = (next((one[key] for key in pair if key in one), None) for pair in keys)
    else:
        uid, space, value = (getattr(one, name, None) for name in ("uid", "space", "value"))
    if not isinstance(uid, str) or uid.count(".") < 2 or not all(uid.split(".")):
        raise ContractError(
            f"{where}: its uid must be 'simulator.entity.attribute' (mosaik's ids), found {uid!r}"
            if uid is not None or isinstance(one, Mapping)
            else f"{where} is neither {kind} information nor a dictionary: {one!r}"
        )
    try:
        return uid, _space(space), value
    except SpaceError as error:
        raise ContractError(f"the description of {kind} {uid!r}: {error}") from None


def _space(found: Any) -> Space:
    if isinstance(found, Space):
        return found
    if hasattr(found, "to_string"):
        # palaestrAI's spaces write themselves in a form that ours are read from
        return Space.from_string(found.to_string())
    return Space.from_string(found)


def readable(space: Space, uid: str) -> Callable[[Any], Any]:
    """Return what makes readings of ``space`` of an entity's values.

    As in palaestrai-mosaik, a value is cast to the space's type. What is missing (``None``) is NaN, also
    where the type is one of whole numbers. Raises :class:`ContractError` where a value cannot be cast, is
    beyond the type's limits or has another shape.
    """
    if isinstance(space, Tuple):
        return _readable_tuple(space, uid)
    assert space.shape is not None
    assert space.dtype is not None
    missing, dtype = np.full(space.shape, np.nan), space.dtype
    whole = dtype.kind in "iu"
    # of a plain number, a number: faster than by way of an array
    number = dtype.type if space.size == 1 and dtype.kind == "f" else None

    def reading(value: Any) -> Any:
        if value is None:
            return missing
        if type(value) is float and number is not None:
            return number(value)
        try:
            array = np.asarray(value)
            if array.dtype.kind == "c" or (array.shape != space.shape and not array.size == space.size == 1):
                raise ValueError(f"it has shape {array.shape} and type {array.dtype}")
            return _whole(array, dtype) if whole and array.dtype.kind != "b" else array.astype(dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise ContractError(f"{value!r} is no reading of sensor {uid!r}, {space}: {error}") from None

    return reading


def _whole(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return ``array`` without fractions; as floating-point numbers where some are missing (NaN)."""
    if array.dtype.kind not in "iuf":
        array = array.astype(np.float64)
    limits = np.iinfo(dtype)
    cut = np.trunc(array)
    # numbers of 64 bits have no limit of their own as floating-point numbers, the next one is told exactly
    if not (np.isnan(cut) | ((cut >= limits.min) & (cut < limits.max + 1))).all():
        raise ValueError(f"{dtype} holds numbers from {limits.min} to {limits.max}")
    return cut if np.isnan(cut).any() else cut.astype(dtype)


def _readable_tuple(space: Tuple, uid: str) -> Callable[[Any], Any]:
    """Return :func:`readable` for several spaces: a value for each of them."""
    parts = [readable(one, uid) for one in space.spaces]

    def reading(value: Any) -> Any:
        if value is None:
            return tuple(part(None) for part in parts)
        if not isinstance(value, Sequence | np.ndarray) or len(value) != len(parts):
            raise ContractError(
                f"{value!r} is no reading of sensor {uid!r}, {space}: {len(parts)} values are needed"
            )
        return tuple(part(one) for part, one in zip(parts, value, strict=True))

    return reading


def settable(value: Any) -> Any:
    """Return a set-point as entities get it: numbers and lists; ``None`` where none was given yet."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return None if isinstance(value, float) and math.isnan(value) else value
