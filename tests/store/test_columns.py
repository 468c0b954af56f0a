"""Parameters and metrics of many runs beside each other."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
from support import records

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.plot.series import mean_over_bodies
from palaestrai_mosaik.store import AgentRecord, BodyRecord, Store
from palaestrai_mosaik.store.query import columns as columns_module
from palaestrai_mosaik.store.query.columns import Metric, Parameter, matching_columns


def document(uid: str, gain: float, limit: float = 1.0, **more: Any) -> dict[str, Any]:
    """Return a canonical document of two phases with one agent; ``limit`` is that of the second phase."""

    def phase(limit: float) -> dict[str, Any]:
        muscle = {"name": "m:M", "params": {"gain": gain, **more}}
        return {
            "agents": [{"name": "a", "muscle": muscle}],
            "environments": [{"environment": {"uid": "e", "params": {"limit": limit}}}],
        }

    return {"uid": uid, "seed": 1, "schedule": [{"train": phase(1.0)}, {"test": phase(limit)}]}


def record(
    store: Store, uid: str, values: list[float], losses: tuple[float, ...] = (), **parameters: Any
) -> int:
    """Record a run with the objectives ``values`` of its episodes; the last episode is cut short."""
    run = store.begin_run(
        uid=uid, document=document(uid, **parameters), text="", hash=uid, seed=1, version="3.5"
    )
    for number in range(2):
        phase = records.begin_phase(run, number, (records.agent_record("a"),))
        for episode, value in enumerate(values):
            for step, loss in enumerate(losses):
                phase.statistic("a", 0, episode, step, "loss", loss + episode)
            # the first phase does not count
            results = {"objective": records.moments(value + 100 * (1 - number), value), "rewards": {}}
            cut_short = episode == len(values) - 1
            phase.episode(
                *(0, episode),
                **{"steps": 2, "ticks": 2, "ended_by": "failed" if cut_short else "end", "flow": "RESET"},
                **{"duration": 0.1, "agents": {"a": results}},
            )
        phase.finish("end")
    run.finish("finished")
    return store.run_ids([run.uid])[run.uid]


def test_parameters_that_differ_are_columns_once(store: Store) -> None:
    assert store.columns() == ((), ())
    first = record(store, "one", [1.0], gain=1.0)
    assert store.columns().parameters == ()
    second = record(store, "two", [1.0], gain=2.0, limit=0.5)
    third = record(store, "three", [1.0], gain=2, more="x")
    gain, more = "agents.a.muscle.params.gain", "agents.a.muscle.params.more"
    limit = "schedule.test.environments.e.environment.params.limit"
    both = tuple(f"schedule.{phase}.{gain}" for phase in ("train", "test"))
    parameters = {parameter.name: parameter for parameter in store.columns().parameters}
    # 2 and 2.0 are different values
    assert parameters[gain] == Parameter(gain, both, 3, 3)
    assert parameters[more].runs == 1
    assert set(parameters) == {gain, more, limit}
    values = store.run_values([limit, gain, more])
    assert values.index.tolist() == [first, second, third]
    assert values[gain].tolist() == [1.0, 2.0, 2]
    assert values[limit].tolist() == [1.0, 0.5, 1.0]
    assert values[more].tolist() == [None, None, "x"]
    assert store.run_values([gain], [second])[gain].tolist() == [2.0]


def test_metrics_are_those_of_the_last_phase_without_what_was_cut_short(store: Store) -> None:
    number = record(store, "one", [1.0, 5.0, 3.0, 9.0], gain=1.0)
    assert store.columns().metrics == (Metric("objective", "a", ""),)
    names = ["objective.a", *(f"objective.a:{fold}" for fold in ("best", "last", "mean", "min"))]
    values = store.run_values([*names, "objective.a:sum:best"]).loc[number]
    assert values.tolist() == [3.0, 5.0, 3.0, 3.0, 1.0, 10.0]
    # a run without a finished episode
    empty = record(store, "two", [1.0], gain=1.0)
    assert math.isnan(store.run_values(["objective.a"])["objective.a"][empty])


def test_statistics_are_read_once_for_runs_that_have_ended(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = record(store, "one", [1.0, 1.0], (0.5, 1.5), gain=1.0)
    other = record(store, "two", [1.0], (3.0,), gain=1.0)
    assert Metric("statistic", "a", "loss") in store.columns().metrics
    folds = ("last", "mean", "min", "max")
    names = [*(f"statistic.a.loss:{fold}" for fold in folds), "statistic.a.loss:sum:last"]
    # the names of statistics are read from the newest run
    monkeypatch.setattr(columns_module, "_SAMPLE", 1)
    store._statistics.clear()
    late = store.run_values(names, seconds=-1.0)
    assert late.attrs["pending"] == [number] and late.isna().all(axis=1).tolist() == [True, False]
    values = store.run_values(names)
    assert values.attrs["pending"] == []
    assert values.loc[number].tolist() == [2.0, 1.5, 1.0, 2.0, 4.0]
    assert values.loc[other].tolist() == [3.0, 3.0, 3.0, 3.0, 3.0]

    def refuse(*args: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(columns_module, "_statistics", refuse)
    monkeypatch.setattr(columns_module, "_outcomes", refuse)
    assert store.run_values(names, seconds=-1.0).equals(values)


def test_a_run_that_goes_on_is_read_again(store: Store) -> None:
    run = store.begin_run(uid="u", document=document("u", 1.0), text="", hash="u", seed=1, version="3.5")
    phase = records.begin_phase(run, 0, (records.agent_record("a"),))
    for episode in range(2):
        results = {"objective": records.moments(float(episode)), "rewards": {}}
        phase.episode(
            *(0, episode),
            **{"steps": 1, "ticks": 1, "ended_by": "end", "flow": "RESET", "duration": 0.1},
            agents={"a": results},
        )
        phase.mark()
        assert store.run_values(["objective.a"])["objective.a"].tolist() == [float(episode)]
    run.finish("finished")


def test_columns_are_chosen_by_patterns(store: Store) -> None:
    record(store, "one", [1.0, 1.0], gain=1.0)
    record(store, "two", [1.0, 1.0], gain=2.0)
    available = store.columns()
    gain = "agents.a.muscle.params.gain"
    for patterns, names in (
        (["gain"], [gain]),
        (["*gain", "objective.*:best"], [gain, "objective.a:best"]),
        (["*"], [gain, "objective.a"]),
        (["a:sum:mean"], ["objective.a:sum:mean"]),
    ):
        assert matching_columns(patterns, available) == names
    for pattern, message in (
        ("gian", "have no column 'gian' \\(did you mean 'gain'\\?\\); there are: agents.a"),
        ("objective.a:max", "have no column 'objective.a:max' \\(did you mean 'objective.a:m"),
        ("gain:best", "have no column 'gain:best'"),
    ):
        with pytest.raises(StoreError, match=message):
            matching_columns([pattern], available)
    with pytest.raises(StoreError, match="have no column 'unknown'"):
        store.run_values(["unknown"])


def test_the_sum_of_several_bodies_is_that_of_a_body(store: Store) -> None:
    run = records.begin(store)
    bodies = [BodyRecord(group=0, first=0, count=3), BodyRecord(group=1, first=3, count=1)]
    phase = records.begin_phase(run, 0, (AgentRecord("a", bodies=bodies), records.agent_record("b")))
    results = {"objective": records.moments(2.0, 6.0), "rewards": {"count": records.moments(4.0, 12.0)}}
    phase.episode(
        *(0, 0),
        **{"steps": 2, "ticks": 2, "ended_by": "end", "flow": "RESET", "duration": 0.1},
        agents={"a": results, "b": results},
    )
    phase.finish("end")
    run.finish("finished")
    names = ["objective.a:sum:best", "objective.a:sum:last", "objective.a", "reward.a.count:sum:mean"]
    values = store.run_values([*names, "objective.b:sum:best"])
    assert values.iloc[0].tolist() == [2.0, 2.0, 4.0, 4.0, 8.0]
    figures = mean_over_bodies(store, "latest", store.outcomes("latest", agent="a"))
    assert figures.set_index("kind")["sum"].to_dict() == {"objective": 2.0, "reward": 4.0}


def test_documents_with_many_named_parts_are_read_in_linear_time() -> None:
    agents = [{"name": f"a{number}", "gain": 1} for number in range(20_000)]
    started = time.process_time()
    leaves = dict(columns_module._leaves({"agents": agents}))
    assert leaves["agents.a19999.gain"] == 1
    # comparing all pairs of names takes some ten seconds
    assert time.process_time() - started < 3.0


def test_documents_of_hostile_stores_do_no_harm(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        for number, content in enumerate(
            ([], {"schedule": 1}, {"schedule": [{"a": []}, 3, {"x": 1, "y": 2}]})
        ):
            store.begin_run(
                uid=f"u{number}",
                document=content,
                text="",
                hash=f"h{number}",
                seed=1,
                version="3.5",  # type: ignore[arg-type]
            ).finish("finished")
        assert len(store.run_values([p.name for p in store.columns().parameters])) == 3
