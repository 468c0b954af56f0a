"""Submitting runs to a real Slurm, what it says of them, and the script that executes them."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from arsenai.execution.folders import make_folder
from arsenai.execution.slurm_cluster import needs_slurm, output_of, slurm_jobs
from support.processes import Program
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.execution import Settings, job_records
from palaestrai_mosaik.arsenai.execution.cluster.scheduler import TaskState
from palaestrai_mosaik.arsenai.execution.cluster.slurm import Slurm, _queue, elements_of
from palaestrai_mosaik.arsenai.execution.cluster.submission import Array, Submission, Submissions, TaskRun
from palaestrai_mosaik.arsenai.execution.cluster.submit import (
    cancel_folder,
    default_runs_per_task,
    named_modules,
    pack,
    plan_submission,
    recover_submissions,
    script,
    submit_folder,
)
from palaestrai_mosaik.arsenai.execution.job import now
from palaestrai_mosaik.core.errors import SchedulerError

ROOT = Path(__file__).parents[3]
COMPLETED, FAILED, CANCELLED = TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED
HOSTILE = """a 'b' "c" $(touch X) ; touch Y & #%A é"""

__all__ = ["slurm_jobs"]


def runs_of(folder):
    return [TaskRun(run.uid, run.hash, run.file) for run in folder.documents]


def with_slurm(**settings):
    return Settings.of(None, slurm=settings)


def a_submission(tasks, **fields):
    name = f"test-slurm-{os.getpid()}-{os.urandom(4).hex()}"
    return Submission(1, "slurm", name, now(), tasks, tasks, **fields)


def ended(submission):
    """Wait until all tasks are over, and return the words."""
    until(lambda: all(word.ended for word in Slurm().task_states(submission).values()))
    return Slurm().task_states(submission)


def wait_for(submission, *words):
    """Wait until Slurm says these words of the tasks; else show what it says."""
    end = time.monotonic() + HANG
    while (told := list(Slurm().task_states(submission).values())) != list(words):
        assert time.monotonic() < end, told
        time.sleep(0.2)


def array_script(tmp_path, submission, *lines):
    """Write a script that does what the lines say, for :meth:`Slurm.submit`."""
    path = tmp_path / "script.sbatch"
    path.write_text(f"#!/bin/bash\n#SBATCH --job-name={submission.name}\n#SBATCH --output=/dev/null\n")
    with path.open("a") as file:
        file.write("\n".join(lines))
    return path


def has_cgroups():
    told = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, check=True)
    return "task/cgroup" in told.stdout


def test_short_forms_of_elements():
    assert list(elements_of("7")) == [7]
    assert list(elements_of("[3,5-7%2]")) == [3, 5, 6, 7]
    assert list(elements_of("[0-10:5,20]")) == [0, 5, 10, 20]


def test_how_many_runs_a_task_has():
    runs = [TaskRun(f"r{i}", "h", f"runs/r{i}.yml") for i in range(7)]
    assert [[run.run for run in task] for task in pack(runs, 3)] == [
        ["r0", "r1", "r2"],
        ["r3", "r4", "r5"],
        ["r6"],
    ]
    # nothing is known: one, up to 1,000 tasks
    assert [default_runs_per_task(runs, None, 1, None) for runs in (7, 1000, 1001, 100_000)] == [1, 1, 2, 100]
    # a task's cores are not reserved for nothing
    assert [default_runs_per_task(runs, None, 4, None) for runs in (7, 100_000)] == [4, 100]
    # 300 s of runs of 40 s are 7, two at a time 14; of 400 s: one; half of a limit of 100 s is one, too
    assert default_runs_per_task(1000, 40.0, 1, None) == 7
    assert default_runs_per_task(1000, 40.0, 2, 3600) == 14
    assert default_runs_per_task(1000, 400.0, 1, None) == 1
    assert default_runs_per_task(1000, 40.0, 1, 100) == 1


