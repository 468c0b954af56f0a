"""The cross-entropy method: gradient-free search among the weights of a policy.

Every training episode tries one *candidate*, weights drawn from a normal distribution with
independent components. After ``population`` episodes, the distribution is refitted to the best of them
(by the sum of the agent's objective over the episode): their mean and standard deviation become those of
the distribution.

Source: R. Y. Rubinstein, D. P. Kroese, *The Cross-Entropy Method*, Springer 2004; the noise that
keeps the distribution from collapsing: I. Szita, A. Lorincz, *Learning Tetris Using the Noisy
Cross-Entropy Method*, Neural Computation 18(12), 2006.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from palaestrai_mosaik.core.errors import ContractError

from .search import Candidate, SearchBrain, SearchDistribution, SearchMuscle, read_searches

__all__ = [
    "Candidate",
    "CrossEntropyBrain",
    "CrossEntropyMuscle",
    "SearchDistribution",
    "read_searches",
]


class CrossEntropyMuscle(SearchMuscle):
    """Acts with one candidate for a whole episode; in test mode, with the mean of the search."""


class CrossEntropyBrain(SearchBrain):
    """Holds the search distribution, and moves it to the best candidates of each generation.

    Statistics, at the end of each generation: ``generation``, ``best``, ``elite_mean`` and
    ``population_mean`` (sums of the objective over an episode), ``std`` (mean over the weights).

    Args:
        population: number of episodes in a generation.
        elites: number of best episodes that the distribution moves to.
        smoothing: share of the way to the elites' mean and standard deviation that the distribution moves,
            above 0 and at most 1.
        noise, noise_generations: ``noise`` is added to the variance of every weight in the first generation,
            and falls linearly to 0 after ``noise_generations``.
        min_std: lower bound of the standard deviation.
    """

    method = "the cross-entropy method"
    _needs = "CrossEntropyMuscle"

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
        super().__init__(population)
        self._elites = elites
        self._smoothing, self._min_std = float(smoothing), float(min_std)
        self._noise, self._noise_generations = float(noise), noise_generations

    def _move(
        self, old: SearchDistribution, scored: Sequence[tuple[Candidate, float]]
    ) -> tuple[SearchDistribution, dict[str, float]]:
        scores = np.array([score for _, score in scored])
        # stable: the first of equal scores
        best = np.argsort(-scores, kind="stable")[: self._elites]
        weights = np.array([scored[i][0].weights for i in best])
        share = self._smoothing
        mean = share * weights.mean(axis=0) + (1.0 - share) * old.mean
        std = share * weights.std(axis=0) + (1.0 - share) * old.std
        noise = self._noise * max(1.0 - old.generation / self._noise_generations, 0.0)
        std = np.maximum(np.sqrt(std**2 + noise), self._min_std)
        return SearchDistribution(old.generation + 1, mean, std, old.policy), {
            "generation": old.generation + 1,
            "best": scores.max(),
            "elite_mean": scores[best].mean(),
            "population_mean": scores.mean(),
            "std": std.mean(),
        }
