"""Reads the parts of a stream, so that the stream can be continued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback

from .digests import Packed, RowDigest, StatisticsDigest
from .frame_stream import Frame, FrameDigest
from .list_stream import ListDigest, ListStream
from .parts import open_part, part_path, read_parts
from .row_stream import AGENT_HEADER, ENVIRONMENT_HEADER, Header
from .streams import AnyStream

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_WHOSE = ("body", "incarnation", "environment_episode")
_LINE = ("agent", "worker", "episode", "step", "key", "value")


@dataclass(frozen=True)
class ResumedRows:
    """The rows of an agent or an environment: their number, digest and number columns."""

    rows: int
    parts: int
    digest: RowDigest
    values: list[str]

    def restore(self, stream: AnyStream) -> None:
        """Let ``stream`` continue after these rows."""
        assert not isinstance(stream, ListStream)
        stream.restore(self.rows, self.parts, self.digest, self.values)


@dataclass(frozen=True)
class ResumedRecords:
    """Statistics or rendered frames: their number and digest."""

    rows: int
    parts: int
    digest: ListDigest

    def restore(self, stream: AnyStream) -> None:
        """Let ``stream`` continue after these records."""
        assert isinstance(stream, ListStream)
        stream.restore(self.rows, self.parts, self.digest)


Kept = ResumedRows | ResumedRecords


def read_kept(kind: str, folder: Path, parts: int, progress: ProgressCallback | None = None) -> Kept:
    """Read the first ``parts`` parts in ``folder``.

    Args:
        kind: ``agent``, ``environment``, ``frames`` or ``statistics``.
        folder: the folder of the parts.
        parts: the number of parts.
        progress: called with the number of parts read, and the total.

    Raises:
        StoreError: a part is missing or cannot be read.
    """
    if kind == "statistics":
        return _read_records(StatisticsDigest(), _LINE, folder, parts, progress)
    if kind == "frames":
        return _read_records(FrameDigest(), Frame._fields, folder, parts, progress)
    return _read_rows(folder, parts, AGENT_HEADER if kind == "agent" else ENVIRONMENT_HEADER, progress)


def count_rows(folder: Path, parts: int) -> int:
    """Count the rows of the first ``parts`` parts in ``folder`` by reading all of them.

    Raises :class:`StoreError` for a part that is missing or damaged.
    """
    return sum(open_part(part_path(folder, number), _count) for number in range(parts))


def _read_rows(folder: Path, parts: int, header: Header, progress: ProgressCallback | None) -> ResumedRows:
    digest, rows, counted = RowDigest(), 0, PartsProgress(progress, parts)
    values: list[str] = []
    for number in range(parts):
        table = read_parts([part_path(folder, number)], lambda names: None)
        present = set(table.schema.names)
        fixed = {*header.names, *_WHOSE, "state"}
        values = [name for name in table.schema.names if name not in fixed]
        block = np.empty((table.num_rows, header.cells + len(values)))
        heads = header.of(block)
        for name in header.names:
            heads[name] = table[name].to_numpy()
        for column, name in enumerate(values, header.cells):
            block[:, column] = table[name].to_numpy()
        texts = table["state"].to_pylist() if "state" in present else []
        states = {row: text for row, text in enumerate(texts) if text is not None}
        owner = "body" if "body" in present else "incarnation"
        owners, episodes = (table[name].to_numpy() for name in (owner, "environment_episode"))
        digest.add(Packed(block, heads, owners, episodes), states)
        rows += table.num_rows
        counted.end()
    return ResumedRows(rows, parts, digest, values)


def _read_records(
    digest: ListDigest,
    columns: Sequence[str],
    folder: Path,
    parts: int,
    progress: ProgressCallback | None,
) -> ResumedRecords:
    rows, counted = 0, PartsProgress(progress, parts)
    for number in range(parts):
        table = read_parts([part_path(folder, number)], lambda names: None)
        digest.add(zip(*(table[name].to_pylist() for name in columns), strict=True))
        rows += table.num_rows
        counted.end()
    return ResumedRecords(rows, parts, digest)


def _count(file: pq.ParquetFile) -> int:
    return sum(batch.num_rows for batch in file.iter_batches())