def test_the_modules_of_documents_are_found_without_reading_all(tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "f", ["well", "raise"], repetitions=3)
    from palaestrai_mosaik.arsenai.execution.cluster import submit

    read = []
    monkeypatch.setattr(submit, "load", lambda path: read.append(path.name) or load(path))
    load = vars(__import__("palaestrai_mosaik.experiment", fromlist=["load"]))["load"]
    assert named_modules(folder, runs_of(folder)) == ("arsenai.execution.parts",)
    # of the repetitions of a row, one
    assert read == ["doing-0-r0.yml", "doing-1-r0.yml"]
    # the submission says whether somebody has chosen them
    for given, limited, modules in (
        (None, False, ("arsenai.execution.parts",)),
        (("mine",), True, ("mine",)),
    ):
        planned, _ = plan_submission(folder, runs_of(folder), Settings(allow_modules=given))
        assert (planned.limited, planned.allow_modules) == (limited, modules)


@pytest.fixture
def play(tmp_path):
    """Return what starts the script for task 3 + 4 with an interpreter that does what the lines say."""
    stub = tmp_path / "sl ow; python"

    def start(*lines, prologue=()):
        stub.write_text("\n".join(["#!/bin/bash", 'printf "%s\\n" "$@" > arguments', *lines]))
        stub.chmod(0o755)
        submission = a_submission(9, settings={"python": str(stub), "prologue": prologue})
        text = tmp_path / "submit.sbatch"
        text.write_text(script(tmp_path, submission))
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": "4"}
        return Program(["bash", str(text), "3"], cwd="/", env=environment)

    return start


def test_the_script_ends_as_its_runs_end(tmp_path, monkeypatch, play):
    monkeypatch.chdir(tmp_path)
    assert play("exit 7").wait(HANG) == 7
    written = (tmp_path / "arguments").read_text().splitlines()
    assert "9 runs in 9 tasks. It was" in (tmp_path / "submit.sbatch").read_text()
    assert written == ["-m", "palaestrai_mosaik.cli.node", str(tmp_path), "1", "7"]
    # a killed interpreter is not one that has completed
    assert play("kill -KILL $$").wait(HANG) == 128 + signal.SIGKILL


def test_the_script_hands_signals_on(tmp_path, monkeypatch, play):
    monkeypatch.chdir(tmp_path)
    lines = [
        "trap 'echo USR1 >> told' USR1",
        "trap 'echo TERM >> told; exit 5' TERM",
        "touch ready",
        "while true; do sleep 0.05; done",
    ]
    process = play(*lines)
    until((tmp_path / "ready").exists)
    process.send_signal(signal.SIGUSR1)
    until((tmp_path / "told").exists)
    # it goes on, and waits for its runs
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG) == 5
    assert (tmp_path / "told").read_text().split() == ["USR1", "TERM"]
    # what comes while the prologue goes on is not lost
    (tmp_path / "told").unlink()
    process = play("trap '' TERM", *lines[:2], *lines[3:], prologue=["touch begun", "sleep 0.5"])
    until((tmp_path / "begun").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG) != 0


def test_the_script_takes_hostile_names_as_they_are(tmp_path, monkeypatch):
    submission = a_submission(2, settings={"partition": 'x" --wrap="touch X', "directives": ["--nice=3"]})
    folder = tmp_path / HOSTILE
    monkeypatch.chdir(tmp_path)
    lines = script(folder, submission).splitlines()
    written = str(folder).replace("%", "%%").replace('"', '\\"')
    assert f'#SBATCH --output="{written}/submissions/0001/%A_%a.log"' in lines
    assert '#SBATCH --partition="x\\" --wrap=\\"touch X"' in lines
    assert "#SBATCH --nice=3" in lines
    # what Slurm cannot write is refused before anything is submitted
    for bad in ("back\\slash", "new\nline"):
        with pytest.raises(SchedulerError, match="move the design's folder"):
            script(tmp_path / bad, submission)


def test_a_host_without_slurm(tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "f", ["well", "well"])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerError, match="there is no 'scontrol' on this host"):
        submit_folder(folder, runs_of(folder), Settings())
    assert Submissions(folder.path).numbers() == []


