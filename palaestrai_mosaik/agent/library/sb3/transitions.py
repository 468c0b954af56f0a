"""Rows of a memory as a learner of Stable-Baselines3 sees them, and the bodies that it can have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent.brain import BodyInformation
from palaestrai_mosaik.agent.memory import MemoryShard
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types import Mode
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector

from .buffers import Row, as_data
from .model import ALGORITHMS, Recipe, describe_space
from .spaces import ActionSpace, ObservationSpace, action_space, observation_space

#: the largest number of float32, in which the networks compute
_LARGEST = float(np.finfo(np.float32).max)


class RowReader:
    """Makes the learner's rows from those of a memory; refuses what would spoil all weights.

    ``names``: of the agent and the algorithm; ``uids``: those of the sensor and the actuator of each
    single number; ``policy`` is the algorithm's.
    """

    def __init__(
        self,
        names: tuple[str, str],
        spaces: tuple[ObservationSpace, ActionSpace],
        uids: tuple[Sequence[str], Sequence[str]],
        policy: Any,
    ):
        self._agent, self._algorithm = names
        self._observations, self._actions = spaces
        self._sensors, self._actuators = uids
        self._policy = policy

    def rows(
        self, memory: MemoryShard, data: Sequence[Any], following: Sequence[FloatVector | None]
    ) -> list[Row]:
        """Return the rows of ``memory``, with what their muscles sent, and saw next (``None``: not known).

        Where a muscle sent ``None``, its action is taken from the memory.
        """
        muscles, rewards = memory.muscles, memory.objective
        fits = np.abs(rewards) <= _LARGEST
        if np.count_nonzero(fits) < len(rewards):
            reward = float(rewards[np.argmin(fits)])
            found = "no value" if math.isnan(reward) else f"the value {reward}"
            raise ContractError(
                f"the objective of agent {self._agent!r} gave {found} for a row; {self._algorithm} needs one "
                "that is finite (in float32) for every row"
            )
        observed = self.encode(memory.observations, muscles)
        known = [i for i, seen in enumerate(following) if seen is not None]
        after: dict[int, npt.NDArray[Any]] = {}
        if known:
            seen = self.encode(np.array([following[i] for i in known]), [muscles[i] for i in known])
            after = {i: seen[n : n + 1] for n, i in enumerate(known)}
        ends = zip(memory.terminated.tolist(), memory.truncated.tolist(), strict=True)
        rows = []
        for i, (reward, (terminated, truncated)) in enumerate(zip(rewards.tolist(), ends, strict=True)):
            observation = observed[i : i + 1]
            own = data[i] if data[i] is not None else self._data(memory.actions[i], muscles[i])
            # what follows the end of the world is not looked at
            next_one = after.get(i, observation if terminated else None)
            rows.append(Row(observation, own, reward, terminated, truncated, next_one))
        return rows

    def encode(self, readings: FloatMatrix, muscles: Sequence[str]) -> npt.NDArray[Any]:
        """Return the observations of ``readings`` (n, readings); a single NaN would make every weight NaN."""
        fits = np.abs(readings) <= _LARGEST
        if np.count_nonzero(fits) < readings.size:
            row, place = (int(i) for i in np.argwhere(~fits)[0])
            raise ContractError(
                f"agent {self._agent!r}: {muscles[row]!r} reads {readings[row, place]} from sensor "
                f"{self._sensors[place]!r}; {self._algorithm} needs finite numbers (float32)"
            )
        return self._observations.encode(readings)

    def _data(self, action: FloatVector, muscle: str) -> npt.NDArray[np.float32]:
        """Return what the muscle would have sent with ``action``."""
        wrong = ~np.isfinite(action)
        if wrong.any():
            raise ContractError(
                f"agent {self._agent!r}: {self._algorithm} cannot learn from a row in which {muscle!r} left "
                f"actuator {self._actuators[int(np.argmax(wrong))]!r} alone"
            )
        return as_data(self._actions.action(action), self._actions.space, self._policy)


def check_bodies(agent: str, bodies: Sequence[BodyInformation], recipe: Recipe, mode: Mode) -> frozenset[str]:
    """Return the muscles of the bodies in environments that replay.

    Raises :class:`ContractError` where one network cannot learn from all of the ``bodies``.
    """
    replayed = [body for body in bodies if body.replayed]
    if replayed and recipe.on_policy and mode is Mode.TRAIN:
        others = ", ".join(name for name in ALGORITHMS if not Recipe(name).on_policy)
        raise ContractError(
            f"agent {agent!r}: body {replayed[0].number} is in {', '.join(replayed[0].environments)}, which replays "
            f"what others did; {recipe.algorithm} learns from what its own policy does. Test the agent there, or "
            f"train it with one of {others}"
        )
    first = {body.group: body for body in reversed(bodies)}
    for body in first.values():
        if _spaces(body) != _spaces(bodies[0]):
            raise ContractError(
                f"agent {agent!r}: body {body.number} ({', '.join(body.environments)}) observes and acts in "
                f"{' and '.join(_spaces(body))}, body {bodies[0].number} ({', '.join(bodies[0].environments)}) in "
                f"{' and '.join(_spaces(bodies[0]))}. {recipe.algorithm} has one network, so all bodies need equal "
                "spaces: choose their sensors and actuators so, or make an agent for each kind. "
                "CrossEntropyBrain and EvolutionStrategyBrain learn with bodies of different kinds"
            )
    return frozenset(muscle for body in replayed for muscle in body.muscles)


def _spaces(body: BodyInformation) -> tuple[str, str]:
    """Return what the learner's spaces of a body are."""
    sensors, actuators = body.sensors, body.actuators
    return (
        describe_space(observation_space([s.space for s in sensors]).space),
        str(action_space([a.space for a in actuators], [a.uid for a in actuators]).space),
    )
