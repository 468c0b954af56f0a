"""Objectives that are written for palaestrAI."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from palaestrai_mosaik.agent import Memory, Muscle, Objective
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.simulation.channels import Channels

from .memory import MirroredMemory
from .muscle import rollout_memory
from .parts import COMPUTED_NAN, Adapted


class AdaptedObjective(Adapted, Objective):
    """Computes an objective of palaestrAI; subclasses have its class in :attr:`theirs`.

    ``None`` and an empty array mean that there is no value: a brain of palaestrAI does not hear of
    the row. It hears of NaN. Its global generators are seeded anew for every episode.
    """

    agent: str = ""
    seed: int = 0
    #: the muscle beside it, which knows the generator of the episode
    muscle: Muscle

    def introduce(self, agent: str, seed: int, *, loads: bool, taught: bool) -> None:
        """Take note of whose objective it is, and its seed; it has no use for the rest."""
        self.agent, self.seed = agent, seed

    def memory_for(self, channels: Channels) -> MirroredMemory:
        """Return the memory of a body with this objective."""
        return rollout_memory(channels, self.agent)

    def setup(self, reward_names: Sequence[str]) -> None:
        self._make(self.seed)

    def internal_reward(self, memory: Memory, **kwargs: Any) -> float | None:
        self.streams.renew(self.muscle.rng, "objective")
        with self.streams:
            answer = self.part.internal_reward(cast(MirroredMemory, memory).theirs)
        if answer is None or (isinstance(answer, np.ndarray) and not answer.size):
            return None
        try:
            value = float(answer if np.ndim(answer) == 0 else np.asarray(answer).item())
        except (TypeError, ValueError):
            raise ContractError(
                f"{self.theirs.__name__}.internal_reward of agent {self.agent!r} must return a number, an array with "
                f"one or none, or None, not {answer!r}"
            ) from None
        return COMPUTED_NAN if math.isnan(value) else value
