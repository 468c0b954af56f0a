"""Agents with many bodies in pictures, curves, outcomes and on the command line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.arsenai.analysis.outcomes import default_outcomes, take
from palaestrai_mosaik.arsenai.design.model import OutcomeSpec
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.plot.learning import LearningChoice, learning_panels
from palaestrai_mosaik.plot.series import (
    body_outcomes,
    episode_panels,
    find_moment,
    objective_panels,
    phases_that_restart,
    time_panels,
)
from palaestrai_mosaik.simulation.conditions import EnvironmentTerminationCondition
from palaestrai_mosaik.store import (
    AgentRecord,
    BodyChoice,
    BodyRecord,
    ChannelRecord,
    EnvironmentRecord,
    Store,
)
from palaestrai_mosaik.types.arrays import AgentRows, EnvironmentRows

LENGTHS = np.array([2, 3])
TICKS = 7
MOMENTS = {"sum": 14.0, "mean": 1.0, "min": 1.0, "max": 1.0}
ALL_ENDS = {"name": "EnvironmentTerminationCondition", "params": {"when": "all"}}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Any:
    """One agent with two bodies whose episodes have 2 and 3 steps, in a phase of 7 ticks.

    The objective of each step is 1, its reward the body's number, its reading 10 times the
    number plus the tick. The last row of each body is that of an episode that was cut.
    """
    channels = {kind: [ChannelRecord(f"e.{{body}}.{kind[0]}", "", 1)] for kind in ("sensors", "actuators")}
    body = BodyRecord(count=2, environment="e", objective="O", rewards=["e.{body}.r"], **channels)
    around = EnvironmentRecord("e", "E", **channels, incarnations=2)
    document = {"schedule": [{"p": {"simulation": {"conditions": [ALL_ENDS]}, "phase_config": {}}}]}
    with Store(tmp_path_factory.mktemp("bodies"), create=True) as opened:
        run = opened.begin_run(uid="run", document=document, text="", hash="h", seed=1, version="3.5")
        phase = run.begin_phase(
            *(0, "p"),
            mode="train",
            workers=1,
            episodes=1,
            controller="Vanilla",
            environments=[around],
            agents=[AgentRecord("a", objective="O", bodies=[body])],
        )
        numbers = np.arange(2, dtype=np.int32)
        for tick in range(TICKS):
            own = (tick // LENGTHS).astype(np.int32)
            ends, never = (tick + 1) % LENGTHS == 0, np.zeros(2, dtype=bool)
            values = (10.0 * numbers + tick)[:, None]
            phase.agent("a").append_rows(
                AgentRows(
                    *(0, 0, np.full(2, tick), np.full(2, tick), numbers, own, values, values),
                    *(numbers[:, None] * 1.0, np.ones(2), ends, ~ends & (tick == TICKS - 1), 0.1),
                )
            )
            phase.environment("e").append_rows(
                EnvironmentRows(0, 0, tick, tick, numbers, own, values, np.empty((2, 0)), ends, never)
            )
        phase.episode(
            *(0, 0),
            steps=TICKS,
            ticks=TICKS,
            ended_by="x",
            flow="RESET",
            duration=0.1,
            agents={"a": {"objective": MOMENTS, "rewards": {"e.{body}.r": MOMENTS}}},
        )
        run.finish("finished")
        yield opened


def test_a_learning_curve_counts_the_episodes_of_the_environments_as_they_end(store):
    """Returns in the order of Gymnasium's vector statistics: at ticks 1, 2, 3 and 5 (two at once)."""
    (panel,) = learning_panels(store, [store.find_run("latest")], LearningChoice(fold="sum"))
    (curve,) = panel.curves
    known = np.isfinite(curve.y)
    assert curve.x[known].tolist() == [0, 1, 2, 3, 4]
    assert curve.y[known].tolist() == [2, 3, 2, 2, 3], "the episode that was cut is none"
    assert panel.x_label == "training episode of the environments"
    second = LearningChoice(bodies=BodyChoice(body=1), fold="sum")
    (curve,) = learning_panels(store, [store.find_run("latest")], second)[0].curves
    assert curve.y[np.isfinite(curve.y)].tolist() == [3, 3]


