"""Conversion of a memory's rows for a learner of Stable-Baselines3, and the check of its bodies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent.brain import BodyInformation
from palaestrai_mosaik.agent.memory import MemoryShard
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types import Mode
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector

from .buffers import Row, as_data
from .model import describe_space
from .recipe import ALGORITHMS, Recipe
from .spaces import ActionSpace, ObservationSpace, action_space, observation_space

#: the largest float32, the type of the networks
_LARGEST = float(np.finfo(np.float32).max)


class RowReader:
    """Converts a memory's rows for the learner, and refuses values that would spoil all weights.

    ``names``: the agent and the algorithm; ``uids``: the sensor of each reading and the actuator of each
    set-point; ``policy``: that of the algorithm.
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
        """Return the rows of ``memory`` with their muscles' data and next observations (``None`` if unknown).

        If a muscle sent ``None``, its action is taken from the memory.
        """
        muscles, rewards = memory.muscles, memory.objective
        fits = np.abs(rewards) <= _LARGEST
        if np.count_nonzero(fits) < len(rewards):
            reward = float(rewards[np.argmin(fits)])
            value_text = "no value" if math.isnan(reward) else f"the value {reward}"
            raise ContractError(
                f"the objective of agent {self._agent!r} gave {value_text} for a row; {self._algorithm} needs one "
                "that is finite (in float32) for every row"
            )
        observed = self.encode(memory.observations, muscles)
        indices = [i for i, next_observation in enumerate(following) if next_observation is not None]
        after: dict[int, npt.NDArray[Any]] = {}
        if indices:
            next_observation = self.encode(
                np.array([following[i] for i in indices]), [muscles[i] for i in indices]
            )
            after = {i: next_observation[n : n + 1] for n, i in enumerate(indices)}
        ends = zip(memory.terminated.tolist(), memory.truncated.tolist(), strict=True)
        rows = []
        for i, (reward, (terminated, truncated)) in enumerate(zip(rewards.tolist(), ends, strict=True)):
            observation = observed[i : i + 1]
            row_data = data[i] if data[i] is not None else self._data(memory.actions[i], muscles[i])
            # the state after termination has no effect on training
            row_following = after.get(i, observation if terminated else None)
            rows.append(Row(observation, row_data, reward, terminated, truncated, row_following))
        return rows

    def encode(self, readings: FloatMatrix, muscles: Sequence[str]) -> npt.NDArray[Any]:
        """Encode ``readings`` (n, readings); refuse NaN, which would make every weight NaN."""
        fits = np.abs(readings) <= _LARGEST
        if np.count_nonzero(fits) < readings.size:
            row, column = (int(i) for i in np.argwhere(~fits)[0])
            raise ContractError(
                f"agent {self._agent!r}: {muscles[row]!r} reads {readings[row, column]} from sensor "
                f"{self._sensors[column]!r}; {self._algorithm} needs finite numbers (float32)"
            )
        return self._observations.encode(readings)

    def _data(self, action: FloatVector, muscle: str) -> npt.NDArray[np.float32]:
        """Return the data that the muscle would have sent with ``action``."""
        wrong = ~np.isfinite(action)
        if wrong.any():
            raise ContractError(
                f"agent {self._agent!r}: {self._algorithm} cannot learn from a row in which {muscle!r} left "
                f"actuator {self._actuators[int(np.argmax(wrong))]!r} alone"
            )
        return as_data(self._actions.action(action), self._actions.space, self._policy)


def check_bodies(agent: str, bodies: Sequence[BodyInformation], recipe: Recipe, mode: Mode) -> frozenset[str]:
    """Return the muscles of the bodies in environments that replay.

    Raises :class:`ContractError` if one network cannot learn from all of the ``bodies``.
    """
    replayed = [body for body in bodies if body.replayed]
    if replayed and recipe.on_policy and mode is Mode.TRAIN:
        off_policy = ", ".join(name for name in ALGORITHMS if not Recipe(name).on_policy)
        raise ContractError(
            f"agent {agent!r}: body {replayed[0].number} is in {', '.join(replayed[0].environments)}, which replays "
            f"what others did; {recipe.algorithm} learns from what its own policy does. Test the agent there, or "
            f"train it with one of {off_policy}"
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
    """Describe the learner's spaces for a body."""
    sensors, actuators = body.sensors, body.actuators
    return (
        describe_space(observation_space([s.space for s in sensors]).space),
        str(action_space([a.space for a in actuators], [a.uid for a in actuators]).space),
    )
