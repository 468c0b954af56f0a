"""One command at a time executes a folder."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from palaestrai_mosaik.design.lock import execution_lock
from palaestrai_mosaik.errors import ExecutionError


class FolderLock:
    """Held by the command that executes the design folder ``folder``; nobody else changes it meanwhile.

    It is free as soon as the process has ended, however that was. Raises :class:`ExecutionError`
    when entered while another process holds it.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._lock = execution_lock(folder)

    def __enter__(self) -> Self:
        try:
            self._lock.__enter__()
        except BlockingIOError as error:
            raise ExecutionError(
                f"the folder {self._folder} {error.strerror}: wait for it, or end it"
            ) from None
        except OSError as error:
            raise ExecutionError(f"cannot write to {self._lock.path.parent}: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, trace)
