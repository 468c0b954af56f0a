"""Databases that are deleted or truncated while runs write to them: each command reports it."""

from __future__ import annotations

import json

import pytest
from arsenai.execution.folders import statuses
from faults.batch import make_batch, recorded
from support.documents import document, named, phase
from support.learning import HERE, learner, track

import palaestrai_mosaik as pm
from palaestrai_mosaik.cli.arsenai import main as arsenai
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store

HARMS = ("delete", "truncate", "halve")
PARTS = "faults.parts:Unlucky"


@pytest.fixture
def run_file(tmp_path):
    """Return the file of a run in which an order is carried out; see :class:`.Unlucky`."""
    one = learner(
        muscle=named(PARTS), brain=named(f"{HERE}:Teacher"), objective=named(f"{HERE}:Noting", target=0.0)
    )
    made = document(phase([track("t", steps=5, seconds=0.0)], [one], episodes=4), uid="r")
    file = tmp_path / "run.yml"
    file.write_text(json.dumps(made.canonical))
    return file


@pytest.mark.parametrize("harm", HARMS)
def test_start_says_that_a_run_cannot_be_read_back(tmp_path, run_file, order, capsys, caplog, harm):
    store = tmp_path / "s"
    order("train 12", harm, store / "store.db")
    assert main(["start", str(run_file), "--store", str(store)]) == 1
    out, err = capsys.readouterr()
    assert "cannot be read back" in err and "instances" in err
    assert "results in" not in out
    # the files are kept, and the message says how to restore the store
    assert list(store.glob("instances/*/trajectories/*/*/part-*.parquet"))
    assert main(["verify", "--all", "--store", str(store)]) != 0
    err = capsys.readouterr().err
    assert "instances" in err and "copy" in err and "Traceback" not in err
    # a lost database is made anew beside the files; a damaged one has to be moved away first
    if harm != "delete":
        for file in store.glob("store.db*"):
            file.unlink()
    assert main(["start", str(run_file), "--store", str(store)]) == 0
    assert "has files of 1 run; a new one was made" in caplog.text
    assert main(["verify", "--all", "--store", str(store)]) == 0


def test_only_runs_that_are_lost_count_as_lost(tmp_path, run_file, order, capsys):
    """The first run loses the database; the second has a new one."""
    store, sound = tmp_path / "s", tmp_path / "sound.yml"
    sound.write_text(run_file.read_text().replace('"uid": "r"', '"uid": "sound"'))
    order("train 12", "delete", store / "store.db")
    assert main(["start", str(run_file), str(sound), "--store", str(store)]) == 1
    err = capsys.readouterr().err
    assert "of 2 runs finished" in err and "2 of 2" not in err


def test_start_in_json(tmp_path, run_file, order, capsys):
    store = tmp_path / "s"
    order("train 12", "delete", store / "store.db")
    assert main(["start", str(run_file), "--store", str(store), "--json"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["status"] == "lost" and "there is no store" in run["error"]


def test_a_run_from_python_raises(tmp_path, run_file, order):
    store = tmp_path / "s"
    order("train 12", "delete", store / "store.db")
    with pytest.raises(StoreError, match="cannot be read back"):
        pm.run(run_file, store=store, quiet=True)
    with Store(tmp_path / "t", create=True) as opened:
        order("train 12", "truncate", tmp_path / "t" / "store.db")
        # a checkpoint may find the damage before the run ends
        with pytest.raises(StoreError, match=r"cannot be read back|malformed|not a database"):
            pm.run(run_file, store=opened, quiet=True)


@pytest.mark.parametrize("harm", HARMS)
def test_a_batch_says_that_runs_cannot_be_read_back(tmp_path, undisturbed, order, capfd, caplog, harm):
    folder = make_batch(tmp_path / "f", seconds=0.0)
    database = folder.path / "results" / "store.db"
    assert arsenai(["run", str(folder.path), "--rows", "0-1", "--executor", "inline"]) == 0
    order("test 3", harm, database)
    capfd.readouterr()
    # the last run: none later finds the database gone
    assert arsenai(["run", str(folder.path), "--jobs", "1"]) == 1
    assert "cannot be read back" in capfd.readouterr().err
    if harm != "delete":
        for file in database.parent.glob("store.db*"):
            file.unlink()
    assert "finished" not in statuses(folder.path)
    assert arsenai(["resume", str(folder.path), "--jobs", "1"]) == 0
    assert "a new one was made" in caplog.text
    assert recorded(folder) == recorded(undisturbed())


def test_a_healthy_store_is_not_accused(tmp_path, run_file):
    """Of many runs the pages of the database are checked, of few their rows."""
    store = tmp_path / "s"
    assert main(["start", *[str(run_file)] * 3, "--store", str(store), "--quiet"]) == 0
