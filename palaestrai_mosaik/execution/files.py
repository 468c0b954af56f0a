"""Small files that several processes and hosts look at: whole, or not there."""

from __future__ import annotations

from pathlib import Path

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import ExecutionError


def write_file(path: Path, text: str, *, durable: bool = True) -> None:
    """Put ``text`` in place at ``path``: whole, or not at all; ``durable``: and on the disk.

    A link at ``path`` is replaced, not followed. Raises :class:`ExecutionError`.
    """
    try:
        files.write_text(path, text, durable=durable)
    except OSError as error:
        raise ExecutionError(f"cannot write {path}: {error.strerror}") from error
