"""Evaluation episodes are kept apart from training, in SQL, files, digests and queries."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store
from tests.support import records

KEYS = ["worker", "episode", "step", "time"]
BOTH = ["worker", "episode", "evaluation", "step", "time"]


def add_episode(phase, episode, value, *, evaluation, steps=2):
    """One episode of agents a and b; every number of it is ``value``."""
    for step in range(steps):
        state = {"value": value} if step else None
        phase.environment("myenv", evaluation).append(
            0, episode, step, step, [value, step], [value], False, step == steps - 1, state
        )
        for name in ("a", "b"):
            row = ([value, step], [value], [value], value, False, step == steps - 1, 0.5)
            phase.agent(name, evaluation).append(0, episode, step, step, *row)
    phase.statistic("a", 0, episode, steps - 1, "loss", value, evaluation)
    moments = records.moments(*[value] * steps)
    results = {"objective": moments, "rewards": {"count": moments}}
    ended = {"steps": steps, "ticks": steps - 1, "ended_by": "x", "flow": "RESET", "duration": 0.5}
    phase.episode(0, episode, **ended, agents={"a": results, "b": results}, evaluation=evaluation)


def record(store: Store, evaluations: bool = True) -> str:
    """Two training episodes with values 1 and 2, and one evaluation after each: 10 and 20."""
    run = records.begin(store)
    phase = records.begin_phase(run)
    for episode in range(2):
        add_episode(phase, episode, 1.0 + episode, evaluation=False)
        if evaluations:
            add_episode(phase, episode, 10.0 * (episode + 1), evaluation=True, steps=3)
    phase.finish("two episodes")
    run.finish("finished")
    return run.uid


def test_queries_tell_training_and_evaluation_apart(store):
    record(store)
    asked = {
        flag: store.episodes("latest", agent="a", evaluation=flag)[["episode", "objective_mean"]]
        for flag in (False, True)
    }
    assert asked[False].to_numpy().tolist() == [[0, 1.0], [1, 2.0]]
    assert asked[True].to_numpy().tolist() == [[0, 10.0], [1, 20.0]]
    assert store.outcomes("latest", 0, "b", True)["sum"].tolist() == [30.0, 30.0, 60.0, 60.0]
    assert store.steps("latest", agent="b", evaluation=True)["objective"].tolist() == [10.0] * 3 + [20.0] * 3
    states = store.environment_states("latest", evaluation=True)
    assert states["state"].dropna().tolist() == [{"value": 10.0}] * 2 + [{"value": 20.0}] * 2
    assert store.statistics("latest", evaluation=True)["value"].tolist() == [10.0, 20.0]
    assert store.statistics("latest")["value"].tolist() == [1.0, 2.0]
    walls = store.steps("latest", agent="a", columns=["wall"], evaluation=True)
    assert walls["wall"].tolist() == [0.5] * 6
    # what is said of the whole run counts the training only
    assert store.runs().loc[0, ["episodes", "steps"]].tolist() == [2, 4]
    assert store.phases("latest").loc[0, "episodes_done"] == 2


def test_both_at_once_have_a_column_that_says_which(store):
    record(store)
    episodes = store.episodes("latest", evaluation=None)
    assert list(episodes.columns)[:6] == ["phase", "name", "worker", "episode", "evaluation", "agent"]
    assert episodes.loc[episodes["agent"] == "a", ["evaluation", "episode", "objective_mean"]].to_numpy(
        dtype=object
    ).tolist() == [[False, 0, 1.0], [False, 1, 2.0], [True, 0, 10.0], [True, 1, 20.0]]
    outcomes = store.outcomes("latest", evaluation=None)
    assert list(outcomes.columns)[:5] == ["phase", "worker", "episode", "evaluation", "agent"]
    assert len(outcomes) == 2 * 2 * 2 * 2
    steps = store.steps("latest", 0, "a", evaluation=None)
    assert list(steps.columns)[:5] == BOTH
    assert steps.groupby("evaluation")["objective"].sum().to_dict() == {False: 6.0, True: 90.0}
    states = store.environment_states("latest", 0, "myenv", evaluation=None)
    assert list(states.columns)[:5] == BOTH and len(states) == 10
    statistics = store.statistics("latest", 0, evaluation=None)
    assert list(statistics) == ["agent", "worker", "episode", "evaluation", "step", "key", "value"]
    assert statistics["value"].tolist() == [1.0, 2.0, 10.0, 20.0]


def test_without_any_evaluation_all_is_as_if_there_were_no_such_thing(store):
    without, again = record(store, evaluations=False), record(store)
    root = store.instance_directory(without)
    assert not (root / "trajectories" / "phase-0" / "evaluation").exists()
    streams = store.streams(without)
    assert not streams["evaluation"].any() and len(streams) == 6
    # and evaluations change neither the digests nor the files of the training
    digests = [
        json.loads((store.instance_directory(uid) / "complete.json").read_text())["digests"]
        for uid in (without, again)
    ]
    assert digests[0].items() < digests[1].items()
    assert set(digests[1]) - set(digests[0]) == {
        f"phase-0/evaluation/{name}" for name in ("agent-a", "agent-b", "environment-myenv", "statistics")
    }
    for file in (root / "trajectories").rglob("part-*.parquet"):
        other = store.instance_directory(again) / file.relative_to(root)
        assert file.read_bytes() == other.read_bytes(), file
    for flag, columns in ((True, KEYS), (None, BOTH)):
        assert store.episodes(without, evaluation=flag).empty == (flag is True)
        assert list(store.steps(without, 0, "a", evaluation=flag).columns)[: len(columns)] == columns
        assert list(store.statistics(without, 0, key="none", evaluation=flag))[:3] == [
            *("agent", "worker", "episode")
        ]


def test_streams_of_evaluations_are_made_when_the_first_begins(store):
    phase = records.begin_phase(records.begin(store))
    assert not store.streams("latest")["evaluation"].any()
    assert phase.agent("a", evaluation=True) is phase.agent("a", evaluation=True)
    assert phase.agent("a", evaluation=True) is not phase.agent("a")
    folders = store.streams("latest").set_index(["kind", "name", "evaluation"])["folder"]
    assert len(folders) == 12
    assert folders["agent", "a", True] == "trajectories/phase-0/evaluation/agent-a"
    assert folders["wall", "b", True] == "trajectories/phase-0/evaluation/wall-b"
    with pytest.raises(StoreError, match="no agent 'c'"):
        phase.agent("c", evaluation=True)
    # rows are visible while the phase goes on
    phase.agent("a", evaluation=True).append(0, 0, 0, 0, [1, 2], [3], [4], 5.0, False, False, 0.0)
    phase.agent("a", evaluation=True).flush()
    assert store.steps("latest", agent="a", evaluation=True)["objective"].tolist() == [5.0]


def test_an_evaluation_with_a_number_of_the_training_is_no_repetition(store):
    phase = records.begin_phase(records.begin(store))
    add_episode(phase, 0, 1.0, evaluation=False)
    add_episode(phase, 0, 2.0, evaluation=True)
    phase.finish("done")
    assert len(store.outcomes("latest", evaluation=None)) == 8
    again = records.begin_phase(records.begin(store))
    add_episode(again, 0, 1.0, evaluation=True)
    with pytest.raises(StoreError, match="cannot write"):
        add_episode(again, 0, 1.0, evaluation=True)
        again.finish("done")


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_export_has_evaluations_too(store, tmp_path, format):
    record(store)
    paths = store.export("latest", tmp_path / "out", format)
    read = pd.read_csv if format == "csv" else pd.read_parquet
    frame = read(tmp_path / "out" / f"episodes.{format}")
    assert np.asarray(frame["evaluation"]).tolist() == [False] * 4 + [True] * 4
    file = tmp_path / "out" / "trajectories" / "phase-0" / "evaluation" / f"agent-a.{format}"
    assert file in paths
    assert read(file)["objective"].tolist() == [10.0] * 3 + [20.0] * 3
