"""Recorded sessions as flat columns, and the observations, actions and rewards that they are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import ContractError, SpaceError, did_you_mean
from palaestrai_mosaik.text import listed
from palaestrai_mosaik.types import Space
from palaestrai_mosaik.types.arrays import Array, IntVector


@dataclass(frozen=True, slots=True)
class Sessions:
    """``n`` sessions, each of any number of ticks (at least one).

    ``offsets`` (n + 1,): session ``i`` is the rows ``offsets[i]`` to ``offsets[i + 1]`` of the
    columns of ``by_tick``. These are ``observation.<i>`` and ``action.<i>`` (rows, numbers), as
    :meth:`Signature.places` lays them out, and ``reward`` (rows, rewards), which is that of
    the action in the same row. The columns of ``by_session`` have one row for each: ``final.<i>``
    (n, numbers), the observations after the last action; ``terminated`` (n,), whether the world ended then; and, where there are any,
    ``memory.<i>`` (n, *shape), what the agent's memory held before the first tick.

    No array is written to again.
    """

    offsets: IntVector
    by_tick: Mapping[str, Array]
    by_session: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> IntVector:
        """The number of ticks, i.e. of actions, of each session."""
        return np.diff(self.offsets)

    def chosen(self, selector: npt.ArrayLike) -> IntVector:
        """Return ``selector`` as places of sessions.

        Raises :class:`ContractError` if it is no list of whole numbers, or one is not there.
        """
        places = np.asarray(selector)
        if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
            raise ContractError(
                f"a selector is a list of whole numbers, found {places.dtype} of shape {places.shape}"
            )
        places = places.astype(np.int64)
        wrong = places[(places < 0) | (places >= len(self))]
        if wrong.size:
            raise ContractError(f"there is no session {wrong[0]}: the pool has {len(self)}, numbered from 0")
        return places

    def take(self, selector: npt.ArrayLike) -> Sessions:
        """Return the sessions at these places, in this order, as columns of their own."""
        places = self.chosen(selector)
        starts, stops = self.offsets[places], self.offsets[places + 1]
        parts = list(zip(starts.tolist(), stops.tolist(), strict=True))
        return Sessions(
            offsets_of(stops - starts),
            {
                name: np.concatenate([column[a:b] for a, b in parts] or [column[:0]])
                for name, column in self.by_tick.items()
            },
            {name: column[places] for name, column in self.by_session.items()},
        )

    def dense(self, name: str) -> Array:
        """Return a column of ``by_tick`` as ``[session, tick, ...]``, with zeros behind a session's end."""
        column = self.by_tick[name]
        alive = self.alive()
        result = np.zeros((*alive.shape, *column.shape[1:]), dtype=column.dtype)
        result[alive] = column
        return result

    def alive(self) -> npt.NDArray[np.bool_]:
        """Return ``[session, tick]``: whether the session has not ended by this tick."""
        lengths = self.lengths
        return np.asarray(np.arange(lengths.max(initial=0)) < lengths[:, None])


def offsets_of(lengths: npt.ArrayLike) -> IntVector:
    """Return where sessions of these lengths begin, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


FLOAT = np.dtype(np.float64)
#: the reward of a pool by default
REWARDS = ("reward",)

#: the kinds of dtypes that hold numbers
NUMBERS = "fiub"

_KEYS = ("name", "shape", "dtype", "space")


@dataclass(frozen=True)
class Field:
    """One observation or one action: its name, and shape and dtype at one tick.

    ``space`` is ``None`` where any value is allowed.
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: np.dtype[Any] = FLOAT
    space: Space | None = None

    @property
    def size(self) -> int:
        """How many numbers it has at one tick."""
        return math.prod(self.shape)


#: how observations and actions are declared: a number, or an entry for each
Declared = int | Sequence["Field | Mapping[str, Any]"]


