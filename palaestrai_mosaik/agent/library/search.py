"""Learning by trial: every episode acts with its own weights, which then receive its score.

The common part of learners that search among the weights of a policy (:mod:`.policies`): the
muscle that acts with a *candidate*, weights drawn from a normal distribution with independent
components, and the brain's part that sums up an episode's score. Each learner moves the distribution in
its own way: :mod:`.cross_entropy`, :mod:`.evolution_strategy`.

Different bodies have a distribution for each *signature* of their policies, which describes the
meaning of the weights; bodies with one signature share it, independent of their environments.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from palaestrai_mosaik.agent.brain import Brain
from palaestrai_mosaik.agent.dumper import BrainDumper, dump_arrays, load_arrays
from palaestrai_mosaik.agent.muscle import ArrayMuscle, BatchReadings
from palaestrai_mosaik.core.errors import BrainDumpError, ContractError, did_you_mean
from palaestrai_mosaik.types import Mode
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector, IndexVector

from .policies import POLICIES, Policy, PolicyOptions, Scaling


@dataclass(frozen=True, slots=True, eq=False)
class SearchDistribution:
    """The distribution of candidates: normal, with independent components.

    ``mean``, ``std``: shape (weights,). ``policy``: signature of the policy that the weights
    are for.
    """

    generation: int
    mean: FloatVector
    std: FloatVector
    policy: str


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """The ``weights`` that an episode tries, and the distribution that they were drawn from."""

    weights: FloatVector
    drawn_from: SearchDistribution


class SearchMuscle(ArrayMuscle):
    """Acts with one candidate for a whole episode; in test mode, with the mean of the search.

    Args:
        policy: ``dense``: one network from all readings to all set-points; ``shared``: one for every device
            of a kind (see :mod:`.policies`).
        hidden: units of each hidden layer; none for a linear policy.
        scales: uid pattern -> ``[center, width]`` of these readings (see :class:`.policies.Scaling`).
        context: uid patterns of readings; every device sees their means (shared policies).
        feedback: whether the last set-points are inputs, too.
        increments: whether the network's outputs are added to the last set-points instead of replacing them.
        std: standard deviation of every weight in the first generation, which has the mean 0.
    """

    def __init__(
        self,
        policy: str = "dense",
        *,
        hidden: Sequence[int] = (),
        scales: Mapping[str, Sequence[float]] | None = None,
        context: Sequence[str] = (),
        feedback: bool = False,
        increments: bool = False,
        std: float = 1.0,
    ):
        if policy not in POLICIES:
            raise ContractError(
                f"policy: {policy!r} is none of {', '.join(POLICIES)}{did_you_mean(policy, POLICIES)}"
            )
        if not 0 < std < math.inf:
            raise ContractError(f"std must be positive and finite, not {std}")
        self._make = POLICIES[policy]
        self._options = PolicyOptions(
            tuple(hidden), feedback, increments, Scaling(scales or {}), tuple(context)
        )
        self._std = float(std)
        self._policy: Policy | None = None
        #: distributions by signature; ``load`` must provide that of this muscle's policy
        self._searches: dict[str, SearchDistribution] = {}
        self._loaded = False
        #: each body's candidate, and the bodies that need a new one
        self._candidates: list[Candidate | None] = []
        self._missing: set[int] = set()

    def prepare_model(self) -> None:
        self._searches = read_searches(self._dumpers, self.uid)
        self._loaded = True

    def update(self, update: Any) -> None:
        """Store a :class:`SearchDistribution`, or a tuple of those of several policies."""
        for search in update if isinstance(update, tuple) else (update,):
            self._searches[search.policy] = search

    def reset(self) -> None:
        self._missing = set(range(len(self._candidates)))
        if self._policy is not None:
            self._policy.reset()

    def reset_bodies(self, bodies: IndexVector) -> None:
        self._missing.update(bodies.tolist())
        if self._policy is not None:
            self._policy.reset(bodies)

    def propose_batch(self, batch: BatchReadings) -> tuple[FloatMatrix, list[Candidate | None]]:
        policy, bodies = self._policy, batch.bodies
        if policy is None:
            policy = self._policy = self._make(batch.sensors, batch.actuators, self._options, len(self.rngs))
            self._weights = np.empty((len(self.rngs), policy.size))
            self._candidates = [None] * len(self.rngs)
            self._missing = set(range(len(self.rngs)))
        if self._missing:
            for body in sorted(self._missing.intersection(bodies.tolist())):
                self._draw(policy, body, self.rngs[body])
        setpoints = policy.setpoints(self._weights[bodies], batch.observations, bodies)
        return setpoints, [self._candidates[body] for body in bodies.tolist()]

    def _draw(self, policy: Policy, body: int, rng: np.random.Generator) -> None:
        """Draw a candidate for the episode of ``body``."""
        search = self._searches.get(policy.signature)
        if search is None:
            if self._loaded:
                raise ContractError(
                    f"{self.uid!r} has the policy {policy.signature}, but was given weights of "
                    f"{', '.join(self._searches)}"
                )
            n = policy.size
            search = SearchDistribution(0, np.zeros(n), np.full(n, self._std), policy.signature)
            self._searches[policy.signature] = search
        weights = search.mean
        if self.mode is Mode.TRAIN:
            weights = weights + search.std * rng.standard_normal(policy.size)
        self._weights[body] = weights
        self._candidates[body] = Candidate(weights, search)
        self._missing.discard(body)


class SearchBrain(Brain):
    """Sums up the scores of episodes, and moves a distribution after ``population`` of them.

    An episode counts for the generation in which it ends, even if it was drawn from an earlier one. With
    several workers or bodies, ``population`` should therefore be a multiple of their number.
    """

    #: the names of the learner and of its muscles in errors
    method = "the search"
    _needs = "SearchMuscle"

    def __init__(self, population: int):
        self._population = population
        #: the distribution of each signature, and the candidates and scores of its generation
        self._searches: dict[str, SearchDistribution] = {}
        self._scored: dict[str, list[tuple[Candidate, float]]] = {}
        #: the candidate of each muscle's running episode, and the sum of its objective
        self._running: dict[str, tuple[Candidate, float]] = {}

    def setup(self) -> None:
        replayed = [body for body in self.bodies if body.replayed]
        if replayed and self.mode is Mode.TRAIN:
            raise ContractError(
                f"agent {self.name!r}: body {replayed[0].number} is in {', '.join(replayed[0].environments)}, which "
                f"replays what others did; {self.method} learns from what its own candidates do"
            )
        for memory in self.memories:
            # only the newest row of each body is used
            memory.size_limit = max(len(self.bodies), 1)

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        candidate = self._candidate(muscle_id, data_from_muscle)
        row = self.memory_of(muscle_id).tail(1)
        moved = self._score(muscle_id, candidate, float(row.objective[0]), bool(row.dones[0]))
        if not moved:
            return None
        for key, value in moved.items():
            self.add_statistics(key, value)
        return self._update()

    def thinking_batch(self, muscle_ids: Sequence[str], data_from_muscles: Sequence[Any]) -> Any:
        rows = self.memory_of(muscle_ids[0]).tail(len(muscle_ids))
        any_moved = False
        for muscle, data, objective, done in zip(
            muscle_ids, data_from_muscles, rows.objective.tolist(), rows.dones.tolist(), strict=True
        ):
            moved = self._score(muscle, self._candidate(muscle, data), objective, done)
            any_moved = any_moved or bool(moved)
            for key, value in moved.items():
                self.add_statistics(key, value, muscle_id=muscle)
        return self._update() if any_moved else None

    def _candidate(self, muscle: str, data: Any) -> Candidate:
        if not isinstance(data, Candidate):
            raise ContractError(
                f"brain {self.name!r} needs a {self._needs}; {muscle!r} sent {data!r}, no candidate"
            )
        return data

    def _score(self, muscle: str, candidate: Candidate, objective: float, done: bool) -> dict[str, float]:
        """Add a row to its episode; return the figures of a generation if the row completes one."""
        signature = candidate.drawn_from.policy
        tried, total = self._running.get(muscle, (candidate, 0.0))
        if tried is not candidate and not np.array_equal(tried.weights, candidate.weights):
            # the other episode was ended from outside, after its last row had been processed
            self._scored.setdefault(tried.drawn_from.policy, []).append((tried, total))
            total = 0.0
        if not math.isfinite(objective):
            value_text = "no value" if math.isnan(objective) else f"the value {objective}"
            raise ContractError(
                f"the objective of agent {self.name!r} gave {value_text} for a row; {self.method} needs one "
                "that is finite for every row"
            )
        total += objective
        if done:
            self._running.pop(muscle, None)
            self._scored.setdefault(signature, []).append((candidate, total))
        else:
            self._running[muscle] = candidate, total
        scored = self._scored.get(signature, [])
        if len(scored) < self._population:
            return {}
        del self._scored[signature]
        old = self._searches.get(signature) or scored[0][0].drawn_from
        self._searches[signature], figures = self._move(old, scored)
        return figures

    @abstractmethod
    def _move(
        self, old: SearchDistribution, scored: Sequence[tuple[Candidate, float]]
    ) -> tuple[SearchDistribution, dict[str, float]]:
        """Return the next generation's distribution, and figures to report about the last one."""

    def _update(self) -> SearchDistribution | tuple[SearchDistribution, ...]:
        """Return the muscles' update: the distribution, or a tuple of those of all policies."""
        searches = tuple(self._searches.values())
        return searches[0] if len(searches) == 1 else searches

    def load(self) -> None:
        self._searches = read_searches(self._dumpers, self.name)

    def store(self) -> None:
        """Save the distributions, if the first generation is over."""
        if self._searches:
            dump_arrays(
                {
                    _key(f.name, i): getattr(search, f.name)
                    for i, search in enumerate(self._searches.values())
                    for f in fields(SearchDistribution)
                },
                self._dumpers,
            )


def _key(field: str, number: int) -> str:
    """Return the name of an array in a dump; those of the first distribution have no number."""
    return f"{field}.{number}" if number else field


def read_searches(dumpers: Sequence[BrainDumper], who: str) -> dict[str, SearchDistribution]:
    """Load a brain's distributions by signature. Raises :class:`BrainDumpError` if the dump is damaged."""
    return {search.policy: search for search in _searches(load_arrays(dumpers), who)}


def _searches(arrays: Mapping[str, Any], who: str) -> Iterator[SearchDistribution]:
    number = 0
    while number == 0 or _key("policy", number) in arrays:
        try:
            mean, std = (arrays[_key(name, number)].astype(np.float64) for name in ("mean", "std"))
            generation, policy = (arrays[_key(name, number)] for name in ("generation", "policy"))
            search = SearchDistribution(int(generation), mean, std, str(policy))
        except (KeyError, TypeError, ValueError) as error:
            raise BrainDumpError(f"the dump for {who!r} is none of a search: {error!r}") from error
        if mean.ndim != 1 or mean.shape != std.shape or not np.isfinite([mean, std]).all():
            raise BrainDumpError(f"the dump for {who!r} holds no search distribution: mean {mean}, std {std}")
        yield search
        number += 1
