"""A stream of few records, kept as a list until their part is written; streams of rows have a block instead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from palaestrai_mosaik.core.errors import StoreError

from .open_parts import OpenPart
from .parts import PartWriter
from .row_stream import FlushPolicy

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R")


class ListDigest(Protocol):
    """The digest of a stream's records."""

    def add(self, records: Iterable[Any], /) -> None:
        """Update the digest with ``records``."""

    def copy(self) -> Self:
        """Copy the digest's state."""

    def hexdigest(self) -> str:
        """Return the digest as hex digits."""


class ListStream(Generic[R]):
    """Base class of streams of single records; a subclass has ``append`` and ``_columns``.

    Args:
        writer: writes the parts.
        capacity: the number of records in a full part.
        digest: an empty digest.
        on_look: called after each check whether a part is due.
    """

    def __init__(self, writer: PartWriter, capacity: int, digest: ListDigest, on_look: Callable[[], None]):
        self._writer = writer
        self._on_look = on_look
        self._pace = FlushPolicy(capacity)
        # see RowStream
        self._open = OpenPart(writer.folder)
        self._writing = threading.Lock()
        self._shown = 0
        self._records: list[R] = []
        self._rows_written = 0
        self._digest = digest
        #: the number of parts written so far
        self.parts = 0

    @property
    def folder(self) -> Path:
        """The folder of the parts."""
        return self._writer.folder

    @property
    def rows(self) -> int:
        """The number of records appended so far."""
        return self._rows_written + len(self._records)

    @property
    def rows_written(self) -> int:
        """The number of records that are in complete parts."""
        return self._rows_written

    def digest(self) -> str:
        """Return the SHA-256 of all records so far, worker by worker, as hex digits."""
        return self._whole_digest().hexdigest()

    def restore(self, rows: int, parts: int, digest: ListDigest) -> None:
        """Continue after the first ``parts`` parts, which hold ``rows`` records; ``digest`` is theirs."""
        self._rows_written, self.parts, self._digest = rows, parts, digest

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

    def show(self) -> None:
        """Write records that are still in memory to the open part; see :meth:`.RowStream.show`."""
        with self._writing:
            start, records = self._shown, self._records[self._shown :]
            if not records:
                return
            try:
                self._open.extend(self._writer.path(self.parts), self._columns(records), first=start == 0)
                self._shown = start + len(records)
            except StoreError:
                self._open.discard()
                self._shown = 0

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
