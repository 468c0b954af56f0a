"""Warnings of libraries are printed once for each command, and all of them are in the log of the run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from support.documents import WALK

from palaestrai_mosaik.cli import main
from palaestrai_mosaik.core.errors import FINISHED
from palaestrai_mosaik.store import Store

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
def test_a_warning_is_printed_once_with_its_number(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "noisy_library.py").write_text(MODULE)
    document = yaml.safe_load(WALK)
    phase = document["schedule"][0]["train"]
    phase["agents"][0]["muscle"] = {"name": "noisy_library:Noisy", "params": {}}
    phase["phase_config"] = {"episodes": 2, "workers": workers}
    (tmp_path / "noisy.yml").write_text(yaml.safe_dump(document))
    assert main.main(["start", "noisy.yml", "--store", "results", "-q"]) == FINISHED
    sys.modules.pop("noisy_library", None)
    with Store(tmp_path / "results", read_only=True) as store:
        steps = int(store.runs()["steps"].sum())
        log = (store.instance_directory(store.find_run("latest")) / "log.txt").read_text()
    err = capfd.readouterr().err.splitlines()
    assert len([line for line in err if "no convergence" in line]) == 2, err
    assert [
        line for line in err if line.startswith("no convergence") and line.endswith(f"({steps:,} times)")
    ], err
    assert len([line for line in log.splitlines() if "no convergence" in line]) == steps
    warned = [line for line in err if line.startswith("a truncated mini-batch of size 36 (UserWarning, ")]
    assert 1 <= len(warned) <= 2
    assert "py.warnings: a truncated mini-batch of size 36" in log
