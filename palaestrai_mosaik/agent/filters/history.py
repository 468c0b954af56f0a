"""The last actions among the readings."""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .channels import nearest_to_zero, whole_number


class ActionTimeShiftFilter(Filter):
    """Shows the muscle the set-points of its last ``steps`` actions as further sensors.

    After all sensors come the actuators' set-points of 1 step ago (``LAST-1-<uid>``), then
    those of 2 steps ago, and so on, in the actuators' spaces. They are the set-points as this
    filter passes them on, and of these the ones in force: where an action gave none (NaN), the
    one before holds. Before the first action of an episode they are 0, or the bound that is
    nearest to 0. Set-points pass unchanged. Any kind of space.
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
