"""The SQL side: one engine, read and write transactions, and the schema version.

A new database is created from the models and stamped with the newest revision, which
takes milliseconds. The migrations upgrade a database of an older release, one revision
at a time. A test checks that both ways lead to the same schema.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, ParamSpec, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, DisconnectionError, IntegrityError, OperationalError, SQLAlchemyError
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
#: statements that add revision 0006's tables and columns to an older schema
_BEFORE_0006 = (
    "CREATE TEMP VIEW descriptions AS SELECT 0 AS id, '' AS kind, '' AS hash, '{}' AS content WHERE 0",
    "CREATE TEMP VIEW environments AS SELECT *, NULL AS topology_id FROM main.environments",
    "CREATE TEMP VIEW phases AS SELECT *, NULL AS world_id FROM main.phases",
)
#: per revision, the views that give an SQLite file that cannot be upgraded today's tables
_AS_TODAY: dict[str, tuple[str, ...]] = {
    "0004": (
        "CREATE TEMP VIEW run_documents AS SELECT *, NULL AS content FROM main.run_documents",
        *_BEFORE_0006,
    ),
    "0005": _BEFORE_0006,
}
#: seconds that a writer waits for another one
TIMEOUT = 60.0
#: seconds that a transaction waits for an unreachable server, and that an interrupted transaction is retried for
PATIENCE = 60.0
#: seconds between two attempts: the first pause, its growth factor and its maximum
_PAUSE, _GROWTH, _LONGEST_PAUSE = 0.1, 1.6, 5.0
#: driver messages for a temporary outage, such as a restart or no free connection
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
#: libpq's connection options, unless the URL sets them: they detect a dead server or network within a minute
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

#: SQLite's journal mode: a write-ahead log lets readers read while others write, but only within one machine; a
#: rollback journal is deleted at every commit
Journal = Literal["wal", "delete"]
#: how an SQLite file is opened: for writing; for reading, with its log if it has one; for reading with the log, but
#: without writing to its shared memory; or without locks and log, valid as long as no process writes to it
_OpenMode = Literal["write", "read", "read log", "as it is"]
_QUERIES: dict[_OpenMode, dict[str, str]] = {
    "read log": {"readonly_shm": "1"},
    "as it is": {"immutable": "1"},
}
#: SQLite's error names for a failure to create a file or to write to it
_NO_ROOM = ("SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_FULL")
#: size of a write-ahead log's shared memory, in bytes
_LEAST = 32768


class ConnectionLostError(StoreError):
    """The server interrupted a transaction: it was rolled back, or committed without an answer."""


class MissingStoreError(StoreError):
    """There is no store here yet: no file, or a database without tables."""


class _ChangedError(ConnectionLostError):
    """A file that is read without locks has changed; the next transaction reads the new state."""


def migration_config(connection: Connection) -> Config:
    """Build the alembic configuration that runs our migrations on ``connection``."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


