"""Queries over many runs: which instance counts, and in which order."""

from __future__ import annotations

import pytest

from palaestrai_mosaik.store.query import lookup
from tests.support import records


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    """Let every question need several statements."""
    monkeypatch.setattr(lookup, "_TOGETHER", 2)


def end(run, status, error=None):
    run.finish(status, error)
    return run.uid


@pytest.fixture
def begin():
    return records.begin


def test_the_newest_finished_instance_counts_else_the_newest(store, begin):
    end(begin(store, "a"), "finished")
    newest = end(begin(store, "a"), "finished")
    end(begin(store, "a"), "failed", ValueError("later, but it failed"))
    end(begin(store, "b"), "failed", ValueError("first"))
    failed = end(begin(store, "b"), "failed", KeyError("second"))
    running = begin(store, "c")
    frame = store.newest_runs([f"hash of {uid}" for uid in ("c", "nobody", "a", "b", "a")])
    assert frame[["hash", "run", "status"]].to_numpy().tolist() == [
        ["hash of c", running.uid, "running"],
        ["hash of a", newest, "finished"],
        ["hash of b", failed, "failed"],
    ]
    assert frame["error"].tolist() == [None, None, "KeyError: 'second'"]
    assert frame["duration"].isna().tolist() == [True, False, False]
    assert (frame["duration"].dropna() >= 0).all()


def test_rows_are_in_the_order_of_the_runs_asked_for(store):
    one, two, three = (records.record_small_run(store, uid) for uid in ("one", "two", "three"))
    runs = [three, one, two]
    outcomes = store.outcomes_across(runs, "reward", "count")
    assert outcomes["run"].tolist() == [run for run in runs for _ in range(4)]
    assert outcomes[["episode", "agent", "sum", "max"]].to_numpy().tolist()[:4] == [
        [0, "a", 3.0, 2.0],
        [0, "b", 3.0, 2.0],
        [1, "a", 3.0, 2.0],
        [1, "b", 3.0, 2.0],
    ]
    assert store.agents_across(runs)[["run", "agent"]].to_numpy().tolist() == [
        [run, agent] for run in runs for agent in ("a", "b")
    ]
    episodes = store.episodes_across(runs)
    assert episodes[["run", "episode", "steps"]].to_numpy().tolist() == [
        [run, episode, 3] for run in runs for episode in (0, 1)
    ]
    assert store.reward_names_across(runs) == ["count"]
    folders = store.streams_across(runs, "agent")
    assert [(folder.run, folder.name) for folder in folders] == [(run, a) for run in runs for a in ("a", "b")]
    assert all(any(folder.folder.glob("part-*.parquet")) for folder in folders)


def test_the_last_phase_is_meant_unless_one_is_named(store, begin):
    runs = []
    for phases in (1, 2):
        run = begin(store, f"{phases} phases")
        for index in range(phases):
            phase = records.begin_phase(run, index, agents=(records.agent_record(f"a{index}"),))
            phase.finish("done")
        runs.append(end(run, "finished"))
    assert store.agents_across(runs)[["phase", "agent"]].to_numpy().tolist() == [[0, "a0"], [1, "a1"]]
    assert store.agents_across(runs, 0)["agent"].tolist() == ["a0", "a0"]
    assert store.agents_across(runs, "phase_1")["run"].tolist() == [runs[1]]
    assert store.agents_across(runs, 7).columns.tolist() == ["run", "phase", "agent", "objective"]
    assert store.phases_across(runs).to_numpy().tolist() == [[0, "phase_0"], [1, "phase_1"]]
    assert store.agents_across([]).empty
