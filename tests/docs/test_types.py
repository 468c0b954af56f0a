"""The agents in the docs, and those that ``palaestrai-mosaik new agent`` writes, are typed: mypy accepts them strictly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import blocks_of

from palaestrai_mosaik.cli.main import main

pytest.importorskip("mypy", reason="mypy is not installed")

ROOT = Path(__file__).parents[2]
#: the modules with agents in the docs, by page
_AGENTS = {
    "own-agent.md": {"bandit.py", "dial.py", "batch_dial.py"},
    "own-mosaik-simulator.md": {"thermostat.py"},
}
#: the fast path: all readings and all set-points as vectors
_FAST = """\
from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.types import ActuatorSetpoints, SensorReadings


class Fast(Muscle):
    def propose_actions(
        self, sensors: SensorReadings, actuators_available: ActuatorSetpoints
    ) -> tuple[ActuatorSetpoints, float]:
        actuators_available.vector = 0.5 * sensors.vector
        return actuators_available, sensors[0].value + len(sensors.vector)
"""
#: what mypy is to find: `vector` is an array, and a muscle returns actuators
_WRONG = _FAST.replace("0.5 * sensors.vector", "'half'").replace(
    "return actuators_available,", "return sensors,"
)


def mypy(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """Check files of a folder strictly, with the package as it is here."""
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", *names],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_own_agents_are_strictly_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = set[str]()
    for page, names in _AGENTS.items():
        for block in blocks_of((ROOT / "docs" / page).read_text(encoding="utf-8")):
            if block.file is not None and block.file in names:
                Path(block.file).write_text(block.text, encoding="utf-8")
                written.add(block.file)
    assert written == set.union(*_AGENTS.values())
    assert main(["new", "agent", "climber", "--quiet"]) == 0
    Path("fast.py").write_text(_FAST, encoding="utf-8")
    Path("wrong.py").write_text(_WRONG, encoding="utf-8")
    ended = mypy(tmp_path, *sorted(written), "climber.py", "fast.py", "wrong.py")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    errors = [line for line in ended.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 2 and all(line.startswith("wrong.py:") for line in errors), ended.stdout