@needs_slurm
def test_a_folder_is_executed(tmp_path, monkeypatch, slurm_jobs):
    folder = make_folder(tmp_path / HOSTILE, ["well", "raise", "well"])
    work = tmp_path / "wor\nking $(touch Z)"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(Slurm, "array_size", 2)
    # no task is to know this; the other two would make other jobs of ours
    monkeypatch.setenv("PALAESTRAI_MOSAIK_STORE", "postgresql://tests:not-to-be-seen@nowhere/x")
    monkeypatch.setenv("PGPASSWORD", "not-to-be-seen")
    monkeypatch.setenv("ANOTHER", "postgresql+psycopg://tests:not-to-be-seen@nowhere/x")
    monkeypatch.setenv("SBATCH_PARTITION", "nowhere")
    monkeypatch.setenv("SBATCH_ARRAY_INX", "90-99")
    monkeypatch.setenv("STAYS", "as it is")
    prologue = ['env > "environment of $task"']
    settings = with_slurm(partition="main", runs_per_task=1, prologue=prologue, memory="1G", time="5")
    submission = submit_folder(folder, runs_of(folder), settings)
    assert [(array.first, array.tasks) for array in submission.arrays] == [(0, 2), (2, 1)]
    assert Submissions(folder.path).read(1) == Submission.read(folder.path / "submissions" / "0001.json")
    assert ended(submission) == {0: COMPLETED, 1: FAILED, 2: COMPLETED}, output_of(folder.path)
    records = job_records(DesignFolder.open(folder.path))
    assert [records[run.uid].status for run in folder.documents] == ["finished", "failed", "finished"]
    first, second = (array.job for array in submission.arrays)
    logs = sorted(path.name for path in (folder.path / "submissions" / "0001").iterdir())
    assert logs == sorted([f"{first}_0.log", f"{first}_1.log", f"{second}_0.log"])
    for task in range(3):
        environment = (work / f"environment of {task}").read_text()
        assert "not-to-be-seen" not in environment
        assert "STAYS=as it is" in environment
    assert not [path for path in tmp_path.rglob("*") if path.name in ("X", "Y", "Z")]
    # nothing is left to be ended
    assert cancel_folder(folder.path).jobs == ()


@needs_slurm
def test_what_slurm_says_of_tasks(tmp_path, slurm_jobs):
    submission = a_submission(7, settings={"throttle": 2})
    slurm_jobs.append(submission.name)
    path = array_script(
        tmp_path,
        submission,
        "#SBATCH --mem=100M",
        "case $SLURM_ARRAY_TASK_ID in",
        "0) exit 0 ;;",
        "1) exit 3 ;;",
        "2) kill -KILL $$ ;;",
        """3) python3 -c "x = b'x' * (500 << 20); import time; time.sleep(3600)"; exit 0 ;;""",
        "*) sleep 3600 ;;",
        "esac",
    )
    submission = replace(submission, arrays=(Slurm().submit(submission, path, 0, 7),))
    # (without cgroups, Slurm kills what it finds too large and has no word for it)
    large = TaskState.OUT_OF_MEMORY if has_cgroups() else FAILED
    told = [COMPLETED, FAILED, FAILED, large, TaskState.RUNNING, TaskState.RUNNING, TaskState.QUEUED]
    wait_for(submission, *told)
    # (what Slurm keeps of an element that is ended alone before it began depends on which one it is)
    Slurm().cancel(submission, {0, 4, 6})
    until(lambda: Slurm().task_states(submission)[4] is CANCELLED)
    words = Slurm().task_states(submission)
    assert [words[task] for task in range(6)] == [*told[:4], CANCELLED, TaskState.RUNNING]
    assert words[6].ended
    Slurm().cancel(submission)
    assert ended(submission)[5] is CANCELLED
    assert Slurm().task_states(replace(submission, name="test-slurm-nobody"))[0] is TaskState.GONE
    # what another cluster has is not gone because this one does not know it
    with pytest.raises(SchedulerError, match=r"went to the cluster 'elsewhere', and this is '\w+'"):
        Slurm().task_states(replace(submission, cluster="elsewhere"))


