"""Databases that are away for a while, or refuse: what waits, what fails, and what is said."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from execution.folders import drive, make_folder, markers, until

from palaestrai_mosaik.cli.arsenai import main as arsenai
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.store import Store, database
from tests.support import postgresql

SERVICE = Path(__file__).parents[1] / "services" / "postgres.sh"


class Server:
    """A PostgreSQL of our own, to be stopped and started."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.url = self("up")

    def __call__(self, what: str) -> str:
        command = [str(SERVICE), what, str(self.directory)]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def server():
    # its user must get through to it, which pytest's folders do not allow
    folder = Path(tempfile.mkdtemp(prefix="palaestrai-mosaik-outage-"))
    folder.chmod(0o755)
    running = Server(folder / "postgres")
    yield running
    running("down")
    folder.rmdir()


@pytest.fixture
def fresh(server):
    """The URL of the server, which runs and has no store."""
    subprocess.run([str(SERVICE), "start", str(server.directory)], stderr=subprocess.DEVNULL, check=False)
    with sa.create_engine(server.url, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    return server.url


@postgresql.needs_server
def test_runs_wait_for_a_store_that_is_restarted(server, fresh, tmp_path, capfd):
    """The server is gone for two seconds while runs go on, others begin and others end."""
    gate = tmp_path / "gate"
    what = ["slow"] * 4 + ["hang"] * 2
    folder = make_folder(tmp_path / "design", what, steps=40, gate=str(gate)).path
    location = f"@{tmp_path}/url"
    (tmp_path / "url").touch(mode=0o600)
    (tmp_path / "url").write_text(fresh)
    with drive(folder, "--jobs", "3", "--quiet", "--store", location) as process:
        until(lambda: markers(folder))
        server("stop")
        gate.touch()
        time.sleep(2)
        server("start")
        out, err = process.communicate(timeout=100)
    assert arsenai(["resume", str(folder), "--quiet", "--store", location]) == 0, out + err
    with Store(location, directory=folder / "results", create=False) as store:
        runs = store.runs()
        for run in runs.itertuples():
            whole = store.instance_directory(run.run) / "complete.json"
            assert (run.status == "finished") == (
                whole.exists() and json.loads(whole.read_text())["status"] == "finished"
            )
        finished = runs[runs["status"] == "finished"]
        assert sorted(finished["document"]) == sorted(finished["document"].unique())
        assert len(finished) == len(what)
    # a transaction may have been cut: then its run has failed; what was to begin has waited
    ended = [json.loads(path.read_text()) for path in (folder / "jobs").glob("*.json")]
    assert {record["status"] for record in ended} == {"finished"}
    logs = "".join(path.read_text() for path in (folder / "jobs").glob("*.log"))
    assert "is away; waiting up to 60 s for it" in logs + err
    assert sa.make_url(fresh).password not in logs + out + err


@postgresql.needs_server
def test_a_transaction_waits_before_it_begins_and_fails_where_it_is_cut(server, fresh, tmp_path, caplog):
    with Store(fresh, directory=tmp_path) as store:
        run = store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
        server("stop")
        timer = threading.Timer(1.0, server, ["start"])
        timer.start()
        run.warning("recorded when the server was there again")
        timer.join()
        assert store.warnings("latest")["text"].tolist() == ["recorded when the server was there again"]
        assert len([one for one in caplog.records if "is away" in one.message]) == 1
        with (
            pytest.raises(StoreError, match=r"cannot write to the database .*terminating connection"),
            store.database.writing() as session,
        ):
            session.execute(sa.text("DELETE FROM warnings"))
            server("stop")
            server("start")
            session.execute(sa.text("DELETE FROM instances"))
        assert len(store.warnings("latest")) == 1
        run.finish("finished")
        assert store.runs()["status"].tolist() == ["finished"]


def test_a_commit_that_arrived_but_was_not_answered_is_no_failure(store):
    run = store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
    cut = []

    @sa.event.listens_for(store.database.engine, "commit")
    def committed(connection):
        if not cut:
            cut.append(True)
            connection.connection.dbapi_connection.commit()
            raise sa.exc.OperationalError("COMMIT", {}, Exception("server closed the connection"))

    run.finish("finished")
    assert cut
    assert store.runs()["status"].tolist() == ["finished"]
    assert (run.directory / "complete.json").exists()


def test_a_commit_that_did_not_arrive_is_a_failure(store):
    run = store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
    cut = []

    @sa.event.listens_for(store.database.engine, "commit")
    def lost(connection):
        if not cut:
            cut.append(True)
            raise sa.exc.OperationalError("COMMIT", {}, Exception("server closed the connection"))

    with pytest.raises(StoreError, match=r"cannot write to .*: server closed the connection$"):
        run.finish("finished")
    assert store.runs()["status"].tolist() == ["running"]
    assert not (run.directory / "complete.json").exists()


@postgresql.needs_server
def test_what_does_not_mend_itself_fails_at_once(server, fresh, tmp_path, monkeypatch):
    url = sa.make_url(fresh)
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"password authentication failed"):
        Store(url.set(password="wrong").render_as_string(hide_password=False), directory=tmp_path)
    with pytest.raises(StoreError, match='database "nowhere" does not exist'):
        Store(url.set(database="nowhere").render_as_string(hide_password=False), directory=tmp_path)
    assert time.monotonic() - began < database.PATIENCE / 2
    monkeypatch.setattr(database, "PATIENCE", 0.5)
    server("stop")
    with pytest.raises(StoreError, match=r"cannot read the database .*: connection failed: .*refused"):
        Store(fresh, directory=tmp_path)
    server("start")


