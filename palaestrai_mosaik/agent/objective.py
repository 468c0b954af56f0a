"""The goal of an agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from .memory import Memory
from .muscle import Muscle


class Objective(ABC):
    """Computes the agent's success from its memory. ``internal_reward`` is mandatory.

    Args:
        params: parameters of the objective by name, kept as :attr:`params`; empty by default.
    """

    def __init__(self, params: dict[str, Any] | None = None):
        self.params: dict[str, Any] = {} if params is None else params

    def setup(self, reward_names: Sequence[str]) -> None:
        """Receive the names of the rewards in memory. Called once before the first episode.

        Args:
            reward_names: ``<environment uid>.<reward>`` for each column of :attr:`MemoryShard.rewards`.
        """

    def _introduce(self, agent: str, seed: int, muscle: Muscle) -> None:
        """Hook for adapters, called first: the agent's name, a seed, and the muscle of the same body."""

    def _memory_for(self, channels: Any) -> Memory | None:
        """Hook for adapters: return a memory for a body with these channels, or ``None`` for the usual one."""
        return None

    @abstractmethod
    def internal_reward(self, memory: Memory, **kwargs: Any) -> float | None:
        """Return the objective's value for the newest row of the memory.

        Args:
            memory: the rows of the muscle, oldest first. It must not be changed.
            kwargs: nothing at present; takes arguments of later releases.

        Returns:
            A number, the higher the better; or ``None`` if this step has no value, so that the brain does not
            learn from it.
        """
