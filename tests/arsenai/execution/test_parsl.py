"""Runs on pilot jobs of a real Parsl, on this machine and as jobs of a real Slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from arsenai.execution.folders import drive, make_folder, markers, statuses
from arsenai.execution.slurm_cluster import needs_slurm, slurm_jobs  # noqa: F401
from support.learning import digests
from support.processes import Program, children
from support.waiting import HANG, meanwhile, until

from palaestrai_mosaik.arsenai.design.folder import RESULTS
from palaestrai_mosaik.arsenai.execution import (
    FolderProgress,
    RunStatus,
    Settings,
    StoreLocation,
    job_records,
    run_folder,
)
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submissions
from palaestrai_mosaik.arsenai.execution.job import Marker
from palaestrai_mosaik.arsenai.execution.runs import make_executor
from palaestrai_mosaik.arsenai.execution.settings import ParslSettings
from palaestrai_mosaik.core.errors import ExecutionError, SchedulerError

pytest.importorskip("parsl")
zmq = pytest.importorskip("zmq")
FINISHED, FAILED, INTERRUPTED = RunStatus.FINISHED, RunStatus.FAILED, RunStatus.INTERRUPTED


def on_pilots(**parsl):
    return Settings(executor="parsl", parsl=ParslSettings(**{"workers": 2, **parsl}))


def recorded(folder):
    """Return the digests of every finished run in the folder's results, by document."""
    with StoreLocation.of(folder.path / RESULTS).open() as store:
        table = store.runs()
        finished = table[table["status"] == "finished"][["run", "document"]].to_numpy().tolist()
        return {run: digests(store, instance) for instance, run in finished}


def attempts(folder):
    return [record.attempt for record in job_records(folder).values()]


def worker_of(marker):
    """Return the worker of the pilot that executes a run: its run's process was forked by its server."""
    server = psutil.Process(marker.pid).parent()
    return server.parent()


