"""An environment that replays sessions out of a pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as with_changes
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik import seeding
from palaestrai_mosaik.environment.batch import IntVector
from palaestrai_mosaik.environment.environment import EnvironmentBaseline
from palaestrai_mosaik.errors import ContractError, did_you_mean

from .fields import REWARDS, Declared
from .pool import SessionPool
from .sequences import recast
from .session_batch import SessionBatchEnvironment, SessionReplay
from .sessions import Array, Sessions
from .sources import FILE_KINDS, has_files, read_source

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

        ``agent_memories`` that are declared by name are sensors, too (:class:`.session_batch.SessionReplay`).
        ``rng_seed``: sessions are drawn by generators of their own, made of this seed, so that they are
        the same ones whatever the seed of the run.

        ``source``: see :func:`.sources.read_source`; or a pool. It is read when the environment is set up
        and says what observations, actions and rewards there are. Where ``observations`` or
        ``actions`` are declared as well, it is read when the first episode begins, so that it may
        be what an earlier phase records; it must then be as declared.

        Where the pool has fewer than ``batch`` sessions, there are only that many incarnations,
        unless sessions are drawn with replacement.
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
                    declared = with_changes(found.signature, memories=memories)
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
        """Replace the sessions: see :meth:`.pool.SessionPool.load_sessions`."""
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
        """Add sessions, and keep the newest ones; they take part when all incarnations next begin."""
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

        Without ``replace``, they all differ, and there are at most as many as the pool has now. They
        are drawn anew whenever all incarnations of that environment begin again; its ``selector``, of
        the dtype ``selector_dtype``, says which ones they are.
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
    def observations(self) -> list[Array]:
        """[session, tick, *shape] of each observation of the pool."""
        return self.pool.observations

    @property
    def actions(self) -> list[Array]:
        """[session, tick, *shape] of each action of the pool."""
        return self.pool.actions

    @property
    def rewards(self) -> Array:
        """All rewards of the pool, [session, tick]: faster than to step through them."""
        return self.pool.rewards

    @property
    def replayed(self) -> IntVector:
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

    def _begin(self, incarnations: IntVector) -> Sessions:
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
            self._orders: dict[int, IntVector] = {}
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

    def _choose(self, incarnations: IntVector) -> IntVector:
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

    def _order(self, turn: int) -> IntVector:
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
