"""A muscle with constant actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.agent.muscle import BatchMuscle, BatchReadings
from palaestrai_mosaik.core.errors import ActionError
from palaestrai_mosaik.types import ActuatorInformation, SensorInformation
from palaestrai_mosaik.types.arrays import FloatMatrix
from palaestrai_mosaik.types.vectors import ActuatorSetpoints

from .channel_names import match_channels


class ConstantMuscle(BatchMuscle):
    """Sets the same values in every step.

    Args:
        values: one value for all actuators, or a mapping of uid patterns (``grid.sgen-*.q_mvar``) to values.
            The last pattern that fits takes precedence, and an actuator without a pattern is not set. The
            number of an incarnation is ignored, see :mod:`.channel_names`. A value is a number, or a
            list for an actuator of several numbers.
    """

    def __init__(self, values: Any):
        self.values: Mapping[str, Any] = values if isinstance(values, Mapping) else {"*": values}
        self._vector: np.ndarray[Any, np.dtype[np.float64]] | None = None

    def propose_actions(
        self, sensors: Sequence[SensorInformation], actuators_available: Sequence[ActuatorInformation]
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        assert isinstance(actuators_available, ActuatorSetpoints)
        if self._vector is None:
            self._vector = self._flat(actuators_available)
        actuators_available.vector = self._vector
        return actuators_available, None

    def propose_batch(self, batch: BatchReadings) -> tuple[FloatMatrix, None]:
        if self._vector is None:
            self._vector = self._flat(batch.offered()[1])
        return np.broadcast_to(self._vector, (len(batch.bodies), len(self._vector))), None

    def _flat(self, actuators: Sequence[ActuatorInformation]) -> np.ndarray[Any, np.dtype[np.float64]]:
        uids = [actuator.uid for actuator in actuators]
        fits = match_channels(self.values, uids, "values", f"actuator of {self.uid!r}")
        parts = [np.empty(0)]
        for actuator in actuators:
            chosen = [value for pattern, value in self.values.items() if actuator.uid in fits[pattern]]
            if not chosen:
                parts.append(np.full(actuator.space.size, np.nan))
                continue
            if not actuator.space.contains(chosen[-1]):
                raise ActionError(f"values: {chosen[-1]!r} for {actuator.uid!r} is not in {actuator.space}")
            parts.append(actuator.space.flatten(chosen[-1]))
        return np.concatenate(parts)