def test_many_bodies_are_a_mean_and_a_band(store):
    run = store.find_run("latest")
    objective, reward = episode_panels(store, run, None, BodyChoice(), "sum")
    (curve,) = reward.curves
    assert (curve.y.tolist(), curve.low.tolist(), curve.high.tolist()) == ([3.5], [0.0], [7.0])
    assert objective.note == "mean over the bodies; band: lowest to highest"
    moment = find_moment(store, run, None, None)
    (panel,) = time_panels(store, run, moment, BodyChoice(), ["e.*"])
    (curve,) = panel.curves
    ticks = np.arange(TICKS)
    assert curve.x.tolist() == ticks.tolist()
    assert curve.y.tolist() == (5.0 + ticks).tolist()
    assert (curve.low.tolist(), curve.high.tolist()) == (ticks.tolist(), (10.0 + ticks).tolist())
    assert panel.note == "mean over the bodies; band: lowest to highest"
    assert [p.curves[0].low.tolist() for p in objective_panels(store, run, moment, BodyChoice())] == [
        *([1.0] * TICKS, [0.0] * TICKS)
    ]


def test_a_selection_of_bodies_may_spread_over_agents(tmp_path):
    """Agent a has body 0, agent b has bodies 0 to 2: bodies 0 and 2 are two of b and one of a."""
    counts = {"a": 1, "b": 3}
    agents = [
        AgentRecord(name, bodies=[BodyRecord(count=count, environment=name, objective="O")])
        for name, count in counts.items()
    ]
    around = [EnvironmentRecord(name, "E", incarnations=count) for name, count in counts.items()]
    with Store(tmp_path, create=True) as opened:
        run = opened.begin_run(uid="run", document={}, text="", hash="h", seed=1, version="3.5")
        phase = run.begin_phase(
            *(0, "p"),
            mode="train",
            workers=1,
            episodes=1,
            controller="Vanilla",
            environments=around,
            agents=agents,
        )
        for name, count in counts.items():
            numbers, ended = np.arange(count, dtype=np.int32), np.ones(count, dtype=bool)
            nothing, first = np.empty((count, 0)), np.zeros(count, dtype=np.int32)
            phase.agent(name).append_rows(
                AgentRows(
                    *(0, 0, first, first, numbers, first, nothing, nothing, nothing),
                    *(numbers + 1.0, ended, ~ended, 0.1),
                )
            )
        run.finish("finished")
        rows = body_outcomes(opened, "run", None, BodyChoice(body=[0, 2]))
    assert rows is not None
    sums = list(rows[["agent", "body", "sum"]].itertuples(index=False, name=None))
    assert sums == [("a", 0, 1.0), ("b", 0, 1.0), ("b", 2, 3.0)]


def test_one_body_is_a_line(store):
    run = store.find_run("latest")
    one = BodyChoice("a", "e", 1)
    _, reward = episode_panels(store, run, None, one, "sum")
    assert (reward.curves[0].y.tolist(), reward.curves[0].low) == ([7.0], None)
    (panel,) = time_panels(store, run, find_moment(store, run, None, None), one, ["setpoint.*"])
    (curve,) = panel.curves
    assert (curve.y.tolist(), curve.low, panel.note) == ((10.0 + np.arange(TICKS)).tolist(), None, "")


@pytest.mark.parametrize(
    ("of", "step", "value"),
    [
        ("reading.e.{body}.s", "last", 5.0 + TICKS - 1),
        ("reading.e.{body}.s", "max", 10.0 + TICKS - 1),
        ("setpoint.e.{body}.a", "first", 5.0),
        ("reward.e.{body}.r", "median", 0.5),
    ],
)
def test_an_outcome_is_taken_from_all_bodies(store, of, step, value):
    run = store.find_run("latest")
    assert take(store, [run], OutcomeSpec("o", of, step=step)) == {run: value}


