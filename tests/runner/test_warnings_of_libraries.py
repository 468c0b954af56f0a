"""Warnings of libraries are printed once for each command, and all of them are in the log of the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.documents import WALK

from palaestrai_mosaik.store import Store

ROOT = Path(__file__).parents[2]
MODULE = """
import logging
import warnings

from palaestrai_mosaik.agent.library.random_agent import RandomMuscle


class Noisy(RandomMuscle):
    def setup(self):
        super().setup()
        warnings.warn("a truncated mini-batch of size 36")

    def propose_actions(self, sensors, actuators_available):
        logging.getLogger("library").warning("no convergence at %.3f", -1.5e-3 * sensors[0].value)
        return super().propose_actions(sensors, actuators_available)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_warning_is_printed_once_with_its_number(workers: int, tmp_path: Path) -> None:
    (tmp_path / "noisy_library.py").write_text(MODULE)
    document = yaml.safe_load(WALK)
    phase = document["schedule"]["train"]
    phase["agents"][0]["muscle"] = {"name": "noisy_library:Noisy", "params": {}}
    phase["phase_config"] = {"episodes": 2, "workers": workers}
    (tmp_path / "noisy.yml").write_text(yaml.safe_dump(document))
    # in a process of its own, as pytest takes all logs of this one
    command = [sys.executable, "-m", "palaestrai_mosaik", "start", "noisy.yml", "--store", "results", "-q"]
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    with Store(tmp_path / "results", read_only=True) as store:
        steps = int(store.runs()["steps"].sum())
        log = (store.instance_directory(store.find_run("latest")) / "log.txt").read_text()
    err = done.stderr.splitlines()
    assert len([line for line in err if "no convergence" in line]) == 2, err
    assert [
        line for line in err if line.startswith("no convergence") and line.endswith(f"({steps:,} times)")
    ], err
    assert len([line for line in log.splitlines() if "no convergence" in line]) == steps
    warned = [line for line in err if line.startswith("a truncated mini-batch of size 36 (UserWarning, ")]
    assert 1 <= len(warned) <= 2
    assert "py.warnings: a truncated mini-batch of size 36" in log
