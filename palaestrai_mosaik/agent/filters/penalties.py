"""Filters for penalties on changed set-points and on the distance of readings from a target."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from ..memory import Experience
from .channels import chosen_sensors, flat_indices, number, real_box, require_bounds


class ActionChangePenaltyFilter(Filter):
    """Subtracts a penalty for changed set-points from the objective that the brain learns from.

    The penalty of a row is ``weight`` times the mean over all set-points of ``(|change| / (high - low)) **
    power``, so at most ``weight``. The set-points are those of the environment, independent of the filter's
    position in the chain, and their spaces must be bounded. The first row of an episode has no penalty. If an
    action has no new set-point (NaN), the one before holds and counts as unchanged. An objective of NaN (none)
    stays NaN.

    The recorded objective does not change.

    Args:
        weight: the largest penalty, at least 0.
        power: above 0.
    """

    def __init__(self, weight: float = 1.0, power: float = 1.0):
        self.weight = number(self, "weight", weight)
        self.power = number(self, "power", power, above=True)
        #: the set-points in force in every muscle's running episode
        self._last: dict[str, FloatVector] = {}

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        outside = self.environment_actuators
        for uid, space in zip(outside.uids, outside.spaces, strict=True):
            require_bounds(self, uid, space)
        width = outside.high - outside.low
        # a width of 0 leaves no room for changes
        self._per_width = 1.0 / np.where(width > 0.0, width, 1.0)
        return sensors, actuators

    def brain_pre_process(self, experience: Experience) -> Experience:
        new, muscle = experience.setpoints, experience.muscle
        last, penalty = self._last.get(muscle) if experience.step else None, 0.0
        if last is not None and len(new):
            change = np.abs(new - last) * self._per_width
            silent = np.isnan(change)
            if silent.any():
                change = np.where(silent, 0.0, change)
                new = np.where(np.isnan(new), last, new)
            penalty = self.weight * float((change**self.power).sum()) / len(new)
        self._last[muscle] = new
        return replace(experience, objective=experience.objective - penalty) if penalty else experience


class DeviationFilter(Filter):
    """Replaces readings by a measure of their distance from ``target``.

    The sensors keep their uids, and become a ``Box`` with the bounds of that measure. Set-points pass
    unchanged. Any kind of space.

    Args:
        target: the reading with a measure of 0.
        sensor_uids: the sensors to change; all by default.
    """

    def __init__(self, target: float = 1.0, sensor_uids: Sequence[str] | None = None):
        self.target = number(self, "target", target, least=-np.inf)
        self.sensor_uids = sensor_uids

    @staticmethod
    @abstractmethod
    def measure(distance: FloatVector) -> FloatVector:
        """Return the measure of signed distances, which grows with their size."""

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        chosen = chosen_sensors(self, self.sensor_uids, sensors)
        self._places = flat_indices(sensors, chosen)
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
        changed = readings.copy()
        changed[self._places] = self.measure(readings[self._places] - self.target)
        return changed


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
