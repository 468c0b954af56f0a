"""What an agent wants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from .memory import Memory
from .muscle import Muscle


class Objective(ABC):
    """Computes how well the agent does, from its memory. ``internal_reward`` is mandatory."""

    def __init__(self, params: dict[str, Any] | None = None):
        self.params: dict[str, Any] = {} if params is None else params

    def setup(self, reward_names: Sequence[str]) -> None:
        """Called once before the first episode with the names of the rewards in memory.

        A name is ``<environment uid>.<reward>``; the order is that of the columns of
        :attr:`MemoryShard.rewards`.
        """

    def _introduce(self, agent: str, seed: int, muscle: Muscle) -> None:
        """Hook for adapters, called first: the agent's name, a seed, and the muscle of the same body."""

    def _memory_for(self, channels: Any) -> Memory | None:
        """Hook for adapters: return the memory for a body with these channels (``None``: the usual one)."""
        return None

    @abstractmethod
    def internal_reward(self, memory: Memory, **kwargs: Any) -> float | None:
        """Return the objective's value for the newest row of ``memory``.

        ``None`` means that there is no value for this step: nothing is learned from it.
        """
