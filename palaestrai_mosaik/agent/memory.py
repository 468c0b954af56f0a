"""What an agent remembers: one row per action, closed by the reward that follows it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types.arrays import FloatVector


@dataclass(slots=True)
class Experience:
    """One closed row of one muscle.

    ``terminated`` and ``truncated`` are never both true.

    Attributes:
        readings: (readings,), those of the environment.
        setpoints: (setpoints,), those of the environment.
        rewards: (rewards,), those of the environment.
        observations: what the muscle saw; the readings, unless the agent has filters.
        actions: what the muscle returned; the set-points, unless the agent has filters.
        objective: NaN where the objective gave none.
        final_observations: what the muscle would have seen next, only where the episode ended with this row.
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
    #: the row's number in its episode
    step: int = 0

    @property
    def done(self) -> bool:
        """The episode ended with this row, for either reason."""
        return self.terminated or self.truncated


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


#: rows that a memory has room for at first
_FIRST_CAPACITY = 64


class Memory:
    """Rows in numpy buffers; appending and ``tail`` do not depend on its size.

    Rows may come from several muscles in turn.

    Args:
        size_limit: the number of rows that are kept, the newest ones; the buffers hold up to a quarter more,
            so that the tail is always one contiguous view.
        rng: what :meth:`sample` draws from; the framework sets it.
    """

    def __init__(self, size_limit: int = 100_000, rng: np.random.Generator | None = None):
        self.rng = rng
        self._size_limit = 0
        self._start = self._end = self._capacity = 0
        self._widths: tuple[int, int, int] | None = None
        #: the only muscle (there is none yet, or there are several: None)
        self._only: str | None = None
        #: of several muscles: their numbers, and the places of their newest rows (-1: dropped)
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
        """The ids of the muscles that have rows here."""
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
            readings: (readings,), what the environment showed.
            setpoints: (setpoints,), what was done in it.
            rewards: (rewards,), the environment's answer.
            data: the second result of ``propose_actions``.
            objective: the objective's value; NaN: it is set by :meth:`close` later.
            muscle: the uid of the muscle.
            observations: what the muscle saw, where it differs from ``readings``; ``None``: it does not.
            actions: what the muscle returned, where it differs from ``setpoints``; ``None``: it does not.

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
        """Add ``experience`` as a row, and its end if the episode ended with it."""
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
        """Add rows, and their ends: what :meth:`append_experience` does with one after the other.

        All are of the same lengths.
        """
        rows = [(e.readings, e.setpoints, e.rewards) for e in experiences]
        if not rows:
            return
        readings, setpoints, rewards = (np.array(column) for column in zip(*rows, strict=True))
        widths = (readings.shape[1], setpoints.shape[1], rewards.shape[1])
        n = len(rows)
        if self._end + n > self._capacity or widths != self._widths:
            self._make_room(widths, n)
        first, end = self._end, self._end + n
        places = slice(first, end)
        columns = self._columns
        columns.readings[places] = readings
        columns.setpoints[places] = setpoints
        columns.rewards[places] = rewards
        columns.objective[places] = [e.objective for e in experiences]
        if columns.observations is not columns.readings or any(
            e.observations is not e.readings for e in experiences
        ):
            self._fill("observations", "readings", np.array([e.observations for e in experiences]), places)
        if columns.actions is not columns.setpoints or any(e.actions is not e.setpoints for e in experiences):
            self._fill("actions", "setpoints", np.array([e.actions for e in experiences]), places)
        for e in experiences:
            if e.muscle != self._only:
                self._belongs(e.muscle)
            self._end += 1
        self._columns.data.extend([e.data for e in experiences])
        self._start = max(self._start, end - self._size_limit)
        for place, e in enumerate(experiences, first):
            if e.done:
                self._ends(place, (e.terminated, e.truncated), e.final_observations)

    def close(self, objective: float) -> None:
        """Set the objective of the newest row."""
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
        """Say that the episode ended with the newest row.

        Nothing happens if the memory does not have the row any more.

        Args:
            terminated: the world ended with this row.
            truncated: the episode was cut after this row.
            muscle: the uid of the muscle with the row; ``None``: the newest row of all.
            final_observations: what the muscle would have seen next, of the length of a row's observations;
                ``None``: not known.
        """
        place = self._end - 1 if muscle is None else self._newest_of(muscle)
        self._ends(place, (terminated, truncated), final_observations)

    def tail(self, n: int = 1, include_only: Collection[str] | None = None) -> MemoryShard:
        """Return the last rows, oldest first.

        Args:
            n: number of rows; there are fewer if the memory has fewer.
            include_only: count and return only rows of muscles with these ids; ``None``: all.
        """
        if n < 0:
            raise ValueError(f"n must not be negative, not {n}")
        end = self._end
        if include_only is not None and not self._includes_all(include_only):
            return MemoryShard(self._seen, self._places_of(include_only, n), end)
        return MemoryShard(self._seen, slice(max(self._start, end - n), end), end)

    def sample(self, n: int = 1, include_only: Collection[str] | None = None) -> MemoryShard:
        """Return different rows, drawn at random from all that are complete.

        A row is complete when its muscle has acted again, or the episode ended with it.

        Args:
            n: number of rows. All complete rows are returned, in random order, where there are no more.
            include_only: draw only rows of muscles with these ids; ``None``: all.

        Raises:
            RuntimeError: there is no :attr:`rng`.
        """
        if self.rng is None:
            raise RuntimeError("this memory has no generator to sample with: set memory.rng")
        if n < 0:
            raise ValueError(f"n must not be negative, not {n}")
        newest = self._newest if self._columns.muscles is not None else [self._end - 1]
        waiting = sorted(i for i in newest if i >= self._start and not self._columns.flags[i].any())
        if include_only is not None and not self._includes_all(include_only):
            found = np.setdiff1d(self._places_of(include_only, len(self)), waiting, assume_unique=True)
            return MemoryShard(
                self._seen, self.rng.choice(found, min(n, len(found)), replace=False), self._end
            )
        complete = len(self) - len(waiting)
        places = self._start + self.rng.choice(complete, min(n, complete), replace=False)
        for i in waiting:  # ascending: leave out each
            places[places >= i] += 1
        return MemoryShard(self._seen, places, self._end)

    def truncate(self, n: int) -> None:
        """Forget all but the last ``n`` rows (``n`` is not negative)."""
        if n < 0:
            raise ValueError(f"n must not be negative, not {n}")
        self._start = max(self._start, self._end - n)

    def clear(self) -> None:
        """Forget everything."""
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
        #: what shards show
        self._seen = columns.each(read_only)

    def _ends(self, place: int, flags: tuple[bool, bool], final_observations: FloatArray | None) -> None:
        """Set the ``flags`` (terminated, truncated) of the row at ``place``, if it is still there."""
        if place < self._start:
            return
        columns = self._columns
        if final_observations is not None:
            width = columns.observations.shape[1]
            if np.shape(final_observations) != (width,):
                raise ValueError(
                    f"final observations have shape {np.shape(final_observations)}, but a row has ({width},)"
                )
            columns.finals[place] = np.array(final_observations, dtype=np.float64)
        columns.flags[place] = flags

    def _make_room(self, widths: tuple[int, int, int], n: int = 1) -> None:
        """Make the columns ready for ``n`` rows more, of these ``widths``."""
        rows = self._end - self._start
        most = self._size_limit + max(self._size_limit // 4, 1)
        wanted = self._capacity if rows <= self._capacity // 2 else 2 * rows
        capacity = max(min(wanted, most), _FIRST_CAPACITY, rows + n)
        if widths == self._widths:
            # New arrays, as there may be shards that look at the old ones.
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
        """Write ``values`` into the column ``name`` of the row (or rows) that are being added.

        Without ``values`` it is as in the column ``common_name``; until now all were.
        """
        column, common = getattr(self._columns, name), getattr(self._columns, common_name)
        if values is None:
            values = common[places]
        width, has = np.shape(values)[-1], column.shape[1]
        if width != has and self._end > self._start:
            raise ValueError(
                f"a row with {width} {name} does not go with the rows of this memory, which have {has}; only "
                f"an empty memory takes other lengths"
            )
        if column is common or width != has:
            live = slice(self._start, self._end)
            column = np.empty((self._capacity, width))
            if width == has:
                column[live] = common[live]
            new: dict[str, Any] = {name: column}
            self._install(replace(self._columns, **new))
        column[places] = values

    def _belongs(self, muscle: str) -> None:
        """Note that the row that is being added is of ``muscle``, which is not the only one."""
        columns, i = self._columns, self._end
        if columns.muscles is None:
            if self._end == self._start:
                self._install(replace(columns, names=[muscle]))
                self._only = muscle
                return
            numbers = np.zeros((2, self._capacity), dtype=np.int32)
            # so far, each row is followed by the next one
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

    def _places_of(self, muscles: Collection[str], n: int) -> Places:
        """Return the places of the last ``n`` rows of ``muscles``, oldest first."""
        wanted = np.array([name in muscles for name in self._columns.names])
        if n == 0 or self._columns.muscles is None or not wanted.any():
            return np.empty(0, dtype=np.int64)
        back = n
        while True:
            # most often they are near the end
            start = max(self._start, self._end - back)
            found = start + np.flatnonzero(wanted[self._columns.muscles[start : self._end]])
            if len(found) >= n or start == self._start:
                return found[-n:]
            back *= 4
