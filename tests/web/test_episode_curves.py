"""The page and the figures show the same curves of episodes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.plot.series import episode_panels
from palaestrai_mosaik.store import AgentRecord, BodyChoice, BodyRecord, EnvironmentRecord, Store
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.resources import Source
from tests.support.records import one_body

#: number of the phase, worker and the objectives of its episodes, each with one step
SOLO = {
    (0, 0): [1.0, 2.0, math.nan, 4.0],
    (0, 1): [3.0, math.nan, math.nan],
    (1, 0): [5.0, 6.0],
}
#: the objectives of the swarm's bodies, in the episodes of worker 0
SWARM = {0: [[1.0, 3.0], [2.0, math.nan], [math.nan, math.nan], [4.0, 8.0]], 1: [[5.0, 7.0], [9.0, 1.0]]}


def moments(value: float) -> dict[str, float]:
    return dict.fromkeys(("sum", "mean", "min", "max"), value)


def append(phase: Any, agent: str, worker: int, episode: int, body: int, objective: float) -> None:
    stream = phase.agent(agent)
    stream.append(worker, episode, 0, 0, [], [], [], objective, True, False, 0.1, body)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run with two phases, two workers, an agent with one body and one with two; its last episode goes on."""
    swarm = AgentRecord("swarm", bodies=[BodyRecord(count=2, environment="e")])
    with Store(tmp_path_factory.mktemp("curves"), create=True) as opened:
        run = opened.begin_run(uid="run", document={}, text="", hash="h", seed=1, version="3.5")
        for number in (0, 1):
            phase = run.begin_phase(
                *(number, f"phase {number}"),
                mode="train",
                workers=2,
                episodes=4,
                controller="Vanilla",
                environments=[EnvironmentRecord("e", "E", incarnations=2)],
                agents=[one_body("solo"), swarm],
            )
            for (of, worker), objectives in SOLO.items():
                for episode, value in enumerate(objectives if of == number else []):
                    bodies = SWARM[number][episode]
                    append(phase, "solo", worker, episode, 0, value)
                    for body, objective in enumerate(bodies):
                        append(phase, "swarm", worker, episode, body, objective)
                    whole = np.array(bodies)[np.isfinite(bodies)]
                    total = whole.sum() if len(whole) else math.nan
                    phase.episode(
                        *(worker, episode),
                        **{"steps": 1, "ticks": 1, "ended_by": "x", "flow": "RESET", "duration": 0.1},
                        agents={
                            "solo": {"objective": moments(value), "rewards": {}},
                            "swarm": {"objective": moments(total), "rewards": {}},
                        },
                    )
            if number == 1:
                for body in (0, 1):
                    append(phase, "swarm", 0, len(SWARM[1]), body, 100.0)
            phase.mark()
            if number == 0:
                phase.finish("x")
        yield opened


@pytest.mark.parametrize("fold", ["mean", "sum"])
def test_the_page_has_the_curves_of_the_figure(store: Store, fold: str) -> None:
    panels = episode_panels(store, store.find_run("latest"), None, BodyChoice(), fold)
    answer: Any = get(Source(store), "run/latest/curves")
    starts = {0: 0, 1: len(SWARM[0])}
    low, high = ("low", "high") if fold == "mean" else ("sum_low", "sum_high")
    for curve in (curve for panel in panels for curve in panel.curves):
        drawn = dict(zip(curve.x, zip(curve.y, curve.low, curve.high, strict=True), strict=True))
        sent = {
            starts[item["phase"]] + x: values
            for item in answer["curves"]
            if item["agent"] == curve.label
            for x, *values in zip(
                item["x"], item[fold], item.get(low, item[fold]), item.get(high, item[fold]), strict=True
            )
        }

        assert set(sent) == {x for x in drawn if x % 1 == 0}
        for x, values in sent.items():
            assert values == pytest.approx(drawn[x], nan_ok=True), (curve.label, x)
