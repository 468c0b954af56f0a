"""How much the readings change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.types import Space
from palaestrai_mosaik.types.vectors import Layout

from .channels import chosen_sensors, flag, places_of, real_box

FloatVector = npt.NDArray[np.float64]


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
