"""The memory of an agent: one row per action, closed by the reward that follows it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types.arrays import FloatArray, FloatVector, IntVector


@dataclass(slots=True)
class Experience:
    """One closed row of one muscle.

    Attributes:
        muscle: the uid of the muscle.
        readings: (readings,), those of the environment.
        setpoints: (setpoints,), those of the environment.
        rewards: (rewards,), those of the environment.
        observations: the muscle's observations; equal to the readings without filters.
        actions: the muscle's actions; equal to the set-points without filters.
        objective: the objective's value, NaN without one.
        data: the second result of ``propose_actions``.
        terminated: whether the world ended with this row.
        truncated: whether the episode was cut after this row. Both are true if the world ended in the step in which
            time ran out.
        final_observations: the muscle's next observations, only if the episode ended with this row.
        step: the row's number in its episode, from 0.
    """

    muscle: str
    readings: FloatVector
    setpoints: FloatVector
    rewards: FloatVector
    objective: float
    data: Any
    observations: FloatVector
    actions: FloatVector
    terminated: bool = False
    truncated: bool = False
    final_observations: FloatVector | None = None
    step: int = 0

    @property
    def done(self) -> bool:
        """Whether the episode ended with this row, for either reason."""
        return self.terminated or self.truncated


BoolArray = npt.NDArray[np.bool_]

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
    """The columns of a memory; a row has the same index in each.

    ``observations`` is ``readings`` itself (and ``actions`` is ``setpoints``) until a row
    comes in which they differ. ``muscles`` and ``steps`` exist once there are several muscles:
    the muscle's number in ``names``, and the distance to the muscle's next row (0: none yet).
    ``finals`` has final observations by row index.
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
        # rows to come have no objective and do not end an episode by default
        objective, flags = np.full(capacity, np.nan), np.zeros((capacity, 2), dtype=np.bool_)
        return cls(readings, setpoints, rewards, objective, flags, readings, setpoints)

    def each(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Columns:
        """Apply ``change`` to each array, only once to arrays that are the same object."""
        done: dict[int, npt.NDArray[Any]] = {}

        def once(array: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
            if array is not None and id(array) not in done:
                done[id(array)] = change(array)
            return None if array is None else done[id(array)]

        arrays: dict[str, Any] = {name: once(getattr(self, name)) for name in _ARRAYS}
        return replace(self, **arrays)

    def moved(self, keep: slice, capacity: int) -> Columns:
        """Return new columns for ``capacity`` rows that start with those of ``keep``."""
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

    def following(self, places: IntVector, end: int) -> FloatArray:
        """Return the same muscle's next observations for the rows at ``places``, from rows before ``end``."""
        result = np.full((len(places), self.observations.shape[1]), np.nan)
        done = self.flags[places].any(axis=1)
        steps = np.ones_like(places) if self.steps is None else self.steps[places]
        has_next = ~done & (steps > 0) & (places + steps < end)
        result[has_next] = self.observations[(places + steps)[has_next]]
        if self.finals:
            for i in np.flatnonzero(done).tolist():
                final = self.finals.get(int(places[i]))
                if final is not None:
                    result[i] = final
        return result


class MemoryShard:
    """Some rows of a memory, as :meth:`Memory.tail` and :meth:`Memory.sample` return them. Arrays are read-only.

    ======================= ========================= =====================================
    ``sensor_readings``     (n, readings) float64     readings of the environment
    ``actuator_setpoints``  (n, setpoints) float64    set-points of the environment
    ``observations``        (n, observations) float64 the muscle's observations: readings, filtered
    ``actions``             (n, actions) float64      the muscle's actions, before the filters
    ``next_observations``   (n, observations) float64 the muscle's next observations
    ``rewards``             (n, rewards) float64      rewards of the environment
    ``objective``           (n,) float64              the objective's value (NaN: none yet)
    ``terminated``          (n,) bool                 the world ended with this row
    ``truncated``           (n,) bool                 the episode was cut after this row
    ``dones``               (n,) bool                 either of the two
    ``additional_data``     list of length n          second result of ``propose_actions``
    ``muscles``             list of length n          ids of the muscles
    ======================= ========================= =====================================

    Rows of :meth:`Memory.tail` are views: rows closed later show in them. They stay valid when
    the memory drops its rows. ``next_observations`` is from the same muscle's next row or, if the
    episode ended with the row, its final observation. It is NaN if unknown: the muscle has not acted
    since, or the final observation was not recorded.
    """

    __slots__ = ("_columns", "_end", "_next", "_rows")

    def __init__(self, columns: Columns, rows: slice | IntVector, end: int, next: FloatArray | None = None):
        self._columns = columns
        self._rows = rows
        # rows from this index on were added later
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
        # only these rows, without the rest of the memory
        rows = self._rows
        columns = self._columns.each(lambda array: array[rows].copy())
        columns = replace(columns, data=self.additional_data, finals={}, names=list(columns.names))
        return _restored, (columns, self.next_observations)

    def _places(self) -> IntVector:
        rows = self._rows
        return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view of ``array`` that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _restored(columns: Columns, following: FloatArray) -> MemoryShard:
    """Rebuild a pickled shard; its arrays must be made read-only again."""
    rows = len(columns.objective)
    return MemoryShard(columns.each(read_only), slice(0, rows), rows, read_only(following))


#: initial capacity of a memory, in rows
_FIRST_CAPACITY = 64


class Memory:
    """Rows in numpy buffers; the cost of ``append`` and ``tail`` does not depend on its size.

    Rows may come from several muscles in turn.

    Args:
        size_limit: the number of rows that are kept, the newest ones; the buffers hold up to a quarter more,
            so that the tail is always one contiguous view.
        rng: the generator of :meth:`sample`; set by the framework.

    Raises:
        ValueError: ``size_limit`` is less than 1.
    """

    def __init__(self, size_limit: int = 100_000, rng: np.random.Generator | None = None):
        self.rng = rng
        self._size_limit = 0
        self._start = self._end = self._capacity = 0
        self._widths: tuple[int, int, int] | None = None
        #: the muscle if there is exactly one, else None
        self._only: str | None = None
        #: with several muscles: their numbers, and the indices of their newest rows (-1: dropped)
        self._codes: dict[str, int] = {}
        self._newest: list[int] = []
        self._install(Columns.of(0, (0, 0, 0)))
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

    @property
    def tags(self) -> set[str]:
        """The ids of the muscles with rows in this memory."""
        codes, names, live = self._columns.muscles, self._columns.names, slice(self._start, self._end)
        if codes is None:
            return set(names) if self else set()
        return {names[code] for code in np.unique(codes[live]).tolist()}

    def __len__(self) -> int:
        return self._end - self._start

    def __iter__(self) -> Iterator[MemoryShard]:
        """Yield the rows, one shard for each, oldest first."""
        seen, end = self._seen, self._end
        for i in range(self._start, end):
            yield MemoryShard(seen, slice(i, i + 1), end)

    def append(  # noqa: PLR0913 (one argument per column)
        self,
        readings: FloatArray,
        setpoints: FloatArray,
        rewards: FloatArray,
        data: Any = None,
        objective: float = np.nan,
        *,
        muscle: str = "",
        observations: FloatArray | None = None,
        actions: FloatArray | None = None,
    ) -> None:
        """Add a row. All arrays are copied.

        Args:
            readings: (readings,), readings of the environment.
            setpoints: (setpoints,), set-points of the environment.
            rewards: (rewards,), rewards of the environment.
            data: the second result of ``propose_actions``.
            objective: the objective's value; NaN if :meth:`close` sets it later.
            muscle: the uid of the muscle.
            observations: the muscle's observations, if they differ from ``readings``.
            actions: the muscle's actions, if they differ from ``setpoints``.

        Raises:
            ValueError: a length differs from that of the rows in the memory. Lengths may change only while it
                is empty.
        """
        i = self._end
        widths = (len(readings), len(setpoints), len(rewards))
        if i == self._capacity or widths != self._widths:
            self._make_room(widths)
            i = self._end
        columns = self._columns
        columns.readings[i] = readings
        columns.setpoints[i] = setpoints
        columns.rewards[i] = rewards
        if observations is not None or columns.observations is not columns.readings:
            self._fill("observations", "readings", observations, i)
        if actions is not None or columns.actions is not columns.setpoints:
            self._fill("actions", "setpoints", actions, i)
        if objective == objective:  # noqa: PLR0124 (not NaN, which is there already)
            columns.objective[i] = objective
        if muscle != self._only:
            self._belongs(muscle)
        self._columns.data.append(data)
        self._end = i + 1
        if i + 1 - self._start > self._size_limit:
            self._start += 1

    def append_experience(self, experience: Experience) -> None:
        """Add a row, and its end if the episode ended with it.

        Args:
            experience: the row; its arrays are copied.

        Raises:
            ValueError: a length differs from that of the rows in the memory.
        """
        e = experience
        self.append(
            e.readings,
            e.setpoints,
            e.rewards,
            e.data,
            e.objective,
            muscle=e.muscle,
            observations=None if e.observations is e.readings else e.observations,
            actions=None if e.actions is e.setpoints else e.actions,
        )
        if e.done:
            self.mark_end(
                terminated=e.terminated,
                truncated=e.truncated,
                muscle=e.muscle,
                final_observations=e.final_observations,
            )

    def append_experiences(self, experiences: Sequence[Experience]) -> None:
        """Add rows and their ends, like :meth:`append_experience` with one after the other.

        Args:
            experiences: the rows, oldest first. All must have the same lengths.

        Raises:
            ValueError: a length differs from that of the rows in the memory.
        """
        if not experiences:
            return
        readings = np.array([e.readings for e in experiences])
        setpoints = np.array([e.setpoints for e in experiences])
        rewards = np.array([e.rewards for e in experiences])
        n, widths = len(experiences), (readings.shape[1], setpoints.shape[1], rewards.shape[1])
        if self._end + n > self._capacity or widths != self._widths:
            self._make_room(widths, n)
        first, end = self._end, self._end + n
        rows, columns = slice(first, end), self._columns
        columns.readings[rows], columns.setpoints[rows] = readings, setpoints
        columns.rewards[rows], columns.objective[rows] = rewards, [e.objective for e in experiences]
        self._fill_filtered(experiences, rows)
        for e in experiences:
            if e.muscle != self._only:
                self._belongs(e.muscle)
            self._end += 1
        self._columns.data.extend([e.data for e in experiences])
        self._start = max(self._start, end - self._size_limit)
        for index, e in enumerate(experiences, first):
            if e.done:
                self._ends(index, (e.terminated, e.truncated), e.final_observations)

    def close(self, objective: float) -> None:
        """Set the objective of the newest row.

        Args:
            objective: its value; NaN for no value.

        Raises:
            IndexError: the memory is empty.
        """
        if self._end == self._start:
            raise IndexError("the memory is empty: there is no row to close")
        self._columns.objective[self._end - 1] = objective

    def mark_end(
        self,
        *,
        terminated: bool,
        truncated: bool,
        muscle: str | None = None,
        final_observations: FloatArray | None = None,
    ) -> None:
        """Mark the newest row as the end of its episode.

        Nothing happens if the memory has already dropped the row.

        Args:
            terminated: whether the world ended with this row.
            truncated: whether the episode was cut after this row.
            muscle: the uid of the muscle with the row; ``None``: the newest row of all.
            final_observations: the muscle's next observations, of the length of a row's observations;
                ``None`` if unknown.

        Raises:
            ValueError: ``final_observations`` has another length.
        """
        index = self._end - 1 if muscle is None else self._newest_of(muscle)
        self._ends(index, (terminated, truncated), final_observations)

    def tail(self, n: int = 1, include_only: Collection[str] | None = None) -> MemoryShard:
        """Return the last rows, oldest first.

        Args:
            n: number of rows; there may be fewer in the memory.
            include_only: count and return only rows of muscles with these ids; ``None``: all.

        Raises:
            ValueError: ``n`` is negative.
            TypeError: ``include_only`` is a text instead of a list.
        """
        if n < 0:
            raise ValueError(f"n must not be negative, not {n}")
        end = self._end
        if include_only is not None and not self._includes_all(include_only):
            return MemoryShard(self._seen, self._places_of(include_only, n), end)
        return MemoryShard(self._seen, slice(max(self._start, end - n), end), end)

    def sample(self, n: int = 1, include_only: Collection[str] | None = None) -> MemoryShard:
        """Return different rows, drawn at random from all complete rows.

        A row is complete when its muscle has acted again, or the episode ended with it.

        Args:
            n: number of rows. If fewer are complete, all of them are returned, in random order.
            include_only: draw only rows of muscles with these ids; ``None``: all.

        Raises:
            RuntimeError: there is no :attr:`rng`.
            ValueError: ``n`` is negative.
            TypeError: ``include_only`` is a text instead of a list.
        """
        if self.rng is None:
            raise RuntimeError("this memory has no generator to sample with: set memory.rng")
        if n < 0:
            raise ValueError(f"n must not be negative, not {n}")
        newest = self._newest if self._columns.muscles is not None else [self._end - 1]
        waiting = sorted(i for i in newest if i >= self._start and not self._columns.flags[i].any())
        if include_only is not None and not self._includes_all(include_only):
            candidates = np.setdiff1d(self._places_of(include_only, len(self)), waiting, assume_unique=True)
            return MemoryShard(
                self._seen, self.rng.choice(candidates, min(n, len(candidates)), replace=False), self._end
            )
        complete = len(self) - len(waiting)
        indices = self._start + self.rng.choice(complete, min(n, complete), replace=False)
        for i in waiting:  # ascending: skip each
            indices[indices >= i] += 1
        return MemoryShard(self._seen, indices, self._end)

    def truncate(self, n: int) -> None:
        """Drop all but the newest rows.

        Args:
            n: number of rows to keep.

        Raises:
            ValueError: ``n`` is negative.
        """
        if n < 0:
            raise ValueError(f"n must not be negative, not {n}")
        self._start = max(self._start, self._end - n)

    def clear(self) -> None:
        """Drop all rows."""
        self._start = self._end

    def __getstate__(self) -> dict[str, Any]:
        live = slice(self._start, self._end)
        newest = [i - self._start if i >= self._start else -1 for i in self._newest]
        state = {name: value for name, value in vars(self).items() if name != "_seen"}
        columns = self._columns.moved(live, len(self))
        return state | {
            "_columns": columns,
            "_newest": newest,
            "_codes": dict(self._codes),
            "_start": 0,
            "_end": len(self),
            "_capacity": len(self),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._install(self._columns)

    def _install(self, columns: Columns) -> None:
        self._columns = columns
        #: read-only views of the columns, for shards
        self._seen = columns.each(read_only)

    def _ends(self, index: int, flags: tuple[bool, bool], final_observations: FloatArray | None) -> None:
        """Set the ``flags`` (terminated, truncated) of the row at ``index``, unless it was dropped."""
        if index < self._start:
            return
        columns = self._columns
        if final_observations is not None:
            width = columns.observations.shape[1]
            if np.shape(final_observations) != (width,):
                raise ValueError(
                    f"final observations have shape {np.shape(final_observations)}, but a row has ({width},)"
                )
            columns.finals[index] = np.array(final_observations, dtype=np.float64)
        columns.flags[index] = flags

    def _make_room(self, widths: tuple[int, int, int], n: int = 1) -> None:
        """Grow or compact the columns to hold ``n`` more rows of these ``widths``."""
        rows = self._end - self._start
        most = self._size_limit + max(self._size_limit // 4, 1)
        target = self._capacity if rows <= self._capacity // 2 else 2 * rows
        capacity = max(min(target, most), _FIRST_CAPACITY, rows + n)
        if widths == self._widths:
            # new arrays, because shards may still view the old ones
            columns = self._columns.moved(slice(self._start, self._end), capacity)
            self._newest = [i - self._start if i >= self._start else -1 for i in self._newest]
        elif rows:
            raise ValueError(
                f"a row of (readings, set-points, rewards) of lengths {widths} does not go with the rows of "
                f"this memory, which have {self._widths}; only an empty memory takes other lengths"
            )
        else:
            self._widths = widths
            self._only, self._codes, self._newest = None, {}, []
            columns = Columns.of(capacity, widths)
        self._capacity = capacity
        self._start, self._end = 0, rows
        self._install(columns)

    def _fill(self, name: str, common_name: str, values: FloatArray | None, places: int | slice) -> None:
        """Write ``values`` into the column ``name`` of the rows being added.

        Without ``values``, copy the column ``common_name``, which was shared until now.
        """
        column, common = getattr(self._columns, name), getattr(self._columns, common_name)
        if values is None:
            values = common[places]
        width, column_width = np.shape(values)[-1], column.shape[1]
        if width != column_width and self._end > self._start:
            raise ValueError(
                f"a row with {width} {name} does not go with the rows of this memory, which have {column_width}; only "
                f"an empty memory takes other lengths"
            )
        if column is common or width != column_width:
            live = slice(self._start, self._end)
            column = np.empty((self._capacity, width))
            if width == column_width:
                column[live] = common[live]
            new: dict[str, Any] = {name: column}
            self._install(replace(self._columns, **new))
        column[places] = values

    def _fill_filtered(self, experiences: Sequence[Experience], rows: slice) -> None:
        """Write observations and actions, unless all rows so far share them with readings and set-points."""
        for name, common in (("observations", "readings"), ("actions", "setpoints")):
            if getattr(self._columns, name) is not getattr(self._columns, common) or any(
                getattr(e, name) is not getattr(e, common) for e in experiences
            ):
                self._fill(name, common, np.array([getattr(e, name) for e in experiences]), rows)

    def _belongs(self, muscle: str) -> None:
        """Record that the row being added belongs to ``muscle``, which is not the only one."""
        columns, i = self._columns, self._end
        if columns.muscles is None:
            if self._end == self._start:
                self._install(replace(columns, names=[muscle]))
                self._only = muscle
                return
            numbers = np.zeros((2, self._capacity), dtype=np.int32)
            # so far, each row is followed directly by the next one
            numbers[1, : i - 1] = 1
            columns = replace(columns, muscles=numbers[0], steps=numbers[1])
            self._install(columns)
            self._only, self._codes, self._newest = None, {columns.names[0]: 0}, [i - 1]
        assert columns.muscles is not None and columns.steps is not None
        code = self._codes.setdefault(muscle, len(columns.names))
        if code == len(columns.names):
            columns.names.append(muscle)
            self._newest.append(-1)
        before = self._newest[code]
        if before >= 0:
            columns.steps[before] = i - before
        columns.muscles[i] = code
        self._newest[code] = i

    def _newest_of(self, muscle: str) -> int:
        if self._columns.muscles is None:
            return self._end - 1 if muscle == self._only else -1
        return self._newest[self._codes[muscle]] if muscle in self._codes else -1

    def _includes_all(self, muscles: Collection[str]) -> bool:
        if isinstance(muscles, str):
            raise TypeError(f"include_only takes a list of muscle ids, not the text {muscles!r}")
        return self._columns.muscles is None and self._only in muscles

    def _places_of(self, muscles: Collection[str], n: int) -> IntVector:
        """Return the indices of the last ``n`` rows of ``muscles``, oldest first."""
        selected = np.array([name in muscles for name in self._columns.names])
        if n == 0 or self._columns.muscles is None or not selected.any():
            return np.empty(0, dtype=np.int64)
        back = n
        while True:
            # usually they are near the end
            start = max(self._start, self._end - back)
            indices = start + np.flatnonzero(selected[self._columns.muscles[start : self._end]])
            if len(indices) >= n or start == self._start:
                return indices[-n:]
            back *= 4
