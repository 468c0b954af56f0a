"""Environments that replay recorded sessions, a fixed batch or draws from a pool."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.environment.batch import Arrays, BatchEnvironment
from palaestrai_mosaik.environment.environment import EnvironmentBaseline
from palaestrai_mosaik.types import Space
from palaestrai_mosaik.types.arrays import Array, IndexVector

from .pool import SessionPool
from .sessions import (
    REWARDS,
    Declared,
    Field,
    Sessions,
    Signature,
    depth,
    dtype_of,
    final_column,
    one_per_field,
    recast,
    reward_names,
)
from .sources import FILE_KINDS, has_files, read_source


class SessionReplay(BatchEnvironment):
    """Replays a session in each incarnation, independent of the agents.

    Observations, actions and rewards are those of the sessions. The state of an incarnation is the tick
    and the number of its session. At tick t its agent sees the observation of t; the action recorded
    there, ``get_recorded_actions``, earns the reward of t + 1. With the last action the incarnation ends,
    terminated or truncated like the session. It then shows the final observation, or, if none was
    recorded, the last observation again. If the agent's memories are declared by name, they are
    observations as well: at every tick, their contents before the first tick (NaN if unknown).
    """

    state_shapes = ((), ())
    state_dtypes = (np.int64, np.int64)
    replays: ClassVar[bool] = True
    flat_observations: ClassVar[bool] = True
    flat_actions: ClassVar[bool] = True

    _pool: SessionPool

    @property
    def pool(self) -> SessionPool:
        """The sessions that can be replayed."""
        return self._pool

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
        """[session, tick]: faster than stepping through them; see :attr:`.pool.SessionPool.rewards`."""
        return self.pool.rewards

    @property
    def is_alive(self) -> npt.NDArray[np.bool_]:
        """[session, tick]: whether the session has not ended by this tick."""
        return self.pool.is_alive

    @property
    def previous_memories(self) -> list[Array] | None:
        """[session, ...] of each memory: its contents before the first tick; ``None`` if unknown."""
        return self.pool.previous_memories

    @abstractmethod
    def _begin(self, incarnations: IndexVector) -> Sessions:
        """Start an episode in ``incarnations`` and return the sessions to choose from."""

    @abstractmethod
    def _choose(self, incarnations: IndexVector) -> IndexVector:
        """Choose a session for each of the starting ``incarnations``, (n,)."""

    def _describe(self, signature: Signature) -> None:
        """Declare shapes, dtypes and names by the sessions' signature."""
        self._signature = signature
        #: the memories that an agent can read as sensors
        self._memories = signature.memories if isinstance(signature.memories, tuple) else ()
        self._seen = (*signature.observations, *self._memories)
        self.observation_shapes = [field.shape for field in self._seen]
        self.observation_dtypes = [field.dtype for field in self._seen]
        self.observation_names = [field.name for field in self._seen]
        # recordings have gaps, and an unknown memory is NaN
        self.missing_observations = self.observation_names
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

    def get_first_states(self, incarnations: IndexVector) -> tuple[Arrays, Arrays]:
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
        by_session = self._sessions.by_session
        return over & by_session["terminated"][chosen], over & by_session["truncated"][chosen]

    def get_recorded_actions(self, states: Arrays) -> Arrays:
        """Return the actions recorded at this tick; at the end of a session, the last ones."""
        return [self._read(self._acted, self._rows(*states))]

    def _rows(self, ticks: Array, chosen: Array) -> Array:
        return self._sessions.offsets[chosen] + np.minimum(ticks, self._lengths[chosen] - 1)

    def _read(self, names: Sequence[str], rows: Array) -> Array:
        """Join these columns of ``rows`` side by side: (n, numbers)."""
        columns = self._sessions.by_tick
        parts = [columns[name][rows] for name in names]
        return np.concatenate([np.empty((len(rows), 0)), *parts], axis=1)

    def _with_memories(self, observations: Array, chosen: Array) -> Array:
        """Append to ``observations`` (n, numbers) the memories' contents before the ``chosen`` sessions."""
        parts = [observations]
        for i, field in enumerate(self._memories):
            column = self._sessions.by_session.get(f"memory.{i}")
            contents = np.full((len(chosen), field.size), np.nan) if column is None else column[chosen]
            parts.append(contents.reshape(len(chosen), field.size))
        return np.concatenate(parts, axis=1) if self._memories else observations


def _spaces(fields: Sequence[Field], unbounded: Sequence[Space]) -> list[Space]:
    return [default if f.space is None else f.space for f, default in zip(fields, unbounded, strict=True)]


