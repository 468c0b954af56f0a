"""Labels of runs in the commands: set, shown, listed, filtered by, and selected by."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from support.documents import document

import palaestrai_mosaik as pm
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.store import Store

DUMMY = Path(__file__).parents[2] / "scenarios" / "dummy.yml"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two runs in the default store, the older one first."""
    monkeypatch.chdir(tmp_path)
    return [pm.run(document(uid=uid), quiet=True).instance for uid in ("one", "two")]


def test_labels_are_set_shown_and_removed(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["label", "one", "--name", "base line", "--tag", "a", "b", "--tag", "c", "--note", "x\ny"]) == 0
    )
    shown = f"{runs[0]}\n  name  base line\n  tags  a, b, c\n  note  x\n        y\n"
    assert capsys.readouterr().out == shown
    assert main(["label", "base line"]) == 0
    assert capsys.readouterr().out == shown
    assert main(["label", "base line", "two", "--tag", "d", "--untag", "a", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["label", "two", "base line", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"run": runs[1], "name": None, "tags": ["d"], "note": None},
        {"run": runs[0], "name": "base line", "tags": ["b", "c", "d"], "note": "x\ny"},
    ]
    assert main(["label", "base line", "--name", "", "--note", "", "--untag", "b", "c", "d"]) == 0
    assert capsys.readouterr().out == f"{runs[0]}\n  no labels\n"


def test_a_note_is_read_from_standard_input(
    runs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("several\nlines\n"))
    assert main(["label", "latest", "--note", "-"]) == 0
    assert pm.RecordedRun("latest").note == "several\nlines"


def test_runs_are_listed_with_names_and_chosen_by_tags(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["label", "one", "--name", "base line", "--tag", "good", "old", "--quiet"]) == 0
    assert main(["label", "two", "--tag", "good", "--quiet"]) == 0
    assert main(["list", "--tag", "good", "old"]) == 0
    out = capsys.readouterr().out
    assert "base line" in out and "two" not in out
    assert main(["list", "--tag", "goood"]) == 0
    assert capsys.readouterr().out.endswith("(did you mean 'good'?)\n")
    assert main(["list", "--json"]) == 0
    assert [run["tags"] for run in json.loads(capsys.readouterr().out)] == [["good", "old"], ["good"]]
    assert main(["show", "base line"]) == 0
    assert capsys.readouterr().out.startswith(
        f"run       {runs[0]}\nname      base line\ntags      good, old\n"
    )
    assert main(["show", "bas line"]) == 2
    assert "did you mean 'base line'?" in capsys.readouterr().err


def test_a_name_is_for_one_run(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["label", "one", "two", "--name", "both"]) == 2
    assert "a name selects one run, and there are 2 runs: use a tag for several" in capsys.readouterr().err
    assert main(["start", str(DUMMY), str(DUMMY), "--name", "both"]) == 2
    assert "--name is for the run of one document" in capsys.readouterr().err
    assert main(["start", str(DUMMY), "--no-store", "--tag", "a"]) == 2
    assert "--tag has no meaning for --no-store" in capsys.readouterr().err
    assert len(pm.Store("palaestrai-results", read_only=True).runs()) == 2


def test_a_run_is_labelled_when_it_starts(runs: list[str]) -> None:
    options = ["--name", "day one", "--tag", "a", "b", "--note", "why"]
    assert main(["start", str(DUMMY), "--quiet", *options]) == 0
    run = pm.RecordedRun("day one")
    assert (run.status, run.name, run.tags, run.note) == ("finished", "day one", ("a", "b"), "why")


def test_hostile_labels_are_escaped(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with Store("palaestrai-results") as store:
        store.label(runs[0], name="x", tags="y", note="z")
        with store.database.writing() as session:
            hostile = "\x1b[2J\u202e\nstatus    failed"
            session.connection().exec_driver_sql(
                "UPDATE labels SET name = ?, note = ?, tags = ?", (hostile, hostile, json.dumps([hostile]))
            )
    for command in (["list"], ["show", runs[0]], ["label", runs[0]], ["label", "unknown"]):
        main(command)
        printed = "".join(capsys.readouterr())
        assert "\x1b" not in printed and "\u202e" not in printed
        assert printed.count("\nstatus    failed") == 0
    assert main(["label", runs[0]]) == 0
    assert "\\x1b[2J\\u202e" in capsys.readouterr().out


def test_parameters_and_metrics_are_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for steps in (2, 3):
        path = "environments.myenv.environment.params.max_iter"
        assert main(["start", str(DUMMY), "--quiet", "--set", f"{path}={steps}"]) == 0
    capsys.readouterr()
    assert main(["list", "--columns", "max_iter", "objective.*:mean", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["environments.myenv.environment.params.max_iter"] for row in rows] == [2, 3]
    assert all(row["objective.mighty_defender:mean"] is not None for row in rows)
    assert main(["list", "--columns", "max_itr"]) == 2
    assert "did you mean 'max_iter'?" in capsys.readouterr().err
    assert main(["list", "--columns", "max_iter"]) == 0
    assert "environments.myenv.environment.params.max_iter" in capsys.readouterr().out
