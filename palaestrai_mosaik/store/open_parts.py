"""Open parts: the rows that have been recorded since the last part file, for readers who look while a run goes on.

To write a part file costs some milliseconds of CPU time, too much to do it every second. An open part has the number
of the part that will take its place, and is a stream of Arrow's record batches: it only ever grows, by rows as they are
in memory (``rows``: packed records, whose layout is in the metadata of the schema), which costs a tenth or less.
Readers take its whole batches. What follows them is on its way, or was when the process was killed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import StoreError

from .arrow_columns import arrow_column, columns_of_rows

if TYPE_CHECKING:
    import pyarrow as pa

#: how the name of an open part ends (Arrow's name for its stream format)
SUFFIX = ".arrows"
#: the key of a packed record's layout in the metadata of the schema
_LAYOUT = b"palaestrai_mosaik"
_ROWS = "rows"


def is_open(path: Path) -> bool:
    """Whether this is the path of an open part."""
    return path.suffix == SUFFIX


def open_part_files(folder: Path) -> list[Path]:
    """Return all open parts in ``folder``: one at most, and what an interruption has left behind."""
    return sorted(folder.glob(f"part-*{SUFFIX}"))


class OpenPart:
    """Writes the open part of one stream."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._path: Path | None = None

    def extend(
        self, part: Path, columns: Mapping[str, pa.Array], *, first: bool, layout: bytes = b""
    ) -> None:
        """Add rows to the open part in place of ``part``; ``first``: begin it with them.

        Args:
            part: the path that the part will have.
            columns: as the part will have them, or :func:`packed`.
            layout: of packed rows.

        Raises:
            StoreError: they cannot be written; some of them may be, so :meth:`discard` it then.
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
        """Remove it, if there is one. One that cannot be removed does no harm: its part is there."""
        if self._path is not None:
            with suppress(OSError):
                files.remove(self._path, missing_ok=True)
            self._path = None


def layout_of(heads: npt.NDArray[Any], names: Sequence[str]) -> bytes:
    """Return how packed rows are to be read: ``heads`` is a view of what starts them, ``names`` are the numbers behind."""
    return json.dumps({"heads": heads.dtype.descr, "names": list(names)}).encode()


def packed(block: npt.NDArray[np.float64]) -> pa.Array:
    """Return the rows of ``block`` (n, width) as they are in memory, without copying them."""
    import pyarrow as pa

    kind = pa.binary(block.itemsize * block.shape[1])
    return pa.Array.from_buffers(kind, len(block), [None, pa.py_buffer(block)])


def read_open(path: Path) -> pa.Table | None:
    """Return the rows of an open part with the columns of a part; ``None`` where it has become one.

    Rows of an agent also have ``wall``. Raises :class:`StoreError` where it is damaged, ``OSError`` where it cannot be
    read.
    """
    import pyarrow as pa

    try:
        content = files.read_bytes(path)
    except FileNotFoundError:
        return None
    batches: list[pa.RecordBatch] = []
    try:
        with pa.ipc.open_stream(content) as stream:
            schema = stream.schema
            with suppress(OSError, pa.ArrowException):
                batches.extend(stream)
        table = pa.Table.from_batches(batches, schema)
        return _unpacked(table) if _ROWS in schema.names else table
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise StoreError(f"{path} is damaged: {' '.join(str(error).split())}") from error


def _unpacked(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    layout = json.loads(table.schema.metadata[_LAYOUT])
    heads = np.dtype([tuple(one) for one in layout["heads"]])
    width = table.schema.field(_ROWS).type.byte_width // 8
    chunks = [
        np.frombuffer(one.buffers()[1], dtype="<f8", count=len(one) * width) for one in table[_ROWS].chunks
    ]
    block = np.concatenate([np.empty(0), *chunks]).reshape(-1, width)
    start = heads.itemsize // 8
    names = [name for name in table.schema.names if name not in (_ROWS, "wall", "state")]
    owners = {name: arrow_column(table[name].to_numpy()) for name in names}
    columns = columns_of_rows(block[:, :start].view(heads)[:, 0], owners, block[:, start:], layout["names"])
    rest = {name: table[name] for name in ("wall", "state") if name in table.schema.names}
    return pa.table(columns | rest)
