"""A policy of Stable-Baselines3 that acts for many bodies with one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common import distributions as sb3

from .sb3_model import Recipe, Weights, acting_part, set_weights
from .sb3_policy import ActingPolicy, DataVector, acting_networks
from .sb3_random import PrivateRandomness, one_thread
from .sb3_spaces import ActionSpace, FloatMatrix, ObservationSpace

IntVector = npt.NDArray[np.intp]


class BatchPolicy:
    """The networks that alike bodies share, and for each of them the state of its exploration.

    What a body draws is what it would draw alone, from its own random state. What the networks
    compute for it is the same up to the rounding of float32, as torch multiplies matrices of
    several rows in another order than one of a single row.
    """

    def __init__(
        self,
        recipe: Recipe,
        observations: ObservationSpace,
        actions: ActionSpace,
        randoms: Sequence[PrivateRandomness],
    ):
        self.observations, self.actions = observations, actions
        self._policy = acting_networks(recipe, observations, actions)
        self.explorers: list[ActingPolicy] = []
        for random in randoms:
            # a space keeps the state that it samples from
            own = replace(actions, space=deepcopy(actions.space))
            self.explorers.append(ActingPolicy(recipe, observations, own, random, self._policy))

    @property
    def recipe(self) -> Recipe:
        """What the bodies act by."""
        return self.explorers[0].recipe

    def load(self, recipe: Recipe, weights: Weights) -> None:
        """Take over new weights of the acting part."""
        set_weights(acting_part(self._policy, recipe), weights)
        for explorer in self.explorers:
            explorer.recipe = recipe
            explorer.renew()

    def begin(self, randoms: Sequence[PrivateRandomness], seeds: Sequence[int]) -> None:
        """Let every body draw from a state, and sample its actions from a seed, of its own."""
        for explorer, random, seed in zip(self.explorers, randoms, seeds, strict=True):
            explorer.begin(random)
            explorer.actions.space.seed(seed)

    def greedy(self, readings: FloatMatrix) -> FloatMatrix:
        """Return the set-points (n, set-points) that the policy holds for the best."""
        batch = torch.as_tensor(self.observations.encode(readings))
        with one_thread(), torch.no_grad():
            actions = self._policy._predict(batch, deterministic=True).numpy()
        return self.actions.setpoints_of(self.explorers[0].within_bounds(actions))

    def explore(
        self, readings: FloatMatrix, bodies: IntVector, steps: npt.NDArray[np.int64]
    ) -> tuple[FloatMatrix, list[DataVector]]:
        """Return set-points, and for each body what the brain needs to learn from them.

        See :meth:`ActingPolicy.explore`; ``steps`` (n,) are those of each body.
        """
        batch = self.observations.encode(readings)
        acting = [self.explorers[body] for body in bodies.tolist()]
        for explorer in acting:
            explorer.refresh_noise()
        actions, data = (
            self._draw(batch, acting) if self.recipe.on_policy else self._try(batch, acting, steps)
        )
        return self.actions.setpoints_of(actions), list(data)

    def _draw(
        self, batch: npt.NDArray[Any], acting: Sequence[ActingPolicy]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        policy, seen = self._policy, torch.as_tensor(batch)
        with one_thread(), torch.no_grad():
            values = policy.predict_values(seen)
            distribution = policy.get_distribution(seen)
            drawn = _sampled(distribution, acting)
            log_probs = distribution.log_prob(drawn)
        actions = drawn.reshape((-1, *policy.action_space.shape)).numpy()
        n = len(acting)
        data = np.concatenate(
            [actions.reshape(n, -1), values.numpy().reshape(n, 1), log_probs.numpy().reshape(n, 1)],
            axis=1,
            dtype=np.float32,
            casting="unsafe",
        )
        return acting[0].within_bounds(actions), data

    def _try(
        self, batch: npt.NDArray[Any], acting: Sequence[ActingPolicy], steps: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        recipe, policy = self.recipe, self._policy
        chosen = [one.at_random(count) for one, count in zip(acting, steps.tolist(), strict=True)]
        asked = [i for i, action in enumerate(chosen) if action is None]
        if asked:
            ones = [acting[i] for i in asked]
            seen = torch.as_tensor(batch[asked])
            with one_thread(), torch.no_grad():
                if recipe.algorithm == "SAC":
                    mean, log_std, kwargs = policy.actor.get_action_dist_params(seen)
                    found = _sampled(
                        policy.actor.action_dist.proba_distribution(mean, log_std, **kwargs), ones
                    )
                else:
                    found = policy._predict(seen, deterministic=False)
            answers = acting[0].within_bounds(found.numpy())
            for i, answer in zip(asked, answers, strict=True):
                chosen[i] = answer[np.newaxis]
        actions = np.concatenate([action for action in chosen if action is not None])
        if not self.actions.continuous:
            return actions, actions.astype(np.float32).reshape(len(acting), -1)
        scaled = policy.scale_action(actions)
        if recipe.noise is not None:
            noise = np.array([one.next_noise(recipe.noise) for one in acting])
            scaled = np.clip(scaled + noise, -1, 1)
        return policy.unscale_action(scaled), scaled.astype(np.float32)


def _sampled(distribution: Any, acting: Sequence[ActingPolicy]) -> torch.Tensor:
    """Return a sample of each row of a distribution, drawn from the state of the body that it is for."""
    generators = [one.random.torch for one in acting]
    if isinstance(distribution, sb3.StateDependentNoiseDistribution):
        matrices = torch.stack([one.drawn for one in acting if one.drawn is not None])
        distribution.exploration_mat, distribution.exploration_matrices = matrices[0], matrices
        sample: torch.Tensor = distribution.sample()
        return sample
    own = distribution.distribution
    if isinstance(distribution, sb3.MultiCategoricalDistribution):
        return torch.stack([_chosen(part.probs, generators) for part in own], dim=1)
    if isinstance(distribution, sb3.CategoricalDistribution):
        return _chosen(own.probs, generators)
    if isinstance(distribution, sb3.BernoulliDistribution):
        rows = [torch.bernoulli(p, generator=g) for p, g in zip(own.probs.split(1), generators, strict=True)]
        return torch.cat(rows)
    noise = torch.cat([torch.empty(1, own.loc.shape[1]).normal_(generator=g) for g in generators])
    drawn = own.loc + noise * own.scale
    return torch.tanh(drawn) if isinstance(distribution, sb3.SquashedDiagGaussianDistribution) else drawn


def _chosen(probabilities: torch.Tensor, generators: Sequence[torch.Generator]) -> torch.Tensor:
    """Return for each row the number of one of its columns."""
    rows = zip(probabilities.split(1), generators, strict=True)
    return torch.cat([torch.multinomial(row, 1, True, generator=g)[0] for row, g in rows])
