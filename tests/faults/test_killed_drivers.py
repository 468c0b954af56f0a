"""The command that executes a batch is killed, or its fork server is, or it is started twice."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import psutil
import pytest
from execution.folders import drive, markers, statuses, until
from faults.batch import gone, make_batch, recorded

from palaestrai_mosaik.cli.arsenai import main

ENDED = {"finished", "interrupted", "failed", "lost"}


def family(driver):
    """Return the processes that a driver has started, and theirs."""
    return psutil.Process(driver.pid).children(recursive=True)


@pytest.mark.slow
def test_a_killed_driver_and_a_killed_fork_server(tmp_path, undisturbed):
    """Each several times, in the midst of a batch of runs that train; then ``resume`` finishes what is left."""
    folder = make_batch(tmp_path / "f", seconds=0.05)
    rng = np.random.default_rng(1)
    for number in range(8):
        with drive(folder.path, "--jobs", "2", "--quiet", command="resume") as driver:
            until(lambda: markers(folder.path) or driver.poll() is not None)
            time.sleep(rng.uniform(0.0, 1.0))
            started = [] if driver.poll() is not None else family(driver)
            if number % 2:
                driver.kill()
            else:
                for server in psutil.Process(driver.pid).children() if started else []:
                    os.kill(server.pid, signal.SIGKILL)
            _, err = driver.communicate(timeout=60)
        if started and not number % 2:
            assert (driver.returncode, "process that starts the runs has ended" in err) == (2, True), err
            assert "Traceback" not in err
        until(lambda started=started: gone(started))
        assert set(statuses(folder.path)) <= ENDED | {"waiting"}
    assert main(["resume", str(folder.path), "--quiet", "--jobs", "2"]) == 0
    assert recorded(folder) == recorded(undisturbed())


def test_two_commands_begun_at_once_execute_every_run_once(tmp_path, undisturbed):
    folder = make_batch(tmp_path / "f")
    drivers = [drive(folder.path, "--jobs", "1", "--quiet") for _ in range(2)]
    told = [driver.communicate(timeout=120) for driver in drivers]
    codes = [driver.returncode for driver in drivers]
    # the second one comes while the first is at work, or finds nothing left to do
    assert sorted(codes) in ([0, 2], [0, 0]), told
    for code, (_, err) in zip(codes, told, strict=True):
        assert ("is being executed by process" in err) == (code == 2)
    assert recorded(folder) == recorded(undisturbed())


@pytest.mark.slow
def test_nothing_is_generated_into_a_folder_that_is_executed(tmp_path, undisturbed):
    folder = make_batch(tmp_path / "f", seconds=0.05)
    other = tmp_path / "other.yml"
    other.write_text((folder.path / "design.yml").read_text().replace("seed: 5", "seed: 6", 1))
    with drive(folder.path, "--jobs", "1", "--quiet") as driver:
        until(lambda: markers(folder.path))
        before = (folder.path / "manifest.json").read_bytes()
        assert main(["generate", str(other), "-o", str(folder.path), "--force", "--quiet"]) == 2
        assert (folder.path / "manifest.json").read_bytes() == before
        _, err = driver.communicate(timeout=120)
    assert (driver.returncode, err) == (0, "")
    assert recorded(folder) == recorded(undisturbed())
    assert main(["generate", str(other), "-o", str(folder.path), "--force", "--quiet"]) == 0
