"""Flat vectors of many channels: their layout, their rules, and sequences of objects over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ActionError, ContractError, did_you_mean
from palaestrai_mosaik.core.printing import listed

from .arrays import FloatVector
from .information import ActuatorInformation, SensorInformation
from .spaces import Space, Tuple

T = TypeVar("T")

_REMEDY = "; set `actuators_available[i].value`, or `actuators_available.vector`, and write `return actuators_available, data`"


def initial_values(channels: Sequence[Any]) -> FloatVector:
    """Return the values of sensors or actuators as one vector, NaN for a channel without a value."""
    parts = [np.full(c.space.size, np.nan) if c.value is None else c.space.flatten(c.value) for c in channels]
    return np.concatenate(parts) if parts else np.empty(0)


class Layout:
    """The positions of several channels (sensors or actuators) in a flat vector.

    ``uids`` and ``spaces`` are in order; channel ``i`` occupies ``slices[i]``.
    """

    def __init__(self, uids: Sequence[str], spaces: Sequence[Space]):
        self.uids = tuple(uids)
        self.spaces = tuple(spaces)
        self.slices: list[slice] = []
        start = 0
        for space in self.spaces:
            self.slices.append(slice(start, start + space.size))
            start += space.size
        self.size = start
        self.index = {uid: i for i, uid in enumerate(self.uids)}
        self.scalar = all(space.shape == () for space in self.spaces)
        self.integral = np.concatenate([s.flat_integral for s in self.spaces] or [np.empty(0, bool)])
        self.any_integral = bool(self.integral.any())
        self.all_integral = self.any_integral and bool(self.integral.all())
        #: whether every channel is one real number
        self.plain = self.scalar and not self.any_integral
        self.low = np.concatenate([s.flat_low for s in self.spaces] or [np.empty(0)])
        self.high = np.concatenate([s.flat_high for s in self.spaces] or [np.empty(0)])

    @classmethod
    def of(cls, channels: Sequence[Any]) -> Layout:
        """Return the layout of these sensors, actuators or rewards."""
        return cls([channel.uid for channel in channels], [channel.space for channel in channels])

    def renamed(self, uids: Sequence[str]) -> Layout:
        """Return the same layout with other ids."""
        layout = copy(self)
        layout.uids = tuple(uids)
        layout.index = {uid: i for i, uid in enumerate(layout.uids)}
        return layout

    def bound(self, rng: np.random.Generator) -> Layout:
        """Return the same layout with spaces that sample from ``rng``."""
        layout = copy(self)
        layout.spaces = tuple(space.bound(rng) for space in self.spaces)
        return layout

    def sample(self, rng: np.random.Generator) -> FloatVector:
        """Return a random member of each channel's space, drawn in order, as one vector."""
        parts = [space.flatten(space.sample(rng)) for space in self.spaces]
        return np.concatenate(parts) if parts else np.empty(0)

    def channel_of(self, index: int) -> int:
        """Return the channel of the number at ``index`` in a vector."""
        return next(i for i, part in enumerate(self.slices) if part.start <= index < part.stop)

    def as_integers(self, vector: FloatVector) -> npt.NDArray[Any]:
        """Return ``vector`` as read-only int64 if all channels are integers without NaN, else unchanged."""
        if not self.all_integral or np.isnan(vector).any():
            return vector
        whole = vector.astype(np.int64)
        whole.setflags(write=False)
        return whole

    def outside(self, vector: FloatVector) -> npt.NDArray[np.bool_]:
        """Mark the numbers of a vector or matrix that are outside the spaces; NaN never is."""
        # every comparison with NaN is false
        wrong: npt.NDArray[np.bool_] = vector < self.low
        wrong |= vector > self.high
        if self.any_integral:
            wrong |= self.integral & (vector != np.rint(vector)) & ~np.isnan(vector)
        return wrong

    def check(self, vector: FloatVector) -> None:
        """Raise :class:`ActionError` naming the first set-point outside its space; NaN means no set-point."""
        wrong = self.outside(vector)
        if wrong.any():
            channel = self.channel_of(int(np.argmax(wrong)))
            raise ActionError(
                f"set-point {vector[self.slices[channel]].tolist()!r} of actuator "
                f"{self.uids[channel]!r} is not in {self.spaces[channel]}"
            )


