"""Streams of rows: rows are collected in memory, hashed, and written as part files from time to time."""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.types.arrays import Array

from .models import to_json
from .open_parts import OpenPart, arrow_column, columns_of_rows, layout_of, packed
from .parts import PartWriter

if TYPE_CHECKING:
    import pyarrow as pa


Line = tuple[str, int, int, int, str, float]

# Offsets of the keys of separate hashes: of rows by body, and of environment episodes. A row with
# body 0 and episode 0 has the same digest as in releases without bodies.
_BODY = 2**16
_EPISODES = 2**48


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of a stream: ``block`` (n, width) with ``heads`` (n,), a view of each row's header.

    ``owners`` (n,) are their bodies or incarnations, ``episodes`` (n,) their episodes of the
    environment.
    """

    block: npt.NDArray[np.float64]
    heads: npt.NDArray[Any]
    owners: npt.NDArray[np.int32]
    episodes: npt.NDArray[np.int32]


class Digest:
    """The digest of rows of several workers, each in its order."""

    def __init__(self) -> None:
        self._hashes: dict[int, Any] = {}

    def copy(self) -> Self:
        """Copy the digest's state."""
        other = type(self)()
        other._hashes = {key: hashed.copy() for key, hashed in self._hashes.items()}
        return other

    def _of(self, key: int) -> Any:
        hashed = self._hashes.get(key)
        if hashed is None:
            hashed = self._hashes[key] = hashlib.sha256()
        return hashed

    def hexdigest(self) -> str:
        """Return the SHA-256 of all rows so far as hex digits."""
        hashes = (self._hashes[worker].digest() for worker in sorted(self._hashes))
        return hashlib.sha256(b"".join(hashes)).hexdigest()


class RowDigest(Digest):
    """The digest of rows of an agent or an environment."""

    def add(self, rows: Packed, states: Mapping[int, str]) -> None:
        """Update the digest with ``rows``; ``states`` has the JSON of some rows, in their order."""
        keys = rows.heads["worker"] + rows.owners.astype(np.int64) * _BODY
        later = np.flatnonzero(rows.episodes)
        self._add(keys, rows.block)
        if len(later):
            marks = np.empty(len(later), dtype=[("step", "<i8"), ("episode", "<i4")])
            marks["step"], marks["episode"] = rows.heads["step"][later], rows.episodes[later]
            self._add(keys[later] + _EPISODES, marks)
        for row, text in states.items():
            data = text.encode()
            hashed = self._of(-1 - int(keys[row]))
            hashed.update(rows.heads[row].tobytes() + struct.pack("<q", len(data)) + data)

    def _add(self, keys: npt.NDArray[np.int64], data: npt.NDArray[Any]) -> None:
        """Hash rows of ``data`` with equal keys together, in their order."""
        if not len(keys):
            return
        if (keys != keys[0]).any():
            order = np.argsort(keys, kind="stable")
            keys, data = keys[order], data[order]
        starts = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)]
        content = data.view(np.uint8).reshape(len(keys), -1)
        for start, end in pairwise(starts):
            self._of(int(keys[start])).update(content[start:end].data)

    def hexdigest(self) -> str:
        """Return the SHA-256 of all rows so far as hex digits."""
        total = hashlib.sha256()
        for key in sorted(self._hashes):
            total.update(struct.pack("<q", key) + self._hashes[key].digest())
        return total.hexdigest()


class ListDigest(Digest):
    """The digest of single records."""

    def add(self, records: Iterable[Any]) -> None:
        """Update the digest with ``records``."""
        raise NotImplementedError


class StatisticsDigest(ListDigest):
    """The digest of the statistics that agents reported."""

    def add(self, lines: Iterable[Line]) -> None:
        """Update the digest with lines of (agent, worker, episode, step, key, value)."""
        for agent, worker, episode, step, key, value in lines:
            text = to_json([_as_written(agent), episode, step, _as_written(key)])
            self._of(worker).update(text.encode() + struct.pack("<d", value))


def _as_written(text: str) -> str:
    # The text as it will be read back from a part, for the same digest.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


