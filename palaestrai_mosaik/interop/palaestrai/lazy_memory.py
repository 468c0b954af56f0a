"""palaestrAI's memory, with data frames that are created on first access."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
import palaestrai.agent
import pandas as pd
from palaestrai.agent.memory import MemoryShard, _MuscleMemory

from palaestrai_mosaik.types.arrays import Array, FloatArray

from .translate import PalaestraiInfos


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
