"""The machine that executes tasks of Slurm goes down, and comes back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest
from arsenai.execution.folders import markers, statuses
from arsenai.execution.slurm_cluster import needs_slurm, output_of
from faults.batch import make_batch, recorded
from support.waiting import until

from palaestrai_mosaik.cli.arsenai import main

SERVICE = str(Path(__file__).parents[1] / "services" / "slurm.sh")


@pytest.fixture
def own_slurm(monkeypatch):
    above = Path(tempfile.mkdtemp(prefix="slurm-"))
    # its daemons are not all of one user
    above.chmod(0o755)
    called = [SERVICE, "up", str(above / "slurm"), "--set", "SlurmdTimeout=5"]
    printed = subprocess.run(called, stdout=subprocess.PIPE, text=True, check=True).stdout
    monkeypatch.setenv("SLURM_CONF", printed.strip())
    yield above / "slurm"
    subprocess.run([SERVICE, "down", str(above / "slurm")], check=True)
    above.rmdir()


def power_cut(slurm, marker):
    """Kill what the machine of the node would have taken with it: slurmd, and the step of a run that goes on."""
    steps = [one for one in psutil.Process(marker.pid).parents() if "slurmstepd" in one.name()]
    doomed = [process for step in steps for process in (step, *step.children(recursive=True))]
    assert doomed
    for pid in (int((slurm / "run" / "slurmd.pid").read_text()), *(process.pid for process in doomed)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@needs_slurm
def test_a_node_that_goes_down_costs_the_runs_it_was_at(tmp_path, own_slurm, undisturbed):
    folder = make_batch(tmp_path / "f", seconds=0.1)
    path = str(folder.path)
    # one task after the other: the first one is hit, the second one waits
    assert main(["submit", path, "--runs-per-task", "2", "--throttle", "1"]) == 0
    going_on = until(lambda: markers(folder.path))
    power_cut(own_slurm, *going_on.values())
    until(lambda: "node failed" in statuses(folder.path))
    # what waited is not submitted again, what was hit is
    assert statuses(folder.path)[2] == "queued"
    subprocess.run([SERVICE, "restart", str(own_slurm)], check=True)
    assert main(["resume", path]) == 0
    until(lambda: set(statuses(folder.path)) == {"finished"})
    assert main(["collect", path, "--quiet"]) == 0
    assert recorded(folder) == recorded(undisturbed()), output_of(folder.path)
