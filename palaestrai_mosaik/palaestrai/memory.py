"""palaestrAI's memory with lazy data frames, filled from ours."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
import palaestrai.agent
import pandas as pd
from palaestrai.agent.memory import MemoryShard, _MuscleMemory

from palaestrai_mosaik.agent import Memory
from palaestrai_mosaik.simulation.channels import Channels
from palaestrai_mosaik.types.arrays import Array, FloatArray, FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .base import is_known
from .translate import PalaestraiChannels, PalaestraiInfos


class _Row(NamedTuple):
    """One row of a muscle's memory, with palaestrAI's defaults for missing columns."""

    sensor_readings: Any
    actuator_setpoints: Any
    rewards: Any
    dones: Any
    observations: Any
    actions: Any
    objective: Any
    additional_data: Any
    terminated: Any
    truncated: Any
    decision_indices: Any


def _at(column: deque[Any], index: int, default: Any) -> Any:
    try:
        return column[index]
    except IndexError:
        return default


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
            rows.append(_row(self._data[tag], index))
        rows.reverse()
        return LazyMemoryShard(rows)

    def clear(self) -> None:
        """Remove all rows and muscles."""
        self._data.clear()
        self._index.clear()


def _row(column: Any, index: int) -> _Row:
    return _Row(
        _at(column.sensor_readings, index, []),
        _at(column.actuator_setpoints, index, []),
        column.rewards[index],
        _at(column.dones, index, [False]),
        _at(column.observations, index, [np.nan]),
        _at(column.actions, index, [np.nan]),
        _at(column.objective, index, [np.nan]),
        _at(column.additional_data, index, []),
        _at(column.terminated, index, None),
        _at(column.truncated, index, None),
        _at(column.decision_indices, index, None),
    )


class LazyMemoryShard(MemoryShard):
    """Rows of a memory, as columns that are created on first access."""

    def __init__(self, rows: Sequence[_Row]):
        self._rows = rows

    def __reduce__(self) -> Any:
        return LazyMemoryShard, (self._rows,)

    @cached_property
    def sensor_readings(self) -> pd.DataFrame:
        return _frame([row.sensor_readings for row in self._rows])

    @cached_property
    def actuator_setpoints(self) -> pd.DataFrame:
        return _frame([row.actuator_setpoints for row in self._rows])

    @cached_property
    def rewards(self) -> pd.DataFrame:
        return _frame([row.rewards for row in self._rows])

    @cached_property
    def dones(self) -> Array:
        return np.concatenate([np.array([row.dones]) for row in self._rows])

    @cached_property
    def observations(self) -> Array:
        return _stacked([row.observations for row in self._rows])

    @cached_property
    def actions(self) -> Array:
        return _stacked([row.actions for row in self._rows])

    @cached_property
    def objective(self) -> Array:
        return np.concatenate([np.array(row.objective) for row in self._rows])

    @cached_property
    def additional_data(self) -> list[Any]:
        return list(chain.from_iterable(row.additional_data for row in self._rows))

    @cached_property
    def terminated(self) -> Array | None:
        return _optional([row.terminated for row in self._rows])

    @cached_property
    def truncated(self) -> Array | None:
        return _optional([row.truncated for row in self._rows])

    @cached_property
    def decision_indices(self) -> Array | None:
        return _optional([row.decision_indices for row in self._rows])


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
    for row in rows:
        if not (isinstance(row, PalaestraiInfos) and row.channels is first.channels and row.untouched):
            return None
    numbers = np.array([row.vector for row in cast("Sequence[PalaestraiInfos]", rows)])
    layout = first.channels.layout
    missing = first.channels.gaps and np.isnan(numbers).any()
    return None if missing or len(layout.index) < len(layout.uids) else numbers


@cache
def _names(uids: tuple[Any, ...]) -> pd.Index:
    index: pd.Index = pd.Index(uids)
    return index


class MirroredMemory(Memory):
    """Our memory for a palaestrAI part; each row is also appended to palaestrAI's memory ``mirror``.

    ``mirror`` is filled like the memory of a muscle and its objective in palaestrAI's rollout worker: with the
    environment's readings and set-points, and with the objective once it is known. ``tag`` is the muscle's uid.
    """

    def __init__(self, channels: Channels, mirror: LazyMemory, size_limit: int, tag: str = ""):
        super().__init__(size_limit)
        self.mirror = mirror
        self.tag = tag
        self._sensors = PalaestraiChannels(channels.sensors, palaestrai.agent.SensorInformation)
        self._actuators = PalaestraiChannels(
            channels.actuators, palaestrai.agent.ActuatorInformation, gaps=True
        )
        self._rewards = PalaestraiChannels(_rewards(channels), palaestrai.agent.RewardInformation)
        #: by muscle, the number of rows in its current episode
        self._decisions: dict[str, int] = {}

    def append(  # noqa: PLR0913 (one argument per column)
        self,
        readings: FloatVector,
        setpoints: FloatVector,
        rewards: FloatVector,
        data: Any = None,
        objective: float = np.nan,
        *,
        muscle: str = "",
        observations: FloatVector | None = None,
        actions: FloatVector | None = None,
    ) -> None:
        super().append(
            readings,
            setpoints,
            rewards,
            data,
            objective,
            muscle=muscle,
            observations=observations,
            actions=actions,
        )
        self._mirror(readings, setpoints, rewards, objective, muscle, observations)

    def _mirror(
        self,
        readings: FloatVector,
        setpoints: FloatVector,
        rewards: FloatVector,
        objective: float,
        muscle: str,
        observations: FloatVector | None,
    ) -> None:
        """Append the row to the mirror. Its objective follows in :meth:`close`."""
        self._hand_on(self.tag, PalaestraiInfos(self._sensors, readings), setpoints, rewards, None)

    def close(self, objective: float) -> None:
        super().close(objective)
        self.mirror.append(self.tag, objective=np.array([objective if is_known(objective) else None]))

    def mark_end(
        self,
        *,
        terminated: bool,
        truncated: bool,
        muscle: str | None = None,
        final_observations: FloatVector | None = None,
    ) -> None:
        super().mark_end(
            terminated=terminated, truncated=truncated, muscle=muscle, final_observations=final_observations
        )
        self._ended(self.tag, terminated, truncated)

    def _hand_on(
        self,
        tag: str,
        sensors: PalaestraiInfos,
        setpoints: FloatVector,
        rewards: FloatVector,
        objective: Array | None,
    ) -> None:
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

    def _ended(self, tag: str, terminated: bool, truncated: bool) -> None:
        self._decisions[tag] = 0
        column = self.mirror._data[tag]
        # the row may have been dropped
        if column.dones:
            column.dones[-1] = terminated or truncated
            column.terminated[-1], column.truncated[-1] = terminated, truncated


class BrainMemory(MirroredMemory):
    """A brain's memory, filled like that of palaestrAI's learner, with the muscles' observations.

    Rows without an objective are not mirrored (see ``palaestrai.agent.Objective.internal_reward``), nor are rows
    without readings, set-points or rewards. ``seen`` has the sensors as observed by the muscles. While
    :attr:`replaying`, every episode of a muscle has a separate tag.
    """

    def __init__(self, channels: Channels, mirror: LazyMemory, seen: Layout):
        # a size of 1, because our rows are only needed for mirroring
        super().__init__(channels, mirror, 1)
        self._shown = PalaestraiChannels(seen, palaestrai.agent.SensorInformation)
        self.replaying = True
        #: the muscle of the newest row
        self._newest_tag = ""
        #: by muscle, whether its newest row was mirrored
        self._handed_on: dict[str, bool] = {}
        self._episodes: dict[str, int] = {}

    @property
    def handed_on(self) -> bool:
        """Whether the newest row was mirrored."""
        return self._handed_on[self._newest_tag]

    def _mirror(
        self,
        readings: FloatVector,
        setpoints: FloatVector,
        rewards: FloatVector,
        objective: float,
        muscle: str,
        observations: FloatVector | None,
    ) -> None:
        has_objective = self._handed_on[muscle] = is_known(objective)
        self._newest_tag = muscle
        if has_objective and len(readings) and len(setpoints) and len(rewards):
            sensors = PalaestraiInfos(self._shown, readings if observations is None else observations)
            self._hand_on(self._tag(muscle), sensors, setpoints, rewards, np.array([objective]))

    def mark_end(
        self,
        *,
        terminated: bool,
        truncated: bool,
        muscle: str | None = None,
        final_observations: FloatVector | None = None,
    ) -> None:
        Memory.mark_end(self, terminated=terminated, truncated=truncated, muscle=muscle)
        name = self._newest_tag if muscle is None else muscle
        if self._handed_on.get(name):
            self._ended(self._tag(name), terminated, truncated)
        self._episodes[name] = self._episodes.get(name, 0) + 1

    def _tag(self, muscle: str) -> str:
        return f"pretrainer:{muscle}:{self._episodes.get(muscle, 0)}" if self.replaying else muscle


def _rewards(channels: Channels) -> Layout:
    """Return the rewards with their names in the environments, which palaestrAI uses."""
    return Layout.of([reward for handle in channels.handles for reward in handle.rewards])