def test_bodies_on_the_command_line(store, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PALAESTRAI_MOSAIK_STORE", str(store.directory))
    assert main(["show", "run"]) == 0
    assert "  a: 2 bodies in e (0 to 1)" in capsys.readouterr().out
    assert main(["show", "run", "--body", "1", "--steps", "1"]) == 0
    shown = capsys.readouterr().out
    assert "episodes of bodies in phase 0 'p' (3 episodes)" in shown
    assert shown.count("terminated") == 2, "the third one was cut"
    assert "steps of agent 'a' in phase 0 'p' (7 rows)" in shown
    out = tmp_path / "exported"
    assert main(["export", "run", str(out), "--environment", "e", "--body", "0", "1"]) == 0
    assert (out / "bodies.parquet").is_file()
    assert (out / "trajectories" / "phase-0" / "agent-a-bodies-0.parquet").is_file()
    picture = tmp_path / "x.svg"
    assert main(["plot", "run", "--body", "0", "--sensors", "e.*", "--output", str(picture)]) == 0
    assert picture.is_file()
    capsys.readouterr()
    assert main(["show", "run", "--body", "2"]) == 2
    assert "has no body 2; it has: 0 to 1" in capsys.readouterr().err


class AlwaysAll(EnvironmentTerminationCondition):
    """Waits for all environments without being told."""

    def __init__(self) -> None:
        super().__init__(when="all")


def record_plainly(store: Store, uid: str, count: int, condition: dict[str, Any] | None = None) -> str:
    """Record one episode of 4 ticks: the objective of body k is k + 1, and none in every second tick."""
    document = {"schedule": [{"p": {"simulation": {"conditions": [condition or ALL_ENDS]}}}]}
    run = store.begin_run(uid=uid, document=document, text="", hash=uid, seed=1, version="3.5")
    phase = run.begin_phase(
        *(0, "p"),
        mode="train",
        workers=1,
        episodes=1,
        controller="Vanilla",
        environments=[EnvironmentRecord("e", "E")],
        agents=[
            AgentRecord("a", objective="O", bodies=[BodyRecord(count=count, environment="e", rewards=["r"])])
        ],
    )
    for tick in range(4):
        for body in range(count):
            value = float("nan") if tick % 2 else body + 1.0
            phase.agent("a").append(0, 0, tick, tick, [], [], [1.0], value, False, tick == 3, 0.0, body)
    total = 2.0 * sum(range(1, count + 1))
    told = {"objective": MOMENTS | {"sum": total}, "rewards": {"r": MOMENTS}}
    phase.episode(0, 0, steps=4, ticks=4, ended_by="x", flow="RESET", duration=0.1, agents={"a": told})
    run.finish("finished")
    return run.uid


def test_the_mean_is_that_of_steps_with_a_value(tmp_path):
    with Store(tmp_path, create=True) as store:
        run = record_plainly(store, "gaps", 2)
        told = body_outcomes(store, run, None, BodyChoice()).set_index(["kind", "body"])
        assert told.loc["objective", ["sum", "mean"]].values.tolist() == [[2.0, 1.0], [4.0, 2.0]]
        assert told.loc["reward", ["sum", "mean"]].values.tolist() == [[4.0, 1.0]] * 2
        episodes = store.body_episodes(run, counts=True)
        assert episodes["objective_mean"].tolist() == [1.0, 2.0]
        assert episodes[["objective_count", "reward.r_count"]].values.tolist() == [[2, 4]] * 2


def test_the_outcome_of_a_design_that_names_none_does_not_grow_with_the_number_of_bodies(tmp_path):
    """By hand: bodies 1 and 2 came to 2 and 4 in two steps each, so 3 on average; a sum would be 6."""
    with Store(tmp_path, create=True) as store:
        runs = [record_plainly(store, f"of-{count}", count) for count in (1, 2)]
        (spec,) = default_outcomes(store, runs)
        assert take(store, runs, spec) == dict(zip(runs, [2.0, 3.0], strict=True))
        assert take(store, runs, OutcomeSpec("o", "objective")) == dict(zip(runs, [2.0, 6.0], strict=True))
        assert default_outcomes(store, runs[:1]) == (OutcomeSpec("objective", "objective", better="higher"),)


@pytest.mark.parametrize(
    ("condition", "phases"),
    [
        ({"name": f"{__name__}:AlwaysAll"}, {0}),
        ({"name": "EnvironmentTerminationCondition", "params": {"when": "any"}}, set()),
        ({"name": "not_here:Condition", "params": {"when": "all"}}, {0}),
        ({"name": "MaxEpisodesTerminationCondition"}, set()),
    ],
)
def test_a_condition_says_itself_whether_environments_begin_again(tmp_path, monkeypatch, condition, phases):
    with Store(tmp_path, create=True) as store:
        assert phases_that_restart(store, record_plainly(store, "x", 1, condition)) == phases