@needs_slurm
def test_a_submission_that_was_cut_off(tmp_path, monkeypatch, slurm_jobs):
    folder = make_folder(tmp_path / "f", ["well", "raise", "exit"])
    submission, tasks = plan_submission(folder, runs_of(folder), with_slurm(runs_per_task=1))
    submissions = Submissions(folder.path)
    submissions.begin(submission, tasks)
    # nothing was submitted, and may be yet; then never
    assert set(Slurm().task_states(submission).values()) == {TaskState.QUEUED}
    monkeypatch.setattr("palaestrai_mosaik.arsenai.execution.cluster.slurm._SUBMITTING", 0.0)
    assert set(Slurm().task_states(submission).values()) == {CANCELLED}
    # two arrays were submitted, one written down
    path = array_script(tmp_path, submission, "exit $1")
    written = Slurm().submit(submission, path, 0, 1)
    submission = replace(submission, arrays=(written,))
    submissions.write(submission)
    lost = Slurm().submit(submission, path, 1, 1)
    assert ended(submission) == {0: COMPLETED, 1: FAILED, 2: CANCELLED}
    recover_submissions(folder.path)
    settled = submissions.read(1)
    assert settled.arrays == (written, Array(lost.job, 1, 1))
    assert (settled.tasks, settled.runs) == (2, 2)
    assert list(submissions.tasks(1)) == tasks[:2]
    recover_submissions(folder.path)
    assert submissions.read(1) == settled


@needs_slurm
def test_what_slurm_refuses(tmp_path, slurm_jobs):
    folder = make_folder(tmp_path / "f", ["well", "well"])
    with pytest.raises(SchedulerError, match=r"^nothing was submitted: sbatch says: .*partition"):
        submit_folder(folder, runs_of(folder), with_slurm(partition="$(touch X); touch X"))
    # Slurm remembers such a job, as one that failed
    with pytest.raises(SchedulerError, match=r"^nothing was submitted: sbatch says: .*not available"):
        submit_folder(folder, runs_of(folder), with_slurm(memory="900000G"))
    assert Submissions(folder.path).numbers() == []
    assert list((folder.path / "submissions").iterdir()) == []


@needs_slurm
def test_only_jobs_of_the_folder_are_cancelled(tmp_path, slurm_jobs):
    folder = make_folder(tmp_path / "a b|c %é", ["well", "well"])
    held = with_slurm(runs_per_task=1, directives=["--hold"])
    mine = submit_folder(folder, runs_of(folder), held)
    # whoever may write to the folder names another job of ours, and its number
    other = a_submission(1)
    slurm_jobs += [mine.name, other.name]
    path = array_script(tmp_path, other, "#SBATCH --hold", "true")
    other = replace(other, number=2, arrays=(Slurm().submit(other, path, 0, 1),))
    Submissions(folder.path).begin(other, [[runs_of(folder)[0]]])
    cancelled = cancel_folder(folder.path)
    (job,), (foreign,) = mine.arrays, other.arrays
    assert (cancelled.jobs, cancelled.queued, cancelled.running) == ((job.job,), 2, 0)
    assert cancelled.foreign == (foreign.job,)
    assert set(Slurm().task_states(mine).values()) == {CANCELLED}
    assert set(Slurm().task_states(other).values()) == {TaskState.QUEUED}


@needs_slurm
def test_a_folder_is_cancelled(tmp_path, slurm_jobs):
    folder = make_folder(tmp_path / "f", ["hang", "hang", "well"], gate=str(tmp_path / "gate"))
    submission = submit_folder(folder, runs_of(folder), with_slurm(runs_per_task=1, throttle=1))
    until(lambda: list((folder.path / "jobs").glob("*.running")))
    cancelled = cancel_folder(folder.path)
    assert (cancelled.running, cancelled.queued) == (1, 2)
    assert cancelled.jobs == tuple(array.job for array in submission.arrays)
    assert set(ended(submission).values()) == {CANCELLED}
    # the run that went on has recorded what became of it; the others are none
    (record,) = job_records(DesignFolder.open(folder.path)).values()
    assert record.status == "interrupted", output_of(folder.path)


