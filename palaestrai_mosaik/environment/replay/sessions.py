"""Sessions as flat columns with a signature, also from AgentNet's sequences ``[session, tick, ...]``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError, SpaceError, did_you_mean
from palaestrai_mosaik.core.printing import listed
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


@dataclass(frozen=True, slots=True)
class GivenSequences:
    """A user's sequences; see :meth:`.pool.SessionPool.load_sessions`."""

    observations: Any
    actions: Any
    rewards: Any
    is_alive: Any = None
    memories: Any = None
    terminated: Any = None
    truncated: Any = None


def sessions_of(signature: Signature, sequences: GivenSequences) -> Sessions:
    """Convert a user's sequences to sessions.

    Raises :class:`ContractError` with the session and tick at which something does not fit.
    """
    observed = _per_field("observation", sequences.observations, signature.observations)
    acted = _per_field("action", sequences.actions, signature.actions)
    reference = acted[0] if acted else observed[0]
    rewarded = _rewards(sequences.rewards, len(signature.rewards), reference)
    ticks = [len(array) for array in reference]
    for field, column in zip(signature.actions, acted, strict=True):
        _same_ticks(f"action {field.name!r}", column, ticks)
    _same_ticks("rewards", rewarded, ticks)
    extra = [len(array) - n for array, n in zip(observed[0], ticks, strict=False)]
    for field, column in zip(signature.observations, observed, strict=True):
        _same_ticks(f"observation {field.name!r}", column, ticks, extra)
    lengths, ended = _alive(sequences.is_alive, ticks)
    by_tick = signature.packed("observation", [_joined(column, lengths) for column in observed])
    by_tick |= signature.packed("action", [_joined(column, lengths) for column in acted])
    by_tick["reward"] = _joined(rewarded, lengths)
    lasts = [n if more else n - 1 for n, more in zip(lengths, extra, strict=True)]
    after = [np.stack([array[k] for array, k in zip(column, lasts, strict=True)]) for column in observed]
    by_session = finals(signature.packed("observation", after))
    terminated = _flags("terminated", sequences.terminated, len(ended))
    by_session |= ends_of(
        np.array(ended, dtype=bool) if terminated is None else terminated,
        _flags("truncated", sequences.truncated, len(ended)),
    )
    by_session |= declared_memories(signature, _memories(sequences.memories, len(ticks)))
    return Sessions(offsets_of(lengths), by_tick, by_session)


def recast(sessions: Sessions, recorded: Signature, declared: Signature) -> Sessions:
    """Cast sessions of ``recorded`` to the dtypes of ``declared``; the shapes are equal.

    Raises :class:`ContractError` with session and tick if that would change a value.
    """
    by_tick, by_session, offsets = dict(sessions.by_tick), dict(sessions.by_session), sessions.offsets
    for kind, theirs, mine in (
        ("observation", recorded.observations, declared.observations),
        ("action", recorded.actions, declared.actions),
    ):
        if [field.dtype for field in theirs] == [field.dtype for field in mine]:
            continue
        names = recorded.packed_columns(kind)
        arrays = recorded.unpacked(kind, {name: by_tick.pop(name) for name in names})
        cast = [
            np.concatenate(
                [
                    _cast(f"{kind} {field.name!r} of session {i}", array[start:stop], field.dtype)
                    for i, (start, stop) in enumerate(pairwise(offsets.tolist()))
                ]
            )
            for field, array in zip(mine, arrays, strict=True)
        ]
        by_tick |= declared.packed(kind, cast)
        if kind == "observation":
            last = recorded.unpacked(kind, {name: by_session.pop(final_column(name)) for name in names})
            after = [
                _cast(f"the last {kind} {field.name!r}", array, field.dtype)
                for field, array in zip(mine, last, strict=True)
            ]
            by_session |= finals(declared.packed(kind, after))
    return Sessions(offsets, by_tick, by_session | declared_memories(declared, by_session))


