"""Locks on files: one process at a time makes a design's folder, and one executes it."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import suppress
from datetime import UTC, datetime
from errno import EAGAIN
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

from palaestrai_mosaik import files

from .folder import JOBS

#: a byte behind all that is written: on Windows nobody can read what is locked
_LOCKED_AT = 1 << 20


class Holder(NamedTuple):
    """Who holds a lock: a process of a host, since when (UTC, ISO 8601); ``used`` says what for."""

    host: str
    pid: int
    since: str
    used: str


class FileLock:
    """A lock that is the file ``path``; ``used`` is what its holder lets others be told of it.

    That begins a sentence which ends with the process: "is being executed by".

    The operating system holds it: it is free as soon as the process has ended, however that
    was, and what the file says is for people only. The file is there only while the lock is held,
    or was when its process was killed.

    Entering it makes the file's folder, not that one's parents. Raises ``BlockingIOError`` where
    another process holds it (``strerror`` says which), ``OSError`` where the file
    cannot be written.
    """

    def __init__(self, path: Path, used: str):
        self.path = path
        self._used = used
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        files.make_folder(self.path.parent)
        while self._file is None:
            file = os.fdopen(files.open_update(self.path), "a+", encoding="utf-8")
            if not _lock(file):
                file.close()
                raise BlockingIOError(EAGAIN, self._holder(), str(self.path))
            if _is_at(file, self.path):
                self._file = file
            else:  # its last holder has removed it in between
                file.close()
        try:
            self._write_holder()
        except OSError:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        # while it is held: afterwards the file may be another process's. (Windows keeps what is open)
        with suppress(OSError):
            files.remove(self.path)
        self._file.close()
        self._file = None

    def _write_holder(self) -> None:
        assert self._file is not None
        since = datetime.now(UTC).isoformat(timespec="milliseconds")
        told = {"host": socket.gethostname(), "pid": os.getpid(), "since": since, "used": self._used}
        self._file.truncate(0)
        json.dump(told, self._file)
        self._file.flush()

    def holder(self) -> Holder | None:
        """Return who said last to hold it; ``None`` where nobody has the file, or it says nothing.

        Nothing is tried: its process may be gone.
        """
        with suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads(files.read_text(self.path))
            return Holder(str(told["host"]), int(told["pid"]), str(told["since"]), str(told["used"]))
        return None

    def _holder(self) -> str:
        told = self.holder()
        if told is None:
            return "is in use by another process"
        return f"{told.used} process {told.pid} on host {told.host} since {told.since}"


def execution_lock(folder: Path, used: str = "is being executed by") -> FileLock:
    """Return the lock of the design folder ``folder``: while it is held, its documents stay as they are."""
    return FileLock(folder / JOBS / ".lock", used)


def _lock(file: IO[str]) -> bool:
    """Lock an open file, if nobody else has."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(_LOCKED_AT)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False
