"""How far readings are from a target: as a difference, in absolute terms, or squared."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .channels import chosen_sensors, number, places_of, real_box


class DeviationFilter(Filter):
    """Shows a measure of the distance of readings from ``target`` in place of the readings.

    The sensors keep their uids, and become a ``Box`` with the bounds of that measure.
    Set-points pass unchanged. Any kind of space.

    Parameters
    ----------
    target : float
    sensor_uids : list of str, optional
        The sensors to change; all, if left out.
    """

    def __init__(self, target: float = 1.0, sensor_uids: Sequence[str] | None = None):
        self.target = number(self, "target", target, least=-np.inf)
        self.sensor_uids = sensor_uids

    @staticmethod
    @abstractmethod
    def measure(distance: FloatVector) -> FloatVector:
        """Return the measure of signed distances, one that grows with their size."""

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        chosen = chosen_sensors(self, self.sensor_uids, sensors)
        self._places = places_of(sensors, chosen)
        self._all = len(self._places) == sensors.size
        spaces = list(sensors.spaces)
        for channel in chosen:
            space = spaces[channel]
            below, above = space.flat_low - self.target, space.flat_high - self.target
            nearest = np.clip(0.0, below, above)
            with np.errstate(over="ignore"):
                most = np.maximum(self.measure(below), self.measure(above))
                spaces[channel] = real_box(space, self.measure(nearest), most)
        return Layout(sensors.uids, spaces), actuators

    def muscle_pre_process(self, readings: FloatVector) -> FloatVector:
        if self._all:
            return self.measure(readings - self.target)
        seen = readings.copy()
        seen[self._places] = self.measure(readings[self._places] - self.target)
        return seen


class AbsoluteDeviationFilter(DeviationFilter):
    """Shows ``|target - x|`` in place of a reading ``x``; see :class:`DeviationFilter`."""

    @staticmethod
    def measure(distance: FloatVector) -> FloatVector:
        return np.abs(distance)


class QuadraticPenaltyFilter(DeviationFilter):
    """Shows ``(target - x)**2`` in place of a reading ``x``; see :class:`DeviationFilter`."""

    @staticmethod
    def measure(distance: FloatVector) -> FloatVector:
        return np.square(distance)