def processes_of(submission):
    """Return the processes on this host that belong to the pilots of a submission."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(submission.name in word for word in process.cmdline()):
                found.append(process)
    return found


def attempt_of(folder, run, attempt):
    """Wait until this attempt at a run is at work, and return its marker."""

    def found():
        marker = markers(folder.path).get(run)
        return marker if marker is not None and marker.attempt == attempt else None

    return until(found)


class Killing:
    """Kills, ``times`` times, the worker that executes a run that hangs; opens the gate for the next attempt."""

    def __init__(self, folder, run, gate, times=1):
        self.folder, self.uid, self.gate, self.times = folder, run, gate, times
        self.pids = []

    def __call__(self):
        for attempt in range(1, self.times + 1):
            marker = attempt_of(self.folder, self.uid, attempt)
            self.pids.append(marker.pid)
            worker_of(marker).kill()
        if self.gate is not None:
            self.pids.append(attempt_of(self.folder, self.uid, self.times + 1).pid)
            self.gate.touch()


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """A folder executed by two workers, of which one was killed in the middle of the third run."""
    path = tmp_path_factory.mktemp("parsl")
    gate = path / "gate"
    folder = make_folder(path / "f", ["slow", "raise", "hang", "slow", "slow"], gate=str(gate))
    killing = Killing(folder, folder.runs[2].uid, gate)
    before, here = threading.active_count(), os.getcwd()
    processes = children()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    os.chdir(path)
    try:
        with meanwhile(killing):
            summary = run_folder(folder, settings=on_pilots())
    finally:
        os.chdir(here)
    assert threading.active_count() == before, "threads are left"
    assert children() <= processes, "processes are left"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    return folder, summary, killing


def test_only_the_run_of_a_killed_worker_is_executed_again(executed):
    folder, summary, killing = executed
    assert summary.ended == {FINISHED: 4, FAILED: 1}
    assert statuses(folder.path) == ["finished", "failed", "finished", "finished", "finished"]
    assert attempts(folder) == [1, 1, 2, 1, 1]
    (failed,) = summary.failures
    assert "number 1 has had enough" in failed.error
    assert not any(psutil.pid_exists(pid) for pid in killing.pids)
    known = Submissions(folder.path)
    assert [(s.executor, s.tasks, s.runs) for s in known.all()] == [("parsl", 5, 5)]
    # each try has a name of its own, so the second did not take over from a first that was at work
    (name,) = {record.task.rpartition(":")[0] for record in job_records(folder).values()}
    tasks = [record.task.rpartition(":")[2] for record in job_records(folder).values()]
    assert (name, tasks) == (known.read(1).name, ["0.1", "1.1", "2.2", "3.1", "4.1"])


def test_results_are_those_of_local_processes(executed, tmp_path):
    folder, _, killing = executed
    local = make_folder(tmp_path / "f", ["slow", "raise", "hang", "slow", "slow"], gate=str(killing.gate))
    run_folder(local, settings=Settings(jobs=2))
    assert len(recorded(folder)) == 4
    assert recorded(folder) == recorded(local)


def test_nothing_of_the_pilots_is_left(executed):
    folder, _, _ = executed
    submission = Submissions(folder.path).read(1)
    assert processes_of(submission) == []
    assert sorted(os.listdir(folder.path.parent)) == ["f", "gate"], "files in the working directory"
    logs = folder.path / "submissions" / "0001" / "parsl"
    assert list(logs.rglob("*.log")), "the logs of the pilots stay"
    assert not list(logs.rglob("*.key*")), "their keys do not"


def test_keys_of_pilots_are_their_users_alone(tmp_path):
    """Parsl makes them; a release that lets others read them is not for shared machines."""
    from parsl.curvezmq import create_certificates

    before = os.umask(0)
    try:
        keys = Path(create_certificates(tmp_path))
    finally:
        os.umask(before)
    assert list(keys.iterdir())
    assert keys.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (
            {"provider": "local", "options": {"cmd_timeut": 3}},
            "has no 'cmd_timeut'.*did you mean 'cmd_timeout'",
        ),
        (
            {"provider": "local", "options": {"cmd_timeout": 3, "max_blocks": 2}},
            "set by the key 'max_blocks'",
        ),
        ({"provider": "local", "partition": "fast"}, "'local' of Parsl takes no partition"),
        ({"provider": "condor", "nodes": 2}, "several nodes of 'condor'"),
        ({"provider": "slurm", "options": {"launcher": "SrunLancher"}}, "did you mean 'SrunLauncher'"),
        ({"provider": "slurm", "options": {"mem_per_node": "much"}}, "SlurmProvider does not take this"),
    ],
)
def test_settings_that_parsl_does_not_take_are_refused_before_anything_begins(tmp_path, settings, error):
    folder = make_folder(tmp_path / "f", ["well", "well"])
    with pytest.raises(ExecutionError, match=error):
        run_folder(folder, settings=on_pilots(**settings))
    assert Submissions(folder.path).numbers() == []


def test_a_path_that_a_shell_would_take_apart_is_refused(tmp_path):
    folder = make_folder(tmp_path / "f $(touch x)", ["well", "well"])
    with pytest.raises(ExecutionError, match=r"cannot work with the path .*\$\(touch x\)"):
        run_folder(folder, settings=on_pilots())


def test_without_parsl_it_says_what_to_install(tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "f", ["well", "well"])
    for name in [name for name in sys.modules if name.partition(".")[0] == "parsl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "palaestrai_mosaik.arsenai.execution.cluster.pilots", raising=False)
    monkeypatch.setitem(sys.modules, "parsl", None)
    with pytest.raises(ExecutionError, match=r"pip install -e .*\[parsl\]"):
        run_folder(folder, settings=on_pilots())


def test_a_pilot_ends_without_a_driver_though_its_interchange_never_knew_it(tmp_path):
    """This interchange answers the probe of its address, and falls silent: Parsl would wait forever."""
    alive = tmp_path / "stop"
    alive.touch()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as interchange:
        interchange.setsockopt(zmq.LINGER, 0)
        port = interchange.bind_to_random_port("tcp://127.0.0.1")
        call = [sys.executable, "-m", "palaestrai_mosaik.cli.pilot", str(alive), "1.5", "-a", "127.0.0.1"]
        call += [f"--port={port}", "--cert_dir=None", f"--logdir={tmp_path}", "--block_id=0", "-m", "None"]
        call += ["-c", "0.01", "--max_workers_per_node=1", "--drain_period=None", "--cpu-affinity", "none"]
        with Program(call, stderr=subprocess.PIPE, text=True) as pilot:
            # what is touched lives
            end, asked, silent = time.monotonic() + HANG, 0, 0.0
            while asked < 2 or time.monotonic() < silent + 2.5:
                os.utime(alive)
                if interchange.poll(50):
                    who, asked = interchange.recv_multipart()[0], asked + 1
                    if asked == 1:
                        interchange.send_multipart([who, b"here"])
                    silent = time.monotonic()
                assert time.monotonic() < end and pilot.poll() is None
            started = psutil.Process(pilot.pid).children(recursive=True)
            _, said = pilot.communicate(timeout=HANG)
        assert pilot.returncode == 1
        assert f"nobody has touched {alive} for 1.5 s" in said
        assert started and psutil.wait_procs(started, HANG)[1] == []


def test_pilots_that_never_work_are_given_up(tmp_path):
    folder = make_folder(tmp_path / "f", ["well", "well"])
    with pytest.raises(SchedulerError, match=r"(?s)3 pilots ended one after the other.*no such luck"):
        run_folder(folder, settings=on_pilots(prologue=("echo no such luck >&2", "exit 3")))
    assert statuses(folder.path) == ["waiting", "waiting"]
    assert processes_of(Submissions(folder.path).read(1)) == []


def test_a_pilot_may_take_its_time_to_come_where_it_has_more_workers_than_there_are_runs(tmp_path):
    folder = make_folder(tmp_path / "f", ["well", "well"])
    summary = run_folder(folder, rows={0}, settings=on_pilots(prologue=("sleep 4",), workers=3))
    assert summary.ended == {FINISHED: 1}
    pilots = list(folder.path.glob("submissions/0001/parsl/*/submit_scripts/*.sh"))
    assert len(pilots) == 1


def test_a_run_whose_worker_dies_again_and_again_has_failed(tmp_path):
    """Its two neighbours in the task are executed nevertheless."""
    folder = make_folder(tmp_path / "f", ["slow", "hang", "slow"])
    killing = Killing(folder, folder.runs[1].uid, None, times=2)
    with meanwhile(killing):
        summary = run_folder(folder, settings=on_pilots(retries=1, runs_per_task=3, workers=1))
    assert summary.ended == {FINISHED: 2, FAILED: 1}
    assert attempts(folder) == [1, 2, 1]
    (failed,) = summary.failures
    assert failed.error.startswith("its worker died or failed, also at try 2 (")
    assert failed.instance is not None


def test_a_pilot_that_is_killed_is_followed_by_another(tmp_path):
    gate = tmp_path / "gate"
    folder = make_folder(tmp_path / "f", ["slow", "hang", "slow"], gate=str(gate))
    killed = []

    def kill():
        marker = until(lambda: markers(folder.path).get(folder.runs[1].uid))
        pilot = worker_of(marker).parent()
        killed.append(pilot.pid)
        os.killpg(os.getpgid(pilot.pid), signal.SIGKILL)
        # the run must not get through before it has noticed
        until(lambda: markers(folder.path).get(folder.runs[1].uid) != marker)
        gate.touch()

    with meanwhile(kill):
        summary = run_folder(folder, settings=on_pilots(workers=1))
    assert summary.ended == {FINISHED: 3}
    assert attempts(folder) == [1, 2, 1]
    submission = Submissions(folder.path).read(1)
    logs = folder.path / "submissions" / "0001" / "parsl" / "000" / submission.name
    assert len(list(logs.glob("block-*"))) == 2


def test_after_ctrl_c_runs_that_are_at_work_are_interrupted_and_no_other_begins(tmp_path):
    folder = make_folder(tmp_path / "f", ["slow", "slow", "slow", "slow"], steps=2000)
    executor_settings = on_pilots()
    told = []

    class Telling(FolderProgress):
        def wait(self):
            told.append(True)

    def interrupt():
        until(lambda: len(markers(folder.path)) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    with meanwhile(interrupt):
        summary = run_folder(folder, settings=executor_settings, progress=Telling())
    assert told and summary.interrupted
    assert summary.ended == {INTERRUPTED: 2} and summary.not_begun == 2
    assert statuses(folder.path) == ["interrupted", "interrupted", "waiting", "waiting"]
    assert processes_of(Submissions(folder.path).read(1)) == []
    assert markers(folder.path) == {}


def test_who_leaves_the_iteration_leaves_nothing_behind(tmp_path):
    folder = make_folder(tmp_path / "f", ["well", "hang", "hang"])
    executor = make_executor(on_pilots(), folder)
    submissions = Submissions(folder.path)
    from palaestrai_mosaik.arsenai.execution.runs import _job
    from palaestrai_mosaik.arsenai.execution.status import run_states

    jobs = [_job(folder, state, None, own_store=True) for state in run_states(folder, None).runs]
    (folder.path / "jobs").mkdir()
    records = executor.run(jobs)
    assert next(records).status == "finished"
    records.close()
    assert processes_of(submissions.read(1)) == []
    assert not any(Marker.read(path).alive for path in (folder.path / "jobs").glob("*.running"))


def test_after_the_death_of_the_driver_its_pilots_end_and_resume_goes_on(tmp_path):
    gate = tmp_path / "gate"
    folder = make_folder(
        tmp_path / "f",
        ["slow", "hang", "hang", "slow"],
        gate=str(gate),
        executor="parsl",
        parsl={"workers": 2},
    )
    driver = drive(folder.path)
    until(lambda: len(markers(folder.path)) == 2 and len(job_records(folder)) == 1)
    submission = Submissions(folder.path).read(1)
    driver.kill()
    driver.communicate()
    # the runs are told at once, the pilots miss the interchange
    until(lambda: not markers(folder.path))
    until(lambda: not processes_of(submission))
    gate.touch()
    resumed = drive(folder.path, command="resume")
    out, err = resumed.communicate(timeout=HANG)
    assert resumed.returncode == 0, out + err
    assert statuses(folder.path) == ["finished"] * 4
    assert attempts(folder) == [1, 2, 2, 1]
    assert "parsl" not in err.lower()


@needs_slurm
def test_pilots_are_jobs_of_slurm(slurm_jobs, tmp_path):  # noqa: F811
    gate = tmp_path / "gate"
    what = ["slow", "raise", "hang", "slow"]
    folder = make_folder(tmp_path / "f", what, gate=str(gate))
    killing = Killing(folder, folder.runs[2].uid, gate)
    parsl = {"provider": "slurm", "walltime": "00:05:00", "directives": ("--mem=2000",)}
    with meanwhile(killing):
        summary = run_folder(folder, settings=on_pilots(**parsl))
    assert summary.ended == {FINISHED: 3, FAILED: 1}
    assert attempts(folder) == [1, 1, 2, 1]
    local = make_folder(tmp_path / "local", what, gate=str(gate))
    run_folder(local, settings=Settings(jobs=2))
    assert recorded(folder) == recorded(local)
    name = Submissions(folder.path).read(1).name
    asked = ["squeue", "--noheader", "--format=%j %t"]
    listed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert not [line for line in listed.splitlines() if name in line and not line.endswith("CG")]