#: the number of rows in a full part
PART_ROWS = 20_000
#: seconds after which a part is written even if it is not full
PART_SECONDS = 4.0
# The clock is read at least every so many rows: steps may suddenly become slow.
_LONGEST_LOOK = 128
Vector = npt.NDArray[np.float64] | Sequence[float]

#: a block's size; writing a part needs the same again
_BLOCK_BYTES = 12 * 2**20
_MAIN = struct.Struct("<hi")  # worker and episode


class FlushPolicy:
    """Decides when a part is due: if the block is full, or after some seconds.

    The seconds grow with the number of parts, so that a run of days ends with hundreds
    of files and not with tens of thousands; a kill then costs about a fortieth of the
    time passed, and at least four seconds. The clock is read only several times a second,
    every so many rows.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.next_look = 1
        self._looked = self._written = monotonic()
        self._looked_at = 0

    def due(self, filled: int, parts: int) -> bool:
        """Whether ``filled`` rows, after ``parts`` parts, are to be written now."""
        now = monotonic()
        per_second = (filled - self._looked_at) / max(now - self._looked, 1e-6)
        self._looked, self._looked_at = now, filled
        self.next_look = min(filled + max(1, min(_LONGEST_LOOK, int(per_second / 8))), self.capacity)
        if filled >= self.capacity:
            return True
        return filled > 0 and now - self._written >= PART_SECONDS * (1 + parts / 20)

    def written(self) -> int:
        """Note that all rows were written; return the number of rows before the next check."""
        self._written = monotonic()
        self.next_look = max(1, self.next_look - self._looked_at)
        self._looked_at = 0
        return self.next_look


class Header:
    """The start of a row, before its floats: a struct format, and a name for each of its fields."""

    def __init__(self, format: str, names: Sequence[str]):
        self.struct = struct.Struct("<" + format)
        dtypes = {"q": "<i8", "i": "<i4", "h": "<i2", "?": "?", "d": "<f8"}
        self.dtype = np.dtype([(n, dtypes[f]) for n, f in zip(names, format, strict=True)])
        #: its size in floats
        self.cells = self.dtype.itemsize // 8
        self.names = tuple(names)

    def of(self, block: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return the headers of ``block`` (n, width) as a structured view (n,)."""
        return block[:, : self.cells].view(self.dtype)[:, 0]


AGENT_HEADER = Header(
    "qqih??d", ["step", "time", "episode", "worker", "terminated", "truncated", "objective"]
)
ENVIRONMENT_HEADER = Header("qqih??", ["step", "time", "episode", "worker", "terminated", "truncated"])


@dataclass(frozen=True)
class Kept:
    """The rows of a stream that remain if a run is resumed: their number, parts, digest and number columns."""

    rows: int
    parts: int
    digest: Digest
    values: Sequence[str] = ()


class BufferedStream:
    """Base class of streams: rows in memory, which go into a part from time to time, and into an open part meanwhile.

    Args:
        writer: writes the parts.
        capacity: the number of rows in a full part.
        on_look: called after each check whether a part is due.
    """

    #: the number of rows in memory
    _filled: int
    #: the digest of the rows in parts
    _digest: Digest

    def __init__(self, writer: PartWriter, capacity: int, on_look: Callable[[], None]):
        self._writer = writer
        self._on_look = on_look
        self._pace = FlushPolicy(capacity)
        self._open = OpenPart(writer.folder)
        # held while rows are written, by either of two threads
        self._writing = threading.Lock()
        # the number of rows in memory that are in the open part
        self._shown = 0
        self._rows_written = 0
        #: the number of parts written so far
        self.parts = 0

    @property
    def folder(self) -> Path:
        """The folder of the parts."""
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

    def show(self) -> None:
        """Write rows that are still in memory to the open part, where readers find them.

        Any thread may call it. If it fails, the next call starts over: all rows will be in a part in the end.
        """
        with self._writing:
            start, end = self._shown, self._filled
            if start == end:
                return
            try:
                self._extend(self._writer.path(self.parts), start, end)
                self._shown = end
            except StoreError:
                self._open.discard()
                self._shown = 0

    def restore(self, kept: Kept) -> None:
        """Continue after the rows that remain."""
        self._rows_written, self.parts, self._digest = kept.rows, kept.parts, kept.digest

    def _whole_digest(self) -> Digest:
        raise NotImplementedError

    def _extend(self, path: Path, start: int, end: int) -> None:
        """Add the rows from ``start`` up to ``end`` to the open part of ``path``."""
        raise NotImplementedError


