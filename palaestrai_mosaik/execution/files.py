"""Small files that several processes and hosts look at: whole, or not there."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from palaestrai_mosaik.errors import ExecutionError


def temporary_beside(path: Path) -> Path:
    """Return a name for a file that is to take the place of ``path``, which no other process uses."""
    return path.with_name(f".{path.name[:150]}.{socket.gethostname()[:60]}.{os.getpid()}.tmp")


def write_file(path: Path, text: str, *, durable: bool = True) -> None:
    """Put ``text`` in place at ``path``: whole, or not at all; ``durable``: and on the disk.

    A link at ``path`` is replaced, not followed. Raises :class:`ExecutionError`.
    """
    temporary = temporary_beside(path)
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise ExecutionError(f"cannot write {path}: {error.strerror}") from error
