"""The learning part of an agent, and what it knows of the agent's bodies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import ContractError, did_you_mean
from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation

from .dumper import BrainDumper
from .filter import Filter
from .memory import Memory, MemoryShard
from .statistics import StatisticsMixin


@dataclass(frozen=True, slots=True)
class BodyInformation:
    """One body of an agent; ``(agent, environment, number)`` is its place in the AEB space.

    Source: the seed "AEB Design" of SLM Lab.

    Attributes:
        agent: the name of the agent.
        environments: one uid, unless the agent has no ``bodies``: then it may have several.
        number: counts the agent's bodies in the document's order, from 0.
        group: bodies with the same number are identical: they are of one entry of the document.
        muscles: the uid of its muscle in each worker.
        sensors: what the muscle sees of them, called as those of the group's first body.
        actuators: likewise.
        name: the label of its entry; ``None``: it has none.
        replayed: an environment that replays decides what is done there, so that rows hold others' actions.
    """

    agent: str
    environments: tuple[str, ...]
    number: int
    group: int
    muscles: tuple[str, ...]
    sensors: Sequence[SensorInformation]
    actuators: Sequence[ActuatorInformation]
    name: str | None = None
    replayed: bool = False

    @property
    def sizes(self) -> tuple[int, int]:
        """How many numbers the muscle sees, and how many it sets."""
        return sum(s.space.size for s in self.sensors), sum(a.space.size for a in self.actuators)


class Brain(StatisticsMixin, ABC):
    """Learns from what its muscles lived through. ``thinking`` is mandatory.

    The constructor receives the document's ``params``; a subclass need not call
    ``super().__init__()``. The framework sets the attributes below before
    :meth:`setup`. An agent has one brain, whatever the number of workers. Calling order:
    ``setup``, ``load`` (where the document says ``load``), ``pretrain`` (where it says
    ``replay``) or ``initial_update``, then ``thinking`` for every row (or ``thinking_batch``); after each evaluation ``evaluated``;
    ``store`` for every snapshot and at the end of the phase. All but ``setup``, ``load`` and
    ``store`` are called in train mode only.
    """

    #: the agent's name
    name: str = ""
    #: seed for libraries that want an integer; :attr:`rng` is the generator
    seed: int = 0
    rng: np.random.Generator
    mode: Mode = Mode.TRAIN
    #: what the agent's muscles can read and set (where bodies differ: those of the first one)
    sensors: Sequence[SensorInformation] = ()
    actuators: Sequence[ActuatorInformation] = ()
    #: the agent's bodies in the document's order; at least one
    bodies: Sequence[BodyInformation] = ()
    #: Whether an update goes to all muscles of the agent. Of several updates that are made
    #: before the muscles hear from the brain, they get the newest one. If false, a muscle
    #: gets only what :meth:`thinking` returned for that muscle.
    shared_updates: bool = True
    #: rows that were made before the muscles can hear of an update, and are still to come
    rows_waiting: int = 0
    #: what the muscle of the newest row sees next, if the episode ended, or if it is a muscle that
    #: ``looks_ahead`` and acts at once; else ``None``. In :meth:`thinking_batch`: one row for each
    #: muscle, NaN where it is not known; ``None`` where it is known for no muscle
    next_observations: npt.NDArray[np.float64] | None = None
    #: where :meth:`store` writes and :meth:`load` reads
    _dumpers: Sequence[BrainDumper] = ()
    _memory: Memory
    #: by muscle: the memories of bodies with rows of other sizes
    _memories: Mapping[str, Memory] = MappingProxyType({})
    #: by muscle: what was reported about its row of a batch
    _reported: dict[str, dict[str, Any]] | None = None

    @property
    def memory(self) -> Memory:
        """What all muscles of this agent lived through in train mode, in a fixed order.

        Where the rows of bodies have different sizes, those of bodies that are like the first
        one; the others have memories of their own (:meth:`memory_of`).
        """
        return self._memory

    @property
    def memories(self) -> list[Memory]:
        """All memories: one for each size of the bodies' rows, :attr:`memory` first."""
        return list({id(one): one for one in (self._memory, *self._memories.values())}.values())

    def memory_of(self, muscle_id: str) -> Memory:
        """Return the memory that has the rows of a muscle."""
        return self._memories.get(muscle_id, self._memory)

    def muscles(self, environment: str | None = None, body: int | None = None) -> list[str]:
        """Return the ids of the muscles (one for each worker) of bodies in the AEB space.

        Args:
            environment: uid of an environment; ``None``: all.
            body: number of a body; ``None``: all.

        Raises:
            ContractError: the agent has no such body.
        """
        uids = [uid for one in self.bodies for uid in one.environments]
        if environment is not None and environment not in uids:
            raise ContractError(
                f"agent {self.name!r} has no body in {environment!r}{did_you_mean(environment, uids)}"
            )
        found = [
            muscle
            for one in self.bodies
            if (environment is None or environment in one.environments) and body in (None, one.number)
            for muscle in one.muscles
        ]
        if not found:
            where = "" if environment is None else f" in {environment!r}"
            raise ContractError(
                f"agent {self.name!r} has no body {body}{where}; it has {len(self.bodies)} bodies, from 0"
            )
        return found

    def tail(self, n: int = 1, *, environment: str | None = None, body: int | None = None) -> MemoryShard:
        """Return the last rows of some bodies, oldest first.

        Args:
            n: number of rows.
            environment: uid of an environment; ``None``: all.
            body: number of a body; ``None``: all.

        Raises:
            ContractError: the agent has no such body, or the rows have different sizes.
        """
        muscles = self.muscles(environment, body)
        memories = {id(one): one for one in map(self.memory_of, muscles)}
        if len(memories) > 1:
            raise ContractError(
                f"agent {self.name!r}: the rows of these bodies have different sizes; ask for one body, or for those "
                "of one environment"
            )
        (memory,) = memories.values()
        return memory.tail(n, include_only=frozenset(muscles))

    def setup(self) -> None:
        """Called once before the first episode."""

    def initial_update(self) -> Any:
        """Return what the muscles get before their first step in train mode, like an update.

        Called after ``setup`` and ``load``, unless :meth:`pretrain` has given one.
        """

    @abstractmethod
    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        """Learn from the newest row of :attr:`memory`.

        Args:
            muscle_id: the uid of the muscle that made the row.
            data_from_muscle: the second result of the muscle's ``propose_actions``.

        Returns:
            The update that goes to :meth:`Muscle.update`, or ``None`` if there is none.
        """

    def thinking_batch(self, muscle_ids: Sequence[str], data_from_muscles: Sequence[Any]) -> Any:
        """Learn from the newest rows of several muscles: the last ``n`` rows of their memory.

        Optional, for speed: where a brain does not define it, :meth:`thinking` is called for each row. Called
        with the rows of one tick of identical bodies, one for each, if the brain has :attr:`shared_updates`
        and the memory has room for all of them. The brain must learn what it would have learned from
        :meth:`thinking` row by row.

        Args:
            muscle_ids: the uids of the muscles, in the order of the rows.
            data_from_muscles: the second result of ``propose_actions`` of each.

        Returns:
            The last update that :meth:`thinking` would have returned, or ``None``.
        """
        raise NotImplementedError(f"{type(self).__name__} takes rows one by one")

    def add_statistics(
        self, key: str, value: Any, allow_overwrite: bool = False, *, muscle_id: str | None = None
    ) -> None:
        """Report a figure, such as a loss, for the current row.

        Args:
            key: the name of the figure.
            value: a number.
            allow_overwrite: replace what the row has under this key already.
            muscle_id: in :meth:`thinking_batch`, the muscle with the row that the figure belongs to;
                ``None``: the last one.

        Raises:
            TypeError: ``value`` is no number.
            KeyError: the row has that key already, and ``allow_overwrite`` is false.
        """
        if muscle_id is None:
            super().add_statistics(key, value, allow_overwrite)
            return
        if self._reported is None:
            self._reported = {}
        common, self._statistics = self._statistics, self._reported.get(muscle_id)
        try:
            super().add_statistics(key, value, allow_overwrite)
            assert self._statistics is not None
            self._reported[muscle_id] = self._statistics
        finally:
            self._statistics = common

    def pop_batch_statistics(self, muscle_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return what was reported about each row of a batch since the last call, and forget it."""
        found, self._reported = self._reported or {}, None
        if self._statistics:
            last = found.setdefault(muscle_ids[-1], {})
            twice = sorted(last.keys() & self._statistics.keys())
            if twice:
                raise KeyError(f"statistic {twice[0]!r} was already reported for {muscle_ids[-1]!r}")
            last |= self.pop_statistics()
        return found

    def pretrain(self) -> Any:
        """Learn offline from :attr:`memory`, which holds the trajectories of ``replay``.

        What is returned goes to all muscles before their first step, like an update.
        """

    def evaluated(self, metrics: Mapping[str, float]) -> Mapping[str, float] | None:
        """Take note of an evaluation's ``metrics``; return further ones, if any.

        See :class:`~palaestrai_mosaik.simulation.conditions.EvaluationView` for what they are.
        Statistics that are added here are recorded with the evaluation: its number is the
        episode, the step is the last one of the first worker's.
        """
        return None

    #: hook for adapters: filters change what the muscle gives for the brain
    _filters_muscle_data: ClassVar[bool] = False
    #: hook for adapters: users expect that it loads what the phase before has learned
    _continues: ClassVar[bool] = False

    def _introduce(self, loads: bool, run: str, instance: str, phase: int) -> None:
        """Hook for adapters, called before :meth:`setup`.

        ``loads``: the document says ``load``; the rest are uids and the phase's number.
        """

    def _memory_for(self, channels: Any, body: BodyInformation) -> Memory:
        """Return a memory for the rows of bodies like ``body``."""
        return Memory()

    def _own_filters(self, filters: Sequence[Filter]) -> None:
        """Take the filters that belong to their brain (:attr:`Filter._has_owner`); called before :meth:`setup`."""
        for one in filters:
            one._join()

    def _test_model(self) -> Any:
        """Hook for adapters: return the model that muscles take in test mode (:meth:`Muscle._take_model`)."""
        return None

    def load(self) -> None:
        """Restore the model through ``self._dumpers``."""

    def store(self) -> None:
        """Save the model through ``self._dumpers``; called when a phase ends."""
