"""Digests of streams: hashes of all recorded rows without the wall-clock times.

The rows of each worker and body (or incarnation) are hashed in their order, and then these
hashes in order of the worker and body. So a digest depends neither on the cutting into parts, nor
on the scheduling of the workers, nor on the order in which the bodies of one tick are recorded.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .models import to_json

Line = tuple[str, int, int, int, str, float]

# Offsets of the keys of separate hashes: of rows by body, and of environment episodes. A row with
# body 0 and episode 0 has the same digest as in releases without bodies.
_BODY = 2**16
_EPISODES = 2**48


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of a stream: ``block`` (n, width) with ``heads`` (n,), a view of each row's header.

    ``owners`` (n,) are their bodies or incarnations, ``episodes`` (n,) their episodes of the
    environment.
    """

    block: npt.NDArray[np.float64]
    heads: npt.NDArray[Any]
    owners: npt.NDArray[np.int32]
    episodes: npt.NDArray[np.int32]


class Digest:
    """The digest of rows of several workers, each in its order."""

    def __init__(self) -> None:
        self._hashes: dict[int, Any] = {}

    def copy(self) -> Self:
        """Copy the digest's state."""
        other = type(self)()
        other._hashes = {key: hashed.copy() for key, hashed in self._hashes.items()}
        return other

    def _of(self, key: int) -> Any:
        hashed = self._hashes.get(key)
        if hashed is None:
            hashed = self._hashes[key] = hashlib.sha256()
        return hashed

    def hexdigest(self) -> str:
        """Return the SHA-256 of all rows so far as hex digits."""
        hashes = (self._hashes[worker].digest() for worker in sorted(self._hashes))
        return hashlib.sha256(b"".join(hashes)).hexdigest()


class RowDigest(Digest):
    """The digest of rows of an agent or an environment."""

    def add(self, rows: Packed, states: Mapping[int, str]) -> None:
        """Update the digest with ``rows``; ``states`` has the JSON of some rows, in their order."""
        keys = rows.heads["worker"] + rows.owners.astype(np.int64) * _BODY
        later = np.flatnonzero(rows.episodes)
        self._add(keys, rows.block)
        if len(later):
            marks = np.empty(len(later), dtype=[("step", "<i8"), ("episode", "<i4")])
            marks["step"], marks["episode"] = rows.heads["step"][later], rows.episodes[later]
            self._add(keys[later] + _EPISODES, marks)
        for row, text in states.items():
            data = text.encode()
            hashed = self._of(-1 - int(keys[row]))
            hashed.update(rows.heads[row].tobytes() + struct.pack("<q", len(data)) + data)

    def _add(self, keys: npt.NDArray[np.int64], data: npt.NDArray[Any]) -> None:
        """Hash rows of ``data`` with equal keys together, in their order."""
        if not len(keys):
            return
        if (keys != keys[0]).any():
            order = np.argsort(keys, kind="stable")
            keys, data = keys[order], data[order]
        starts = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)]
        content = data.view(np.uint8).reshape(len(keys), -1)
        for start, end in pairwise(starts):
            self._of(int(keys[start])).update(content[start:end].data)

    def hexdigest(self) -> str:
        """Return the SHA-256 of all rows so far as hex digits."""
        total = hashlib.sha256()
        for key in sorted(self._hashes):
            total.update(struct.pack("<q", key) + self._hashes[key].digest())
        return total.hexdigest()


class StatisticsDigest(Digest):
    """The digest of the statistics that agents reported."""

    def add(self, lines: Iterable[Line]) -> None:
        """Update the digest with lines of (agent, worker, episode, step, key, value)."""
        for agent, worker, episode, step, key, value in lines:
            text = to_json([_as_written(agent), episode, step, _as_written(key)])
            self._of(worker).update(text.encode() + struct.pack("<d", value))


def _as_written(text: str) -> str:
    # The text as it will be read back from a part, for the same digest.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
