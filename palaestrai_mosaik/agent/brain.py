"""The learning part of an agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation

from .dumper import BrainDumper
from .memory import Memory
from .statistics import StatisticsMixin


class Brain(StatisticsMixin, ABC):
    """Learns from what its muscles lived through. ``thinking`` is mandatory.

    The constructor receives the document's ``params``; a subclass need not call
    ``super().__init__()``. The framework sets the attributes below before
    :meth:`setup`. An agent has one brain, whatever the number of workers. Calling order:
    ``setup``, ``load`` (where the document says ``load``), ``pretrain`` (where it says
    ``replay``) or ``initial_update``, then ``thinking`` for every row; after each evaluation ``evaluated``;
    ``store`` for every snapshot and at the end of the phase. All but ``setup``, ``load`` and
    ``store`` are called in train mode only.
    """

    #: the agent's name
    name: str = ""
    #: seed for libraries that want an integer; :attr:`rng` is the generator
    seed: int = 0
    rng: np.random.Generator
    mode: Mode = Mode.TRAIN
    #: what the agent's muscles can read and set
    sensors: Sequence[SensorInformation] = ()
    actuators: Sequence[ActuatorInformation] = ()
    #: Whether an update goes to all muscles of the agent. Of several updates that are made
    #: before the muscles hear from the brain, they get the newest one. If false, a muscle
    #: gets only what :meth:`thinking` returned for that muscle.
    shared_updates: bool = True
    #: rows that were made before the muscles can hear of an update, and are still to come
    rows_waiting: int = 0
    #: what the muscle of the newest row sees next, if the episode ended, or if it is a muscle that
    #: ``looks_ahead`` and acts at once; else ``None``
    next_observations: npt.NDArray[np.float64] | None = None
    #: where :meth:`store` writes and :meth:`load` reads
    _dumpers: Sequence[BrainDumper] = ()
    _memory: Memory

    @property
    def memory(self) -> Memory:
        """What all muscles of this agent lived through in train mode, in a fixed order."""
        return self._memory

    def setup(self) -> None:
        """Called once before the first episode."""

    def initial_update(self) -> Any:
        """Return what the muscles get before their first step in train mode, like an update.

        Called after ``setup`` and ``load``, unless :meth:`pretrain` has given one.
        """

    @abstractmethod
    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        """Learn from the newest row of :attr:`memory`.

        ``data_from_muscle`` is the second result of the muscle's ``propose_actions``. What
        is returned goes to :meth:`Muscle.update`, unless it is ``None``, or false. Arrays always go.
        """

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

    def load(self) -> None:
        """Restore the model through ``self._dumpers``."""

    def store(self) -> None:
        """Save the model through ``self._dumpers``; called when a phase ends."""
