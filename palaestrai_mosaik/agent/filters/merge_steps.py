"""The last steps' readings at once."""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.types import Space
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .channels import flag, whole_number


class MergeStepsFilter(Filter):
    """Shows the readings of the last ``steps`` steps, the present one included.

    Every sensor is followed by what it read 1, 2, ... steps ago (``LAST-1-<uid>``,
    ``LAST-2-<uid>``, ...), in the same space. Before the first step of an episode, all was as
    it is in the first step. Set-points pass unchanged. Any kind of space. ``merge_actuators``
    has no effect, as in palaestrAI, whose documents give it.
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
