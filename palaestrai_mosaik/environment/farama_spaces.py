"""Spaces of Gymnasium, which PettingZoo's games have too, as sensors and actuators.

Needs the extra ``rl`` (or Gymnasium alone).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import ActionError, ContractError
from palaestrai_mosaik.importing import needed
from palaestrai_mosaik.installation import install_extra
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    RewardInformation,
    SensorInformation,
    Space,
)
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector

try:
    from gymnasium import spaces
except ImportError as error:
    raise ImportError(f"this environment needs {needed(error)}: {install_extra('rl')}") from error


@dataclass(frozen=True)
class Part:
    """One sensor or actuator: a part of an observation or action.

    ``way``: keys and indices that lead to it through ``Dict`` and ``Tuple`` spaces. A reading
    is the value minus ``start`` (only a ``MultiDiscrete`` that does not start at 0 has one).
    """

    uid: str
    way: tuple[str | int, ...]
    original: spaces.Space[Any]
    ours: Space
    start: npt.NDArray[Any] | int = 0

    @cached_property
    def shifted(self) -> bool:
        """Whether there is something to be subtracted."""
        return bool(np.any(self.start))

    def read(self, value: Any) -> FloatVector:
        """Return this part of ``value`` as a flat vector."""
        for key in self.way:
            value = value[key]
        vector = np.array(value, dtype=np.float64).reshape(-1)
        return vector - np.reshape(self.start, -1) if self.shifted else vector

    def write(self, vector: FloatVector) -> Any:
        """Return this part's value for its flat vector."""
        if isinstance(self.original, spaces.Discrete):
            return self.original.dtype.type(vector[0])
        value = vector.astype(self.original.dtype).reshape(self.ours.shape)
        return value + self.start if self.shifted else value

    def read_all(self, values: Sequence[Any]) -> FloatMatrix | None:
        """Return this part of several values as a row each (``None``: :meth:`read` says what is wrong, if anything is)."""
        try:
            for key in self.way:
                values = [value[key] for value in values]
            found = np.array(values, dtype=np.float64)
        except (ValueError, TypeError, LookupError):
            return None
        # an entry of other shape, but of as many numbers, is the same vector
        found = found.reshape(len(values), -1)
        return found - np.reshape(self.start, -1) if self.shifted else found

    def write_all(self, vectors: FloatMatrix) -> Any:
        """Return an array with this part's value for each of several flat vectors; not of shape ()."""
        if isinstance(self.original, spaces.Discrete):
            return vectors[:, 0].astype(self.original.dtype)
        assert self.ours.shape is not None
        values = vectors.astype(self.original.dtype).reshape(len(vectors), *self.ours.shape)
        return values + self.start if self.shifted else values


class Action:
    """How an action of ``space`` is put together from the set-points of its actuators.

    ``parts``: the actuators ``<uid>...`` in order; ``size``: how many numbers they take.
    """

    def __init__(self, uid: str, space: spaces.Space[Any]):
        self.space = space
        self.parts = list(parts_of(uid, space))
        self.slices: list[slice] = []
        self.size = 0
        for part in self.parts:
            self.slices.append(slice(self.size, self.size + part.ours.size))
            self.size += part.ours.size
        only = self.parts[0] if len(self.parts) == 1 else None
        #: the only part, if there is nothing around it and an action is a row of an array
        self._only = None
        if (
            only is not None
            and not only.way
            and (isinstance(only.original, spaces.Discrete) or only.ours.shape)
        ):
            self._only = only

    def compose_all(self, setpoints: FloatMatrix) -> Any:
        """Return the actions for several rows of ``setpoints`` at once.

        ``None``: each has to be composed, because one has no set-point, or they are no rows of an array.
        """
        if self._only is None or np.count_nonzero(np.isnan(setpoints)):
            return None
        return self._only.write_all(setpoints)

    def compose(self, setpoints: FloatVector, owner: str) -> Any:
        """Return the action that ``setpoints`` (size,) of environment ``owner`` stand for.

        Raises :class:`ActionError` for the first actuator without one (NaN).
        """
        only = self._only
        if only is not None and not np.count_nonzero(np.isnan(setpoints)):
            return only.write(setpoints)
        action: Any = None
        for part, where in zip(self.parts, self.slices, strict=True):
            if np.isnan(setpoints[where]).any():
                raise ActionError(f"environment {owner!r}: actuator {part.uid!r} has no set-point")
            action = _put(action, part.way, part.write(setpoints[where]))
        return _with_tuples(action, self.space)


