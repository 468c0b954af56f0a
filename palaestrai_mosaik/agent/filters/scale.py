"""Scaling of sensors and actuators to [-1, 1]."""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.types import Box, Space
from palaestrai_mosaik.types.arrays import FloatVector, IndexVector
from palaestrai_mosaik.types.vectors import Layout

from .channels import flag, flat_indices, real_box, require_bounds


class ScaleFilter(Filter):
    """Maps sensors from their bounds to [-1, 1], and set-points from [-1, 1] to their bounds.

    - Sensors: every element of a ``Box`` that is bounded and not constant; others pass unchanged.
      A reading outside its space is mapped beyond -1 or 1.
    - Actuators: every ``Box``, which must be bounded. Integers get equal shares of
      [-1, 1] (with 0, 1, 2 each a third). NaN (no new set-point) stays NaN.
    - ``Discrete`` and the other spaces of choices pass unchanged, unless ``discrete``.

    Args:
        sensors, actuators: whether they are scaled.
        discrete: whether to scale ``Discrete``, ``MultiDiscrete``, ``MultiBinary`` and ``Tuple`` as well, for
            muscles whose actions are real numbers only.
    """

    def __init__(self, sensors: bool = True, actuators: bool = True, discrete: bool = False):
        self.sensors = flag(self, "sensors", sensors)
        self.actuators = flag(self, "actuators", actuators)
        self.discrete = flag(self, "discrete", discrete)

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        self._read, self._act = flat_indices(sensors, ()), flat_indices(actuators, ())
        if self.sensors:
            sensors = self._scale_sensors(sensors)
        if self.actuators:
            actuators = self._scale_actuators(actuators)
        return sensors, actuators

    def _chosen(self, layout: Layout) -> list[int]:
        kinds: type[Space] = Space if self.discrete else Box
        return [channel for channel, space in enumerate(layout.spaces) if isinstance(space, kinds)]

    def _scale_sensors(self, sensors: Layout) -> Layout:
        chosen = self._chosen(sensors)
        with np.errstate(over="ignore"):
            span = sensors.high - sensors.low
        places = flat_indices(sensors, chosen)
        self._read = places[(span[places] > 0.0) & np.isfinite(span[places])]
        self._all_read = len(self._read) == sensors.size
        self._low, self._span = sensors.low[self._read], span[self._read]
        low, high = sensors.low.copy(), sensors.high.copy()
        low[self._read], high[self._read] = -1.0, 1.0
        spaces = list(sensors.spaces)
        for channel in chosen:
            part = sensors.slices[channel]
            spaces[channel] = real_box(spaces[channel], low[part], high[part])
        return Layout(sensors.uids, spaces)

    def _scale_actuators(self, actuators: Layout) -> Layout:
        chosen = self._chosen(actuators)
        spaces = list(actuators.spaces)
        for channel in chosen:
            require_bounds(self, actuators.uids[channel], spaces[channel])
            spaces[channel] = real_box(spaces[channel], -1.0, 1.0)
        self._act = flat_indices(actuators, chosen)
        self._all_act = len(self._act) == actuators.size
        self._least, self._most = actuators.low[self._act], actuators.high[self._act]
        self._integral = actuators.integral[self._act]
        self._any_integral = bool(self._integral.any())
        margin = np.where(self._integral, 0.5, 0.0)
        self._half_low, self._half_high = (self._least - margin) / 2, (self._most + margin) / 2
        return Layout(actuators.uids, spaces)

    def muscle_pre_process(self, readings: FloatVector) -> FloatVector:
        if not len(self._read):
            return readings
        values = readings if self._all_read else readings[self._read]
        # this order maps the bounds to -1 and 1 exactly
        scaled = (values - self._low) / self._span * 2.0 - 1.0
        return scaled if self._all_read else _put(readings, self._read, scaled)

    def muscle_post_process(self, setpoints: FloatVector) -> FloatVector:
        if not len(self._act):
            return setpoints
        values = setpoints if self._all_act else setpoints[self._act]
        # this form maps -1 and 1 to the bounds exactly
        scaled = (1.0 - values) * self._half_low + (1.0 + values) * self._half_high
        if self._any_integral:
            scaled = np.where(self._integral, np.rint(scaled), scaled)
        scaled = np.maximum(np.minimum(scaled, self._most), self._least)
        return scaled if self._all_act else _put(setpoints, self._act, scaled)

    def muscle_inverse(self, setpoints: FloatVector) -> FloatVector:
        """Return the actions for ``setpoints``; for an integer, the middle of its share.

        For an actuator with a single possible value, the action is 0.
        """
        if not len(self._act):
            return setpoints
        values = setpoints if self._all_act else setpoints[self._act]
        half = self._half_high - self._half_low
        actions = (values - (self._half_low + self._half_high)) / np.where(half > 0.0, half, 1.0)
        actions = np.maximum(np.minimum(actions, 1.0), -1.0)
        return actions if self._all_act else _put(setpoints, self._act, actions)


def _put(vector: FloatVector, indices: IndexVector, values: FloatVector) -> FloatVector:
    vector = vector.copy()
    vector[indices] = values
    return vector
