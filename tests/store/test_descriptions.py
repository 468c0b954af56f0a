"""Descriptions that runs share: kept once, found by run and phase, deleted with the last run that has them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import EnvironmentRecord, Store
from palaestrai_mosaik.store.merge import delete_runs
from palaestrai_mosaik.store.models import Description
from palaestrai_mosaik.store.verify import verify
from palaestrai_mosaik.types import Node, Topology
from tests.support import records


def topology(name: str) -> Topology:
    return Topology((Node("tank", name, 0.1 + 0.2, None),))


def record(store: Store, uid: str, *phases: dict[str, Topology | None]) -> str:
    """Record a run that has these environments with their topologies in its phases."""
    run = records.begin(store, uid)
    for number, environments in enumerate(phases):
        recorder = run.begin_phase(
            number,
            f"phase_{number}",
            **{"mode": "test", "workers": 1, "episodes": 1, "controller": "Vanilla", "agents": []},
            environments=[
                EnvironmentRecord(name, "Tank", topology=one) for name, one in environments.items()
            ],
        )
        recorder.finish("over")
    run.finish("finished")
    return str(run.uid)


def count(store: Store) -> int:
    with store.database.reading() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(Description)) or 0


def test_a_topology_is_kept_once_and_goes_with_the_last_run_that_has_it(store: Store) -> None:
    record(store, "one", {"a": topology("A"), "b": topology("B")})
    record(store, "two", {"b": topology("B"), "a": topology("B"), "c": None})
    assert count(store) == 2
    assert store.topology("one", "a") == topology("A")
    assert store.topology("two", "a") == store.topology("two", "b") == topology("B")
    assert store.topology("two", "c") is None
    delete_runs(store, ["one"])
    assert count(store) == 1
    assert store.topology("two", "b") == topology("B")
    delete_runs(store, ["two"])
    assert count(store) == 0


def test_the_newest_phase_that_has_one_tells(store: Store) -> None:
    record(store, "run", {"a": topology("A")}, {"a": topology("B")}, {"a": None})
    assert store.topology("run", "a") == topology("B")
    assert store.topology("run", "a", 0) == store.topology("run", "a", "phase_0") == topology("A")
    assert store.topology("run", "a", 2) is None


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("run", "aa"), "has no environment 'aa'.*'a'"),
        (("run", "a", 7), "has no phase 7"),
        (("ran", "a"), "has no run 'ran'.*'run'"),
    ],
)
def test_unknown_names_are_errors(store: Store, asked: tuple, message: str) -> None:
    record(store, "run", {"a": topology("A")})
    with pytest.raises(StoreError, match=message):
        store.topology(*asked)


def test_it_is_exported(store: Store, tmp_path: Path) -> None:
    record(store, "run", {"a": topology("A")}, {"a": None})
    store.export("run", tmp_path / "out")
    found = json.loads((tmp_path / "out" / "topologies.json").read_text())
    assert [(one["phase"], one["environment"]) for one in found] == [(0, "a")]
    assert Topology.from_data(found[0]["topology"]) == topology("A")
    record(store, "without", {"a": None})
    store.export("without", tmp_path / "other")
    assert not (tmp_path / "other" / "topologies.json").exists()


@pytest.mark.parametrize("content", ["{", '{"nodes": [], "edges": [], "devices": []}'])
def test_damage_is_found(sqlite_store: Store, content: str) -> None:
    run = record(sqlite_store, "run", {"a": topology("A")})
    assert verify(sqlite_store, run).damage == ()
    with sqlite3.connect(sqlite_store.directory / "store.db") as connection:
        connection.execute("UPDATE descriptions SET content = ?", (content,))
    connection.close()
    assert verify(sqlite_store, run).damage == ("the topology of phase 0 is damaged",)
