"""Pools of recorded sessions, in memory and in folders."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from itertools import count, takewhile
from pathlib import Path
from tokenize import TokenError
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt
from numpy.lib.format import open_memmap

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.checks import check_whole
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.core.printing import listed
from palaestrai_mosaik.types.arrays import Array, IntVector

from .sessions import (
    ENDS,
    NUMBERS,
    REWARDS,
    Declared,
    GivenSequences,
    Sessions,
    Signature,
    declared_memories,
    final_column,
    offsets_of,
    sessions_of,
)

_DESCRIPTION = "pool.json"
_FORMAT = 2
_HEADER = 256  # bytes; numpy wants a multiple of 64


class PoolWriter:
    """Writes a pool piece by piece, with one piece in memory at a time.

    ::

        with PoolWriter("recorded", pool.signature) as writer:
            for pool in pieces:
                writer.append(pool.sessions)

    At the end of the block the pool is in its directory, with all its data synced to disk. If the block
    raises, nothing is left.
    """

    def __init__(self, directory: str | Path, signature: Signature):
        self.directory = Path(directory)
        self.signature = signature
        self._lengths: list[Array] = []
        self._columns: dict[str, _ColumnFile] = {}
        _check_free(self.directory)
        self._folder = self.directory.with_name(f"{self.directory.name}.{secrets.token_hex(8)}.partial")

    def __enter__(self) -> Self:
        files.make_folder(self._folder, parents=True, exist_ok=False)
        return self

    def append(self, sessions: Sessions) -> None:
        """Append ``sessions``; all must have the same columns."""
        columns = {**sessions.by_tick, **sessions.by_session}
        if not self._columns:
            self._columns = {name: _ColumnFile(self._folder, name, array) for name, array in columns.items()}
        kinds = {name: (column.shape[1:], column.dtype) for name, column in columns.items()}
        expected = {name: (file.shape, file.dtype) for name, file in self._columns.items()}
        if kinds != expected:
            wrong = next(n for n in {**expected, **kinds} if kinds.get(n) != expected.get(n))
            raise ContractError(
                f"{self.directory}: {wrong} of these sessions is {kinds.get(wrong)}, that of the first ones is "
                f"{expected.get(wrong)}"
            )
        for name, column in columns.items():
            self._columns[name].append(column)
        self._lengths.append(sessions.lengths)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            for file in self._columns.values():
                file.close()
            files.discard_tree(self._folder)

    def _finish(self) -> None:
        if not any(map(len, self._lengths)):
            raise ContractError(f"{self.directory}: a pool needs at least one session")
        offsets = offsets_of(np.concatenate(self._lengths))
        last = _ColumnFile(self._folder, "offsets", offsets)
        last.append(offsets)
        rows = {}
        for name, file in {**self._columns, "offsets": last}.items():
            rows[name] = file.rows
            file.finish()
        text = json.dumps({"format": _FORMAT, **self.signature.described(), "rows": rows}, indent=1)
        files.write_text(self._folder / _DESCRIPTION, text + "\n")
        _check_free(self.directory)
        files.move(self._folder, self.directory)


class _ColumnFile:
    """An npy file that is written before its number of rows is known."""

    def __init__(self, folder: Path, name: str, like: Array):
        self.shape, self.dtype = like.shape[1:], like.dtype
        self.rows = 0
        self._file: BinaryIO = files.open_new(folder / f"{name}.npy")
        self._file.write(self._header())

    def append(self, rows: Array) -> None:
        self._file.write(np.ascontiguousarray(rows).data)
        self.rows += len(rows)

    def finish(self) -> None:
        self._file.seek(0)
        self._file.write(self._header())
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()

    def close(self) -> None:
        self._file.close()

    def _header(self) -> bytes:
        # version 1.0 of numpy's format, padded to a constant length
        keys = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.rows, *self.shape)}
        text = repr(keys).encode("ascii")
        return b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little") + text.ljust(_HEADER - 11) + b"\n"


def open_pool(directory: Path) -> tuple[Signature, Sessions]:
    """Open the pool in ``directory``; its columns are mapped and not read yet.

    Raises :class:`ContractError` if the description is incomplete, or the columns do not
    match it.
    """
    description = _description(directory)
    path = directory / _DESCRIPTION
    missing = [key for key in ("observations", "actions", "rewards", "rows") if key not in description]
    if missing:
        raise ContractError(f"the pool is damaged: {path} has no {listed(missing, 4)}")
    try:
        observations, actions, rewards = (description[key] for key in ("observations", "actions", "rewards"))
        signature = Signature.declared(observations, actions, rewards, description.get("memories"))
    except ContractError as error:
        raise ContractError(f"the pool is damaged: {path}: {error}") from error
    rows = _rows(path, signature, description["rows"])
    columns = {name: _mapped(directory / f"{name}.npy", number) for name, number in rows.items()}
    offsets = np.array(columns["offsets"])  # read now, because every access to a session needs it
    _check_columns(directory, signature, offsets, columns)
    del columns["offsets"]
    sessions = Sessions(offsets, {name: columns.pop(name) for name in signature.columns()}, columns)
    try:
        declared = declared_memories(signature, sessions.by_session)
    except ContractError as error:
        raise ContractError(f"the pool is damaged: {path}: {error}") from error
    for name, column in declared.items():
        if columns[name].dtype != column.dtype:
            raise ContractError(
                f"the pool is damaged: {directory / name}.npy is {columns[name].dtype}, expected is {column.dtype}"
            )
    return signature, sessions


def _description(directory: Path) -> Mapping[str, Any]:
    if not directory.is_dir():
        raise ContractError(f"there is no pool of sessions at {directory}: it is no folder")
    path = directory / _DESCRIPTION
    try:
        description: Any = json.loads(files.read_given(path, follow=True))
    except FileNotFoundError:
        raise ContractError(
            f"{directory} is no whole pool of sessions: it has no {_DESCRIPTION}, which is written last"
        ) from None
    except (OSError, ValueError) as error:
        raise ContractError(f"{path} is damaged: {files.reading_fault(error)}") from None
    if not isinstance(description, dict) or description.get("format") != _FORMAT:
        raise ContractError(f"{path} is not the description of a pool of format {_FORMAT}")
    return description


def _rows(path: Path, signature: Signature, rows: Any) -> Mapping[str, int]:
    """Return the number of rows of each column that ``signature`` needs, and of each memory."""
    if not isinstance(rows, dict) or not all(type(n) is int and n >= 0 for n in rows.values()):
        raise ContractError(f"the pool is damaged: {path}: rows: a number for each column is expected")
    finals = map(final_column, signature.packed_columns("observation"))
    needed = ["offsets", *signature.columns(), *finals, *ENDS]
    memories = [f"memory.{i}" for i in range(len(rows) - len(needed))]
    if set(rows) != {*needed, *memories}:
        raise ContractError(
            f"the pool is damaged: {path}: rows: the columns {', '.join(needed)} (and memory.0, ...) are expected, "
            f"found {listed(list(rows), 20) or 'none'}"
        )
    return rows


def _mapped(path: Path, rows: int) -> Array:
    try:
        files.check_readable(path)
        column: Array = open_memmap(path, mode="r")
    except (OSError, ValueError, SyntaxError, TokenError) as error:
        raise ContractError(f"the pool is damaged: {path}: {files.reading_fault(error)}") from None
    if column.shape[:1] != (rows,):
        size = f"{len(column)} rows" if column.ndim else "a single number"
        raise ContractError(f"the pool is damaged: {path} has {size}, not {rows} rows")
    # every slice of the class memmap is slower; the plain array keeps the mapping alive
    return column.view(np.ndarray)


def _check_columns(
    directory: Path, signature: Signature, offsets: Array, columns: Mapping[str, Array]
) -> None:
    """Raise :class:`ContractError` unless the columns match ``signature`` and ``offsets``."""

    def check(name: str, fits: bool, expected: str) -> None:
        if not fits:
            actual = f"{columns[name].dtype} of shape {columns[name].shape}"
            raise ContractError(
                f"the pool is damaged: {directory / name}.npy is {actual}, expected is {expected}"
            )

    check(
        "offsets",
        offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets) > 1,
        "int64 with an entry for each session and one more",
    )
    ticks, sessions = len(columns["reward"]), len(offsets) - 1
    if offsets[0] != 0 or offsets[-1] != ticks or (np.diff(offsets) < 1).any():
        raise ContractError(
            f"the pool is damaged: {directory / 'offsets.npy'} must rise from 0 to the {ticks} rows of the other "
            f"columns, each session having at least one; it goes from {offsets[0]} to {offsets[-1]}"
        )
    expected = {
        "reward": ((ticks, len(signature.rewards)), np.dtype(np.float64)),
        **dict.fromkeys(ENDS, ((sessions,), np.dtype(bool))),
    }
    for kind in ("observation", "action"):
        for name, (width, dtype) in signature.packed_kinds(kind).items():
            expected[name] = ((ticks, width), dtype)
            if kind == "observation":
                expected[final_column(name)] = ((sessions, width), dtype)
    for name, (shape, dtype) in expected.items():
        column = columns[name]
        check(name, (column.shape, column.dtype) == (shape, dtype), f"{dtype} of shape {shape}")
    for name, column in columns.items():
        if name.startswith("memory."):
            check(
                name,
                len(column) == sessions and column.dtype.kind in NUMBERS,
                f"numbers with a row for each of {sessions} sessions",
            )


def _check_free(directory: Path) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ContractError(f"{directory} is there already: write the pool to a new folder")


class SessionPool:
    """The sessions of one agent: its observations, actions and rewards, tick by tick.

    Sequences have AgentNet's axes ``[session, tick, ...]``: arrays, or, for sessions of different length,
    lists of one array for each session.

    Source: ``SessionPoolEnvironment`` of AgentNet (the seed "Experience Replay"), which holds such a pool.

    Args:
        observations: the observations of a tick: the length of one flat float64 vector, or a list of fields
            (see :meth:`.sessions.Signature.declared`).
        actions: the actions of a tick: a number of scalars, or a list of fields.
        rewards: the names of the rewards.
        agent_memories: the agent's memories: a number of arrays of any shape, or a list of fields;
            ``None``: not declared.
        default_action_dtype: the dtype of actions that are declared without one.
    """

    def __init__(
        self,
        observations: Declared = 1,
        actions: Declared = 1,
        rewards: Iterable[str] = REWARDS,
        agent_memories: Declared | None = None,
        default_action_dtype: npt.DTypeLike = np.int32,
    ):
        self.signature = Signature.declared(
            observations, actions, rewards, agent_memories, default_action_dtype
        )
        self._columns: _Columns | None = None
        self._sessions: Sessions | None = None

    @classmethod
    def of(cls, signature: Signature, sessions: Sessions) -> SessionPool:
        """Make a pool of ``sessions``, which must match ``signature``."""
        pool = cls(signature.observations, signature.actions, signature.rewards, signature.memories)
        pool._sessions = _frozen(sessions)
        return pool

    @classmethod
    def open(cls, directory: str | Path) -> SessionPool:
        """Map the pool in ``directory`` into memory; data is read on access.

        Any number of processes may open it. Raises :class:`ContractError` if the pool does not exist or
        is incomplete.
        """
        return cls.of(*open_pool(Path(directory)))

    def save(self, directory: str | Path) -> None:
        """Write the pool to a new ``directory``, which appears only when it is complete."""
        with PoolWriter(directory, self.signature) as writer:
            writer.append(self.sessions)

    def __len__(self) -> int:
        """The number of sessions."""
        return 0 if self._sessions is None else len(self._sessions)

    @property
    def sessions(self) -> Sessions:
        """The current sessions. Raises :class:`ContractError` if the pool is empty."""
        if self._sessions is None:
            raise ContractError("the pool has no sessions: load some")
        return self._sessions

    def load_sessions(
        self,
        observation_sequences: Any,
        action_sequences: Any,
        reward_seq: Any,
        is_alive: Any = None,
        prev_memories: Any = None,
        *,
        terminated: npt.ArrayLike | None = None,
        truncated: npt.ArrayLike | None = None,
    ) -> None:
        r"""Replace the sessions.

        Args:
            observation_sequences: [session, tick, \*shape], or a list of such arrays for several observations.
                They may have one tick more than the actions, for the observation after the last action
                (default: the one before it).
            action_sequences: [session, tick, \*shape], or a list of such arrays for several actions.
            reward_seq: the reward of the action at this tick: [session, tick], or [session, tick, reward]
                for several rewards; ``None``: 0.
            is_alive: whether a session has not ended by this tick: [session, tick]; ``None``: always.
            prev_memories: contents of the agent's memory before the first tick: [session, ...], or a list of
                such arrays; ``None``: unknown.
            terminated: whether the world ended with the session, and not only its record: (session,);
                ``None``: the sessions that ended by ``is_alive``.
            truncated: whether time ran out with the session: (session,); a session that is not terminated
                is always truncated. ``None``: those that are not terminated.

        Raises:
            ContractError: a sequence does not fit; the message names session, tick and shape. The pool is
                unchanged.
        """
        by_tick = observation_sequences, action_sequences, reward_seq, is_alive
        sequences = GivenSequences(*by_tick, prev_memories, terminated, truncated)
        sessions = sessions_of(self.signature, sequences)
        self._columns = None
        self._sessions = _frozen(sessions)

    def append_sessions(  # noqa: PLR0913  (independent sequences, most of them optional)
        self,
        observation_sequences: Any,
        action_sequences: Any,
        reward_seq: Any,
        is_alive: Any = None,
        prev_memories: Any = None,
        max_pool_size: int | None = None,
        *,
        terminated: npt.ArrayLike | None = None,
        truncated: npt.ArrayLike | None = None,
    ) -> None:
        """Add sessions. Selections taken from the pool before do not change.

        Args:
            observation_sequences: all sequences are those of :meth:`load_sessions`.
            action_sequences: see :meth:`load_sessions`.
            reward_seq: see :meth:`load_sessions`.
            is_alive: see :meth:`load_sessions`.
            prev_memories: see :meth:`load_sessions`.
            max_pool_size: keep only that many of the newest sessions; ``None``: all.
            terminated: see :meth:`load_sessions`.
            truncated: see :meth:`load_sessions`.
        """
        if max_pool_size is not None:
            check_whole("max_pool_size", max_pool_size, 1)
        by_tick = observation_sequences, action_sequences, reward_seq, is_alive
        sequences = GivenSequences(*by_tick, prev_memories, terminated, truncated)
        added = sessions_of(self.signature, sequences)
        before = added.take([]) if self._sessions is None else self._sessions
        _check_alike(before, added)
        if self._columns is None:
            self._columns = _Columns(before)
        self._columns.append(added)
        self._sessions = self._columns.newest(max_pool_size)

    def sample(self, max_n_samples: int, rng: np.random.Generator, replace: bool = False) -> IntVector:
        """Draw indices of sessions uniformly, (n,).

        Without ``replace`` all differ, and there are at most as many as the pool has.
        """
        check_whole("max_n_samples", max_n_samples, 1)
        size = len(self.sessions)
        if replace:
            return rng.integers(size, size=max_n_samples)
        return rng.choice(size, size=min(max_n_samples, size), replace=False).astype(np.int64)

    def select(self, selector: npt.ArrayLike) -> SessionPool:
        """Return a pool of the sessions at these indices, in this order, copied to memory."""
        return SessionPool.of(self.signature, self.sessions.take(selector))

    # The sequences of the pool, [session, tick, ...]: new arrays, zero after a session's end.
    # If the pool is larger than memory, select() some sessions first.

    @property
    def observations(self) -> list[Array]:
        """[session, tick, *shape] of each observation."""
        return self._dense("observation")

    @property
    def actions(self) -> list[Array]:
        """[session, tick, *shape] of each action."""
        return self._dense("action")

    @property
    def rewards(self) -> Array:
        """[session, tick], or [session, tick, reward] for several rewards."""
        rewards = self.sessions.dense("reward")
        return rewards[..., 0] if len(self.signature.rewards) == 1 else rewards

    @property
    def is_alive(self) -> npt.NDArray[np.bool_]:
        """[session, tick]: whether the session has not ended by this tick."""
        return self.sessions.alive()

    @property
    def previous_memories(self) -> list[Array] | None:
        """[session, ...] of each memory; ``None`` without memories."""
        return _memories(self.sessions) or None

    def _dense(self, kind: str) -> list[Array]:
        names = self.signature.packed_columns(kind)
        return self.signature.unpacked(kind, {name: self.sessions.dense(name) for name in names})


def _memories(sessions: Sessions) -> list[Array]:
    names = takewhile(sessions.by_session.__contains__, (f"memory.{i}" for i in count()))
    return [sessions.by_session[name] for name in names]


def _frozen(sessions: Sessions) -> Sessions:
    for column in (*sessions.by_tick.values(), *sessions.by_session.values()):
        column.flags.writeable = False
    return sessions


def _check_alike(old: Sessions, new: Sessions) -> None:
    before, after = (
        [(memory.shape[1:], memory.dtype) for memory in _memories(sessions)] for sessions in (old, new)
    )
    if before != after:
        texts = [
            ", ".join(f"{dtype}{list(shape)}" for shape, dtype in kinds) or "none"
            for kinds in (before, after)
        ]
        raise ContractError(f"previous memories of the pool are {texts[0]}, but these are {texts[1]}")


class _Columns:
    """Sessions that grow at the end and shrink at the start without a copy each time."""

    def __init__(self, like: Sessions):
        self._lengths = _Growing(like.lengths)
        self._by_tick = {name: _Growing(column) for name, column in like.by_tick.items()}
        self._by_session = {name: _Growing(column) for name, column in like.by_session.items()}

    def append(self, added: Sessions) -> None:
        self._lengths.append(added.lengths)
        for name, column in added.by_tick.items():
            self._by_tick[name].append(column)
        for name, column in added.by_session.items():
            self._by_session[name].append(column)

    def newest(self, number: int | None) -> Sessions:
        """Drop all but the ``number`` newest sessions and return the rest."""
        surplus = 0 if number is None else max(0, len(self._lengths.view) - number)
        if surplus:
            ticks = int(self._lengths.view[:surplus].sum())
            for column in self._by_tick.values():
                column.drop(ticks)
            for column in (self._lengths, *self._by_session.values()):
                column.drop(surplus)
        return Sessions(
            offsets_of(self._lengths.view),
            {name: column.view for name, column in self._by_tick.items()},
            {name: column.view for name, column in self._by_session.items()},
        )


class _Growing:
    """One column. Views of it stay valid, since rows are only appended after them."""

    def __init__(self, rows: Array):
        self._data = rows
        self._start, self._stop = 0, len(rows)

    @property
    def view(self) -> Array:
        view = self._data[self._start : self._stop]
        view.flags.writeable = False
        return view

    def append(self, rows: Array) -> None:
        stop = self._stop + len(rows)
        if stop > len(self._data):
            live = self.view
            needed = len(live) + len(rows)
            # capacity doubles, so that appending takes amortised constant time
            self._data = np.empty((max(needed, 2 * len(live)), *live.shape[1:]), dtype=live.dtype)
            self._data[: len(live)] = live
            self._start, self._stop, stop = 0, len(live), needed
        self._data[self._stop : stop] = rows
        self._stop = stop

    def drop(self, number: int) -> None:
        self._start += number
