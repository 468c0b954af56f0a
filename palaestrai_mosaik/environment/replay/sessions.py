"""Recorded sessions as flat columns, and the signature of their observations, actions and rewards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError, SpaceError, did_you_mean
from palaestrai_mosaik.core.text import listed
from palaestrai_mosaik.types import Space
from palaestrai_mosaik.types.arrays import Array, IntVector

#: how a session ended, one boolean for each
ENDS = ("terminated", "truncated")


@dataclass(frozen=True, slots=True)
class Sessions:
    """``n`` sessions of any number of ticks, at least one each.

    ``offsets`` (n + 1,): session ``i`` is the rows ``offsets[i]`` to ``offsets[i + 1]`` of the columns of
    ``by_tick``. These are ``observation.<i>`` and ``action.<i>`` (rows, numbers), in the layout of
    :meth:`Signature.places`, and ``reward`` (rows, rewards), which belongs to the action of its row.

    The columns of ``by_session`` have one row for each session: ``final.<i>`` (n, numbers), the observations
    after the last action; ``terminated`` and ``truncated`` (n,), whether the world or its time ended then;
    and optionally ``memory.<i>`` (n, \\*shape), contents of the agent's memory before the first tick.

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
        """Check ``selector`` and return it as indices of sessions.

        Raises :class:`ContractError` if it is not a list of integers, or an index is out of range.
        """
        indices = np.asarray(selector)
        if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
            raise ContractError(
                f"a selector is a list of whole numbers, found {indices.dtype} of shape {indices.shape}"
            )
        indices = indices.astype(np.int64)
        wrong = indices[(indices < 0) | (indices >= len(self))]
        if wrong.size:
            raise ContractError(f"there is no session {wrong[0]}: the pool has {len(self)}, numbered from 0")
        return indices

    def take(self, selector: npt.ArrayLike) -> Sessions:
        """Return a copy of the sessions at these indices, in this order."""
        indices = self.chosen(selector)
        starts, stops = self.offsets[indices], self.offsets[indices + 1]
        parts = list(zip(starts.tolist(), stops.tolist(), strict=True))
        return Sessions(
            offsets_of(stops - starts),
            {
                name: np.concatenate([column[a:b] for a, b in parts] or [column[:0]])
                for name, column in self.by_tick.items()
            },
            {name: column[indices] for name, column in self.by_session.items()},
        )

    def dense(self, name: str) -> Array:
        """Return a column of ``by_tick`` as ``[session, tick, ...]``, padded with zeros after a session's end."""
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
    """Return the start offsets of sessions of these lengths, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


FLOAT = np.dtype(np.float64)
#: a pool's rewards by default
REWARDS = ("reward",)

#: the kinds of dtypes that hold numbers
NUMBERS = "fiub"

_KEYS = ("name", "shape", "dtype", "space")


@dataclass(frozen=True)
class Field:
    """One observation or one action: its name, and its shape and dtype at one tick.

    ``space`` is ``None`` if any value is allowed.
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: np.dtype[Any] = FLOAT
    space: Space | None = None

    @property
    def size(self) -> int:
        """The number of values at one tick."""
        return math.prod(self.shape)


#: a declaration of observations or actions: their number, or an entry for each
Declared = int | Sequence["Field | Mapping[str, Any]"]


