"""Digests of streams: what was recorded, without the wall-clock.

The rows of each worker are hashed in their order, and then the hashes in order of the
worker; so neither the cutting into parts nor the scheduling of the workers changes a
digest.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .models import to_json

Line = tuple[str, int, int, int, str, float]


class _Digest:
    def __init__(self) -> None:
        self._hashes: dict[int, Any] = {}

    def copy(self) -> Self:
        """Return another digest of the same rows."""
        other = type(self)()
        other._hashes = {worker: hashed.copy() for worker, hashed in self._hashes.items()}
        return other

    def _of(self, worker: int) -> Any:
        hashed = self._hashes.get(worker)
        if hashed is None:
            hashed = self._hashes[worker] = hashlib.sha256()
        return hashed


class RowDigest(_Digest):
    """The digest of rows of an agent or an environment."""

    def add(self, block: npt.NDArray[np.float64], heads: npt.NDArray[Any], states: Mapping[int, str]) -> None:
        """Take in the packed rows of ``block`` (n, width).

        ``heads`` (n,) is the view of what starts each row; ``states`` holds the JSON that
        belongs to some of the rows, in their order.
        """
        workers = heads["worker"]
        present = np.unique(workers)
        for worker in present.tolist():
            chosen = block if len(present) == 1 else block[workers == worker]
            self._of(worker).update(chosen.data.cast("B"))
        for row, text in states.items():
            data = text.encode()
            hashed = self._of(-1 - int(workers[row]))
            hashed.update(heads[row].tobytes() + struct.pack("<q", len(data)) + data)

    def hexdigest(self) -> str:
        """Return the SHA-256 of all rows so far as hex digits."""
        total = hashlib.sha256()
        for worker in sorted(self._hashes):
            total.update(struct.pack("<q", worker) + self._hashes[worker].digest())
        return total.hexdigest()


class StatisticsDigest(_Digest):
    """The digest of what agents told about themselves."""

    def add(self, lines: Iterable[Line]) -> None:
        """Take in (agent, worker, episode, step, key, value)."""
        for agent, worker, episode, step, key, value in lines:
            text = to_json([_as_written(agent), episode, step, _as_written(key)])
            self._of(worker).update(text.encode() + struct.pack("<d", value))

    def hexdigest(self) -> str:
        """Return the SHA-256 of all rows so far as hex digits."""
        hashes = (self._hashes[worker].digest() for worker in sorted(self._hashes))
        return hashlib.sha256(b"".join(hashes)).hexdigest()


def _as_written(text: str) -> str:
    # What is read back from a part must have the same digest.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
