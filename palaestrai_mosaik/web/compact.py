"""Compact encoding of matrices of slowly changing numbers, for pages in one file; ``static/data.js`` decodes it.

Each column is rounded to a quantum, a millionth of its largest value. Only the changes from row to row are stored, with
their low bytes apart from their high bytes, so that gzip compresses them well. Equal columns are stored once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from palaestrai_mosaik.types.arrays import FloatMatrix

#: the largest value of a column in quanta
_QUANTA = 1_000_000
_BYTE = 8


def compact(values: FloatMatrix) -> dict[str, Any]:
    """Encode a matrix; ``decode`` of ``data.js`` restores it, row after row.

    Args:
        values: shape ``(rows, columns)``. Infinite values become NaN.

    Returns:
        ``rows``, ``quantum`` (of each distinct column), ``of`` (the index of the distinct column for each column),
        ``planes`` (bytes of the zigzag-coded changes, lowest first), and ``missing`` (1 for missing values; ``None`` if
        no value is missing).
    """
    rows, count = values.shape
    columns = np.where(np.isfinite(values), values, np.nan).T
    unique, of = np.unique(columns, axis=0, return_inverse=True, equal_nan=True) if count else (columns, [])
    missing = np.isnan(unique)
    whole = np.where(missing, 0.0, unique)
    quantum = np.abs(whole).max(axis=1, initial=0.0) / _QUANTA
    quantum[quantum == 0.0] = 1.0
    rounded = np.rint(whole / quantum[:, None]).astype(np.int64)
    changes = np.diff(rounded, axis=1, prepend=0)
    coded = np.where(changes < 0, -2 * changes - 1, 2 * changes).astype(np.uint32)
    largest = int(coded.max(initial=0)).bit_length()
    planes = [(coded >> shift).astype(np.uint8).ravel() for shift in range(0, max(largest, 1), _BYTE)]
    return {
        "rows": rows,
        "quantum": quantum.tolist(),
        "of": np.asarray(of, dtype=np.int64).ravel().tolist(),
        "planes": planes,
        "missing": missing.astype(np.uint8).ravel() if missing.any() else None,
    }
