"""One command at a time executes a folder."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from palaestrai_mosaik.design.folder import JOBS
from palaestrai_mosaik.errors import ExecutionError

from .job import now

FILE = ".lock"
#: a byte behind all that is written: on Windows nobody can read what is locked
_LOCKED_AT = 1 << 20


class FolderLock:
    """Held by the command that executes the design folder ``folder``.

    The operating system holds it: it is free as soon as the process has ended, however that
    was, and what the file says is for people only. Raises :class:`ExecutionError` when
    entered while another process holds it.
    """

    def __init__(self, folder: Path):
        self.path = folder / JOBS / FILE
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(exist_ok=True)
            file = open(self.path, "a+", encoding="utf-8")
        except OSError as error:
            raise ExecutionError(f"cannot write to {self.path.parent}: {error.strerror}") from error
        try:
            _lock(file)
        except OSError:
            who = self._holder()
            file.close()
            raise ExecutionError(
                f"the folder {self.path.parent.parent} is being executed by {who}: wait for it, or end it"
            ) from None
        file.truncate(0)
        json.dump({"host": socket.gethostname(), "pid": os.getpid(), "since": now()}, file)
        file.flush()
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None

    def _holder(self) -> str:
        with suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads(self.path.read_text(encoding="utf-8"))
            return f"process {told['pid']} on host {told['host']} since {told['since']}"
        return "another process"


def _lock(file: IO[str]) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(_LOCKED_AT)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