def declared_memories(signature: Signature, columns: Mapping[str, Array]) -> dict[str, Array]:
    """Return the memories among ``columns``, with the dtypes of ``signature``.

    Raises :class:`ContractError` if there are some, but not those that ``signature`` declares.
    """
    memories = {name: column for name, column in columns.items() if name.startswith("memory.")}
    declared = signature.memories
    if declared is None or not memories:
        return memories
    count = declared if isinstance(declared, int) else len(declared)
    if len(memories) != count:
        raise ContractError(
            f"previous memories: {count} of them are declared by agent_memories, found {len(memories)}"
        )
    for i, field in enumerate(declared if isinstance(declared, tuple) else ()):
        column, name = memories[f"memory.{i}"], f"previous memory {field.name!r}"
        if column.shape[1:] != field.shape:
            raise ContractError(
                f"{name} has shape {column.shape[1:]} for each session, declared is {field.shape}"
            )
        memories[f"memory.{i}"] = _cast(name, column, field.dtype, "session")
    return memories


def finals(observations: Mapping[str, Array]) -> dict[str, Array]:
    """Rename columns of observations to those of the final observations."""
    return {final_column(name): column for name, column in observations.items()}


def final_column(name: str) -> str:
    """Return the name of the column with the final values of an observation's column."""
    return name.replace("observation", "final", 1)


def one_per_field(what: str, sequences: Any, fields: Sequence[Field]) -> list[Any]:
    """Return a list with one entry for each field. With a single field, the entry may come without a list."""
    if not fields:
        if sequences is not None and len(sequences):
            raise ContractError(f"{what}: none are declared, so none can be loaded")
        return []
    if len(fields) == 1:
        single = isinstance(sequences, list | tuple) and len(sequences) == 1
        # a list of one session has one axis less than a list of one observation
        return [sequences[0] if single and depth(sequences[0]) == len(fields[0].shape) + 2 else sequences]
    if not isinstance(sequences, list | tuple) or len(sequences) != len(fields):
        actual = (
            f"{len(sequences)}" if isinstance(sequences, list | tuple) else f"a {type(sequences).__name__}"
        )
        names = ", ".join(field.name for field in fields)
        raise ContractError(f"{what}: a list of {len(fields)} is expected ({names}), found {actual}")
    return list(sequences)


def dtype_of(sequences: Any) -> np.dtype[Any]:
    """Return the dtype of sequences: that of the array, or of a list's first session."""
    return sequences.dtype if isinstance(sequences, np.ndarray) else np.asarray(sequences[0]).dtype


def depth(sequences: Any) -> int:
    """Return the number of axes of nested lists of arrays, judged by their first entries."""
    depth = 0
    while isinstance(sequences, list | tuple) and len(sequences):
        depth, sequences = depth + 1, sequences[0]
    return depth + np.ndim(sequences)


def reward_names(sequences: Any) -> Sequence[str]:
    """Return names for rewards [session, tick] or [session, tick, reward]."""
    width = np.shape(sequences[0])[1] if depth(sequences) == 3 else 1
    return REWARDS if width == 1 else [f"reward_{i}" for i in range(width)]


def _per_field(kind: str, sequences: Any, fields: Sequence[Field]) -> list[list[Array]]:
    """Return the arrays of each field, an array for each session."""
    return [
        _sequences(f"{kind} {field.name!r}", arrays, field.shape, field.dtype)
        for field, arrays in zip(fields, one_per_field(f"{kind}s", sequences, fields), strict=True)
    ]


