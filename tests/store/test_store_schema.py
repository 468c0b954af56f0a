"""Opening stores: fresh, old, newer, missing, foreign; models and migrations agree."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store, schema, sqlite_files
from palaestrai_mosaik.store.database import Database
from palaestrai_mosaik.store.models import Base
from palaestrai_mosaik.store.schema import HEAD, migration_config
from tests.support import records

POSTGRESQL = os.environ.get("PALAESTRAI_MOSAIK_TEST_POSTGRESQL")
needs_postgresql = pytest.mark.skipif(
    not POSTGRESQL, reason="PALAESTRAI_MOSAIK_TEST_POSTGRESQL holds no URL of a PostgreSQL"
)


def downgrade(connection: sa.Connection) -> None:
    """Take a store back to before its first revision, as a test's stand-in for an old one."""
    Base.metadata.drop_all(connection)
    connection.exec_driver_sql("DELETE FROM alembic_version")


def tables(path: Path) -> list[tuple[str, ...]]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT type, name FROM sqlite_master").fetchall()
        names = [name for kind, name in rows if kind == "table" and not name.startswith("sqlite_")]
        facts = [
            (table, pragma, *map(str, row[pragma != "table_info" :]))  # keys and indices are in any order
            for table in names
            for pragma in ("table_info", "foreign_key_list", "index_list")
            for row in connection.execute(f"PRAGMA {pragma}({table})")
        ]
    connection.close()
    return sorted([*rows, *facts])


def test_a_fresh_store_has_the_schema_that_the_migrations_give(tmp_path):
    with Store(tmp_path / "fresh", create=True) as fresh:
        assert fresh.schema_version == HEAD
    with Store(tmp_path / "old", create=True) as old, old.database.writing() as session:
        downgrade(session.connection())
    assert not any(
        "runs" in str(row) or "instances" in str(row) for row in tables(tmp_path / "old" / "store.db")
    )
    with Store(tmp_path / "old", create=False) as upgraded:
        assert upgraded.schema_version == HEAD
        assert upgraded.runs().empty
    assert tables(tmp_path / "fresh" / "store.db") == tables(tmp_path / "old" / "store.db")


def test_models_and_migrations_agree(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'x.db'}")
    with engine.begin() as connection:
        config = migration_config(connection)
        command.upgrade(config, "head")
        assert ScriptDirectory.from_config(config).get_heads() == [HEAD]
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        # and the comparison can fail
        connection.exec_driver_sql("ALTER TABLE instances ADD COLUMN surplus INTEGER")
        assert len(compare_metadata(context, Base.metadata)) == 1
    engine.dispose()


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize(
    ("revision", "error"),
    [
        (
            "0004",
            r"written before the first release \(schema 0004; this one knows 0006, 0007\): execute its runs again",
        ),
        (
            "9999",
            r"written by a newer release \(schema 9999; this one knows 0006, 0007\): update palaestrai-mosaik",
        ),
        (None, "is not a store: it has no results"),
    ],
)
def test_a_store_of_another_revision_is_refused(tmp_path, monkeypatch, revision, error, is_closed):
    Store(tmp_path / "store", create=True).close()
    with sqlite3.connect(tmp_path / "store" / "store.db") as connection:
        if revision is None:
            connection.execute("DROP TABLE alembic_version")
        else:
            connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    connection.close()
    monkeypatch.setattr(sqlite_files, "is_closed", lambda file: is_closed)
    for options in ({"read_only": True}, {"create": False}):
        with pytest.raises(StoreError, match=error):
            Store(tmp_path / "store", **options)


NEXT_REVISION = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{head}"


def upgrade():
    with op.batch_alter_table("phases") as batch:
        batch.add_column(sa.Column("comment", sa.Text(), nullable=False, server_default="none"))
        {more}