@pytest.fixture
def own_slurm(monkeypatch):
    """Let the test use a Slurm of its own with accounting, small arrays, and a short memory."""
    above = Path(tempfile.mkdtemp(prefix="slurm-"))
    # its daemons are not all of one user
    above.chmod(0o755)
    directory = above / "slurm"
    service = ROOT / "tests" / "services" / "slurm.sh"
    options = ["MaxArraySize=2", "MinJobAge=2", "AccountingStorageEnforce=limits", "SlurmdTimeout=5"]
    arguments = [part for option in options for part in ("--set", option)]
    called = [str(service), "up", str(directory), "--accounting", *arguments]
    printed = subprocess.run(called, stdout=subprocess.PIPE, text=True, check=True).stdout
    monkeypatch.setenv("SLURM_CONF", printed.strip())
    yield directory
    subprocess.run([str(service), "down", str(directory)], check=True)
    above.rmdir()


def kill_daemon(directory, name):
    os.kill(int((directory / "run" / f"{name}.pid").read_text()), signal.SIGKILL)


@needs_slurm
def test_slurm_with_accounting(tmp_path, own_slurm):
    service = ROOT / "tests" / "services" / "slurm.sh"
    folder = make_folder(tmp_path / "f", ["well", "raise", "well"])
    runs = runs_of(folder)
    submission = submit_folder(folder, runs, with_slurm(runs_per_task=1))
    assert [(array.first, array.tasks) for array in submission.arrays] == [(0, 2), (2, 1)]
    expected = {0: COMPLETED, 1: FAILED, 2: COMPLETED}
    assert ended(submission) == expected, output_of(folder.path)
    # the controller forgets within the minute, what accounting knows is the same
    until(lambda: not list(_queue(submission.name)))
    assert Slurm().task_states(submission) == expected
    # no room for more than one array: what has been submitted stays, the others wait
    limit = ["sacctmgr", "--immediate", "modify", "user", "root", "set", "MaxSubmitJobs=2"]
    subprocess.run(limit, stdout=subprocess.DEVNULL, check=True)
    with pytest.raises(SchedulerError, match=r"only 2 of 3 tasks were submitted .*the others wait: sbatch"):
        submit_folder(folder, runs, with_slurm(runs_per_task=1))
    submission = Submissions(folder.path).read(2)
    assert (submission.tasks, submission.runs, len(submission.arrays)) == (2, 2, 1)
    assert [[run] for run in runs[:2]] == list(Submissions(folder.path).tasks(2))
    assert set(ended(submission)) == {0, 1}
    # a controller that does not answer is told; what goes on does not need it
    submission = replace(a_submission(2), number=3)
    path = array_script(tmp_path, submission, "#SBATCH --no-requeue", "sleep 3600")
    submission = replace(submission, arrays=(Slurm().submit(submission, path, 0, 2),))
    wait_for(submission, TaskState.RUNNING, TaskState.RUNNING)
    # (it saves what it knows every few seconds)
    time.sleep(10)
    kill_daemon(own_slurm, "slurmctld")
    with pytest.raises(SchedulerError, match=r"squeue says: .*'scontrol ping' says"):
        Slurm().task_states(submission)
    subprocess.run([str(service), "restart", str(own_slurm)], check=True)
    wait_for(submission, TaskState.RUNNING, TaskState.RUNNING)
    # a node that is gone
    kill_daemon(own_slurm, "slurmd")
    wait_for(submission, TaskState.NODE_FAILED, TaskState.NODE_FAILED)
    subprocess.run([str(service), "restart", str(own_slurm)], check=True)
