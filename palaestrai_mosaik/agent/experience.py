"""What one action gave: a row on its way from a muscle to its brain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FloatVector = npt.NDArray[np.float64]


@dataclass(slots=True)
class Experience:
    """One closed row of one muscle.

    ``readings`` (readings,), ``setpoints`` (setpoints,) and ``rewards`` (rewards,) are those
    of the environment; ``observations`` and ``actions`` are what the muscle saw and returned,
    which is the same unless the agent has filters. ``objective`` is NaN where the objective
    gave none. ``final_observations`` is there only where the episode ended with this row: what
    the muscle would have seen next. ``terminated`` and ``truncated`` are never both true.
    """

    muscle: str
    readings: FloatVector
    setpoints: FloatVector
    rewards: FloatVector
    objective: float
    data: Any
    observations: FloatVector
    actions: FloatVector
    terminated: bool = False
    truncated: bool = False
    final_observations: FloatVector | None = None
    #: the row's number in its episode
    step: int = 0

    @property
    def done(self) -> bool:
        """The episode ended with this row, for either reason."""
        return self.terminated or self.truncated
