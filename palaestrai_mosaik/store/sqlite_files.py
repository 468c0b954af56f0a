"""SQLite files: the mode in which one is opened, and what may lie in its place.

A file is opened for writing, or in one of three modes for reading. The latter create no file beside it, so that a full
disk, or one without write access, can be read:

- ``read``: with the write-ahead log, if the file has one.
- ``read log``: the same, but without writing to the log's shared memory.
- ``unlocked``: without locks and without a log; what is read is valid as long as no process writes to the file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

import sqlalchemy as sa

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError

#: the journal mode: a write-ahead log lets readers read while others write, but only within one machine; a rollback
#: journal is deleted at every commit
Journal = Literal["wal", "delete"]
OpenMode = Literal["write", "read", "read log", "unlocked"]
#: by reading mode, SQLite's parameters
_PARAMETERS: dict[OpenMode, dict[str, str]] = {
    "read": {},
    "read log": {"readonly_shm": "1"},
    "unlocked": {"immutable": "1"},
}
#: seconds that a writer waits for another one
TIMEOUT = 60.0


class FileState(NamedTuple):
    """The attributes of an SQLite file that a write changes; ``log`` is the mtime of its write-ahead log, if any."""

    size: int
    modified: int
    log: int | None


def sqlite_file(url: sa.URL) -> Path | None:
    """Return the SQLite file of a database; ``None`` for a server and for a database in memory."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database))


def check_sqlite(file: Path, *, followed: bool = False) -> None:
    """Check that SQLite would access the database ``file`` itself, and not another file that it is a name of.

    SQLite opens, creates and deletes the database and its logs by name.

    Args:
        file: the database.
        followed: the database itself, which is only read, may be a link.

    Raises:
        StoreError: the database or one of its logs is a link, has a second name, or is not a regular file.
    """
    for suffix in (*(() if followed else ("",)), "-wal", "-shm", "-journal"):
        try:
            files.check_in_place(file.with_name(file.name + suffix))
        except OSError as error:
            raise StoreError(f"cannot open the database {file}: {error.strerror}") from error


def open_modes(file: Path, read_only: bool) -> Sequence[OpenMode]:
    """List the modes in which to try to open ``file``, in order.

    A file that is only read is opened for writing if nothing else works: that rolls an interrupted transaction back.
    """
    closed = is_closed(file)
    if not (read_only or closed):
        return ("write",)
    if not _has_log_mode(file):
        modes: tuple[OpenMode, ...] = ("read",)
    elif file_state(file).log is None:
        # nothing can be missing from a file without a log
        modes = ("unlocked",)
    else:
        modes = ("read", "read log")
    return modes if closed else (*modes, "write")


def mode_url(url: sa.URL, mode: OpenMode) -> sa.URL:
    """Build the URL that opens the SQLite file of ``url`` in ``mode``."""
    if mode == "write":
        return url
    path = quote(os.path.abspath(str(url.database)))
    return url.set(database=f"file:{path}", query={"mode": "ro", "uri": "true"} | _PARAMETERS[mode])


def file_state(file: Path) -> FileState:
    """Return the state of ``file``; that of a missing file has no size."""
    size, modified, log = 0, 0, None
    with suppress(OSError):
        stat = file.stat()
        size, modified = stat.st_size, stat.st_mtime_ns
    with suppress(FileNotFoundError):
        log = file.with_name(file.name + "-wal").stat().st_mtime_ns
    return FileState(size, modified, log)


def is_closed(file: Path) -> bool:
    """Whether this process has no write access to the file or its folder."""
    return file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))


def _has_log_mode(file: Path) -> bool:
    """Whether the file uses a write-ahead log (https://www.sqlite.org/fileformat2.html, 1.3.3)."""
    try:
        with files.open_read(file) as stream:
            return stream.read(20)[18:] == b"\2\2"
    except OSError:
        return False  # opening it reports the reason
