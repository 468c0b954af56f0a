"""Memories of palaestrAI parts: palaestrAI's own, with columns created on first access, and ours, which also fill it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
import palaestrai.agent
import pandas as pd
from palaestrai.agent.memory import MemoryShard, _MuscleMemory

from palaestrai_mosaik.agent import Memory
from palaestrai_mosaik.simulation.connections import Channels
from palaestrai_mosaik.types.arrays import Array, FloatArray, FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .base import is_known
from .translate import PalaestraiChannels, PalaestraiInfos


class _Columns(NamedTuple):
    """The columns of palaestrAI's memory, each with one value for every row."""

    sensor_readings: Sequence[Any]
    actuator_setpoints: Sequence[Any]
    rewards: Sequence[Any]
    dones: Sequence[Any]
    observations: Sequence[Any]
    actions: Sequence[Any]
    objective: Sequence[Any]
    additional_data: Sequence[Any]
    terminated: Sequence[Any]
    truncated: Sequence[Any]
    decision_indices: Sequence[Any]


#: palaestrAI's values for columns that lack a row; rewards are never missing
_DEFAULTS: dict[str, Any] = {
    "sensor_readings": [],
    "actuator_setpoints": [],
    "dones": [False],
    "observations": [np.nan],
    "actions": [np.nan],
    "objective": [np.nan],
    "additional_data": [],
    "terminated": None,
    "truncated": None,
    "decision_indices": None,
}


class LazyMemory(palaestrai.agent.Memory):
    """palaestrAI's memory with a :meth:`tail` that creates columns on first access.

    palaestrAI creates three data frames for each row of a tail, which takes about a millisecond even if only the
    objective is read.
    """

    def tail(self, n: int = 1, include_only: list[str] | None = None) -> MemoryShard:
        """Return the last ``n`` rows, oldest first, like palaestrAI's method."""
        if len(self._index) < n or n < 1 or include_only:
            tags = [tag for tag in reversed(self._index) if not include_only or tag in include_only][:n]
        else:
            newest = reversed(self._index)
            tags = [next(newest) for _ in range(n)]
        if not tags:
            return super().tail(0)
        indices: dict[str, int] = {}
        rows = []
        for tag in tags:
            index = indices[tag] = indices.get(tag, 0) - 1
            memory = self._data[tag]
            rows.append([_value(memory, name, index) for name in _Columns._fields])
        rows.reverse()
        return LazyMemoryShard(_Columns(*zip(*rows, strict=True)))

    def clear(self) -> None:
        """Remove all rows and muscles."""
        self._data.clear()
        self._index.clear()


def _value(memory: _MuscleMemory, name: str, index: int) -> Any:
    """Return a muscle's value in the column ``name``, or the column's default."""
    try:
        return getattr(memory, name)[index]
    except IndexError:
        if name not in _DEFAULTS:
            raise
        return _DEFAULTS[name]


class LazyMemoryShard(MemoryShard):
    """Rows of a memory, as columns that are created on first access."""

    def __init__(self, columns: _Columns):
        self._columns = columns

    def __reduce__(self) -> Any:
        return LazyMemoryShard, (self._columns,)

    @cached_property
    def sensor_readings(self) -> pd.DataFrame:
        return _frame(self._columns.sensor_readings)

    @cached_property
    def actuator_setpoints(self) -> pd.DataFrame:
        return _frame(self._columns.actuator_setpoints)

    @cached_property
    def rewards(self) -> pd.DataFrame:
        return _frame(self._columns.rewards)

    @cached_property
    def dones(self) -> Array:
        return np.concatenate([np.array([done]) for done in self._columns.dones])

    @cached_property
    def observations(self) -> Array:
        return _stacked(self._columns.observations)

    @cached_property
    def actions(self) -> Array:
        return _stacked(self._columns.actions)

    @cached_property
    def objective(self) -> Array:
        return np.concatenate([np.array(objective) for objective in self._columns.objective])

    @cached_property
    def additional_data(self) -> list[Any]:
        return list(chain.from_iterable(self._columns.additional_data))

    @cached_property
    def terminated(self) -> Array | None:
        return _optional(self._columns.terminated)

    @cached_property
    def truncated(self) -> Array | None:
        return _optional(self._columns.truncated)

    @cached_property
    def decision_indices(self) -> Array | None:
        return _optional(self._columns.decision_indices)


def _optional(values: Sequence[Any]) -> Array | None:
    return None if any(value is None for value in values) else np.array(values)


def _stacked(values: Sequence[Any]) -> Array:
    arrays = [np.array([value]) for value in values]
    width = max(array.shape[1] for array in arrays)
    return np.vstack([np.resize(array, width) for array in arrays])


def _frame(rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """Return a data frame with one column for each uid and one row for each element of ``rows``."""
    numbers = _numbers(rows)
    if numbers is None:
        frame: pd.DataFrame = pd.concat(
            [_MuscleMemory._infos_to_df(infos) for infos in rows], ignore_index=True
        )
        return frame
    channels = cast(PalaestraiInfos, rows[0]).channels
    uids, kinds = channels.layout.uids, channels.kinds
    if set(kinds) == {np.float64}:
        return pd.DataFrame(numbers, columns=_names(uids))
    columns = zip(uids, kinds, numbers.T, strict=True)
    return pd.DataFrame({uid: column.astype(kind) for uid, kind, column in columns})


def _numbers(rows: Sequence[Sequence[Any]]) -> FloatArray | None:
    """Return the values of the rows, or ``None`` unless all have the same scalar channels and are unmodified."""
    first = rows[0]
    if not isinstance(first, PalaestraiInfos) or not first.channels.kinds:
        return None
    channels = first.channels
    if not all(
        isinstance(row, PalaestraiInfos) and row.channels is channels and row.untouched for row in rows
    ):
        return None
    numbers = np.array([row.vector for row in cast("Sequence[PalaestraiInfos]", rows)])
    missing = channels.gaps and np.isnan(numbers).any()
    return None if missing or len(channels.layout.index) < len(channels.layout.uids) else numbers


@cache
def _names(uids: tuple[Any, ...]) -> pd.Index:
    index: pd.Index = pd.Index(uids)
    return index


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
