"""Changes instead of values: of readings, and of set-points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.types import Space
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .channels import chosen_sensors, flag, nearest_to_zero, need_boxes, number, places_of, real_box


class DeltaObsFilter(Filter):
    """Shows the differences between readings and those of the step before.

    The difference of the sensor ``<uid>`` is the sensor ``DELTA-<uid>``, a ``Box`` from
    ``low - high`` to ``high - low``; in the first step of an episode it is 0. Set-points pass
    unchanged. Any kind of space.

    Parameters
    ----------
    delta_sensor_uids : list of str, optional
        The sensors whose differences are shown; all, if left out.
    replace : bool
        If true, the muscle sees the differences and nothing else; if false, it sees all
        readings, and after them the differences.
    """

    def __init__(self, delta_sensor_uids: Sequence[str] | None = None, replace: bool = True):
        self.delta_sensor_uids = delta_sensor_uids
        self.replace = flag(self, "replace", replace)

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        chosen = chosen_sensors(self, self.delta_sensor_uids, sensors)
        self._places = places_of(sensors, chosen)
        self.reset()
        uids: list[str] = []
        spaces: list[Space] = []
        for channel in chosen:
            space = sensors.spaces[channel]
            with np.errstate(over="ignore"):
                span = space.flat_high - space.flat_low
            uids.append(f"DELTA-{sensors.uids[channel]}")
            spaces.append(real_box(space, -span, span))
        if not self.replace:
            uids, spaces = [*sensors.uids, *uids], [*sensors.spaces, *spaces]
        return Layout(uids, spaces), actuators

    def reset(self) -> None:
        self._last: FloatVector | None = None

    def muscle_pre_process(self, readings: FloatVector) -> FloatVector:
        values = readings[self._places]
        delta = np.zeros_like(values) if self._last is None else values - self._last
        self._last = values
        return delta if self.replace else np.concatenate([readings, delta])


class DeltaActionFilter(Filter):
    """The muscle says how much each set-point changes; the environment gets the sums.

    An action lies between ``low - high`` and ``high - low`` of the actuator, which must be a
    ``Box``. In every episode the sum starts at 0, or at the bound that is nearest to 0, and it
    stays within the bounds: what leads beyond them is lost. Set-points of whole numbers are
    rounded, the sum behind them is not. NaN stays NaN (no new set-point) and leaves the sum as
    it is. Readings pass unchanged.
    """

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        need_boxes(self, actuators)
        self._low, self._high = actuators.low, actuators.high
        self._integral = actuators.integral if actuators.any_integral else None
        self._start = nearest_to_zero(actuators)
        self.reset()
        with np.errstate(over="ignore"):
            spans = [space.flat_high - space.flat_low for space in actuators.spaces]
        boxes = [real_box(space, -span, span) for space, span in zip(actuators.spaces, spans, strict=True)]
        return sensors, Layout(actuators.uids, boxes)

    def reset(self) -> None:
        self._sum = self._start

    def muscle_post_process(self, setpoints: FloatVector) -> FloatVector:
        moved = np.maximum(np.minimum(self._sum + setpoints, self._high), self._low)
        silent = np.isnan(moved)
        self._sum = np.where(silent, self._sum, moved) if silent.any() else moved
        found: FloatVector = (
            moved if self._integral is None else np.where(self._integral, np.rint(moved), moved)
        )
        return found


class DeltaStepFilter(DeltaActionFilter):
    """The muscle acts in [-1, 1]: how far each set-point goes down or up in this step.

    An action of 1 raises the set-point by ``step_size`` times the width of the actuator's
    space, -1 lowers it by as much; the actuators must be bounded ``Box`` spaces. Start, limits,
    rounding and NaN: as in :class:`DeltaActionFilter`. Readings pass unchanged.
    """

    def __init__(self, step_size: float = 0.1):
        self.step_size = number(self, "step_size", step_size, above=True)

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        need_boxes(self, actuators, bounded=True)
        super().setup(sensors, actuators)
        self._unit = self.step_size * (actuators.high - actuators.low)
        return sensors, Layout(actuators.uids, [real_box(space, -1.0, 1.0) for space in actuators.spaces])

    def muscle_post_process(self, setpoints: FloatVector) -> FloatVector:
        return super().muscle_post_process(setpoints * self._unit)
