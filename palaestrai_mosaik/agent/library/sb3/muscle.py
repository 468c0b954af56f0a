"""Muscles with a policy of Stable-Baselines3 that an ``SB3Brain`` trains, for one or many bodies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common import distributions as sb3

from palaestrai_mosaik.agent.muscle import BatchMuscle, BatchReadings
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import BrainDumpError, ContractError
from palaestrai_mosaik.types import Mode
from palaestrai_mosaik.types.arrays import FloatMatrix, IndexVector

from .model import Weights, acting_part, from_bytes, set_weights
from .policy import ActingPolicy, DataVector, acting_networks
from .random_states import PrivateRandomness, one_thread
from .recipe import ALGORITHMS, Recipe
from .spaces import ActionSpace, ObservationSpace, action_space, observation_space

#: format of a dump, and the tag of its part with the policy's acting weights
FORMAT = "sb3-1"
ACTING = "acting"


@dataclass(frozen=True, slots=True)
class SB3Update:
    """An update from a brain to its muscles.

    ``version`` changes with ``weights``, those of the policy's acting part. ``steps`` is the
    number of rows that the brain has learned from, ``muscles`` the number of their muscles.
    """

    recipe: Recipe
    version: int
    weights: Weights
    steps: int
    muscles: int


class SB3Muscle(BatchMuscle):
    """Acts with the policy that its :class:`~.brain.SB3Brain` trains, or that ``load`` names.

    In train mode it explores like the algorithm: PPO, A2C and SAC draw from the policy; TD3,
    DDPG and SAC may add noise; DQN acts at random at its exploration rate; all of the latter four
    act at random in the first ``learning_starts`` rows. In test mode it takes the policy's best
    action. Without a model it acts at random in train mode, and raises in test mode.

    Many bodies share one forward pass. Each draws the same numbers from its own generator as it would
    alone, and receives the same set-points up to the rounding of float32.
    """

    #: the brain needs next observations for bootstrapping
    looks_ahead = True

    def __init__(self) -> None:
        self._update: SB3Update | None = None
        self._channels: tuple[ObservationSpace, ActionSpace] | None = None
        self._policy: ActingPolicy | None = None
        self._batch: BatchPolicy | None = None
        #: version of the weights that are loaded into the policy
        self._version: int | None = None
        #: rows of each body since the last update
        self._since = np.zeros(1, dtype=np.int64)
        self._random: PrivateRandomness | None = None
        self._drawn_from: Any = None

    def prepare_model(self) -> None:
        """Load the policy that the document's ``load`` names."""
        head = read_head(self.load())
        weights = from_bytes(self.load(ACTING), "the policy", "cpu")
        if not isinstance(weights, dict) or not all(isinstance(w, torch.Tensor) for w in weights.values()):
            raise BrainDumpError("the policy is none of SB3Brain: its weights are no mapping of tensors")
        recipe = replace(head["recipe"], warm_up=0)
        self.update(SB3Update(recipe, -1, {name: w.numpy() for name, w in weights.items()}, 0, 1))

    def update(self, update: Any) -> None:
        """Store an :class:`SB3Update`; its weights are loaded on demand."""
        if not isinstance(update, SB3Update):
            raise ContractError(f"SB3Muscle needs the brain SB3Brain; it got the update {update!r}")
        self._update = update
        self._since[:] = 0

    def propose_actions(self, sensors: Any, actuators_available: Any) -> tuple[Any, Any]:
        """Return the policy's set-points, and in train mode the data that the brain needs to learn."""
        if self._channels is None:
            self._channels = (
                observation_space([s.space for s in sensors]),
                action_space([a.space for a in actuators_available], [a.uid for a in actuators_available]),
            )
        if self._random is None or self.rng is not self._drawn_from:
            self._random = self._begin_episode(self._channels[1])
        update = self._update
        if update is None:
            self._check_mode()
            actuators_available.vector = np.concatenate(
                [a.space.flatten(a.space.sample(self.rng)) for a in actuators_available]
            )
            return actuators_available, None
        policy = self._policy
        if policy is None:
            policy = self._policy = ActingPolicy(update.recipe, *self._channels, self._random)
        if self._version != update.version:
            policy.recipe = update.recipe
            policy.load(update.weights)
            self._version = update.version
        if self.mode is not Mode.TRAIN:
            actuators_available.vector = policy.greedy(sensors.vector)
            return actuators_available, None
        steps = update.steps + int(self._since[0]) * update.muscles
        actuators_available.vector, data = policy.explore(sensors.vector, steps)
        self._since[0] += 1
        return actuators_available, data

    def propose_batch(self, batch: BatchReadings) -> tuple[FloatMatrix, Sequence[Any] | None]:
        """Return the policy's set-points for many bodies, and in train mode the data for the brain."""
        actuators, bodies = batch.actuators, batch.bodies
        if self._channels is None:
            self._channels = (
                observation_space(batch.sensors.spaces),
                action_space(actuators.spaces, actuators.uids),
            )
            self._since = np.zeros(len(self.rngs), dtype=np.int64)
        if self.rngs is not self._drawn_from:
            self._drawn_from = self.rngs
            self._seeds = [int(rng.integers(2**31)) for rng in self.rngs]
            self._randoms = [PrivateRandomness(seed) for seed in self._seeds]
            if self._batch is not None:
                self._batch.begin(self._randoms, self._seeds)
        update, policy = self._update, self._batch
        if update is None:
            self._check_mode()
            drawn = [
                np.concatenate([space.flatten(space.sample(self.rngs[body])) for space in actuators.spaces])
                for body in bodies.tolist()
            ]
            return np.array(drawn), None
        if policy is None:
            policy = self._batch = BatchPolicy(update.recipe, *self._channels, self._randoms)
            policy.begin(self._randoms, self._seeds)
        if self._version != update.version:
            policy.load(update.recipe, update.weights)
            self._version = update.version
        if self.mode is not Mode.TRAIN:
            return policy.greedy(batch.observations), None
        steps = update.steps + self._since[bodies] * update.muscles
        self._since[bodies] += 1
        return policy.explore(batch.observations, bodies, steps)

    def reset(self) -> None:
        """Restart the exploration noise."""
        if self._policy is not None:
            self._policy.end_episode()
        if self._batch is not None:
            self.reset_bodies(np.arange(len(self._since)))

    def reset_bodies(self, bodies: IndexVector) -> None:
        """Restart the exploration noise of these bodies."""
        if self._batch is not None:
            for body in bodies.tolist():
                self._batch.explorers[body].end_episode()

    def _check_mode(self) -> None:
        if self.mode is not Mode.TRAIN:
            raise ContractError(f"muscle {self.uid!r} has no model to test: give its agent the key 'load'")

    def _begin_episode(self, actions: ActionSpace) -> PrivateRandomness:
        """Seed the random states of an episode; the muscle's generator is new for every episode."""
        self._drawn_from = self.rng
        seed = int(self.rng.integers(2**31))
        actions.space.seed(seed)
        random = PrivateRandomness(seed)
        if self._policy is not None:
            self._policy.begin(random)
        return random


