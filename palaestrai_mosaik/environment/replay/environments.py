"""Environments that replay recorded sessions: given ones, or drawn from a pool."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik import seeding
from palaestrai_mosaik.environment.batch import Arrays, BatchEnvironment
from palaestrai_mosaik.environment.environment import EnvironmentBaseline
from palaestrai_mosaik.errors import ContractError, did_you_mean
from palaestrai_mosaik.types import Space
from palaestrai_mosaik.types.arrays import Array, IndexVector

from .pool import SessionPool
from .sequences import depth, dtype_of, final_column, one_per_field, recast, reward_names
from .sessions import REWARDS, Declared, Field, Sessions, Signature
from .sources import FILE_KINDS, has_files, read_source


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
        """[session, tick]: faster than to step through them; see :attr:`.pool.SessionPool.rewards`."""
        return self.pool.rewards

    @abstractmethod
    def _begin(self, incarnations: IndexVector) -> Sessions:
        """Note that ``incarnations`` begin; return the sessions to choose from."""

    @abstractmethod
    def _choose(self, incarnations: IndexVector) -> IndexVector:
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

    A batch that was drawn (:meth:`SessionPoolEnvironment.sample_session_batch`) is drawn
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
        r"""Take sequences ``[session, tick, ...]``; see :meth:`.pool.SessionPool.load_sessions`.

        Dtypes are those of the arrays.

        Args:
            observations: what was observed, [session, tick, \*shape], or a list of such arrays.
            single_observation_shapes: the shape of each observation at one tick of one session.
            actions: what was done, likewise; ``None``: there are no actions.
            single_action_shapes: the shape of each action at one tick of one session; ``all_scalar``: every
                action is one number.
            rewards: [session, tick], or [session, tick, reward] where there are several; ``None``: 0.
            is_alive: [session, tick]: whether a session has not ended by this tick; ``None``: always.
            preceding_agent_memories: [session, ...], or a list of such arrays: what was in the agent's memory
                before the first tick; ``None``: not known.
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
        self._pool = pool
        self._describe(pool.signature)

    @property
    def is_alive(self) -> npt.NDArray[np.bool_]:
        """[session, tick]: whether the session has not ended by this tick."""
        return self.pool.is_alive

    @property
    def preceding_agent_memories(self) -> list[Array] | None:
        """[session, ...] of each memory: what it held before the first tick; ``None`` where not known."""
        return self.pool.previous_memories

    def _begin(self, incarnations: IndexVector) -> Sessions:
        if self._draw is not None and len(incarnations) == self.batch:
            if self._begun:
                self._pool, self.selector = self._draw()
            self._begun = True
        return self.pool.sessions

    def _choose(self, incarnations: IndexVector) -> IndexVector:
        return np.asarray(incarnations, dtype=np.int64)


def _fields(kind: str, given: Any, shapes: Sequence[Sequence[int]]) -> list[Field]:
    """Return the fields of what was given: their shapes are declared, their dtypes found."""
    fields = [Field(kind if not i else f"{kind}_{i}", tuple(shape)) for i, shape in enumerate(shapes)]
    each = one_per_field(f"{kind}s", given, fields)
    return [replace(field, dtype=dtype_of(one)) for field, one in zip(fields, each, strict=True)]


Sampling = Literal["shuffled", "in_order", "with_replacement"]


