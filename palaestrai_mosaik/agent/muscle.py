"""Muscles and objectives, for one body or for many at once."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.core.printing import shorten
from palaestrai_mosaik.types import (
    ActuatorInformation,
    ActuatorSetpoints,
    Mode,
    SensorInformation,
    SensorReadings,
)
from palaestrai_mosaik.types.arrays import FloatMatrix, IndexVector
from palaestrai_mosaik.types.vectors import Layout

from .dumper import BrainDumper
from .filter import Filter
from .memory import Memory


class StatisticsMixin:
    """Collects named figures until the framework takes them, after every step."""

    _statistics: dict[str, Any] | None = None

    def add_statistics(self, key: str, value: Any, allow_overwrite: bool = False) -> None:
        """Report a figure, such as a loss, for the current step.

        For a muscle, the current step is that of its action; for a brain, the row of the current ``thinking``, or the
        evaluation of ``evaluated``. Figures that a brain reports in other methods belong to its next call of
        these, and are lost if there is none.

        Args:
            key: the name of the figure.
            value: a number.
            allow_overwrite: whether an existing value of the step under this key is replaced.

        Raises:
            TypeError: ``value`` is not a number.
            KeyError: the step has that key already, and ``allow_overwrite`` is false.
        """
        try:
            number = float(value) if not isinstance(value, str | bytes) else None
        except (TypeError, ValueError):
            number = None
        if number is None:
            raise TypeError(f"statistic {key!r} must be a number, not {value!r}")
        if self._statistics is None:
            self._statistics = {}
        if not allow_overwrite and key in self._statistics:
            raise KeyError(f"statistic {key!r} was already reported in this step")
        self._statistics[key] = number

    def pop_statistics(self) -> dict[str, Any]:
        """Return the figures reported since the last call, and clear them."""
        statistics, self._statistics = self._statistics, None
        return statistics or {}


def proposal(answer: Any) -> tuple[Any, Any]:
    """Return the result of ``propose_actions``: the actuators, and the data for the brain.

    Raises:
        ContractError: it is not a pair.
    """
    if not isinstance(answer, tuple | list) or len(answer) != 2 or isinstance(answer[0], ActuatorInformation):
        raise ContractError(
            f"propose_actions must return (actuators, data), not {_shown(answer)}; write `return "
            "actuators_available, None`, or the data for the brain instead of None"
        )
    return answer[0], answer[1]


def objective_value(answer: Any) -> float:
    """Convert the result of ``internal_reward`` to a float, NaN for ``None``.

    Raises:
        ContractError: it is not a number.
    """
    if answer is None:
        return math.nan
    number = isinstance(answer, int | float | np.integer | np.floating) and not isinstance(answer, bool)
    if not number and not (
        isinstance(answer, np.ndarray) and answer.size == 1 and answer.dtype.kind in "fiu"
    ):
        raise ContractError(
            f"internal_reward must return a number or None, not {_shown(answer)}; of several values, return their sum, "
            "for example"
        )
    return float(answer.item() if isinstance(answer, np.ndarray) else answer)


def _shown(answer: Any) -> str:
    return "None (is a return missing?)" if answer is None else shorten(repr(answer), 120)


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
        """Return whether the muscle needs updates from a brain to learn."""
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


class Objective(ABC):
    """Computes the agent's success from its memory. ``internal_reward`` is mandatory.

    Args:
        params: parameters of the objective by name, kept as :attr:`params`; empty by default.
    """

    def __init__(self, params: dict[str, Any] | None = None):
        self.params: dict[str, Any] = {} if params is None else params

    def setup(self, reward_names: Sequence[str]) -> None:
        """Receive the names of the rewards in memory. Called once before the first episode.

        Args:
            reward_names: ``<environment uid>.<reward>`` for each column of :attr:`MemoryShard.rewards`.
        """

    def _introduce(self, agent: str, seed: int, muscle: Muscle) -> None:
        """Hook for adapters, called first: the agent's name, a seed, and the muscle of the same body."""

    def _memory_for(self, channels: Any) -> Memory | None:
        """Hook for adapters: return a memory for a body with these channels, or ``None`` for the usual one."""
        return None

    @abstractmethod
    def internal_reward(self, memory: Memory, **kwargs: Any) -> float | None:
        """Return the objective's value for the newest row of the memory.

        Args:
            memory: the rows of the muscle, oldest first. It must not be changed.
            kwargs: nothing at present; takes arguments of later releases.

        Returns:
            A number, the higher the better; or ``None`` if this step has no value, so that the brain does not
            learn from it.
        """


