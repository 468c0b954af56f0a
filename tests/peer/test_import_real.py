"""Imports of palaestrAI's results beside palaestrAI itself: what it writes is read, what it has learned goes on here."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("palaestrai")

import jsonpickle
import jsonpickle.ext.numpy
from palaestrai.agent import ActuatorInformation, RewardInformation, SensorInformation
from palaestrai.types import Box, Discrete, MultiBinary, MultiDiscrete, Tuple

from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.interop.palaestrai.results.database import informations, numbers, plain
from palaestrai_mosaik.types import Space

DATA = Path(__file__).parents[1] / "data" / "palaestrai-3.5" / "results.db.gz"
BRAIN = """
from pathlib import Path

from palaestrai.agent.dummy_brain import DummyBrain


class Remembering(DummyBrain):
    def load(self):
        super().load()
        Path("loaded.txt").write_text(str(self._dummy_value))
"""
DOCUMENT = """
uid: new
seed: 1
version: "3.5"
schedule:
  - go on:
      environments:
        - environment:
            name: palaestrai.environment.dummy_environment:DummyEnvironment
            uid: myenv
            params: {discrete: true, max_iter: 3}
      agents:
        - name: defender
          load: {experiment_run: evaluated, phase_name: learn}
          brain: {name: "remembering:Remembering", params: {}}
          muscle: {name: "palaestrai.agent.dummy_muscle:DummyMuscle", params: {}}
          objective: {name: "palaestrai.agent.dummy_objective:DummyObjective", params: {params: 1}}
          sensors: [myenv.0]
          actuators: [myenv.0]
      simulation:
        name: palaestrai.simulation:VanillaSimulationController
        conditions: [{name: "palaestrai.simulation:VanillaSimControllerTerminationCondition", params: {}}]
      phase_config: {mode: test, worker: 1, episodes: 1}
run_config:
  condition: {name: "palaestrai.experiment:VanillaRunGovernorTerminationCondition", params: {}}
"""


@pytest.fixture
def pickled() -> None:
    """Let jsonpickle write as palaestrAI's store does."""
    jsonpickle.ext.numpy.register_handlers()


@pytest.mark.usefixtures("pickled")
def test_objects_of_palaestrai_are_read_as_jsonpickle_wrote_them() -> None:
    shared = np.float32(0.25)
    found = [
        SensorInformation(shared, Box(0.0, 1.0, shape=(), dtype=np.float32), "e.scalar"),
        SensorInformation(shared, Box(0.0, 1.0, shape=(), dtype=np.float32), "e.again"),
        ActuatorInformation(np.array([[1.0, 2.0]], dtype=np.float32), Box(0.0, 9.0, shape=(1, 2)), "e.array"),
        ActuatorInformation(np.int64(3), Discrete(5), "e.discrete"),
        SensorInformation(np.array([1, 2]), MultiDiscrete([3, 4]), "e.several"),
        SensorInformation(np.array([0, 1, 1], dtype=np.int8), MultiBinary(3), "e.bits"),
        SensorInformation((2, 1), Tuple([Discrete(3), Discrete(2)]), "e.both"),
        RewardInformation(-1.5, Box(-2.0, 0.0, shape=()), "reward"),
    ]
    read = informations(jsonpickle.dumps(found))
    assert {one.uid: list(numbers(one.value)) for one in read} == {
        "e.scalar": [0.25],
        "e.again": [0.25],
        "e.array": [1.0, 2.0],
        "e.discrete": [3.0],
        "e.several": [1.0, 2.0],
        "e.bits": [0.0, 1.0, 1.0],
        "e.both": [2.0, 1.0],
        "reward": [-1.5],
    }
    for one in read:
        assert Space.from_string(one.space).size == len(list(numbers(one.value)))
    statistics = {"loss": np.float64(0.5), "many": np.arange(30.0), "few": np.array([1, 2]), "t": (1, 2)}
    assert plain(jsonpickle.dumps(statistics)) == {
        "loss": 0.5,
        "many": list(range(30)),
        "few": [1, 2],
        "t": [1, 2],
    }


def test_a_brain_of_an_imported_run_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gzip.open(DATA) as data, open(tmp_path / "old.db", "wb") as file:
        shutil.copyfileobj(data, file)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "remembering.py").write_text(BRAIN, encoding="utf-8")
    (tmp_path / "new.yml").write_text(DOCUMENT, encoding="utf-8")
    assert main(["import", "old.db", "--store", "s"]) == 0
    assert main(["start", "new.yml", "--store", "s", "--quiet"]) == 0
    with closing(sqlite3.connect("old.db")) as connection:
        (state,) = connection.execute(
            """select state from brain_states b join agents a on a.id = agent_id
            join experiment_run_phases p on p.id = a.experiment_run_phase_id
            where p.experiment_run_instance_id = 1 and p.uid = 'learn' and p.mode = 'train' and a.name = 'defender'
            order by b.id desc limit 1"""
        ).fetchone()
    assert (tmp_path / "loaded.txt").read_text() == str(int.from_bytes(state, sys.byteorder))
