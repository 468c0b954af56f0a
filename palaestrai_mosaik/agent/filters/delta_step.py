"""Actions that are steps towards one bound or the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types.vectors import Layout

from .channels import need_boxes, number, real_box
from .delta_action import DeltaActionFilter

FloatVector = npt.NDArray[np.float64]


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