class Database:
    """One SQL database.

    If the server is unreachable for the moment, such as during a restart, or has no connection left, each transaction
    waits up to a minute before it begins. An interrupted transaction raises :class:`ConnectionLostError`; if that
    happened during the commit, it may have been committed. :meth:`write` and :meth:`repeat` retry it.

    Args:
        location: a URL, or a reference to one (:func:`~.urls.database_url`).
        create: create the database if it is missing. Otherwise a missing database is an error.
        journal: the journal mode of a new SQLite file; an existing file keeps its own.
        read_only: write nothing, and create no file beside an SQLite file, so that a full disk can be read. The
            database must exist. If this process has write access, an older schema is upgraded and an interrupted
            transaction is rolled back all the same. An SQLite file without write access to it or its folder is always
            opened like this, and one of the last release is then read without an upgrade.

    Raises:
        StoreError: it cannot be opened, was written by a newer release, or holds tables of another program.
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
            raise MissingStoreError(f"there is no store at {file}")
        self._read_only = False
        self._make_wal = bool(is_file) and journal == "wal" and _is_new(Path(str(file)))
        #: a file that is read without locks, and its state when it was opened
        self._as_it_was: tuple[Path, _FileState] | None = None
        #: the statements that give an older schema today's tables, run on each connection
        self._as_today: tuple[str, ...] = ()
        #: held while a changed file is reopened: several threads may read it
        self._reopening = threading.Lock()
        #: how an SQLite file is opened: the first of :meth:`_open_modes` that works
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
                    continue  # it needs an upgrade, or is not a store
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
        """List the modes to try for an SQLite file, in order."""
        closed = _is_closed_to_us(file)
        if not (read_only or closed):
            return ["write"]
        if not _has_log_mode(file):
            modes: list[_OpenMode] = ["read"]
        elif _state(file).log is None:
            # there is no log, so nothing can be missing from the file
            modes = ["as it is"]
        else:
            modes = ["read", "read log"]
        return modes if closed else [*modes, "write", *modes]

    def _make_engine(self) -> sa.Engine:
        if self._url.get_backend_name() != "sqlite":
            options = {}
            if self._url.drivername in ("postgresql+psycopg", "postgresql+psycopg2"):
                options = {key: value for key, value in _POSTGRESQL.items() if key not in self._url.query}
            # Many processes share the server's connections, so each keeps only one open.
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
            connection.isolation_level = None  # the listener below begins transactions
            connection.execute(f"PRAGMA busy_timeout={int(TIMEOUT * 1000)}")
            assignment = "=WAL" if self._make_wal else ""
            (mode,) = connection.execute(f"PRAGMA journal_mode{assignment}").fetchone()
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
            # one in SQLite, so a writer takes the lock at once.
            options = connection.get_execution_options()
            if options.get("migrates", False):
                # A migration may replace a table that others refer to; SQLite does not allow
                # turning this off within a transaction.
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
        """Do ``work`` in a transaction, and return its result; retry if the server interrupts it.

        An interrupted transaction may or may not have been committed. The retry's transaction therefore calls
        ``arrived`` first, which looks for the rows of ``work``.

        Args:
            work: writes to the session, and changes nothing else.
            arrived: returns the result of ``work`` if its rows are in the database, else ``None``. Without it, ``work``
                must be idempotent.
            migrates: run without foreign keys, on a connection of its own.

        Raises:
            StoreError: the database cannot be written to, or the server stayed away for a minute.
        """

        def attempt(again: bool) -> T:
            try:
                with self.writing(migrates=migrates) as session:
                    result = arrived(session) if again and arrived is not None else None
                    return work(session) if result is None else result
            except StoreError as error:
                # the first attempt was still being committed
                if again and isinstance(error.__context__, IntegrityError):
                    raise ConnectionLostError(str(error)) from error
                raise

        return self.repeat(attempt)

    def repeat(self, work: Callable[[bool], T]) -> T:
        """Return the result of ``work``; retry for up to a minute if the server interrupts a transaction.

        Args:
            work: called with whether this is a retry.

        Raises:
            StoreError: the server stayed away longer.
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
        """Open a session; commit its changes at the end, or roll them back on an error."""
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
        """Open a session that sees a single snapshot of the database."""
        options: dict[str, Any] = {}
        if self._url.get_backend_name() == "postgresql":
            # otherwise each statement sees the newest commit
            options["isolation_level"] = "REPEATABLE READ"
            options["postgresql_readonly"] = self._read_only
        what = "cannot read"
        # another thread may reopen the file in between
        before = self._as_it_was
        try:
            with self._connected(what, **options) as connection, Session(connection) as session:
                yield session
        except SQLAlchemyError as error:
            self._refuse_if_changed(before)
            raise self._problem(what, error) from self._cause(error)
        self._refuse_if_changed(before)

    def _refuse_if_changed(self, before: tuple[Path, _FileState] | None) -> None:
        """Raise if the file, which is read without locks, has changed since ``before``, and reopen it."""
        if before is None or _state(before[0]) == before[1]:
            return
        with self._reopening:
            if self._as_it_was is before:
                self.engine.dispose()
                self._mode = "as it is" if _state(before[0]).log is None else "read"
                self.engine = self._make_engine()
        raise _ChangedError(f"the database {self.name} is written to by another process: read it again")

    def _connected(self, what: str, **options: Any) -> Connection:
        """Connect; wait if the server is unreachable for the moment. Raises :class:`StoreError`."""
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
        """Format the driver's message on one line, without passwords and with advice."""
        error = _first(error)
        message = str(error.orig if isinstance(error, DBAPIError) else error)
        message = without_passwords(" ".join(message.split()), self._url)
        name = str(getattr(getattr(error, "orig", error), "sqlite_errorname", ""))
        advice = _ADVICE.get(name.lower()) or next(
            (hint for sign, hint in _ADVICE.items() if sign in message.lower()), None
        )
        if _NO_DRIVER in message.lower():
            advice = install_extra("postgresql")
        if name.startswith(_NO_ROOM) and _is_full(Path(str(self._url.database)).parent):
            advice = f"the disk is full: {Path(str(self._url.database)).parent}"
        return message if advice is None else f"{message} ({advice})"

    def _sentence(self, what: str, error: BaseException) -> str:
        return f"{what} the database {self.name}: {self._without_passwords(error)}"

    def _problem(self, what: str, error: BaseException) -> StoreError:
        cut = self._url.get_backend_name() != "sqlite" and _is_cut_off(_first(error))
        return (ConnectionLostError if cut else StoreError)(self._sentence(what, error))

    def _cause(self, error: BaseException) -> BaseException | None:
        """Return ``error`` for the traceback, or ``None`` if it contains a password."""
        return error if without_passwords(str(error), self._url) == str(error) else None

    def open_again(self) -> Database:
        """Open the database again by name, read-only, as another process would find it.

        A connection to an SQLite file that was since deleted or replaced keeps the old file. An in-memory database has
        no name, so this one is returned. Raises :class:`StoreError`.
        """
        if self._url.get_backend_name() == "sqlite" and self._url.database in (None, "", ":memory:"):
            return self
        return Database(self._url, read_only=True)

    def schema_version(self) -> str | None:
        """The database's revision, or ``None`` if it has none of our tables."""
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
        """Read a file of an older revision, which cannot be upgraded, through views."""
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
        return MissingStoreError(f"{self.name} is not a store: it has no results")

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
        revision = self._revision(connection)  # another process may have upgraded it meanwhile
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
        revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
        if revision is not None and revision not in revisions:
            raise StoreError(
                f"the store {self.name} was written by a newer release (schema {revision}; "
                f"this one knows {', '.join(sorted(revisions))}): update palaestrai-mosaik to open it"
            )


