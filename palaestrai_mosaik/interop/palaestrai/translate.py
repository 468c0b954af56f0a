"""Conversion between palaestrAI's spaces, information objects and times, and ours.

This module imports palaestrAI. It is only loaded if a palaestrAI class is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar

import gymnasium.spaces
import numpy as np
import palaestrai.agent
import palaestrai.types

from palaestrai_mosaik.core.errors import ActionError, ContractError, SpaceError, did_you_mean
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    RewardInformation,
    SensorInformation,
    Space,
    Tuple,
)
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

T = TypeVar("T")


def their_space(space: Space) -> Any:
    """Return palaestrAI's space for ours; equal spaces give the same object.

    If ``space`` has a generator (:meth:`Space.bound`), the result is a separate object that samples from it.
    """
    translated = _their_space(space)
    return translated if space.rng is None else _drawing_from(translated, space.rng)


def our_space(space: Any) -> Space:
    """Convert a palaestrAI or Gymnasium space to ours.

    Raises :class:`SpaceError` if the kind of space has no vector form.
    """
    if isinstance(space, gymnasium.spaces.Tuple):
        return Tuple(*(our_space(part) for part in space.spaces))
    if isinstance(space, gymnasium.spaces.Discrete):
        return Discrete(int(space.n), int(space.start))
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return MultiBinary(space.shape)
    if isinstance(space, gymnasium.spaces.MultiDiscrete) and not np.any(space.start):
        return MultiDiscrete(space.nvec)
    if isinstance(space, gymnasium.spaces.Box):
        if space.dtype.kind == "b":
            return MultiBinary(space.shape)
        return Box(space.low, space.high, space.shape, space.dtype)
    raise SpaceError(
        f"{space!r} has no vector form; allowed are Box, Discrete, MultiDiscrete (from 0), MultiBinary, and Tuple of "
        "them"
    )


def their_value(space: Space, vector: FloatVector) -> Any:
    """Return the value of ``space`` with the flat form ``vector``, as palaestrAI's classes expect it.

    Single numbers are NumPy scalars of the space's type, which also are arrays without dimensions. Other values are
    arrays, and values of tuple spaces are tuples.
    """
    if isinstance(space, Tuple):
        values, start = [], 0
        for part in space.spaces:
            values.append(their_value(part, vector[start : start + part.size]))
            start += part.size
        return tuple(values)
    assert space.dtype is not None and space.shape is not None
    if space.shape == ():
        return space.dtype.type(vector[0])
    return vector.astype(space.dtype).reshape(space.shape)


def their_sensor(info: SensorInformation) -> Any:
    """Return palaestrAI's object for a sensor; a reading of ``None`` is kept."""
    return palaestrai.agent.SensorInformation(_value_of(info), their_space(info.space), info.uid)


def their_actuator(info: ActuatorInformation) -> Any:
    """Return palaestrAI's object for an actuator; a set-point of ``None`` is kept."""
    return palaestrai.agent.ActuatorInformation(_value_of(info), their_space(info.space), info.uid)


def our_sensor(info: Any) -> SensorInformation:
    """Return our object for palaestrAI's sensor."""
    return SensorInformation(info.value, our_space(info.space), str(info.uid))


def our_actuator(info: Any) -> ActuatorInformation:
    """Return our object for palaestrAI's actuator."""
    return ActuatorInformation(info.value, our_space(info.space), str(info.uid))


def their_simtime(ticks: int, start: datetime | None = None, seconds: float = 1.0) -> Any:
    """Return palaestrAI's time of a tick; ``start`` is the date of tick 0, a tick lasts ``seconds``."""
    date = None if start is None else start + timedelta(seconds=ticks * seconds)
    return palaestrai.types.SimTime(simtime_ticks=int(ticks), simtime_timestamp=date)


class PalaestraiChannels:
    """Creates palaestrAI's information objects of some channels from flat vectors, quickly.

    ``make`` is the class of the objects. Each call creates new ones, because palaestrAI's parts keep and modify them.
    Readings outside their space are passed on unchanged. With ``gaps``, NaN means a missing value. An object costs
    about half a microsecond.
    """

    def __init__(self, layout: Layout, make: Callable[..., T], *, gaps: bool = False):
        self.layout = layout
        self.gaps = gaps
        self._make: Any = make
        self._fresh = [
            vars(self._make(None, their_space(space), uid))
            for space, uid in zip(layout.spaces, layout.uids, strict=True)
        ]
        types = [space.dtype.type for space in layout.spaces if space.dtype is not None and space.size == 1]
        #: NumPy's type of each channel if all are single numbers, of any shape; otherwise empty
        self.kinds = types if len(types) == len(layout.spaces) else []

    def __call__(self, vector: FloatVector) -> list[Any]:
        """Return the objects with the values of ``vector``."""
        infos = self.empty()
        for info, value in zip(infos, self.values(vector), strict=True):
            info._value = value
        return infos

    def empty(self) -> list[Any]:
        """Return the objects without values."""
        new, make, infos = object.__new__, self._make, []
        for fields in self._fresh:
            info = new(make)
            info.__dict__.update(fields)
            infos.append(info)
        return infos

    def values(self, vector: FloatVector) -> list[Any]:
        """Return the values without objects."""
        missing = self.gaps and bool(np.isnan(vector).any())
        if self.layout.scalar and not missing:
            return [kind(number) for kind, number in zip(self.kinds, vector.tolist(), strict=True)]
        layout, result = self.layout, []
        for space, part in zip(layout.spaces, layout.slices, strict=True):
            values = vector[part]
            result.append(None if missing and np.isnan(values).any() else their_value(space, values))
        return result