@dataclass(frozen=True)
class Signature:
    """The observations, actions and names of rewards of all sessions of a pool.

    ``memories``: what the agent's memory held before a session, how many of them there are, or
    ``None``: whatever is loaded.
    """

    observations: tuple[Field, ...]
    actions: tuple[Field, ...]
    rewards: tuple[str, ...] = REWARDS
    memories: tuple[Field, ...] | int | None = None

    @classmethod
    def declared(
        cls,
        observations: Declared = 1,
        actions: Declared = 1,
        rewards: Iterable[str] = REWARDS,
        memories: Declared | None = None,
        default_action_dtype: npt.DTypeLike = np.int32,
    ) -> Signature:
        """Return what is declared.

        ``observations`` is the length of one flat float64 vector, ``actions`` a number of
        scalars, ``memories`` a number of arrays of any shape, or each is a list of :class:`Field` or of
        their keys. ``default_action_dtype`` is that of actions that do not declare one. Raises
        :class:`ContractError` for any other declaration.
        """
        default = _dtype("default_action_dtype", default_action_dtype)
        if isinstance(observations, int):
            observations = [Field("observation", (_count("observations", observations, 1),))]
        if isinstance(actions, int):
            number = _count("actions", actions, 0)
            names = ["action" if not i else f"action_{i}" for i in range(number)]
            actions = [Field(name, (), default) for name in names]
        observed = _fields("observations", observations, FLOAT)
        if not observed:
            raise ContractError("observations: there must be at least one")
        if isinstance(memories, int):
            memories = _count("agent_memories", memories, 0)
        elif memories is not None:
            memories = _fields("agent_memories", memories, FLOAT)
            # both are sensors of who replays the sessions
            _unique("observations and agent_memories", [*observed, *memories])
        rewarded = tuple(map(str, entries("rewards", rewards)))
        return cls(observed, _fields("actions", actions, default), rewarded, memories)

    def columns(self) -> list[str]:
        """Return the columns of everything that sessions have at each tick."""
        names = [name for kind in ("observation", "action") for name in self.packed_columns(kind)]
        return [*names, "reward"]

    def packed_columns(self, kind: str) -> list[str]:
        """Return the columns of all observations or actions (``kind``), in order."""
        return list(dict.fromkeys(name for name, _ in self.places(kind)))

    def places(self, kind: str) -> list[tuple[str, slice]]:
        """Return for each observation or action in which column it lies, flat, and where.

        Neighbours of one dtype share a column, so that a tick is read with one access.
        """
        result: list[tuple[str, slice]] = []
        column, end = -1, 0
        dtype: np.dtype[Any] | None = None
        for field in self._fields(kind):
            if dtype is None or field.dtype != dtype:
                column, end, dtype = column + 1, 0, field.dtype
            result.append((f"{kind}.{column}", slice(end, end + field.size)))
            end = result[-1][1].stop
        return result

    def packed_kinds(self, kind: str) -> dict[str, tuple[int, np.dtype[Any]]]:
        """Return how many numbers each of these columns has at one tick, and their dtype."""
        return {
            name: (part.stop, field.dtype)
            for (name, part), field in zip(self.places(kind), self._fields(kind), strict=True)
        }

    def packed(self, kind: str, arrays: Sequence[Array]) -> dict[str, Array]:
        """Return the columns for an array (n, *shape) of each observation or action."""
        parts: dict[str, list[Array]] = {}
        for (name, _), array in zip(self.places(kind), arrays, strict=True):
            parts.setdefault(name, []).append(array.reshape(len(array), -1))
        return {name: np.concatenate(several, axis=1) for name, several in parts.items()}

    def unpacked(self, kind: str, columns: Mapping[str, Array]) -> list[Array]:
        """Return an array (..., *shape) of each observation or action out of columns (..., numbers)."""
        return [
            columns[name][..., part].reshape(*columns[name].shape[:-1], *field.shape)
            for field, (name, part) in zip(self._fields(kind), self.places(kind), strict=True)
        ]

    def _fields(self, kind: str) -> tuple[Field, ...]:
        return self.observations if kind == "observation" else self.actions

    def described(self) -> dict[str, Any]:
        """Return this as plain data, from which :meth:`declared` makes it again."""
        described: dict[str, Any] = {"rewards": list(self.rewards)}
        for kind, fields in (
            ("observations", self.observations),
            ("actions", self.actions),
            ("memories", self.memories),
        ):
            if isinstance(fields, tuple):
                described[kind] = [
                    {"name": f.name, "shape": list(f.shape), "dtype": f.dtype.str}
                    | ({} if f.space is None else {"space": str(f.space)})
                    for f in fields
                ]
            elif fields is not None:
                described[kind] = fields
        return described

    def check_fits(self, found: Signature, where: str) -> None:
        """Raise :class:`ContractError` unless sessions of ``found`` have the shapes that are declared here."""
        for kind in ("observations", "actions"):
            mine, theirs = getattr(self, kind), getattr(found, kind)
            if [f.shape for f in mine] != [f.shape for f in theirs]:
                raise ContractError(f"{where}: {kind} are {_shown(theirs)}, but declared are {_shown(mine)}")
        if len(self.rewards) != len(found.rewards):
            raise ContractError(
                f"{where}: rewards are {listed(found.rewards, 8) or 'none'}, but declared are "
                f"{listed(self.rewards, 8) or 'none'}"
            )


