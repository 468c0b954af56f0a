"""Asks a muscle for its set-points, without the engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout, SensorReadings, collect_setpoints


def ask(muscle: Any, sensors: Layout, actuators: Layout, readings: Any) -> tuple[FloatVector, Any]:
    """Return the set-points that reach the environment, and the data for the brain."""
    observed = SensorReadings(sensors, np.asarray(readings, dtype=np.float64))
    answer, data = muscle.propose_actions(observed, ActuatorSetpoints(actuators))
    return collect_setpoints(actuators, answer), data
