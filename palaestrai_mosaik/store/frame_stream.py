"""Streams of rendered frames: the PNG images of an environment's states, in part files like all other streams."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from palaestrai_mosaik.errors import StoreError

from .arrow_columns import arrow_column, binary_column
from .digests import Digest
from .open_parts import OpenPart
from .parts import PartWriter
from .row_stream import FlushPolicy

if TYPE_CHECKING:
    import pyarrow as pa

#: frames of a full part, and the bytes of images with which it is full, too
_PART_FRAMES = 2_000
_PART_BYTES = 16 * 2**20
#: frames that are read together where only some of a part are wanted
_ROW_GROUP = 50
_KEYS = struct.Struct("<iqqiq")
#: the bytes with which every PNG image begins
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
    """The digest of frames: whether the files hold what was recorded (it is no part of the run's digests)."""

    def add(self, frames: Iterable[Frame]) -> None:
        """Take in ``frames``."""
        for one in frames:
            keys = _KEYS.pack(one.episode, one.step, one.time, one.environment_episode, len(one.png))
            self._of(one.worker).update(keys + one.png)


class FrameStream:
    """The rendered frames of one environment in one phase."""

    def __init__(self, folder: Path, metadata: dict[str, Any], on_look: Callable[[], None]):
        self._writer = PartWriter(folder, metadata, row_group=_ROW_GROUP)
        self._on_look = on_look
        self._pace = FlushPolicy(_PART_FRAMES)
        # as in the streams of rows
        self._open = OpenPart(folder)
        self._writing = threading.Lock()
        self._shown = 0
        self._frames: list[Frame] = []
        self._bytes = 0
        self._rows_written = 0
        self._digest = FrameDigest()
        #: the number of parts written so far
        self.parts = 0

    @property
    def folder(self) -> Path:
        """Where the parts lie."""
        return self._writer.folder

    @property
    def rows(self) -> int:
        """The number of frames appended so far."""
        return self._rows_written + len(self._frames)

    @property
    def rows_written(self) -> int:
        """The number of frames that are in complete parts."""
        return self._rows_written

    def append(
        self, worker: int, episode: int, step: int, time: int, environment_episode: int, png: bytes
    ) -> None:
        """Record a frame of a state. Raises :class:`StoreError` where ``png`` is no PNG image, or a part cannot be written."""
        if not png.startswith(_PNG):
            raise StoreError(f"{self.folder.name}: a frame must be a PNG image")
        count = len(self._frames)
        if self._bytes >= _PART_BYTES or count >= self._pace.next_look:
            if self._bytes >= _PART_BYTES or self._pace.due(count, self.parts):
                self.flush()
            self._on_look()
        self._frames.append(Frame(worker, episode, step, time, environment_episode, png))
        self._bytes += len(png)

    def digest(self) -> str:
        """Return the SHA-256 of all frames so far, worker by worker, as hex digits."""
        return self._whole_digest().hexdigest()

    def restore(self, rows: int, parts: int, digest: FrameDigest) -> None:
        """Go on behind the ``rows`` that the first ``parts`` parts hold; ``digest`` is theirs."""
        self._rows_written, self.parts, self._digest = rows, parts, digest

    def flush(self) -> None:
        """Write the frames that are still in memory, if any, as a part."""
        if not self._frames:
            return
        with self._writing:
            self._writer.write(self.parts, _columns_of(self._frames))
            self._shown = 0
            self._open.discard()
            digest = self._whole_digest()
            written = self.rows
            self._pace.written()
            # As in the streams of rows, no call from here on.
            self._digest = digest
            self._rows_written = written
            self._frames = []
            self._bytes = 0
            self.parts += 1

    def show(self) -> None:
        """Write frames that are still in memory to the open part; see :meth:`.RowStream.show`."""
        with self._writing:
            start, frames = self._shown, self._frames[self._shown :]
            if not frames:
                return
            try:
                self._open.extend(self._writer.path(self.parts), _columns_of(frames), first=start == 0)
                self._shown = start + len(frames)
            except StoreError:
                self._open.discard()
                self._shown = 0

    def _whole_digest(self) -> FrameDigest:
        digest = self._digest.copy()
        digest.add(self._frames)
        return digest


def _columns_of(frames: Sequence[Frame]) -> dict[str, pa.Array]:
    workers, episodes, steps, times, environment_episodes, images = zip(*frames, strict=True)
    return {
        "worker": arrow_column(np.array(workers, dtype=np.int16)),
        "episode": arrow_column(np.array(episodes, dtype=np.int32)),
        "step": arrow_column(np.array(steps, dtype=np.int64)),
        "time": arrow_column(np.array(times, dtype=np.int64)),
        "environment_episode": arrow_column(np.array(environment_episodes, dtype=np.int32)),
        # (so that who adds them up reads no image)
        "bytes": arrow_column(np.array([len(one) for one in images], dtype=np.int32)),
        "png": binary_column(images),
    }