class SessionPoolEnvironment(SessionReplay):
    """Replays sessions out of a pool, which may be larger than memory.

    Source: ``SessionPoolEnvironment`` of AgentNet (the seed "Experience Replay").

    Whenever an incarnation begins, a session is chosen for it, uniformly at random and by the
    framework's generators (``sample: shuffled``): among the first episodes of all incarnations no
    session is there twice, nor among their second ones, and so on.
    ``with_replacement``: each incarnation draws on its own. ``in_order``: incarnation k begins
    the phase's episode e with session ``e * batch + k``, and each further episode of its own is
    ``batch`` sessions further on; behind the last session comes the first.
    """

    #: reads ``source`` where it means a store, which an environment knows nothing of
    read_store: Callable[[Mapping[str, Any]], SessionPool] | None = None

    def __init__(  # noqa: PLR0913  (independent keys of the document, all optional)
        self,
        observations: Declared | None = None,
        actions: Declared | None = None,
        rewards: Iterable[str] = REWARDS,
        *,
        agent_memories: Declared | None = None,
        default_action_dtype: npt.DTypeLike = np.int32,
        rng_seed: int | None = None,
        source: Mapping[str, Any] | SessionPool | None = None,
        sample: Sampling = "shuffled",
        batch: int = 1,
        first: int = 0,
        max_steps: int | None = None,
    ):
        """Say what sessions are made of (:class:`.pool.SessionPool`), or where they are.

        Where the pool has fewer than ``batch`` sessions, there are only that many incarnations, unless
        sessions are drawn with replacement.

        Args:
            observations: what is observed at a tick (see :meth:`.sessions.Signature.declared`); ``None``: as
                ``source`` has it, or one number.
            actions: what is done at a tick, likewise.
            rewards: the names of the rewards.
            agent_memories: what the agent remembers; those that are declared by name are sensors, too
                (:class:`SessionReplay`). ``None``: nothing, or as ``source`` has it.
            default_action_dtype: the dtype of actions that are declared without one.
            rng_seed: sessions are drawn by generators of their own, made of this seed, so that they are the
                same ones whatever the seed of the run; ``None``: by those of the framework.
            source: see :func:`.sources.read_source`; or a pool. It is read when the environment is set up and
                says what observations, actions and rewards there are. Where ``observations`` or ``actions``
                are declared as well, it is read when the first episode begins, so that it may be what an
                earlier phase records; it must then be as declared. ``None``: sessions are loaded by
                :meth:`load_sessions`.
            sample: how a session is chosen for an incarnation: ``shuffled``, ``with_replacement`` or
                ``in_order``, see the class.
            batch: number of incarnations.
            first: the first of them draws the seeds of this number.
            max_steps: an incarnation that has made so many steps is truncated; ``None``: never.
        """
        super().__init__(batch, first, max_steps)
        if sample not in get_args(Sampling):
            allowed = get_args(Sampling)
            raise ContractError(
                f"sample must be one of {', '.join(allowed)}, not {sample!r}{did_you_mean(sample, allowed)}"
            )
        if rng_seed is not None and type(rng_seed) is not int:
            raise ContractError(f"rng_seed must be a whole number, not {rng_seed!r}")
        self.sample = sample
        self.rng_seed = rng_seed
        #: what batches are drawn with, where there is an ``rng_seed``, and what orders of sessions are
        self._own: np.random.Generator | None = None
        self._shuffler: np.random.Generator | None = None
        self.source = source
        self._unread = source
        self._later = source is not None and (observations is not None or actions is not None)
        self._given: tuple[Any, Any] = (None, None)
        self._current: Sessions | None = None
        self._pool = SessionPool(
            1 if observations is None else observations,
            1 if actions is None else actions,
            rewards,
            agent_memories,
            default_action_dtype,
        )
        self._describe(self._pool.signature)

    @property
    def pool(self) -> SessionPool:
        """The sessions; the source is read when they are first asked for."""
        if self._unread is not None:
            found = read_source(self._unread, self.read_store)
            if self._later:
                found = self._fitted(found)
            else:
                memories = self._pool.signature.memories
                if memories is not None:
                    declared = replace(found.signature, memories=memories)
                    found = SessionPool.of(declared, recast(found.sessions, found.signature, declared))
                self._describe(found.signature)
            self._pool, self._unread = found, None
        return self._pool

    def check_sessions(self) -> None:
        """Raise :class:`ContractError` where it is known before a run that it could not replay.

        That is where there are neither sessions nor a source, or where files that are read later
        are there already, but are not as declared.
        """
        if self._unread is None:
            if not len(self.pool):
                raise ContractError(
                    f"environment {self.uid!r} has nothing to replay: give it a 'source'; the kinds of sources are "
                    f"{', '.join(FILE_KINDS)}, or a store"
                )
        elif self._later and has_files(self._unread):
            self._fitted(read_source(self._unread))

    def _fitted(self, found: SessionPool) -> SessionPool:
        """Return the sessions of the source with the declared dtypes."""
        declared, where = self._pool.signature, f"environment {self.uid!r}: the sessions of its source"
        declared.check_fits(found.signature, where)
        try:
            return SessionPool.of(declared, recast(found.sessions, found.signature, declared))
        except ContractError as error:
            raise ContractError(f"{where}: {error}") from error

    def setup(self) -> EnvironmentBaseline:
        if not self._later:
            known = len(self.pool)
            if known and self.sample != "with_replacement":
                self.batch = min(self.batch, known)
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
    ) -> None:
        """Replace the sessions. The arguments are those of :meth:`.pool.SessionPool.load_sessions`."""
        self.pool.load_sessions(
            observation_sequences,
            action_sequences,
            reward_seq,
            is_alive,
            prev_memories,
            terminated=terminated,
        )

    def append_sessions(
        self,
        observation_sequences: Any,
        action_sequences: Any,
        reward_seq: Any,
        is_alive: Any = None,
        prev_memories: Any = None,
        max_pool_size: int | None = None,
        *,
        terminated: npt.ArrayLike | None = None,
    ) -> None:
        """Add sessions, and keep the newest ones; they take part when all incarnations next begin.

        The arguments are those of :meth:`.pool.SessionPool.append_sessions`.
        """
        self.pool.append_sessions(
            observation_sequences,
            action_sequences,
            reward_seq,
            is_alive,
            prev_memories,
            max_pool_size,
            terminated=terminated,
        )

    def select_session_batch(self, selector: npt.ArrayLike) -> SessionBatchEnvironment:
        """Return an environment that replays exactly the sessions at these places."""
        return SessionBatchEnvironment.of(self.pool.select(selector), np.array(selector))

    def sample_session_batch(
        self, max_n_samples: int, replace: bool = False, selector_dtype: npt.DTypeLike = np.int32
    ) -> SessionBatchEnvironment:
        """Return an environment that replays sessions drawn uniformly by :attr:`rng`.

        They are drawn again whenever all incarnations of that environment restart; its ``selector`` says
        which ones they are.

        Args:
            max_n_samples: number of sessions. Without ``replace``, there are at most as many as the pool has
                now.
            replace: a session may be drawn several times.
            selector_dtype: the dtype of ``selector``, one of whole numbers.
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
        """(batch,): the session that each incarnation replays now."""
        return self._replayed

    @property
    def previous_memories(self) -> Sequence[Array] | None:
        """What the agent's memory held before the sessions that are replayed now, (batch, ...) each."""
        known = self.pool.previous_memories
        return None if known is None else [memory[self._replayed] for memory in known]

    def _generator(self) -> np.random.Generator:
        if self.rng_seed is not None:
            if self._own is None:
                self._own = seeding.generator(self.rng_seed, "batches")
            return self._own
        if "rng" not in vars(self):
            raise ContractError(
                "nothing to draw sessions with: in a run, the framework gives a generator; elsewhere, give an "
                "rng_seed, or set rng = palaestrai_mosaik.seeding.generator(seed)"
            )
        return self.rng

    def _begin(self, incarnations: IndexVector) -> Sessions:
        pool = self.pool
        everyone = len(incarnations) == self.batch
        # the framework gives new generators for every episode of the phase
        given = (vars(self).get("rng"), vars(self).get("rngs"))
        if (
            self._current is None
            or any(new is not old for new, old in zip(given, self._given, strict=True))
            or (everyone and pool.sessions is not self._current)
        ):
            self._given, self._current = given, pool.sessions
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
        """With an ``rng_seed``, make the generators of this episode, as the framework makes its own."""
        self._drawers: list[np.random.Generator] | None = None
        if self.rng_seed is None:
            return
        place = ("worker", self.worker, "episode", self.episode)
        self._shuffler = seeding.generator(self.rng_seed, *place)
        numbers = range(self.first, self.first + self.batch)
        self._drawers = [seeding.generator(self.rng_seed, *place, "body", k) for k in numbers]

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

        It does not depend on how many incarnations there are: number n takes the n-th session.
        """
        while self._drawn <= turn:
            shuffler = self._generator() if self._shuffler is None else self._shuffler
            self._orders[self._drawn] = shuffler.permutation(len(self._sessions))
            self._drawn += 1
        for past in [one for one in self._orders if one < self._turns.min()]:
            del self._orders[past]
        return self._orders[turn]