class PalaestraiInfos(Sequence[Any]):
    """The objects that :class:`PalaestraiChannels` creates from a vector, created on first access."""

    __slots__ = ("_objects", "channels", "vector")

    def __init__(self, channels: PalaestraiChannels, vector: FloatVector):
        self.channels = channels
        self.vector = vector
        self._objects: list[Any] | None = None

    def _all(self) -> list[Any]:
        if self._objects is None:
            self._objects = self.channels(self.vector)
        return self._objects

    def __len__(self) -> int:
        return len(self.channels.layout.uids)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all())

    def __getitem__(self, index: Any) -> Any:
        return self._all()[index]

    def __repr__(self) -> str:
        return repr(self._all())

    @property
    def untouched(self) -> bool:
        """Whether the objects have never been accessed, and thus cannot have been modified."""
        return self._objects is None


def checked(infos: Any, kind: type, what: str) -> list[Any]:
    """Return ``infos``, objects of palaestrAI's class ``kind``, as a list.

    ``what`` names their source in messages. Raises :class:`ContractError` for any other value.
    """
    if isinstance(infos, list | tuple) and all(isinstance(info, kind) for info in infos):
        return list(infos)
    raise ContractError(f"{what} gave {infos!r}; allowed is a list of palaestrAI's {kind.__name__}")


def vector_of(layout: Layout, infos: Sequence[Any], what: str) -> FloatVector:
    """Return the values of palaestrAI's objects as one vector in the order of ``layout``.

    Channels without an object or value become NaN. ``what`` names the source in messages. Raises
    :class:`ContractError` for other values, and :class:`ActionError` for unknown or duplicate channels.
    """
    try:
        uids = tuple([str(info.uid) for info in infos])
    except (TypeError, AttributeError):
        raise ContractError(
            f"{what} gave {infos!r}; allowed is a list of palaestrAI's information objects, with the ids "
            f"{', '.join(layout.uids)}"
        ) from None
    if layout.scalar and uids == layout.uids:
        # None becomes NaN in a float array; values other than plain numbers take the slow path
        with suppress(TypeError, ValueError):
            quick = np.array([info._value for info in infos], dtype=np.float64)
            if quick.shape == (layout.size,):
                return quick
    vector = np.full(layout.size, np.nan)
    used = set()
    for uid, info in zip(uids, infos, strict=True):
        index = layout.index.get(uid)
        if index is None:
            raise ActionError(f"{what} has no {uid!r}{did_you_mean(uid, layout.uids)}")
        if index in used:
            raise ActionError(f"{what} has {uid!r} twice")
        used.add(index)
        value = info._value
        if value is not None:
            vector[layout.slices[index]] = layout.spaces[index].flatten(value)
    return vector


@cache
def _their_space(space: Space) -> Any:
    types = palaestrai.types
    if isinstance(space, Box):
        return types.Box(space.low, space.high, space.shape, space.dtype)
    if isinstance(space, Discrete):
        return types.Discrete(space.n, start=space.start)
    if isinstance(space, MultiDiscrete):
        return types.MultiDiscrete(space.nvec)
    if isinstance(space, MultiBinary):
        # palaestrAI's MultiBinary with several axes has no text form, which its objects need
        return types.MultiBinary(space.n) if len(space.shape) == 1 else types.Box(0, 1, space.shape, np.int8)
    if isinstance(space, Tuple):
        return types.Tuple([_their_space(part) for part in space.spaces])
    raise SpaceError(f"palaestrAI has no space like {space}")


def _drawing_from(space: Any, rng: np.random.Generator) -> Any:
    """Return a copy of palaestrAI's space that samples from ``rng``, including its parts."""
    bound = copy(space)
    bound._np_random = rng
    if isinstance(space, gymnasium.spaces.Tuple):
        bound.spaces = tuple(_drawing_from(part, rng) for part in space.spaces)
    return bound


def _value_of(info: SensorInformation | ActuatorInformation | RewardInformation) -> Any:
    if info.value is None:
        return None
    return their_value(info.space, info.space.flatten(info.value))
