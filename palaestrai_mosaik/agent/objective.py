"""What an agent wants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from .memory import Memory


class Objective(ABC):
    """Computes how well the agent does, from its memory. ``internal_reward`` is mandatory."""

    def __init__(self, params: dict[str, Any] | None = None):
        self.params: dict[str, Any] = {} if params is None else params

    def setup(self, reward_names: Sequence[str]) -> None:
        """Called once before the first episode with the names of the rewards in memory.

        A name is ``<environment uid>.<reward>``; the order is that of the columns of
        :attr:`MemoryShard.rewards`.
        """

    @abstractmethod
    def internal_reward(self, memory: Memory, **kwargs: Any) -> float | None:
        """Return the objective's value for the newest row of ``memory``.

        ``None`` means that there is no value for this step: nothing is learned from it.
        """