class SessionBatchEnvironment(SessionReplay):
    """Replays a fixed batch: incarnation k replays session k, in every episode.

    A sampled batch (:meth:`SessionPoolEnvironment.sample_session_batch`) is drawn
    anew each time all incarnations restart.

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
        r"""Take sequences ``[session, tick, ...]``; see :meth:`.pool.SessionPool.load_sessions`.

        Dtypes are those of the arrays.

        Args:
            observations: [session, tick, \*shape], or a list of such arrays.
            single_observation_shapes: the shape of each observation at one tick of one session.
            actions: [session, tick, \*shape], or a list of such arrays; ``None``: no actions.
            single_action_shapes: the shape of each action at one tick of one session; ``all_scalar``: every
                action is one number.
            rewards: [session, tick], or [session, tick, reward] for several rewards; ``None``: 0.
            is_alive: [session, tick]: whether a session has not ended by this tick; ``None``: always.
            preceding_agent_memories: [session, ...], or a list of such arrays: contents of the agent's memory
                before the first tick; ``None``: unknown.
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

    #: indices of the sessions in the larger pool that they come from, if any
    selector: npt.NDArray[np.integer[Any]] | None = None
    _draw: Callable[[], tuple[SessionPool, Array]] | None = None
    _begun = False

    @classmethod
    def of(cls, pool: SessionPool, selector: Array | None = None) -> SessionBatchEnvironment:
        """Make an environment that replays all sessions of ``pool``; ``selector`` has their origin."""
        environment = cls.__new__(cls)
        environment._hold(pool)
        environment.selector = selector
        return environment

    @classmethod
    def drawn(cls, draw: Callable[[], tuple[SessionPool, Array]]) -> SessionBatchEnvironment:
        """Make an environment that replays the sessions returned by ``draw``, a pool and their indices.

        ``draw`` is called now and each time all incarnations restart, and always returns as many sessions.
        """
        environment = cls.of(*draw())
        environment._draw = draw
        return environment

    def _hold(self, pool: SessionPool) -> None:
        super().__init__(batch=len(pool))
        self._pool = pool
        self._describe(pool.signature)

    @property
    def preceding_agent_memories(self) -> list[Array] | None:
        """Alias of :attr:`previous_memories`, named like the argument."""
        return self.previous_memories

    def _begin(self, incarnations: IndexVector) -> Sessions:
        if self._draw is not None and len(incarnations) == self.batch:
            if self._begun:
                self._pool, self.selector = self._draw()
            self._begun = True
        return self.pool.sessions

    def _choose(self, incarnations: IndexVector) -> IndexVector:
        return np.asarray(incarnations, dtype=np.int64)


def _fields(kind: str, arrays: Any, shapes: Sequence[Sequence[int]]) -> list[Field]:
    """Return fields of the declared ``shapes``, with the dtypes of the arrays."""
    fields = [Field(kind if not i else f"{kind}_{i}", tuple(shape)) for i, shape in enumerate(shapes)]
    per_field = one_per_field(f"{kind}s", arrays, fields)
    return [replace(field, dtype=dtype_of(array)) for field, array in zip(fields, per_field, strict=True)]


class _Undeclared(int):
    """A default that a source of sessions may replace, unlike the same number from the user."""


#: one observation, action or memory
UNDECLARED = _Undeclared(1)
Sampling = Literal["shuffled", "in_order", "with_replacement"]


