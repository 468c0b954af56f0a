"""A policy of Stable-Baselines3 in use: greedy in tests, exploring in training, for one or many bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces as gym
from stable_baselines3.common import distributions as sb3

from palaestrai_mosaik.types.arrays import FloatMatrix, IndexVector

from .model import Weights, acting_part, make_policy, set_weights
from .random_states import PrivateRandomness, one_thread
from .recipe import Recipe
from .spaces import ActionSpace, ObservationSpace

DataVector = npt.NDArray[np.float32]


class Explorer:
    """The state of one body's exploration: its random states, its noise, and its position in a rollout.

    ``space``: the action space of the learner, which random actions are sampled from.
    """

    random: PrivateRandomness

    def __init__(self, recipe: Recipe, space: gym.Space[Any], size: int, policy: Any):
        self.recipe = recipe
        self.space = space
        self._policy = policy
        #: the last draw of state-dependent exploration
        self.drawn: torch.Tensor | None = None
        #: steps and episodes since the noise of state-dependent exploration was drawn
        self._age = [0, 0]
        #: the last value of the Ornstein-Uhlenbeck process
        self._noise = np.zeros(size)

    def begin(self, seed: int) -> None:
        """Seed the random states of an episode."""
        self.random = PrivateRandomness(seed)
        self.space.seed(seed)

    def end_episode(self) -> None:
        """Reset the noise for another episode."""
        self._noise = np.zeros_like(self._noise)
        self._age[1] += 1

    def renew(self) -> None:
        """Draw new exploration noise if needed, after the weights have changed."""
        if self.recipe.use_sde and self.recipe.on_policy:
            self._draw_matrix()
            self._age = [0, 0]

    def refresh_noise(self) -> None:
        """Draw new noise for state-dependent exploration, if this step needs it.

        That is every ``sde_every`` steps, and off-policy also at the start of a rollout.
        """
        recipe, age = self.recipe, self._age
        if not recipe.use_sde:
            return
        frequency, unit = recipe.rollout
        begins = not recipe.on_policy and (age[0] == 0 or age[0 if unit == "step" else 1] >= frequency)
        if begins:
            age[:] = [0, 0]
        if begins or (recipe.sde_every > 0 and age[0] % recipe.sde_every == 0):
            self._draw_matrix()
        age[0] += 1

    def _draw_matrix(self) -> None:
        acting = self._policy if self.recipe.on_policy else self._policy.actor
        with self.random.for_torch():
            acting.reset_noise(1)
        self.drawn = acting.action_dist.exploration_mat

    def next_noise(self, settings: Mapping[str, Any]) -> DataVector:
        """Return Gaussian noise, or the next value of an Ornstein-Uhlenbeck process."""
        random, last = self.random.numpy, self._noise
        mean, sigma = np.full(last.size, settings["mean"]), np.full(last.size, settings["sigma"])
        if settings["kind"] == "normal":
            return random.normal(mean, sigma).astype(np.float32)
        drift, dt = settings["theta"] * (mean - last), settings["dt"]
        self._noise = last + drift * dt + sigma * np.sqrt(dt) * random.normal(size=last.size)
        return self._noise.astype(np.float32)

    def at_random(self, steps: int) -> npt.NDArray[Any] | None:
        """Return a random action, shape ``(1, ...)``, during warm-up or at the exploration rate, else ``None``."""
        recipe = self.recipe
        if steps < recipe.warm_up or (
            recipe.epsilon is not None and self.random.numpy.rand() < recipe.exploration_rate(steps)
        ):
            return np.array([self.space.sample()])
        return None


class ActingPolicy:
    """The networks that identical bodies act with, and the exploration of each.

    A body draws from its own random states. The results of several bodies are equal to those of a single one
    up to the rounding of float32, since torch multiplies matrices of several rows in another order. Those of
    a single one are equal to Stable-Baselines3's to the last bit.
    """

    def __init__(self, recipe: Recipe, observations: ObservationSpace, actions: ActionSpace, bodies: int):
        self.recipe = recipe
        self.observations, self.actions = observations, actions
        self._policy = _acting_networks(recipe, observations, actions)
        # a space holds the state of its sampling
        self.explorers = [
            Explorer(recipe, deepcopy(actions.space), actions.low.size, self._policy) for _ in range(bodies)
        ]

    def load(self, recipe: Recipe, weights: Weights) -> None:
        """Load new weights of the acting part."""
        self.recipe = recipe
        set_weights(acting_part(self._policy, recipe), weights)
        for explorer in self.explorers:
            explorer.recipe = recipe
            explorer.renew()

    def greedy(self, readings: FloatMatrix) -> FloatMatrix:
        """Return the set-points (n, set-points) of the policy's best actions."""
        batch = torch.as_tensor(self.observations.encode(readings))
        with one_thread(), torch.no_grad():
            actions = self._policy._predict(batch, deterministic=True).numpy()
        return self.actions.setpoints(self._within_bounds(actions))

    def explore(
        self, readings: FloatMatrix, bodies: IndexVector, steps: npt.NDArray[np.int64]
    ) -> tuple[FloatMatrix, list[DataVector]]:
        """Return set-points (n, set-points), and for each body the data that the brain needs to learn.

        ``steps``: (n,), the number of rows of the agent so far, as seen by each body. The data are, on-policy,
        the action before clipping, its value and its log-probability; off-policy, the action, scaled to [-1, 1]
        if it is a vector of real numbers.
        """
        batch = self.observations.encode(readings)
        acting = [self.explorers[body] for body in bodies.tolist()]
        for explorer in acting:
            explorer.refresh_noise()
        actions, data = (
            self._draw(batch, acting) if self.recipe.on_policy else self._try(batch, acting, steps)
        )
        return self.actions.setpoints(actions), list(data)

    def _draw(
        self, batch: npt.NDArray[Any], acting: Sequence[Explorer]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return actions drawn from an on-policy algorithm's policy, and their data."""
        policy, observation = self._policy, torch.as_tensor(batch)
        with one_thread(), torch.no_grad():
            try:
                with _unchecked():
                    values = policy.predict_values(observation)
                    distribution = policy.get_distribution(observation)
                    drawn = _sampled(distribution, acting)
                    log_probs = distribution.log_prob(drawn).numpy()
            except RuntimeError:
                policy.get_distribution(observation)
                raise
            if not np.isfinite(log_probs).all():
                policy.get_distribution(observation)
        actions = drawn.numpy().reshape(-1, *policy.action_space.shape)
        n = len(acting)
        data = np.empty((n, actions.size // n + 2), dtype=np.float32)
        data[:, :-2] = actions.reshape(n, -1)
        data[:, -2], data[:, -1] = values.numpy()[:, 0], log_probs
        return self._within_bounds(actions), data

    def _try(
        self, batch: npt.NDArray[Any], acting: Sequence[Explorer], steps: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return actions of an off-policy algorithm, at random, or proposed by its policy with noise; and data."""
        policy, noise = self._policy, self.recipe.noise
        actions = self._proposed(batch, acting, steps)
        if not self.actions.continuous:
            return actions, actions.astype(np.float32).reshape(len(acting), -1)
        scaled = policy.scale_action(actions)
        if noise is not None:
            scaled = np.clip(scaled + np.array([explorer.next_noise(noise) for explorer in acting]), -1, 1)
        return policy.unscale_action(scaled), scaled.astype(np.float32)

    def _proposed(
        self, batch: npt.NDArray[Any], acting: Sequence[Explorer], steps: npt.NDArray[np.int64]
    ) -> npt.NDArray[Any]:
        """Return a random action for each body that needs one, and the policy's for the others."""
        policy = self._policy
        chosen = [explorer.at_random(count) for explorer, count in zip(acting, steps.tolist(), strict=True)]
        by_policy = [i for i, action in enumerate(chosen) if action is None]
        if by_policy:
            observation = torch.as_tensor(batch[by_policy])
            with one_thread(), torch.no_grad():
                if self.recipe.algorithm == "SAC":
                    mean, log_std, kwargs = policy.actor.get_action_dist_params(observation)
                    distribution = policy.actor.action_dist.proba_distribution(mean, log_std, **kwargs)
                    raw = _sampled(distribution, [acting[i] for i in by_policy])
                else:
                    raw = policy._predict(observation, deterministic=False)
            for i, action in zip(by_policy, self._within_bounds(raw.numpy()), strict=True):
                chosen[i] = action[np.newaxis]
        return np.concatenate([action for action in chosen if action is not None])

    def _within_bounds(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        space = self.actions.space
        if not isinstance(space, gym.Box):
            return actions
        if self._policy.squash_output:
            return np.asarray(self._policy.unscale_action(actions))
        clipped: npt.NDArray[Any] = np.clip(actions, space.low, space.high)
        return clipped


@contextmanager
def _unchecked() -> Iterator[None]:
    """Skip torch's checks of distributions, which take a quarter of the time of a small network.

    They only refuse numbers with which the log-probability is NaN or infinite, or with which drawing fails.
    """
    checked = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution._validate_args = False
    try:
        yield
    finally:
        torch.distributions.Distribution._validate_args = checked


def _sampled(distribution: Any, acting: Sequence[Explorer]) -> torch.Tensor:
    """Sample each row of a distribution with the random state of its body."""
    generators = [explorer.random.torch for explorer in acting]
    if isinstance(distribution, sb3.StateDependentNoiseDistribution):
        matrices = torch.stack([explorer.drawn for explorer in acting if explorer.drawn is not None])
        distribution.exploration_mat, distribution.exploration_matrices = matrices[0], matrices
        sample: torch.Tensor = distribution.sample()
        return sample
    inner = distribution.distribution
    if isinstance(distribution, sb3.MultiCategoricalDistribution):
        return torch.stack([_chosen(part.probs, generators) for part in inner], dim=1)
    if isinstance(distribution, sb3.CategoricalDistribution):
        return _chosen(inner.probs, generators)
    if isinstance(distribution, sb3.BernoulliDistribution):
        rows = [
            torch.bernoulli(p, generator=g) for p, g in zip(inner.probs.split(1), generators, strict=True)
        ]
        return torch.cat(rows)
    noise = torch.cat([torch.empty(1, inner.loc.shape[1]).normal_(generator=g) for g in generators])
    drawn = inner.loc + noise * inner.scale
    return torch.tanh(drawn) if isinstance(distribution, sb3.SquashedDiagGaussianDistribution) else drawn


def _chosen(probabilities: torch.Tensor, generators: Sequence[torch.Generator]) -> torch.Tensor:
    """Draw one column index for each row."""
    rows = zip(probabilities.split(1), generators, strict=True)
    return torch.cat([torch.multinomial(row, 1, True, generator=g)[0] for row, g in rows])


def _acting_networks(recipe: Recipe, observations: ObservationSpace, actions: ActionSpace) -> Any:
    """Make a policy with weights still to be loaded."""
    # the initial weights are not used, so they are drawn from a temporary state
    with PrivateRandomness(0).for_all():
        policy = make_policy(recipe, observations.space, actions.space)
    for module in policy.modules():
        if type(module) is torch.nn.Sequential:
            layers: Any = module  # types are checked without torch, too
            # these layers have no hooks, so calling them can skip torch's search for hooks
            layers.forward = partial(_in_turn, tuple(layers))
    return policy


def _in_turn(layers: Sequence[Any], value: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        value = layer.forward(value)
    return value
