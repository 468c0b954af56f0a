"""What a task of a cluster does on its node, without a cluster: started, told to end, killed, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
import yaml
from arsenai.execution.folders import environment_now, make_folder, markers
from arsenai.execution.slurm_cluster import needs_slurm, output_of, slurm_jobs  # noqa: F401
from arsenai.execution.test_drivers import running
from sqlalchemy import update
from support.learning import digests
from support.processes import Program
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.execution import (
    JobRecord,
    LocalExecutor,
    Settings,
    processes,
    run_folder,
    run_states,
)
from palaestrai_mosaik.arsenai.execution.cluster.node import TaskOutcome, execute_task, requeue
from palaestrai_mosaik.arsenai.execution.cluster.submission import (
    Submission,
    Submissions,
    TaskRun,
    run_store_location,
)
from palaestrai_mosaik.arsenai.execution.cluster.submit import submit_folder
from palaestrai_mosaik.arsenai.execution.processes import Ended, ForkLauncher, Launcher
from palaestrai_mosaik.arsenai.execution.settings import SlurmSettings
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.runner.checkpoint import has_checkpoints
from palaestrai_mosaik.runner.worker_process import THREADS
from palaestrai_mosaik.store.models import Instance


def submit(folder, *tasks, **settings):
    """Write a submission whose tasks have the runs with these numbers; return it."""
    submissions = Submissions(folder.path)
    runs = [TaskRun(run.uid, run.hash, run.file) for run in folder.documents]
    count = sum(len(task) for task in tasks)
    submission = Submission(1, "slurm", "doing-test", "now", len(tasks), count, **settings)
    submissions.begin(submission, [[runs[number] for number in task] for task in tasks])
    return submission


def start(folder, task=0, element=None, **environment):
    """Start the process of a task as Slurm's script does."""
    command = [
        sys.executable,
        "-m",
        "palaestrai_mosaik.cli.node",
        str(folder.path),
        "1",
        str(task),
    ]
    if element is not None:
        environment |= {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": str(element)}
    return Program(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment_now() | dict.fromkeys(THREADS, "1") | environment,
        process_group=0,
    )


def record_of(folder, number):
    return JobRecord.read(folder.path / "jobs" / f"doing-{number}-r0.json")


def stored(folder, number):
    """Return the table of instances, and the digests of the newest, of a run's own store."""
    with run_store_location(folder.path, f"doing-{number}-r0").open() as store:
        return store.runs(), digests(store)


def has_checkpoint(folder, number):
    root = folder.path / "stores" / f"doing-{number}-r0" / "instances"
    return root.exists() and any(has_checkpoints(path) for path in root.iterdir())


def children(process):
    return [child.pid for child in psutil.Process(process.pid).children(recursive=True)]


@pytest.fixture(scope="module")
def launcher():
    """A launcher that is ready, as a worker of Parsl has it for all its tasks."""
    made = ForkLauncher()
    yield made
    made.close()


@pytest.fixture
def scontrol(tmp_path):
    """A ``scontrol`` that notes what it is told: its folder, for PATH."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "scontrol").write_text(
        f'#!/bin/sh\necho "$@" >> {tools}/told\ntest ! -e {tools}/refuse || {{ echo no >&2; exit 1; }}\n'
    )
    (tools / "scontrol").chmod(0o755)
    return tools


def test_a_task_of_a_design_that_was_replaced_leaves_alone_what_was_executed_since(
    tmp_path, launcher, capsys
):
    folder = make_folder(tmp_path / "f", ["well", "slow"])
    submit(folder, [0, 1])
    old = {run.uid: run.hash for run in folder.documents}
    spec = yaml.safe_load((folder.path / "design.yml").read_text())
    new = Design.from_mapping(spec | {"seed": 6}).generate(folder.path, force=True)
    assert all(run.hash != old[run.uid] for run in new.documents)
    # the first is executed, the second waits
    assert run_folder(new, rows=[0], settings=Settings(executor="inline")).finished == 1
    before = record_of(new, 0)
    outcome = execute_task(folder.path, 1, 0, name="7_0", launcher=launcher)
    assert (outcome.left_out, outcome.failed, outcome.exit_code) == (1, 1, 1)
    assert record_of(new, 0) == before and before.status == "finished"
    assert markers(new.path) == {} and not list((new.path / "jobs").glob("*.running"))
    assert "run doing-0-r0: left out, the design was generated anew" in capsys.readouterr().out
    assert "was edited after it was generated" in record_of(new, 1).error
    # that one is no record of the new document
    assert [state.status for state in run_states(new, None, ask=False).runs][1] == "waiting"


def test_a_task_that_reaches_its_time_limit_goes_on_as_if_nothing_had_happened(tmp_path, scontrol):
    folder = make_folder(tmp_path / "f", ["slow", "slow"], episodes=12)
    submit(folder, [0, 1], settings={"requeue": 1}, checkpoint_every=0.01)
    path = f"{scontrol}:{os.environ['PATH']}"
    with start(folder, element=4, PATH=path) as task:
        until(lambda: has_checkpoint(folder, 0))
        (marker,) = markers(folder.path).values()
        assert (marker.task, marker.attempt) == ("77_4", 1)
        started = children(task)
        task.send_signal(signal.SIGUSR1)
        out, _ = task.communicate(timeout=HANG)
    assert task.returncode == 130, out
    assert "run doing-0-r0: interrupted after" in out
    assert "0 finished, 0 failed, 1 interrupted, 0 left out, 1 not begun" in out
    assert "the task is requeued (1 of 1)" in out
    assert (scontrol / "told").read_text() == "requeue 77_4\n"
    assert running(started) == []
    assert markers(folder.path) == {}
    first = record_of(folder, 0)
    assert (first.status, first.exit_code, first.attempt, first.task) == ("interrupted", 130, 1, "77_4")

    with start(folder, element=4, PATH=path, SLURM_RESTART_COUNT="1") as task:
        out, _ = task.communicate(timeout=HANG)
    assert task.returncode == 0, out
    last = record_of(folder, 0)
    assert (last.status, last.attempt, last.instance) == ("finished", 2, first.instance)
    disturbed, undisturbed = stored(folder, 0), stored(folder, 1)
    assert disturbed[0]["status"].tolist() == ["finished"]
    assert len(disturbed[1]) == 2
    assert disturbed[1] == undisturbed[1]  # common random numbers: else both runs are the same
    assert not (folder.path / "results").exists()


def test_a_task_that_is_killed_takes_its_runs_with_it_and_no_other(tmp_path, launcher):
    gate = tmp_path / "gate"
    folder = make_folder(tmp_path / "f", ["hang", "well", "hang"], gate=str(gate))
    submit(folder, [0, 1], [2])
    with start(folder) as killed, start(folder, 1) as other:
        found = until(lambda: markers(folder.path) if len(markers(folder.path)) == 2 else None)
        # a second start of a task leaves alone what the first one executes
        outcome = execute_task(folder.path, 1, 1, name="77_1", launcher=launcher)
        assert outcome == TaskOutcome(0, 0, 0, 1, 0, ended=False, moved_on=False)
        assert outcome.exit_code == 1
        assert record_of(folder, 2) is None
        assert markers(folder.path)["doing-2-r0"] == found["doing-2-r0"]

        started = children(killed)
        killed.kill()
        killed.wait(HANG)
        until(lambda: running(started) == [])
        gate.touch()
        out, _ = other.communicate(timeout=HANG)
    assert other.returncode == 0, out
    assert record_of(folder, 2).status == "finished"
    assert record_of(folder, 0).status == "interrupted"
    assert record_of(folder, 1) is None

    outcome = execute_task(folder.path, 1, 0, name=None, launcher=launcher)
    assert outcome == TaskOutcome(2, 0, 0, 0, 0, ended=False, moved_on=True)
    again = record_of(folder, 0)
    assert (again.status, again.attempt) == ("finished", 2)
    assert record_of(folder, 1).attempt == 1
    assert markers(folder.path) == {}
    assert stored(folder, 0)[1] == stored(folder, 2)[1]


def test_what_earlier_starts_have_left_is_not_executed_again(tmp_path, capsys, launcher):
    def execute():
        return execute_task(folder.path, 1, 0, name="a", launcher=launcher)

    folder = make_folder(tmp_path / "f", ["well", "raise", "well"])
    submit(folder, [0, 1, 2], processes=2)
    with pytest.raises(ExecutionError, match="has the tasks 0 to 0, not 1"):
        execute_task(folder.path, 1, 1, name=None)
    assert execute().exit_code == 1
    records = [record_of(folder, number) for number in range(3)]
    assert [record.status for record in records] == ["finished", "failed", "finished"]
    assert "run doing-1-r0: failed after" in capsys.readouterr().out

    # the second has its record still; of the first only the results are left, and the third one's process
    # seems to have died on another host
    (folder.path / "jobs" / "doing-0-r0.json").unlink()
    (folder.path / "jobs" / "doing-2-r0.json").unlink()
    with run_store_location(folder.path, "doing-2-r0").open() as store, store.database.writing() as session:
        session.execute(update(Instance).values(status="running", ended=None, host="elsewhere"))
    outcome = execute()
    assert outcome == TaskOutcome(2, 1, 0, 0, 0, ended=False, moved_on=True)
    assert record_of(folder, 0).instance == records[0].instance
    assert record_of(folder, 1) == records[1]
    assert record_of(folder, 2).instance != records[2].instance
    assert stored(folder, 0)[0]["status"].tolist() == ["finished"]
    assert sorted(stored(folder, 2)[0]["status"]) == ["finished", "interrupted"]

    document = folder.path / folder.documents[0].file
    document.write_text(document.read_text().replace("seed: ", "seed: 1"))
    (folder.path / "jobs" / "doing-0-r0.json").unlink()
    assert execute().failed == 2
    assert "was edited after it was generated" in record_of(folder, 0).error


@pytest.mark.parametrize(
    ("moved_on", "before", "tool", "says"),
    [
        (True, "0", "good", "is requeued (1 of 2)"),
        (True, "1", "good", "is requeued (2 of 2)"),
        (True, "2", "unused", "not requeued (2 of 2 requeues used)"),
        (False, "0", "unused", "not requeued: no run ended, and no checkpoint was written"),
        (True, "0", "refuses", "cannot requeue 77_4: no"),
        (True, "0", "missing", "cannot requeue 77_4: "),
    ],
)
def test_when_a_task_is_queued_again(scontrol, monkeypatch, capsys, moved_on, before, tool, says):
    if tool == "refuses":
        (scontrol / "refuse").touch()
    monkeypatch.setenv("PATH", f"{'' if tool == 'missing' else scontrol}:/bin")
    submission = Submission(1, "slurm", "doing-test", "now", 1, 1, settings={"requeue": 2})
    outcome = TaskOutcome(0, 0, 1, 0, 0, ended=True, moved_on=moved_on)
    names = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "4", "SLURM_RESTART_COUNT": before}
    assert requeue(submission, outcome, names) is (tool in ("good", "unused"))
    assert says in capsys.readouterr().out
    assert (scontrol / "told").exists() is (tool in ("good", "refuses"))


def test_a_launcher_outlives_the_executors_that_use_it(tmp_path, launcher, monkeypatch):
    monkeypatch.setattr(processes, "GRACE", 0.5)
    folder = make_folder(tmp_path / "f", ["stubborn", "slow", "well"], steps=20)
    submission = submit(folder, [0, 1, 2])
    submissions = Submissions(folder.path)
    (folder.path / "jobs").mkdir()
    jobs = [submissions.job(submission, run, None) for run in submissions.task(1, 0)]
    iteration = LocalExecutor(2, launcher=launcher).run(jobs[:2])
    assert next(iteration).run == jobs[1].run
    (marker,) = markers(folder.path).values()
    iteration.close()
    assert running([marker.pid]) == []
    records = list(LocalExecutor(1, launcher=launcher).run([jobs[2], replace(jobs[1], attempt=2)]))
    assert [record.status for record in records] == ["finished", "finished"]


class _Ended(Launcher):
    """Starts processes that are ended at once by the signal that this process gets, too."""

    def __init__(self):
        self.started, self.told = [], []

    def start(self, jobs):
        self.started.append([job.run for job in jobs])
        return len(self.started)

    def ended(self, timeout):
        new, self.told = self.started[len(self.told) :], list(self.started)
        return [Ended(self.started.index(one) + 1, -signal.SIGTERM, 7) for one in new]

    def terminate(self, key):
        raise AssertionError("it has ended already")

    kill = terminate

    def end(self, keys):
        assert not list(keys)

    def close(self):
        pass


def test_a_run_whose_process_hears_of_the_end_before_its_executor_does_has_not_failed(tmp_path):
    folder = make_folder(tmp_path / "f", ["well", "well"])
    submission = submit(folder, [0, 1])
    submissions = Submissions(folder.path)
    (folder.path / "jobs").mkdir()
    jobs = [submissions.job(submission, run, None) for run in submissions.task(1, 0)]
    launcher = _Ended()
    executor = LocalExecutor(1, launcher=launcher, should_end=lambda: bool(launcher.told))
    assert list(executor.run(jobs)) == []
    assert executor.cancelled
    assert launcher.started == [[jobs[0].run]]
    assert record_of(folder, 0) is None


@needs_slurm
@pytest.mark.usefixtures("slurm_jobs")
def test_slurm_queues_a_task_again_that_was_told_that_its_time_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "tests")
    folder = make_folder(tmp_path / "f", ["slow", "slow"], episodes=25)
    runs = [TaskRun(run.uid, run.hash, run.file) for run in folder.documents]
    slurm = SlurmSettings(time="10", requeue=1, runs_per_task=1, throttle=1)
    settings = Settings(executor="slurm", slurm=slurm, checkpoint_every=0.01)
    submission = submit_folder(folder, runs, settings)
    until(lambda: has_checkpoint(folder, 0))
    # as Slurm itself says it before the time limit: to the script alone
    job = f"{submission.arrays[0].job}_0"
    subprocess.run(["scancel", "--batch", "--signal=USR1", job], check=True)
    until(lambda: record_of(folder, 0) is not None)
    assert record_of(folder, 0).status == "interrupted", output_of(folder.path)
    until(lambda: all((found := record_of(folder, n)) and found.status == "finished" for n in (0, 1)))
    record = record_of(folder, 0)
    assert (record.attempt, record.task) == (2, job)
    assert record_of(folder, 1).attempt == 1
    assert stored(folder, 0)[1] == stored(folder, 1)[1]
    assert "the task is requeued (1 of 1)" in output_of(folder.path)
