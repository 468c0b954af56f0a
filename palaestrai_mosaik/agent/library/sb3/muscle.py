"""Acts with a policy of Stable-Baselines3 that an ``SB3Brain`` trains, for one body or for many."""

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

from palaestrai_mosaik.agent.batch import BatchMuscle, BatchReadings
from palaestrai_mosaik.errors import BrainDumpError, ContractError
from palaestrai_mosaik.types import Mode
from palaestrai_mosaik.types.arrays import FloatMatrix, IndexVector

from .model import ALGORITHMS, Recipe, Weights, acting_part, from_bytes, set_weights
from .policy import ActingPolicy, DataVector, acting_networks
from .random_states import PrivateRandomness, one_thread
from .spaces import ActionSpace, ObservationSpace, action_space, observation_space

#: format of a dump, and the tag of its part with the weights of the policy's acting part
FORMAT = "sb3-1"
ACTING = "acting"


@dataclass(frozen=True, slots=True)
class SB3Update:
    """What a brain sends to its muscles.

    ``version`` changes with ``weights``, those of the policy's acting part. ``steps`` is the
    number of rows that the brain has learned from, ``muscles`` of how many muscles.
    """

    recipe: Recipe
    version: int
    weights: Weights
    steps: int
    muscles: int


class SB3Muscle(BatchMuscle):
    """Acts as the policy that its :class:`~.brain.SB3Brain` trains, or that ``load`` names.

    In train mode it explores as the algorithm does: PPO, A2C and SAC draw from the policy; TD3,
    DDPG and SAC may add noise; DQN acts at random at its exploration rate; all of the latter four
    act at random in the first ``learning_starts`` rows. In test mode it takes the policy's best
    action. Without a model it acts at random in train mode, and raises in test mode.

    For many bodies there is one forward pass. Each draws from its own generator what it would draw
    alone, and gets the same set-points up to the rounding of float32.
    """

    #: bootstrapping needs what follows the newest row
    looks_ahead = True

    def __init__(self) -> None:
        self._update: SB3Update | None = None
        self._channels: tuple[ObservationSpace, ActionSpace] | None = None
        self._policy: ActingPolicy | None = None
        self._batch: BatchPolicy | None = None
        #: version of the weights in the policy
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
        """Take over an :class:`SB3Update`; its weights are loaded when they are needed."""
        if not isinstance(update, SB3Update):
            raise ContractError(f"SB3Muscle needs the brain SB3Brain; it got the update {update!r}")
        self._update = update
        self._since[:] = 0

    def propose_actions(self, sensors: Any, actuators_available: Any) -> tuple[Any, Any]:
        """Return the policy's set-points, and in train mode what the brain needs to learn from them."""
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
        """Return the policy's set-points for many bodies, and in train mode what the brain needs."""
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
        """Let the noise of exploration begin anew."""
        if self._policy is not None:
            self._policy.end_episode()
        if self._batch is not None:
            self.reset_bodies(np.arange(len(self._since)))

    def reset_bodies(self, bodies: IndexVector) -> None:
        """Let the noise of these bodies' exploration begin anew."""
        if self._batch is not None:
            for body in bodies.tolist():
                self._batch.explorers[body].end_episode()

    def _check_mode(self) -> None:
        if self.mode is not Mode.TRAIN:
            raise ContractError(f"muscle {self.uid!r} has no model to test: give its agent the key 'load'")

    def _begin_episode(self, actions: ActionSpace) -> PrivateRandomness:
        """Seed the random states of an episode; the muscle's generator is new for every one."""
        self._drawn_from = self.rng
        seed = int(self.rng.integers(2**31))
        actions.space.seed(seed)
        random = PrivateRandomness(seed)
        if self._policy is not None:
            self._policy.begin(random)
        return random


def read_head(stream: Any) -> dict[str, Any]:
    """Return the head of a dump, which says what the other parts are; ``recipe`` is a :class:`Recipe`."""
    try:
        head = json.loads(stream.read().decode())
        found = head["format"]
        if found != FORMAT:
            raise BrainDumpError(f"the dump of SB3Brain has the format {found!r}; allowed is {FORMAT!r}")
        recipe = Recipe.from_json(head["recipe"])
        parts = {name: str(head[name]) for name in ("observations", "actions")}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrainDumpError(f"the dump is none of SB3Brain: {type(error).__name__}: {error}") from error
    if recipe.algorithm not in ALGORITHMS:
        raise BrainDumpError(
            f"the dump of SB3Brain has the algorithm {recipe.algorithm!r}; allowed are {', '.join(ALGORITHMS)}"
        )
    return {"recipe": recipe, **parts}


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
        self, readings: FloatMatrix, bodies: IndexVector, steps: npt.NDArray[np.int64]
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
