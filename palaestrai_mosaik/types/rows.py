"""Rows of many bodies or incarnations at one time, on their way from the engine to the store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .arrays import BoolVector, FloatMatrix, FloatVector

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
