"""What an agent remembers: one row per action, closed by the reward that follows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(slots=True)
class MemoryShard:
    """The last ``n`` rows of a memory, oldest first. Arrays are read-only views.

    ======================= ====================== =======================================
    ``sensor_readings``     (n, readings) float64  what the agent saw
    ``actuator_setpoints``  (n, setpoints) float64 what it did
    ``rewards``             (n, rewards) float64   the environment's answer
    ``objective``           (n,) float64           the objective's value (NaN: none yet)
    ``terminated``          (n,) bool              the world ended with this row
    ``truncated``           (n,) bool              the episode was cut after this row
    ``additional_data``     list of length n       second result of ``propose_actions``
    ======================= ====================== =======================================
    """

    sensor_readings: FloatArray
    actuator_setpoints: FloatArray
    rewards: FloatArray
    objective: FloatArray
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    additional_data: list[Any] = field(default_factory=list)

    @property
    def dones(self) -> npt.NDArray[np.bool_]:
        """(n,) bool: the episode ended with this row, for either reason."""
        return self.terminated | self.truncated

    def __len__(self) -> int:
        return len(self.objective)


class Memory:
    """Rows of one body in numpy buffers; appending and ``tail`` do not depend on its size.

    ``size_limit`` rows are kept at least; older ones are dropped. The buffers hold up to
    twice that, so that the tail is always one contiguous view.
    """

    def __init__(self, size_limit: int = 100_000):
        self._size_limit = 0
        self._start = 0
        self._end = 0
        self._capacity = 0
        self._widths: tuple[int, int, int] | None = None
        self._data: list[Any] = []
        self._arrays: list[npt.NDArray[Any]] = []
        self.size_limit = size_limit

    @property
    def size_limit(self) -> int:
        """The number of rows that are kept."""
        return self._size_limit

    @size_limit.setter
    def size_limit(self, rows: int) -> None:
        if rows < 1:
            raise ValueError(f"size_limit must be at least 1, not {rows}")
        self._size_limit = int(rows)
        self.truncate(self._size_limit)

    def __len__(self) -> int:
        return self._end - self._start

    def append(
        self,
        readings: FloatArray,
        setpoints: FloatArray,
        rewards: FloatArray,
        data: Any = None,
        objective: float = np.nan,
    ) -> None:
        """Add a row; an objective that is computed from it is set by :meth:`close` later."""
        if self._end == self._capacity:
            self._make_room((len(readings), len(setpoints), len(rewards)))
        i = self._end
        self._readings[i] = readings
        self._setpoints[i] = setpoints
        self._rewards[i] = rewards
        self._objective[i] = objective
        self._data.append(data)
        self._end = i + 1
        if i + 1 - self._start > self._size_limit:
            self._start += 1

    def close(self, objective: float) -> None:
        """Set the objective of the newest row."""
        if self._end == self._start:
            raise IndexError("the memory is empty: there is no row to close")
        self._objective[self._end - 1] = objective

    def mark_end(self, *, terminated: bool, truncated: bool) -> None:
        """Say that the episode ended with the newest row."""
        if self._end > self._start:
            self._flags[self._end - 1] = (terminated, truncated)

    def tail(self, n: int = 1) -> MemoryShard:
        """Return the last ``n`` rows (fewer if there are fewer)."""
        end = self._end
        if end == self._start:
            none = np.empty((0, 0))
            off = np.empty(0, dtype=bool)
            return MemoryShard(none, none, none, np.empty(0), off, off)
        start = max(self._start, end - n)
        readings, setpoints, rewards, objective, flags = self._views
        return MemoryShard(
            readings[start:end],
            setpoints[start:end],
            rewards[start:end],
            objective[start:end],
            flags[start:end, 0],
            flags[start:end, 1],
            self._data[start:end],
        )

    def truncate(self, n: int) -> None:
        """Forget all but the last ``n`` rows (``n`` is not negative)."""
        if n < 0:
            raise ValueError(f"n must not be negative, not {n}")
        self._start = max(self._start, self._end - n)

    def clear(self) -> None:
        """Forget everything."""
        self._start = self._end

    def _make_room(self, widths: tuple[int, int, int]) -> None:
        keep = slice(self._start, self._end)
        rows = self._end - self._start
        if self._widths is None:
            self._widths = widths
        # Half empty (the limit moved the start on): move down in place. Else grow.
        if self._capacity and rows <= self._capacity // 2:
            for array in self._arrays:
                array[:rows] = array[keep].copy()
        else:
            self._capacity = max(64, 2 * rows)
            old = self._arrays if rows else None
            shapes: list[tuple[tuple[int, ...], type]] = [
                *(((self._capacity, w), np.float64) for w in self._widths),
                ((self._capacity,), np.float64),
                ((self._capacity, 2), np.bool_),
            ]
            self._arrays = [np.empty(shape, dtype) for shape, dtype in shapes]
            if old is not None:
                for new, array in zip(self._arrays, old, strict=True):
                    new[:rows] = array[keep]
            self._readings, self._setpoints, self._rewards, self._objective, self._flags = self._arrays
            self._views = [array.view() for array in self._arrays]
            for view in self._views:
                view.flags.writeable = False
        # rows to come end nothing, until they are said to
        self._flags[rows:] = False
        self._data = self._data[keep]
        self._start, self._end = 0, rows
