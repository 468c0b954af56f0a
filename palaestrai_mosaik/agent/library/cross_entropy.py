"""The cross-entropy method: learns without gradients, by searching among the weights of a policy.

Every episode of training tries one *candidate*, weights drawn from a normal distribution with
independent components. When ``population`` episodes are over, the best of them (by the sum of
the agent's objective over the episode) say where the next ones are drawn: their mean and
standard deviation become those of the distribution.

Source: R. Y. Rubinstein, D. P. Kroese, *The Cross-Entropy Method*, Springer 2004; the noise that
keeps the distribution from collapsing: I. Szita, A. Lorincz, *Learning Tetris Using the Noisy
Cross-Entropy Method*, Neural Computation 18(12), 2006.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent.brain import Brain
from palaestrai_mosaik.agent.dumper import BrainDumper, dump_arrays, load_arrays
from palaestrai_mosaik.agent.muscle import Muscle
from palaestrai_mosaik.errors import BrainDumpError, ContractError, did_you_mean
from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, SensorReadings

from .policies import POLICIES, Policy, PolicyOptions, Scaling

FloatVector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class SearchDistribution:
    """Where candidates are drawn: normal, with independent components.

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


class CrossEntropyMuscle(Muscle):
    """Acts with one candidate for a whole episode; in test mode, with the mean of the search.

    Parameters
    ----------
    policy
        ``dense``: one network from all readings to all set-points; ``shared``: one for every
        device of a kind (see :mod:`.policies`).
    hidden
        Units of each hidden layer; none: the policy is linear.
    scales
        uid pattern -> ``[center, width]`` of these readings (see :class:`.policies.Scaling`).
    context
        uid patterns of readings whose mean every device sees (shared policies).
    feedback
        The last set-points are inputs, too.
    increments
        What the network gives is added to the last set-points, in place of being the next ones.
    std
        Standard deviation of every weight in the first generation, whose mean is 0.
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
        self._search: SearchDistribution | None = None
        self._candidate: Candidate | None = None

    def prepare_model(self) -> None:
        self._search = read_search(self._dumpers, self.uid)

    def update(self, update: Any) -> None:
        self._search = update

    def reset(self) -> None:
        self._candidate = None
        if self._policy is not None:
            self._policy.reset()

    def propose_actions(
        self, sensors: Sequence[SensorInformation], actuators_available: Sequence[ActuatorInformation]
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        assert isinstance(sensors, SensorReadings) and isinstance(actuators_available, ActuatorSetpoints)
        policy, candidate = self._policy, self._candidate
        if policy is None:
            policy = self._policy = self._make(sensors, actuators_available, self._options)
        if candidate is None:
            candidate = self._candidate = self._draw(policy)
        actuators_available.vector = policy.setpoints(candidate.weights, sensors.vector)
        return actuators_available, candidate

    def _draw(self, policy: Policy) -> Candidate:
        search = self._search
        if search is None:
            n = policy.size
            search = SearchDistribution(0, np.zeros(n), np.full(n, self._std), policy.signature)
            self._search = search
        if search.policy != policy.signature:
            raise ContractError(
                f"{self.uid!r} has the policy {policy.signature}, but was given weights of {search.policy}"
            )
        weights = search.mean
        if self.mode is Mode.TRAIN:
            weights = weights + search.std * self.rng.standard_normal(policy.size)
        return Candidate(weights, search)


class CrossEntropyBrain(Brain):
    """Keeps the search distribution, and moves it to the best candidates of each generation.

    An episode counts for the generation in which it ends, whatever it was drawn from. So with
    several workers ``population`` should be a multiple of their number.

    Statistics, at the end of each generation: ``generation``, ``best``, ``elite_mean`` and
    ``population_mean`` (sums of the objective over an episode), ``std`` (mean over the weights).

    Parameters
    ----------
    population
        Episodes of a generation.
    elites
        How many of them are the best.
    smoothing
        Share of the way to the elites' mean and standard deviation that the distribution goes
        (0 excluded, 1: all of it).
    noise, noise_generations
        Added to the variance of every weight: ``noise`` in the first generation, falling
        linearly to nothing after ``noise_generations``.
    min_std
        The standard deviation never falls below this.
    """

    def __init__(
        self,
        population: int = 32,
        elites: int = 8,
        *,
        smoothing: float = 1.0,
        noise: float = 0.0,
        noise_generations: int = 50,
        min_std: float = 0.0,
    ):
        for name, count in (
            ("population", population),
            ("elites", elites),
            ("noise_generations", noise_generations),
        ):
            if isinstance(count, bool) or not isinstance(count, int):
                raise ContractError(f"{name} must be a whole number, not {count!r}")
        if not 1 < elites <= population:
            raise ContractError(f"1 < elites <= population does not hold: {elites}, {population}")
        if not 0 < smoothing <= 1:
            raise ContractError(f"smoothing must be above 0 and at most 1, not {smoothing}")
        for name, value in (("noise", noise), ("min_std", min_std)):
            if not 0 <= value < math.inf:
                raise ContractError(f"{name} must not be negative, and finite, but is {value}")
        if noise_generations < 1:
            raise ContractError(f"noise_generations must be at least 1, not {noise_generations}")
        self._population, self._elites = population, elites
        self._smoothing, self._min_std = float(smoothing), float(min_std)
        self._noise, self._noise_generations = float(noise), noise_generations
        self._search: SearchDistribution | None = None
        #: by muscle: the candidate of the running episode, and the sum of its objective
        self._running: dict[str, tuple[Candidate, float]] = {}
        self._scored: list[tuple[Candidate, float]] = []

    def setup(self) -> None:
        # nothing but the newest row is looked at
        self.memory.size_limit = 1

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> SearchDistribution | None:
        candidate = data_from_muscle
        if not isinstance(candidate, Candidate):
            raise ContractError(
                f"brain {self.name!r} needs a CrossEntropyMuscle; {muscle_id!r} sent {candidate!r}, no candidate"
            )
        row = self.memory.tail(1)
        tried, total = self._running.get(muscle_id, (candidate, 0.0))
        if tried is not candidate and not np.array_equal(tried.weights, candidate.weights):
            # that episode was ended from outside, after its last row had been thought about
            self._scored.append((tried, total))
            total = 0.0
        objective = float(row.objective[0])
        if not math.isfinite(objective):
            found = "no value" if math.isnan(objective) else f"the value {objective}"
            raise ContractError(
                f"the objective of agent {self.name!r} gave {found} for a row; the cross-entropy method needs one "
                "that is finite for every row"
            )
        total += objective
        if row.dones[0]:
            self._running.pop(muscle_id, None)
            self._scored.append((candidate, total))
        else:
            self._running[muscle_id] = candidate, total
        return self._next_generation() if len(self._scored) >= self._population else None

    def _next_generation(self) -> SearchDistribution:
        scored, self._scored = self._scored, []
        old = self._search or scored[0][0].drawn_from
        scores = np.array([score for _, score in scored])
        # stable: of equal scores, the first ones
        best = np.argsort(-scores, kind="stable")[: self._elites]
        weights = np.array([scored[i][0].weights for i in best])
        share = self._smoothing
        mean = share * weights.mean(axis=0) + (1.0 - share) * old.mean
        std = share * weights.std(axis=0) + (1.0 - share) * old.std
        noise = self._noise * max(1.0 - old.generation / self._noise_generations, 0.0)
        std = np.maximum(np.sqrt(std**2 + noise), self._min_std)
        self._search = SearchDistribution(old.generation + 1, mean, std, old.policy)
        for key, value in (
            ("generation", self._search.generation),
            ("best", scores.max()),
            ("elite_mean", scores[best].mean()),
            ("population_mean", scores.mean()),
            ("std", std.mean()),
        ):
            self.add_statistics(key, value)
        return self._search

    def load(self) -> None:
        self._search = read_search(self._dumpers, self.name)

    def store(self) -> None:
        """Save the distribution; there is nothing to save before the first generation is over."""
        if self._search is not None:
            dump_arrays(
                {f.name: getattr(self._search, f.name) for f in fields(SearchDistribution)}, self._dumpers
            )


def read_search(dumpers: Sequence[BrainDumper], who: str) -> SearchDistribution:
    """Return what a brain stored. Raises :class:`BrainDumpError` where it is something else."""
    found = load_arrays(dumpers)
    try:
        mean, std = found["mean"].astype(np.float64), found["std"].astype(np.float64)
        search = SearchDistribution(int(found["generation"]), mean, std, str(found["policy"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BrainDumpError(
            f"the dump for {who!r} is not one of the cross-entropy method: {error!r}"
        ) from error
    if mean.ndim != 1 or mean.shape != std.shape or not np.isfinite([mean, std]).all():
        raise BrainDumpError(f"the dump for {who!r} holds no search distribution: mean {mean}, std {std}")
    return search
