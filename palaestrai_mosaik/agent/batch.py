"""Muscles and objectives that serve many bodies at once, with arrays.

A :class:`BatchMuscle` acts for all identical bodies of an agent in a batched environment with one call.
With any other muscle, every body has its own object, and they are called one after the other. Both give
the same set-points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types import ActuatorInformation, SensorInformation
from palaestrai_mosaik.types.arrays import FloatMatrix, IndexVector
from palaestrai_mosaik.types.vectors import Layout

from .muscle import Muscle
from .objective import Objective


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