def _is_new(file: Path) -> bool:
    """Whether the SQLite file is missing or empty; it is created before the first write."""
    try:
        return file.stat().st_size == 0
    except FileNotFoundError:
        return True


def _first(error: BaseException) -> BaseException:
    """Return the first error if rolling back the transaction failed because of it."""
    while True:
        before = error.__context__
        if isinstance(error, DBAPIError) and before is error.orig and before is not None:
            before = before.__context__
        # the pool's DisconnectionError does not name the cause
        if not isinstance(before, SQLAlchemyError) or isinstance(before, DisconnectionError):
            return error
        error = before


def _is_away(error: OperationalError) -> bool:
    """Whether this is a temporary outage, not an answer of the server."""
    message = str(error.orig).lower()
    return any(sign in message for sign in _AWAY)


def _is_cut_off(error: BaseException) -> bool:
    """Whether the server closed the connection or rolled back the transaction, through no fault of the statement."""
    if not isinstance(error, DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    if state is not None and not state.startswith(_CONNECTION_LOST):
        # the server named the reason: drivers also drop a connection after a statement_timeout
        return state in _UNDONE
    return error.connection_invalidated or (isinstance(error, OperationalError) and _is_away(error))


def reads(method: Callable[P, T]) -> Callable[P, T]:
    """Decorate a read-only method of an object with a ``database``: retry it if the server interrupts it."""

    @wraps(method)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
        database: Database = args[0].database  # type: ignore[attr-defined]
        return database.repeat(lambda _: method(*args, **kwargs))

    return repeated


def _is_closed_to_us(file: Path) -> bool:
    """Whether this process has no write access to the SQLite file or its folder."""
    return file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))


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


class _FileState(NamedTuple):
    """The attributes of an SQLite file that a write changes; ``log`` is the mtime of its write-ahead log, if any."""

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
    """Whether the SQLite file uses a write-ahead log (https://www.sqlite.org/fileformat2.html, 1.3.3)."""
    try:
        with files.open_read(file) as stream:
            return stream.read(20)[18:] == b"\2\2"
    except OSError:
        return False  # opening it reports the reason


def _is_for_want_of_writing(error: StoreError) -> bool:
    """Whether an SQLite file could not be opened because SQLite could not write."""
    cause = error.__context__
    names = str(getattr(getattr(cause, "orig", None), "sqlite_errorname", ""))
    return names.startswith((*_NO_ROOM, "SQLITE_READONLY"))


def _is_full(folder: Path) -> bool:
    """Whether the disk of ``folder`` has less room than SQLite needs at least."""
    try:
        return shutil.disk_usage(folder).free < _LEAST
    except OSError:
        return False


def _read_only(url: sa.URL, mode: _OpenMode) -> sa.URL:
    """Build the URL that opens an SQLite file read-only."""
    path = quote(os.path.abspath(str(url.database)))
    query = {"mode": "ro", "uri": "true"} | _QUERIES.get(mode, {})
    return url.set(database=f"file:{path}", query=query)
