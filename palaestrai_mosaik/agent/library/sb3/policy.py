"""A policy of Stable-Baselines3 in use: greedy in tests, exploring in training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from palaestrai_mosaik.types.arrays import FloatVector

from .model import Weights, acting_part, make_policy, set_weights
from .random_states import PrivateRandomness
from .recipe import Recipe
from .spaces import ActionSpace, ObservationSpace

DataVector = npt.NDArray[np.float32]


class ActingPolicy:
    """The networks that a muscle acts with, and the state of its exploration.

    ``random`` is replaced for every episode. Observations and actions are batches of one, so
    that the arithmetic is that of Stable-Baselines3 to the last bit. ``policy``: networks shared with
    other bodies; ``None``: its own.
    """

    def __init__(
        self,
        recipe: Recipe,
        observations: ObservationSpace,
        actions: ActionSpace,
        random: PrivateRandomness,
        policy: Any = None,
    ):
        self.recipe = recipe
        self.observations = observations
        self.actions = actions
        self.random = random
        self._policy = acting_networks(recipe, observations, actions) if policy is None else policy
        #: the last draw of state-dependent exploration
        self.drawn: torch.Tensor | None = None
        #: steps and episodes since the noise of state-dependent exploration was drawn
        self._age = [0, 0]
        #: the last value of the Ornstein-Uhlenbeck process
        self._noise = np.zeros(actions.low.size)

    def load(self, weights: Weights) -> None:
        """Load new weights of the acting part."""
        set_weights(acting_part(self._policy, self.recipe), weights)
        self.renew()

    def renew(self) -> None:
        """Draw new exploration noise if needed, after the weights have changed."""
        if self.recipe.use_sde and self.recipe.on_policy:
            self._draw_matrix()
            self._age = [0, 0]

    def begin(self, random: PrivateRandomness) -> None:
        """Draw from ``random`` from now on."""
        self.random = random

    def end_episode(self) -> None:
        """Reset the noise for another episode."""
        self._noise = np.zeros_like(self._noise)
        self._age[1] += 1

    def greedy(self, readings: FloatVector) -> FloatVector:
        """Return the set-points of the policy's best action."""
        batch = torch.as_tensor(self.observations.encode(readings))
        with self.random.for_torch(), torch.no_grad():
            action = self._policy._predict(batch, deterministic=True).numpy()
        return self.actions.setpoints(self.within_bounds(action))

    def explore(self, readings: FloatVector, steps: int) -> tuple[FloatVector, DataVector]:
        """Return set-points, and the data that the brain needs to learn from them.

        ``steps``: number of rows of the agent so far. The data are, on-policy, the action before clipping,
        its value and its log-probability; off-policy, the action, scaled to [-1, 1] if it is a
        vector of real numbers.
        """
        batch = self.observations.encode(readings)
        action, data = self._draw(batch) if self.recipe.on_policy else self._try(batch, steps)
        return self.actions.setpoints(action), data

    def within_bounds(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        space = self.actions.space
        if not self.actions.continuous:
            return action
        if self._policy.squash_output:
            return np.asarray(self._policy.unscale_action(action))
        low, high = getattr(space, "low"), getattr(space, "high")  # noqa: B009 (there, as it is continuous)
        clipped: npt.NDArray[Any] = np.clip(action, low, high)
        return clipped

    def _draw(self, batch: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], DataVector]:
        self.refresh_noise()
        observation = torch.as_tensor(batch)
        with self.random.for_torch(), torch.no_grad():
            result = _unchecked(self._policy, observation)
            if result is None:
                self.random.rewind()
                result = self._policy(observation)
        actions, values, log_probs = result
        action = actions.numpy()
        data = np.empty(action.size + 2, dtype=np.float32)
        data[:-2] = action.reshape(-1)
        data[-2], data[-1] = values.item(), log_probs.item()
        return self.within_bounds(action), data

    def _try(self, batch: npt.NDArray[Any], steps: int) -> tuple[npt.NDArray[Any], DataVector]:
        recipe, policy, random = self.recipe, self._policy, self.random
        self.refresh_noise()
        action = self.at_random(steps)
        if action is None:
            with random.for_torch(), torch.no_grad():
                action = policy._predict(torch.as_tensor(batch), deterministic=False).numpy()
            action = self.within_bounds(action)
        if not self.actions.continuous:
            return action, action.astype(np.float32).reshape(-1)
        scaled = policy.scale_action(action)
        if recipe.noise is not None:
            scaled = np.clip(scaled + self.next_noise(recipe.noise), -1, 1)
        return policy.unscale_action(scaled), scaled.astype(np.float32).reshape(-1)

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
            return np.array([self.actions.space.sample()])
        return None

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


def _unchecked(policy: Any, observation: torch.Tensor) -> Any:
    """Return the policy's draw, its value and its log-probability, without torch's checks of distributions.

    The checks take a quarter of the time of a small network, and only find numbers that make the log-probability
    NaN or infinite. Then ``None`` is returned; a second call with the checks reports the error.
    """
    checked = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution._validate_args = False
    try:
        result = policy(observation)
    except (RuntimeError, ValueError):
        return None
    finally:
        torch.distributions.Distribution._validate_args = checked
    return result if math.isfinite(result[2].item()) else None


def acting_networks(recipe: Recipe, observations: ObservationSpace, actions: ActionSpace) -> Any:
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
