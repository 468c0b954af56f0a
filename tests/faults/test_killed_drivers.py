"""The command that executes a batch is killed, or its fork server is, or it is started twice."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from contextlib import closing

import numpy as np
import psutil
from arsenai.execution.folders import drive, markers, statuses
from faults.batch import gone, make_batch, recorded
from support.waiting import HANG, until

from palaestrai_mosaik.cli.arsenai import main

ENDED = {"finished", "interrupted", "failed", "lost"}


def family(driver):
    """Return the processes that a driver has started, and theirs."""
    return psutil.Process(driver.pid).children(recursive=True)


def test_a_killed_driver_and_a_killed_fork_server(tmp_path, undisturbed):
    """Each several times, in the midst of a batch of runs that train; then ``resume`` finishes what is left."""
    folder = make_batch(tmp_path / "f", seconds=0.05)
    rng = np.random.default_rng(1)
    for number in range(4):
        with drive(folder.path, "--jobs", "2", "--quiet", command="resume") as driver:
            until(lambda: markers(folder.path) or driver.poll() is not None)
            time.sleep(rng.uniform(0.0, 1.0))
            started = [] if driver.poll() is not None else family(driver)
            if number % 2:
                driver.kill()
            else:
                for server in psutil.Process(driver.pid).children() if started else []:
                    os.kill(server.pid, signal.SIGKILL)
            _, err = driver.communicate(timeout=HANG)
        if started and not number % 2:
            assert (driver.returncode, "process that starts the runs has ended" in err) == (2, True), err
            assert "Traceback" not in err
        until(lambda started=started: gone(started))
        assert set(statuses(folder.path)) <= ENDED | {"waiting"}
    assert main(["resume", str(folder.path), "--quiet", "--jobs", "2"]) == 0
    assert recorded(folder) == recorded(undisturbed())


def test_runs_of_a_host_that_is_gone_go_on_on_another(tmp_path, undisturbed):
    """The store believes that they still run there; nobody has touched their markers for as long as that takes."""
    folder = make_batch(tmp_path / "f", seconds=0.05)
    with drive(folder.path, "--jobs", "3", "--quiet", "--executor", "local") as driver:
        going_on = until(lambda: len(markers(folder.path)) == 3 and markers(folder.path))
        started = family(driver)
        for process in (psutil.Process(driver.pid), *started):
            process.kill()
        driver.communicate()
    until(lambda: gone(started))
    with closing(sqlite3.connect(folder.path / "results" / "store.db")) as connection, connection:
        connection.execute("UPDATE instances SET host = 'elsewhere'")
    paths = sorted((folder.path / "jobs").glob("*.running"))
    for path in paths:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "elsewhere"}))
    assert statuses(folder.path) == ["running"] * len(going_on), "as far as anybody can tell"
    for path in paths:
        os.utime(path, (0, 0))
    assert statuses(folder.path) == ["lost"] * len(going_on)
    assert main(["resume", str(folder.path), "--quiet", "--jobs", "2"]) == 0
    assert recorded(folder) == recorded(undisturbed())


def test_two_commands_begun_at_once_execute_every_run_once(tmp_path, undisturbed):
    folder = make_batch(tmp_path / "f")
    drivers = [drive(folder.path, "--jobs", "1", "--quiet") for _ in range(2)]
    told = [driver.communicate(timeout=HANG) for driver in drivers]
    codes = [driver.returncode for driver in drivers]
    # the second one comes while the first is at work, or finds nothing left to do
    assert sorted(codes) in ([0, 2], [0, 0]), told
    for code, (_, err) in zip(codes, told, strict=True):
        assert ("is being executed by process" in err) == (code == 2)
    assert recorded(folder) == recorded(undisturbed())


def test_nothing_is_generated_into_a_folder_that_is_executed(tmp_path, undisturbed):
    folder = make_batch(tmp_path / "f", seconds=0.05)
    other = tmp_path / "other.yml"
    other.write_text((folder.path / "design.yml").read_text().replace("seed: 5", "seed: 6", 1))
    with drive(folder.path, "--jobs", "1", "--quiet") as driver:
        until(lambda: markers(folder.path))
        before = (folder.path / "manifest.json").read_bytes()
        assert main(["generate", str(other), "-o", str(folder.path), "--force", "--quiet"]) == 2
        assert (folder.path / "manifest.json").read_bytes() == before
        _, err = driver.communicate(timeout=HANG)
    assert (driver.returncode, err) == (0, "")
    assert recorded(folder) == recorded(undisturbed())
    assert main(["generate", str(other), "-o", str(folder.path), "--force", "--quiet"]) == 0
