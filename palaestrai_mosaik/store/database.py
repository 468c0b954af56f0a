"""The SQL side: one engine, read and write transactions, and the schema's version.

A fresh database is created from the models and stamped with the newest revision, which
takes milliseconds; one that an older release wrote is upgraded by the migrations, one
revision after the other. A test holds that both ways lead to the same schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from palaestrai_mosaik.errors import StoreError

from .models import Base

if TYPE_CHECKING:
    from alembic.config import Config

#: the newest revision in ``migrations/versions``
HEAD = "0004"
MIGRATIONS = Path(__file__).parent / "migrations"
#: seconds that a writer waits for another one
TIMEOUT = 60.0
# Any number that no other program is likely to lock on; guards the creation of tables.
_POSTGRESQL_LOCK = 0x70A1E57A


def migration_config(connection: Connection) -> Config:
    """Return the configuration with which alembic runs our migrations on ``connection``."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


class Database:
    """One SQL database. ``create=False`` refuses to make a new one.

    Raises :class:`StoreError` if it cannot be opened, was written by a newer release, or
    holds tables of another program.
    """

    def __init__(self, url: str | sa.URL, *, create: bool = True):
        try:
            self._url = sa.make_url(url)
        except SQLAlchemyError as error:
            raise StoreError(
                f"{url!r} is not a database URL such as sqlite:///results.db: {error}"
            ) from error
        self.name = self._url.render_as_string(hide_password=True)
        file = self._url.database
        is_file = self._url.get_backend_name() == "sqlite" and file and file != ":memory:"
        if is_file and not Path(str(file)).exists() and not create:
            raise StoreError(f"there is no store at {file}")
        try:
            self.engine = self._make_engine()
        except (SQLAlchemyError, ImportError) as error:
            raise StoreError(f"the database {self.name} cannot be opened: {error}") from error
        try:
            self._prepare(create)
        except BaseException:
            self.close()
            raise

    def _make_engine(self) -> sa.Engine:
        if self._url.get_backend_name() != "sqlite":
            return sa.create_engine(self._url, pool_pre_ping=True)
        engine = sa.create_engine(self._url, connect_args={"timeout": TIMEOUT})

        @sa.event.listens_for(engine, "connect")
        def connected(connection: Any, _record: Any) -> None:
            connection.isolation_level = None  # the transactions are begun below
            # WAL lets readers read while a run writes. In this mode "synchronous=NORMAL"
            # cannot damage the database; a power cut may cost the last second's episodes.
            connection.execute(f"PRAGMA busy_timeout={int(TIMEOUT * 1000)}")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA foreign_keys=ON")

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

    @contextmanager
    def writing(self, *, migrates: bool = False) -> Iterator[Session]:
        """Give a session whose changes are committed at the end, or rolled back."""
        try:
            with (
                self.engine.connect().execution_options(writes=True, migrates=migrates) as connection,
                Session(connection) as session,
                session.begin(),
            ):
                if migrates:
                    connection.detach()  # its settings differ, so it must not be used again
                yield session
        except SQLAlchemyError as error:
            raise StoreError(f"cannot write to the database {self.name}: {error}") from error

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Give a session that sees one state of the database."""
        try:
            with Session(self.engine) as session:
                yield session
        except SQLAlchemyError as error:
            raise StoreError(f"cannot read the database {self.name}: {error}") from error

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
        if self.schema_version() == HEAD:
            return
        with self.writing(migrates=True) as session:
            connection = session.connection()
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_POSTGRESQL_LOCK})")
            if sa.inspect(connection).has_table("alembic_version"):
                self._upgrade(connection)
            elif create:
                self._create(connection)
            else:
                raise StoreError(f"{self.name} is not a store: it has no results")

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
        from alembic.script import ScriptDirectory

        config = migration_config(connection)
        known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
        if revision is not None and revision not in known:
            raise StoreError(
                f"the store {self.name} was written by a newer release (schema {revision}; "
                f"this one knows {', '.join(sorted(known))}): update palaestrai-mosaik to open it"
            )
        command.upgrade(config, HEAD)
        if connection.dialect.name == "sqlite":
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
            if broken:
                raise StoreError(f"the upgrade of {self.name} would break references of {broken[0][0]}")
