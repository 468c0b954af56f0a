"""The specification's documents run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.documents import agent, document, environment, named, phase

from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.experiment import load
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted((ROOT / "tests" / "data" / "documents").glob("*.yml"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.stem)
def test_a_document_of_the_specification_runs_verbatim(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    with Store(create=True) as store:
        if path.stem == "agent_evaluation":
            # it replays what an agent of another run has done
            teacher = agent("TD3", 2, 2)
            execute(document(phase([environment(discrete=False)], [teacher]), uid="yesterday"), store=store)
        result = execute(load(path), store=store)
        assert store.runs().iloc[-1]["status"] == "finished"
        assert len(store.steps(result.instance)) > 0


class Doubling(Muscle):
    """Sets each actuator to twice the reading, by objects or by vectors."""

    def __init__(self, by):
        self.by = by

    def propose_actions(self, sensors, actuators_available):
        if self.by == "vectors":
            actuators_available.vector = 2 * sensors.vector
        else:
            for sensor, actuator in zip(sensors, actuators_available, strict=True):
                actuator.value = int(2 * sensor.value)
        return actuators_available, None


@pytest.mark.parametrize("by", ["objects", "vectors"])
def test_a_muscle_reads_and_sets_objects_or_vectors(by, tmp_path):
    doubling = agent("a", 0, 3, brain=None, muscle=named(f"{__name__}:Doubling", by=by))
    with Store(tmp_path, create=True) as store:
        execute(document(phase(agents=[doubling])), store=store)
        steps = store.steps("latest", agent="a")
    assert len(steps) == 10
    for i in range(3):
        assert (steps[f"setpoint.myenv.{i}"] == 2 * steps[f"reading.myenv.{i}"]).all()
    assert steps["setpoint.myenv.0"].nunique() > 5


def test_the_example_goes_as_palaestrai_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    with Store(create=True) as store:
        result = execute(load(ROOT / "tests" / "data" / "documents" / "dummy.yml"), store=store)
        assert [phase.name for phase in result.phases] == ["phase_0", "phase_1"]
        assert [(phase.episodes, phase.steps) for phase in result.phases] == [(1, 10), (1, 10)]
        states = store.environment_states("latest", phase="phase_0")
        # the transformer counts the states that it is given: the first one and ten steps
        assert states["state"].tolist()[-1] == {"count": 11}
        assert any("3.4" in text for text in store.warnings("latest")["text"])
    assert len(list((tmp_path / "custom").rglob("brain.bin"))) == 2
