"""What is known of a run: its record first, its marker, then the scheduler's word for its task."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
from arsenai.execution.folders import make_folder

from palaestrai_mosaik.arsenai.design.folder import JOBS, RESULTS, STORES, DesignFolder, execution_lock
from palaestrai_mosaik.arsenai.execution import Settings, StoreLocation, load_run_states, run_folder
from palaestrai_mosaik.arsenai.execution.cluster.scheduler import TaskState
from palaestrai_mosaik.arsenai.execution.cluster.slurm import Slurm
from palaestrai_mosaik.arsenai.execution.cluster.submission import (
    Array,
    Submission,
    Submissions,
    TaskRun,
    run_store_location,
)
from palaestrai_mosaik.arsenai.execution.job import STALE_AFTER, JobRecord, Marker, now
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import SchedulerError

RECORD = JobRecord("", "", "finished", None, "", now(), now(), 1.0, 0, None, "elsewhere", 1, 1)


@pytest.fixture
def folder(tmp_path):
    made = make_folder(tmp_path / "folder", ["well", "well"])
    (made.path / JOBS).mkdir()
    return made


@pytest.fixture
def slurm(monkeypatch):
    """Give what Slurm is to say of all tasks, or to raise; and how often it was asked."""
    said = {"word": TaskState.QUEUED, "asked": 0}

    def task_states(self, submission):
        said["asked"] += 1
        if isinstance(said["word"], Exception):
            raise said["word"]
        return dict.fromkeys(range(submission.tasks), said["word"])

    monkeypatch.setattr(Slurm, "task_states", task_states)
    return said


def submit(folder, number=1, attempt=1, executor="slurm", runs=1):
    task = [TaskRun(run.uid, run.hash, run.file, attempt) for run in folder.documents[:runs]]
    submission = Submission(number, executor, f"one-{number}", now(), 1, runs, arrays=(Array("7", 0, 1),))
    Submissions(folder.path).begin(submission, [task])


def record(folder, status, attempt=1, **changes):
    planned = folder.documents[0]
    path = folder.path / JOBS / "doing-0-r0.json"
    replace(RECORD, run=planned.uid, hash=planned.hash, status=status, attempt=attempt, **changes).write(path)


def marker(folder, attempt=1, host="elsewhere", age=0.0):
    planned = folder.documents[0]
    path = folder.path / JOBS / "doing-0-r0.running"
    Marker(planned.uid, planned.hash, attempt, host, 1, 0.0, now(), "an-instance", "7_0").write(path)
    os.utime(path, (time.time() - age, time.time() - age))


def fill(store, instance, status):
    """Let the own store ``store`` have an instance that ended so."""
    directory = Path(store.location) / "instances" / instance
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "complete.json").write_text(json.dumps({"uid": instance, "status": status, "digests": {}}))
    (Path(store.location) / "store.db").write_bytes(b"SQLite format 3")


def status(folder, **options):
    location = StoreLocation.of(folder.path / RESULTS)
    state, _ = load_run_states(folder, location, **options).runs
    return str(state.status)


def status_of_both(folder):
    location = StoreLocation.of(folder.path / RESULTS)
    return [str(state.status) for state in load_run_states(folder, location).runs]


@pytest.mark.parametrize(
    ("said", "left", "word", "expected"),
    [
        # nothing has begun
        (None, None, TaskState.QUEUED, "queued"),
        (None, None, TaskState.RUNNING, "queued"),
        (None, None, TaskState.CANCELLED, "cancelled"),
        (None, None, TaskState.FAILED, "failed"),
        (None, None, TaskState.TIMED_OUT, "waiting"),
        (None, None, TaskState.ASKED_TO_END, "waiting"),
        (None, None, TaskState.OUT_OF_MEMORY, "out of memory"),
        (None, None, TaskState.NODE_FAILED, "waiting"),
        (None, None, TaskState.GONE, "waiting"),
        # it has begun, and said nothing since
        (None, 1, TaskState.RUNNING, "running"),
        (None, 1, TaskState.QUEUED, "queued"),
        (None, 1, TaskState.TIMED_OUT, "timed out"),
        (None, 1, TaskState.OUT_OF_MEMORY, "out of memory"),
        (None, 1, TaskState.NODE_FAILED, "node failed"),
        (None, 1, TaskState.CANCELLED, "cancelled"),
        (None, 1, TaskState.ASKED_TO_END, "lost"),
        (None, 1, TaskState.COMPLETED, "lost"),
        (None, 1, TaskState.GONE, "lost"),
        # its own word comes first
        (("failed", 1), None, TaskState.RUNNING, "failed"),
        (("failed", 1), None, TaskState.TIMED_OUT, "failed"),
        (("interrupted", 1), None, TaskState.TIMED_OUT, "interrupted"),
        (("interrupted", 1), None, TaskState.QUEUED, "queued"),
        (("interrupted", 1), 2, TaskState.RUNNING, "running"),
        (("interrupted", 1), 2, TaskState.TIMED_OUT, "timed out"),
    ],
)
def test_the_word_about_a_task_completes_what_its_runs_have_recorded(
    folder, slurm, said, left, word, expected
):
    submit(folder)
    slurm["word"] = word
    if said is not None:
        record(folder, said[0], said[1])
    if left is not None:
        marker(folder, left)
    assert status(folder) == expected


def test_the_record_of_an_earlier_attempt_is_not_the_last_word(folder, slurm):
    record(folder, "failed", attempt=1)
    submit(folder, attempt=2)
    assert status(folder) == "queued"
    record(folder, "failed", attempt=2)
    assert status(folder) == "failed"


@pytest.mark.parametrize(
    "word", [TaskState.TIMED_OUT, TaskState.ASKED_TO_END, TaskState.FAILED, TaskState.GONE]
)
def test_a_run_that_failed_and_was_not_reached_when_it_was_submitted_again_waits(
    folder, slurm, monkeypatch, capsys, word
):
    record(folder, "failed", attempt=1)
    submit(folder, attempt=2, runs=2)
    # (the other run of its task has begun)
    planned = folder.documents[1]
    done = replace(RECORD, run=planned.uid, hash=planned.hash, status="failed", attempt=2)
    done.write(folder.path / JOBS / "doing-1-r0.json")
    slurm["word"] = word
    assert status_of_both(folder) == ["waiting", "failed"]
    monkeypatch.chdir(folder.path.parent)
    assert main(["submit", "folder", "--dry-run"]) == 0
    assert "1 run in 1 task" in capsys.readouterr().out
    # what had recorded more of itself keeps it
    record(folder, "interrupted", attempt=1)
    assert status_of_both(folder) == ["interrupted", "failed"]


@pytest.mark.parametrize("word", [TaskState.TIMED_OUT, TaskState.ASKED_TO_END])
def test_runs_that_wait_again_are_told_with_the_reason_and_the_log(folder, slurm, monkeypatch, capsys, word):
    submit(folder, runs=2)
    slurm["word"] = word
    monkeypatch.chdir(folder.path.parent)
    assert main(["status", "folder"]) == 0
    out = capsys.readouterr().out
    assert "2 runs wait again, as the time of their task was over before they began" in out
    assert "folder/submissions/0001/7_0.log" in out
    assert main(["status", "folder", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_reached"] == {
        "runs": 2,
        "log": "folder/submissions/0001/7_0.log",
    }
    assert main(["submit", "folder", "--dry-run"]) == 0
    assert "2 runs in 2 tasks" in capsys.readouterr().out


def test_a_task_that_failed_before_its_runs_is_told_with_its_log(folder, slurm, monkeypatch, capsys):
    submit(folder, runs=2)
    slurm["word"] = TaskState.FAILED
    monkeypatch.chdir(folder.path.parent)
    location = StoreLocation.of(folder.path / RESULTS)
    states = load_run_states(folder, location).runs
    assert [str(state.status) for state in states] == ["failed", "failed"]
    assert {state.error for state in states} == {"its task failed before the run began"}
    assert main(["status", "folder"]) == 0
    told = capsys.readouterr().out
    assert told.count("its task failed before the run began") == 2
    assert told.count("folder/submissions/0001/7_0.log") == 2
    # what failed is not submitted again and again
    assert main(["submit", "folder", "--dry-run"]) == 0
    assert "left out: 2 runs that failed before" in capsys.readouterr().out
    # where one run has begun, the others only wait for another task
    record(folder, "failed")
    assert [str(state.status) for state in load_run_states(folder, location).runs] == ["failed", "waiting"]
    # the record of an earlier attempt is no sign of this one
    submit(folder, 2, attempt=2)
    state, other = load_run_states(folder, location).runs
    assert (str(state.status), state.error) == ("failed", "its task failed before the run began")
    assert str(other.status) == "waiting"


def test_what_status_says_to_do_next_can_be_done(folder, monkeypatch, capsys):
    os.rename(folder.path, folder.path.with_name("a folder"))
    monkeypatch.chdir(folder.path.parent)
    there = DesignFolder.open("a folder")
    fill(run_store_location(there.path, "doing-0-r0"), "one", "finished")
    record(there, "finished", instance="one")
    assert main(["status", "a folder", "--store", "my store"]) == 0
    line = "1 finished run to be collected: arsenai collect 'a folder' --store 'my store'\n"
    assert line in capsys.readouterr().out


def test_a_newer_submission_goes_before_an_older_one(folder, slurm):
    submit(folder, 1)
    slurm["word"] = TaskState.CANCELLED
    assert status(folder) == "cancelled"
    submit(folder, 2, attempt=2)
    slurm["word"] = TaskState.QUEUED
    assert status(folder) == "queued"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("number", "a", "number must be an integer of at least 1, found the string 'a'"),
        ("number", 2, "its number is 2"),
        ("tasks", "x", "tasks must be an integer of at least 0"),
        ("arrays", [{"first": "a", "tasks": None}], "missing 1 required positional argument: 'job'"),
        ("arrays", [{"job": "7", "first": "a", "tasks": 1}], "first must be an integer of at least 0"),
        ("arrays", [{"job": "--user=root", "first": 0, "tasks": 1}], "job must be a job's number"),
        ("executor", "pbs", "executor must be slurm or parsl"),
        ("processes", -1, "processes must be an integer of at least 1"),
        ("settings", [], "settings must be a mapping"),
        ("name", 7, "name must be letters, digits"),
        ("name", "one,another", "name must be letters, digits"),
        ("submitted", None, "submitted must be a time"),
        ("timeout", "1", "timeout must be 0 or a number of seconds"),
        ("allow_modules", [3], "allow_modules[0] must be a list of names of modules"),
        ("preload", [["os", "system", "x"]], "preload must be a list of module, name and parameters"),
        ("limited", 1, "limited must be true or false"),
        ("preload", ..., "key 'preload' is missing"),
        ("more", 1, "unknown key 'more'"),
    ],
)
def test_an_edited_submission_is_told_by_status_and_refused_by_what_executes(
    folder, slurm, capsys, key, value, said
):
    submit(folder)
    file = folder.path / "submissions" / "0001.json"
    found = json.loads(file.read_text())
    found[key] = value
    file.write_text(json.dumps({name: one for name, one in found.items() if one is not ...}))
    assert main(["status", str(folder.path)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"waiting +2\n", out)
    assert f"{file} is not a submission: " in out
    assert said in out
    for command in ("submit", "run", "resume"):
        assert main([command, str(folder.path)]) == 2
        err = capsys.readouterr().err
        assert f"{file} is not a submission: " in err
        assert said in err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"prologue": 7}, "slurm: prologue must be lines of a shell script"),
        ({"time": "1"}, "slurm: the time limit 1 (60 s) leaves runs no time before the warning"),
        ({"colour": "red"}, "there is no setting 'colour'"),
    ],
)
def test_a_setting_of_a_submission_hides_nothing(folder, slurm, capsys, settings, said):
    submit(folder)
    file = folder.path / "submissions" / "0001.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"settings": settings}))
    assert main(["status", str(folder.path)]) == 0
    out = capsys.readouterr().out
    assert f"the settings of submission 1 are not sound: {said}" in out
    # its tasks are asked for as ever
    assert "submission 1 (slurm, 7): tasks 1 queued" in out
    assert status_of_both(folder) == ["queued", "waiting"]
    # what would use the settings refuses them
    assert main(["resume", str(folder.path)]) == 2
    assert said in capsys.readouterr().err


def test_a_setting_of_the_design_hides_nothing(tmp_path, slurm, capsys):
    folder = make_folder(tmp_path / "f", ["well", "well"], slurm={"time": "1"}, jobs=3)
    assert main(["status", str(folder.path)]) == 0
    assert "waiting" in capsys.readouterr().out
    assert main(["submit", str(folder.path)]) == 2
    assert "leaves runs no time before the warning" in capsys.readouterr().err


def test_edited_tasks_are_told_with_their_line(folder, slurm, capsys):
    submit(folder)
    file = folder.path / "submissions" / "0001.tasks"
    whole = json.loads(file.read_text())
    for key, value, said in (
        ("attempt", "x", "attempt must be an integer of at least 1, found the string 'x'"),
        ("run", None, "run must be a text"),
        ("file", "../x.yml", "is no document in runs/"),
    ):
        lines = [whole, [{**whole[0], key: value}]]
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        assert main(["status", str(folder.path)]) == 0
        out = capsys.readouterr().out
        assert f"{file}:2: this line is not a task's: " in out
        assert said in out
        assert main(["submit", str(folder.path)]) == 2
        err = capsys.readouterr().err
        assert f"{file}:2: this line is not a task's: " in err
        assert said in err
    # words that nobody wrote count for nothing
    submit(folder)
    for text in ("[]", '{"0": "well"}', '{"0": "running"}'):
        (folder.path / "submissions" / "0001.ended.json").write_text(text)
        assert status(folder) == "queued"


def test_how_a_task_ended_is_kept_because_schedulers_forget(folder, slurm):
    submit(folder)
    marker(folder)
    slurm["word"] = TaskState.OUT_OF_MEMORY
    assert status(folder) == "out of memory"
    slurm["word"] = SchedulerError("slurmctld is away")
    assert status(folder) == "out of memory"
    slurm["word"] = TaskState.GONE
    assert status(folder) == "out of memory"
    # an administrator has queued it again
    slurm["word"] = TaskState.QUEUED
    assert status(folder) == "queued"
    slurm["word"] = SchedulerError("slurmctld is away")
    assert load_run_states(folder, StoreLocation.of(folder.path / RESULTS)).problems == ("slurmctld is away",)


def test_a_task_that_another_cluster_does_not_know_is_not_over_for_ever(folder, slurm):
    submit(folder)
    slurm["word"] = TaskState.GONE
    assert status(folder) == "waiting"
    slurm["word"] = TaskState.QUEUED
    assert status(folder) == "queued"


def test_a_finished_run_is_so_whatever_the_scheduler_says_and_it_is_not_asked(folder, slurm):
    submit(folder)
    slurm["word"] = SchedulerError("slurmctld is away")
    store = run_store_location(folder.path, "doing-0-r0")
    record(folder, "finished", instance="one")
    # its store has nothing of it: the results are gone
    assert status(folder) == "lost"
    fill(store, "one", "failed")
    assert status(folder) == "lost"
    fill(store, "one", "finished")
    location = StoreLocation.of(folder.path / RESULTS)
    state, _ = load_run_states(folder, location).runs
    assert (str(state.status), state.collected, slurm["asked"]) == ("finished", False, 0)


def test_a_scheduler_that_does_not_answer_stops_a_run_but_not_a_look(folder, slurm):
    submit(folder)
    slurm["word"] = SchedulerError("slurmctld is away")
    location = StoreLocation.of(folder.path / RESULTS)
    assert load_run_states(folder, location).problems == ("slurmctld is away",)
    with pytest.raises(SchedulerError, match=r"slurmctld is away.*--ignore-queue"):
        run_folder(folder, rows=[0], settings=Settings(executor="inline"))
    assert run_folder(folder, rows=[0], settings=Settings(executor="inline"), ignore_queue=True).whole


def test_what_a_live_task_has_is_left_to_it(folder, slurm):
    submit(folder)
    summary = run_folder(folder, rows=[0], settings=Settings(executor="inline"))
    assert {str(word): n for word, n in summary.before.items()} == {"queued": 1}
    assert not (folder.path / STORES).exists()


def test_a_marker_of_another_host_counts_until_nobody_has_touched_it_for_long(folder):
    marker(folder)
    assert status(folder) == "running"
    marker(folder, age=STALE_AFTER + 5)
    assert status(folder) == "lost"
    # of this host it is known that no such process is there
    marker(folder, host=socket.gethostname())
    assert status(folder) == "lost"


def test_pilots_end_with_the_command_that_started_them(folder):
    with execution_lock(folder.path):
        submit(folder, executor="parsl")
        assert status(folder) == "queued"
    assert status(folder) == "waiting"
    # another command executes the folder now
    with execution_lock(folder.path):
        assert status(folder) == "waiting"
    marker(folder)
    assert status(folder) == "lost"
