"""A muscle that does nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palaestrai_mosaik.agent.muscle import Muscle
from palaestrai_mosaik.types import ActuatorInformation, SensorInformation


class IdleMuscle(Muscle):
    """Never sets anything: its actuators stay as the environment has them.

    An agent that idles in one phase and acts in the next shows what its acting does.
    """

    def propose_actions(
        self, sensors: Sequence[SensorInformation], actuators_available: Sequence[ActuatorInformation]
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        return actuators_available, None
