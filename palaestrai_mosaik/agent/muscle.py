"""The acting part of an agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.types import ActuatorInformation, ActuatorSetpoints, Mode, SensorReadings

from .dumper import BrainDumper
from .filter import Filter
from .memory import Memory
from .statistics import StatisticsMixin


class Muscle(StatisticsMixin, ABC):
    """Maps sensor readings to set-points. ``propose_actions`` is mandatory.

    The constructor receives the document's ``params``; a subclass need not call
    ``super().__init__()``. The framework sets the attributes below before
    :meth:`setup`. Calling order: ``setup``, ``prepare_model``, then per episode
    ``propose_actions`` and (in train mode) ``update`` for every step, then ``reset``;
    ``teardown`` at the end of the phase.
    """

    #: unique id of the muscle: agent name and worker index
    uid: str = ""
    #: train (explore) or test (exploit)
    mode: Mode = Mode.TRAIN
    #: whether the brain receives the muscle's next observation with each row (``Brain.next_observations``)
    looks_ahead: bool = False
    #: the muscle's own generator, new for every episode
    rng: np.random.Generator
    _memory: Memory
    _dumpers: Sequence[BrainDumper] = ()

    @property
    def name(self) -> str:
        """The muscle's :attr:`uid`."""
        return self.uid

    @property
    def memory(self) -> Memory:
        """The rows of this muscle."""
        return self._memory

    def setup(self) -> None:
        """Prepare for the phase. Called once, before any model is loaded and before the first episode."""

    def prepare_model(self) -> None:
        """Restore a trained model; called after :meth:`setup` if the document has ``load``."""

    @abstractmethod
    def propose_actions(
        self, sensors: SensorReadings, actuators_available: ActuatorSetpoints
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        """Return the set-points, and any data for the brain.

        Both are sequences of objects, and also have the attribute ``vector``: all values as one float64 vector.
        Read the readings from it, or assign the set-points to it.

        Args:
            sensors: the newest readings.
            actuators_available: the actuators to set. An actuator that keeps the value ``None`` receives no
                new set-point.

        Returns:
            The actuators, and data for the brain's ``thinking``, or ``None``.
        """

    def update(self, update: Any) -> None:
        """Apply an update of the brain.

        Args:
            update: the result of :meth:`Brain.thinking`. It may be shared with other muscles, so it must not be
                changed.
        """

    def reset(self) -> None:
        """Prepare for another episode. Called when an episode has ended and another one follows."""

    def teardown(self) -> None:
        """Release resources. Called once, when the phase is over."""

    @classmethod
    def _expects_updates(cls) -> bool:
        """Return whether it cannot learn without updates from a brain."""
        return cls.update is not Muscle.update

    def _introduce(self, agent: str, seed: int, *, loads: bool, taught: bool) -> None:
        """Hook for adapters, called first.

        ``seed`` is for global generators; ``loads``: whether the document has ``load``; ``taught``: whether
        the brain receives the muscle's data from its filters (:attr:`Brain._filters_muscle_data`).
        """

    def _memory_for(self, channels: Any) -> Memory | None:
        """Hook for adapters: return a memory for a body with these channels, or ``None`` for the usual one."""
        return None

    def _own_filters(self, filters: Sequence[Filter]) -> None:
        """Receive the filters that belong to their muscle (:attr:`Filter._has_owner`); called before :meth:`setup`."""
        for owned_filter in filters:
            owned_filter._join()

    def _take_model(self, model: Any) -> None:
        """Hook for adapters: receive the brain's model (:meth:`Brain._test_model`); called after :meth:`setup`."""

    def load(self, tag: str = "") -> Any:
        """Return the dump that the document's ``load`` refers to, a binary stream.

        Args:
            tag: the tag with which the brain saved it; empty for none.

        Raises:
            BrainDumpError: there is no such dump, or it is damaged.
        """
        return BrainDumper.load_brain_dump(self._dumpers, tag)
