"""The learning part of an agent, and the description of the agent's bodies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation

from .dumper import BrainDumper
from .filter import Filter
from .memory import Memory, MemoryShard
from .muscle import StatisticsMixin


def is_update(answer: Any) -> bool:
    """Return whether a brain's result is an update for the muscles, usually ``bool(answer)``.

    An array, a tensor or a frame always is, because its truth value says nothing about its meaning.

    Args:
        answer: the result of :meth:`Brain.thinking` or another method that may return an update.
    """
    if answer is None:
        return False
    if hasattr(answer, "__array__") and not isinstance(answer, np.generic):
        return True
    try:
        return bool(answer)
    except ValueError:  # sparse matrices have no truth value, like arrays
        return True


@dataclass(frozen=True, slots=True)
class BodyInformation:
    """One body of an agent; ``(agent, environment, number)`` is its place in the AEB space.

    Source: the seed "AEB Design" of SLM Lab.

    Attributes:
        agent: the name of the agent.
        environments: one uid; several are possible only if the agent has no ``bodies``.
        number: counts the agent's bodies in the document's order, from 0.
        group: identical for all bodies made from one entry of the document.
        muscles: the uid of its muscle in each worker.
        sensors: the muscle's sensors, with the names of the group's first body.
        actuators: the muscle's actuators, with the names of the group's first body.
        name: the label of its entry; ``None`` without one.
        replayed: whether its environment replays a recording, so that rows hold recorded actions.
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
        """The lengths of the muscle's observations and of its set-points."""
        return sum(s.space.size for s in self.sensors), sum(a.space.size for a in self.actuators)