class RowStream(BufferedStream):
    """Base class of the streams of agents and environments."""

    def __init__(
        self,
        writer: PartWriter,
        header: Header,
        values: Sequence[str],
        on_look: Callable[[], None],
        owner: str,
    ):
        self._header = header
        self._struct = header.struct
        self._cells = header.cells
        self._value_names = list(values)
        self._row_bytes = header.dtype.itemsize + 8 * len(self._value_names)
        capacity = max(16, min(PART_ROWS, _BLOCK_BYTES // self._row_bytes))
        super().__init__(writer, capacity, on_look)
        self._block = np.empty((capacity, self._row_bytes // 8), dtype="<f8")
        self._bytes = self._block.data.cast("B")
        # each row's owner, and the episode of its environment
        self._owners = {
            owner: np.zeros(capacity, dtype="<i4"),
            "environment_episode": np.zeros(capacity, dtype="<i4"),
        }
        self._owner, self._owner_episode = (column.data for column in self._owners.values())
        heads = header.of(self._block)
        #: the columns of a row apart from its floats, each with the block's capacity
        self._fields = {name: heads[name] for name in header.names} | self._owners
        self._limit = self._pace.next_look
        self._filled = 0
        self._digest: RowDigest = RowDigest()
        # JSON states by row of the block, in streams of environments
        self._states: dict[int, str] = {}

    def restore(self, kept: Kept) -> None:
        """Continue after the rows that remain. Raises :class:`StoreError` if this stream has other columns."""
        if kept.rows and list(kept.values) != self._value_names:
            raise StoreError(
                f"{self._writer.folder} has the columns {', '.join(kept.values)}; now they would be "
                f"{', '.join(self._value_names)}"
            )
        super().restore(kept)

    def flush(self) -> None:
        """Write the rows that are still in memory, if any, as a part."""
        if self._filled == 0:
            return
        with self._writing:
            self._write(self._columns())
            self._shown = 0
            self._open.discard()
            digest = self._whole_digest()
            limit = self._pace.written()
            # Ctrl-C may interrupt any call, and these rows must be written once: until here,
            # a retry would replace the same part; from here on, nothing is called.
            self._digest = digest
            self._rows_written += self._filled
            self._filled = 0
            self._states = {}
            self._limit = limit
            self.parts += 1

    def _extend(self, path: Path, start: int, end: int) -> None:
        layout = b"" if start else layout_of(self._header.of(self._block), self._value_names)
        self._open.extend(path, self._packed(start, end), first=start == 0, layout=layout)

    def _packed(self, start: int, end: int) -> dict[str, pa.Array]:
        owners = {name: arrow_column(column[start:end]) for name, column in self._owners.items()}
        return {"rows": packed(self._block[start:end])} | owners

    def _write(self, columns: dict[str, pa.Array]) -> None:
        self._writer.write(self.parts, columns)

    def _append(
        self, scalars: Mapping[str, float], columns: Mapping[str, Array], values: Sequence[Array]
    ) -> None:
        """Append ``n`` checked rows: scalars are the same in all, columns are (n,).

        ``values`` are matrices (n, ...), which together form the rows' floats. If the block is full, a part is written
        in between.
        """
        count, done = len(values[0]), 0
        while done < count:
            row = self._filled
            if row >= self._limit:
                row = self._look()
            end = row + min(count - done, len(self._block) - row)
            taken = slice(done, done + end - row)
            for name, number in scalars.items():
                self._fields[name][row:end] = number
            for name, column in columns.items():
                self._fields[name][row:end] = column[taken]
            cell = self._cells
            for matrix in values:
                self._block[row:end, cell : cell + matrix.shape[1]] = matrix[taken]
                cell += matrix.shape[1]
            self._filled = end
            done = taken.stop

    def _look(self) -> int:
        """Write a part if one is due; return the row of the block to fill next."""
        if self._pace.due(self._filled, self.parts):
            self.flush()
        self._on_look()
        self._limit = self._pace.next_look
        return self._filled

    def _whole_digest(self) -> RowDigest:
        block, digest = self._block[: self._filled], self._digest.copy()
        owners, episodes = (column[: self._filled] for column in self._owners.values())
        digest.add(Packed(block, self._header.of(block), owners, episodes), self._states)
        return digest

    def _columns(self) -> dict[str, pa.Array]:
        block = self._block[: self._filled]
        owners = {name: arrow_column(column[: self._filled]) for name, column in self._owners.items()}
        return columns_of_rows(self._header.of(block), owners, block[:, self._cells :], self._value_names)

    def _refuse(self, error: Exception, vectors: Iterable[tuple[str, Vector, int]]) -> StoreError:
        """Build the error for a step; ``vectors`` are names, values and expected sizes."""
        for name, vector, size in vectors:
            shape = np.shape(vector)
            if shape != (size,):
                return StoreError(f"{self._writer.folder.name}: {name} of shape {shape}, expected ({size},)")
        return StoreError(f"{self._writer.folder.name}: cannot record this step: {error}")

    def _check_rows(self, rows: Any, vectors: Sequence[str], sizes: Mapping[str, int]) -> None:
        """Refuse rows of wrong shapes: ``vectors`` must be (n,), the matrices of ``sizes`` (n, size)."""
        count = len(rows.environment_episode)
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(vectors, (count,))
        shapes |= {name: (count, size) for name, size in sizes.items()}
        try:
            _MAIN.pack(rows.worker, rows.episode)
            for name, shape in shapes.items():
                actual = getattr(rows, name).shape
                if actual != shape:
                    raise StoreError(
                        f"{self._writer.folder.name}: {name} of shape {actual}, expected {shape}"
                    )
            for name in self._owners:
                column = getattr(rows, name)
                if column.dtype != np.int32 and (column != column.astype(np.int32)).any():
                    raise ValueError(f"{name} {column.tolist()} are no whole numbers of 32 bits")
        except (struct.error, AttributeError, ValueError) as error:
            raise StoreError(f"{self._writer.folder.name}: cannot record these rows: {error}") from error


R = TypeVar("R")


class ListStream(BufferedStream, Generic[R]):
    """Base class of streams of single records; a subclass has ``append`` and ``_columns``."""

    def __init__(self, writer: PartWriter, capacity: int, digest: ListDigest, on_look: Callable[[], None]):
        super().__init__(writer, capacity, on_look)
        self._records: list[R] = []
        self._digest: ListDigest = digest

    @property
    def _filled(self) -> int:  # type: ignore[override]
        return len(self._records)

    def flush(self) -> None:
        """Write the records that are still in memory, if any, as a part."""
        if not self._records:
            return
        with self._writing:
            self._writer.write(self.parts, self._columns(self._records))
            self._shown = 0
            self._open.discard()
            digest = self._whole_digest()
            written = self.rows
            self._pace.written()
            # As in RowStream.flush, nothing is called from here on.
            self._digest = digest
            self._rows_written = written
            self._records = []
            self.parts += 1

    def _extend(self, path: Path, start: int, end: int) -> None:
        self._open.extend(path, self._columns(self._records[start:end]), first=start == 0)

    def _look(self, full: bool = False) -> None:
        """Write a part if one is due, or ``full``; the clock is read only every so many records."""
        count = len(self._records)
        if full or count >= self._pace.next_look:
            if full or self._pace.due(count, self.parts):
                self.flush()
            self._on_look()

    def _columns(self, records: Sequence[R]) -> dict[str, pa.Array]:
        raise NotImplementedError

    def _whole_digest(self) -> ListDigest:
        digest = self._digest.copy()
        digest.add(self._records)
        return digest
