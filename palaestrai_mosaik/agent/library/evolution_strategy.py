"""Evolution strategy: estimate the gradient of episode scores from tried weights.

Every training episode tries one candidate, weights drawn around the mean with a constant standard
deviation. After ``population`` episodes, the mean takes a step of Adam along
the estimated gradient of their scores: the deviations from the mean, each weighted by the rank of
its score. Needs only one sum per episode, and scales with the number of bodies.

Source: T. Salimans, J. Ho, X. Chen, S. Sidor, I. Sutskever, *Evolution Strategies as a Scalable
Alternative to Reinforcement Learning*, arXiv:1703.03864 (2017); D. P. Kingma, J. Ba, *Adam: A
Method for Stochastic Optimization*, ICLR 2015.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from palaestrai_mosaik.core.checks import check_whole
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types.arrays import FloatVector

from .search import Candidate, SearchBrain, SearchDistribution, SearchMuscle

__all__ = ["EvolutionStrategyBrain", "SearchMuscle"]


#: Adam's decay rates of the gradients' mean and square, and the constant that avoids a division by 0
_BETA, _BETA_SQUARE, _EPSILON = 0.9, 0.999, 1e-8


class EvolutionStrategyBrain(SearchBrain):
    """Moves the mean of a search along the estimated gradient; its muscles are :class:`SearchMuscle`.

    Statistics, at the end of each generation: ``generation``, ``best`` and ``population_mean`` (sums
    of the objective over an episode), ``step`` (length of the mean's step).

    Args:
        population: number of episodes in a generation.
        learning_rate: learning rate of Adam, about the step of each weight in a generation.
        decay: share of every weight that is subtracted in a generation.
    """

    method = "the evolution strategy"

    def __init__(self, population: int = 32, *, learning_rate: float = 0.05, decay: float = 0.0):
        check_whole("population", population, 2)
        if not 0 < learning_rate < math.inf:
            raise ContractError(f"learning_rate must be positive and finite, not {learning_rate}")
        if not 0 <= decay < 1:
            raise ContractError(f"decay must be at least 0 and below 1, not {decay}")
        super().__init__(population)
        self._learning_rate, self._decay = float(learning_rate), float(decay)
        #: by signature of the policy: Adam's steps, and its means of gradients and of their squares
        self._moments: dict[str, tuple[int, FloatVector, FloatVector]] = {}

    def _move(
        self, old: SearchDistribution, scored: Sequence[tuple[Candidate, float]]
    ) -> tuple[SearchDistribution, dict[str, float]]:
        scores = np.array([score for _, score in scored])
        shares = _centered_ranks(scores)
        deviations = np.array(
            [
                (candidate.weights - candidate.drawn_from.mean) / candidate.drawn_from.std
                for candidate, _ in scored
            ]
        )
        gradient = (shares[:, np.newaxis] * deviations).sum(axis=0) / (len(scored) * old.std)
        nothing = np.zeros_like(gradient)
        count, first, second = self._moments.get(old.policy, (0, nothing, nothing))
        count += 1
        first = _BETA * first + (1.0 - _BETA) * gradient
        second = _BETA_SQUARE * second + (1.0 - _BETA_SQUARE) * gradient**2
        self._moments[old.policy] = count, first, second
        size = np.sqrt(second / (1.0 - _BETA_SQUARE**count)) + _EPSILON
        step = self._learning_rate * first / (1.0 - _BETA**count) / size - self._decay * old.mean
        return SearchDistribution(old.generation + 1, old.mean + step, old.std, old.policy), {
            "generation": old.generation + 1,
            "best": scores.max(),
            "population_mean": scores.mean(),
            "step": float(np.sqrt((step**2).sum())),
        }


def _centered_ranks(scores: FloatVector) -> FloatVector:
    """Return the ranks of the scores from -0.5 (lowest) to 0.5; equal scores share their rank."""
    below = (scores[:, np.newaxis] > scores).sum(axis=1)
    above = (scores[:, np.newaxis] < scores).sum(axis=1)
    ranks: FloatVector = (below - above) / (2.0 * (len(scores) - 1))
    return ranks