class Brain(StatisticsMixin, ABC):
    """Learns from the experience of its muscles. ``thinking`` is mandatory.

    The constructor receives the document's ``params``; a subclass need not call
    ``super().__init__()``. The framework sets the attributes below before
    :meth:`setup`. An agent has one brain, independent of the number of workers. Calling order:
    ``setup``, ``load`` (if the document has ``load``), ``pretrain`` (if it has ``replay``) or
    ``initial_update``, then ``thinking`` for every row (or ``thinking_batch``); after each evaluation
    ``evaluated``; ``store`` for every snapshot and at the end of the phase. All but ``setup``, ``load`` and
    ``store`` are called in train mode only.
    """

    #: the agent's name
    name: str = ""
    #: seed for libraries that want an integer; :attr:`rng` is the generator
    seed: int = 0
    rng: np.random.Generator
    mode: Mode = Mode.TRAIN
    #: the channels of the agent's muscles; if bodies differ, those of the first one
    sensors: Sequence[SensorInformation] = ()
    actuators: Sequence[ActuatorInformation] = ()
    #: the agent's bodies in the document's order; at least one
    bodies: Sequence[BodyInformation] = ()
    #: Whether an update goes to all muscles of the agent. If several updates are made before the
    #: muscles receive one, they receive only the newest. If false, a muscle receives only the result
    #: of its own :meth:`thinking`.
    shared_updates: bool = True
    #: number of outstanding rows that are made before the muscles can receive an update
    rows_waiting: int = 0
    #: next observation of the newest row's muscle, if the episode ended or the muscle ``looks_ahead`` and
    #: acts at once; otherwise ``None``. In :meth:`thinking_batch`: one row for each muscle, NaN if
    #: unknown; ``None`` if unknown for all of them
    next_observations: npt.NDArray[np.float64] | None = None
    #: targets of :meth:`store` and sources of :meth:`load`
    _dumpers: Sequence[BrainDumper] = ()
    _memory: Memory
    #: the memories of bodies with rows of other sizes, by muscle
    _memories: Mapping[str, Memory] = MappingProxyType({})
    #: the statistics of a batch's rows, by muscle
    _reported: dict[str, dict[str, Any]] | None = None

    @property
    def memory(self) -> Memory:
        """The experience of all muscles of this agent in train mode, in a fixed order.

        If the rows of bodies differ in size, it holds only the bodies like the first one; the others
        have separate memories (:meth:`memory_of`).
        """
        return self._memory

    @property
    def memories(self) -> list[Memory]:
        """All memories: one for each size of the bodies' rows, :attr:`memory` first."""
        return list({id(memory): memory for memory in (self._memory, *self._memories.values())}.values())

    def memory_of(self, muscle_id: str) -> Memory:
        """Return the memory with the rows of a muscle.

        Args:
            muscle_id: the uid of the muscle.
        """
        return self._memories.get(muscle_id, self._memory)

    def muscles(self, environment: str | None = None, body: int | None = None) -> list[str]:
        """Return the ids of the muscles of some bodies in the AEB space, one for each worker.

        Args:
            environment: uid of an environment; ``None``: all.
            body: number of a body; ``None``: all.

        Returns:
            The uids, in the order of the bodies.

        Raises:
            ContractError: the agent has no such body.
        """
        uids = [uid for information in self.bodies for uid in information.environments]
        if environment is not None and environment not in uids:
            raise ContractError(
                f"agent {self.name!r} has no body in {environment!r}{did_you_mean(environment, uids)}"
            )
        muscles = [
            muscle
            for information in self.bodies
            if (environment is None or environment in information.environments)
            and body in (None, information.number)
            for muscle in information.muscles
        ]
        if not muscles:
            where = "" if environment is None else f" in {environment!r}"
            raise ContractError(
                f"agent {self.name!r} has no body {body}{where}; it has {len(self.bodies)} bodies, from 0"
            )
        return muscles

    def tail(self, n: int = 1, *, environment: str | None = None, body: int | None = None) -> MemoryShard:
        """Return the last rows of some bodies, oldest first.

        Args:
            n: number of rows.
            environment: uid of an environment; ``None``: all.
            body: number of a body; ``None``: all.

        Returns:
            At most ``n`` rows.

        Raises:
            ContractError: the agent has no such body, or the rows have different sizes.
        """
        muscles = self.muscles(environment, body)
        memories = {id(entry): entry for entry in map(self.memory_of, muscles)}
        if len(memories) > 1:
            raise ContractError(
                f"agent {self.name!r}: the rows of these bodies have different sizes; ask for one body, or for those "
                "of one environment"
            )
        (memory,) = memories.values()
        return memory.tail(n, include_only=frozenset(muscles))

    def setup(self) -> None:
        """Prepare for the phase. Called once before the first episode."""

    def initial_update(self) -> Any:
        """Return an update for the muscles before their first step in train mode, like that of :meth:`thinking`.

        Called after ``setup`` and ``load``, unless :meth:`pretrain` has returned an update.
        """

    @abstractmethod
    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        """Learn from the newest row of :attr:`memory`.

        Args:
            muscle_id: the uid of the muscle that made the row.
            data_from_muscle: the second result of the muscle's ``propose_actions``.

        Returns:
            The update, an argument for :meth:`Muscle.update`. A false value (``None``, ``{}``, ``[]``, ``0``,
            ``""``) is no update; arrays and tensors always are updates.
        """

    def thinking_batch(self, muscle_ids: Sequence[str], data_from_muscles: Sequence[Any]) -> Any:
        """Learn from the newest rows of several muscles: the last ``n`` rows of their memory.

        Optional, for speed: by default, :meth:`thinking` is called for each row. Called with one row from each
        of several identical bodies, all of one tick, if the brain has :attr:`shared_updates` and the memory has
        room for all rows. The brain must learn the same as from :meth:`thinking` row by row.

        Args:
            muscle_ids: the uids of the muscles, in the order of the rows.
            data_from_muscles: the second result of ``propose_actions`` of each.

        Returns:
            The last update that :meth:`thinking` would have returned; a false value is no update.

        Raises:
            NotImplementedError: the class does not override this method, and its rows come one by one.
        """
        raise NotImplementedError(f"{type(self).__name__} takes rows one by one")

    def add_statistics(
        self, key: str, value: Any, allow_overwrite: bool = False, *, muscle_id: str | None = None
    ) -> None:
        """Report a figure, such as a loss, for the current row.

        Args:
            key: the name of the figure.
            value: a number.
            allow_overwrite: whether an existing value of the row under this key is replaced.
            muscle_id: in :meth:`thinking_batch`, the muscle of the figure's row; ``None``: the last one.

        Raises:
            TypeError: ``value`` is not a number.
            KeyError: the row has that key already, and ``allow_overwrite`` is false.
        """
        if muscle_id is None:
            super().add_statistics(key, value, allow_overwrite)
            return
        if self._reported is None:
            self._reported = {}
        batch_statistics, self._statistics = self._statistics, self._reported.get(muscle_id)
        try:
            super().add_statistics(key, value, allow_overwrite)
            assert self._statistics is not None
            self._reported[muscle_id] = self._statistics
        finally:
            self._statistics = batch_statistics

    def pop_batch_statistics(self, muscle_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the statistics of each row of a batch since the last call, and clear them.

        Args:
            muscle_ids: the uids of the muscles, in the order of the rows.

        Returns:
            The figures by name, by the uid of the muscle.

        Raises:
            KeyError: the last row has one of the figures that were reported without a ``muscle_id`` already.
        """
        reported, self._reported = self._reported or {}, None
        if self._statistics:
            last = reported.setdefault(muscle_ids[-1], {})
            duplicates = sorted(last.keys() & self._statistics.keys())
            if duplicates:
                raise KeyError(f"statistic {duplicates[0]!r} was already reported for {muscle_ids[-1]!r}")
            last |= self.pop_statistics()
        return reported

    def pretrain(self) -> Any:
        """Learn offline from :attr:`memory`, which holds the trajectories of ``replay``.

        The result goes to all muscles before their first step, like an update.
        """

    def evaluated(self, metrics: Mapping[str, float]) -> Mapping[str, float] | None:
        """React to an evaluation.

        Statistics that are added here are recorded with the evaluation: the episode is its number, the
        step is the last one of the first worker.

        Args:
            metrics: the agent's metrics by name, see
                :class:`~palaestrai_mosaik.simulation.conditions.EvaluationView`.

        Returns:
            Further metrics by name, or ``None``.
        """
        return None

    #: hook for adapters: whether filters change the muscle's data for the brain
    _filters_muscle_data: ClassVar[bool] = False
    #: hook for adapters: whether users expect it to load the model of the phase before
    _continues: ClassVar[bool] = False

    def _introduce(self, loads: bool, run: str, instance: str, phase: int) -> None:
        """Hook for adapters, called before :meth:`setup`.

        ``loads``: whether the document has ``load``; ``run`` and ``instance`` are uids.
        """

    def _memory_for(self, channels: Any, body: BodyInformation) -> Memory:
        """Return a memory for the rows of bodies like ``body``."""
        return Memory()

    def _own_filters(self, filters: Sequence[Filter]) -> None:
        """Receive the filters that belong to their brain (:attr:`Filter._has_owner`); called before :meth:`setup`."""
        for owned_filter in filters:
            owned_filter._join()

    def _test_model(self) -> Any:
        """Hook for adapters: return the model for muscles in test mode (:meth:`Muscle._take_model`)."""
        return None

    def load(self) -> None:
        """Restore the model through ``self._dumpers``."""

    def store(self) -> None:
        """Save the model through ``self._dumpers``; called when a phase ends."""
