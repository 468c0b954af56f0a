"""A design on a real Slurm, from ``submit`` to what local cores give: the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from arsenai.execution.folders import drive, make_folder, markers, statuses
from arsenai.execution.slurm_cluster import VARIABLE, needs_slurm, output_of, slurm_jobs
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.design.folder import STORES
from palaestrai_mosaik.arsenai.execution import Settings, job_records, run_folder
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submissions
from palaestrai_mosaik.arsenai.execution.settings import SlurmSettings
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.store import Store

pytestmark = needs_slurm

# (a fixture)
__all__ = ["slurm_jobs"]

WHAT = ("well", "raise", "well", "well")


@pytest.fixture
def locally(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "tests")
    folder = make_folder(tmp_path / "local", WHAT)
    run_folder(folder, settings=Settings(jobs=2))
    return folder


def settled(folder):
    return all(status in ("finished", "failed", "lost") for status in statuses(folder.path))


def digests(folder):
    """Return the digests of all streams of the runs that finished, by the document's hash."""
    with Store(folder.path / "results", create=True) as store:
        runs = store.runs()
        finished = runs[runs["status"] == "finished"]
        found = {}
        for run, hash_ in zip(finished["run"], finished["hash"], strict=True):
            marker = store.instance_directory(run) / "complete.json"
            found[hash_] = json.loads(marker.read_text())["digests"]
        return found


def test_what_is_submitted_is_executed_collected_and_the_same_as_locally(
    locally, slurm_jobs, tmp_path, capsys, monkeypatch
):
    folder = make_folder(tmp_path / "cluster design", WHAT)
    path = str(folder.path)
    assert main(["submit", path, "--runs-per-task", "2", "--time", "10"]) == 0
    submitted = capsys.readouterr().out
    assert "submission 1: 4 runs in 2 tasks" in submitted
    # what the cluster has is not submitted twice, nor executed here
    assert main(["submit", path]) == 0
    assert "nothing to submit" in capsys.readouterr().out
    until(lambda: settled(folder))
    assert statuses(folder.path) == ["finished", "failed", "finished", "finished"], output_of(folder.path)

    assert main(["status", path]) == 0
    told = capsys.readouterr().out
    assert "3 finished runs to be collected: arsenai collect" in told
    assert "number 1 has had enough" in told
    assert main(["collect", path, "--quiet"]) == 0
    assert main(["status", path]) == 0
    assert "to be collected" not in capsys.readouterr().out
    assert digests(folder) == digests(locally)

    # only what failed is submitted again, as it was submitted before, and fails again
    assert main(["resume", path]) == 0
    assert "submission 2: 1 run in 1 task" in capsys.readouterr().out
    assert Submissions(folder.path).read(2).settings["runs_per_task"] == 2
    until(lambda: job_records(folder)["doing-1-r0"].attempt == 2 and settled(folder))
    assert statuses(folder.path) == ["finished", "failed", "finished", "finished"]


def test_a_run_command_can_wait_for_slurm_and_collects(locally, slurm_jobs, tmp_path):
    folder = make_folder(tmp_path / "waited", WHAT)
    settings = Settings(executor="slurm", slurm=SlurmSettings(runs_per_task=4))
    summary = run_folder(folder, settings=settings)
    assert (summary.finished, [record.run for record in summary.failures]) == (3, ["doing-1-r0"])
    assert digests(folder) == digests(locally)
    assert (folder.path / STORES / "doing-0-r0").is_dir()
    # nothing is left to do for anybody
    assert run_folder(folder, settings=Settings()).considered == 4


def test_what_a_task_did_not_reach_before_its_time_limit_waits(slurm_jobs, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONPATH", "tests")
    slurm = {"runs_per_task": 3}
    folder = make_folder(tmp_path / "late", ["slow", "well", "well"], steps=400, slurm=slurm)
    with drive(folder.path, "--executor", "slurm") as driver:
        until(lambda: markers(folder.path))
        (array,) = Submissions(folder.path).read(1).arrays
        # as Slurm itself says it before the time limit: to the scripts alone; all runs share one here
        subprocess.run(["scancel", "--batch", "--signal=USR1", f"{array.job}_0"], check=True)
        out, err = driver.communicate(timeout=HANG)
    assert driver.returncode == 1, out + err
    assert statuses(folder.path) == ["interrupted", "waiting", "waiting"], output_of(folder.path)
    assert main(["submit", str(folder.path), "--dry-run"]) == 0
    assert "queue      3 runs" in capsys.readouterr().out


def test_a_task_that_was_told_to_end_before_its_runs_has_not_failed(slurm_jobs, tmp_path, capsys):
    folder = make_folder(tmp_path / "early", ["well", "well"])
    slurm = SlurmSettings(runs_per_task=2, prologue=('kill -s USR1 "$$"',))
    summary = run_folder(folder, settings=Settings(executor="slurm", slurm=slurm))
    assert (summary.failures, summary.not_begun) == ([], 2)
    assert statuses(folder.path) == ["waiting", "waiting"]
    assert main(["status", str(folder.path)]) == 0
    assert "2 runs wait again" in capsys.readouterr().out
    # one that fails before its runs would fail again
    broken = SlurmSettings(runs_per_task=2, prologue=("exit 3",))
    summary = run_folder(folder, settings=Settings(executor="slurm", slurm=broken))
    assert len(summary.failures) == 2
    assert statuses(folder.path) == ["failed", "failed"]


def test_after_a_failure_nothing_more_begins_where_that_is_wanted(slurm_jobs, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "tests")
    folder = make_folder(tmp_path / "fast", ["raise", *["slow"] * 5], steps=30)
    settings = Settings(executor="slurm", fail_fast=True, slurm=SlurmSettings(runs_per_task=1, throttle=1))
    summary = run_folder(folder, settings=settings)
    assert [record.run for record in summary.failures] == ["doing-0-r0"]
    assert summary.not_begun >= 3
    assert statuses(folder.path).count("cancelled") == summary.not_begun


def test_what_does_not_end_is_killed_after_ctrl_c(slurm_jobs, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "tests")
    monkeypatch.setenv("SLURM_CONF", os.environ[VARIABLE])
    folder = make_folder(tmp_path / "stubborn", ["stubborn", "stubborn"])
    with drive(folder.path, "--executor", "slurm", "--rows", "0") as driver:
        until(lambda: markers(folder.path))
        driver.send_signal(signal.SIGINT)
        time.sleep(1.5)
        driver.send_signal(signal.SIGINT)
        _, err = driver.communicate(timeout=HANG)
    assert driver.returncode == 130, err
    assert statuses(folder.path) == ["interrupted", "waiting"]