def _count(kind: str, value: int, least: int) -> int:
    if isinstance(value, bool) or value < least:
        raise ContractError(f"{kind}: a number of at least {least} is expected, found {value!r}")
    return value


def entries(kind: str, given: Any) -> list[Any]:
    """Return a list that a user gave. Raises :class:`ContractError` if it is something else."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ContractError(f"{kind}: a list is expected, found {given!r}")
    return list(given)


def _fields(kind: str, given: Any, dtype: np.dtype[Any]) -> tuple[Field, ...]:
    return _unique(kind, [_field(kind, i, one, dtype) for i, one in enumerate(entries(kind, given))])


def _field(kind: str, number: int, given: Any, dtype: np.dtype[Any]) -> Field:
    if isinstance(given, Field):
        return given
    where = f"{kind}.{number}"
    if not isinstance(given, Mapping) or "name" not in given:
        raise ContractError(f"{where}: a mapping with the key 'name' is expected, found {given!r}")
    for key in given:
        if key not in _KEYS:
            raise ContractError(
                f"{where}: there is no key {key!r}{did_you_mean(key, _KEYS)}; the keys are {', '.join(_KEYS)}"
            )
    try:
        space = None if given.get("space") is None else Space.from_string(str(given["space"]))
    except SpaceError as error:
        raise ContractError(f"{where}: {error}") from error
    default = () if space is None else (space.size,) if space.shape is None else space.shape
    field = Field(
        str(given["name"]),
        _shape(where, given.get("shape", default)),
        _dtype(where, given.get("dtype", dtype)),
        space,
    )
    if space is not None and space.size != field.size:
        raise ContractError(
            f"{where}: {space} has {space.size} numbers, which is not the shape {field.shape}"
        )
    return field


def _shape(where: str, given: Any) -> tuple[int, ...]:
    shape = given if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    if not all(type(n) is int and n > 0 for n in shape):
        raise ContractError(f"{where}: a shape is a list of whole numbers above 0, found {given!r}")
    return tuple(shape)


def _dtype(where: str, given: npt.DTypeLike) -> np.dtype[Any]:
    try:
        dtype = np.dtype(given)
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or dtype.kind not in NUMBERS:
        raise ContractError(f"{where}: {given!r} is no dtype of numbers (such as float64, int32, bool)")
    return dtype


def _unique(kind: str, fields: Sequence[Field]) -> tuple[Field, ...]:
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise ContractError(f"{kind}: the name {name!r} is given twice")
    return tuple(fields)


def _shown(fields: Sequence[Field]) -> str:
    return listed([f"{f.name} {f.dtype}{list(f.shape)}" for f in fields], 8) or "none"
