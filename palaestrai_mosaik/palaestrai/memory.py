"""palaestrAI's memory: filled from ours, and quicker to look at."""

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
    """One row of a muscle's memory, with palaestrAI's defaults for what it has not."""

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


def _at(column: deque[Any], place: int, default: Any) -> Any:
    try:
        return column[place]
    except IndexError:
        return default


class LazyMemory(palaestrai.agent.Memory):
    """palaestrAI's memory with a :meth:`tail` that makes only the columns that are read.

    palaestrAI makes three data frames for each row of a tail, which takes about a millisecond, also
    where only the objective is asked for.
    """

    def tail(self, n: int = 1, include_only: list[str] | None = None) -> MemoryShard:
        """Return the last ``n`` rows, oldest first, as palaestrAI's method does."""
        if len(self._index) < n or n < 1 or include_only:
            tags = [tag for tag in reversed(self._index) if not include_only or tag in include_only][:n]
        else:
            newest = reversed(self._index)
            tags = [next(newest) for _ in range(n)]
        if not tags:
            return super().tail(0)
        places: dict[str, int] = {}
        rows = []
        for tag in tags:
            place = places[tag] = places.get(tag, 0) - 1
            rows.append(_row(self._data[tag], place))
        rows.reverse()
        return LazyMemoryShard(rows)

    def clear(self) -> None:
        """Forget all rows and their muscles."""
        self._data.clear()
        self._index.clear()


def _row(column: Any, place: int) -> _Row:
    return _Row(
        _at(column.sensor_readings, place, []),
        _at(column.actuator_setpoints, place, []),
        column.rewards[place],
        _at(column.dones, place, [False]),
        _at(column.observations, place, [np.nan]),
        _at(column.actions, place, [np.nan]),
        _at(column.objective, place, [np.nan]),
        _at(column.additional_data, place, []),
        _at(column.terminated, place, None),
        _at(column.truncated, place, None),
        _at(column.decision_indices, place, None),
    )


class LazyMemoryShard(MemoryShard):
    """Rows of a memory; a column is made when it is looked at first."""

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
    """Return one column for each uid, with the values of all rows below each other."""
    numbers = _numbers(rows)
    if numbers is None:
        found: pd.DataFrame = pd.concat(
            [_MuscleMemory._infos_to_df(infos) for infos in rows], ignore_index=True
        )
        return found
    channels = cast(PalaestraiInfos, rows[0]).channels
    uids, kinds = channels.layout.uids, channels.kinds
    if set(kinds) == {np.float64}:
        return pd.DataFrame(numbers, columns=_names(uids))
    columns = zip(uids, kinds, numbers.T, strict=True)
    return pd.DataFrame({uid: column.astype(kind) for uid, kind, column in columns})


def _numbers(rows: Sequence[Sequence[Any]]) -> FloatArray | None:
    """Return the values of the rows, if all are of the same channels, single numbers, and as they were."""
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
    found: pd.Index = pd.Index(uids)
    return found


class MirroredMemory(Memory):
    """The memory that the engine fills for a part of palaestrAI: each row goes to palaestrAI's memory, too.

    ``mirror`` is filled as palaestrAI's rollout worker fills the one of a muscle and its objective:
    with the readings and set-points of the environment, and the objective when it is known. ``tag``
    is the muscle's uid.
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
        #: by muscle: how many rows of its episode there are so far
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
        """Hand on the row that was appended; its objective comes with :meth:`close`."""
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
        # the row may be forgotten by now
        if column.dones:
            column.dones[-1] = terminated or truncated
            column.terminated[-1], column.truncated[-1] = terminated, truncated


class BrainMemory(MirroredMemory):
    """A brain's memory: filled as palaestrAI's learner does it, with what the muscles have seen.

    Rows without an objective are not handed on (see ``palaestrai.agent.Objective.internal_reward``),
    nor those in which nothing was seen, done or rewarded. ``seen``: the sensors as the muscles see
    them. While :attr:`replaying`, every episode of a muscle has a tag of its own.
    """

    def __init__(self, channels: Channels, mirror: LazyMemory, seen: Layout):
        # the engine's rows are only there to be handed on
        super().__init__(channels, mirror, 1)
        self._shown = PalaestraiChannels(seen, palaestrai.agent.SensorInformation)
        self.replaying = True
        #: the muscle of the newest row
        self._newest_tag = ""
        #: by muscle: whether its newest row was handed on
        self._handed_on: dict[str, bool] = {}
        self._episodes: dict[str, int] = {}

    @property
    def handed_on(self) -> bool:
        """Whether the newest row was handed on."""
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
        known = self._handed_on[muscle] = is_known(objective)
        self._newest_tag = muscle
        if known and len(readings) and len(setpoints) and len(rewards):
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
    """Return the rewards under the names that their environments gave them, as palaestrAI names them."""
    return Layout.of([reward for handle in channels.handles for reward in handle.rewards])
