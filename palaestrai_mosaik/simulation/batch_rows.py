"""What alike bodies are plugged into, and their rows of one tick, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types.vectors import Layout

from .batch_port import BatchPort

FloatVector = npt.NDArray[np.float64]
FloatMatrix = npt.NDArray[np.float64]
IntVector = npt.NDArray[np.intp]
BoolVector = npt.NDArray[np.bool_]


class BatchChannels:
    """What alike bodies read, set and are rewarded by; body ``i`` sits in incarnation ``rows[i]``.

    ``sensors`` and ``actuators`` name the channels within an incarnation. ``take`` and ``put`` are
    their places in its state vector and its set-points.
    """

    def __init__(
        self, port: BatchPort, rows: Sequence[int], sensors: Sequence[str], actuators: Sequence[str]
    ):
        self.port = port
        self.rows = np.array(rows, dtype=np.intp)
        self._actuators = actuators
        self.sensors, self.take = port.select("sensors", sensors, rows[0])
        self.actuators, self.put = port.select("actuators", actuators, rows[0])

    def actuators_of(self, place: int) -> Layout:
        """Return the actuators of one of the bodies."""
        return self.port.select("actuators", self._actuators, int(self.rows[place]))[0]


class Rows:
    """The rows of one tick, a row of each array for each of ``places`` among the bodies."""

    _ARRAYS = ("places", "step", "episodes", "readings", "setpoints", "rewards", "value")
    __slots__ = (*_ARRAYS, "time", "wall", "proposed", "data", "learned", "told")

    places: IntVector
    step: npt.NDArray[np.int64]
    episodes: npt.NDArray[np.int32]
    readings: FloatMatrix
    setpoints: FloatMatrix
    rewards: FloatMatrix
    value: FloatVector
    time: int
    wall: float
    proposed: FloatMatrix | None
    data: Sequence[Any] | None
    #: the brain has been told
    learned: bool
    #: what the muscle reported about itself
    told: dict[str, Any]

    def of(self, mask: BoolVector) -> Rows:
        """Return those under ``mask``."""
        part = Rows()
        for name in Rows._ARRAYS:
            setattr(part, name, getattr(self, name)[mask])
        part.time, part.wall, part.learned, part.told = self.time, self.wall, self.learned, self.told
        part.proposed = None if self.proposed is None else self.proposed[mask]
        data = self.data
        part.data = None if data is None else [data[i] for i in np.flatnonzero(mask).tolist()]
        return part
