"""The blocks of a sample in short: their common length, or the length of each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def pack(block: IntArray) -> int | list[int]:
    """Return the lengths of runs of equal numbers in ``block`` (rows,), as one if all are equal."""
    starts = np.flatnonzero(np.diff(block, prepend=block[:1] - 1))
    lengths = [int(length) for length in np.diff(np.append(starts, len(block)))]
    return lengths[0] if lengths and len(set(lengths)) == 1 else lengths


def unpack(packed: int | list[int], rows: int) -> IntArray:
    """Return the block of each of ``rows`` rows, numbered from 0. Raises ``ValueError``."""
    lengths = [packed] * (rows // packed) if isinstance(packed, int) else packed
    if sum(lengths) != rows:
        raise ValueError(f"the blocks have {sum(lengths)} rows, the sample {rows}")
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
