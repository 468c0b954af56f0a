"""The learning side of an agent in a world: where the rows of its bodies go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Brain, Experience
from palaestrai_mosaik.agent.filter import FilterChain

FloatVector = npt.NDArray[np.float64]


class Learning(Protocol):
    """Where a body's rows go in train mode: to the brain, or to the process that has it."""

    #: what the brain told about itself when it took the last row
    told: dict[str, Any]

    def learn(self, experience: Experience) -> Any:
        """Take a row; return the update for the muscle, or ``None``."""

    def learn_batch(self, experiences: Sequence[Experience]) -> Any:
        """Take the rows of several bodies at one time; return the newest update, or ``None``."""

    def mark_end(self, muscle: str, terminated: bool, truncated: bool, final: FloatVector) -> None:
        """Take note that the episode ended with the muscle's newest row, which was learned before."""

    def exchange(self, filters: FilterChain) -> None:
        """Take what a muscle's filters have learned, and give them what all have learned."""


class Learner:
    """An agent's brain, with what stands between it and the rows of its muscles."""

    def __init__(self, brain: Brain, filters: FilterChain | None = None):
        self.brain = brain
        self.filters = filters
        self.told: dict[str, Any] = {}
        #: the number of updates so far; what came before the first row, the newest for each
        #: muscle, and the newest of all, with their numbers
        self.updates = 0
        self.newest: dict[str, tuple[int, Any]] = {}
        self.first: tuple[int, Any] = (0, None)
        self.shared: tuple[int, Any] = (0, None)

    def learn(self, experience: Experience) -> Any:
        """Let the brain think about ``experience``; return its update, or ``None``."""
        brain, filters = self.brain, self.filters
        row = experience if filters is None else filters.brain_pre(experience)
        memory = brain._memory
        memory.append(
            row.readings,
            row.setpoints,
            row.rewards,
            row.data,
            row.objective,
            muscle=row.muscle,
            observations=None if row.observations is row.readings else row.observations,
            actions=None if row.actions is row.setpoints else row.actions,
        )
        if row.terminated or row.truncated:
            memory.mark_end(
                terminated=row.terminated, truncated=row.truncated, final_observations=row.final_observations
            )
        brain.next_observations = row.final_observations
        update = brain.thinking(row.muscle, row.data)
        self.told = brain.pop_statistics() if brain._statistics else {}
        # arrays and frames are always given: their truth value says nothing, if they have one
        if not (hasattr(update, "__array__") or update):
            return None
        if filters is not None:
            update = filters.brain_post(update)
        self.updates += 1
        self.newest[row.muscle] = self.shared = (self.updates, update)
        return update

    def learn_batch(self, experiences: Sequence[Experience]) -> Any:
        """See :class:`Learning`."""
        newest = None
        for experience in experiences:
            update = self.learn(experience)
            if update is not None:
                newest = update
        return newest

    def hand_out(self, update: Any) -> None:
        """Keep what the brain learned before the first row, for all muscles."""
        if hasattr(update, "__array__") or update:
            if self.filters is not None:
                update = self.filters.brain_post(update)
            self.updates += 1
            self.first = self.shared = (self.updates, update)

    def mark_end(self, muscle: str, terminated: bool, truncated: bool, final: FloatVector) -> None:
        """See :class:`Learning`."""
        self.brain._memory.mark_end(
            terminated=terminated, truncated=truncated, muscle=muscle, final_observations=final
        )

    def exchange(self, filters: FilterChain) -> None:
        """See :class:`Learning`."""
        news = filters.news()
        if news is not None and self.filters is not None:
            self.filters.learn(news)
            filters.set_state(self.filters.state())

    def update_for(self, muscle: str) -> tuple[int, Any]:
        """Return the newest update that ``muscle`` shall have, and its number (0: none)."""
        return self.shared if self.brain.shared_updates else self.newest.get(muscle, self.first)
