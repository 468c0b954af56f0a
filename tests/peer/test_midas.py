"""A scenario of MIDAS, with data of its user's own, runs as it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.waiting import HANG

from palaestrai_mosaik.store import Store

pytest.importorskip("palaestrai")
pytest.importorskip("midas_palaestrai")

TESTS = Path(__file__).parents[1]
SCENARIO = """
small_grid:
  modules: [powergrid, powerseries]
  start_date: 2009-01-01 00:00:00+0100
  end: 1*24*60*60
  step_size: 15*60
  silent: true
  powergrid_params:
    four_bus: {gridfile: simple_four_bus_system}
  powerseries_params:
    four_bus:
      data_path: .
      filename: loads.csv
      active_mapping: {2: [[house, 1.0]], 3: [[house, 0.5]]}
"""
DOCUMENT = """
uid: midas
seed: 5
version: "3.5"
schedule:
  - day:
      environments:
        - environment:
            name: palaestrai_mosaik:MosaikEnvironment
            uid: grid
            params:
              module: midas_palaestrai.descriptor:Descriptor
              description_func: describe
              instance_func: get_world
              arl_sync_freq: 900
              end: 3*900
              start_date: 2009-01-01 00:00:00+0100
              silent: true
              params: {name: small_grid, config: scenario.yml, skip_download: true, end: 3*900}
          reward: {name: "midas_palaestrai.rewards:GridHealthReward", params: {}}
      agents:
        - name: agent
          muscle: {name: "support.noting_muscle:NotingMuscle", params: {file: seen.jsonl, values: [1, 1, 0]}}
          objective: {name: "midas_palaestrai.voltage_mse_objective:VoltageMSEObjective", params: {}}
          sensors: [grid.Powergrid-0.0-bus-2.p_mw, grid.Powergrid-0.0-bus-3.p_mw, "grid.Powergrid-0.0-bus-[23].vm_pu"]
          actuators: [grid.Powergrid-0.0-line-0.in_service]
      simulation:
        name: palaestrai.simulation:Vanilla
        conditions: [{name: "palaestrai.experiment:EnvironmentTerminationCondition"}]
      phase_config: {mode: train, worker: 1, episodes: 1}
run_config:
  condition: {name: "palaestrai.experiment:VanillaRunGovernorTerminationCondition"}
"""


def test_a_midas_grid_with_its_own_reward(tmp_path: Path) -> None:
    house = [0.01, 0.02, 0.005, 0.015]
    (tmp_path / "loads.csv").write_text("\n".join(["house", *map(str, house)]), encoding="utf-8")
    (tmp_path / "scenario.yml").write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "run.yml").write_text(DOCUMENT, encoding="utf-8")
    # MIDAS keeps its settings in the home
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
    }
    command = [sys.executable, "-m", "palaestrai_mosaik", "start", "run.yml", "--store", "s"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen: list[dict[str, Any]] = [
        json.loads(line) for line in (tmp_path / "seen.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    # of the scenario's grid, bus 2 and 3 also have 20 and 15 kW of generation
    for row, load in zip(seen, house[:3], strict=True):
        assert row["grid.Powergrid-0.0-bus-2.p_mw"] == pytest.approx(load - 0.02, abs=1e-6)
        assert row["grid.Powergrid-0.0-bus-3.p_mw"] == pytest.approx(load / 2 - 0.015, abs=1e-6)
    voltages = [[value for uid, value in row.items() if uid.endswith("vm_pu")] for row in seen]
    # the more load, the lower the voltage; and the objective is the mean of minus the mean squared deviation
    assert voltages[1] < voltages[0] < voltages[2]
    (told,) = re.findall(r"agent (-[0-9.e-]+)$", done.stdout, re.MULTILINE)
    deviations = [sum((v - 1) ** 2 for v in row) / 2 for row in voltages]
    assert float(told) == pytest.approx(-sum(deviations) / 3, rel=1e-3)
    with Store(tmp_path / "s", create=True) as store:
        steps = store.steps("latest", "day", "agent")
    rewards = steps[[column for column in steps if "reward" in column]]
    assert len(rewards) == 3 and rewards.shape[1] >= 1
    assert np.isfinite(rewards.to_numpy(dtype=float)).all()
