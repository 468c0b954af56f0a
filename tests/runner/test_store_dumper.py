"""Brains that are kept in the database of a store."""

from __future__ import annotations

import io
import os
import pickle

import pytest
import sqlalchemy as sa

from palaestrai_mosaik.agent.dumper import BrainDumper
from palaestrai_mosaik.core.errors import BrainDumpError, StoreError
from palaestrai_mosaik.runner.brains import StoreBrainDumper
from palaestrai_mosaik.store import Store

POSTGRESQL = os.environ.get("PALAESTRAI_MOSAIK_TEST_POSTGRESQL")


def location_of(kind: str, tmp_path) -> tuple[str, str | None]:
    if kind == "directory":
        return str(tmp_path / "store"), None
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/own.db", str(tmp_path / "files")
    assert POSTGRESQL is not None
    engine = sa.create_engine(POSTGRESQL)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()
    return POSTGRESQL, str(tmp_path / "files")


@pytest.fixture(
    params=[
        "directory",
        "sqlite",
        pytest.param(
            "postgresql",
            marks=pytest.mark.skipif(not POSTGRESQL, reason="PALAESTRAI_MOSAIK_TEST_POSTGRESQL is not set"),
        ),
    ]
)
def place(request, tmp_path) -> tuple[str, str | None, str]:
    """Where a store lies, and the uid of an instance in it."""
    location, directory = location_of(request.param, tmp_path)
    with Store(location, directory=directory, create=True) as store:
        run = store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
    return location, directory, run.uid


def test_a_dump_comes_back_by_tag_and_snapshot_and_the_newest_wins(place):
    dumper = StoreBrainDumper(*place, 0, "a")
    best = StoreBrainDumper(*place, 0, "a", "best")
    BrainDumper.store_brain_dump(io.BytesIO(b"old"), [dumper])
    BrainDumper.store_brain_dump(io.BytesIO(b"\0new\xff" * 100_000), [dumper])
    dumper.save(io.BytesIO(b"critic"), "critic")
    best.save(io.BytesIO(b""))
    assert dumper.load().read() == b"\0new\xff" * 100_000
    assert dumper.load("critic").read() == b"critic"
    assert best.load().read() == b""
    with Store(place[0], directory=place[1], create=True) as store:
        frame = store.brains("u")
    keys = ["phase", "agent", "snapshot", "tag", "bytes"]
    assert frame[keys].to_numpy().tolist() == [
        [0, "a", "", "", 500_000],
        [0, "a", "", "critic", 6],
        [0, "a", "best", "", 0],
    ]
    assert "dump" not in frame and frame["time"].notna().all()


def test_only_what_is_left_of_the_position_is_saved_and_a_copy_in_another_process_finds_it(place):
    dumper = StoreBrainDumper(*place, 1, "a")
    dump = io.BytesIO(b"headbody")
    dump.seek(4)
    dumper.save(dump)
    assert pickle.loads(pickle.dumps(dumper)).load().read() == b"body"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"phase": 0, "agent": "defnder"},
            r"no brain of agent 'defnder' in phase 0.*did you mean 'defender'",
        ),
        ({"phase": 3}, "it has 'defender' of phase 0, 'attacker' of phase 1"),
        ({"snapshot": "best"}, "snapshot 'best'; of this agent and phase it has snapshot '' tag ''"),
        ({"instance": "nothing"}, "no instance 'nothing'"),
    ],
)
def test_a_missing_dump_says_what_exists(tmp_path, change, message):
    with Store(tmp_path / "store", create=True) as store:
        run = store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
    given = {"location": str(tmp_path / "store"), "directory": None, "instance": run.uid}
    given |= {"phase": 0, "agent": "defender"}
    with pytest.raises(BrainDumpError, match="of this instance it has none"):
        StoreBrainDumper(**given).load()
    StoreBrainDumper(**given).save(io.BytesIO(b"x"))
    StoreBrainDumper(**given | {"phase": 1, "agent": "attacker"}).save(io.BytesIO(b"x"))
    with pytest.raises(BrainDumpError, match=message):
        StoreBrainDumper(**given | change).load()


def test_a_damaged_dump_and_a_missing_store_are_errors(tmp_path):
    with Store(tmp_path / "store", create=True) as store:
        run = store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1")
        dumper = StoreBrainDumper(str(tmp_path / "store"), None, run.uid, 0, "a")
        dumper.save(io.BytesIO(b"weights"))
        with store.database.writing() as session:
            session.execute(sa.text("UPDATE brains SET dump = x'00'"))
    with pytest.raises(BrainDumpError, match=r"is damaged: its 1 bytes have the SHA-256 6e34.*written were"):
        dumper.load()
    gone = StoreBrainDumper(str(tmp_path / "nowhere"), None, run.uid, 0, "a")
    with pytest.raises(BrainDumpError, match="there is no store"):
        gone.load()
    with pytest.raises(StoreError, match="there is no store"):
        gone.save(io.BytesIO(b"x"))