class _Channels(Sequence[T], Generic[T]):
    """The objects of some channels, made at first access."""

    __slots__ = ()
    _layout: Layout
    _objects: list[T] | None

    def _all(self) -> list[T]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._layout.uids)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects or self._all())

    @overload
    def __getitem__(self, i: int) -> T: ...
    @overload
    def __getitem__(self, i: slice) -> list[T]: ...
    def __getitem__(self, i: Any) -> Any:
        return (self._objects or self._all())[i]

    def __repr__(self) -> str:
        return repr(self._objects or self._all())


@dataclass(slots=True, eq=False, repr=False)
class SensorReadings(_Channels[SensorInformation]):
    """The readings of an agent, a sequence of :class:`SensorInformation`.

    Attributes:
        vector: the readings as one read-only vector, (readings,) float64.
    """

    _layout: Layout
    vector: FloatVector
    _objects: list[SensorInformation] | None = None

    def _all(self) -> list[SensorInformation]:
        layout, vector = self._layout, self.vector
        if layout.plain:
            values = vector.tolist()
        else:
            # an integer cannot be NaN: None stands for a missing one
            values = [
                None
                if space.flat_integral.any() and np.isnan(vector[part]).any()
                else space.unflatten(vector[part])
                for space, part in zip(layout.spaces, layout.slices, strict=True)
            ]
        self._objects = list(map(SensorInformation, values, layout.spaces, layout.uids))
        return self._objects


@dataclass(slots=True, eq=False, repr=False)
class ActuatorSetpoints(_Channels[ActuatorInformation]):
    """The actuators that an agent may set, a sequence of :class:`ActuatorInformation`.

    Assign ``vector``, or the ``value`` of each actuator.

    Attributes:
        vector: all set-points as one vector, (set-points,) float64, with NaN for no new set-point; ``None`` before
            it is assigned.
    """

    _layout: Layout
    vector: FloatVector | None = None
    _objects: list[ActuatorInformation] | None = None

    def _all(self) -> list[ActuatorInformation]:
        layout, vector = self._layout, self.vector
        values: list[Any] = [None] * len(layout.uids)
        if vector is not None:
            values = [
                None if np.isnan(vector[part]).any() else space.unflatten(vector[part])
                for space, part in zip(layout.spaces, layout.slices, strict=True)
            ]
        self._objects = list(map(ActuatorInformation, values, layout.spaces, layout.uids))
        return self._objects


def collect_setpoints(layout: Layout, actions: Any) -> FloatVector:
    """Return the set-points of ``actions`` as a new vector in the order of ``layout``, NaN for unset ones.

    Args:
        layout: the layout of the agent's actuators.
        actions: the result of a muscle: its :class:`ActuatorSetpoints`, or any sequence of
            ``ActuatorInformation``.

    Raises:
        ActionError: a value is outside its space.
        ContractError: an actuator does not belong to the agent.
    """
    if not isinstance(actions, ActuatorSetpoints):
        if not isinstance(actions, Iterable) or isinstance(actions, np.ndarray | str):
            raise ContractError(f"propose_actions must return actuators, not {actions!r}{_REMEDY}")
        return _from_objects(layout, actions)
    if actions.vector is not None:
        return _from_vector(layout, actions.vector)
    objects = actions._objects or ()
    if layout.scalar and objects:
        # None becomes NaN in a float array; values that are not plain numbers are flattened
        with suppress(TypeError, ValueError):
            vector = np.array([a._value for a in objects], dtype=np.float64)
            if vector.shape == (layout.size,):
                return vector
    return _from_objects(layout, objects)


