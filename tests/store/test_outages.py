"""Databases that are away for a while, or refuse: what waits, what fails, and what is said."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
import time

import pytest
import sqlalchemy as sa
from arsenai.execution.folders import drive, make_folder, markers
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.execution.run_store import uncollected_contents
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store, database, sqlite_files
from palaestrai_mosaik.store.models import Warned, utc_now
from tests.support import postgresql, records


@pytest.fixture(scope="module")
def server():
    with postgresql.own_server() as running:
        yield running


@pytest.fixture
def fresh(server):
    """The URL of the server, which runs and has no store."""
    return server.empty()


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
        out, err = process.communicate(timeout=HANG)
    assert process.returncode == 0, out + err
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
    assert len(runs) == len(what), "nothing was executed twice"
    ended = [json.loads(path.read_text()) for path in (folder / "jobs").glob("*.json")]
    assert {record["status"] for record in ended} == {"finished"}
    logs = "".join(path.read_text() for path in (folder / "jobs").glob("*.log"))
    assert "is away; waiting up to 60 s for it" in logs + err
    assert sa.make_url(fresh).password not in logs + out + err


@postgresql.needs_server
def test_a_transaction_waits_before_it_begins_and_is_done_again_where_it_is_cut(
    server, fresh, tmp_path, caplog
):
    with Store(fresh, directory=tmp_path, create=True) as store:
        run = store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
        server("stop")
        timer = threading.Timer(1.0, server, ["start"])
        timer.start()
        run.warning("recorded when the server was there again")
        timer.join()
        assert store.warnings("latest")["text"].tolist() == ["recorded when the server was there again"]
        (away,) = [one.message for one in caplog.records if "is away" in one.message]
        assert "connection refused" in away.lower() and "()" not in away
        attempts = []

        def cut(session):
            session.execute(sa.text("UPDATE warnings SET text = text || '!'"))
            if not attempts:
                server("kill")
                server("start")
            attempts.append(True)
            session.execute(sa.text("DELETE FROM errors"))

        with pytest.raises(database.ConnectionLostError), store.database.writing() as session:
            cut(session)
        attempts.clear()
        store.database.write(cut)
        assert len(attempts) == 2
        assert store.warnings("latest")["text"].tolist() == ["recorded when the server was there again!"]
        run.finish("finished")
        assert store.runs()["status"].tolist() == ["finished"]


@postgresql.needs_server
def test_a_limit_of_the_server_is_no_outage(database_store, monkeypatch, caplog):
    """What the server refuses for reasons of its own, such as a statement that takes too long, it refuses again."""
    run = database_store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
    attempts = []

    def many(session):
        attempts.append(True)
        session.execute(sa.text("SET LOCAL statement_timeout = 100"))
        session.add_all([Warned(instance_id=run._id, text=str(i), time=utc_now()) for i in range(2000)])
        session.flush()

    engine = database_store.database.engine
    with engine.connect() as other, other.begin():
        other.exec_driver_sql("LOCK TABLE warnings IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreError, match="canceling statement due to statement timeout"):
            database_store.database.write(many)
    assert len(attempts) == 1
    assert "trying again" not in caplog.text


LOST = "server closed the connection unexpectedly"


@pytest.fixture
def database_store(tmp_path):
    """A store in a fresh database of PostgreSQL."""
    with (
        postgresql.fresh_database(postgresql.store_template()) as url,
        Store(url, directory=tmp_path, create=True) as opened,
    ):
        yield opened


def cut_first_commit(store, *, arrived):
    """Let the first commit from now on be answered by nobody; return the list that has an item once it was."""
    cut = []

    @sa.event.listens_for(store.database.engine, "commit")
    def committed(connection):
        if not cut:
            cut.append(True)
            if arrived:
                connection.connection.dbapi_connection.commit()
            raise sa.exc.OperationalError("COMMIT", {}, Exception(LOST))

    return cut


@postgresql.needs_server
@pytest.mark.parametrize("arrived", [True, False])
def test_a_commit_that_is_not_answered_is_looked_for_and_made_once(database_store, arrived):
    store = database_store
    cut = cut_first_commit(store, arrived=arrived)
    run = store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
    assert cut
    assert cut_first_commit(store, arrived=arrived) == []
    run.warning("once")
    cut = cut_first_commit(store, arrived=arrived)
    run.finish("failed", ValueError("once"))
    assert cut
    assert store.runs()["status"].tolist() == ["failed"]
    assert store.warnings("latest")["text"].tolist() == ["once"]
    assert store.errors("latest")["message"].tolist() == ["once"]
    assert (run.directory / "complete.json").exists()


@postgresql.needs_server
def test_a_connection_that_is_lost_again_and_again_is_given_up(database_store, monkeypatch):
    monkeypatch.setattr(database, "PATIENCE", 0.5)

    @sa.event.listens_for(database_store.database.engine, "commit")
    def committed(connection):
        raise sa.exc.OperationalError("COMMIT", {}, Exception(LOST))

    with pytest.raises(StoreError, match=LOST) as caught:
        begin(database_store)
    assert not isinstance(caught.value, database.ConnectionLostError)
    assert database_store.runs().empty


def live(store, uid):
    """Record a run with all that a run records, interrupted and resumed; return its instance."""
    run = records.begin(store, uid)
    phase = records.begin_phase(run)
    result = {"objective": records.moments(1.0), "rewards": {"count": records.moments(1.0, 2.0)}}
    end = {"steps": 1, "ticks": 1, "ended_by": "x", "flow": "RESET", "duration": 0.0}

    def episode(phase, number, evaluation=False):
        row = (0, number, 0, 0, [1, number], [3], [4], 5.0, False, False, 0.0)
        phase.agent("a", evaluation).append(*row)
        phase.environment("myenv", evaluation).append(
            0, number, 0, 0, [1, number], [3], False, False, {"a": 1}
        )
        phase.episode(0, number, agents={"a": result, "b": result}, evaluation=evaluation, **end)

    episode(phase, 0)
    episode(phase, 0, evaluation=True)
    run.warning("before")
    store.keep_brain(run.uid, 0, "a", b"weights")
    mark = run.mark()
    episode(phase, 1)
    run.finish("interrupted", KeyboardInterrupt())
    run = store.resume_run(run.uid, mark)
    phase = run.reopen_phase(0, phase._environment_records, phase._agent_records)
    for number in (1, 2):
        episode(phase, number)
    run.warning("after")
    phase.finish("done")
    assert store.brain(run.uid, 0, "a") == b"weights"
    run.finish("finished")
    return run.uid


def recorded(store, run):
    """Return all that was recorded of a run, but for ids and dates."""
    titles = (
        "phases",
        "environments",
        "agents",
        "bodies",
        "channels",
        "streams",
        "brains",
        "errors",
        "warnings",
    )
    frames = [getattr(store, title)(run) for title in titles]
    frames += [getattr(store, title)(run, evaluation=None) for title in ("episodes", "outcomes")]
    dates = ["time", "started", "ended"]
    whole = [frame.drop(columns=dates, errors="ignore").to_csv() for frame in frames]
    return [*whole, (store.instance_directory(run) / "complete.json").read_text().partition("status")[2]]


@postgresql.needs_server
@pytest.mark.parametrize("every", [9, 2])
def test_a_connection_that_is_ended_at_any_statement_costs_nothing(database_store, every):
    """The server ends the connection before the n-th statement of a run, for each multiple n of ``every`` that a run reaches."""
    store, count, ended = database_store, 0, []
    reference = recorded(store, live(store, "reference"))
    at = 0

    def terminate(connection):
        nonlocal count
        count += 1
        if count == at:
            ended.append(at)
            pid = connection.connection.dbapi_connection.info.backend_pid
            postgresql.statement(f"SELECT pg_terminate_backend({pid}, 10000)")

    engine = store.database.engine
    sa.event.listen(engine, "before_cursor_execute", lambda connection, *_: terminate(connection))
    sa.event.listen(engine, "commit", terminate)
    while True:
        count, at = 0, at + every
        run = live(store, f"run-{at}")
        if not ended or ended[-1] != at:
            break
        assert recorded(store, run) == reference, at
    times, at = len(ended), 0
    assert times > 60 / every
    runs = store.runs()
    assert set(runs["status"]) == {"finished"}
    assert len(runs) == times + 2


@postgresql.needs_server
def test_what_does_not_mend_itself_fails_at_once(server, fresh, tmp_path, monkeypatch):
    url = sa.make_url(fresh)
    monkeypatch.setattr(database, "PATIENCE", 2 * HANG)
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"password authentication failed"):
        Store(
            url.set(password="wrong").render_as_string(hide_password=False), directory=tmp_path, create=True
        )
    with pytest.raises(StoreError, match='database "nowhere" does not exist'):
        Store(
            url.set(database="nowhere").render_as_string(hide_password=False), directory=tmp_path, create=True
        )
    assert time.monotonic() - began < HANG
    monkeypatch.setattr(database, "PATIENCE", 0.5)
    server("stop")
    with pytest.raises(StoreError, match=r"cannot read the database .*: connection failed: .*refused"):
        Store(fresh, directory=tmp_path, create=True)
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
        with Store(url, directory=tmp_path, create=True) as store:
            run = store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
            store.keep_brain(run.uid, 0, "a", b"weights")
            assert len(store.runs()) == 1
            run.finish("finished")
            with store.database.reading() as session:
                assert session.execute(count).scalar() == 1
                name = sa.text("SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()")
                assert session.execute(name).scalar() == "palaestrai-mosaik"


def test_another_program_may_hold_sqlite_for_a_while(tmp_path):
    with Store(tmp_path / "store", create=True) as store:
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
    with Store(tmp_path / "store", create=True) as store:
        other = sqlite3.connect(tmp_path / "store" / "store.db")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StoreError, match=r"cannot write to .*: database is locked .another program has held"
        ):
            store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
        other.close()


def test_a_full_disk_is_told_of_and_what_was_there_stays(tmp_path):
    with Store(tmp_path / "store", create=True) as store:
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
    with Store(tmp_path / "store", create=True) as store:

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
    with Store(tmp_path / "store", journal="delete", create=True) as store:
        begin(store).finish("finished")
    monkeypatch.setattr(sqlite_files, "is_closed", lambda file: True)
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
        monkeypatch.setattr(sqlite_files, "is_closed", lambda file: True)


def test_who_may_only_read_notices_a_writer_that_begins_meanwhile(tmp_path, monkeypatch):
    with Store(tmp_path, create=True) as store:
        begin(store).finish("finished")
    monkeypatch.setattr(sqlite_files, "is_closed", lambda file: True)
    readers = [Store(tmp_path, create=False), Store(tmp_path, read_only=True)]
    monkeypatch.undo()
    assert not (tmp_path / "store.db-shm").exists(), "nothing is made where nothing may be"
    for reader in readers:
        assert reader.runs()["status"].tolist() == ["finished"]
    with Store(tmp_path, create=True) as store:
        begin(store)
        for reader in readers:
            assert reader.runs()["status"].tolist() == ["finished", "running"]
        begin(store)
        for reader in readers:
            assert len(reader.runs()) == 3
    for reader in readers:
        reader.close()


def test_a_store_that_is_read_refuses_to_record(store):
    name = store.database.engine.url.render_as_string(hide_password=False)
    with Store(name, directory=store.directory, read_only=True) as reader:
        assert reader.runs().empty
        with pytest.raises(StoreError, match=r"cannot write to the database .*: it is open for reading only"):
            begin(reader)


def test_a_store_that_is_not_there_is_not_made_by_reading(tmp_path):
    with pytest.raises(StoreError, match="there is no store at"):
        Store(tmp_path / "none", read_only=True)
    assert not (tmp_path / "none").exists()


def test_documents_and_stray_stores_are_asked_for_again_where_the_server_cut_that_off(tmp_path, monkeypatch):
    with Store(tmp_path / "store", create=True) as store:
        run = begin(store)
        run.finish("finished")
        reading, cut = store.database.reading, []

        def lost():
            if not cut:
                cut.append(True)
                raise database.ConnectionLostError(LOST)
            return reading()

        monkeypatch.setattr(store.database, "reading", lost)
        assert store.document_of(run.uid).hash == "h"
        cut.clear()
        assert uncollected_contents({tmp_path / "stray": run.uid}, store) == set()
        assert cut
