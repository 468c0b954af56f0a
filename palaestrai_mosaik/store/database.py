"""The SQL side: one engine, read and write transactions, and the schema's version.

A fresh database is created from the models and stamped with the newest revision, which
takes milliseconds; one that an older release wrote is upgraded by the migrations, one
revision after the other. A test holds that both ways lead to the same schema.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, ParamSpec, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.installation import install_extra

from .models import Base
from .urls import database_url, masked, without_passwords

if TYPE_CHECKING:
    from alembic.config import Config

logger = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")

#: the newest revision in ``migrations/versions``
HEAD = "0006"
MIGRATIONS = Path(__file__).parent / "migrations"
#: what makes the tables of before revision 0006 those of after it
_BEFORE_0006 = (
    "CREATE TEMP VIEW descriptions AS SELECT 0 AS id, '' AS kind, '' AS hash, '{}' AS content WHERE 0",
    "CREATE TEMP VIEW environments AS SELECT *, NULL AS topology_id FROM main.environments",
    "CREATE TEMP VIEW phases AS SELECT *, NULL AS world_id FROM main.phases",
)
#: what an SQLite file of an older revision is read with, where it cannot be upgraded: tables as they are today
_AS_TODAY: dict[str, tuple[str, ...]] = {
    "0004": (
        "CREATE TEMP VIEW run_documents AS SELECT *, NULL AS content FROM main.run_documents",
        *_BEFORE_0006,
    ),
    "0005": _BEFORE_0006,
}
#: seconds that a writer waits for another one
TIMEOUT = 60.0
#: seconds that a transaction waits for a server that is away for the moment before it begins, and for which one that
#: was cut off is tried again
PATIENCE = 60.0
#: seconds between two attempts to reach it: at first, growing by, at most
_PAUSE, _GROWTH, _LONGEST_PAUSE = 0.1, 1.6, 5.0
#: what drivers say while a server is restarted, or has no connection left: it may come back by itself
_AWAY = (
    "connection refused",
    "no such file or directory",  # its socket
    "server closed the connection unexpectedly",
    "connection reset by peer",
    "connection timeout expired",
    "timeout expired",
    "network is unreachable",
    "no route to host",
    "temporary failure in name resolution",
    "is starting up",
    "is shutting down",
    "in recovery mode",
    "not yet accepting connections",
    "terminating connection due to",
    "too many clients",
    "too many connections",
    "remaining connection slots",
)
#: SQLSTATEs of what the server undid for no fault of the transaction: it shuts down, has crashed, another transaction
#: was in the way
_UNDONE = ("57P01", "57P02", "57P03", "57P05", "25P03", "40001", "40P01")
#: what SQLite calls a transaction that was cut off, where this process may not undo it
_CUT_OFF = "sqlite_readonly_rollback"
#: what to do about what drivers say
_ADVICE = {
    "too many clients": "execute fewer runs at the same time, or raise max_connections of the server",
    "too many connections": "execute fewer runs at the same time, or raise the limit in the server",
    "remaining connection slots": "execute fewer runs at the same time, or raise max_connections of the server",
    "database is locked": f"another program has held it for more than {TIMEOUT:g} s",
    "readonly database": "this process may not write there, or the file system is read-only",
    _CUT_OFF: "a writer was killed within a transaction: who may write there must open it once, which undoes it",
    "unable to open database file": "is the folder there, and may this process write to it?",
}
_NO_DRIVER = "no module named 'psycopg'"
#: how its own library (libpq) connects to PostgreSQL, unless the URL says otherwise: a server or network that is gone
#: without a word is noticed within a minute
_POSTGRESQL = {
    "connect_timeout": "10",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "fallback_application_name": "palaestrai-mosaik",
}
# Any number that no other program is likely to lock on; guards the creation of tables.
_POSTGRESQL_LOCK = 0x70A1E57A

#: how SQLite undoes a transaction that was cut off: with a write-ahead log, which lets readers read
#: while others write, but only within one machine; or with a file that is deleted at every commit
Journal = Literal["wal", "delete"]
#: how an SQLite file is opened: to be written; to be read, with its log if there is one; with its log, and nothing
#: written into the memory that processes share for it; without locks and log, as long as nobody writes to it
_OpenMode = Literal["write", "read", "read log", "as it is"]
_QUERIES: dict[_OpenMode, dict[str, str]] = {
    "read log": {"readonly_shm": "1"},
    "as it is": {"immutable": "1"},
}
#: what SQLite says where it cannot make a file, or write into one
_NO_ROOM = ("SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_FULL")
#: bytes of the memory that processes share for a write-ahead log
_LEAST = 32768


class ConnectionLostError(StoreError):
    """The server cut a transaction off: it was undone, or committed without an answer."""


class _ChangedError(ConnectionLostError):
    """A file that was read without locks was written to meanwhile; the next transaction reads what is there now."""


def migration_config(connection: Connection) -> Config:
    """Return the configuration with which alembic runs our migrations on ``connection``."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


