"""Many processes at one store: who races to make it, writes into it, finishes within a moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
import sqlalchemy as sa
from support.waiting import HANG

from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.database import Database
from palaestrai_mosaik.store.models import Base
from palaestrai_mosaik.store.schema import HEAD
from tests.support import postgresql, writers

ROOT = Path(__file__).parents[2]


class Place(NamedTuple):
    """The URL of a database that is not a store yet, and where its files go."""

    url: str
    files: Path

    def open(self) -> Store:
        return Store(self.url, directory=self.files, create=False)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=postgresql.needs_server)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    fresh: Callable[[], AbstractContextManager[str]] = postgresql.fresh_database
    if request.param == "sqlite":

        def fresh() -> AbstractContextManager[str]:
            return nullcontext(f"sqlite:///{tmp_path}/store.db")

    with fresh() as url:
        yield Place(url, tmp_path / "files")


def together(what: str, place: Place, count: int) -> int:
    """Let ``count`` processes do ``what``; return how often it failed."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.writers", what, place.url, str(place.files), str(count)],
        capture_output=True,
        text=True,
        timeout=HANG,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def count_experiments(place: Place) -> int:
    with place.open() as store, store.database.reading() as session:
        return session.execute(sa.text("SELECT count(*) FROM experiments")).scalar_one()


def test_all_who_open_a_new_store_at_once_find_it_made(place):
    assert together("open", place, 32) == 0
    assert count_experiments(place) == 32
    with place.open() as store:
        assert store.schema_version == HEAD


def make_old(place: Place) -> None:
    """Make a store from before the first revision."""
    with Store(place.url, directory=place.files, create=True) as store, store.database.writing() as session:
        Base.metadata.drop_all(session.connection())
        session.execute(sa.text("DELETE FROM alembic_version"))


def test_all_who_open_an_old_store_at_once_find_it_upgraded(place):
    make_old(place)
    assert together("open", place, 8) == 0
    with place.open() as store:
        assert store.schema_version == HEAD
        with store.database.reading() as session:
            told = set(session.scalars(sa.text("SELECT uid FROM experiments")))
        assert {f"of {number}" for number in range(8)} <= told


def test_transactions_that_read_first_and_write_then_lose_nothing(place):
    Database(place.url).close()
    assert together("write", place, 32) == 0
    assert count_experiments(place) == 32 * writers.ROUNDS


def test_without_asking_for_the_lock_at_once_they_would_be_lost(tmp_path):
    """What the test above is worth: with a plain BEGIN, and the same time-out, SQLite refuses many."""
    place = Place(f"sqlite:///{tmp_path}/store.db", tmp_path)
    Database(place.url).close()
    lost = together("write plainly", place, 32)
    assert lost > 0
    assert count_experiments(place) == 32 * writers.ROUNDS - lost


def test_fifty_runs_that_finish_at_the_same_moment_are_all_recorded(place):
    Database(place.url).close()
    assert together("finish", place, 50) == 0
    with place.open() as store:
        runs = store.runs()
        # one row for one document, whoever was first
        assert runs["document"].value_counts().to_dict() == {"run-0": 25, "run-1": 25}
        assert set(runs["status"]) == {"finished"} and runs["run"].is_unique
        assert runs["episodes"].tolist() == [1] * 50
        for uid in runs["run"]:
            marker = json.loads((store.instance_directory(uid) / "complete.json").read_text())
            streams = store.streams(uid).dropna(subset="digest").set_index("name")["digest"]
            assert marker["status"] == "finished"
            assert streams["a"] == marker["digests"]["phase-0/agent-a"]
        with store.database.reading() as session:
            assert session.execute(sa.text("SELECT count(*) FROM run_documents")).scalar() == 2
