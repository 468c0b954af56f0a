"""A lock on a file of a run's folder, which identifies the process that records the run.

A database may come from elsewhere and name any process. A file cannot fake a POSIX lock: the system knows its
holder, and releases it when that process ends.
"""

from __future__ import annotations

import os
import struct
import sys
from contextlib import suppress
from pathlib import Path

from palaestrai_mosaik.core import files

try:
    import fcntl
except ImportError:  # Windows: no process can be identified, so none is signalled
    fcntl = None  # type: ignore[assignment]

#: the file in the folder of a run; it exists while the run is recorded, and after its process was killed
LOCK = "recording.lock"
#: the format of the system's ``struct flock``, and the indices of the lock type and the process id
_LAYOUT, _KIND, _PROCESS = ("hhqqi4x", 0, 4) if sys.platform == "linux" else ("qqihh", 3, 2)


class RunLock:
    """The lock of the process that records the run in ``directory``.

    A file system without locks is no error, but the run cannot be cancelled by another process then. No other code in
    this process may open and close the file, which would release the lock.
    """

    def __init__(self, directory: Path):
        self._path = directory / LOCK
        self._handle: int | None = None
        if fcntl is None:
            return
        with suppress(OSError):
            self._handle = files.open_update(self._path)
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Remove the file, and release the lock."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(OSError):
                files.remove(self._path)
            os.close(handle)

    def __del__(self) -> None:
        # the recorder never finished: its file stays, like that of a killed process
        if self._handle is not None:
            with suppress(OSError):
                os.close(self._handle)


def recording_process(directory: Path) -> int | None:
    """Return the id of the process that records the run in ``directory``; ``None`` if none holds its lock.

    A symbolic or hard link instead of the file counts as no lock: its holder may be any process. The lock of this
    process itself is not seen.
    """
    path = directory / LOCK
    if fcntl is None or not os.path.lexists(path):
        return None
    try:
        handle = files.open_update(path)
    except OSError:
        return None
    question = [0] * 5
    question[_KIND] = fcntl.F_WRLCK
    try:
        answer = fcntl.fcntl(handle, fcntl.F_GETLK, struct.pack(_LAYOUT, *question))
    except OSError:
        return None
    finally:
        os.close(handle)
    held = struct.unpack(_LAYOUT, answer)
    return held[_PROCESS] if held[_KIND] != fcntl.F_UNLCK and held[_PROCESS] > 0 else None