def sensors_of(parts: Sequence[Part]) -> list[SensorInformation]:
    """Return a sensor for each part; it first reads what is nearest to 0."""
    return [SensorInformation(nearest_to_zero(part.ours), part.ours, part.uid) for part in parts]


def actuators_of(parts: Sequence[Part]) -> list[ActuatorInformation]:
    """Return an actuator for each part; until an agent sets it, it is what is nearest to 0."""
    return [ActuatorInformation(nearest_to_zero(part.ours), part.ours, part.uid) for part in parts]


def reward(uid: str) -> RewardInformation:
    """Return a reward that may be any number."""
    return RewardInformation(0.0, Box(-np.inf, np.inf, shape=()), uid)


def parts_of(uid: str, space: spaces.Space[Any], way: tuple[str | int, ...] = ()) -> Iterator[Part]:
    """Yield the parts of ``space``, one for each entry of ``Dict`` and ``Tuple`` spaces.

    Raises :class:`ContractError` for a space that has no vector form.
    """
    entries: Any = ()
    if isinstance(space, spaces.Dict):
        entries = space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        entries = enumerate(space.spaces)
    else:
        yield _part(uid, space, way)
    for key, entry in entries:
        yield from parts_of(f"{uid}.{key}", entry, (*way, key))


def _part(uid: str, space: spaces.Space[Any], way: tuple[str | int, ...]) -> Part:
    if isinstance(space, spaces.Box):
        if space.dtype.kind == "b":
            return Part(uid, way, space, MultiBinary(space.shape))
        return Part(uid, way, space, Box(space.low, space.high, space.shape, space.dtype))
    if isinstance(space, spaces.Discrete):
        return Part(uid, way, space, Discrete(int(space.n), int(space.start)))
    if isinstance(space, spaces.MultiDiscrete):
        return Part(uid, way, space, MultiDiscrete(space.nvec), space.start)
    if isinstance(space, spaces.MultiBinary):
        return Part(uid, way, space, MultiBinary(space.n))
    raise ContractError(
        f"{uid!r} is in {space}, which has no vector form; allowed are Box, Discrete, MultiDiscrete, MultiBinary, "
        "and Dict and Tuple of them"
    )


def nearest_to_zero(space: Space) -> Any:
    """Return the value of ``space`` that is nearest to 0 in all its numbers."""
    return space.unflatten(np.clip(0.0, space.flat_low, space.flat_high))


def plain_info(info: Mapping[str, Any], without: str | None = None) -> dict[str, Any]:
    """Return what of an info can be stored: words, numbers, arrays and lists of them, and mappings to them.

    ``without`` names an entry that is left out.
    """
    found: dict[str, Any] = {}
    for key, value in info.items():
        if key == without:
            continue
        if isinstance(value, Mapping):
            inner = plain_info(value)
            if inner:
                found[str(key)] = inner
        elif isinstance(value, (bool, int, float, str, np.ndarray, np.number, np.bool_, list, tuple)):
            try:
                array = np.asarray(value)
            except ValueError:  # a list of lists of different lengths
                continue
            if array.dtype.kind in "biufU":
                found[str(key)] = array.tolist()
    return found


def _put(action: Any, way: tuple[str | int, ...], value: Any) -> Any:
    """Put ``value`` at its place in ``action``, whose ``Dict`` and ``Tuple`` spaces are dicts."""
    if not way:
        return value
    action = {} if action is None else action
    action[way[0]] = _put(action.get(way[0]), way[1:], value)
    return action


def _with_tuples(action: Any, space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        # (of an entry that is empty itself there is no actuator)
        given = {} if action is None else action
        return {key: _with_tuples(given.get(key), entry) for key, entry in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        given = {} if action is None else action
        return tuple(_with_tuples(given.get(i), entry) for i, entry in enumerate(space.spaces))
    return action
