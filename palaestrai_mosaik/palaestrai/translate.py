"""Between palaestrAI's spaces, information objects and times, and ours.

This module imports palaestrAI; it is only loaded where a class of palaestrAI is in use.
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

from palaestrai_mosaik.errors import ActionError, ContractError, SpaceError, did_you_mean
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
    """Return palaestrAI's space for ours; the same object for equal spaces.

    If ``space`` has a generator (:meth:`Space.bound`), the result is an object of its own, and
    what it samples is drawn from that generator.
    """
    found = _their_space(space)
    return found if space.rng is None else _drawing_from(found, space.rng)


def our_space(space: Any) -> Space:
    """Return our space for one of palaestrAI's or of Gymnasium's.

    Raises :class:`SpaceError` for kinds of spaces that have no vector form here.
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
    """Return the value of ``space`` whose flat form is ``vector``, as palaestrAI's classes take it.

    Single numbers are numpy's scalars of the space's type, which are numbers as well as arrays
    without dimensions; others are arrays, and a tuple's are tuples.
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
    """Return palaestrAI's object for a sensor; a reading of ``None`` stays one."""
    return palaestrai.agent.SensorInformation(_value_of(info), their_space(info.space), info.uid)


def their_actuator(info: ActuatorInformation) -> Any:
    """Return palaestrAI's object for an actuator; a set-point of ``None`` stays one."""
    return palaestrai.agent.ActuatorInformation(_value_of(info), their_space(info.space), info.uid)


def our_sensor(info: Any) -> SensorInformation:
    """Return our object for one of palaestrAI's sensors."""
    return SensorInformation(info.value, our_space(info.space), str(info.uid))


def our_actuator(info: Any) -> ActuatorInformation:
    """Return our object for one of palaestrAI's actuators."""
    return ActuatorInformation(info.value, our_space(info.space), str(info.uid))


def their_simtime(ticks: int, start: datetime | None = None, seconds: float = 1.0) -> Any:
    """Return palaestrAI's time of a tick: ``start`` is the date of tick 0, a tick lasts ``seconds``."""
    date = None if start is None else start + timedelta(seconds=ticks * seconds)
    return palaestrai.types.SimTime(simtime_ticks=int(ticks), simtime_timestamp=date)


class PalaestraiChannels:
    """Makes palaestrAI's information objects of some channels from flat vectors, quickly.

    ``make`` is the class of the objects. They are new ones at every step, because palaestrAI's
    parts keep and change what they are given. A reading outside its space is handed on as it is.
    With ``gaps``, NaN stands for no value. An object costs about half a microsecond.
    """

    def __init__(self, layout: Layout, make: Callable[..., T], *, gaps: bool = False):
        self.layout = layout
        self.gaps = gaps
        self._make: Any = make
        self._fresh = [
            vars(self._make(None, their_space(space), uid))
            for space, uid in zip(layout.spaces, layout.uids, strict=True)
        ]
        plain = all(space.size == 1 and not isinstance(space, Tuple) for space in layout.spaces)
        #: numpy's type of each channel, if each is one number, of whatever shape
        self.kinds = [_number_type(space) for space in layout.spaces] if plain else []

    def __call__(self, vector: FloatVector) -> list[Any]:
        """Return the objects with the values of ``vector``."""
        new, make, found = object.__new__, self._make, []
        for fields, value in zip(self._fresh, self.values(vector), strict=True):
            one = new(make)
            one.__dict__.update(fields)
            one._value = value
            found.append(one)
        return found

    def empty(self) -> list[Any]:
        """Return the objects without values."""
        new, make, found = object.__new__, self._make, []
        for fields in self._fresh:
            one = new(make)
            one.__dict__.update(fields)
            found.append(one)
        return found

    def values(self, vector: FloatVector) -> list[Any]:
        """Return the values alone."""
        missing = self.gaps and bool(np.isnan(vector).any())
        if self.layout.scalar and not missing:
            return [kind(number) for kind, number in zip(self.kinds, vector.tolist(), strict=True)]
        layout, found = self.layout, []
        for space, part in zip(layout.spaces, layout.slices, strict=True):
            values = vector[part]
            found.append(None if missing and np.isnan(values).any() else their_value(space, values))
        return found


class PalaestraiInfos(Sequence[Any]):
    """What :class:`PalaestraiChannels` makes of a vector, made when somebody looks at it."""

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

    def __getitem__(self, place: Any) -> Any:
        return self._all()[place]

    def __repr__(self) -> str:
        return repr(self._all())

    @property
    def untouched(self) -> bool:
        """Whether nobody has looked at the objects, who might have changed them."""
        return self._objects is None


def checked(infos: Any, kind: type, what: str) -> list[Any]:
    """Return ``infos``, objects of palaestrAI's class ``kind``, as a list.

    Raises :class:`ContractError` if they are something else; ``what`` says who gave them.
    """
    if isinstance(infos, list | tuple) and all(isinstance(info, kind) for info in infos):
        return list(infos)
    raise ContractError(f"{what} gave {infos!r}; allowed is a list of palaestrAI's {kind.__name__}")


def vector_of(layout: Layout, infos: Sequence[Any], what: str) -> FloatVector:
    """Return the values of palaestrAI's objects as one vector in the order of ``layout``.

    Channels without an object, or without a value, are NaN. ``what`` says who gave them. Raises
    :class:`ContractError` for something else than such objects, and :class:`ActionError` for one
    that is not of these channels, or given twice.
    """
    try:
        uids = tuple([str(info.uid) for info in infos])
    except (TypeError, AttributeError):
        raise ContractError(
            f"{what} gave {infos!r}; allowed is a list of palaestrAI's information objects, with the ids "
            f"{', '.join(layout.uids)}"
        ) from None
    if layout.scalar and uids == layout.uids:
        # None becomes NaN in a float array; what is not a plain number goes the long way
        with suppress(TypeError, ValueError):
            quick = np.array([info._value for info in infos], dtype=np.float64)
            if quick.shape == (layout.size,):
                return quick
    vector = np.full(layout.size, np.nan)
    seen = set()
    for uid, info in zip(uids, infos, strict=True):
        place = layout.index.get(uid)
        if place is None:
            raise ActionError(f"{what} has no {uid!r}{did_you_mean(uid, layout.uids)}")
        if place in seen:
            raise ActionError(f"{what} has {uid!r} twice")
        seen.add(place)
        value = info._value
        if value is not None:
            vector[layout.slices[place]] = layout.spaces[place].flatten(value)
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
        # with several axes, palaestrAI's own cannot be written as text, which all its objects need
        return types.MultiBinary(space.n) if len(space.shape) == 1 else types.Box(0, 1, space.shape, np.int8)
    if isinstance(space, Tuple):
        return types.Tuple([_their_space(part) for part in space.spaces])
    raise SpaceError(f"palaestrAI has no space like {space}")


def _number_type(space: Space) -> type:
    assert space.dtype is not None
    return space.dtype.type


def _drawing_from(space: Any, rng: np.random.Generator) -> Any:
    """Return a copy of palaestrAI's space that samples from ``rng``."""
    found = copy(space)
    found._np_random = rng
    if isinstance(space, gymnasium.spaces.Tuple):
        found.spaces = tuple(_drawing_from(part, rng) for part in space.spaces)
    return found


def _value_of(info: SensorInformation | ActuatorInformation | RewardInformation) -> Any:
    if info.value is None:
        return None
    return their_value(info.space, info.space.flatten(info.value))
