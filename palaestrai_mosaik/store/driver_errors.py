"""Errors of database drivers: what kind they are, and what to do about them."""

from __future__ import annotations

import shutil
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, DisconnectionError, OperationalError, SQLAlchemyError

from palaestrai_mosaik.core.installation import install_extra

from .sqlite_files import TIMEOUT, sqlite_file
from .urls import without_passwords

#: driver messages for a temporary outage, such as a restart or no free connection
_AWAY = (
    # the file is a server's socket
    *("connection refused", "connection reset by peer", "no such file or directory", "timeout expired"),
    *("server closed the connection unexpectedly", "terminating connection due to"),
    *("network is unreachable", "no route to host", "temporary failure in name resolution"),
    *("is starting up", "is shutting down", "in recovery mode", "not yet accepting connections"),
    *("too many clients", "too many connections", "remaining connection slots"),
)
#: SQLSTATEs of transactions that the server rolled back through no fault of their own: a shutdown, a crash, or a
#: conflict with another transaction
_UNDONE = ("57P01", "57P02", "57P03", "57P05", "25P03", "40001", "40P01")
#: the SQLSTATE class of lost connections
_CONNECTION_LOST = "08"
#: SQLite's error name for a hot journal that this process may not roll back
_CUT_OFF = "sqlite_readonly_rollback"
#: advice for a damaged SQLite file
_RESTORE = (
    "put a copy in its place, or move it away with its -wal and -shm: runs keep their files in instances/, and can be "
    "executed again"
)
#: advice for driver messages
_ADVICE = {
    "too many clients": "execute fewer runs at the same time, or raise max_connections of the server",
    "too many connections": "execute fewer runs at the same time, or raise the limit in the server",
    "remaining connection slots": "execute fewer runs at the same time, or raise max_connections of the server",
    "database is locked": f"another program has held it for more than {TIMEOUT:g} s",
    "readonly database": "this process may not write there, or the file system is read-only",
    _CUT_OFF: "a writer was killed within a transaction: who may write there must open it once, which undoes it",
    "unable to open database file": "is the folder there, and may this process write to it?",
    "file is not a database": _RESTORE,
    "database disk image is malformed": _RESTORE,
    "malformed database schema": _RESTORE,
}
_NO_DRIVER = "no module named 'psycopg'"
#: SQLite's error names for a failure to create a file or to write to it
_NO_ROOM = ("SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_FULL")
#: size of a write-ahead log's shared memory, in bytes
_LEAST = 32768


def explanation(error: BaseException, url: sa.URL) -> str:
    """Format the driver's message on one line, without passwords and with advice."""
    error = first_error(error)
    message = str(error.orig if isinstance(error, DBAPIError) else error)
    message = without_passwords(" ".join(message.split()), url)
    name = _sqlite_name(error)
    file = sqlite_file(url)
    advice: str | None
    if file is not None and name.startswith(_NO_ROOM) and _is_full(file.parent):
        advice = f"the disk is full: {file.parent}"
    elif _NO_DRIVER in message.lower():
        advice = install_extra("postgresql")
    else:
        signs = (name.lower(), *(sign for sign in _ADVICE if sign in message.lower()))
        advice = next((_ADVICE[sign] for sign in signs if sign in _ADVICE), None)
    return message if advice is None else f"{message} ({advice})"


def first_error(error: BaseException) -> BaseException:
    """Return the first error if rolling back the transaction failed because of it."""
    while True:
        before = error.__context__
        if isinstance(error, DBAPIError) and before is error.orig and before is not None:
            before = before.__context__
        # the pool's DisconnectionError does not name the cause
        if not isinstance(before, SQLAlchemyError) or isinstance(before, DisconnectionError):
            return error
        error = before


def is_away(error: OperationalError) -> bool:
    """Whether this is a temporary outage, not an answer of the server."""
    message = str(error.orig).lower()
    return any(sign in message for sign in _AWAY)


def is_cut_off(error: BaseException) -> bool:
    """Whether the server closed the connection or rolled back the transaction, through no fault of the statement."""
    if not isinstance(error, DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    if state is not None and not state.startswith(_CONNECTION_LOST):
        # the server named the reason: drivers also drop a connection after a statement_timeout
        return state in _UNDONE
    return error.connection_invalidated or (isinstance(error, OperationalError) and is_away(error))


def needs_writing(error: BaseException | None) -> bool:
    """Whether SQLite failed because it could not write."""
    return _sqlite_name(error).startswith((*_NO_ROOM, "SQLITE_READONLY"))


def _sqlite_name(error: BaseException | None) -> str:
    return str(getattr(getattr(error, "orig", error), "sqlite_errorname", ""))


def _is_full(folder: Path) -> bool:
    """Whether the disk of ``folder`` has less room than SQLite needs at least."""
    try:
        return shutil.disk_usage(folder).free < _LEAST
    except OSError:
        return False