class Database:
    """One SQL database. ``create=False`` refuses to make a new one.

    ``location`` is a URL, or says where it is kept (:func:`~.urls.database_url`). Where the server is
    away for the moment, being restarted for instance, or has no connection left, each transaction
    waits up to a minute before it begins. One that is cut off raises :class:`ConnectionLostError`, and may
    have been committed if that was when it was committed; :meth:`write` and :meth:`repeat` do it again.

    ``read_only``: nothing is written, and nothing made beside an SQLite file, so it can be read on a disk that is
    full, too; there must be one. (A file of an older release is upgraded, and a transaction that a process
    was killed in is undone, where this process may write.) So is a file that this process may not write, or
    in such a folder. One of the last release is read as it is where it cannot be upgraded.

    ``journal``: of a new SQLite file; one that is there keeps what it has, however it is opened.

    Raises :class:`StoreError` if it cannot be opened, was written by a newer release, or
    holds tables of another program.
    """

    def __init__(
        self,
        location: str | sa.URL,
        *,
        create: bool = True,
        journal: Journal = "wal",
        read_only: bool = False,
    ):
        self._url = database_url(location) if isinstance(location, str) else location
        self.name = masked(self._url)
        file = self._url.database
        is_file = self._url.get_backend_name() == "sqlite" and file and file != ":memory:"
        if is_file:
            check_sqlite(Path(str(file)))
        create = create and not read_only
        if is_file and not Path(str(file)).exists() and not create:
            raise StoreError(f"there is no store at {file}")
        self._read_only = False
        self._make_wal = bool(is_file) and journal == "wal" and _is_new(Path(str(file)))
        #: a file that is read as it is, without locks, and its state then
        self._as_it_was: tuple[Path, _FileState] | None = None
        #: the statements that make the tables of an older revision today's, for each connection
        self._as_today: tuple[str, ...] = ()
        #: how an SQLite file is opened, the first one that can be: see :meth:`_open_modes`
        self._mode: _OpenMode = "write"
        modes: list[_OpenMode] = self._open_modes(Path(str(file)), read_only) if is_file else ["write"]
        problem: StoreError | None = None
        for number, mode in enumerate(modes):
            left = modes[number + 1 :]
            self._mode = mode
            try:
                self.engine = self._make_engine()
            except (SQLAlchemyError, ImportError) as error:
                raise self._problem("cannot open", error) from None
            try:
                if "write" in left and self.repeat(lambda _: self.schema_version()) != HEAD:
                    self.close()
                    continue  # it has to be upgraded, or is none
                self._prepare(create)
            except StoreError as error:
                self.close()
                problem = problem or error
                if not left or not _is_for_want_of_writing(error):
                    raise problem from problem.__cause__
            except BaseException:
                self.close()
                raise
            else:
                break
        self._read_only = read_only

    @staticmethod
    def _open_modes(file: Path, read_only: bool) -> list[_OpenMode]:
        """Return in which modes an SQLite file is to be opened, the first one that succeeds."""
        closed = _is_closed_to_us(file)
        if not (read_only or closed):
            return ["write"]
        if not _has_log_mode(file):
            modes: list[_OpenMode] = ["read"]
        elif _state(file).log is None:
            # one that would have to be made has nothing in it
            modes = ["as it is"]
        else:
            modes = ["read", "read log"]
        return modes if closed else [*modes, "write", *modes]

    def _make_engine(self) -> sa.Engine:
        if self._url.get_backend_name() != "sqlite":
            options = {}
            if self._url.drivername in ("postgresql+psycopg", "postgresql+psycopg2"):
                options = {key: value for key, value in _POSTGRESQL.items() if key not in self._url.query}
            # Many processes share the connections that a server has: each keeps one open.
            return sa.create_engine(
                self._url, connect_args=options, pool_pre_ping=True, pool_size=1, max_overflow=-1
            )
        file, url = Path(str(self._url.database)), self._url
        self._as_it_was = (file, _state(file)) if self._mode == "as it is" else None
        if self._mode != "write":
            url = _read_only(self._url, self._mode)
        engine = sa.create_engine(url, connect_args={"timeout": TIMEOUT})

        @sa.event.listens_for(engine, "connect")
        def connected(connection: Any, _record: Any) -> None:
            connection.isolation_level = None  # the transactions are begun below
            connection.execute(f"PRAGMA busy_timeout={int(TIMEOUT * 1000)}")
            wanted = "=WAL" if self._make_wal else ""
            (mode,) = connection.execute(f"PRAGMA journal_mode{wanted}").fetchone()
            # NORMAL cannot damage a database with a write-ahead log; a power cut may cost the last
            # second's episodes. Without such a log, it could damage the database.
            connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")
            connection.execute("PRAGMA foreign_keys=ON")
            if self._mode != "write":
                connection.execute("PRAGMA temp_store=MEMORY")
                for statement in self._as_today:
                    connection.execute(statement)

        @sa.event.listens_for(engine, "begin")
        def begun(connection: Connection) -> None:
            # A transaction that reads first and writes later can deadlock with another
            # one in SQLite, so a writer asks for the lock at once.
            options = connection.get_execution_options()
            if options.get("migrates", False):
                # A migration may have to replace a table to which others refer; this
                # cannot be allowed within a transaction any more.
                connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
            connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes", False) else "BEGIN")

        return engine

    def write(
        self,
        work: Callable[[Session], T],
        arrived: Callable[[Session], T | None] | None = None,
        *,
        migrates: bool = False,
    ) -> T:
        """Do ``work`` in a transaction, and return what it returns; do it again where the server cuts it off.

        Whether one that was cut off has been committed nobody knows. So ``arrived`` looks for what it wrote, in the
        transaction that would do it again, and returns what ``work`` returned, or ``None`` where it is not there.
        Without it, ``work`` must lead to the same when it is done twice. Nothing but the session may be changed
        by it.
        """

        def attempt(again: bool) -> T:
            try:
                with self.writing(migrates=migrates) as session:
                    found = arrived(session) if again and arrived is not None else None
                    return work(session) if found is None else found
            except StoreError as error:
                # what was thought to be undone was still being committed, and is there now
                if again and isinstance(error.__context__, IntegrityError):
                    raise ConnectionLostError(str(error)) from error
                raise

        return self.repeat(attempt)

    def repeat(self, work: Callable[[bool], T]) -> T:
        """Return what ``work`` returns; call it again where the server cuts a transaction of it off, up to a minute.

        It is called with whether that is again. Raises :class:`StoreError` where it takes longer.
        """
        lost: float | None = None
        pause = _PAUSE
        while True:
            try:
                return work(lost is not None)
            except ConnectionLostError as error:
                if lost is None:
                    lost = time.monotonic()
                    if not isinstance(error, _ChangedError):
                        logger.warning("%s; trying again for up to %g s", error, PATIENCE)
                if time.monotonic() - lost + pause > PATIENCE:
                    raise StoreError(str(error)) from error.__cause__
            time.sleep(pause)
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)

    @contextmanager
    def writing(self, *, migrates: bool = False) -> Iterator[Session]:
        """Give a session whose changes are committed at the end, or rolled back."""
        what = "cannot write to"
        if self._read_only:
            raise StoreError(f"{what} the database {self.name}: it is open for reading only")
        try:
            with (
                self._connected(what, writes=True, migrates=migrates) as connection,
                Session(connection) as session,
                session.begin(),
            ):
                if migrates:
                    connection.detach()  # its settings differ, so it must not be used again
                yield session
        except SQLAlchemyError as error:
            raise self._problem(what, error) from self._cause(error)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Give a session that sees one state of the database."""
        options: dict[str, Any] = {}
        if self._url.get_backend_name() == "postgresql":
            # else each statement would see what was committed just before it
            options["isolation_level"] = "REPEATABLE READ"
            options["postgresql_readonly"] = self._read_only
        what = "cannot read"
        try:
            with self._connected(what, **options) as connection, Session(connection) as session:
                yield session
        except SQLAlchemyError as error:
            self._refuse_if_changed()
            raise self._problem(what, error) from self._cause(error)
        self._refuse_if_changed()

    def _refuse_if_changed(self) -> None:
        """Raise where a file that is read as it is has been written to meanwhile; the next transaction sees that."""
        if self._as_it_was is None or _state(self._as_it_was[0]) == self._as_it_was[1]:
            return
        self.engine.dispose()
        self._mode = "as it is" if _state(self._as_it_was[0]).log is None else "read"
        self.engine = self._make_engine()
        raise _ChangedError(f"the database {self.name} is written to by another process: read it again")

    def _connected(self, what: str, **options: Any) -> Connection:
        """Return a connection; wait for a server that is away for the moment. Raises :class:`StoreError`."""
        began, pause = time.monotonic(), _PAUSE
        while True:
            try:
                return self.engine.connect().execution_options(**options)
            except OperationalError as error:
                waited = time.monotonic() - began
                if waited + pause > PATIENCE or not _is_away(error):
                    raise StoreError(self._sentence(what, error)) from self._cause(error)
                if pause == _PAUSE:
                    why = self._without_passwords(error)
                    logger.warning("%s is away; waiting up to %g s for it: %s", self.name, PATIENCE, why)
            time.sleep(pause)
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)

    def _without_passwords(self, error: BaseException) -> str:
        """Return what the driver said, on one line and without passwords."""
        error = _first(error)
        said = str(error.orig if isinstance(error, DBAPIError) else error)
        said = without_passwords(" ".join(said.split()), self._url)
        name = str(getattr(getattr(error, "orig", error), "sqlite_errorname", ""))
        advice = _ADVICE.get(name.lower()) or next(
            (hint for sign, hint in _ADVICE.items() if sign in said.lower()), None
        )
        if _NO_DRIVER in said.lower():
            advice = install_extra("postgresql")
        if name.startswith(_NO_ROOM) and _is_full(Path(str(self._url.database)).parent):
            advice = f"the disk is full: {Path(str(self._url.database)).parent}"
        return said if advice is None else f"{said} ({advice})"

    def _sentence(self, what: str, error: BaseException) -> str:
        return f"{what} the database {self.name}: {self._without_passwords(error)}"

    def _problem(self, what: str, error: BaseException) -> StoreError:
        cut = self._url.get_backend_name() != "sqlite" and _is_cut_off(_first(error))
        return (ConnectionLostError if cut else StoreError)(self._sentence(what, error))

    def _cause(self, error: BaseException) -> BaseException | None:
        """Return ``error`` for the traceback, unless it has a password in it."""
        return error if without_passwords(str(error), self._url) == str(error) else None

    def schema_version(self) -> str | None:
        """Return the revision that the database has, ``None`` if it has no tables of ours."""
        with self.reading() as session:
            return self._revision(session.connection())

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @staticmethod
    def _revision(connection: Connection) -> str | None:
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        revision: str | None = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        return revision

    def _prepare(self, create: bool) -> None:
        revision = self.repeat(lambda _: self.schema_version())
        if revision == HEAD:
            return
        if self._mode != "write":
            self._read_as_today(revision)
            return

        def prepare(session: Session) -> None:
            connection = session.connection()
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_POSTGRESQL_LOCK})")
            if sa.inspect(connection).has_table("alembic_version"):
                self._upgrade(connection)
            elif create:
                self._create(connection)
            else:
                raise self._no_store()

        self.write(prepare, migrates=True)

    def _read_as_today(self, revision: str | None) -> None:
        """Read a file of an older revision, which cannot be upgraded, as one of today."""
        if revision is None:
            raise self._no_store()
        if revision not in _AS_TODAY:
            with self.reading() as session:
                self._refuse_if_newer(session.connection(), revision)
            raise StoreError(
                f"the store {self.name} is one of an older release (schema {revision}), and must be upgraded: who may "
                "write there must open it once, on a disk with room; or copy it"
            )
        self.close()
        self._as_today = _AS_TODAY[revision]
        self.engine = self._make_engine()

    def _no_store(self) -> StoreError:
        return StoreError(f"{self.name} is not a store: it has no results")

    def _create(self, connection: Connection) -> None:
        foreign = sorted(set(sa.inspect(connection).get_table_names()) & set(Base.metadata.tables))
        if foreign:
            raise StoreError(
                f"the database {self.name} holds tables of another program ({', '.join(foreign)}): "
                "give the store a database of its own"
            )
        Base.metadata.create_all(connection)
        connection.exec_driver_sql(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
            "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
        connection.execute(sa.text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})

    def _upgrade(self, connection: Connection) -> None:
        revision = self._revision(connection)  # again: another process may have been faster
        if revision == HEAD:
            return
        from alembic import command

        self._refuse_if_newer(connection, revision)
        command.upgrade(migration_config(connection), HEAD)
        if connection.dialect.name == "sqlite":
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
            if broken:
                raise StoreError(f"the upgrade of {self.name} would break references of {broken[0][0]}")

    def _refuse_if_newer(self, connection: Connection, revision: str | None) -> None:
        from alembic.script import ScriptDirectory

        config = migration_config(connection)
        known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
        if revision is not None and revision not in known:
            raise StoreError(
                f"the store {self.name} was written by a newer release (schema {revision}; "
                f"this one knows {', '.join(sorted(known))}): update palaestrai-mosaik to open it"
            )


def _is_new(file: Path) -> bool:
    """Whether nothing was written to the SQLite file yet (it is made before the first write)."""
    try:
        return file.stat().st_size == 0
    except FileNotFoundError:
        return True


def _first(error: BaseException) -> BaseException:
    """Return what went wrong first, where undoing the transaction went wrong because of it."""
    while True:
        before = error.__context__
        if isinstance(error, DBAPIError) and before is error.orig and before is not None:
            before = before.__context__
        if not isinstance(before, SQLAlchemyError):
            return error
        error = before


def _is_away(error: OperationalError) -> bool:
    """Whether the server may come back by itself; else it has answered, and refused."""
    said = str(error.orig).lower()
    return any(sign in said for sign in _AWAY)


def _is_cut_off(error: BaseException) -> bool:
    """Whether the server ended the connection or undid the transaction, for no fault of the statement."""
    if not isinstance(error, DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return (
        error.connection_invalidated
        or state in _UNDONE
        or (isinstance(error, OperationalError) and _is_away(error))
    )


def reads(method: Callable[P, T]) -> Callable[P, T]:
    """Let a method of an object that has a ``database`` begin again where the server cut it off: it only reads."""

    @wraps(method)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
        database: Database = args[0].database  # type: ignore[attr-defined]
        return database.repeat(lambda _: method(*args, **kwargs))

    return repeated


def _is_closed_to_us(file: Path) -> bool:
    """Whether this process may only read the SQLite file."""
    return file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))


def check_sqlite(file: Path, *, followed: bool = False) -> None:
    """Raise :class:`StoreError` where SQLite would read and write something else than the database ``file``.

    It opens by name what is there, also its logs, which it makes and deletes. ``followed``: the
    database itself, which is only read, may be a link.
    """
    for suffix in (*(() if followed else ("",)), "-wal", "-shm", "-journal"):
        try:
            files.check_in_place(file.with_name(file.name + suffix))
        except OSError as error:
            raise StoreError(f"cannot open the database {file}: {error.strerror}") from error


class _FileState(NamedTuple):
    """What changes when an SQLite file is written to; ``log`` when there is a write-ahead log."""

    size: int
    modified: int
    log: int | None


def _state(file: Path) -> _FileState:
    size, modified, log = 0, 0, None
    with suppress(OSError):
        stat = file.stat()
        size, modified = stat.st_size, stat.st_mtime_ns
    with suppress(FileNotFoundError):
        log = file.with_name(file.name + "-wal").stat().st_mtime_ns
    return _FileState(size, modified, log)


def _has_log_mode(file: Path) -> bool:
    """Whether the SQLite file is one with a write-ahead log (https://www.sqlite.org/fileformat2.html, 1.3.3)."""
    try:
        with files.open_read(file) as stream:
            return stream.read(20)[18:] == b"\2\2"
    except OSError:
        return False  # why it cannot be read is reported where it is opened


def _is_for_want_of_writing(error: StoreError) -> bool:
    """Whether an SQLite file could not be opened because something would have to be written for that."""
    before = error.__context__
    names = str(getattr(getattr(before, "orig", None), "sqlite_errorname", ""))
    return names.startswith((*_NO_ROOM, "SQLITE_READONLY"))


def _is_full(folder: Path) -> bool:
    """Whether the disk of ``folder`` has no room for the least that SQLite would write."""
    try:
        return shutil.disk_usage(folder).free < _LEAST
    except OSError:
        return False


def _read_only(url: sa.URL, mode: _OpenMode) -> sa.URL:
    """Return the URL by which an SQLite file is read."""
    path = quote(os.path.abspath(str(url.database)))
    query = {"mode": "ro", "uri": "true"} | _QUERIES.get(mode, {})
    return url.set(database=f"file:{path}", query=query)
