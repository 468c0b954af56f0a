"""Environments that replay sessions; :class:`SessionBatchEnvironment` replays given ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.environment.batch import Arrays, BatchEnvironment, IntVector
from palaestrai_mosaik.types import Space

from .fields import Field, Signature
from .pool import SessionPool
from .sequences import depth, dtype_of, final_column, one_for_each, reward_names
from .sessions import Array, Sessions


class SessionReplay(BatchEnvironment):
    """Replays a session in each incarnation, whatever the agents do.

    Observations, actions and rewards are those of the sessions. The state of an incarnation is
    the time tick, and which session it replays. At tick t its agent sees what was observed at
    t; what was done there, ``get_recorded_actions``, brings the reward of t + 1. With the last
    action the incarnation ends: terminated or truncated as the session was. It then shows what was
    observed after it, or, where that was not recorded, the last observation again. Where the
    agent's memories are declared by name, they are observations, too: at every tick, what they
    held before the first one (NaN: not known).
    """

    state_shapes = ((), ())
    state_dtypes = (np.int64, np.int64)
    replays: ClassVar[bool] = True
    flat_observations: ClassVar[bool] = True
    flat_actions: ClassVar[bool] = True

    @abstractmethod
    def _begin(self, incarnations: IntVector) -> Sessions:
        """Note that ``incarnations`` begin; return the sessions to choose from."""

    @abstractmethod
    def _choose(self, incarnations: IntVector) -> IntVector:
        """Return which session each of ``incarnations``, which begin, replays."""

    def _describe(self, signature: Signature) -> None:
        """Take over what the sessions consist of."""
        self._signature = signature
        #: the memories that an agent can read, as sensors
        self._memories = signature.memories if isinstance(signature.memories, tuple) else ()
        self._seen = (*signature.observations, *self._memories)
        self.observation_shapes = [field.shape for field in self._seen]
        self.observation_dtypes = [field.dtype for field in self._seen]
        self.observation_names = [field.name for field in self._seen]
        self.action_shapes = [field.shape for field in signature.actions]
        self.action_dtypes = [field.dtype for field in signature.actions]
        self.action_names = [field.name for field in signature.actions]
        self.reward_names = list(signature.rewards)
        self._observed = signature.packed_columns("observation")
        self._finals = [final_column(name) for name in self._observed]
        self._acted = signature.packed_columns("action")

    def get_observation_spaces(self) -> Sequence[Space]:
        return _spaces(self._seen, super().get_observation_spaces())

    def get_action_spaces(self) -> Sequence[Space]:
        return _spaces(self._signature.actions, super().get_action_spaces())

    def get_first_states(self, incarnations: IntVector) -> tuple[Arrays, Arrays]:
        self._sessions = self._begin(incarnations)
        self._lengths = self._sessions.lengths
        chosen = self._choose(incarnations)
        states = [np.zeros(len(chosen), dtype=np.int64), chosen]
        return states, [
            self._with_memories(self._read(self._observed, self._sessions.offsets[chosen]), chosen)
        ]

    def get_action_results(self, last_states: Arrays, actions: Arrays) -> tuple[Arrays, Arrays]:
        last, chosen = last_states
        lengths = self._lengths[chosen]
        ticks = np.minimum(last + 1, lengths)
        observations = self._read(self._observed, self._rows(ticks, chosen))
        over = np.flatnonzero(ticks == lengths)
        if over.size:
            after = [self._sessions.by_session[name][chosen[over]] for name in self._finals]
            observations[over] = np.concatenate(after, axis=1)
        return [ticks, chosen], [self._with_memories(observations, chosen)]

    def get_rewards(self, last_states: Arrays, actions: Arrays, new_states: Arrays) -> Array:
        return self._sessions.by_tick["reward"][self._rows(*last_states)]

    def get_ends(self, new_states: Arrays) -> tuple[Array, Array]:
        ticks, chosen = new_states
        over = ticks == self._lengths[chosen]
        terminated = over & self._sessions.by_session["terminated"][chosen]
        return terminated, over & ~terminated

    def get_recorded_actions(self, states: Arrays) -> Arrays:
        """Return what was done at this tick (at the end of a session: what was done last)."""
        return [self._read(self._acted, self._rows(*states))]

    def _rows(self, ticks: Array, chosen: Array) -> Array:
        return self._sessions.offsets[chosen] + np.minimum(ticks, self._lengths[chosen] - 1)

    def _read(self, names: Sequence[str], rows: Array) -> Array:
        """Return all numbers of these columns in ``rows``, side by side."""
        columns = self._sessions.by_tick
        parts = [columns[name][rows] for name in names]
        return np.concatenate([np.empty((len(rows), 0)), *parts], axis=1)

    def _with_memories(self, observations: Array, chosen: Array) -> Array:
        """Return ``observations`` (n, numbers) with what memories held before the ``chosen`` sessions."""
        parts = [observations]
        for i, field in enumerate(self._memories):
            known = self._sessions.by_session.get(f"memory.{i}")
            held = np.full((len(chosen), field.size), np.nan) if known is None else known[chosen]
            parts.append(held.reshape(len(chosen), field.size))
        return np.concatenate(parts, axis=1) if self._memories else observations


def _spaces(fields: Sequence[Field], unbounded: Sequence[Space]) -> list[Space]:
    return [default if f.space is None else f.space for f, default in zip(fields, unbounded, strict=True)]


class SessionBatchEnvironment(SessionReplay):
    """Replays a given batch: incarnation k replays session k, in every episode.

    A batch that was drawn (:meth:`.session_pool.SessionPoolEnvironment.sample_session_batch`) is drawn
    anew whenever all incarnations begin again.

    Source: ``SessionBatchEnvironment`` of AgentNet (the seed "Experience Replay").
    """

    def __init__(
        self,
        observations: Any,
        single_observation_shapes: Sequence[Sequence[int]],
        actions: Any = None,
        single_action_shapes: Sequence[Sequence[int]] | Literal["all_scalar"] = "all_scalar",
        rewards: Any = None,
        is_alive: Any = None,
        preceding_agent_memories: Any = None,
    ):
        """Take sequences ``[session, tick, ...]``; see :meth:`.pool.SessionPool.load_sessions`.

        ``single_observation_shapes`` and ``single_action_shapes`` are the shapes at one tick of
        one session, one for each observation and action; ``all_scalar``: every action is one
        number. Dtypes are those of the arrays.
        """
        if actions is None:
            action_shapes: Sequence[Sequence[int]] = ()
        elif single_action_shapes == "all_scalar":
            action_shapes = [()] * (len(actions) if depth(actions) == 3 else 1)
        else:
            action_shapes = single_action_shapes
        signature = Signature.declared(
            _fields("observation", observations, single_observation_shapes),
            _fields("action", actions, action_shapes),
            reward_names(rewards),
        )
        pool = SessionPool(signature.observations, signature.actions, signature.rewards)
        pool.load_sessions(observations, actions, rewards, is_alive, preceding_agent_memories)
        self._hold(pool)

    #: the places in a larger pool that the sessions come from (``None``: they were given)
    selector: npt.NDArray[np.integer[Any]] | None = None
    _draw: Callable[[], tuple[SessionPool, Array]] | None = None
    _begun = False

    @classmethod
    def of(cls, pool: SessionPool, selector: Array | None = None) -> SessionBatchEnvironment:
        """Return the environment that replays all sessions of ``pool``, which were at ``selector``."""
        environment = cls.__new__(cls)
        environment._hold(pool)
        environment.selector = selector
        return environment

    @classmethod
    def drawn(cls, draw: Callable[[], tuple[SessionPool, Array]]) -> SessionBatchEnvironment:
        """Return the environment that replays what ``draw`` gives: sessions, and their places.

        It is asked now, and whenever all incarnations begin again; always for as many.
        """
        environment = cls.of(*draw())
        environment._draw = draw
        return environment

    def _hold(self, pool: SessionPool) -> None:
        super().__init__(batch=len(pool))
        self.pool = pool
        self._describe(pool.signature)

    @property
    def observations(self) -> list[Array]:
        """[session, tick, *shape] of each observation."""
        return self.pool.observations

    @property
    def actions(self) -> list[Array]:
        """[session, tick, *shape] of each action."""
        return self.pool.actions

    @property
    def rewards(self) -> Array:
        """[session, tick]: faster than to step through them; see :attr:`.pool.SessionPool.rewards`."""
        return self.pool.rewards

    @property
    def is_alive(self) -> npt.NDArray[np.bool_]:
        """[session, tick]: whether the session has not ended by this tick."""
        return self.pool.is_alive

    @property
    def preceding_agent_memories(self) -> list[Array] | None:
        """[session, ...] of each memory: what it held before the first tick; ``None`` where not known."""
        return self.pool.previous_memories

    def _begin(self, incarnations: IntVector) -> Sessions:
        if self._draw is not None and len(incarnations) == self.batch:
            if self._begun:
                self.pool, self.selector = self._draw()
            self._begun = True
        return self.pool.sessions

    def _choose(self, incarnations: IntVector) -> IntVector:
        return np.asarray(incarnations, dtype=np.int64)


def _fields(kind: str, given: Any, shapes: Sequence[Sequence[int]]) -> list[Field]:
    """Return the fields of what was given: their shapes are declared, their dtypes found."""
    fields = [Field(kind if not i else f"{kind}_{i}", tuple(shape)) for i, shape in enumerate(shapes)]
    each = one_for_each(f"{kind}s", given, fields)
    return [replace(field, dtype=dtype_of(one)) for field, one in zip(fields, each, strict=True)]
