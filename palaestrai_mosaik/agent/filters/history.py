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
    """Shows the muscle the set-points of its last actions as further sensors.

    After all sensors come the actuators' set-points of 1 step ago (``LAST-1-<uid>``), then those of 2 steps
    ago, and so on, in the actuators' spaces. They are the set-points as this filter passes them on, and of
    these the ones in force: where an action gave none (NaN), the one before holds. Before the first action of
    an episode they are 0, or the bound that is nearest to 0. Set-points pass unchanged. Any kind of space.

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
    """Shows the readings of the last steps, the present one included.

    Every sensor is followed by what it read 1, 2, ... steps ago (``LAST-1-<uid>``, ``LAST-2-<uid>``, ...), in
    the same space. Before the first step of an episode, all was as it is in the first step. Set-points pass
    unchanged. Any kind of space.

    Args:
        steps: number of steps, at least 1.
        merge_actuators: has no effect, as in palaestrAI, whose documents give it.
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
        #: (steps, readings), newest first
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
    """Shows readings late: what sensors read some steps ago.

    Before the first step of an episode, all was as it is in the first step. Sensors keep their names and spaces,
    set-points pass unchanged. Any kind of space.

    Args:
        steps: how many steps ago, at least 0.
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
        delta_sensor_uids: the sensors whose differences are shown; all, if left out.
        replace: if true, the muscle sees the differences and nothing else; if false, it sees all readings,
            and after them the differences.
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
    """The muscle says how much each set-point changes; the environment gets the sums.

    An action lies between ``low - high`` and ``high - low`` of the actuator, which must be a
    ``Box``. In every episode the sum starts at 0, or at the bound that is nearest to 0, and it
    stays within the bounds: what leads beyond them is lost. Set-points of whole numbers are
    rounded, the sum behind them is not. NaN stays NaN (no new set-point) and leaves the sum as
    it is. Readings pass unchanged.
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
        found: FloatVector = (
            moved if self._integral is None else np.where(self._integral, np.rint(moved), moved)
        )
        return found


class DeltaStepFilter(DeltaActionFilter):
    """The muscle acts in [-1, 1]: how far each set-point goes down or up in this step.

    The actuators must be bounded ``Box`` spaces. Start, limits, rounding and NaN: as in
    :class:`DeltaActionFilter`. Readings pass unchanged.

    Args:
        step_size: an action of 1 raises the set-point by this share of the width of the actuator's space, -1
            lowers it by as much; above 0.
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
