"""Clocks that are set while runs go on."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import psutil
import pytest
from arsenai.execution.folders import drive, markers, statuses
from faults.batch import make_batch, recorded, results
from faults.parts import DAY, HOUR, ORDER
from support.processes import Program
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.execution import job_records
from palaestrai_mosaik.arsenai.execution.job import Marker
from palaestrai_mosaik.store.process import process_started, still_runs

LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere the start of a process is noted as it was"
)


@LINUX
def test_a_process_lives_whatever_the_clock_says(monkeypatch):
    """The system tells the Unix time of a start as the boot's plus the rest: it moves with the clock."""
    with Program(["sleep", "3600"]) as other:
        mine, unix = process_started(), psutil.Process().create_time()
        stat = Path(f"/proc/{other.pid}/stat").read_text()
        others = int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        assert still_runs(other.pid, others, 0.0)
        boot = psutil.boot_time()
        for jump in (-HOUR, HOUR):
            monkeypatch.setattr(psutil._pslinux, "boot_time", lambda jump=jump: boot + jump)
            assert abs(psutil.Process().create_time() - unix - jump) < 1, "the clock has been set"
            assert still_runs(os.getpid(), mine, 0.0)
            assert still_runs(other.pid, others, 0.0)
            # the number of a process that ended, given to another one since
            assert not still_runs(other.pid, others - jump, 2.0)
            assert not still_runs(other.pid, mine, 2.0)
            marker = Marker("r", "h", 1, socket.gethostname(), os.getpid(), mine, "2020-01-01T00:00:00+00:00")
            assert marker.alive
        other.kill()
        until(lambda: psutil.Process(other.pid).status() == psutil.STATUS_ZOMBIE)
        assert not still_runs(other.pid, others, 0.0)


@LINUX
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_clock_that_jumps_changes_nothing_but_dates(tmp_path, undisturbed, monkeypatch):
    """Back an hour in the midst of one run, forward a day in the midst of the next; monotonic time goes on."""
    folder = make_batch(tmp_path / "f", seconds=0.03)
    library, offset = tmp_path / "clock.so", tmp_path / "offset"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    offset.write_text("0")
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("CLOCK_OFFSET", str(offset))
    order = tmp_path / "order"
    order.write_text(f"train 7 back {offset}\ntrain 7 ahead {offset}")
    monkeypatch.setenv(ORDER, str(order))
    began = time.time()
    with drive(folder.path, "--jobs", "1", "--quiet") as driver:
        for jump in (-HOUR, DAY):
            until(lambda jump=jump: offset.read_text() == str(jump) or driver.poll() is not None)
            assert all(marker.alive for marker in markers(folder.path).values())
        err = driver.communicate(timeout=HANG)[1]
    assert (driver.returncode, err) == (0, ""), err
    assert set(statuses(folder.path)) == {"finished"}
    records = [job_records(folder)[run.uid] for run in folder.documents]
    assert all(0 < record.seconds < HANG for record in records)
    # the clock did jump: back during the first run, forward during the second
    dates = [datetime.fromisoformat(date).timestamp() for r in records for date in (r.started, r.ended)]
    assert dates[1] < began < dates[0]
    assert dates[3] - dates[2] > 20 * HOUR
    with results(folder) as store:
        assert (store.runs()["duration"] >= 0).all()
        assert store.find_run("latest") == records[-1].instance, "the order is that of execution"
    assert recorded(folder) == recorded(undisturbed())
