"""Actions that are changes of set-points."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.types.vectors import Layout

from .channels import nearest_to_zero, need_boxes, real_box

FloatVector = npt.NDArray[np.float64]


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
        return moved if self._integral is None else np.where(self._integral, np.rint(moved), moved)
