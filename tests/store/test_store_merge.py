"""Instances are copied from one store into another: every row, every file, with ids of their own."""

from __future__ import annotations

import math
import os
import shutil
import sqlite3

import pytest
import sqlalchemy as sa

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.merge import (
    DESCRIPTIONS,
    OWNED,
    REFERENCES,
    StoreReader,
    copy_rows,
    instance_states,
    place_files,
    remove_rows,
    same_files,
)
from palaestrai_mosaik.store.models import Base, Instance
from palaestrai_mosaik.store.parts import write_text
from tests.support import records

TABLES = Base.metadata.tables
SHARED = {"experiments", "run_documents", "descriptions"}
#: what users add to runs, by the uid of the instance
LABELS = "labels"
WORLD = {"title": "a world", "simulators": [], "connections": []}
#: what rows are called that others refer to
NAMES = {
    "phase_id": ("phases", "number"),
    "environment_id": ("environments", "uid"),
    "agent_id": ("agents", "name"),
    "topology_id": ("descriptions", "hash"),
    "world_id": ("descriptions", "hash"),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The store of one run, which has rows in every table, of two instances."""
    path = tmp_path_factory.mktemp("recorded") / "own"
    with Store(path, journal="delete", create=True) as opened:
        first = records.record_small_run(opened, experiment_uid="an experiment")
        opened.keep_brain(first, 0, "a", b"weights\0", snapshot="best", tag="tag")
        run = records.begin(opened, experiment_uid="an experiment")
        phase = records.begin_phase(run)
        phase.world(WORLD)
        results = {"objective": records.moments(float("nan")), "rewards": {}}
        ended = {"steps": 1, "ticks": 1, "ended_by": "x", "flow": "RESET", "duration": 0.5}
        phase.agent("a", True).append(0, 0, 0, 0, [0, 0], [0], [0], 0.0, True, False, 0.0)
        phase.episode(0, 0, agents={"a": results}, evaluation=True, **ended)
        run.warning("bad \0 and \udcff text")
        run.finish("failed", ValueError("it \0 failed"))
    return path


@pytest.fixture
def own(tmp_path, recorded):
    shutil.copytree(recorded, tmp_path / "own")
    with Store(tmp_path / "own", create=False) as opened:
        yield opened


def uids_of(store):
    with store.database.reading() as session:
        return [state.uid for state in instance_states(session)]


def merge(source, target, *uids):
    reader = StoreReader()
    for uid in uids:
        place_files(source.instance_directory(uid), target.instance_directory(uid))
        with target.database.writing() as session, reader.reading(source.directory) as rows:
            copy_rows(rows, source.instance_directory(uid), session, uid)
    reader.close()


def rows_of(store, uid):
    """Return all rows of an instance by table, with names in place of ids."""
    with store.database.reading() as session:
        row_id = session.scalar(sa.select(Instance.id).where(Instance.uid == uid))
        names = {
            column: dict(session.execute(sa.select(TABLES[table].c.id, TABLES[table].c[name])).all())
            for column, (table, name) in NAMES.items()
        }
        phases = set(
            session.scalars(sa.select(TABLES["phases"].c.id).where(TABLES["phases"].c.instance_id == row_id))
        )
        found = {"instances": [session.execute(sa.select(TABLES["instances"]).filter_by(id=row_id)).one()]}
        for name in OWNED:
            table = TABLES[name]
            rows = session.execute(sa.select(table).order_by(*table.primary_key)).all()
            mine = "instance_id" in table.c
            found[name] = [r for r in rows if (r.instance_id == row_id if mine else r.phase_id in phases)]
        return {name: [_named(row._mapping, names) for row in rows] for name, rows in found.items()}


def _named(row, names):
    ids = {"id", "instance_id", "run_document_id", "experiment_id"}
    named = {
        key: names[key].get(value) if key in names else value for key, value in row.items() if key not in ids
    }
    # (no number is NaN on PostgreSQL, and null on SQLite)
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in named.items()}


def test_all_tables_and_references_are_known():
    assert set(TABLES) == {"instances", LABELS, *SHARED, *OWNED}
    before = {"instances"}
    for name in OWNED:
        table = TABLES[name]
        assert {"instance_id", "phase_id"} & set(table.c.keys()), name
        # (an episode has no id: it is told by its phase, worker and number, which stay)
        referring = {key.parent.name: key.column.table.name for key in table.foreign_keys}
        stay = {column for column, to in referring.items() if to == "episodes"} - {"phase_id"}
        described = {column for column, to in referring.items() if to == "descriptions"}
        assert described <= set(DESCRIPTIONS)
        stay |= described
        assert before >= set(referring.values()) - {"descriptions"}, name
        for column in referring.keys() - stay:
            assert REFERENCES[column] == {"episodes": "phases"}.get(referring[column], referring[column]), (
                name
            )
        before.add(name)
    shared = {key.parent.name for key in TABLES["instances"].foreign_keys}
    assert shared == {"run_document_id", "experiment_id"}


def test_every_row_and_file_is_copied(store, own):
    records.record_small_run(store, "another")  # so that ids differ
    uids = uids_of(own)
    merge(own, store, *uids)
    wanted, found = ({uid: rows_of(where, uid) for uid in uids} for where in (own, store))
    for name in TABLES.keys() - {LABELS} - SHARED:
        assert sum(len(wanted[uid][name]) for uid in uids) > 0, f"{name} is not tested"
    assert found == wanted
    for uid in uids:
        assert same_files(own.instance_directory(uid), store.instance_directory(uid))
        for query in (
            "phases",
            "outcomes",
            "errors",
            "warnings",
            "streams",
            "statistics",
            "environments",
            "brains",
        ):
            assert getattr(store, query)(uid).equals(getattr(own, query)(uid)), query
        assert store.episodes(uid, evaluation=None).equals(own.episodes(uid, evaluation=None))
        assert store.steps(uid, agent="a", evaluation=None).equals(own.steps(uid, agent="a", evaluation=None))
    assert store.brain(uids[0], 0, "a", snapshot="best", tag="tag") == b"weights\0"
    columns = ["run", "document", "experiment", "status", "seed", "steps", "error", "hash", "packages"]
    assert store.runs()[columns][1:].reset_index(drop=True).equals(own.runs()[columns])


def test_what_instances_share_is_there_once(store, own):
    # the same document and experiment have been recorded in the target before
    records.record_small_run(store, experiment_uid="an experiment")
    merge(own, store, *uids_of(own))
    with store.database.reading() as session:
        counts = {
            name: session.scalar(sa.select(sa.func.count()).select_from(TABLES[name])) for name in SHARED
        }
    assert counts == {"experiments": 1, "run_documents": 1, "descriptions": 2}
    for uid in uids_of(store):
        assert store.topology(uid, "myenv") == own.topology(uids_of(own)[0], "myenv") is not None
    assert [store.world(uid) for uid in uids_of(own)] == [None, WORLD]
    assert len(store.runs()) == 3


def test_removing_leaves_all_others(store, own):
    first, second = uids_of(own)
    merge(own, store, first, second)
    before = rows_of(store, second)
    with store.database.writing() as session:
        remove_rows(session, first)
        remove_rows(session, "no such instance")
    assert uids_of(store) == [second]
    assert rows_of(store, second) == before
    with store.database.reading() as session:
        # of what is left, all belongs to the second one
        assert all(
            session.scalar(sa.select(sa.func.count()).select_from(TABLES[name])) == len(before[name])
            for name in OWNED
        )


@pytest.mark.parametrize(
    "damage, message",
    [
        ("UPDATE channels SET agent_id = 77 WHERE agent_id IS NOT NULL", "agent_id 77 is not there"),
        ("UPDATE instances SET started = 'yesterday'", "are damaged"),
        ("UPDATE run_documents SET document = '{'", "are damaged"),
        ("DELETE FROM run_documents", "are damaged"),
        ("DELETE FROM descriptions", "are damaged"),
        ("UPDATE descriptions SET content = '{'", "are damaged"),
        ("UPDATE streams SET parts = 9 WHERE kind = 'environment'", "of 9 part files, 1 are there"),
        ("UPDATE streams SET folder = '../../elsewhere'", "is not a path in"),
    ],
)
def test_rows_that_do_not_hold_together_are_not_copied(sqlite_store, own, damage, message):
    uid = uids_of(own)[0]
    own.close()
    with sqlite3.connect(own.directory / "store.db") as connection:
        connection.execute(damage)
    connection.close()
    with pytest.raises(StoreError, match=message):
        merge(own, sqlite_store, uid)
    assert uids_of(sqlite_store) == []


def test_files_are_whole_or_not_there(tmp_path, monkeypatch):
    source, target = tmp_path / "source", tmp_path / "files" / "target"
    (source / "brains" / "a").mkdir(parents=True)
    (source / "checkpoints").mkdir()
    (source / "brains" / "a" / "brain.bin").write_bytes(b"1")
    write_text(source / "complete.json", "{}")
    place_files(source, target, {"checkpoints"})
    linked = target / "brains" / "a" / "brain.bin"
    assert linked.samefile(source / "brains" / "a" / "brain.bin")
    assert not (target / "checkpoints").exists()

    # where there are no links, they are copied; what there was is replaced as a whole
    def no_link(*_, **__):
        raise OSError("not supported")

    monkeypatch.setattr(os, "link", no_link)
    write_text(source / "complete.json", '{"more": 1}')
    (source / "brains" / "a" / "brain.bin").rename(source / "brains" / "best.bin")
    (tmp_path / "files" / ".target.new").mkdir()  # of a process that was killed
    place_files(source, target, {"checkpoints"})
    assert (target / "brains" / "best.bin").read_bytes() == b"1"
    assert not (target / "brains" / "best.bin").samefile(source / "brains" / "best.bin")
    assert list((target / "brains" / "a").iterdir()) == []
    assert os.listdir(tmp_path / "files") == ["target"]

    # whoever fails before the end leaves what there was
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    write_text(source / "complete.json", '{"more": 2}')
    with pytest.raises(OSError, match="No space left"):
        place_files(source, target)
    assert (target / "complete.json").read_text() == '{"more": 1}'


def test_a_store_without_a_log_beside_it_stays_so(tmp_path):
    for path, journal, mode, sync in (
        (tmp_path / "own", "delete", "delete", 2),
        (tmp_path / "all", "wal", "wal", 1),
    ):
        with Store(path, journal=journal, create=True) as made:
            uid = records.record_small_run(made)
            assert not (path / "store.db-wal").exists() or journal == "wal"
        # whoever opens it later: it keeps what it has, and a cut of power cannot damage it
        with Store(path, create=True) as opened, opened.database.reading() as session:
            assert session.scalar(sa.text("PRAGMA journal_mode")) == mode
            assert session.scalar(sa.text("PRAGMA synchronous")) == sync
            assert opened.find_run("latest") == uid


def test_the_reader_says_what_is_no_store(tmp_path):
    reader = StoreReader()
    (tmp_path / "garbage").mkdir()
    (tmp_path / "garbage" / "store.db").write_bytes(b"not a database" * 100)
    for name, message in (("nowhere", "there is no store"), ("garbage", "not a database")):
        with pytest.raises(StoreError, match=message), reader.reading(tmp_path / name):
            pass
    assert not (tmp_path / "nowhere").exists()
    reader.close()
