"""Memories of palaestrAI parts: each row is also appended to palaestrAI's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import palaestrai.agent

from palaestrai_mosaik.agent import Memory
from palaestrai_mosaik.simulation.connections import Channels
from palaestrai_mosaik.types.arrays import Array, FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .base import is_known
from .lazy_memory import LazyMemory
from .translate import PalaestraiChannels, PalaestraiInfos


class MirroredMemory(Memory):
    """Our memory for a palaestrAI part, with the same rows in palaestrAI's memory ``mirror``.

    A row has a tag in the mirror, the muscle's name there.
    """

    def __init__(self, channels: Channels, mirror: LazyMemory, size_limit: int):
        super().__init__(size_limit)
        self.mirror = mirror
        # palaestrAI uses the rewards' names in the environments
        rewards = Layout.of([reward for handle in channels.handles for reward in handle.rewards])
        self._sensors = PalaestraiChannels(channels.sensors, palaestrai.agent.SensorInformation)
        self._actuators = PalaestraiChannels(
            channels.actuators, palaestrai.agent.ActuatorInformation, gaps=True
        )
        self._rewards = PalaestraiChannels(rewards, palaestrai.agent.RewardInformation)
        #: by tag, the number of rows in the current episode
        self._decisions: dict[str, int] = {}

    def _mirror_row(
        self,
        tag: str,
        sensors: PalaestraiInfos,
        setpoints: FloatVector,
        rewards: FloatVector,
        objective: Array | None,
    ) -> None:
        """Append a row to the mirror; ``None`` if its ``objective`` follows."""
        decision = self._decisions.get(tag, 0)
        self._decisions[tag] = decision + 1
        self.mirror.append(
            tag,
            sensor_readings=sensors,
            actuator_setpoints=PalaestraiInfos(self._actuators, setpoints),
            rewards=PalaestraiInfos(self._rewards, rewards),
            done=False,
            objective=objective,
            terminated=False,
            truncated=False,
            decision_index=decision,
        )

    def _mirror_end(self, tag: str, terminated: bool, truncated: bool) -> None:
        """Mark the newest row of ``tag`` in the mirror as the end of its episode."""
        self._decisions[tag] = 0
        column = self.mirror._data[tag]
        # the row may have been dropped
        if column.dones:
            column.dones[-1] = terminated or truncated
            column.terminated[-1], column.truncated[-1] = terminated, truncated


class RolloutMemory(MirroredMemory):
    """The memory of a muscle and its objective, filled as in palaestrAI's rollout worker.

    Its rows have the environment's readings and set-points, and the objective once that is computed. ``tag`` is the
    muscle's uid.
    """

    def __init__(self, channels: Channels, mirror: LazyMemory, size_limit: int, tag: str):
        super().__init__(channels, mirror, size_limit)
        self.tag = tag

    def append(
        self,
        readings: FloatVector,
        setpoints: FloatVector,
        rewards: FloatVector,
        data: Any = None,
        objective: float = np.nan,
        **columns: Any,
    ) -> None:
        super().append(readings, setpoints, rewards, data, objective, **columns)
        self._mirror_row(self.tag, PalaestraiInfos(self._sensors, readings), setpoints, rewards, None)

    def close(self, objective: float) -> None:
        super().close(objective)
        self.mirror.append(self.tag, objective=np.array([objective if is_known(objective) else None]))

    def mark_end(self, *, terminated: bool, truncated: bool, **row: Any) -> None:
        super().mark_end(terminated=terminated, truncated=truncated, **row)
        self._mirror_end(self.tag, terminated, truncated)


class BrainMemory(MirroredMemory):
    """The memory of a brain, filled as in palaestrAI's learner, with the muscles' observations.

    Rows without an objective are not mirrored (see ``palaestrai.agent.Objective.internal_reward``), nor are rows
    without readings, set-points or rewards. ``observed`` has the sensors as observed by the muscles. While
    :attr:`replaying`, every episode of a muscle has a separate tag.
    """

    def __init__(self, channels: Channels, mirror: LazyMemory, observed: Layout):
        # a size of 1, because our rows are only needed for mirroring
        super().__init__(channels, mirror, 1)
        self._observed = PalaestraiChannels(observed, palaestrai.agent.SensorInformation)
        self.replaying = True
        self._newest_muscle = ""
        #: by muscle, whether its newest row has an objective
        self._has_objective: dict[str, bool] = {}
        #: by muscle, the number of its episodes that have ended
        self._episodes: dict[str, int] = {}

    @property
    def has_objective(self) -> bool:
        """Whether the newest row has an objective."""
        return self._has_objective[self._newest_muscle]

    def append(
        self,
        readings: FloatVector,
        setpoints: FloatVector,
        rewards: FloatVector,
        data: Any = None,
        objective: float = np.nan,
        *,
        muscle: str = "",
        observations: FloatVector | None = None,
        **columns: Any,
    ) -> None:
        super().append(
            *(readings, setpoints, rewards, data, objective),
            muscle=muscle,
            observations=observations,
            **columns,
        )
        self._newest_muscle = muscle
        self._has_objective[muscle] = is_known(objective)
        if is_known(objective) and len(readings) and len(setpoints) and len(rewards):
            sensors = PalaestraiInfos(self._observed, readings if observations is None else observations)
            self._mirror_row(self._tag(muscle), sensors, setpoints, rewards, np.array([objective]))

    def mark_end(
        self,
        *,
        terminated: bool,
        truncated: bool,
        muscle: str | None = None,
        final_observations: FloatVector | None = None,
    ) -> None:
        super().mark_end(terminated=terminated, truncated=truncated, muscle=muscle)
        name = self._newest_muscle if muscle is None else muscle
        if self._has_objective.get(name):
            self._mirror_end(self._tag(name), terminated, truncated)
        self._episodes[name] = self._episodes.get(name, 0) + 1

    def _tag(self, muscle: str) -> str:
        return f"pretrainer:{muscle}:{self._episodes.get(muscle, 0)}" if self.replaying else muscle