def _from_vector(layout: Layout, setpoints: Any) -> FloatVector:
    """Return a copy of a vector that a muscle assigned, after checking it."""
    try:
        vector = np.array(setpoints, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ContractError(f"a set-point vector must have numbers only: {error}") from error
    if vector.shape != (layout.size,):
        raise ContractError(
            f"the vector of set-points has shape {vector.shape}, expected is ({layout.size},) for "
            f"{listed(layout.uids, 10)}"
        )
    layout.check(vector)
    return vector


def _from_objects(layout: Layout, actuators: Iterable[Any]) -> FloatVector:
    """Return the set-points of actuators, after checking them."""
    vector = np.full(layout.size, np.nan)
    seen: set[str] = set()
    for actuator in actuators:
        if not isinstance(actuator, ActuatorInformation):
            raise ContractError(f"propose_actions must return actuators, not {actuator!r}{_REMEDY}")
        channel = layout.index.get(actuator.uid)
        if channel is None:
            raise ContractError(
                f"actuator {actuator.uid!r} is not one of the agent's"
                + did_you_mean(actuator.uid, layout.uids)
            )
        if actuator.uid in seen:
            raise ContractError(f"actuator {actuator.uid!r} was returned twice")
        seen.add(actuator.uid)
        if actuator.value is not None:
            vector[layout.slices[channel]] = layout.spaces[channel].flatten(actuator.value)
    # an object that the muscle created may have another space
    layout.check(vector)
    return vector


class ValueRules:
    """The allowed numbers of several channels (sensors or rewards), for flat vectors of all of them.

    A value may exceed a bound by the rounding of the space's type, ``eps`` relative to the larger bound. So a
    float32 observation counts as inside, whether it or the bound was rounded.
    """

    def __init__(self, channels: Sequence[Any]):
        self.layout = layout = Layout.of(channels)
        sizes = [space.size for space in layout.spaces]
        missing = [bool(getattr(channel, "may_be_missing", False)) for channel in channels]
        self._may_be_missing = np.repeat(np.array(missing, dtype=bool), sizes)
        slack = np.concatenate([_slack(space) for space in layout.spaces] or [np.empty(0)])
        self._integral = np.flatnonzero(layout.integral)
        self._low, self._high = layout.low, layout.high
        layout.low, layout.high = layout.low - slack, layout.high + slack
        #: whether any value can lie outside its space
        self.restricts = layout.any_integral or bool(
            np.isfinite(layout.low).any() or np.isfinite(layout.high).any()
        )

    def not_finite(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Mark the numbers of a vector or matrix that are infinite, or NaN without ``may_be_missing``."""
        wrong: npt.NDArray[np.bool_] = ~np.isfinite(values)
        wrong &= ~(self._may_be_missing & np.isnan(values))
        return wrong

    def outside(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Mark the numbers of a vector or matrix that are outside their spaces; NaN never is."""
        return self.layout.outside(values)

    def contains(self, lowest: FloatVector, highest: FloatVector, rows: npt.NDArray[np.float64]) -> bool:
        """Return whether all ``rows`` lie in the spaces.

        Args:
            lowest: the smallest value of each column.
            highest: the largest value of each column.
            rows: (n, numbers). NaN is ignored, and so are columns after those of the channels.
        """
        layout = self.layout
        if (lowest < layout.low).any() or (highest > layout.high).any():
            return False
        if not layout.any_integral:
            return True
        whole = rows[:, self._integral]
        return bool(((whole == np.rint(whole)) | np.isnan(whole)).all())

    def excess(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the distance of a vector, or of each row of a matrix, to the spaces."""
        layout = self.layout
        distance: npt.NDArray[np.float64] = np.maximum(self._low - values, values - self._high)
        if layout.any_integral:
            distance = np.where(
                layout.integral, np.maximum(distance, abs(values - np.rint(values))), distance
            )
        return distance


def _slack(space: Space) -> FloatVector:
    """Return the tolerance of each bound for rounding to the space's type, shape ``(size,)``."""
    if isinstance(space, Tuple):
        members: FloatVector = np.concatenate([_slack(member) for member in space.spaces])
        return members
    if space.dtype is None or space.dtype.kind != "f":
        return np.zeros(space.size)
    bounds = abs(np.array([space.flat_low, space.flat_high]))
    scale = np.where(np.isfinite(bounds), bounds, 0.0).max(axis=0)
    slack: FloatVector = np.where(scale > 0.0, scale, 1.0) * float(np.finfo(space.dtype).eps)
    return slack