@postgresql.needs_server
def test_a_server_that_has_no_connection_left_is_waited_for_and_told_of(tmp_path, monkeypatch):
    role = f"single_{os.getpid()}"
    with postgresql.fresh_database(postgresql.store_template()) as url:
        postgresql.statement(f"CREATE ROLE {role} LOGIN PASSWORD 'single' CONNECTION LIMIT 1")
        try:
            with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
                connection.exec_driver_sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
            limited = sa.make_url(url).set(username=role, password="single")
            first = sa.create_engine(limited, poolclass=sa.NullPool).connect()
            with monkeypatch.context() as patch:
                patch.setattr(database, "PATIENCE", 0.3)
                with pytest.raises(
                    StoreError, match=r"too many connections .*execute fewer runs at the same"
                ):
                    database.Database(limited)
            timer = threading.Timer(0.5, first.close)
            timer.start()
            database.Database(limited).close()
            timer.join()
        finally:
            with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
                connection.exec_driver_sql(f"DROP OWNED BY {role}")
            postgresql.statement(f"DROP ROLE {role}")


@postgresql.needs_server
def test_a_process_keeps_one_connection(tmp_path):
    """Fifty runs at the same time must leave half of a server's hundred connections."""
    with postgresql.fresh_database(postgresql.store_template()) as url:
        count = sa.text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        with Store(url, directory=tmp_path) as store:
            run = store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
            store.keep_brain(run.uid, 0, "a", b"weights")
            assert len(store.runs()) == 1
            run.finish("finished")
            with store.database.reading() as session:
                assert session.execute(count).scalar() == 1
                name = sa.text("SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()")
                assert session.execute(name).scalar() == "palaestrai-mosaik"


def test_another_program_may_hold_sqlite_for_a_while(tmp_path):
    with Store(tmp_path / "store") as store:
        other = sqlite3.connect(tmp_path / "store" / "store.db", check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(1.0, other.rollback)
        timer.start()
        store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1").finish("finished")
        timer.join()
        other.close()
        assert store.runs()["status"].tolist() == ["finished"]


def test_sqlite_that_is_held_for_too_long_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "TIMEOUT", 0.2)
    with Store(tmp_path / "store") as store:
        other = sqlite3.connect(tmp_path / "store" / "store.db")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StoreError, match=r"cannot write to .*: database is locked .another program has held"
        ):
            store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
        other.close()


