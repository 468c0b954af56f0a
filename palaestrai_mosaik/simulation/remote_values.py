"""Values that go between this process and that of an environment in another interpreter, as JSON.

mosaik's protocol is JSON, which has no arrays, no tuples and no sign of NaN. These encodings keep them bit for bit,
whichever releases of numpy both sides have. Nothing is pickled.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from palaestrai_mosaik.environment.environment import EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types import ActuatorInformation, RewardInformation, SensorInformation, Space, Topology

#: the key of a mapping that stands for something else
_KIND = "@"
#: kinds of numpy's types that are bytes and nothing else
_PLAIN_KINDS = "biufcSUmM"


def encoded(value: Any, what: str) -> Any:
    """Return ``value`` as JSON; ``what`` it is, for the message.

    Raises :class:`ContractError` for what is neither text, number, date, array, nor a list, tuple or mapping of them.
    """
    if isinstance(value, list):
        return [encoded(item, what) for item in value]
    if isinstance(value, dict) and all(type(key) is str and key != _KIND for key in value):
        return {key: encoded(item, what) for key, item in value.items()}
    numpys = isinstance(value, np.generic)
    # JSON has one NaN, floats have many
    plain = value is None or (isinstance(value, bool | int | float | str) and value == value)  # noqa: PLR0124
    return value if plain and not numpys else _marked(value, what)


def _marked(value: Any, what: str) -> dict[str, Any]:
    """Return what JSON does not know as a mapping that says what it is."""
    found: dict[str, Any] | None = None
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in _PLAIN_KINDS:
            shape = list(value.shape) if isinstance(value, np.ndarray) else None
            found = {_KIND: "array", "of": value.dtype.str, "shape": shape, "bytes": _text(value.tobytes())}
    elif isinstance(value, float):
        found = _marked(np.float64(value), what) | {_KIND: "nan"}
    elif isinstance(value, tuple):
        found = {_KIND: "tuple", "items": [encoded(item, what) for item in value]}
    elif isinstance(value, Mapping):
        items = [[encoded(key, what), encoded(item, what)] for key, item in value.items()]
        found = {_KIND: "mapping", "items": items}
    elif isinstance(value, datetime):
        found = {_KIND: "date", "text": value.isoformat()}
    elif isinstance(value, bytes):
        found = {_KIND: "bytes", "bytes": _text(value)}
    if found is None:
        raise ContractError(
            f"{what} holds a {type(value).__name__}, which cannot be sent from one process to another; allowed are "
            "texts, numbers, dates, arrays of numbers, and lists, tuples and mappings of them"
        )
    return found


def decoded(value: Any) -> Any:
    """Return what :func:`encoded` was given; arrays can be written to."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_KIND)
    return {key: decoded(item) for key, item in value.items()} if kind is None else _DECODERS[kind](value)


def _array(value: Mapping[str, Any]) -> Any:
    flat = np.frombuffer(base64.b64decode(value["bytes"]), np.dtype(value["of"]))
    return flat[0] if value["shape"] is None else flat.reshape(value["shape"]).copy()


_DECODERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "array": _array,
    "nan": lambda value: float(_array(value)),
    "tuple": lambda value: tuple(map(decoded, value["items"])),
    "mapping": lambda value: {decoded(key): decoded(item) for key, item in value["items"]},
    "date": lambda value: datetime.fromisoformat(value["text"]),
    "bytes": lambda value: base64.b64decode(value["bytes"]),
}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def encoded_generator(generator: np.random.Generator) -> Any:
    """Return a random generator where it stands, as JSON."""
    bits = generator.bit_generator
    return [type(bits).__name__, encoded(dict(bits.state), "a random generator")]


def decoded_generator(value: Any) -> np.random.Generator:
    """Return a generator that draws what that of :func:`encoded_generator` would draw next."""
    name, state = value
    bits = getattr(np.random, name)()
    bits.state = decoded(state)
    return np.random.Generator(bits)


def encoded_baseline(baseline: EnvironmentBaseline, who: str) -> Any:
    """Return what an environment (``who``, for messages) offers, as JSON."""

    def channels(kind: str) -> list[Any]:
        return [
            [one.uid, one.space.to_string(), encoded(one.value, f"{who}: {kind} {one.uid!r}")]
            for one in getattr(baseline, f"{kind}s")
        ]

    return {
        "sensors": channels("sensor"),
        "actuators": channels("actuator"),
        "rewards": channels("reward"),
        "start": encoded(baseline.start, f"{who}: start"),
        "world_model": encoded(baseline.world_model, f"{who}: world_model"),
        "topology": None
        if baseline.topology is None
        else encoded(baseline.topology.to_data(), f"{who}: topology"),
    }


def decoded_baseline(value: Mapping[str, Any]) -> EnvironmentBaseline:
    """Return what :func:`encoded_baseline` was given."""

    def channels(kind: type, found: Sequence[Any]) -> list[Any]:
        return [kind(decoded(value), Space.from_string(space), uid) for uid, space, value in found]

    # (a process of an older release sends none)
    topology = value.get("topology")
    return EnvironmentBaseline(
        channels(SensorInformation, value["sensors"]),
        channels(ActuatorInformation, value["actuators"]),
        channels(RewardInformation, value["rewards"]),
        decoded(value["start"]),
        decoded(value["world_model"]),
        None if topology is None else Topology.from_data(decoded(topology)),
    )


def encoded_state(state: Any, who: str) -> Any:
    """Return a state of an environment (``who``, for messages) as JSON; whether it fits is judged where it is read."""
    if not isinstance(state, EnvironmentState):
        raise ContractError(f"{who} returned {type(state).__name__}, not EnvironmentState")
    readings = np.asarray(state.readings)
    return [
        encoded(readings if readings.dtype.kind in _PLAIN_KINDS else state.readings, f"{who}: readings"),
        encoded(state.rewards, f"{who}: rewards"),
        encoded(state.terminated, f"{who}: terminated"),
        encoded(state.truncated, f"{who}: truncated"),
        encoded(state.world_state, f"{who}: world_state"),
    ]


def decoded_state(value: Sequence[Any]) -> EnvironmentState:
    """Return what :func:`encoded_state` was given."""
    return EnvironmentState(*map(decoded, value))
