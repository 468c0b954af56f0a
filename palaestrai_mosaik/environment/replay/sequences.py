"""Conversion of AgentNet's sequences ``[session, tick, ...]`` into sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types.arrays import Array

from .sessions import NUMBERS, REWARDS, Field, Sessions, Signature, offsets_of

_SCALAR = np.dtype(np.float64)


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
        return [session[:, None] for session in _sequences("rewards", rewards, (), _SCALAR)]
    return _sequences("rewards", rewards, (width,), _SCALAR)


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
