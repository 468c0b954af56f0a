"""Filters that remember earlier steps: last actions, merged or late readings, and differences instead of values."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.types import Space
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .channels import (
    chosen_sensors,
    flag,
    flat_indices,
    nearest_to_zero,
    number,
    real_box,
    require_boxes,
    whole_number,
)


class ActionTimeShiftFilter(Filter):
    """Shows the muscle the set-points of its last actions as additional sensors.

    After all sensors come the actuators' set-points of 1 step ago (``LAST-1-<uid>``), then those of 2 steps
    ago, and so on, in the actuators' spaces. They are the set-points in force on the environment's side of this
    filter: if an action had none (NaN), the one before holds. Before the first action of
    an episode they are 0, or the bound nearest to 0. Set-points pass unchanged. Any kind of space.

    Args:
        steps: number of actions, at least 1.
    """

    def __init__(self, steps: int = 1):
        self.steps = whole_number(self, "steps", steps)

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        uids, spaces = [*sensors.uids], [*sensors.spaces]
        for lag in range(1, self.steps + 1):
            uids += [f"LAST-{lag}-{uid}" for uid in actuators.uids]
            spaces += actuators.spaces
        self._start = np.tile(nearest_to_zero(actuators), self.steps)
        self._size = actuators.size
        self.reset()
        return Layout(uids, spaces), actuators

    def reset(self) -> None:
        #: the set-points in force, newest action first; never changed in place
        self._past = self._start

    def muscle_pre_process(self, readings: FloatVector) -> FloatVector:
        return np.concatenate([readings, self._past])

    def muscle_post_process(self, setpoints: FloatVector) -> FloatVector:
        silent = np.isnan(setpoints)
        newest = np.where(silent, self._past[: self._size], setpoints) if silent.any() else setpoints
        self._past = np.concatenate([newest, self._past[: -self._size]]) if self.steps > 1 else newest.copy()
        return setpoints

    def muscle_inverse(self, setpoints: FloatVector) -> FloatVector:
        return setpoints


class MergeStepsFilter(Filter):
    """Shows the readings of the last steps, including the present one.

    Every sensor is followed by its readings of 1, 2, ... steps ago (``LAST-1-<uid>``, ``LAST-2-<uid>``, ...), in
    the same space. In the first step of an episode, they all equal the first reading. Set-points pass
    unchanged. Any kind of space.

    Args:
        steps: number of steps, at least 1.
        merge_actuators: has no effect, as in palaestrAI; accepted because documents of palaestrAI set it.
    """

    def __init__(self, steps: int = 3, merge_actuators: bool = False):
        flag(self, "merge_actuators", merge_actuators)
        self.steps = whole_number(self, "steps", steps)

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        uids: list[str] = []
        spaces: list[Space] = []
        order: list[int] = []
        for uid, space, part in zip(sensors.uids, sensors.spaces, sensors.slices, strict=True):
            for lag in range(self.steps):
                uids.append(f"LAST-{lag}-{uid}" if lag else uid)
                spaces.append(space)
                order += range(lag * sensors.size + part.start, lag * sensors.size + part.stop)
        self._order = np.array(order, dtype=np.intp)
        #: matrix (steps, readings), newest first
        self._past = np.zeros((self.steps, sensors.size))
        self.reset()
        return Layout(uids, spaces), actuators

    def reset(self) -> None:
        self._begins = True

    def muscle_pre_process(self, readings: FloatVector) -> FloatVector:
        if self._begins:
            self._past[:] = readings
            self._begins = False
        else:
            self._past[1:] = self._past[:-1]
            self._past[0] = readings
        return self._past.take(self._order)


class DelayFilter(Filter):
    """Shows the readings of some steps ago.

    Until enough steps have passed in an episode, it shows its first readings. Sensors keep their names and
    spaces, set-points pass unchanged. Any kind of space.

    Args:
        steps: delay in steps, at least 0.
    """

    def __init__(self, steps: int = 1):
        self.steps = whole_number(self, "steps", steps, least=0)

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        self.reset()
        return sensors, actuators

    def reset(self) -> None:
        #: oldest first
        self._past: deque[FloatVector] = deque(maxlen=self.steps + 1)

    def muscle_pre_process(self, readings: FloatVector) -> FloatVector:
        self._past.append(readings.copy())
        return self._past[0]


class DeltaObsFilter(Filter):
    """Shows the differences between readings and those of the step before.

    The difference of the sensor ``<uid>`` is the sensor ``DELTA-<uid>``, a ``Box`` from
    ``low - high`` to ``high - low``; in the first step of an episode it is 0. Set-points pass
    unchanged. Any kind of space.

    Args:
        delta_sensor_uids: the sensors to show differences of; all by default.
        replace: if true, the muscle sees only the differences; if false, it sees all readings,
            followed by the differences.
    """

    def __init__(self, delta_sensor_uids: Sequence[str] | None = None, replace: bool = True):
        self.delta_sensor_uids = delta_sensor_uids
        self.replace = flag(self, "replace", replace)

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        chosen = chosen_sensors(self, self.delta_sensor_uids, sensors)
        self._places = flat_indices(sensors, chosen)
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
    """Takes the muscle's actions as changes of set-points; the environment receives the sums.

    An action lies between ``low - high`` and ``high - low`` of the actuator, which must be a
    ``Box``. In every episode the sum starts at 0, or at the bound nearest to 0, and is clipped to
    the bounds. Integer set-points are rounded, the sum behind them is not. NaN stays NaN (no new
    set-point) and does not change the sum. Readings pass unchanged.
    """

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        require_boxes(self, actuators)
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
        rounded: FloatVector = (
            moved if self._integral is None else np.where(self._integral, np.rint(moved), moved)
        )
        return rounded


class DeltaStepFilter(DeltaActionFilter):
    """Takes the muscle's actions in [-1, 1] as steps of each set-point, down or up.

    The actuators must be bounded ``Box`` spaces. Start, limits, rounding and NaN are those of
    :class:`DeltaActionFilter`. Readings pass unchanged.

    Args:
        step_size: the change of a set-point by an action of 1, as a share of the width of the actuator's space;
            above 0.
    """

    def __init__(self, step_size: float = 0.1):
        self.step_size = number(self, "step_size", step_size, above=True)

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        require_boxes(self, actuators, bounded=True)
        super().setup(sensors, actuators)
        self._unit = self.step_size * (actuators.high - actuators.low)
        return sensors, Layout(actuators.uids, [real_box(space, -1.0, 1.0) for space in actuators.spaces])

    def muscle_post_process(self, setpoints: FloatVector) -> FloatVector:
        return super().muscle_post_process(setpoints * self._unit)
