"""A muscle with constant actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from palaestrai_mosaik.agent.muscle import ArrayMuscle, BatchReadings
from palaestrai_mosaik.core.errors import ActionError
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .channel_names import match_channels


class ConstantMuscle(ArrayMuscle):
    """Sets the same values in every step.

    Args:
        values: one value for all actuators, or a mapping of uid patterns (``grid.sgen-*.q_mvar``) to values.
            The last pattern that fits takes precedence, and an actuator without a pattern is not set. The
            number of an incarnation is ignored, see :mod:`.channel_names`. A value is a number, or a
            list for an actuator of several numbers.
    """

    def __init__(self, values: Any):
        self.values: Mapping[str, Any] = values if isinstance(values, Mapping) else {"*": values}
        self._row: FloatMatrix | None = None

    def propose_batch(self, batch: BatchReadings) -> tuple[FloatMatrix, None]:
        if self._row is None:
            self._row = self._setpoints(batch.actuators)[np.newaxis]
        return self._row.repeat(len(batch.bodies), axis=0), None

    def _setpoints(self, actuators: Layout) -> FloatVector:
        fits = match_channels(self.values, actuators.uids, "values", f"actuator of {self.uid!r}")
        chosen = {uid: value for pattern, value in self.values.items() for uid in fits[pattern]}
        vector = np.full(actuators.size, np.nan)
        for uid, space, part in zip(actuators.uids, actuators.spaces, actuators.slices, strict=True):
            if uid in chosen:
                if not space.contains(chosen[uid]):
                    raise ActionError(f"values: {chosen[uid]!r} for {uid!r} is not in {space}")
                vector[part] = space.flatten(chosen[uid])
        return vector
