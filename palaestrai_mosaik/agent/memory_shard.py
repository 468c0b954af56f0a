"""The rows of a memory: its columns, and the part of them that a brain is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

_ARRAYS = (
    "readings",
    "setpoints",
    "rewards",
    "objective",
    "flags",
    "observations",
    "actions",
    "muscles",
    "steps",
)


@dataclass(slots=True)
class Columns:
    """The columns of a memory; what belongs to one row has the same place in each.

    ``observations`` is ``readings`` itself (and ``actions`` is ``setpoints``) until a row
    comes in which they differ. ``muscles`` and ``steps`` are there once there is more than
    one muscle: the muscle's number in ``names``, and how many places further the muscle's
    next row is (0: none yet). ``finals`` has the final observation by place.
    """

    readings: FloatArray
    setpoints: FloatArray
    rewards: FloatArray
    objective: FloatArray
    flags: BoolArray
    observations: FloatArray
    actions: FloatArray
    muscles: npt.NDArray[np.int32] | None = None
    steps: npt.NDArray[np.int32] | None = None
    data: list[Any] = field(default_factory=list)
    finals: dict[int, FloatArray] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, capacity: int, widths: tuple[int, int, int]) -> Columns:
        readings, setpoints, rewards = (np.empty((capacity, width)) for width in widths)
        # rows to come have no objective and end nothing, until they are said to
        objective, flags = np.full(capacity, np.nan), np.zeros((capacity, 2), dtype=np.bool_)
        return cls(readings, setpoints, rewards, objective, flags, readings, setpoints)

    def each(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Columns:
        """Return the columns with ``change`` made to each array, once where two are the same."""
        done: dict[int, npt.NDArray[Any]] = {}

        def once(array: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
            if array is not None and id(array) not in done:
                done[id(array)] = change(array)
            return None if array is None else done[id(array)]

        arrays: dict[str, Any] = {name: once(getattr(self, name)) for name in _ARRAYS}
        return replace(self, **arrays)

    def moved(self, keep: slice, capacity: int) -> Columns:
        """Return new columns for ``capacity`` rows that begin with those of ``keep``."""
        rows = keep.stop - keep.start

        def move(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
            new = np.empty((capacity, *array.shape[1:]), array.dtype)
            new[:rows] = array[keep]
            return new

        moved = self.each(move)
        moved.objective[rows:] = np.nan
        moved.flags[rows:] = False
        if moved.steps is not None:
            moved.steps[rows:] = 0
        moved.data, moved.names = self.data[keep], list(self.names)
        moved.finals = {k - keep.start: v for k, v in self.finals.items() if keep.start <= k < keep.stop}
        return moved

    def following(self, places: Places, end: int) -> FloatArray:
        """Return what the same muscle saw next, for rows at ``places`` of those before ``end``."""
        result = np.full((len(places), self.observations.shape[1]), np.nan)
        done = self.flags[places].any(axis=1)
        steps = np.ones_like(places) if self.steps is None else self.steps[places]
        known = ~done & (steps > 0) & (places + steps < end)
        result[known] = self.observations[(places + steps)[known]]
        if self.finals:
            for i in np.flatnonzero(done).tolist():
                final = self.finals.get(int(places[i]))
                if final is not None:
                    result[i] = final
        return result


class MemoryShard:
    """Some rows of a memory. Arrays are read-only.

    ======================= ========================= =====================================
    ``sensor_readings``     (n, readings) float64     what the environment showed
    ``actuator_setpoints``  (n, setpoints) float64    what was done in it
    ``observations``        (n, observations) float64 what the muscle saw: readings, filtered
    ``actions``             (n, actions) float64      what it returned, before the filters
    ``next_observations``   (n, observations) float64 what it saw next
    ``rewards``             (n, rewards) float64      the environment's answer
    ``objective``           (n,) float64              the objective's value (NaN: none yet)
    ``terminated``          (n,) bool                 the world ended with this row
    ``truncated``           (n,) bool                 the episode was cut after this row
    ``dones``               (n,) bool                 either of the two
    ``additional_data``     list of length n          second result of ``propose_actions``
    ``muscles``             list of length n          ids of the muscles
    ======================= ========================= =====================================

    Rows of :meth:`Memory.tail` are views: what is closed later shows in them. They stay when
    the memory drops its rows. ``next_observations`` is from the same muscle's next row or,
    where the episode ended with the row, its final observation. It is NaN where it is not
    known: the muscle has not acted since, or the final observation was not told.
    """

    __slots__ = ("_columns", "_end", "_next", "_rows")

    def __init__(self, columns: Columns, rows: slice | Places, end: int, next: FloatArray | None = None):
        self._columns = columns
        self._rows = rows
        # rows from here on came later
        self._end = end
        self._next = next

    @property
    def sensor_readings(self) -> FloatArray:
        return self._columns.readings[self._rows]

    @property
    def actuator_setpoints(self) -> FloatArray:
        return self._columns.setpoints[self._rows]

    @property
    def observations(self) -> FloatArray:
        return self._columns.observations[self._rows]

    @property
    def actions(self) -> FloatArray:
        return self._columns.actions[self._rows]

    @property
    def next_observations(self) -> FloatArray:
        if self._next is None:
            return self._columns.following(self._places(), self._end)
        return self._next

    @property
    def rewards(self) -> FloatArray:
        return self._columns.rewards[self._rows]

    @property
    def objective(self) -> FloatArray:
        return self._columns.objective[self._rows]

    @property
    def terminated(self) -> BoolArray:
        return self._columns.flags[self._rows, 0]

    @property
    def truncated(self) -> BoolArray:
        return self._columns.flags[self._rows, 1]

    @property
    def dones(self) -> BoolArray:
        return self.terminated | self.truncated

    @property
    def additional_data(self) -> list[Any]:
        rows, data = self._rows, self._columns.data
        return data[rows] if isinstance(rows, slice) else [data[i] for i in rows.tolist()]

    @property
    def muscles(self) -> list[str]:
        names, codes = self._columns.names, self._columns.muscles
        if codes is None:
            return names[:1] * len(self)
        return [names[code] for code in codes[self._rows].tolist()]

    def __len__(self) -> int:
        rows = self._rows
        return rows.stop - rows.start if isinstance(rows, slice) else len(rows)

    def __repr__(self) -> str:
        return f"<MemoryShard of {len(self)} rows>"

    def __reduce__(self) -> tuple[Any, ...]:
        # the rows alone, without what else the memory has
        rows = self._rows
        columns = self._columns.each(lambda array: array[rows].copy())
        columns = replace(columns, data=self.additional_data, finals={}, names=list(columns.names))
        return _restored, (columns, self.next_observations)

    def _places(self) -> Places:
        rows = self._rows
        return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view of ``array`` that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _restored(columns: Columns, following: FloatArray) -> MemoryShard:
    """Return the shard that was pickled; numpy makes arrays that can be written to."""
    rows = len(columns.objective)
    return MemoryShard(columns.each(read_only), slice(0, rows), rows, read_only(following))
