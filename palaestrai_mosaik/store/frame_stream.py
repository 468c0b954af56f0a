"""Streams of rendered frames: the PNG images of an environment's states, in part files like all other streams."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from palaestrai_mosaik.core.errors import StoreError

from .arrow_columns import arrow_column, binary_column
from .digests import Digest
from .list_stream import ListStream
from .parts import PartWriter

if TYPE_CHECKING:
    import pyarrow as pa

#: a part is full with this many frames, or bytes of images
_PART_FRAMES = 2_000
_PART_BYTES = 16 * 2**20
#: the number of frames that are read together if only some of a part are needed
_ROW_GROUP = 50
_KEYS = struct.Struct("<iqqiq")
#: the first bytes of every PNG image
_PNG = b"\x89PNG\r\n\x1a\n"


class Frame(NamedTuple):
    """A rendered state: the keys of its row, as in the environment's stream, and a PNG image."""

    worker: int
    episode: int
    step: int
    time: int
    environment_episode: int
    png: bytes


class FrameDigest(Digest):
    """The digest of frames, to verify the files; it is not part of the run's digests."""

    def add(self, frames: Iterable[tuple[int, int, int, int, int, bytes]]) -> None:
        """Update the digest with frames, each with the fields of :class:`Frame`."""
        for worker, episode, step, time, environment_episode, png in frames:
            keys = _KEYS.pack(episode, step, time, environment_episode, len(png))
            self._of(worker).update(keys + png)


class FrameStream(ListStream[Frame]):
    """The rendered frames of one environment in one phase."""

    def __init__(self, folder: Path, metadata: dict[str, Any], on_look: Callable[[], None]):
        writer = PartWriter(folder, metadata, row_group=_ROW_GROUP)
        super().__init__(writer, _PART_FRAMES, FrameDigest(), on_look)
        self._bytes = 0

    def append(
        self, worker: int, episode: int, step: int, time: int, environment_episode: int, png: bytes
    ) -> None:
        """Record a frame of a state.

        Raises :class:`StoreError` if ``png`` is not a PNG image, or a part cannot be written.
        """
        if not png.startswith(_PNG):
            raise StoreError(f"{self.folder.name}: a frame must be a PNG image")
        self._look(full=self._bytes >= _PART_BYTES)
        if not self._records:
            self._bytes = 0
        self._records.append(Frame(worker, episode, step, time, environment_episode, png))
        self._bytes += len(png)

    def _columns(self, records: Sequence[Frame]) -> dict[str, pa.Array]:
        workers, episodes, steps, times, environment_episodes, images = zip(*records, strict=True)
        return {
            "worker": arrow_column(np.array(workers, dtype=np.int16)),
            "episode": arrow_column(np.array(episodes, dtype=np.int32)),
            "step": arrow_column(np.array(steps, dtype=np.int64)),
            "time": arrow_column(np.array(times, dtype=np.int64)),
            "environment_episode": arrow_column(np.array(environment_episodes, dtype=np.int32)),
            # for sums of sizes without reading images
            "bytes": arrow_column(np.array([len(image) for image in images], dtype=np.int32)),
            "png": binary_column(images),
        }
