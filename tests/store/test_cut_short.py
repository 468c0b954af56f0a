"""Episodes that were cut short, as the run failed or was interrupted in them, are recorded and do not count as done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.documents import agent, document, environment, named, phase

import palaestrai_mosaik as pm
from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.resources import Source
from tests.support.records import begin, begin_phase

FAILING = """
from palaestrai_mosaik.agent.library.dummy import DummyMuscle


class Failing(DummyMuscle):
    calls = 0

    def propose_actions(self, sensors, actuators_available):
        self.calls += 1
        if self.calls == 8:  # (an episode has three steps)
            raise ValueError("in the third episode")
        return super().propose_actions(sensors, actuators_available)
"""


@pytest.mark.parametrize("ended_by", ["failed", "interrupted"])
def test_an_episode_that_was_cut_short_does_not_count(store: Store, ended_by: str) -> None:
    run = begin(store)
    recorded = begin_phase(run)
    for episode, told in enumerate(("two steps", "two steps", ended_by)):
        recorded.episode(
            *(0, episode),
            **{"steps": 2, "ticks": 2, "ended_by": told, "flow": "RESET", "duration": 0.1, "agents": {}},
        )
    recorded.finish(ended_by)
    run.finish("failed")
    assert store.runs().loc[0, ["episodes", "steps"]].tolist() == [2, 6]
    assert store.phases(run.uid)["episodes_done"].tolist() == [2]
    rows = store.run_rows()
    assert rows.loc[0, ["episodes", "steps"]].tolist() == [2, 6]
    # what it was, is there
    assert store.episodes(run.uid)["ended_by"].tolist() == ["two steps", "two steps", ended_by]


def test_a_run_that_fails_in_its_third_episode_has_done_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("failing_muscle.py").write_text(FAILING, encoding="utf-8")
    told: dict[str, Any] = document(
        phase(
            [environment(max_iter=3)],
            [agent("a", muscle=named("failing_muscle:Failing"))],
            mode="test",
            episodes=3,
        )
    )
    with pytest.raises((PalaestraiMosaikError, ValueError), match="in the third episode"):
        pm.run(told, store="results", quiet=True)
    with Store("results", read_only=True) as store:
        assert store.runs()["episodes"].tolist() == [2]
        assert store.phases("latest")["episodes_done"].tolist() == [2]
        listed: Any = get(Source(store), "runs")
        assert (list(listed["episodes"]), list(listed["episodes_planned"])) == ([2], [3.0])
        assert len(store.episodes("latest")) == 3
