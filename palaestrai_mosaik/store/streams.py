"""Streams of rows: what an agent or an environment did, step by step.

Rows are collected in one preallocated block and leave it as part files. In the block a
row is a packed record: integers and flags first, then all floats. So appending a row is
one ``struct.pack_into`` and a slice assignment for each vector, and the digest of a
stream is simply taken over the block's bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import StoreError

from .digests import Line, RowDigest, StatisticsDigest
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


class Header:
    """What starts a row, before its floats: a struct format, and a name for each of its fields."""

    def __init__(self, format: str, names: Sequence[str]):
        self.struct = struct.Struct("<" + format)
        dtypes = {"q": "<i8", "i": "<i4", "h": "<i2", "?": "?", "d": "<f8"}
        self.dtype = np.dtype([(n, dtypes[f]) for n, f in zip(names, format, strict=True)])
        #: the number of floats that take as much room
        self.cells = self.dtype.itemsize // 8
        self.names = tuple(names)

    def of(self, block: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return the view (n,) of what starts the rows of ``block`` (n, width)."""
        return block[:, : self.cells].view(self.dtype)[:, 0]


AGENT_HEADER = Header(
    "qqih??d", ["step", "time", "episode", "worker", "terminated", "truncated", "objective"]
)
ENVIRONMENT_HEADER = Header("qqih??", ["step", "time", "episode", "worker", "terminated", "truncated"])


class RowStream:
    """What streams of agents and of environments share."""

    def __init__(
        self,
        writer: PartWriter,
        header: Header,
        values: Sequence[str],
        on_part: Callable[[], None],
    ):
        self._writer = writer
        self._on_part = on_part
        self._header = header
        self._struct = header.struct
        self._cells = header.cells
        self._value_names = list(values)
        self._row_bytes = header.dtype.itemsize + 8 * len(self._value_names)
        capacity = max(16, min(PART_ROWS, _BLOCK_BYTES // self._row_bytes))
        self._block = np.empty((capacity, self._row_bytes // 8), dtype="<f8")
        self._bytes = self._block.data.cast("B")
        self._pace = Pace(capacity)
        self._limit = self._pace.next_look
        self._filled = 0
        self._rows_written = 0
        self._digest = RowDigest()
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
        """Return the SHA-256 of all rows so far, wall-clock left out, as hex digits."""
        return self._whole_digest().hexdigest()

    def restore(self, rows: int, parts: int, digest: RowDigest, values: Sequence[str]) -> None:
        """Go on behind the ``rows`` that the first ``parts`` parts hold.

        ``digest`` is theirs, ``values`` are the columns of numbers that they have. Raises
        :class:`StoreError` if this stream has others.
        """
        if rows and list(values) != self._value_names:
            raise StoreError(
                f"{self._writer.folder} has the columns {', '.join(values)}; now they would be "
                f"{', '.join(self._value_names)}"
            )
        self._rows_written, self.parts, self._digest = rows, parts, digest

    def flush(self) -> None:
        """Write the rows that are still in memory, if any, as a part."""
        if self._filled == 0:
            return
        self._write(self._columns())
        digest = self._whole_digest()
        limit = self._pace.written()
        # Ctrl-C may strike at any call, and these rows are to be written once: until here,
        # a repetition would replace the same part; from here on, nothing is called.
        self._digest = digest
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

    def _whole_digest(self) -> RowDigest:
        block, digest = self._block[: self._filled], self._digest.copy()
        digest.add(block, self._header.of(block), self._states)
        return digest

    def _columns(self) -> dict[str, pa.Array]:
        heads = self._header.of(self._block[: self._filled])
        columns = {name: arrow_column(heads[name].copy()) for name in _KEYS}
        values = np.ascontiguousarray(self._block[: self._filled, self._cells :].T)
        columns |= {name: arrow_column(row) for name, row in zip(self._value_names, values, strict=True)}
        rest = [name for name in self._header.names if name not in _KEYS]
        return columns | {name: arrow_column(heads[name].copy()) for name in rest}

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
            AGENT_HEADER,
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
            ENVIRONMENT_HEADER,
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


class StatisticsStream:
    """What agents tell about themselves now and then, in long format."""

    def __init__(self, folder: Path, metadata: dict[str, Any], on_part: Callable[[], None]):
        self._writer = PartWriter(folder, metadata)
        self._on_part = on_part
        self._pace = Pace(PART_ROWS)
        self._lines: list[Line] = []
        self._rows_written = 0
        self._digest = StatisticsDigest()
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
        return self._whole_digest().hexdigest()

    def restore(self, rows: int, parts: int, digest: StatisticsDigest) -> None:
        """Go on behind the ``rows`` that the first ``parts`` parts hold; ``digest`` is theirs."""
        self._rows_written, self.parts, self._digest = rows, parts, digest

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
        digest = self._whole_digest()
        written = self.rows
        self._pace.written()
        # As above, no call from here on.
        self._digest = digest
        self._rows_written = written
        self._lines = []
        self.parts += 1

    def _whole_digest(self) -> StatisticsDigest:
        digest = self._digest.copy()
        digest.add(self._lines)
        return digest