@dataclass(slots=True)
class BatchReadings:
    """The observations of ``n`` bodies of a muscle at one time.

    Attributes:
        observations: (n, observations), read-only: a row for each body.
        bodies: (n,): indices of the bodies among those of the muscle (:attr:`BatchMuscle.rngs`), ascending.
        sensors: the channels of the first body.
        actuators: the channels of the first body; their spaces are the same for all bodies.
    """

    observations: FloatMatrix
    bodies: IndexVector
    sensors: Layout
    actuators: Layout

    def offered(self) -> tuple[list[SensorInformation], list[ActuatorInformation]]:
        """Return the channels of one body as objects, without values."""
        sensors, actuators = self.sensors, self.actuators
        return (
            [SensorInformation(None, s, u) for s, u in zip(sensors.spaces, sensors.uids, strict=True)],
            [ActuatorInformation(None, s, u) for s, u in zip(actuators.spaces, actuators.uids, strict=True)],
        )


class BatchMuscle(Muscle, ABC):
    """A muscle that may act for many bodies at once; ``propose_actions`` serves a single one.

    One object then acts for all bodies. It has no :attr:`memory` of their rows, and
    :attr:`rng` is that of the first; :meth:`update` is called once for all.
    """

    #: one generator for each body, new for every episode of the phase
    rngs: Sequence[np.random.Generator] = ()

    @abstractmethod
    def propose_batch(self, batch: BatchReadings) -> tuple[npt.ArrayLike, Sequence[Any] | None]:
        """Return the set-points of many bodies, and data for the brain.

        The result for a body must equal that of :meth:`propose_actions`, must
        not depend on the other bodies, and must draw random numbers only from the body's own generator.

        Args:
            batch: the observations of ``n`` bodies.

        Returns:
            The set-points, (n, set-points), with NaN for no new set-point; and data for the brain, one entry
            for each body, or ``None``.
        """

    def update_body(self, body: int, update: Any) -> None:
        """Apply an update of the brain to one body.

        Called instead of :meth:`update` if the brain's updates are not shared
        (:attr:`Brain.shared_updates`).

        Args:
            body: the index of the body.
            update: the brain's update for it.

        Raises:
            NotImplementedError: the class does not override this method.
        """
        raise NotImplementedError(
            f"{type(self).__name__} acts for many bodies, and its brain has an update for each of them: it needs "
            "update_body"
        )

    def reset_bodies(self, bodies: IndexVector) -> None:
        """Prepare some bodies for another episode.

        :meth:`reset` is called instead if all of them start an episode of the phase.

        Args:
            bodies: (n,), the indices of the bodies.
        """


#: index of the only body
_ONLY = np.zeros(1, dtype=np.intp)


class ArrayMuscle(BatchMuscle, ABC):
    """A muscle that only acts through ``propose_batch``: a single body is a batch of one."""

    def propose_actions(
        self, sensors: SensorReadings, actuators_available: ActuatorSetpoints
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        # A muscle that another one creates has no generator, and needs none unless it draws.
        rng = getattr(self, "rng", None)
        if rng is not None and (not self.rngs or self.rngs[0] is not rng):
            self.rngs = (rng,)
        readings = sensors.vector[np.newaxis]
        setpoints, data = self.propose_batch(
            BatchReadings(readings, _ONLY, sensors._layout, actuators_available._layout)
        )
        actuators_available.vector = np.asarray(setpoints)[0]
        return actuators_available, None if data is None else data[0]


@dataclass(slots=True)
class BatchRows:
    """The newest rows of ``n`` bodies.

    Attributes:
        readings: (n, readings).
        setpoints: (n, set-points).
        rewards: (n, rewards).
        bodies: (n,), as in :class:`BatchReadings`.
    """

    readings: FloatMatrix
    setpoints: FloatMatrix
    rewards: FloatMatrix
    bodies: IndexVector


class BatchObjective(Objective, ABC):
    """An objective that needs only the newest row, and computes it for many bodies at once."""

    @abstractmethod
    def internal_rewards(self, rows: BatchRows) -> npt.ArrayLike:
        """Return the objective's value for each row.

        Args:
            rows: the newest rows of ``n`` bodies.

        Returns:
            The values, (n,), with NaN for no value.
        """
