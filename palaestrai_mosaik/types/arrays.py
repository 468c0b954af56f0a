"""Types of numpy arrays by element type, and rows of many bodies made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: of any number of axes
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
FloatVector = npt.NDArray[np.float64]
FloatMatrix = npt.NDArray[np.float64]
BoolVector = npt.NDArray[np.bool_]
BoolMatrix = npt.NDArray[np.bool_]
IntVector = npt.NDArray[np.int64]
#: positions in another array, as numpy indexes with them
IndexVector = npt.NDArray[np.intp]
ComplexVector = npt.NDArray[np.complex128]
ComplexMatrix = npt.NDArray[np.complex128]


#: of integers of any size
IntegerVector = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class AgentRows:
    """One closed row of each of ``n`` identical bodies of an agent.

    ``worker`` and ``episode`` (of the phase) are common to them. ``time`` (in mosaik ticks),
    ``step``, ``body``, ``environment_episode``, ``objective``, ``terminated`` and ``truncated``
    are (n,); ``readings`` (n, readings), ``setpoints`` (n, set-points), ``rewards`` (n, rewards).
    ``wall``: seconds of the muscle for each. ``proposed`` (n, set-points): the agent's own set-points, if
    its environment replays recorded ones.
    """

    worker: int
    episode: int
    time: IntegerVector
    step: IntegerVector
    body: IntegerVector
    environment_episode: IntegerVector
    readings: FloatMatrix
    setpoints: FloatMatrix
    rewards: FloatMatrix
    objective: FloatVector
    terminated: BoolVector
    truncated: BoolVector
    wall: float
    proposed: FloatMatrix | None = None


@dataclass(frozen=True, slots=True)
class EnvironmentRows:
    """One state of each of ``n`` incarnations of an environment.

    ``incarnation``, ``environment_episode``, ``terminated`` and ``truncated`` are (n,);
    ``readings`` (n, readings), ``rewards`` (n, rewards). ``time`` is in mosaik ticks.
    """

    worker: int
    episode: int
    time: int
    step: int
    incarnation: IntegerVector
    environment_episode: IntegerVector
    readings: FloatMatrix
    rewards: FloatMatrix
    terminated: BoolVector
    truncated: BoolVector
