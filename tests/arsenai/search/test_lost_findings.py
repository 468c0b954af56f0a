"""Lost results of a search beside other processes, in another store, and with runs that fail again."""

from __future__ import annotations

import json
import logging
import shutil
from importlib import import_module
from pathlib import Path

import pytest
from arsenai.search.searches import GATED, search_design, settings, told, tuned
from arsenai.search.test_answers import answered, printed
from arsenai.search.test_tasks import submitted

from palaestrai_mosaik.arsenai.design import settings as search_journal
from palaestrai_mosaik.arsenai.execution import status
from palaestrai_mosaik.arsenai.search import stores
from palaestrai_mosaik.arsenai.search.task import execute_search_task
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import StoreError

pytest.importorskip("optuna")

JOURNAL = Path("f/search/journal.log")
RESUME = ("resume", "f", "--executor", "inline")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mended").touch()
    return tmp_path


def design(runs=3, **keys):
    return search_design(search={"sampler": "random", "budget": {"runs": runs}, **keys})


def gated(runs=3):
    """Return a search whose runs fail as long as there is no file ``mended``."""
    search = {"sampler": "random", "budget": {"runs": runs}}
    return search_design(muscle=GATED, steps=4, search=search)


def test_a_run_that_ends_while_states_are_determined_is_not_lost(monkeypatch):
    """It is in the store before it is in the journal, so the journal must be read first."""
    tuned(design())
    whole = JOURNAL.read_bytes()
    lines = whole.splitlines(keepends=True)
    first_run = min(n for n, line in enumerate(lines) if b'"runs"' in line)
    Path("f/results").rename("results.later")
    JOURNAL.write_bytes(b"".join(lines[:first_run]))

    def end_runs():
        if Path("results.later").exists():
            Path("results.later").rename("f/results")
            JOURNAL.write_bytes(whole)

    determine = status._run_states

    def determine_later(*arguments, **options):
        end_runs()
        return determine(*arguments, **options)

    monkeypatch.setattr(status, "_run_states", determine_later)
    folder = status.DesignFolder.open("f")
    states = status.load_run_states(folder, status.StoreLocation.of(folder.path / "results"))
    assert states.lost_results == () and "lost" not in {setting.state for setting in states.settings}
    states = status.load_run_states(folder, status.StoreLocation.of(folder.path / "results"))
    assert {setting.state for setting in states.settings} == {"complete"}


def test_a_run_that_is_collected_while_states_are_determined_is_not_lost(monkeypatch):
    """It is in the common store before its own one is removed, so the common one must be read last."""
    submitted(design(), tasks=1)
    execute_search_task(Path("f"), 1, 0, name="77_0")
    folder = status.DesignFolder.open("f")
    location = status.StoreLocation.of(folder.path / "results")
    location.open(create=True).close()
    own_stores, is_whole, instances_of = [], status.is_whole, status.instances_of

    def look_into_own_store(*arguments):
        own_stores.append(is_whole(*arguments))
        return own_stores[-1]

    def collect_between(*arguments):
        """Collect the runs between the reads of their own stores and of the common one, whichever comes first."""
        instances = {} if own_stores else instances_of(*arguments)
        assert main(["collect", "f", "--remove", "--quiet"]) == 0
        return instances_of(*arguments) if own_stores else instances

    monkeypatch.setattr(status, "is_whole", look_into_own_store)
    monkeypatch.setattr(status, "instances_of", collect_between)
    states = status.load_run_states(folder, location, ask=False)
    assert not list(Path("f/stores").glob("[!.]*"))
    assert [state.status for state in states.runs] == ["finished"] * 3


def test_results_in_another_store_are_not_made_again(capsys):
    tuned(design(), "f", "--store", "other")
    other = str(Path("other").absolute())
    assert f"name it with --store {other}; nothing was executed" in printed(capsys, *RESUME, code=2).err
    assert not Path("f/results").exists()
    assert f"name it with --store {other}" in printed(capsys, "status", "f").out
    assert answered(capsys, *RESUME, "--store", "other")["ended"] == {}
    # once that store is gone, too, the results are lost
    shutil.rmtree("other")
    assert answered(capsys, *RESUME)["again"] == 3


