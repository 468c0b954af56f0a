"""Lost results of a search beside other processes, in another store, and with runs that fail again."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from arsenai.execution.folders import environment_now
from arsenai.search.searches import GATED, answered, printed, search_design, settings, told, tuned, written
from arsenai.search.test_tasks import submitted

from palaestrai_mosaik.arsenai.design import settings as design_settings
from palaestrai_mosaik.arsenai.design.load import load
from palaestrai_mosaik.arsenai.execution import status
from palaestrai_mosaik.arsenai.search import search_result, stores
from palaestrai_mosaik.arsenai.search.task import execute_search_task
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.merge import delete_runs

pytest.importorskip("optuna")

JOURNAL = Path("f/search/journal.log")
RESUME = ("resume", "f", "--executor", "inline")


#: kills its process in its third step if there is a file ``die``, which it removes
DIES = {"name": "arsenai.execution.parts:Doing", "params": {"do": "mortal", "gate": "die"}}


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
    assert not any(state.lost for state in states.runs) and "lost" not in {
        setting.state for setting in states.settings
    }
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
        monkeypatch.setattr(status, "instances_of", instances_of)
        common_is_last = bool(own_stores)
        instances = {} if common_is_last else instances_of(*arguments)
        assert main(["collect", "f", "--remove", "--quiet"]) == 0
        return instances_of(*arguments) if common_is_last else instances

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
    assert main(["tune", written(gated(4)), "-o", "f", "--executor", "inline", "--quiet"]) == 1
    assert [setting["state"] for setting in settings()] == ["complete"] * 4
    assert answered(capsys, *RESUME, "--retry-failed")["again"] == 3
    assert told()[:3] == before and answered(capsys, "status", "f")["settings"] == {"complete": 4}


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
    reads, read = [], design_settings._read
    monkeypatch.setattr(design_settings, "_read", lambda file: reads.append(file) or read(file))
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


@pytest.mark.parametrize("loss", ["removed", "emptied"])
def test_a_database_without_results_is_a_store_to_fill(loss, capsys):
    """A new database is one, as is one whose file or tables are gone."""
    database = Path("x.db")
    store = ("--store", f"sqlite:///{database.absolute()}")
    if loss == "emptied":
        database.touch()
    tuned(design(), "f", *store)
    before = told()
    assert answered(capsys, "status", "f", *store)["counts"] == {"finished": 3}
    database.unlink()
    if loss == "emptied":
        database.touch()
    assert answered(capsys, "status", "f", *store)["counts"] == {"lost": 3}
    assert answered(capsys, *RESUME, *store)["again"] == 3
    assert answered(capsys, "status", "f", *store)["counts"] == {"finished": 3}
    # Without the option, the folder's own store takes them.
    database.unlink()
    assert answered(capsys, *RESUME)["again"] == 3
    assert told() == before and answered(capsys, "status", "f")["counts"] == {"finished": 3}


def test_the_database_of_a_server_is_named_without_a_connection(capsys):
    """Its password is masked in the record, so the results in it cannot be looked up."""
    tuned(design())
    for path in Path("f/jobs").glob("*.json"):
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"store": "postgresql://a:***@nowhere.invalid/results"}))
    shutil.rmtree("f/results")
    assert "name it with --store postgresql://a:***@nowhere" in printed(capsys, *RESUME, code=2).err
    shutil.rmtree("f/jobs")
    assert answered(capsys, *RESUME)["again"] == 3


def delete(run, folder="f"):
    """Delete a run from the store in a folder."""
    with Store(f"{folder}/results") as store:
        runs = store.runs()
        delete_runs(store, list(runs.loc[runs["document"] == run, "run"]))


def test_a_copied_folder_makes_its_lost_results_again_by_itself(capsys):
    tuned(design(4), "o")
    shutil.copytree("o", "c")
    tuned(design(6), "c")
    delete("valley-0-r0", "c")
    shutil.copytree("c", "b")
    assert answered(capsys, "resume", "c", "--executor", "inline")["again"] == 1
    assert answered(capsys, "status", "c")["counts"] == {"finished": 6}
    # The original's store has runs of the search, too.
    store = str(Path("o/results").absolute())
    assert answered(capsys, "resume", "b", "--executor", "inline", "--store", store)["again"] == 2


def test_a_copied_folder_without_results_names_the_store_that_has_them(capsys):
    tuned(design(), "o")
    shutil.copytree("o", "c", ignore=shutil.ignore_patterns("results"))
    resume, store = ("resume", "c", "--executor", "inline"), str(Path("o/results").absolute())
    said = printed(capsys, *resume, code=2).err
    assert f"name it with --store {store}" in said and f"remove {Path('c/jobs').absolute()}" in said
    shutil.rmtree("c/jobs")
    assert answered(capsys, *resume)["again"] == 3


def test_a_copied_folder_of_a_cluster_does_not_name_the_own_store_of_a_run(capsys):
    submitted(design(), tasks=1)
    execute_search_task(Path("f"), 1, 0, name="77_0")
    assert main(["collect", "f", "--quiet"]) == 0
    shutil.copytree("f", "c", ignore=shutil.ignore_patterns("stores", "submissions"))
    delete("valley-0-r0", "c")
    assert answered(capsys, "resume", "c", "--executor", "inline")["again"] == 1


def test_a_store_under_another_name_is_the_same_store(capsys):
    tuned(design(), "f", "--store", "real")
    Path("link").symlink_to("real")
    assert answered(capsys, *RESUME, "--store", "link")["ended"] == {}
    with Store("real") as store:
        delete_runs(store, list(store.runs()["run"]))
    assert answered(capsys, *RESUME, "--store", "link")["again"] == 3
    Path("real").rename("moved")
    assert answered(capsys, *RESUME, "--store", "moved")["ended"] == {}


def test_a_store_that_another_design_has_made_in_its_place_does_not_count(capsys):
    tuned(design(), "f", "--store", "other")
    shutil.rmtree("other")
    tuned({**design(), "seed": 12}, "g", "--store", "other")
    assert answered(capsys, *RESUME)["again"] == 3


def test_results_that_were_collected_into_another_store_are_named(capsys):
    submitted(design(), tasks=1)
    execute_search_task(Path("f"), 1, 0, name="77_0")
    assert main(["collect", "f", "--store", "other", "--remove", "--quiet"]) == 0
    other = str(Path("other").absolute())
    assert f"name it with --store {other}" in printed(capsys, "status", "f", "--ignore-queue").out
    assert f"name it with --store {other}" in printed(capsys, *RESUME, code=2).err
    assert answered(capsys, *RESUME, "--store", "other")["ended"] == {}


def halves():
    """Execute a search of four runs as a task does, two at a time; yield once two more have ended."""
    submitted(design(4), tasks=1, settings={"runs_per_task": 2})
    for _ in range(2):
        execute_search_task(Path("f"), 1, 0, name="77_0")
        yield


def test_what_is_collected_goes_where_the_first_part_went(capsys):
    other, half = str(Path("other").absolute()), halves()
    next(half)
    assert main(["collect", "f", "--store", "other", "--remove", "--quiet"]) == 0
    next(half)
    said = printed(capsys, "collect", "f", "--remove", code=2).err
    assert f"name it with --store {other}; nothing was collected" in said
    assert not Path("f/results").exists() and len(list(Path("f/stores").glob("[!.]*"))) == 2
    assert main(["collect", "f", "--store", "other", "--remove", "--quiet"]) == 0
    assert answered(capsys, *RESUME, "--store", "other")["ended"] == {}


def test_results_in_two_stores_are_not_made_twice_unasked(capsys):
    other, half = str(Path("other").absolute()), halves()
    next(half)
    assert main(["collect", "f", "--remove", "--quiet"]) == 0
    Path("f/results").rename("later")
    next(half)
    assert main(["collect", "f", "--store", "other", "--remove", "--quiet"]) == 0
    Path("later").rename("f/results")
    assert f"name it with --store {other}" in printed(capsys, "status", "f", "--ignore-queue").out
    assert f"name it with --store {other}; nothing was executed" in printed(capsys, *RESUME, code=2).err
    # once that store is named, its user has decided
    assert answered(capsys, *RESUME, "--store", "other")["again"] == 2


def published():
    """Return the files that confirm the best settings, with their bytes."""
    files = (Path("f/search/confirmed.csv"), Path("f/search/winner.yml"), Path("f/confirm/design.yml"))
    return [file.read_bytes() for file in files]


def test_while_a_setting_is_lost_nothing_is_confirmed_and_no_winnerwritten(capsys):
    search = {"sampler": "random", "budget": {"runs": 4}, "confirm": 2}
    tuned({**gated(4), "search": search})
    before = published()
    best = answered(capsys, "status", "f")["best"]["setting"]
    delete(f"valley-{best}-r0")
    Path("mended").unlink()
    data = answered(capsys, *RESUME, code=1)
    assert (data["lost"], data["winner"], data["confirmed"]) == (1, None, None)
    assert not any(setting["recommended"] for setting in data["best"])
    Path("mended").touch()
    said = printed(capsys, *RESUME, code=1)
    assert "no setting is confirmed, and no winner is written" in said.err and "winner " not in said.out
    said = printed(capsys, "submit", "f", "--ignore-queue", code=1).out
    assert "they failed when executed again" in said and "the search is over: 4 runs" in said
    assert published() == before
    data = answered(capsys, *RESUME, "--retry-failed")
    assert (data["again"], data["lost"], data["confirmed"]) == (1, 0, {"runs": 6, "finished": 6})
    assert published() == before


def test_a_lost_run_whose_process_is_killed_is_begun_again(capsys, caplog):
    tuned(search_design(muscle=DIES, steps=3, search={"sampler": "random", "budget": {"runs": 2}}))
    shutil.rmtree("f/results")
    Path("die").touch()
    data = answered(capsys, "resume", "f", "-j", "1")
    assert (data["again"], data["failed"], data["ended"]) == (2, [], {"failed": 1, "finished": 2})
    assert "restarting it" in caplog.text


def edited(name, change):
    """Change the attribute of the last setting in the journal that has it; return the number of its line."""
    lines = [json.loads(line) for line in JOURNAL.read_text().splitlines()]
    number = max(n for n, line in enumerate(lines) if name in line.get("user_attr", {}))
    change(lines[number]["user_attr"][name])
    JOURNAL.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return number + 1


RUN_EDITS = {
    **{
        f"without {key}": lambda runs, key=key: runs[0].pop(key)
        for key in ("run", "instance", "status", "reports")
    },
    "with another key": lambda runs: runs[0].update(other=1),
    "with a number as its uid": lambda runs: runs[0].update(run=1),
}
SETTING_EDITS = {
    "without a hash": lambda setting: setting.pop("hash"),
    "outside the unit cube": lambda setting: setting.update(unit=[2.0, 0.5]),
}


@pytest.mark.parametrize(
    ("name", "change"),
    [("runs", change) for change in RUN_EDITS.values()]
    + [("setting", change) for change in SETTING_EDITS.values()],
    ids=[*RUN_EDITS, *SETTING_EDITS],
)
def test_a_malformed_line_of_the_journal_is_named(name, change, capsys):
    tuned(design())
    number = edited(name, change)
    shutil.rmtree("f/results")
    for command in (RESUME, ("status", "f")):
        assert (
            f"journal.log:{number}: this line of the search's journal"
            in printed(capsys, *command, code=2).err
        )


def test_a_journal_without_objectives_is_named(capsys):
    tuned(design())
    lines = [json.loads(line) for line in JOURNAL.read_text().splitlines()]
    lines[0]["directions"] = []
    JOURNAL.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "journal.log:1: this line of the search's journal" in printed(capsys, *RESUME, code=2).err


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *(
            ("setting", lambda setting, unit=unit: setting.update(unit=unit))
            for unit in ([], [0.5], [0.5] * 3)
        ),
        ("setting", lambda setting: setting.update(first=7)),
        ("runs", lambda runs: runs.append(runs[0])),
        ("runs", lambda runs: runs[0].update(outcomes={"z": 1.0})),
    ],
    ids=["no unit", "a short unit", "a long unit", "a later first", "too many runs", "another outcome"],
)
def test_a_setting_that_the_design_cannot_have_is_named(name, change, capsys):
    tuned(design())
    edited(name, change)
    shutil.rmtree("f/results")
    assert "search/journal.log does not fit the design" in printed(capsys, *RESUME, code=2).err


def test_a_submission_names_a_store_that_cannot_be_read(capsys):
    tuned({**design(), "search": {"sampler": "random", "budget": {"runs": 3}, "confirm": 1}})
    before = published()
    Path("f/results/store.db").write_bytes(b"no database" * 1000)
    for name in ("store.db-wal", "store.db-shm"):
        Path("f/results", name).unlink(missing_ok=True)
    said = printed(capsys, "submit", "f", "--ignore-queue", code=1)
    assert "what was recorded cannot be read back" in said.err
    assert "next: arsenai report" not in said.out and "best settings" not in said.out
    assert published() == before


def test_importances_leave_out_lost_settings():
    tuned(design(11))
    whole = search_result(load("f/design.yml"), Path("f")).importances["y"]
    delete("valley-0-r0")
    assert search_result(load("f/design.yml"), Path("f")).importances["y"] != whole
    delete("valley-1-r0")
    # Nine settings are too few.
    assert search_result(load("f/design.yml"), Path("f")).importances == {}


@pytest.mark.parametrize(
    "store", ["", "\0", "\ud800", "sqlite:", "sqlite:///x.db?plugin=theirs", "env:", "@nowhere"]
)
def test_a_record_with_an_odd_store_is_no_traceback(store, capsys):
    tuned(design())
    for path in Path("f/jobs").glob("*.json"):
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"store": store}))
    shutil.rmtree("f/results")
    is_named = store in ("env:", "@nowhere")
    assert main([*RESUME, "--quiet"]) == (2 if is_named else 0)
    assert ("name it with --store" in capsys.readouterr().err) == is_named


@pytest.mark.skipif(os.name != "posix", reason="links are POSIX's")
def test_a_record_gives_no_permission_to_follow_links(capsys):
    tuned(design(), "f", "--store", "other")
    Path("f/link").symlink_to(Path("other").absolute())
    for path in Path("f/jobs").glob("*.json"):
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"store": str(Path("f/link").absolute())}))
    code = "from palaestrai_mosaik.cli.arsenai import main; from palaestrai_mosaik.core import files; from pathlib import Path\n"
    code += "main(['status', 'f']); files.read_bytes(Path('f/link/store.db').absolute())"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment_now()
    )
    assert "link is a link, and links" in result.stderr and result.returncode == 1
