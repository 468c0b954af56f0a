"""The learning side of an agent: its brain, and what stands between the brain and the rows of its muscles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Brain, Experience
from palaestrai_mosaik.agent.filter import FilterChain
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types.arrays import FloatVector


class ExperienceSink(Protocol):
    """Where a body's rows go in train mode: to the brain, or to the process that has it."""

    #: what the brain reported about itself for the last row
    statistics: dict[str, Any]
    #: by muscle: what it reported for the rows of the last batch
    statistics_by_muscle: dict[str, dict[str, Any]]
    #: the number of updates so far
    updates: int

    @property
    def shared_updates(self) -> bool:
        """Whether what is learned from one body is for all bodies of the agent."""

    def learn(self, experience: Experience) -> Any:
        """Take a row; return the update for the muscle, or ``None``."""

    def learn_batch(self, experiences: Sequence[Experience]) -> Any:
        """Take the rows of alike bodies at one time, one each; return the newest update, or ``None``."""

    def mark_end(self, muscle: str, terminated: bool, truncated: bool, final: FloatVector) -> None:
        """Take note that the episode ended with the muscle's newest row, which was learned before."""

    def update_for(self, muscle: str) -> tuple[int, Any]:
        """Return the newest update that ``muscle`` shall have, and its number (0: none)."""

    def exchange(self, filters: Sequence[FilterChain]) -> None:
        """Take what the muscles' filters have learned, and give them what all have learned."""


def check_statistics(agent: str, muscle: Mapping[str, Any], brain: Mapping[str, Any]) -> None:
    """Raise :class:`ContractError` where muscle and brain report the same about one row."""
    twice = sorted(muscle.keys() & brain.keys())
    if twice:
        raise ContractError(f"muscle and brain of agent {agent!r} both report the statistic {twice[0]!r}")


class Learner:
    """An agent's brain, with what stands between it and the rows of its muscles."""

    def __init__(self, brain: Brain, filters: FilterChain | None = None):
        self.brain = brain
        self.filters = filters
        self.statistics: dict[str, Any] = {}
        self.statistics_by_muscle: dict[str, dict[str, Any]] = {}
        self._thinks_in_batches = (
            type(brain).thinking_batch is not Brain.thinking_batch and brain.shared_updates
        )
        #: the number of updates so far; what came before the first row, the newest for each
        #: muscle, and the newest of all, with their numbers
        self.updates = 0
        self.newest: dict[str, tuple[int, Any]] = {}
        self.first: tuple[int, Any] = (0, None)
        self.shared: tuple[int, Any] = (0, None)

    @property
    def shared_updates(self) -> bool:
        """See :class:`ExperienceSink`."""
        return self.brain.shared_updates

    def learn(self, experience: Experience) -> Any:
        """Let the brain think about ``experience``; return its update, or ``None``."""
        brain, filters = self.brain, self.filters
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
        if update is None:
            return None
        if filters is not None:
            update = filters.brain_post(update)
        self.updates += 1
        self.newest[row.muscle] = self.shared = (self.updates, update)
        return update

    def learn_batch(self, experiences: Sequence[Experience]) -> Any:
        """Let the brain think about rows, as :meth:`learn` does about one after the other.

        At once if the brain can (:meth:`Brain.thinking_batch`); all are of one memory.
        """
        self.statistics_by_muscle = {}
        if not experiences:
            return None
        brain, filters = self.brain, self.filters
        memory = brain._memories.get(experiences[0].muscle, brain._memory)
        if not self._thinks_in_batches or memory.size_limit < len(experiences):
            newest = None
            for experience in experiences:
                update = self.learn(experience)
                if self.statistics:
                    self.statistics_by_muscle[experience.muscle] = self.statistics
                if update is not None:
                    newest = update
            return newest
        rows = experiences if filters is None else [filters.brain_pre(one) for one in experiences]
        muscles = [row.muscle for row in rows]
        memory.append_experiences(rows)
        brain.next_observations = _following(rows)
        update = brain.thinking_batch(muscles, [row.data for row in rows])
        if brain._statistics or brain._reported:
            self.statistics_by_muscle = brain.pop_batch_statistics(muscles)
        if update is None:
            return None
        if filters is not None:
            update = filters.brain_post(update)
        self.updates += 1
        self.shared = (self.updates, update)
        return update

    def hand_out(self, update: Any) -> None:
        """Keep what the brain learned before the first row, for all muscles."""
        if update is not None:
            if self.filters is not None:
                update = self.filters.brain_post(update)
            self.updates += 1
            self.first = self.shared = (self.updates, update)

    def mark_end(self, muscle: str, terminated: bool, truncated: bool, final: FloatVector) -> None:
        """See :class:`ExperienceSink`."""
        self.brain.memory_of(muscle).mark_end(
            terminated=terminated, truncated=truncated, muscle=muscle, final_observations=final
        )

    def exchange(self, filters: Sequence[FilterChain]) -> None:
        """See :class:`ExperienceSink`."""
        told = [chain.news() for chain in filters]
        if self.filters is None or all(news is None for news in told):
            return
        for news in told:
            if news is not None:
                self.filters.learn(news)
        state = self.filters.state()
        for chain in filters:
            chain.set_state(state)

    def update_for(self, muscle: str) -> tuple[int, Any]:
        """Return the newest update that ``muscle`` shall have, and its number (0: none)."""
        return self.shared if self.brain.shared_updates else self.newest.get(muscle, self.first)


def _following(rows: Sequence[Experience]) -> npt.NDArray[np.float64] | None:
    """Return what the muscles of ``rows`` see next, (n, observations); NaN where it is not known."""
    known = [row.final_observations for row in rows]
    if all(one is None for one in known):
        return None
    unknown = np.full(len(rows[0].observations), np.nan)
    return np.array([unknown if one is None else one for one in known])