class SessionPoolEnvironment(SessionReplay):
    """Replays sessions from a pool, which may be larger than memory.

    Source: ``SessionPoolEnvironment`` of AgentNet (the seed "Experience Replay").

    Whenever an incarnation starts an episode, a session is chosen for it. ``sample: shuffled`` draws
    uniformly with the framework's generators: no session occurs twice among the first episodes of all
    incarnations, nor among their second ones, and so on. ``with_replacement``: each incarnation draws
    independently. ``in_order``: incarnation k starts the phase's episode e with session
    ``e * batch + k`` and advances by ``batch`` sessions in each further episode; after the last session
    comes the first.
    """

    #: reads a ``source`` that is a store; injected, because environments do not import the store
    read_store: Callable[[Mapping[str, Any]], SessionPool] | None = None

    def __init__(  # noqa: PLR0913  (independent keys of the document, all optional)
        self,
        observations: Declared = UNDECLARED,
        actions: Declared = UNDECLARED,
        agent_memories: Declared | None = UNDECLARED,
        default_action_dtype: npt.DTypeLike = "int32",
        rng_seed: int | None = 1337,
        *,
        rewards: Iterable[str] = REWARDS,
        source: Mapping[str, Any] | SessionPool | None = None,
        sample: Sampling = "shuffled",
        batch: int = 1,
        first: int = 0,
        max_steps: int | None = None,
    ):
        """Declare the sessions' contents (:class:`.pool.SessionPool`), or their source.

        If the pool has fewer than ``batch`` sessions, there are only that many incarnations, unless
        sessions are drawn with replacement.

        Args:
            observations: the observations of a tick (see :meth:`.sessions.Signature.declared`); default: those
                of ``source``, or one number.
            actions: the actions of a tick, declared in the same way.
            agent_memories: the agent's memories; those declared by name are sensors as well
                (:class:`SessionReplay`). Default: those of ``source``, or one array; ``None``: any number.
            default_action_dtype: the dtype of actions that are declared without one.
            rng_seed: seed of separate generators that draw the sessions, so that the draws do not depend on
                the run's seed; ``None``: draw with the framework's generators, which follow from the run's
                seed.
            rewards: the names of the rewards.
            source: see :func:`.sources.read_source`; or a pool. It is read when the environment is set up and
                declares observations, actions and rewards. If ``observations`` or ``actions`` are declared as
                well, it is read when the first episode starts, so that it can be the recording of an earlier
                phase; it must then match the declaration. ``None``: load sessions with :meth:`load_sessions`.
            sample: how to choose a session for an incarnation: ``shuffled``, ``with_replacement`` or
                ``in_order``, see the class.
            batch: number of incarnations.
            first: the seed number of the first incarnation.
            max_steps: number of steps after which an incarnation is truncated; ``None``: no limit.
        """
        super().__init__(batch=batch, first=first, max_steps=max_steps)
        if sample not in get_args(Sampling):
            allowed = get_args(Sampling)
            raise ContractError(
                f"sample must be one of {', '.join(allowed)}, not {sample!r}{did_you_mean(sample, allowed)}"
            )
        if rng_seed is not None and type(rng_seed) is not int:
            raise ContractError(f"rng_seed must be a whole number, not {rng_seed!r}")
        self.sample = sample
        self.rng_seed = rng_seed
        #: with an ``rng_seed``, the generators of sampled batches and of the order of sessions
        self._own: np.random.Generator | None = None
        self._shuffler: np.random.Generator | None = None
        self.source = source
        self._unread = source
        self._later = source is not None and not (observations is UNDECLARED and actions is UNDECLARED)
        self._given: tuple[Any, Any] = (None, None)
        self._current: Sessions | None = None
        self._replayed: IndexVector = np.zeros(0, dtype=np.int64)
        if source is not None and agent_memories is UNDECLARED:
            agent_memories = None
        self._pool = SessionPool(observations, actions, rewards, agent_memories, default_action_dtype)
        self._describe(self._pool.signature)

    @property
    def pool(self) -> SessionPool:
        """The sessions; the first access reads the source."""
        if self._unread is not None:
            pool = read_source(self._unread, self.read_store)
            if self._later:
                pool = self._fitted(pool)
            else:
                memories = self._pool.signature.memories
                if memories is not None:
                    declared = replace(pool.signature, memories=memories)
                    pool = SessionPool.of(declared, recast(pool.sessions, pool.signature, declared))
                self._describe(pool.signature)
            self._pool, self._unread = pool, None
        return self._pool

    def check_sessions(self) -> None:
        """Raise :class:`ContractError` if the environment certainly cannot replay in a run.

        That is the case without sessions and source, and if files to be read later already exist but do
        not match the declaration.
        """
        if self._unread is None:
            if not len(self.pool):
                raise ContractError(
                    f"environment {self.uid!r} has nothing to replay: give it a 'source'; the kinds of sources are "
                    f"{', '.join(FILE_KINDS)}, or a store"
                )
        elif self._later and has_files(self._unread):
            self._fitted(read_source(self._unread))

    def _fitted(self, pool: SessionPool) -> SessionPool:
        """Return the source's sessions with the declared dtypes."""
        declared, where = self._pool.signature, f"environment {self.uid!r}: the sessions of its source"
        declared.check_fits(pool.signature, where)
        try:
            return SessionPool.of(declared, recast(pool.sessions, pool.signature, declared))
        except ContractError as error:
            raise ContractError(f"{where}: {error}") from error

    def setup(self) -> EnvironmentBaseline:
        if not self._later:
            sessions = len(self.pool)
            if sessions and self.sample != "with_replacement":
                self.batch = min(self.batch, sessions)
        return super().setup()

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
        """Replace the sessions. The arguments are those of :meth:`.pool.SessionPool.load_sessions`."""
        by_tick = observation_sequences, action_sequences, reward_seq, is_alive
        self.pool.load_sessions(*by_tick, prev_memories, terminated=terminated, truncated=truncated)

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
        """Add sessions and keep the newest ones; they are used from the next restart of all incarnations.

        The arguments are those of :meth:`.pool.SessionPool.append_sessions`.
        """
        by_tick = observation_sequences, action_sequences, reward_seq, is_alive
        ends = {"terminated": terminated, "truncated": truncated}
        self.pool.append_sessions(*by_tick, prev_memories, max_pool_size, **ends)

    def select_session_batch(self, selector: npt.ArrayLike) -> SessionBatchEnvironment:
        """Return an environment that replays the sessions at these indices."""
        return SessionBatchEnvironment.of(self.pool.select(selector), np.array(selector))

    def sample_session_batch(
        self, max_n_samples: int, replace: bool = False, selector_dtype: npt.DTypeLike = np.int32
    ) -> SessionBatchEnvironment:
        """Return an environment that replays sessions drawn uniformly by :attr:`rng`.

        They are drawn anew each time all incarnations of that environment restart; its ``selector`` holds
        their indices.

        Args:
            max_n_samples: number of sessions. Without ``replace``, at most as many as the pool holds
                now.
            replace: whether a session may be drawn several times.
            selector_dtype: an integer dtype for ``selector``.
        """
        dtype = np.dtype(selector_dtype)
        if dtype.kind not in "iu":
            raise ContractError(f"selector_dtype must be a dtype of whole numbers, not {selector_dtype!r}")
        count: int | None = None

        def draw() -> tuple[SessionPool, Array]:
            nonlocal count
            places = self.pool.sample(max_n_samples, self._generator(), replace)
            count = len(places) if count is None else count
            if len(places) < count:
                raise ContractError(
                    f"environment {self.uid!r}: its pool has {len(places)} sessions now, fewer than the {count} of "
                    "the batch that was drawn from it"
                )
            places = places[:count].astype(dtype)
            return self.pool.select(places), places

        return SessionBatchEnvironment.drawn(draw)

    @property
    def replayed(self) -> IndexVector:
        """(batch,): the session that each incarnation currently replays; empty before the first one."""
        return self._replayed

    def _generator(self) -> np.random.Generator:
        if self.rng_seed is not None:
            if self._own is None:
                self._own = seeding.generator(self.rng_seed, "batches")
            return self._own
        if "rng" not in vars(self):
            raise ContractError(
                "nothing to draw sessions with: in a run, the framework gives a generator; elsewhere, give an "
                "rng_seed, or set rng = palaestrai_mosaik.core.seeding.generator(seed)"
            )
        return self.rng

    def _begin(self, incarnations: IndexVector) -> Sessions:
        pool = self.pool
        everyone = len(incarnations) == self.batch
        # the framework gives new generators for every episode of the phase
        generators = (vars(self).get("rng"), vars(self).get("rngs"))
        if (
            self._current is None
            or any(new is not old for new, old in zip(generators, self._given, strict=True))
            or (everyone and pool.sessions is not self._current)
        ):
            self._given, self._current = generators, pool.sessions
            self._turns = np.zeros(self.batch, dtype=np.int64)
            self._replayed = np.zeros(self.batch, dtype=np.int64)
            self._orders: dict[int, IndexVector] = {}
            self._drawn = 0
            self._begin_draws()
        if self.sample != "with_replacement" and len(self._current) < self.batch:
            raise ContractError(
                f"environment {self.uid!r}: its pool has {len(self._current)} sessions, fewer than its batch of "
                f"{self.batch}; say sample: with_replacement, or a smaller batch"
            )
        return self._current

    def _begin_draws(self) -> None:
        """With an ``rng_seed``, create this episode's generators in the framework's way."""
        self._drawers: list[np.random.Generator] | None = None
        if self.rng_seed is None:
            return
        words = ("worker", self.worker, "episode", self.episode)
        self._shuffler = seeding.generator(self.rng_seed, *words)
        numbers = range(self.first, self.first + self.batch)
        self._drawers = [seeding.generator(self.rng_seed, *words, "body", k) for k in numbers]

    def _choose(self, incarnations: IndexVector) -> IndexVector:
        size, turns = len(self._sessions), self._turns[incarnations]
        numbers = self.first + incarnations
        if self.sample == "with_replacement":
            rngs = self.rngs if self._drawers is None else self._drawers
            chosen = np.array([rngs[k].integers(size) for k in incarnations], dtype=np.int64)
        elif self.sample == "in_order":
            chosen = (numbers + (self.episode + turns) * self.batch) % size
        else:
            chosen = np.empty(len(numbers), dtype=np.int64)
            for turn in np.unique(turns).tolist():
                these = turns == turn
                chosen[these] = self._order(turn)[numbers[these] % size]
        self._turns[incarnations] += 1
        self._replayed[incarnations] = chosen
        return chosen

    def _order(self, turn: int) -> IndexVector:
        """Return the order of the sessions for the ``turn``-th episodes of all incarnations.

        It does not depend on the number of incarnations: number n takes the n-th session.
        """
        while self._drawn <= turn:
            shuffler = self._generator() if self._shuffler is None else self._shuffler
            self._orders[self._drawn] = shuffler.permutation(len(self._sessions))
            self._drawn += 1
        for past in [key for key in self._orders if key < self._turns.min()]:
            del self._orders[past]
        return self._orders[turn]
