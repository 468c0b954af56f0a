"""Open parts: the rows recorded since the last part file, for readers of a run in progress."""

from __future__ import annotations

import json
import struct
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa


#: the first columns of each row of an agent or an environment
KEYS = ("worker", "episode", "step", "time")


def arrow_column(values: npt.NDArray[Any]) -> pa.Array:
    """Wrap a contiguous numpy vector as an Arrow array.

    Numbers are not copied. ``pa.array`` would import pandas.
    """
    import pyarrow as pa

    if values.dtype == np.bool_:
        bits = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def text_column(values: Iterable[str | None]) -> pa.Array:
    """Encode optional texts as an Arrow array."""
    import pyarrow as pa

    encoded = [None if v is None else v.encode("utf-8", "backslashreplace") for v in values]
    offsets = np.cumsum([0, *(0 if v is None else len(v) for v in encoded)], dtype=np.int32)
    present = np.packbits(np.array([v is not None for v in encoded], dtype=np.bool_), bitorder="little")
    data = b"".join(v for v in encoded if v is not None)
    buffers = [pa.py_buffer(present), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def binary_column(values: Sequence[bytes]) -> pa.Array:
    """Join byte strings into an Arrow array."""
    import pyarrow as pa

    offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def columns_of_rows(
    heads: npt.NDArray[Any],
    owners: Mapping[str, pa.Array],
    values: npt.NDArray[np.float64],
    names: Sequence[str],
) -> dict[str, pa.Array]:
    """Split packed rows into the columns of a part.

    Args:
        heads: the rows' headers, a structured vector (n,).
        owners: further columns with each row's owner.
        values: the floats (n, k).
        names: the names of the floats.
    """
    columns = {name: arrow_column(heads[name].copy()) for name in KEYS}
    columns |= owners
    transposed = np.ascontiguousarray(values.T)
    columns |= {name: arrow_column(row) for name, row in zip(names, transposed, strict=True)}
    remaining = [name for name in heads.dtype.names or () if name not in KEYS]
    return columns | {name: arrow_column(heads[name].copy()) for name in remaining}


#: seconds between two updates, if they are cheap
SECONDS = 0.5
#: the maximum share of time that updates take (as CPU time): with many wide rows, they become rarer
SHARE = 1 / 200
#: seconds of CPU time allowed beyond that share: a single slow update does not delay the next ones
ALLOWANCE = 0.1


class Shown(Protocol):
    """A stream with an open part."""

    def show(self) -> None:
        """Write rows that are only in memory to the open part."""


Streams = Callable[[], Iterable[Shown]]


class OpenPartUpdates:
    """Calls ``show`` of all streams repeatedly, until it is stopped.

    Args:
        streams: a method that returns the current streams. Its object is not kept alive; without it, the
            updates end.
    """

    def __init__(self, streams: Streams):
        self._stopped = threading.Event()
        arguments = (weakref.WeakMethod(streams), self._stopped)
        self._thread = threading.Thread(target=_update, args=arguments, name="open parts", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        # Every part needs it. In the thread, the import would take longer than some hundred updates, and a process
        # that is forked meanwhile could never import it.
        import pyarrow  # noqa: F401

        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; nothing is written afterwards."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()


def _update(reference: weakref.WeakMethod[Streams], stopped: threading.Event) -> None:
    left, looked = ALLOWANCE, monotonic()
    pause = SECONDS
    while not stopped.wait(pause):
        streams = reference()
        if streams is None:
            return
        before = thread_time()
        for stream in streams():
            stream.show()
        del streams
        now = monotonic()
        left = min(ALLOWANCE, left + SHARE * (now - looked)) - (thread_time() - before)
        looked = now
        pause = max(SECONDS, -left / SHARE)


#: the suffix of an open part (Arrow's for its stream format)
SUFFIX = ".arrows"
#: the key of a packed record's layout in the metadata of the schema
_LAYOUT = b"palaestrai_mosaik"
_ROWS = "rows"
#: the maximum size of a part in bytes, a few times that of any part we write
MOST_BYTES = 512 * 2**20


def is_open(path: Path) -> bool:
    """Whether ``path`` is an open part's."""
    return path.suffix == SUFFIX


def open_part_files(folder: Path) -> list[Path]:
    """List all open parts in ``folder``: at most one, and leftovers of an interruption."""
    return sorted(folder.glob(f"part-*{SUFFIX}"))


class OpenPart:
    """Writes the open part of one stream."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._path: Path | None = None

    def extend(
        self, part: Path, columns: Mapping[str, pa.Array], *, first: bool, layout: bytes = b""
    ) -> None:
        """Add rows to the open part of ``part``.

        Args:
            part: the path of the future part.
            columns: the part's columns, or :func:`packed` rows.
            first: start the open part over with these rows.
            layout: the layout of packed rows.

        Raises:
            StoreError: they cannot be written; :meth:`discard` the open part then, as it may have some of them.
        """
        import pyarrow as pa

        schema = pa.schema([(name, array.type) for name, array in columns.items()], {_LAYOUT: layout})
        batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
        path = part.with_suffix(SUFFIX)
        try:
            if first:
                files.make_folder(self._folder)
                files.write_bytes(path, b"".join((schema.serialize(), batch.serialize())), durable=False)
                self._path = path
            else:
                files.append_bytes(path, batch.serialize())
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"cannot write {path}: {error}") from error

    def discard(self) -> None:
        """Remove the file, if there is one. A file that cannot be removed does no harm: its part is there."""
        if self._path is not None:
            with suppress(OSError):
                files.remove(self._path, missing_ok=True)
            self._path = None


def layout_of(heads: npt.NDArray[Any], names: Sequence[str]) -> bytes:
    """Serialise the layout of packed rows: ``heads`` is the view of their headers, ``names`` are their floats."""
    return json.dumps({"heads": heads.dtype.descr, "names": list(names)}).encode()


def packed(block: npt.NDArray[np.float64]) -> pa.Array:
    """Wrap the rows of ``block`` (n, width) as binary values, without copying them."""
    import pyarrow as pa

    kind = pa.binary(block.itemsize * block.shape[1])
    return pa.Array.from_buffers(kind, len(block), [None, pa.py_buffer(block)])


def read_open(path: Path) -> pa.Table | None:
    """Read the rows of an open part with the columns of a part; ``None`` if a part has replaced it.

    Rows of an agent also have ``wall``. Raises :class:`StoreError` if it is damaged, ``OSError`` if it cannot be
    read.
    """
    import pyarrow as pa

    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise StoreError(f"{path} is not read: it has {size:,} bytes; a part has at most {MOST_BYTES:,}")
        content = files.read_bytes(path)
    except FileNotFoundError:
        return None
    batches: list[pa.RecordBatch] = []
    try:
        if _is_compressed(content):
            raise StoreError(f"{path} is not read: it is compressed, and nobody knows how large its rows are")
        with pa.ipc.open_stream(content) as stream:
            schema = stream.schema
            with suppress(OSError, pa.ArrowException):
                batches.extend(stream)
        table = pa.Table.from_batches(batches, schema)
        return _unpacked(table) if _ROWS in schema.names else table
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise StoreError(f"{path} is damaged: {' '.join(str(error).split())}") from error


def _is_compressed(content: bytes) -> bool:
    """Whether batches of an Arrow stream are compressed: then a few bytes could fill the memory."""
    import pyarrow as pa

    # an incomplete last message is still being written
    with suppress(OSError, pa.ArrowException, EOFError, StopIteration):
        messages = pa.ipc.MessageReader.open_stream(content)
        while True:
            message = messages.read_next_message()
            if message.type == "record batch" and _has_compression(message.metadata.to_pybytes()):
                return True
    return False


def _has_compression(metadata: bytes) -> bool:
    """Whether a record batch message, as a flatbuffer, has its field ``compression``."""
    try:
        (root,) = struct.unpack_from("<I", metadata, 0)
        position = _field(metadata, root, 2)  # the header of the message
        if position is None:
            return True
        (offset,) = struct.unpack_from("<I", metadata, position)
        return _field(metadata, position + offset, 3) is not None
    except struct.error:
        return True


def _field(buffer: bytes, table: int, index: int) -> int | None:
    """Return the position of a field of a flatbuffer's table, or ``None`` if it is absent."""
    (back,) = struct.unpack_from("<i", buffer, table)
    (size,) = struct.unpack_from("<H", buffer, table - back)
    slot = 4 + 2 * index
    if slot >= size:
        return None
    (offset,) = struct.unpack_from("<H", buffer, table - back + slot)
    return table + offset if offset else None


def _unpacked(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    layout = json.loads(table.schema.metadata[_LAYOUT])
    heads = np.dtype([tuple(item) for item in layout["heads"]])
    width = table.schema.field(_ROWS).type.byte_width // 8
    chunks = [
        np.frombuffer(item.buffers()[1], dtype="<f8", count=len(item) * width) for item in table[_ROWS].chunks
    ]
    block = np.concatenate([np.empty(0), *chunks]).reshape(-1, width)
    start = heads.itemsize // 8
    names = [name for name in table.schema.names if name not in (_ROWS, "wall", "state")]
    owners = {name: arrow_column(table[name].to_numpy()) for name in names}
    columns = columns_of_rows(block[:, :start].view(heads)[:, 0], owners, block[:, start:], layout["names"])
    extra = {name: table[name] for name in ("wall", "state") if name in table.schema.names}
    return pa.table(columns | extra)