def test_a_store_that_is_damaged_during_the_search_leaves_a_summary(monkeypatch, capsys):
    tune = import_module("palaestrai_mosaik.arsenai.search.tune")
    collect = tune.collect_stores

    def damage(*arguments):
        Path("f/results/store.db").write_bytes(b"no database" * 1000)
        for name in ("store.db-wal", "store.db-shm"):
            Path("f/results", name).unlink(missing_ok=True)
        return collect(*arguments)

    monkeypatch.setattr(tune, "collect_stores", damage)
    Path("d.yml").write_text(json.dumps(design(runs=2, confirm=1)))
    said = printed(capsys, "tune", "d.yml", "-o", "f", "--executor", "inline", code=1)
    assert "2 settings, 2 runs executed now" in said.out and "best settings:" in said.out
    assert "what was recorded cannot be read back" in said.err


def test_a_run_that_has_no_outcome_any_more_is_a_warning(monkeypatch, caplog):
    tuned(design())
    shutil.rmtree("f/results")

    def take(*arguments):
        raise StoreError("no run has a reward y")

    monkeypatch.setattr(stores, "take", take)
    with caplog.at_level(logging.WARNING):
        assert main([*RESUME, "--quiet"]) == 0
    assert caplog.text.count("its outcomes cannot be read: no run has a reward y") == 3


def test_runs_that_fail_again_count_as_failed_and_do_not_block_the_search(capsys):
    tuned(gated())
    before = told()
    shutil.rmtree("f/results")
    Path("mended").unlink()
    data = answered(capsys, *RESUME, "--fail-fast", code=1)
    assert (data["ended"], data["again"], len(data["failed"])) == ({"failed": 1}, 0, 1)
    data = answered(capsys, *RESUME, code=1)
    assert (data["ended"], data["again"], len(data["failed"])) == ({"failed": 2}, 0, 2)
    # they are not executed for ever, and the search is over
    said = printed(capsys, *RESUME, code=1)
    assert "0 runs executed now" in said.out and "ended by: 3 runs" in said.out
    assert "once the cause is fixed: arsenai resume f --retry-failed" in said.err
    data = answered(capsys, "status", "f")
    assert (data["counts"], data["settings"]) == ({"failed": 3}, {"lost": 3})
    assert data["search_over"] == "3 runs"
    # another budget goes on
    Path("mended").touch()
    assert main(["tune", _written(gated(4)), "-o", "f", "--executor", "inline", "--quiet"]) == 1
    assert [setting["state"] for setting in settings()] == ["complete"] * 4
    assert answered(capsys, *RESUME, "--retry-failed")["again"] == 3
    assert told()[:3] == before and answered(capsys, "status", "f")["settings"] == {"complete": 4}


def _written(what):
    Path("d.yml").write_text(json.dumps(what))
    return "d.yml"


def test_settings_that_failed_or_were_retried_are_not_made_again(capsys):
    Path("mended").unlink()
    tuned(gated(2), code=1)
    Path("mended").touch()
    tuned(gated(2), "f", "--retry-failed")
    assert [setting["state"] for setting in settings()] == ["retried", "retried", "complete", "complete"]
    shutil.rmtree("f/results")
    shutil.rmtree("f/jobs")
    assert answered(capsys, "status", "f")["counts"] == {"lost": 2, "skipped": 2}
    assert answered(capsys, *RESUME)["ended"] == {"finished": 2}
    assert "lost" not in answered(capsys, "status", "f")["counts"]


def test_the_journal_is_read_once_for_a_command(monkeypatch, capsys):
    tuned(design())
    reads, read = [], search_journal._read
    monkeypatch.setattr(search_journal, "_read", lambda file: reads.append(file) or read(file))
    for command in ("status", "analyse"):
        reads.clear()
        answered(capsys, command, "f")
        assert len(reads) == 1, command


def test_a_dry_run_writes_no_documents(capsys):
    tuned(design())
    document = Path("f/runs/valley-1-r0.yml")
    document.write_text("edited")
    Path("f/runs/valley-2-r0.yml").unlink()
    assert main(["submit", "f", "--dry-run", "--ignore-queue"]) == 0
    assert document.read_text() == "edited" and not Path("f/runs/valley-2-r0.yml").exists()
    assert "written again" not in capsys.readouterr().out