"""


@pytest.fixture
def next_release(tmp_path, monkeypatch):
    """Pretend to be a later release, with one more revision that changes a table."""

    def become(more: str = "batch.alter_column('reason', new_column_name='why')") -> None:
        folder = tmp_path / "migrations"
        shutil.copytree(schema.MIGRATIONS, folder, dirs_exist_ok=True)
        (folder / "versions" / "9999_next.py").write_text(NEXT_REVISION.format(head=HEAD, more=more))
        monkeypatch.setattr(schema, "MIGRATIONS", folder)
        monkeypatch.setattr(schema, "HEAD", "9999")

    return become


def test_an_old_store_is_upgraded_and_keeps_its_data(tmp_path, next_release):
    with Store(tmp_path / "store", create=True) as store:
        records.record_small_run(store)
    next_release()
    with Store(tmp_path / "store", create=False) as store:
        assert store.schema_version == "9999"
        assert len(store.episodes("latest")) == 4
    with sqlite3.connect(tmp_path / "store" / "store.db") as connection:
        rows = connection.execute("SELECT comment, why FROM phases").fetchall()
    connection.close()
    assert rows == [("none", "two episodes")]


def test_an_upgrade_that_fails_leaves_the_store_as_it_was(tmp_path, next_release):
    with Store(tmp_path / "store", create=True) as store:
        records.record_small_run(store)
    path = tmp_path / "store" / "store.db"
    before = tables(path)
    next_release("raise RuntimeError('half-way')")
    with pytest.raises(RuntimeError, match="half-way"):
        Store(tmp_path / "store", create=True)
    assert tables(path) == before


def test_a_store_that_is_only_read_is_upgraded_if_possible(tmp_path, next_release, monkeypatch):
    with Store(tmp_path / "store", create=True) as store:
        records.record_small_run(store)
    next_release("pass")
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_files, "is_closed", lambda file: True)
        for options in ({"create": False}, {"read_only": True}):
            with pytest.raises(
                StoreError, match=r"has an earlier schema \(0007\), and must be upgraded: who may"
            ):
                Store(tmp_path / "store", **options)
    with Store(tmp_path / "store", read_only=True) as store:
        assert store.schema_version == "9999"
        assert store.runs()["status"].tolist() == ["finished"]


def test_a_missing_store_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"there is no store at .*nowhere/store\.db"):
        Store(tmp_path / "nowhere", create=False)
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(StoreError, match=r"there is no store at .*x\.db"):
        Store(f"sqlite:///{tmp_path}/x.db", create=False)


def test_things_that_are_not_stores(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(StoreError, match="is a file"):
        Store(tmp_path / "file", create=True)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "store.db").write_text("this is no database, though it is long enough" * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store(tmp_path / "text", create=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "store.db").touch()
    with pytest.raises(StoreError, match="not a store"):
        Store(tmp_path / "empty", create=False)
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE agents (x INTEGER)")
    connection.close()
    with pytest.raises(StoreError, match=r"another program .agents"):
        Store(f"sqlite:///{foreign}", directory=tmp_path / "results", create=True)
    with pytest.raises(StoreError, match=r"cannot open the database nonsense"):
        Store("nonsense://x/y", create=True)
    with pytest.raises(StoreError, match="goes with a database URL"):
        Store(tmp_path / "a", directory=tmp_path / "b", create=True)


def test_where_a_store_lies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store(create=True) as store:
        records.begin(store)
    assert (tmp_path / "palaestrai-results" / "store.db").is_file()
    assert len(list((tmp_path / "palaestrai-results" / "instances").iterdir())) == 1
    with Store(f"sqlite:///{tmp_path}/own.db", directory="files", create=True) as store:
        run = records.begin(store)
        assert run.directory == tmp_path / "files" / "instances" / run.uid
        assert run.directory.is_dir()


def test_sqlite_settings(sqlite_store):
    with sqlite_store.database.reading() as session:
        values = {
            name: session.execute(sa.text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
        }
    assert values == {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 60_000, "synchronous": 1}


def test_a_writer_takes_the_lock_at_once_and_readers_go_on(sqlite_store):
    records.begin(sqlite_store)
    other = sqlite3.connect(sqlite_store.directory / "store.db", timeout=0)
    with sqlite_store.database.writing() as session:
        session.execute(sa.text("SELECT 1"))  # nothing is written yet
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        assert other.execute("SELECT count(*) FROM instances").fetchone() == (1,)
    other.execute("BEGIN IMMEDIATE")
    other.rollback()
    other.close()


def test_a_failed_transaction_changes_nothing(store):
    records.begin(store)
    with pytest.raises(StoreError, match="cannot write"), store.database.writing() as session:
        session.execute(sa.text("DELETE FROM instances"))
        session.execute(sa.text("INSERT INTO phases (instance_id) VALUES (99)"))
    assert len(store.runs()) == 1


def test_nothing_heavy_is_imported_to_begin_a_run(tmp_path):
    script = (
        "import sys; from palaestrai_mosaik.store import Store\n"
        f"store = Store({str(tmp_path / 'store')!r}, create=True)\n"
        "store.begin_run(uid='u', document={}, text='', hash='h', seed=1, version='1').finish('finished')\n"
        "print([m for m in ('pandas', 'pyarrow', 'alembic') if m in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def keys_of(connection: sa.Connection) -> dict[str, object]:
    """Return the primary and foreign keys of every table."""
    inspector = sa.inspect(connection)
    return {
        table: (
            inspector.get_pk_constraint(table),
            sorted(inspector.get_foreign_keys(table), key=lambda key: str(key["name"])),
        )
        for table in inspector.get_table_names()
    }


@needs_postgresql
def test_postgresql(tmp_path):
    assert POSTGRESQL is not None
    engine = sa.create_engine(POSTGRESQL)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    with pytest.raises(StoreError, match="not a store"):
        Database(POSTGRESQL, create=False)
    with Store(POSTGRESQL, directory=tmp_path / "files", create=True) as store:
        uid = records.record_small_run(store)
        assert len(store.episodes(uid)) == 4
        assert len(store.steps(uid)) == 12
        assert store.agents(uid).loc[0, "sensors"] == ["myenv.0", "myenv.1"]
        run = records.begin(store, "failing")
        run.finish("failed", ValueError("NUL \0"))
        assert store.errors("failing")["message"].tolist() == ["NUL \\x00"]
    with engine.begin() as connection:
        fresh = keys_of(connection)
        downgrade(connection)
    with Store(POSTGRESQL, directory=tmp_path / "files", create=False) as store:
        assert store.schema_version == HEAD
        assert store.runs().empty
    with engine.begin() as connection:
        assert keys_of(connection) == fresh
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()
