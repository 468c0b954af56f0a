"""The acting part of an agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation

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
    #: whether the brain is told with each row what the muscle sees next (``Brain.next_observations``)
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
        """What this muscle saw and did."""
        return self._memory

    def setup(self) -> None:
        """Called once, before any model is loaded and before the first episode."""

    def prepare_model(self) -> None:
        """Restore a trained model; called after :meth:`setup` where the document says ``load``."""

    @abstractmethod
    def propose_actions(
        self, sensors: Sequence[SensorInformation], actuators_available: Sequence[ActuatorInformation]
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        """Return the set-points, and any data for the brain.

        Both sequences also have the attribute ``vector``: all values as one float64 vector (readings; for
        actuators assign the set-points to it).

        Args:
            sensors: the newest readings.
            actuators_available: what can be set. An actuator of which the value stays ``None`` gets no new
                set-point.

        Returns:
            The actuators, and data that the brain gets in ``thinking`` (or ``None``).
        """

    def update(self, update: Any) -> None:
        """Take over what the brain has learned."""

    def reset(self) -> None:
        """Called when an episode has ended and another one follows."""

    def teardown(self) -> None:
        """Called once, when the phase is over."""

    @classmethod
    def _expects_updates(cls) -> bool:
        """Whether it cannot learn without updates from a brain."""
        return cls.update is not Muscle.update

    def _introduce(self, agent: str, seed: int, *, loads: bool, taught: bool) -> None:
        """Hook for adapters, called first.

        ``seed`` is for global generators; ``loads``: the document says ``load``; ``taught``: the
        brain takes what the muscle's filters make of its data (:attr:`Brain._filters_muscle_data`).
        """

    def _memory_for(self, channels: Any) -> Memory | None:
        """Hook for adapters: return the memory for a body with these channels (``None``: the usual one)."""
        return None

    def _own_filters(self, filters: Sequence[Filter]) -> None:
        """Take the filters that belong to their muscle (:attr:`Filter._has_owner`); called before :meth:`setup`."""
        for one in filters:
            one._join()

    def _take_model(self, model: Any) -> None:
        """Hook for adapters: take the brain's model (:meth:`Brain._test_model`); called after :meth:`setup`."""

    def load(self, tag: str = "") -> Any:
        """Return the dump (a binary stream) that the document's ``load`` points to."""
        return BrainDumper.load_brain_dump(self._dumpers, tag)