def read_head(stream: Any) -> dict[str, Any]:
    """Read the head of a dump, which describes the other parts; ``recipe`` is a :class:`Recipe`."""
    try:
        head = json.loads(stream.read().decode())
        dump_format = head["format"]
        if dump_format != FORMAT:
            raise BrainDumpError(
                f"the dump of SB3Brain has the format {dump_format!r}; allowed is {FORMAT!r}"
            )
        recipe = Recipe.from_json(head["recipe"])
        parts = {name: str(head[name]) for name in ("observations", "actions")}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrainDumpError(f"the dump is none of SB3Brain: {files.reading_fault(error)}") from None
    if recipe.algorithm not in ALGORITHMS:
        raise BrainDumpError(
            f"the dump of SB3Brain has the algorithm {recipe.algorithm!r}; allowed are {', '.join(ALGORITHMS)}"
        )
    return {"recipe": recipe, **parts}


class BatchPolicy:
    """The shared networks of identical bodies, and the exploration state of each.

    A body draws the same numbers from its own random state as it would alone. The networks' results
    are equal up to the rounding of float32, since torch multiplies matrices of
    several rows in another order than those of a single row.
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
            # a space holds the state of its sampling
            body_actions = replace(actions, space=deepcopy(actions.space))
            self.explorers.append(ActingPolicy(recipe, observations, body_actions, random, self._policy))

    @property
    def recipe(self) -> Recipe:
        """The recipe of all bodies."""
        return self.explorers[0].recipe

    def load(self, recipe: Recipe, weights: Weights) -> None:
        """Load new weights of the acting part."""
        set_weights(acting_part(self._policy, recipe), weights)
        for explorer in self.explorers:
            explorer.recipe = recipe
            explorer.renew()

    def begin(self, randoms: Sequence[PrivateRandomness], seeds: Sequence[int]) -> None:
        """Set the random state of each body and the seed of its random actions."""
        for explorer, random, seed in zip(self.explorers, randoms, seeds, strict=True):
            explorer.begin(random)
            explorer.actions.space.seed(seed)

    def greedy(self, readings: FloatMatrix) -> FloatMatrix:
        """Return the set-points (n, set-points) of the policy's best actions."""
        batch = torch.as_tensor(self.observations.encode(readings))
        with one_thread(), torch.no_grad():
            actions = self._policy._predict(batch, deterministic=True).numpy()
        return self.actions.setpoints_of(self.explorers[0].within_bounds(actions))

    def explore(
        self, readings: FloatMatrix, bodies: IndexVector, steps: npt.NDArray[np.int64]
    ) -> tuple[FloatMatrix, list[DataVector]]:
        """Return set-points, and for each body the data that the brain needs to learn.

        See :meth:`ActingPolicy.explore`; ``steps`` (n,) has an entry for each body.
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
        policy, observation = self._policy, torch.as_tensor(batch)
        with one_thread(), torch.no_grad():
            values = policy.predict_values(observation)
            distribution = policy.get_distribution(observation)
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
        chosen = [explorer.at_random(count) for explorer, count in zip(acting, steps.tolist(), strict=True)]
        by_policy = [i for i, action in enumerate(chosen) if action is None]
        if by_policy:
            asking = [acting[i] for i in by_policy]
            observation = torch.as_tensor(batch[by_policy])
            with one_thread(), torch.no_grad():
                if recipe.algorithm == "SAC":
                    mean, log_std, kwargs = policy.actor.get_action_dist_params(observation)
                    raw = _sampled(
                        policy.actor.action_dist.proba_distribution(mean, log_std, **kwargs), asking
                    )
                else:
                    raw = policy._predict(observation, deterministic=False)
            proposed = acting[0].within_bounds(raw.numpy())
            for i, proposal in zip(by_policy, proposed, strict=True):
                chosen[i] = proposal[np.newaxis]
        actions = np.concatenate([action for action in chosen if action is not None])
        if not self.actions.continuous:
            return actions, actions.astype(np.float32).reshape(len(acting), -1)
        scaled = policy.scale_action(actions)
        if recipe.noise is not None:
            noise = np.array([explorer.next_noise(recipe.noise) for explorer in acting])
            scaled = np.clip(scaled + noise, -1, 1)
        return policy.unscale_action(scaled), scaled.astype(np.float32)


def _sampled(distribution: Any, acting: Sequence[ActingPolicy]) -> torch.Tensor:
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
