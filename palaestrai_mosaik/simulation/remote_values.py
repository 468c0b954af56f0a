"""Values exchanged with an environment in another interpreter, as JSON.

mosaik's protocol is JSON, which has no arrays, no tuples and no sign of NaN. These encodings preserve them bit for
bit, independent of the numpy releases of both sides. Nothing is pickled.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment.environment import EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.environment.faults import refusal, state_faults
from palaestrai_mosaik.types import ActuatorInformation, RewardInformation, SensorInformation, Space, Topology

#: the key that marks a mapping as an encoded value
_KIND = "@"
#: the channels of a baseline
_CHANNELS: Mapping[str, type] = {
    "sensor": SensorInformation,
    "actuator": ActuatorInformation,
    "reward": RewardInformation,
}
#: kinds of numpy types that consist only of bytes
_PLAIN_KINDS = "biufcSUmM"


def encoded(value: Any, what: str) -> Any:
    """Encode ``value`` as JSON; ``what`` describes it in errors.

    Raises :class:`ContractError` for anything but text, numbers, dates, arrays, and lists, tuples and mappings of them.
    """
    if isinstance(value, list):
        return [encoded(item, what) for item in value]
    if isinstance(value, dict) and all(type(key) is str and key != _KIND for key in value):
        return {key: encoded(item, what) for key, item in value.items()}
    numpys = isinstance(value, np.generic)
    # JSON has only one NaN, floats have many
    plain = value is None or (isinstance(value, bool | int | float | str) and value == value)  # noqa: PLR0124
    return value if plain and not numpys else _marked(value, what)


def _marked(value: Any, what: str) -> dict[str, Any]:
    """Encode a value unknown to JSON as a mapping with its kind."""
    mapping: dict[str, Any] | None = None
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in _PLAIN_KINDS:
            shape = list(value.shape) if isinstance(value, np.ndarray) else None
            mapping = {_KIND: "array", "of": value.dtype.str, "shape": shape, "bytes": _text(value.tobytes())}
    elif isinstance(value, float):
        mapping = _marked(np.float64(value), what) | {_KIND: "nan"}
    elif isinstance(value, tuple):
        mapping = {_KIND: "tuple", "items": [encoded(item, what) for item in value]}
    elif isinstance(value, Mapping):
        items = [[encoded(key, what), encoded(item, what)] for key, item in value.items()]
        mapping = {_KIND: "mapping", "items": items}
    elif isinstance(value, datetime):
        mapping = {_KIND: "date", "text": value.isoformat()}
    elif isinstance(value, bytes):
        mapping = {_KIND: "bytes", "bytes": _text(value)}
    if mapping is None:
        raise ContractError(
            f"{what} holds a {type(value).__name__}, which cannot be sent from one process to another; allowed are "
            "texts, numbers, dates, arrays of numbers, and lists, tuples and mappings of them"
        )
    return mapping


def decoded(value: Any) -> Any:
    """Decode a result of :func:`encoded`; arrays are writable."""
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
    """Encode the state of a random generator as JSON, with the seed sequence for ``spawn``."""
    bits: Any = generator.bit_generator
    seeds = bits.seed_seq
    sequence = [seeds.entropy, list(seeds.spawn_key), seeds.pool_size, seeds.n_children_spawned]
    return [
        type(bits).__name__,
        *(encoded(part, "a random generator") for part in (dict(bits.state), sequence)),
    ]


def decoded_generator(value: Any) -> np.random.Generator:
    """Decode a result of :func:`encoded_generator`; the generator draws and spawns like the original."""
    name, state, sequence = value
    entropy, spawn_key, pool_size, children = decoded(sequence)
    seeds = np.random.SeedSequence(
        entropy, spawn_key=spawn_key, pool_size=pool_size, n_children_spawned=children
    )
    bits = getattr(np.random, name)(seeds)
    bits.state = decoded(state)
    return np.random.Generator(bits)


def encoded_baseline(baseline: EnvironmentBaseline, who: str) -> Any:
    """Encode the baseline of an environment as JSON; ``who`` names it in errors."""

    def channel_data(kind: str, channel: Any) -> list[Any]:
        value = encoded(channel.value, f"{who}: {kind} {channel.uid!r}")
        missing = [] if kind == "actuator" else [channel.may_be_missing]
        return [channel.uid, channel.space.to_string(), value, *missing]

    topology = None if baseline.topology is None else baseline.topology.to_data()
    return {
        **{
            f"{kind}s": [channel_data(kind, channel) for channel in getattr(baseline, f"{kind}s")]
            for kind in _CHANNELS
        },
        "start": encoded(baseline.start, f"{who}: start"),
        "world_model": encoded(baseline.world_model, f"{who}: world_model"),
        "topology": encoded(topology, f"{who}: topology"),
    }


def decoded_baseline(value: Mapping[str, Any]) -> EnvironmentBaseline:
    """Decode a result of :func:`encoded_baseline`."""
    sensors, actuators, rewards = (
        [
            information(decoded(number), Space.from_string(space), uid, *missing)
            for uid, space, number, *missing in value[f"{kind}s"]
        ]
        for kind, information in _CHANNELS.items()
    )
    topology = value["topology"]
    return EnvironmentBaseline(
        sensors,
        actuators,
        rewards,
        decoded(value["start"]),
        decoded(value["world_model"]),
        None if topology is None else Topology.from_data(decoded(topology)),
    )


def encoded_state(state: Any, who: str) -> Any:
    """Encode a state of an environment as JSON; the receiver checks whether it fits. ``who`` names it in errors."""
    faults = [] if isinstance(state, EnvironmentState) else list(state_faults(state, []))
    if faults:
        raise refusal(who, faults)
    readings = np.asarray(state.readings)
    return [
        encoded(readings if readings.dtype.kind in _PLAIN_KINDS else state.readings, f"{who}: readings"),
        encoded(state.rewards, f"{who}: rewards"),
        encoded(state.terminated, f"{who}: terminated"),
        encoded(state.truncated, f"{who}: truncated"),
        encoded(state.world_state, f"{who}: world_state"),
    ]


def decoded_state(value: Sequence[Any]) -> EnvironmentState:
    """Decode a result of :func:`encoded_state`."""
    return EnvironmentState(*map(decoded, value))
