"""The pool: recorded sessions, in memory or mapped from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types.arrays import Array, IntVector

from .pool_files import open_pool, write_pool
from .sequences import GivenSequences, sessions_of
from .sessions import REWARDS, Declared, Sessions, Signature, offsets_of


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
        write_pool(Path(directory), self.signature, [self.sessions])

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
        sequences = GivenSequences(
            observation_sequences,
            action_sequences,
            reward_seq,
            is_alive,
            prev_memories,
            terminated,
            truncated,
        )
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
        if max_pool_size is not None and (type(max_pool_size) is not int or max_pool_size < 1):
            raise ContractError(f"max_pool_size must be a whole number of at least 1, not {max_pool_size!r}")
        sequences = GivenSequences(
            observation_sequences,
            action_sequences,
            reward_seq,
            is_alive,
            prev_memories,
            terminated,
            truncated,
        )
        added = sessions_of(self.signature, sequences)
        if self._columns is None:
            if self._sessions is not None:
                _check_alike(self._sessions, added)
            self._columns = _Columns(added.take([]) if self._sessions is None else self._sessions)
        else:
            _check_alike(self.sessions, added)
        self._columns.append(added)
        self._sessions = self._columns.newest(max_pool_size)

    def sample(self, max_n_samples: int, rng: np.random.Generator, replace: bool = False) -> IntVector:
        """Draw indices of sessions uniformly, (n,).

        Without ``replace`` all differ, and there are at most as many as the pool has.
        """
        if type(max_n_samples) is not int or max_n_samples < 1:
            raise ContractError(f"max_n_samples must be a whole number of at least 1, not {max_n_samples!r}")
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
        return list(_memories(self.sessions)) or None

    def _dense(self, kind: str) -> list[Array]:
        names = self.signature.packed_columns(kind)
        return self.signature.unpacked(kind, {name: self.sessions.dense(name) for name in names})


def _memories(sessions: Sessions) -> Iterator[Array]:
    for i in count():
        if f"memory.{i}" not in sessions.by_session:
            return
        yield sessions.by_session[f"memory.{i}"]


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
