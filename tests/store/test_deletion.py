"""Deleting runs: all of a run goes, nothing of others, and no run that is running."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import func, select
from support.documents import document
from support.postgresql import fresh_database, needs_server

import palaestrai_mosaik as pm
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store.merge import delete_runs
from palaestrai_mosaik.store.models import Base
from palaestrai_mosaik.store.verify import verify


def rows(store: pm.Store) -> dict[str, int]:
    """Return how many rows each table has."""
    with store.database.reading() as session:
        return {
            name: session.scalar(select(func.count()).select_from(table)) or 0
            for name, table in Base.metadata.tables.items()
        }


def record(store: pm.Store, *uids: str) -> list[str]:
    return [pm.run(document(uid=uid), store=store, quiet=True).instance for uid in uids]


def test_a_run_goes_with_all_its_rows_and_files_and_no_other_is_touched(tmp_path: Path) -> None:
    with pm.Store(tmp_path / "results", create=True) as store:
        record(store, "kept")
        before = rows(store)
        first, second = record(store, "gone", "gone")
        assert delete_runs(store, [first, "gone"]) == (first, second)
        assert rows(store) == before
        (kept,) = store.runs()["run"]
        assert [one.name for one in (tmp_path / "results" / "instances").iterdir()] == [kept]
        assert not verify(store, kept).damage
        # documents and runs are found, and recorded, as before
        assert len(record(store, "gone")) == 1


def test_nothing_is_deleted_where_one_run_is_unknown_or_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pm.Store(tmp_path / "results", create=True) as store:
        record(store, "one", "two")
        before = rows(store)
        with pytest.raises(StoreError, match="'thre'"):
            delete_runs(store, ["one", "thre"])
        monkeypatch.setattr("palaestrai_mosaik.store.merge.status_of", lambda instance: "running")
        with pytest.raises(StoreError, match="is running; end it first"):
            delete_runs(store, ["two"])
        assert rows(store) == before
        assert len(list((tmp_path / "results" / "instances").iterdir())) == 2


@needs_server
def test_runs_go_from_a_server(tmp_path: Path) -> None:
    with fresh_database() as url, pm.Store(url, directory=tmp_path / "files", create=True) as store:
        record(store, "kept", "gone")
        before = len(store.runs())
        delete_runs(store, ["gone"])
        assert store.runs()["document"].tolist() == ["kept"] and before == 2


def test_the_command_asks_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--store", str(tmp_path / "results")]
    with pm.Store(tmp_path / "results", create=True) as store:
        record(store, "one", "two", "two")
    assert main(["delete", "one", *where]) == 2
    assert "use --yes where nobody can be asked" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, left in (("n", 3), ("", 3), ("y", 2)):
        monkeypatch.setattr("builtins.input", lambda answer=answer: answer)
        assert main(["delete", "one", *where]) == 0
        with pm.Store(tmp_path / "results") as store:
            assert len(store.runs()) == left
    assert main(["delete", "two", "--yes", *where]) == 0
    capsys.readouterr()
    # of a document, the newest run is meant, as everywhere
    assert main(["list", "--json", *where]) == 0
    assert [run["document"] for run in json.loads(capsys.readouterr().out)] == ["two"]


def test_runs_are_chosen_for_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--store", str(tmp_path / "results")]
    with pm.Store(tmp_path / "results", create=True) as store:
        record(store, "rural_day", "rural_week", "urban_day")
    for options, expected in (
        (["--document", "rural_*"], ["rural_day", "rural_week"]),
        (["--document", "rural_*", "--last", "1"], ["rural_week"]),
        (["--status", "finished"], ["rural_day", "rural_week", "urban_day"]),
        (["--status", "failed", "lost"], []),
    ):
        assert main(["list", *options, *where]) == 0
        out = capsys.readouterr().out
        assert [name for name in ("rural_day", "rural_week", "urban_day") if name in out] == expected
        assert bool(expected) == ("no such runs" not in out)
