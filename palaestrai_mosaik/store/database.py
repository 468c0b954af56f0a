"""The SQL side: one engine, read and write transactions, and their retries."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from palaestrai_mosaik.core.errors import StoreError

from . import schema
from .driver_errors import explanation, first_error, is_away, is_cut_off, needs_writing
from .models import Label
from .sqlite_files import (
    TIMEOUT,
    FileState,
    Journal,
    OpenMode,
    check_sqlite,
    file_state,
    mode_url,
    open_modes,
    sqlite_file,
)
from .urls import database_url, masked, without_passwords

logger = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")

#: seconds that a transaction waits for an unreachable server, and that an interrupted transaction is retried for
PATIENCE = 60.0
#: seconds between two attempts: the first pause, its growth factor and its maximum
_PAUSE, _GROWTH, _LONGEST_PAUSE = 0.1, 1.6, 5.0
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


class ConnectionLostError(StoreError):
    """The server interrupted a transaction: it was rolled back, or committed without an answer."""


class MissingStoreError(StoreError):
    """There is no store here yet: no file, or a database without tables."""


class _ChangedError(ConnectionLostError):
    """A file that is read without locks has changed; the next transaction reads the new state."""


class _OutdatedError(StoreError):
    """A file that is only read has an earlier revision."""


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
            database must exist. If this process has write access, an interrupted transaction is rolled back all the
            same, and an earlier schema that cannot be read as it is (:data:`~.schema.READABLE`) is upgraded. An SQLite
            file without write access to it or its folder is always opened like this.

    Raises:
        StoreError: it cannot be opened, has an unknown schema, or holds tables of another program.
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
        self._file = sqlite_file(self._url)
        create = create and not read_only
        is_new = False
        modes: Sequence[OpenMode] = ("write",)
        if self._file is not None:
            check_sqlite(self._file)
            if not create and not self._file.exists():
                raise MissingStoreError(f"there is no store at {self._url.database}")
            is_new = file_state(self._file).size == 0
            modes = open_modes(self._file, read_only)
        self._make_wal = is_new and create and journal == "wal"
        #: the state of a file without locks when it was opened
        self._unlocked_state: FileState | None = None
        #: held while a changed file is reopened: several threads may read it
        self._reopening = threading.Lock()
        self._has_labels = False
        # opening it may write
        self._read_only = False
        self._open(modes, create, read_only)
        self._read_only = read_only

    def _open(self, modes: Sequence[OpenMode], create: bool, read_only: bool) -> None:
        """Open the database in the first of ``modes`` that works."""
        problem: StoreError | None = None
        for mode in modes:
            self._mode = mode
            try:
                self.engine = self._make_engine()
            except (SQLAlchemyError, ImportError) as error:
                raise self._problem("cannot open", error) from None
            try:
                self._prepare(create, read_only)
                return
            except StoreError as error:
                self.close()
                problem = problem or error
                may_differ = isinstance(error, MissingStoreError | _OutdatedError)
                if mode == modes[-1] or not (may_differ or needs_writing(error.__context__)):
                    raise problem from problem.__cause__
            except BaseException:
                self.close()
                raise

    def _make_engine(self) -> sa.Engine:
        if self._url.get_backend_name() != "sqlite":
            options = {}
            if self._url.drivername in ("postgresql+psycopg", "postgresql+psycopg2"):
                options = {key: value for key, value in _POSTGRESQL.items() if key not in self._url.query}
            # Many processes share the server's connections, so each keeps only one open.
            return sa.create_engine(
                self._url, connect_args=options, pool_pre_ping=True, pool_size=1, max_overflow=-1
            )
        self._unlocked_state = file_state(self._file) if self._file and self._mode == "unlocked" else None
        engine = sa.create_engine(mode_url(self._url, self._mode), connect_args={"timeout": TIMEOUT})

        @sa.event.listens_for(engine, "connect")
        def configure_connection(connection: Any, _record: Any) -> None:
            connection.isolation_level = None  # the listener below begins transactions
            connection.execute(f"PRAGMA busy_timeout={int(TIMEOUT * 1000)}")
            assignment = "=WAL" if self._make_wal else ""
            (mode,) = connection.execute(f"PRAGMA journal_mode{assignment}").fetchone()
            # NORMAL cannot damage a database with a write-ahead log; a power cut may cost the last second's
            # episodes. Without a write-ahead log, NORMAL could corrupt the database, hence FULL.
            connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")
            connection.execute("PRAGMA foreign_keys=ON")
            if self._mode != "write":
                connection.execute("PRAGMA temp_store=MEMORY")

        @sa.event.listens_for(engine, "begin")
        def begin_transaction(connection: Connection) -> None:
            # A transaction that reads first and writes later can deadlock with another
            # one in SQLite, so a writer takes the lock at once.
            options = connection.get_execution_options()
            if options.get("migrates", False):
                # A migration may replace a table that others refer to; SQLite does not allow
                # turning this off within a transaction.
                connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
            connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes", False) else "BEGIN")

        return engine

    def _prepare(self, create: bool, read_only: bool) -> None:
        """Create the tables of a new database, and upgrade those of an earlier revision."""
        revision = self.repeat(lambda _: self.schema_version())
        is_read = read_only or self._mode != "write"
        if revision == schema.HEAD or (is_read and revision in schema.READABLE):
            return
        if self._mode != "write":
            if revision is None:
                raise self._no_store()
            with self.reading() as session:
                schema.check_known(session.connection(), revision, self.name)
            raise _OutdatedError(
                f"the store {self.name} has an earlier schema ({revision}), and must be upgraded: who may write there "
                "must open it once, on a disk with room; or copy it"
            )

        def prepare(session: Session) -> None:
            connection = session.connection()
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_POSTGRESQL_LOCK})")
            if schema.has_revision(connection):
                schema.upgrade_tables(connection, self.name)
            elif create:
                schema.create_tables(connection, self.name)
            else:
                raise self._no_store()

        self.write(prepare, migrates=True)

    def _no_store(self) -> StoreError:
        return MissingStoreError(f"{self.name} is not a store: it has no results")

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
        pauses: Iterator[float] | None = None
        while True:
            try:
                return work(pauses is not None)
            except ConnectionLostError as error:
                if pauses is None:
                    pauses = _pauses(time.monotonic())
                    if not isinstance(error, _ChangedError):
                        logger.warning("%s; trying again for up to %g s", error, PATIENCE)
                pause = next(pauses, None)
                if pause is None:
                    raise StoreError(str(error)) from error.__cause__
            time.sleep(pause)

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
        before = self._unlocked_state
        try:
            with self._connected(what, **options) as connection, Session(connection) as session:
                yield session
        except SQLAlchemyError as error:
            self._refuse_if_changed(before)
            raise self._problem(what, error) from self._cause(error)
        self._refuse_if_changed(before)

    def _refuse_if_changed(self, before: FileState | None) -> None:
        """Raise if the file, which is read without locks, has changed since ``before``, and reopen it."""
        if before is None or self._file is None or file_state(self._file) == before:
            return
        with self._reopening:
            if self._unlocked_state is before:
                self.engine.dispose()
                self._mode = "unlocked" if file_state(self._file).log is None else "read"
                self.engine = self._make_engine()
        raise _ChangedError(f"the database {self.name} is written to by another process: read it again")

    def _connected(self, what: str, **options: Any) -> Connection:
        """Connect; wait if the server is unreachable for the moment. Raises :class:`StoreError`."""
        pauses = _pauses(time.monotonic())
        pause: float | None = None
        while True:
            try:
                return self.engine.connect().execution_options(**options)
            except OperationalError as error:
                is_first = pause is None
                pause = next(pauses, None) if is_away(error) else None
                if pause is None:
                    raise StoreError(self._sentence(what, error)) from self._cause(error)
                if is_first:
                    why = explanation(error, self._url)
                    logger.warning("%s is away; waiting up to %g s for it: %s", self.name, PATIENCE, why)
            time.sleep(pause)

    def _sentence(self, what: str, error: BaseException) -> str:
        return f"{what} the database {self.name}: {explanation(error, self._url)}"

    def _problem(self, what: str, error: BaseException) -> StoreError:
        is_lost = self._url.get_backend_name() != "sqlite" and is_cut_off(first_error(error))
        return (ConnectionLostError if is_lost else StoreError)(self._sentence(what, error))

    def _cause(self, error: BaseException) -> BaseException | None:
        """Return ``error`` for the traceback, or ``None`` if it contains a password."""
        return error if without_passwords(str(error), self._url) == str(error) else None

    def open_again(self) -> Database:
        """Open the database again by name, read-only, as another process would find it.

        A connection to an SQLite file that was since deleted or replaced keeps the old file. An in-memory database has
        no name, so this one is returned. Raises :class:`StoreError`.
        """
        if self._url.get_backend_name() == "sqlite" and self._file is None:
            return self
        return Database(self._url, read_only=True)

    def schema_version(self) -> str | None:
        """The database's revision, or ``None`` if it has none of our tables."""
        with self.reading() as session:
            return schema.revision_of(session.connection())

    def has_labels(self, session: Session) -> bool:
        """Whether there is a table of labels; an earlier schema that is only read has none, until it is upgraded."""
        if not self._has_labels:
            self._has_labels = sa.inspect(session.connection()).has_table(Label.__tablename__)
        return self._has_labels

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _pauses(began: float) -> Iterator[float]:
    """Yield the pauses between attempts, until :data:`PATIENCE` has passed since ``began``."""
    pause = _PAUSE
    while time.monotonic() - began + pause <= PATIENCE:
        yield pause
        pause = min(pause * _GROWTH, _LONGEST_PAUSE)


def reads(method: Callable[P, T]) -> Callable[P, T]:
    """Decorate a read-only method of an object with a ``database``: retry it if the server interrupts it."""

    @wraps(method)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
        database: Database = args[0].database  # type: ignore[attr-defined]
        return database.repeat(lambda _: method(*args, **kwargs))

    return repeated
