"""Streams of rows: rows are collected in a block, and written as part files from time to time.

The block is allocated once. A row in it is a packed record: integers and flags first, then
all floats. So appending a row is one ``struct.pack_into`` and a slice assignment for each
vector, appending many is a slice assignment for each column, and the digest of a stream is
taken over the block's bytes. The row's owner (body or incarnation) and the episode of its
environment are in separate columns, because most streams have rows of a single owner.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.types.arrays import Array

from .arrow_columns import arrow_column, columns_of_rows
from .digests import Packed, RowDigest
from .open_parts import OpenPart, layout_of, packed
from .parts import PartWriter

if TYPE_CHECKING:
    import pyarrow as pa

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


class RowStream:
    """Base class of the streams of agents and environments."""

    def __init__(
        self,
        writer: PartWriter,
        header: Header,
        values: Sequence[str],
        on_look: Callable[[], None],
        owner: str,
    ):
        self._writer = writer
        self._on_look = on_look
        self._open = OpenPart(writer.folder)
        # held while rows are written, by either of two threads
        self._writing = threading.Lock()
        # the number of the block's rows that are in the open part
        self._shown = 0
        self._header = header
        self._struct = header.struct
        self._cells = header.cells
        self._value_names = list(values)
        self._row_bytes = header.dtype.itemsize + 8 * len(self._value_names)
        capacity = max(16, min(PART_ROWS, _BLOCK_BYTES // self._row_bytes))
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
        self._pace = FlushPolicy(capacity)
        self._limit = self._pace.next_look
        self._filled = 0
        self._rows_written = 0
        self._digest = RowDigest()
        # JSON states by row of the block, in streams of environments
        self._states: dict[int, str] = {}
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

    def restore(self, rows: int, parts: int, digest: RowDigest, values: Sequence[str]) -> None:
        """Continue after the first ``parts`` parts, which hold ``rows`` rows.

        ``digest`` is theirs, and ``values`` names their number columns. Raises
        :class:`StoreError` if this stream has other columns.
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

    def show(self) -> None:
        """Write rows that are still in memory to the open part, where readers find them.

        Any thread may call it. If it fails, the next call starts over: all rows will be in a part in the end.
        """
        with self._writing:
            start, end = self._shown, self._filled
            if start == end:
                return
            first, path = start == 0, self._writer.path(self.parts)
            layout = layout_of(self._header.of(self._block), self._value_names) if first else b""
            try:
                self._open.extend(path, self._packed(start, end), first=first, layout=layout)
                self._shown = end
            except StoreError:
                self._open.discard()
                self._shown = 0

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

    def _refuse(self, error: Exception, **vectors: tuple[Any, int]) -> StoreError:
        for name, (vector, size) in vectors.items():
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
