"""The log of a run: a text file in its folder, to which several processes append."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError

#: the file in the folder of an instance
LOG = "log.txt"
#: the maximum size in bytes, after which only :data:`CUT` is written
LIMIT = 5_000_000
#: the last line of a truncated log
CUT = f"\n(the log is cut here: it has reached {LIMIT // 1_000_000} MB)\n"


class LogFile:
    """Appends to the log in the folder of an instance.

    Errors of writing are ignored: no run fails because of its log.
    """

    def __init__(self, directory: Path):
        self._handle: int | None = None
        with suppress(OSError):
            self._handle = _open(directory / LOG)

    def write(self, text: str) -> None:
        """Append ``text`` in one piece, so that lines of several processes do not mix."""
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
    """Read the log in the folder of an instance; "" if there is none.

    Raises:
        StoreError: the log cannot be read, or it is a link or reached through one.
    """
    try:
        return files.read_text(directory / LOG, errors="backslashreplace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise StoreError(f"cannot read {directory / LOG}: {error.strerror}") from error


def _open(path: Path) -> int:
    with suppress(FileNotFoundError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            # a collected run's log is a hard link to this file, and must not grow
            files.write_bytes(path, files.read_bytes(path))
    return files.open_log(path)
