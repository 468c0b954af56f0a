"""A muscle that switches by a threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palaestrai_mosaik.agent.muscle import Muscle
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types import ActuatorInformation, Box, SensorInformation


class ThermostatMuscle(Muscle):
    """Switches its actuators fully on and off, by its first sensor.

    Between the two thresholds nothing changes (hysteresis). On is the upper bound of an actuator's space, off the lower one.

    Args:
        on_below: reading below which they are switched on, in the sensor's unit.
        off_above: reading above which they are switched off, at least ``on_below``.
    """

    def __init__(self, on_below: float = 20.5, off_above: float = 21.5):
        if on_below > off_above:
            raise ContractError(f"on_below must be at most off_above, found {on_below!r} and {off_above!r}")
        self.on_below, self.off_above = on_below, off_above
        self._on = False

    def reset(self) -> None:
        self._on = False

    def propose_actions(
        self, sensors: Sequence[SensorInformation], actuators_available: Sequence[ActuatorInformation]
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        reading = sensors[0].value
        if reading < self.on_below:
            self._on = True
        elif reading > self.off_above:
            self._on = False
        for actuator in actuators_available:
            assert isinstance(actuator.space, Box)
            actuator.value = actuator.space.high if self._on else actuator.space.low
        return actuators_available, None
