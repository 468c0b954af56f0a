"""A muscle that acts at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.agent.muscle import Muscle
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types import ActuatorInformation, SensorInformation
from palaestrai_mosaik.types.vectors import ActuatorSetpoints


class RandomMuscle(Muscle):
    """Draws every set-point from its actuator's space, and keeps it for ``hold`` actions.

    ``hold``: number of actions (1: a new set-point each time).
    """

    def __init__(self, hold: int = 1):
        if hold < 1:
            raise ContractError(f"hold must be at least 1, not {hold}")
        self.hold = int(hold)
        self._actions = 0

    def reset(self) -> None:
        self._actions = 0

    def propose_actions(
        self, sensors: Sequence[SensorInformation], actuators_available: Sequence[ActuatorInformation]
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        assert isinstance(actuators_available, ActuatorSetpoints)
        if self._actions % self.hold == 0:
            drawn = [a.space.flatten(a.space.sample(self.rng)) for a in actuators_available]
            self._drawn = np.concatenate(drawn) if drawn else np.empty(0)
        self._actions += 1
        actuators_available.vector = self._drawn
        return actuators_available, None
