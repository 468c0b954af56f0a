"""The query API on a small run whose numbers are known."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError
from tests.support import records

KEYS = ["worker", "episode", "step", "time"]


def test_runs_shows_the_run(store, small_run):
    row = store.runs().iloc[0]
    assert row[["run", "document", "status", "seed", "version", "phases", "episodes", "steps"]].tolist() == [
        *(small_run, "my-run", "finished", 7, "3.5", 1, 2, 6)
    ]
    assert row["started"] <= row["ended"]
    assert row["experiment"] is None
    assert row["error"] is None


def test_experiments_group_runs(store):
    for _ in range(2):
        records.record_small_run(store, experiment_uid="sensitivity")
    assert store.runs()["experiment"].tolist() == ["sensitivity"] * 2


def test_runs_of_some_only(store):
    first, second, third = (records.record_small_run(store) for _ in range(3))
    every = store.runs()
    assert every["run"].tolist() == [first, second, third]
    pd.testing.assert_frame_equal(store.runs(second), every.iloc[[1]].reset_index(drop=True))
    pd.testing.assert_frame_equal(store.runs([third, first]), every.iloc[[0, 2]].reset_index(drop=True))
    assert store.runs("latest")["run"].tolist() == [third]
    assert store.runs([]).empty and store.runs([]).columns.tolist() == every.columns.tolist()
    with pytest.raises(StoreError, match=f"has no run '{second}x' \\(did you mean '{second}'"):
        store.runs(second + "x")


def test_phases_agents_environments_channels(store, small_run):
    phase = store.phases(small_run).iloc[0]
    wanted = [0, "phase_0", "train", 1, 2, 2, "Vanilla", "two episodes"]
    shown = ["phase", "name", "mode", "workers", "episodes", "episodes_done", "controller", "reason"]
    assert phase[shown].tolist() == wanted
    agents = store.agents(small_run)
    assert agents["agent"].tolist() == ["a", "b"]
    assert agents.loc[0, "sensors"] == ["myenv.0", "myenv.1"]
    assert agents.loc[1, ["actuators", "rewards"]].tolist() == [["myenv.0"], ["count"]]
    environment = store.environments(small_run).iloc[0]
    assert environment["params"] == {"max_iter": 3, "limit": float("inf")}
    channels = store.channels(small_run)
    assert channels["kind"].value_counts().to_dict() == {"sensor": 6, "actuator": 3, "reward": 3}
    assert channels.loc[0, ["environment", "agent", "uid", "size"]].tolist() == ["myenv", None, "myenv.0", 1]
    assert channels.loc[0, "space"].startswith("Box(")


def test_episodes_and_outcomes(store, small_run):
    frame = store.episodes(small_run)
    assert frame[["episode", "agent"]].to_numpy().tolist() == [[0, "a"], [0, "b"], [1, "a"], [1, "b"]]
    row = frame.iloc[3]
    assert row[["steps", "ticks", "ended_by", "flow", "duration"]].tolist() == [
        *(3, 2, "EnvironmentTerminationCondition", "RESET", 0.25)
    ]
    # objectives 0, 1, 3 and rewards 0, 1, 2
    assert row[["objective_sum", "objective_mean", "objective_max"]].tolist() == [4.0, 4 / 3, 3.0]
    assert row[["reward.count_sum", "reward.count_min", "reward.count_max"]].tolist() == [3.0, 0.0, 2.0]
    outcomes = store.outcomes(small_run, agent="b")
    assert outcomes[["episode", "kind", "name", "sum"]].to_numpy().tolist() == [
        *([0, "objective", "", 4.0], [0, "reward", "count", 3.0]),
        *([1, "objective", "", 4.0], [1, "reward", "count", 3.0]),
    ]
    assert len(store.episodes(small_run, "phase_0", "a")) == 2


def test_an_episode_without_agents_and_not_a_number(store):
    run = records.begin(store)
    phase = records.begin_phase(run)
    end = {"steps": 1, "ticks": 1, "ended_by": "x", "flow": "RESET", "duration": 0.0}
    phase.episode(0, 0, **end, agents={})
    values = {"objective": records.moments(float("nan"), float("inf")), "rewards": {}}
    phase.episode(0, 1, **end, agents={"a": values})
    run.finish("finished")
    frame = store.episodes("latest")
    assert frame["episode"].tolist() == [0, 1]
    assert pd.isna(frame.loc[0, "agent"])
    assert np.isnan(frame.loc[1, "objective_sum"])
    assert store.episodes("latest", agent="a")["episode"].tolist() == [1]


def test_steps(store, small_run):
    frame = store.steps(small_run)
    assert list(frame.columns) == [
        *("phase", "agent", *KEYS, "reading.myenv.0", "reading.myenv.1", "setpoint.myenv.0"),
        *("reward.count", "terminated", "truncated", "objective"),
    ]
    assert frame["agent"].tolist() == ["a"] * 6 + ["b"] * 6
    assert frame["setpoint.myenv.0"].tolist() == [0, 10, 20] * 2 + [0, 20, 40] * 2
    assert frame["terminated"].tolist() == [False, False, True] * 4
    one = store.steps(small_run, 0, "b", episode=1, columns=["objective", "wall"], start=1, stop=2)
    assert list(one.columns) == [*KEYS, "objective", "wall"]
    assert one.iloc[0].tolist() == pytest.approx([0, 1, 1, 1, 1.0, 0.002])
    assert len(one) == 1
    assert store.steps(small_run, worker=1).empty


def test_agents_with_different_columns(store):
    run = records.begin(store)
    agents = (records.agent_record("a", 1, 1), records.agent_record("b", 2, 0))
    phase = records.begin_phase(run, 0, agents)
    phase.agent("a").append(0, 0, 0, 0, [1], [5], [0], 0.0, False, False, 0.0)
    phase.agent("b").append(0, 0, 0, 0, [1, 2], [], [0], 0.0, False, False, 0.0)
    run.finish("finished")
    frame = store.steps("latest", columns=["reading.myenv.1", "setpoint.myenv.0"])
    assert frame["reading.myenv.1"].fillna(-1).tolist() == [-1, 2]
    assert frame["setpoint.myenv.0"].fillna(-1).tolist() == [5, -1]


def test_several_phases(store):
    run = records.begin(store)
    for index in range(2):
        phase = records.begin_phase(run, index)
        phase.agent("a").append(0, 0, 0, 0, [index, 0], [0], [0], 0.0, False, False, 0.0)
        phase.finish("done")
    run.finish("finished")
    assert store.steps("latest", agent="a")[["phase", "reading.myenv.0"]].to_numpy().tolist() == [
        *([0, 0], [1, 1])
    ]
    assert store.steps("latest", "phase_1", "a")["reading.myenv.0"].tolist() == [1]
    assert store.streams("latest", 1)["folder"].str.startswith("trajectories/phase-1/").all()


def test_environment_states(store, small_run):
    frame = store.environment_states(small_run, environment="myenv", episode=1)
    assert frame["reading.myenv.1"].tolist() == [1.0] * 3
    assert frame["reward.count"].tolist() == [0.0, 1.0, 2.0]
    assert frame["state"].tolist() == [None, {"step": 1}, {"step": 2}]
    narrow = store.environment_states(small_run, columns=["reading.myenv.0"])
    assert list(narrow.columns) == ["phase", "environment", *KEYS, "reading.myenv.0"]


def test_statistics(store, small_run):
    frame = store.statistics(small_run, 0)
    assert frame.to_numpy().tolist() == [["a", 0, 0, 2, "loss", 0.0], ["a", 0, 1, 2, "loss", 0.5]]
    assert store.statistics(small_run, key="loss", episode=1)["value"].tolist() == [0.5]
    assert store.statistics(small_run, agent="b").empty
    assert store.warnings(small_run)["text"].tolist() == ["a warning"]


def test_a_run_that_has_just_begun_has_empty_frames_with_columns(store):
    run = records.begin(store)
    records.begin_phase(run)
    assert list(store.steps("latest").columns) == ["phase", "agent", *KEYS]
    assert list(store.steps("latest", 0, "a", columns=["objective"]).columns) == [*KEYS, "objective"]
    assert list(store.statistics("latest", 0).columns) == [
        "agent",
        "worker",
        "episode",
        "step",
        "key",
        "value",
    ]
    for frame in (store.episodes("latest"), store.outcomes("latest"), store.errors("latest")):
        assert len(frame) == 0 and len(frame.columns) >= 5
    assert store.runs()["status"].tolist() == ["running"]


def test_how_runs_are_named(store):
    with pytest.raises(StoreError, match="no runs yet"):
        store.find_run("latest")
    first, second, other = (
        records.record_small_run(store, uid) for uid in ("my-run", "my-run", "100%_other")
    )
    assert store.find_run(first) == first
    assert store.find_run(first[:-2]) == first
    assert store.find_run("my-run") == second, "the latest instance of that document"
    assert store.find_run("latest") == other
    assert store.find_run("100%_other") == other
    for name, message in (
        ("my-rum", "did you mean 'my-run'"),
        ("lates", "did you mean 'latest'"),
        (first[:4], "not unique"),
        ("%", "no run '%'"),
        ("", "no run ''"),
    ):
        with pytest.raises(StoreError, match=message):
            store.find_run(name)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda s: s.steps("latest", phase="phase_9"), "no phase 'phase_9' .did you mean 'phase_0'"),
        (lambda s: s.steps("latest", phase=3), "no phase 3"),
        (lambda s: s.episodes("latest", agent="c"), "no agent 'c'.*it has: a, b"),
        (lambda s: s.environment_states("latest", environment="mienv"), "did you mean 'myenv'"),
        (
            lambda s: s.steps("latest", columns=["reading.myenv.00"]),
            "no column .*did you mean 'reading.myenv.0'",
        ),
        (lambda s: s.environment_states("latest", columns=["wall"]), "no column 'wall'"),
        (lambda s: s.export("latest", "x", "cvs"), "did you mean 'csv'"),
    ],
)
def test_unknown_names_are_errors_with_the_nearest(store, small_run, ask, message):
    with pytest.raises(StoreError, match=message):
        ask(store)


def test_the_document_tells_after_how_many_episodes_a_phase_evaluates(store):
    schedule = [{"a": {"phase_config": {}}}, {"b": {"phase_config": {"evaluate_every": 5}}}]
    run = records.begin(store, document={"uid": "x", "schedule": schedule})
    assert store.evaluate_every(run.uid) == {1: 5}
    other = records.begin(store, document={"uid": "y"}, hash="y")
    assert store.evaluate_every(other.uid) == {}


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_export(store, small_run, tmp_path, format):
    target = tmp_path / "out"
    store.keep_brain(small_run, 0, "a", b"dump", tag="best")
    paths = store.export(small_run, target, format)
    assert all(path.is_file() for path in paths)
    assert json.loads((target / "run.json").read_text())["run"] == small_run
    assert json.loads((target / "document.json").read_text()) == {"uid": "my-run", "seed": 7}
    assert (target / "document.yml").read_text() == "uid: my-run\n"
    file = target / "trajectories" / "phase-0" / f"agent-b.{format}"
    wanted = store.steps(small_run, 0, "b")
    if format == "csv":
        with open(file, encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        assert [float(row["setpoint.myenv.0"]) for row in rows] == wanted["setpoint.myenv.0"].tolist()
        assert len(pd.read_csv(target / "episodes.csv")) == 4
    else:
        numbers = ["body", "environment_episode"]
        written = pd.read_parquet(file)
        assert not written[numbers].any().any()
        pd.testing.assert_frame_equal(written.drop(columns=numbers), wanted)
        assert len(pd.read_parquet(target / "episodes.parquet")) == 4
    read = pd.read_csv if format == "csv" else pd.read_parquet
    streams = read(target / f"streams.{format}")
    assert streams["digest"].dropna().tolist() == store.streams(small_run)["digest"].dropna().tolist()
    assert all((target / f"{folder}.{format}").is_file() for folder in streams["folder"])
    brains = (
        read(target / f"brains.{format}", keep_default_na=False)
        if format == "csv"
        else read(target / f"brains.{format}")
    )
    assert brains[["agent", "tag", "bytes"]].to_numpy().tolist() == [["a", "best", 4]]
    with pytest.raises(StoreError, match="not empty"):
        store.export(small_run, target, format)


@pytest.mark.parametrize("after", [1, 4, 9])
def test_an_export_that_was_killed_is_repeated(store, small_run, tmp_path, monkeypatch, after):
    whole, target = tmp_path / "whole", tmp_path / "out"
    store.export(small_run, whole)
    left = after

    class Killed(BaseException):
        """Nothing that the export catches."""

    writing = files.writing

    def kills(path, **options):
        nonlocal left
        left -= 1
        if left == 0:
            # as a process leaves it that is killed while it writes
            Path(path).with_name(f".{'0' * 16}.tmp").touch()
            raise Killed
        return writing(path, **options)

    monkeypatch.setattr(files, "writing", kills)
    with pytest.raises(Killed):
        store.export(small_run, target)
    monkeypatch.undo()
    if after > 1:
        with pytest.raises(StoreError, match=r"not empty .it holds another export, which did not end"):
            store.export(small_run, target, "csv")
    store.export(small_run, target)
    names = [sorted(path.relative_to(one) for path in one.rglob("*")) for one in (whole, target)]
    assert names[0] == names[1]
    with pytest.raises(StoreError, match="is not empty: export"):
        store.export(small_run, target)


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_export_joins_parts_in_order(store, tmp_path, format):
    run = records.begin(store)
    phase = records.begin_phase(run)
    for step in range(3):
        phase.agent("a").append(0, 0, step, step, [step, 0], [0], [0], 0.0, False, False, 0.0)
        phase.agent("a").flush()
    run.finish("finished")
    store.export("latest", tmp_path / "out", format)
    file = tmp_path / "out" / "trajectories" / "phase-0" / f"agent-a.{format}"
    frame = pd.read_csv(file) if format == "csv" else pd.read_parquet(file)
    assert frame["step"].tolist() == [0, 1, 2]
    assert store.streams("latest").loc[0, ["rows", "parts"]].tolist() == [3, 3]
