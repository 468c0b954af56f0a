"""A muscle that does nothing."""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.agent.muscle import ArrayMuscle, BatchReadings
from palaestrai_mosaik.types.arrays import FloatMatrix


class IdleMuscle(ArrayMuscle):
    """Sets nothing: its actuators keep the values of the environment.

    An agent that idles in one phase and acts in the next shows the effect of its actions.
    """

    def propose_batch(self, batch: BatchReadings) -> tuple[FloatMatrix, None]:
        return np.full((len(batch.bodies), batch.actuators.size), np.nan), None