@dataclass(frozen=True)
class Signature:
    """The observations, actions and names of rewards of all sessions of a pool.

    ``memories``: the agent's memories before a session, or only their number. ``None`` allows any.
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
        """Build a signature from declarations.

        Args:
            observations: the length of one flat float64 vector, or a list of :class:`Field` or of mappings
                with their keys.
            actions: a number of scalars, or such a list.
            rewards: the names of the rewards.
            memories: a number of arrays of any shape, or such a list; ``None``: not declared.
            default_action_dtype: the dtype of actions that are declared without one.

        Raises:
            ContractError: any other declaration.
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
            # an environment that replays the sessions has both as sensors
            _unique("observations and agent_memories", [*observed, *memories])
        rewarded = tuple(map(str, entries("rewards", rewards)))
        return cls(observed, _fields("actions", actions, default), rewarded, memories)

    def columns(self) -> list[str]:
        """Return the names of all columns of ``by_tick``."""
        names = [name for kind in ("observation", "action") for name in self.packed_columns(kind)]
        return [*names, "reward"]

    def packed_columns(self, kind: str) -> list[str]:
        """Return the columns of all observations or actions (``kind``), in order."""
        return list(dict.fromkeys(name for name, _ in self.places(kind)))

    def places(self, kind: str) -> list[tuple[str, slice]]:
        """Return the column of each observation or action, and the slice of its numbers there.

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
        """Return the width and dtype of each of these columns."""
        return {
            name: (part.stop, field.dtype)
            for (name, part), field in zip(self.places(kind), self._fields(kind), strict=True)
        }

    def packed(self, kind: str, arrays: Sequence[Array]) -> dict[str, Array]:
        """Pack an array (n, \\*shape) of each observation or action into columns."""
        parts: dict[str, list[Array]] = {}
        for (name, _), array in zip(self.places(kind), arrays, strict=True):
            parts.setdefault(name, []).append(array.reshape(len(array), -1))
        return {name: np.concatenate(several, axis=1) for name, several in parts.items()}

    def unpacked(self, kind: str, columns: Mapping[str, Array]) -> list[Array]:
        """Unpack columns (..., numbers) into an array (..., \\*shape) of each observation or action."""
        return [
            columns[name][..., part].reshape(*columns[name].shape[:-1], *field.shape)
            for field, (name, part) in zip(self._fields(kind), self.places(kind), strict=True)
        ]

    def _fields(self, kind: str) -> tuple[Field, ...]:
        return self.observations if kind == "observation" else self.actions

    def described(self) -> dict[str, Any]:
        """Return the signature as plain data, the inverse of :meth:`declared`."""
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

    def check_fits(self, recorded: Signature, where: str) -> None:
        """Raise :class:`ContractError` if sessions of ``recorded`` have other shapes than those declared here."""
        for kind in ("observations", "actions"):
            mine, theirs = getattr(self, kind), getattr(recorded, kind)
            if [f.shape for f in mine] != [f.shape for f in theirs]:
                raise ContractError(f"{where}: {kind} are {_shown(theirs)}, but declared are {_shown(mine)}")
        if len(self.rewards) != len(recorded.rewards):
            raise ContractError(
                f"{where}: rewards are {listed(recorded.rewards, 8) or 'none'}, but declared are "
                f"{listed(self.rewards, 8) or 'none'}"
            )


def _count(kind: str, value: int, least: int) -> int:
    if isinstance(value, bool) or value < least:
        raise ContractError(f"{kind}: a number of at least {least} is expected, found {value!r}")
    return value


def entries(kind: str, value: Any) -> list[Any]:
    """Return a user's list. Raises :class:`ContractError` for anything else."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise ContractError(f"{kind}: a list is expected, found {value!r}")
    return list(value)


def _fields(kind: str, declarations: Any, dtype: np.dtype[Any]) -> tuple[Field, ...]:
    return _unique(
        kind,
        [_field(kind, i, declaration, dtype) for i, declaration in enumerate(entries(kind, declarations))],
    )


def _field(kind: str, number: int, declaration: Any, dtype: np.dtype[Any]) -> Field:
    if isinstance(declaration, Field):
        return declaration
    where = f"{kind}.{number}"
    if not isinstance(declaration, Mapping) or "name" not in declaration:
        raise ContractError(f"{where}: a mapping with the key 'name' is expected, found {declaration!r}")
    for key in declaration:
        if key not in _KEYS:
            raise ContractError(
                f"{where}: there is no key {key!r}{did_you_mean(key, _KEYS)}; the keys are {', '.join(_KEYS)}"
            )
    try:
        space = None if declaration.get("space") is None else Space.from_string(str(declaration["space"]))
    except SpaceError as error:
        raise ContractError(f"{where}: {error}") from error
    default = () if space is None else (space.size,) if space.shape is None else space.shape
    field = Field(
        str(declaration["name"]),
        _shape(where, declaration.get("shape", default)),
        _dtype(where, declaration.get("dtype", dtype)),
        space,
    )
    if space is not None and space.size != field.size:
        raise ContractError(
            f"{where}: {space} has {space.size} numbers, which is not the shape {field.shape}"
        )
    return field


def _shape(where: str, declaration: Any) -> tuple[int, ...]:
    shape = (
        declaration
        if isinstance(declaration, Sequence) and not isinstance(declaration, str)
        else (declaration,)
    )
    if not all(type(n) is int and n > 0 for n in shape):
        raise ContractError(f"{where}: a shape is a list of whole numbers above 0, found {declaration!r}")
    return tuple(shape)


def _dtype(where: str, declaration: npt.DTypeLike) -> np.dtype[Any]:
    try:
        dtype = np.dtype(declaration)
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or dtype.kind not in NUMBERS:
        raise ContractError(f"{where}: {declaration!r} is no dtype of numbers (such as float64, int32, bool)")
    return dtype


def _unique(kind: str, fields: Sequence[Field]) -> tuple[Field, ...]:
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise ContractError(f"{kind}: the name {name!r} is given twice")
    return tuple(fields)


def _shown(fields: Sequence[Field]) -> str:
    return listed([f"{f.name} {f.dtype}{list(f.shape)}" for f in fields], 8) or "none"
