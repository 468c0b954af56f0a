"""The command that executes a folder: interrupted, killed, started twice."""

from __future__ import annotations

import os
import signal

import psutil
from arsenai.execution.folders import drive, make_folder, markers, statuses
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.execution import job_records


def running(pids):
    """Return those of the processes that have not ended."""
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


def family(driver):
    """Return the ids of the processes that a driver has started, and theirs."""
    return [process.pid for process in psutil.Process(driver.pid).children(recursive=True)]


def test_ctrl_c_leaves_what_resume_goes_on_from(tmp_path):
    folder = make_folder(tmp_path / "f", ["slow", "slow", "well", "well"], steps=30).path
    with drive(folder, "--jobs", "2") as driver:
        until(lambda: len(markers(folder)) == 2)
        started = family(driver)
        # as the terminal does it: to all of the group
        os.killpg(driver.pid, signal.SIGINT)
        out, err = driver.communicate(timeout=HANG)
    assert driver.returncode == 130, err
    assert "Traceback" not in err
    assert "2 interrupted, 2 not begun" in out
    assert f"arsenai resume {folder}" in out
    assert running(started) == []
    assert statuses(folder) == ["interrupted", "interrupted", "waiting", "waiting"]
    records = job_records(DesignFolder.open(folder))
    assert {record.exit_code for record in records.values()} == {130}
    with drive(folder, "--jobs", "2", "--quiet", command="resume") as driver:
        out, err = driver.communicate(timeout=HANG)
    assert (driver.returncode, out, err) == (0, "", "")
    assert set(statuses(folder)) == {"finished"}


def test_a_killed_driver_leaves_what_resume_goes_on_from(tmp_path):
    gate = tmp_path / "gate"
    folder = make_folder(tmp_path / "f", ["hang", "hang", "slow"], gate=str(gate)).path
    with drive(folder, "--jobs", "2") as driver:
        found = until(lambda: markers(folder) if len(markers(folder)) == 2 else None)
        # a second one is refused while the first goes on
        with drive(folder) as second:
            out, err = second.communicate(timeout=HANG)
        assert (second.returncode, out) == (2, "")
        assert f"is being executed by process {driver.pid} on host" in err
        started = family(driver)
        driver.kill()
        os.kill(found["doing-1-r0"].pid, signal.SIGKILL)
        driver.communicate(timeout=HANG)
    assert len(started) == 3
    gate.touch()
    until(lambda: running(started) == [])
    # the one that could has recorded that it was interrupted
    assert statuses(folder) == ["interrupted", "lost", "waiting"]
    with drive(folder, "--quiet", command="resume") as driver:
        out, err = driver.communicate(timeout=HANG)
    assert (driver.returncode, err) == (0, "")
    assert statuses(folder) == ["finished"] * 3


def test_a_run_that_is_killed_from_outside_is_the_only_one_lost(tmp_path):
    gate = tmp_path / "gate"
    folder = make_folder(tmp_path / "f", ["hang", "hang", "slow"], gate=str(gate)).path
    with drive(folder, "--jobs", "2") as driver:
        found = until(lambda: markers(folder) if len(markers(folder)) == 2 else None)
        os.kill(found["doing-1-r0"].pid, signal.SIGKILL)
        gate.touch()
        out, err = driver.communicate(timeout=HANG)
    assert driver.returncode == 1
    assert statuses(folder) == ["finished", "failed", "finished"]
    assert "doing=hang-1" in out
    assert "killed by signal 9, SIGKILL" in out
    assert "jobs/doing-1-r0.log" in out
    assert "3 of 3 runs, 1 failed" in err