def test_a_full_disk_is_told_of_and_what_was_there_stays(tmp_path):
    with Store(tmp_path / "store") as store:
        store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1").finish("finished")
        with store.database.reading() as session:
            pages = session.execute(sa.text("PRAGMA page_count")).scalar()

        @sa.event.listens_for(store.database.engine, "begin")
        def full(connection):
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

        with pytest.raises(StoreError, match=r"cannot write to .*: database or disk is full$"):
            store.begin_run(uid="v", document={"x": "y" * 100_000}, text="", hash="i", seed=1, version="1")
        assert store.runs()["document"].tolist() == ["u"]


def test_a_store_that_is_read_only_is_told_of(tmp_path):
    with Store(tmp_path / "store") as store:

        @sa.event.listens_for(store.database.engine, "checkout")
        def read_only(connection, _record, _proxy):
            connection.execute("PRAGMA query_only=ON")

        with pytest.raises(StoreError, match=r"attempt to write a readonly database .this process may not"):
            store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
        assert store.runs().empty


def begin(store):
    return store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")


def test_who_may_only_read_sees_nothing_of_a_transaction_that_goes_on(tmp_path, monkeypatch):
    """A file without a write-ahead log, as each run on a cluster has one."""
    with Store(tmp_path / "store", journal="delete") as store:
        begin(store).finish("finished")
    monkeypatch.setattr(database, "_is_closed_to_us", lambda file: True)
    monkeypatch.setattr(database, "TIMEOUT", 0.2)
    writer = sqlite3.connect(tmp_path / "store" / "store.db", isolation_level=None)
    # so little memory that pages get into the file before they are committed
    writer.execute("PRAGMA cache_size=2")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE instances SET status = 'failed'")
    texts = [(1, "x" * 500, "2026-01-01 00:00:00")] * 500
    writer.executemany("INSERT INTO warnings (instance_id, text, time) VALUES (?, ?, ?)", texts)
    with pytest.raises(StoreError, match=r"database is locked .another program has held it"):
        Store(tmp_path / "store", create=False)
    # as if the writer was killed now
    shutil.copytree(tmp_path / "store", tmp_path / "killed")
    writer.execute("COMMIT")
    writer.close()
    with Store(tmp_path / "store", create=False) as store:
        assert store.runs()["status"].tolist() == ["failed"]
        with pytest.raises(StoreError, match=r"this process may not write there"):
            begin(store)
    with pytest.raises(StoreError, match=r"a writer was killed within a transaction: who may write there"):
        Store(tmp_path / "killed", create=False)
    monkeypatch.undo()
    for _ in range(2):
        with Store(tmp_path / "killed", create=False) as store:
            assert store.runs()["status"].tolist() == ["finished"]
        monkeypatch.setattr(database, "_is_closed_to_us", lambda file: True)


def test_who_may_only_read_notices_a_writer_that_begins_meanwhile(tmp_path, monkeypatch):
    with Store(tmp_path) as store:
        begin(store).finish("finished")
    with monkeypatch.context() as patched:
        patched.setattr(database, "_is_closed_to_us", lambda file: True)
        reader = Store(tmp_path, create=False)
    assert not (tmp_path / "store.db-shm").exists(), "nothing is made where nothing may be"
    assert reader.runs()["status"].tolist() == ["finished"]
    with Store(tmp_path) as store:
        begin(store)
        with pytest.raises(StoreError, match=r"is written to by another process: open it again"):
            reader.runs()
        monkeypatch.setattr(database, "_is_closed_to_us", lambda file: True)
        with Store(tmp_path, create=False) as again:
            assert again.runs()["status"].tolist() == ["finished", "running"]
    reader.close()