def _sequences(what: str, arrays: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[Array]:
    """Return an array (ticks, *shape) of this dtype for each session."""
    expected = "(" + ", ".join(["ticks", *map(str, shape)]) + ")"
    if not isinstance(arrays, np.ndarray | list | tuple):
        raise ContractError(
            f"{what}: [session, tick, ...] is expected, as an array or as a list of arrays {expected}, found {arrays!r}"
        )
    result = []
    for number, array in enumerate(arrays):
        try:
            session = np.asarray(array)
        except ValueError as error:
            raise ContractError(f"{what} of session {number}: {expected} is expected: {error}") from error
        if session.shape[1:] != shape or session.ndim != len(shape) + 1:
            raise ContractError(
                f"{what} of session {number} has shape {session.shape}, expected is {expected}"
            )
        result.append(_cast(f"{what} of session {number}", session, dtype))
    if not result:
        raise ContractError(f"{what}: there is no session")
    return result


def _cast(where: str, session: Array, dtype: np.dtype[Any], axis: str = "tick") -> Array:
    if session.dtype == dtype:
        return session
    if session.dtype.kind not in NUMBERS:
        raise ContractError(f"{where} has dtype {session.dtype}, declared is {dtype}")
    with np.errstate(invalid="ignore", over="ignore"):
        cast = session.astype(dtype)
    if dtype.kind in "iub":
        wrong = np.argwhere(cast != session)
        if len(wrong):
            value = session[tuple(wrong[0])]
            raise ContractError(f"{where} is {value} at {axis} {wrong[0][0]}, which is no {dtype}")
    return cast


def _rewards(rewards: Any, width: int, reference: Sequence[Array]) -> list[Array]:
    if rewards is None:
        return [np.zeros((len(session), width)) for session in reference]
    if width == 1 and depth(rewards) == 2:
        return [session[:, None] for session in _sequences("rewards", rewards, (), FLOAT)]
    return _sequences("rewards", rewards, (width,), FLOAT)


def _same_ticks(
    what: str, column: Sequence[Array], ticks: Sequence[int], extra: Sequence[int] | None = None
) -> None:
    if len(column) != len(ticks):
        raise ContractError(f"{what}: there are {len(column)} sessions, but {len(ticks)} of the actions")
    for number, (session, count) in enumerate(zip(column, ticks, strict=True)):
        more = 0 if extra is None else extra[number]
        if len(session) != count + more or more not in (0, 1):
            either = "" if extra is None else f", or {count + 1} with the one after the last action"
            raise ContractError(
                f"{what} of session {number} has {len(session)} ticks, but the actions have {count}; expected are "
                f"{count}{either}"
            )
        if not count:
            raise ContractError(f"{what} of session {number} has no tick")


def _alive(is_alive: Any, ticks: Sequence[int]) -> tuple[list[int], list[bool]]:
    """Return the number of ticks of each session, and whether it ended before its record did."""
    if is_alive is None:
        return list(ticks), [False] * len(ticks)
    column = _sequences("is_alive", is_alive, (), np.dtype(bool))
    _same_ticks("is_alive", column, ticks)
    lengths = []
    for number, alive in enumerate(column):
        length = int(alive.argmin()) if not alive.all() else len(alive)
        if not length:
            raise ContractError(
                f"is_alive: session {number} is not alive at tick 0; every session has a tick"
            )
        if alive[length:].any():
            again = length + int(alive[length:].argmax())
            raise ContractError(
                f"is_alive: session {number} has ended by tick {length}, but is alive again at tick {again}"
            )
        lengths.append(length)
    return lengths, [length < n for length, n in zip(lengths, ticks, strict=True)]


def _joined(column: Sequence[Array], lengths: Sequence[int]) -> Array:
    return np.concatenate([session[:n] for session, n in zip(column, lengths, strict=True)])


def ends_of(terminated: Array, truncated: Array | None) -> dict[str, Array]:
    """Return the columns ``terminated`` and ``truncated``; a session that is not terminated is truncated."""
    return {
        "terminated": terminated,
        "truncated": ~terminated if truncated is None else truncated | ~terminated,
    }


def _flags(name: str, values: Any, count: int) -> Array | None:
    if values is None:
        return None
    flags = np.asarray(values)
    if flags.shape != (count,) or flags.dtype != bool:
        raise ContractError(
            f"{name}: booleans of shape ({count},) are expected, one for each session, found "
            f"{flags.dtype} of shape {flags.shape}"
        )
    return flags.copy()


def _memories(memories: Any, count: int) -> dict[str, Array]:
    if memories is None:
        return {}
    several = isinstance(memories, list | tuple) and len(memories) and isinstance(memories[0], np.ndarray)
    result = {}
    for i, array in enumerate(memories if several else [memories]):
        memory: npt.NDArray[Any] = np.array(array)
        if memory.ndim < 1 or len(memory) != count or memory.dtype.kind not in NUMBERS:
            raise ContractError(
                f"previous memories: numbers of shape ({count}, ...) are expected, a row for each session, found "
                f"{memory.dtype} of shape {memory.shape}"
            )
        result[f"memory.{i}"] = memory
    return result
