"""The specification's documents run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.documents import agent, document, environment, phase

from palaestrai_mosaik.experiment import load
from palaestrai_mosaik.run import execute
from palaestrai_mosaik.store import Store

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted((ROOT / "tests" / "data" / "documents").glob("*.yml"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.stem)
def test_a_document_of_the_specification_runs_verbatim(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    with Store() as store:
        if path.stem == "agent_evaluation":
            # it replays what an agent of another run has done
            teacher = agent("TD3", 2, 2)
            execute(document(phase([environment(discrete=False)], [teacher]), uid="yesterday"), store=store)
        result = execute(load(path), store=store)
        assert store.runs().iloc[-1]["status"] == "finished"
        assert len(store.steps(result.instance)) > 0


def test_the_example_goes_as_palaestrai_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    with Store() as store:
        result = execute(load(ROOT / "tests" / "data" / "documents" / "dummy.yml"), store=store)
        assert [phase.name for phase in result.phases] == ["phase_0", "phase_1"]
        assert [(phase.episodes, phase.steps) for phase in result.phases] == [(1, 10), (1, 10)]
        states = store.environment_states("latest", phase="phase_0")
        # the transformer counts the states that it is given: the first one and ten steps
        assert states["state"].tolist()[-1] == {"count": 11}
        assert any("3.4" in text for text in store.warnings("latest")["text"])
    assert len(list((tmp_path / "custom").rglob("brain.bin"))) == 2
