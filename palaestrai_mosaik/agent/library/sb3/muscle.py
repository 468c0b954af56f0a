"""Muscles with a policy of Stable-Baselines3 that an ``SB3Brain`` trains, for one or many bodies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from palaestrai_mosaik.agent.muscle import ArrayMuscle, BatchReadings
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import BrainDumpError, ContractError
from palaestrai_mosaik.types import Mode
from palaestrai_mosaik.types.arrays import FloatMatrix, IndexVector

from .model import Weights, from_bytes
from .policy import ActingPolicy
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


class SB3Muscle(ArrayMuscle):
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
        #: version of the weights that are loaded into the policy
        self._version: int | None = None
        #: rows of each body since the last update
        self._since = np.zeros(0, dtype=np.int64)
        #: the generators of the episode, and a seed drawn from each
        self._drawn_from: Any = None
        self._seeds: list[int] = []

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

    def propose_batch(self, batch: BatchReadings) -> tuple[FloatMatrix, Sequence[Any] | None]:
        """Return the policy's set-points, and in train mode the data that the brain needs to learn."""
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
            if self._policy is not None:
                self._begin_episode(self._policy)
        update, policy = self._update, self._policy
        if update is None:
            return self._without_model(batch), None
        if policy is None:
            policy = self._policy = ActingPolicy(update.recipe, *self._channels, len(self.rngs))
            self._begin_episode(policy)
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
        self.reset_bodies(np.arange(len(self._since)))

    def reset_bodies(self, bodies: IndexVector) -> None:
        """Restart the exploration noise of these bodies."""
        if self._policy is not None:
            for body in bodies.tolist():
                self._policy.explorers[body].end_episode()

    def _begin_episode(self, policy: ActingPolicy) -> None:
        for explorer, seed in zip(policy.explorers, self._seeds, strict=True):
            explorer.begin(seed)

    def _without_model(self, batch: BatchReadings) -> FloatMatrix:
        """Return random set-points. Raises :class:`ContractError` in test mode."""
        if self.mode is not Mode.TRAIN:
            raise ContractError(f"muscle {self.uid!r} has no model to test: give its agent the key 'load'")
        return np.array([batch.actuators.sample(self.rngs[body]) for body in batch.bodies.tolist()])


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
