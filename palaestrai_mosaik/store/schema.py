"""The revision of a database's tables: created, upgraded, or refused.

A new database is created from the models and stamped with the newest revision, which takes milliseconds. The
migrations upgrade a database of an earlier revision. A test checks that both ways lead to the same schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from palaestrai_mosaik.core.errors import StoreError

from .models import Base

if TYPE_CHECKING:
    from alembic.config import Config

#: the newest revision in ``migrations/versions``
HEAD = "0007"
#: earlier revisions that can be read without an upgrade: they lack tables that queries do without
READABLE = ("0006",)
MIGRATIONS = Path(__file__).parent / "migrations"


def migration_config(connection: Connection) -> Config:
    """Build the alembic configuration that runs our migrations on ``connection``."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def has_revision(connection: Connection) -> bool:
    """Whether the database has the table with its revision, as every store has."""
    return sa.inspect(connection).has_table("alembic_version")


def revision_of(connection: Connection) -> str | None:
    """Return the database's revision, or ``None`` if it has none of our tables."""
    if not has_revision(connection):
        return None
    revision: str | None = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return revision


def create_tables(connection: Connection, name: str) -> None:
    """Create the tables in the empty database ``name``.

    Raises :class:`StoreError` if another program uses it.
    """
    foreign = sorted(set(sa.inspect(connection).get_table_names()) & set(Base.metadata.tables))
    if foreign:
        raise StoreError(
            f"the database {name} holds tables of another program ({', '.join(foreign)}): "
            "give the store a database of its own"
        )
    Base.metadata.create_all(connection)
    connection.exec_driver_sql(
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
        "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
    )
    connection.execute(sa.text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


def upgrade_tables(connection: Connection, name: str) -> None:
    """Upgrade the tables of the store ``name`` to :data:`HEAD`, on a connection without foreign keys.

    Raises :class:`StoreError` if it has an unknown revision.
    """
    revision = revision_of(connection)  # another process may have upgraded it meanwhile
    if revision == HEAD:
        return
    from alembic import command

    check_known(connection, revision, name)
    command.upgrade(migration_config(connection), HEAD)
    if connection.dialect.name == "sqlite":
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        if broken:
            raise StoreError(f"the upgrade of {name} would break references of {broken[0][0]}")


def check_known(connection: Connection, revision: str | None, name: str) -> None:
    """Raise :class:`StoreError` if no migration leads from ``revision`` to :data:`HEAD`."""
    from alembic.script import ScriptDirectory

    config = migration_config(connection)
    revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    if revision is None or revision in revisions:
        return
    schemas = f"(schema {revision}; this one knows {', '.join(sorted(revisions))})"
    if revision > HEAD:
        raise StoreError(
            f"the store {name} was written by a newer release {schemas}: update palaestrai-mosaik to open it"
        )
    raise StoreError(
        f"the store {name} was written before the first release {schemas}: execute its runs again into a new store"
    )
