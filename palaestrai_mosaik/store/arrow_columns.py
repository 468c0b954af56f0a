"""Arrow columns, made from the streams' data in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

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
