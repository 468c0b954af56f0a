"""Streams of rows: what an agent or an environment did, step by step.

Rows are collected in one preallocated block and leave it as part files. In the block a
row is a packed record: integers and flags first, then all floats. So appending a row is
one ``struct.pack_into`` and a slice assignment for each vector, and the digest of a
stream is simply taken over the block's bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import StoreError

from .models import to_json
from .pace import PART_ROWS, Pace
from .parts import PartWriter, arrow_column, text_column
from .records import AgentRecord, EnvironmentRecord, channel_columns, distinct

if TYPE_CHECKING:
    import pyarrow as pa

Vector = npt.NDArray[np.float64] | Sequence[float]

#: a block's size; as much again is needed while a part is written
_BLOCK_BYTES = 12 * 2**20
_KEYS = ("worker", "episode", "step", "time")


class RowStream:
    """What streams of agents and of environments share."""

    def __init__(
        self,
        writer: PartWriter,
        header: str,
        names: Sequence[str],
        values: Sequence[str],
        on_part: Callable[[], None],
    ):
        """``header`` is the struct format and ``names`` the columns that start a row."""
        self._writer = writer
        self._on_part = on_part
        self._struct = struct.Struct("<" + header)
        dtypes = {"q": "<i8", "i": "<i4", "h": "<i2", "?": "?", "d": "<f8"}
        self._header = np.dtype([(n, dtypes[f]) for n, f in zip(names, header, strict=True)])
        self._cells = self._header.itemsize // 8
        self._value_names = list(values)
        self._row_bytes = self._header.itemsize + 8 * len(self._value_names)
        capacity = max(16, min(PART_ROWS, _BLOCK_BYTES // self._row_bytes))
        self._block = np.empty((capacity, self._row_bytes // 8), dtype="<f8")
        self._bytes = self._block.data.cast("B")
        self._pace = Pace(capacity)
        self._limit = self._pace.next_look
        self._filled = 0
        self._rows_written = 0
        self._hashes: dict[int, Any] = {}
        # JSON that belongs to some rows of the block (of environments only)
        self._states: dict[int, str] = {}
        #: the number of parts written so far
        self.parts = 0

    @property
    def folder(self) -> Path:
        """Where the parts lie."""
        return self._writer.folder

    @property
    def rows(self) -> int:
        """The number of rows appended so far."""
        return self._rows_written + self._filled

    @property
    def rows_written(self) -> int:
        """The number of rows that are in complete parts."""
        return self._rows_written

    def digest(self) -> str:
        """Return the SHA-256 of all rows so far, wall-clock left out, as hex digits.

        The rows of each worker are hashed in their order, and then the hashes in order
        of the worker; so neither the cutting into parts nor the scheduling of the workers
        changes it.
        """
        hashes = {worker: hashed.copy() for worker, hashed in self._hashes.items()}
        self._hash_rows(hashes)
        total = hashlib.sha256()
        for worker in sorted(hashes):
            total.update(struct.pack("<q", worker) + hashes[worker].digest())
        return total.hexdigest()

    def flush(self) -> None:
        """Write the rows that are still in memory, if any, as a part."""
        if self._filled == 0:
            return
        self._write(self._columns())
        hashes = {worker: hashed.copy() for worker, hashed in self._hashes.items()}
        self._hash_rows(hashes)
        limit = self._pace.written()
        # Ctrl-C may strike at any call, and these rows are to be written once: until here,
        # a repetition would replace the same part; from here on, nothing is called.
        self._hashes = hashes
        self._rows_written += self._filled
        self._filled = 0
        self._states = {}
        self._limit = limit
        self.parts += 1

    def _write(self, columns: dict[str, pa.Array]) -> None:
        self._writer.write(self.parts, columns)

    def _look(self) -> int:
        """Write a part if one is due; return the row of the block to fill next."""
        if self._pace.due(self._filled, self.parts):
            self.flush()
            self._on_part()
        self._limit = self._pace.next_look
        return self._filled

    def _heads(self) -> npt.NDArray[Any]:
        return self._block[: self._filled, : self._cells].view(self._header)[:, 0]

    def _columns(self) -> dict[str, pa.Array]:
        heads = self._heads()
        columns = {name: arrow_column(heads[name].copy()) for name in _KEYS}
        values = np.ascontiguousarray(self._block[: self._filled, self._cells :].T)
        columns |= {name: arrow_column(row) for name, row in zip(self._value_names, values, strict=True)}
        rest = [name for name in self._header.names or () if name not in _KEYS]
        return columns | {name: arrow_column(heads[name].copy()) for name in rest}

    def _hash_rows(self, hashes: dict[int, Any]) -> None:
        rows = self._block[: self._filled]
        workers = self._heads()["worker"]
        present = np.unique(workers)
        for worker in present.tolist():
            chosen = rows if len(present) == 1 else rows[workers == worker]
            hashes.setdefault(worker, hashlib.sha256()).update(chosen.data.cast("B"))

    def _refuse(self, error: Exception, **vectors: tuple[Any, int]) -> StoreError:
        for what, (vector, size) in vectors.items():
            found = np.shape(vector)
            if found != (size,):
                return StoreError(f"{self._writer.folder.name}: {what} of shape {found}, expected ({size},)")
        return StoreError(f"{self._writer.folder.name}: cannot record this step: {error}")


class AgentStream(RowStream):
    """The steps of one agent in one phase: what it read, set and was rewarded with.

    Wall-clock times go to a folder of their own, so that the trajectories of two runs of
    the same document and seed can be compared byte by byte.
    """

    def __init__(
        self,
        folder: Path,
        wall_folder: Path,
        record: AgentRecord,
        metadata: dict[str, Any],
        on_part: Callable[[], None],
    ):
        readings = channel_columns("reading", record.sensors)
        setpoints = channel_columns("setpoint", record.actuators)
        rewards = [f"reward.{name}" for name in record.rewards]
        super().__init__(
            PartWriter(folder, metadata),
            "qqih??d",
            ["step", "time", "episode", "worker", "terminated", "truncated", "objective"],
            distinct([*readings, *setpoints, *rewards]),
            on_part,
        )
        self._wall_writer = PartWriter(wall_folder, metadata)
        self._wall = np.empty(self._pace.capacity, dtype="<f4")
        self._sizes = (len(readings), len(setpoints), len(rewards))
        start = self._cells
        self._setpoints_at = start + len(readings)
        self._rewards_at = self._setpoints_at + len(setpoints)

    def append(  # noqa: PLR0913  (one row; an object to carry it would cost more)
        self,
        worker: int,
        episode: int,
        step: int,
        time: int,
        readings: Vector,
        setpoints: Vector,
        rewards: Vector,
        objective: float,
        terminated: bool,
        truncated: bool,
        wall: float,
    ) -> None:
        """Record one step. The vectors are copied.

        ``readings`` and ``setpoints`` are the flattened values of the sensors and
        actuators in the order of the agent's record, ``rewards`` those that it names;
        ``time`` is in mosaik ticks, ``wall`` in seconds. Raises :class:`StoreError` for
        vectors of another size, and when a part cannot be written.
        """
        row = self._filled
        if row >= self._limit:
            row = self._look()
        try:
            if (len(readings), len(setpoints), len(rewards)) != self._sizes:
                raise ValueError("wrong number of values")  # numpy would repeat a single one
            self._struct.pack_into(
                self._bytes,
                row * self._row_bytes,
                step,
                time,
                episode,
                worker,
                terminated,
                truncated,
                objective,
            )
            values = self._block[row]
            values[self._cells : self._setpoints_at] = readings
            values[self._setpoints_at : self._rewards_at] = setpoints
            values[self._rewards_at :] = rewards
        except (struct.error, ValueError, TypeError) as error:
            raise self._wrong(readings, setpoints, rewards, error) from error
        self._wall[row] = wall
        self._filled = row + 1

    def _wrong(self, readings: Vector, setpoints: Vector, rewards: Vector, error: Exception) -> StoreError:
        r, s, w = self._sizes
        return self._refuse(error, readings=(readings, r), setpoints=(setpoints, s), rewards=(rewards, w))

    def _write(self, columns: dict[str, pa.Array]) -> None:
        wall = {name: columns[name] for name in _KEYS} | {"wall": arrow_column(self._wall[: self._filled])}
        # Wall-clock first: a part of the trajectory, once visible, then has its wall part.
        self._wall_writer.write(self.parts, wall)
        super()._write(columns)


class EnvironmentStream(RowStream):
    """The states of one environment in one phase."""

    def __init__(
        self,
        folder: Path,
        record: EnvironmentRecord,
        metadata: dict[str, Any],
        on_part: Callable[[], None],
    ):
        readings = channel_columns("reading", record.sensors)
        rewards = channel_columns("reward", record.rewards)
        super().__init__(
            PartWriter(folder, metadata),
            "qqih??",
            ["step", "time", "episode", "worker", "terminated", "truncated"],
            distinct([*readings, *rewards]),
            on_part,
        )
        self._sizes = (len(readings), len(rewards))
        self._rewards_at = self._cells + len(readings)

    def append(  # noqa: PLR0913  (one row, as for agents)
        self,
        worker: int,
        episode: int,
        step: int,
        time: int,
        readings: Vector,
        rewards: Vector,
        terminated: bool,
        truncated: bool,
        state: Any = None,
    ) -> None:
        """Record one state. The vectors are copied; ``state`` must be JSON-able, or ``None``.

        ``readings`` holds the flattened values of all sensors in the order of the record.
        Raises :class:`StoreError` for vectors of another size, a state without a JSON
        form, and when a part cannot be written.
        """
        row = self._filled
        if row >= self._limit:
            row = self._look()
        try:
            if (len(readings), len(rewards)) != self._sizes:
                raise ValueError("wrong number of values")  # numpy would repeat a single one
            self._struct.pack_into(
                self._bytes, row * self._row_bytes, step, time, episode, worker, terminated, truncated
            )
            values = self._block[row]
            values[self._cells : self._rewards_at] = readings
            values[self._rewards_at :] = rewards
        except (struct.error, ValueError, TypeError) as error:
            raise self._wrong(readings, rewards, error) from error
        if state is not None:
            self._states[row] = to_json(state)
        self._filled = row + 1

    def _wrong(self, readings: Vector, rewards: Vector, error: Exception) -> StoreError:
        r, w = self._sizes
        return self._refuse(error, readings=(readings, r), rewards=(rewards, w))

    def _columns(self) -> dict[str, pa.Array]:
        states = text_column(self._states.get(row) for row in range(self._filled))
        return super()._columns() | {"state": states}

    def _hash_rows(self, hashes: dict[int, Any]) -> None:
        super()._hash_rows(hashes)
        heads = self._heads()
        for row, text in self._states.items():
            data = text.encode()
            hashed = hashes.setdefault(-1 - int(heads["worker"][row]), hashlib.sha256())
            hashed.update(heads[row].tobytes() + struct.pack("<q", len(data)) + data)


class StatisticsStream:
    """What agents tell about themselves now and then, in long format."""

    def __init__(self, folder: Path, metadata: dict[str, Any], on_part: Callable[[], None]):
        self._writer = PartWriter(folder, metadata)
        self._on_part = on_part
        self._pace = Pace(PART_ROWS)
        self._lines: list[tuple[str, int, int, int, str, float]] = []
        self._rows_written = 0
        self._hashes: dict[int, Any] = {}
        #: the number of parts written so far
        self.parts = 0

    @property
    def folder(self) -> Path:
        """Where the parts lie."""
        return self._writer.folder

    @property
    def rows(self) -> int:
        """The number of rows appended so far."""
        return self._rows_written + len(self._lines)

    @property
    def rows_written(self) -> int:
        """The number of rows that are in complete parts."""
        return self._rows_written

    def append(self, agent: str, worker: int, episode: int, step: int, key: str, value: float) -> None:
        """Record that ``agent`` had ``key`` = ``value`` after ``step``."""
        if len(self._lines) >= self._pace.next_look and self._pace.due(len(self._lines), self.parts):
            self.flush()
            self._on_part()
        try:
            self._lines.append((agent, int(worker), int(episode), int(step), str(key), float(value)))
        except (TypeError, ValueError) as error:
            raise StoreError(f"statistic {key!r} of agent {agent!r}: {value!r} is not a number") from error

    def digest(self) -> str:
        """Return the SHA-256 of all rows so far, worker by worker, as hex digits."""
        hashes = {worker: hashed.copy() for worker, hashed in self._hashes.items()}
        self._hash_rows(hashes)
        return hashlib.sha256(b"".join(hashes[worker].digest() for worker in sorted(hashes))).hexdigest()

    def flush(self) -> None:
        """Write the rows that are still in memory, if any, as a part."""
        if not self._lines:
            return
        agents, workers, episodes, steps, keys, values = zip(*self._lines, strict=True)
        self._writer.write(
            self.parts,
            {
                "agent": text_column(agents),
                "worker": arrow_column(np.array(workers, dtype=np.int16)),
                "episode": arrow_column(np.array(episodes, dtype=np.int32)),
                "step": arrow_column(np.array(steps, dtype=np.int64)),
                "key": text_column(keys),
                "value": arrow_column(np.array(values, dtype=np.float64)),
            },
        )
        hashes = {worker: hashed.copy() for worker, hashed in self._hashes.items()}
        self._hash_rows(hashes)
        written = self.rows
        self._pace.written()
        # As above, no call from here on.
        self._hashes = hashes
        self._rows_written = written
        self._lines = []
        self.parts += 1

    def _hash_rows(self, hashes: dict[int, Any]) -> None:
        for agent, worker, episode, step, key, value in self._lines:
            hashed = hashes.setdefault(worker, hashlib.sha256())
            hashed.update(to_json([agent, episode, step, key]).encode() + struct.pack("<d", value))
