"""The learning side of an agent: its brain, and the code between the brain and its muscles' rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Brain, Experience, is_update
from palaestrai_mosaik.agent.filter import FilterChain
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types.arrays import FloatVector


class ExperienceSink(Protocol):
    """The receiver of a body's rows in train mode: the brain, or a proxy in another process."""

    #: statistics of the brain for the last row
    statistics: dict[str, Any]
    #: statistics of the brain for the rows of the last batch, by muscle
    statistics_by_muscle: dict[str, dict[str, Any]]
    #: the number of updates so far
    updates: int

    @property
    def shared_updates(self) -> bool:
        """Whether updates from one body are for all bodies of the agent."""

    def learn(self, experience: Experience) -> Any:
        """Process a row; return the update for the muscle, or ``None``."""

    def learn_batch(self, experiences: Sequence[Experience]) -> Any:
        """Process one row of each of several identical bodies; return the newest update, or ``None``."""

    def mark_end(self, muscle: str, terminated: bool, truncated: bool, final: FloatVector) -> None:
        """Mark the muscle's newest row, which was already learned, as the end of the episode."""

    def update_for(self, muscle: str) -> tuple[int, Any]:
        """Return the newest update for ``muscle`` and its number (0: none)."""

    def exchange(self, filters: Sequence[FilterChain]) -> None:
        """Collect the news of the muscles' filters, and set their common state."""


def check_statistics(agent: str, muscle: Mapping[str, Any], brain: Mapping[str, Any]) -> None:
    """Raise :class:`ContractError` if muscle and brain report the same statistic for a row."""
    duplicates = sorted(muscle.keys() & brain.keys())
    if duplicates:
        raise ContractError(
            f"muscle and brain of agent {agent!r} both report the statistic {duplicates[0]!r}"
        )


#: types of updates with a fast truth value, for the check at every step
_PLAIN = frozenset({dict, list, tuple, int, float, bool, str})


class Learner:
    """An agent's brain, with the filters between it and its muscles' rows."""

    def __init__(self, brain: Brain, filters: FilterChain | None = None):
        self.brain = brain
        self.filters = filters
        self.statistics: dict[str, Any] = {}
        self.statistics_by_muscle: dict[str, dict[str, Any]] = {}
        self._thinks_in_batches = (
            type(brain).thinking_batch is not Brain.thinking_batch and brain.shared_updates
        )
        #: the number of updates so far; below, with their numbers: the newest update for each muscle, the
        #: one before the first row, and the newest of all
        self.updates = 0
        self.newest: dict[str, tuple[int, Any]] = {}
        self.first: tuple[int, Any] = (0, None)
        self.shared: tuple[int, Any] = (0, None)
        #: the type of the first false value other than ``None`` that the brain returned
        self.refused: type | None = None

    @property
    def shared_updates(self) -> bool:
        """See :class:`ExperienceSink`."""
        return self.brain.shared_updates

    def learn(self, experience: Experience) -> Any:
        """Pass ``experience`` to the brain; return its update, or ``None``."""
        brain, filters = self.brain, self.filters
        if brain.rows_waiting:
            brain.rows_waiting -= 1
        row = experience if filters is None else filters.brain_pre(experience)
        memory = brain._memories.get(row.muscle, brain._memory)
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
        self.statistics = brain.pop_statistics() if brain._statistics else {}
        if update is not None and (filters is not None or type(update) not in _PLAIN or not update):
            update = self._update(update)
        if update is None:
            return None
        self.updates += 1
        self.newest[row.muscle] = self.shared = (self.updates, update)
        return update

    def learn_batch(self, experiences: Sequence[Experience]) -> Any:
        """Pass rows to the brain, like :meth:`learn` one after the other.

        Uses :meth:`Brain.thinking_batch` if the brain has it; all rows belong to one memory.
        """
        self.statistics_by_muscle = {}
        if not experiences:
            return None
        brain, filters = self.brain, self.filters
        memory = brain._memories.get(experiences[0].muscle, brain._memory)
        if not self._thinks_in_batches or memory.size_limit < len(experiences):
            return self._learn_in_turn(experiences)
        rows = experiences if filters is None else [filters.brain_pre(item) for item in experiences]
        muscles = [row.muscle for row in rows]
        brain.rows_waiting = max(brain.rows_waiting - len(rows), 0)
        memory.append_experiences(rows)
        brain.next_observations = _following(rows)
        update = brain.thinking_batch(muscles, [row.data for row in rows])
        if brain._statistics or brain._reported:
            self.statistics_by_muscle = brain.pop_batch_statistics(muscles)
        update = self._update(update)
        if update is None:
            return None
        self.updates += 1
        self.shared = (self.updates, update)
        return update

    def _learn_in_turn(self, experiences: Sequence[Experience]) -> Any:
        newest = None
        for experience in experiences:
            update = self.learn(experience)
            if self.statistics:
                self.statistics_by_muscle[experience.muscle] = self.statistics
            if update is not None:
                newest = update
        return newest

    def hand_out(self, update: Any) -> None:
        """Store an update from before the first row, for all muscles."""
        update = self._update(update)
        if update is not None:
            self.updates += 1
            self.first = self.shared = (self.updates, update)

    def _update(self, answer: Any) -> Any:
        """Return the update after the filters, or ``None`` if the answer or the filtered update is false."""
        if answer is None:
            return None
        if not is_update(answer):
            if self.refused is None:
                self.refused = type(answer)
            return None
        if self.filters is None:
            return answer
        update = self.filters.brain_post(answer)
        return update if is_update(update) else None

    def mark_end(self, muscle: str, terminated: bool, truncated: bool, final: FloatVector) -> None:
        """See :class:`ExperienceSink`."""
        self.brain.memory_of(muscle).mark_end(
            terminated=terminated, truncated=truncated, muscle=muscle, final_observations=final
        )

    def exchange(self, filters: Sequence[FilterChain]) -> None:
        """See :class:`ExperienceSink`."""
        all_news = [chain.news() for chain in filters]
        if self.filters is None or all(news is None for news in all_news):
            return
        for news in all_news:
            if news is not None:
                self.filters.learn(news)
        state = self.filters.state()
        for chain in filters:
            chain.set_state(state)

    def update_for(self, muscle: str) -> tuple[int, Any]:
        """Return the newest update for ``muscle`` and its number (0: none)."""
        return self.shared if self.brain.shared_updates else self.newest.get(muscle, self.first)


def _following(rows: Sequence[Experience]) -> npt.NDArray[np.float64] | None:
    """Return the next observations of the muscles of ``rows``, (n, observations), NaN if unknown."""
    observations = [row.final_observations for row in rows]
    if all(observation is None for observation in observations):
        return None
    unknown = np.full(len(rows[0].observations), np.nan)
    return np.array([unknown if observation is None else observation for observation in observations])
