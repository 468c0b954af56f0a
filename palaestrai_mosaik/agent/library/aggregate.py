"""An objective that aggregates named rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent.memory import Memory
from palaestrai_mosaik.agent.muscle import BatchObjective, BatchRows
from palaestrai_mosaik.core.errors import ContractError, did_you_mean

AGGREGATIONS: dict[str, Callable[..., Any]] = {"sum": np.sum, "mean": np.mean, "min": np.min, "max": np.max}


class AggregateRewardsObjective(BatchObjective):
    """``factor`` times an aggregate of some rewards.

    Args:
        rewards: one name or a list of names, as the environment declares them.
        aggregation: ``sum``, ``mean``, ``min`` or ``max``.
        factor: multiplies the aggregate; -1 turns a reward into a cost.
    """

    def __init__(self, rewards: str | Sequence[str], aggregation: str = "sum", factor: float = 1.0):
        super().__init__({"rewards": rewards, "aggregation": aggregation, "factor": factor})
        if aggregation not in AGGREGATIONS:
            raise ContractError(
                f"aggregation {aggregation!r} is not one of {', '.join(AGGREGATIONS)}"
                + did_you_mean(aggregation, AGGREGATIONS)
            )
        self.rewards = [rewards] if isinstance(rewards, str) else list(rewards)
        self.factor = float(factor)
        self._aggregate = AGGREGATIONS[aggregation]
        self._columns: list[int] = []

    def setup(self, reward_names: Sequence[str]) -> None:
        """Look up the columns of the rewards. Called once by the framework."""
        self._columns = []
        for name in self.rewards:
            matches = [
                i
                for i, reward_name in enumerate(reward_names)
                if reward_name == name or reward_name.endswith(f".{name}")
            ]
            if len(matches) != 1:
                raise ContractError(
                    f"reward {name!r} names {len(matches)} of the rewards that the agent receives: "
                    f"{', '.join(reward_names) or 'none'}" + did_you_mean(name, reward_names)
                )
            self._columns += matches

    def internal_reward(self, memory: Memory, **kwargs: Any) -> float:
        row = memory.tail(1).rewards[-1]
        if len(self._columns) == 1:
            # all aggregates of one value equal it
            return self.factor * float(row[self._columns[0]])
        return self.factor * float(self._aggregate(row[self._columns]))

    def internal_rewards(self, rows: BatchRows) -> npt.ArrayLike:
        if len(self._columns) == 1:
            return self.factor * rows.rewards[:, self._columns[0]]
        # contiguous rows, so that a row is summed in the same order as alone
        columns = np.ascontiguousarray(rows.rewards[:, self._columns])
        return self.factor * np.asarray(self._aggregate(columns, axis=1))
