"""A sample: points of the unit cube, and the blocks of rows that analyses need together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class Sample:
    """The points of a design.

    Attributes:
        unit: (rows, axes) coordinates in [0, 1], the X of every analysis. Levels are in the middle of their share.
        block: (rows,) whole numbers, non-decreasing. Rows that an analysis can only use together have the same number
            (a Saltelli block, a Morris trajectory, all of an eFAST curve). If every row stands alone, its index.
        arguments: arguments of the sampler, as plain data for the manifest.
        warnings: messages for the user.
    """

    unit: FloatArray
    block: IntArray
    arguments: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def pack(block: IntArray) -> int | list[int]:
    """Return the lengths of runs of equal numbers in ``block``, (rows,); a single number if all are equal."""
    starts = np.flatnonzero(np.diff(block, prepend=block[:1] - 1))
    lengths = [int(length) for length in np.diff(np.append(starts, len(block)))]
    return lengths[0] if lengths and len(set(lengths)) == 1 else lengths


def unpack(packed: int | list[int], rows: int) -> IntArray:
    """Return the block of each of ``rows`` rows, numbered from 0.

    Args:
        packed: the result of :func:`pack`.
        rows: number of rows.

    Raises:
        ValueError: the lengths do not add up to ``rows``.
    """
    lengths = [packed] * (rows // packed) if isinstance(packed, int) else packed
    if sum(lengths) != rows:
        raise ValueError(f"the blocks have {sum(lengths)} rows, the sample {rows}")
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
