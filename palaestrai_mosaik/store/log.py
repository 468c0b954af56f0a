"""The log of a run: a text file in its folder, which several processes append to."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from palaestrai_mosaik import files

#: the file in the folder of an instance
LOG = "log.txt"
#: bytes after which nothing more is written but :data:`CUT`
LIMIT = 5_000_000
#: the last line of a log that would have been longer
CUT = f"\n(the log is cut here: it has reached {LIMIT // 1_000_000} MB)\n"


class LogFile:
    """Appends to the log in the folder of an instance, which may have one already.

    Whatever cannot be written is left out: no run fails because of its log.
    """

    def __init__(self, directory: Path):
        self._handle: int | None = None
        with suppress(OSError):
            self._handle = _open(directory / LOG)

    def write(self, text: str) -> None:
        """Append ``text`` in one piece, so that those of several processes do not mix."""
        if self._handle is None:
            return
        data = text.encode("utf-8", "backslashreplace")
        try:
            left = LIMIT - os.fstat(self._handle).st_size
            if left > 0:
                os.write(self._handle, data if len(data) < left else data[:left] + CUT.encode())
            if len(data) >= left:
                self.close()
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the file; nothing more is written."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(OSError):
                os.close(handle)


def read_log(directory: Path) -> str:
    """Return the log in the folder of an instance; an empty text where there is none."""
    try:
        return files.read_text(directory / LOG, errors="backslashreplace")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _open(path: Path) -> int:
    with suppress(FileNotFoundError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            # where runs were collected, the copy is another name of the file, and must not grow
            files.write_bytes(path, files.read_bytes(path))
    return files.open_log(path)
