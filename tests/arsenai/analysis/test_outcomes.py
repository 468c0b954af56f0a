"""Outcomes: every number is one that can be computed by hand from what was recorded."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.documents import document

from palaestrai_mosaik.arsenai.analysis import outcomes
from palaestrai_mosaik.arsenai.analysis.outcomes import default_outcomes, take
from palaestrai_mosaik.arsenai.analysis.results import Results
from palaestrai_mosaik.arsenai.design import from_mapping
from palaestrai_mosaik.arsenai.design.folder import DesignFolder, PlannedRun
from palaestrai_mosaik.arsenai.design.model import OutcomeSpec
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import ChannelRecord, EnvironmentRecord, Store
from tests.support.records import one_body

NAN = float("nan")


def moments(values):
    told = np.array([value for value in values if not np.isnan(value)])
    if not len(told):
        return dict.fromkeys(("sum", "mean", "min", "max"), NAN)
    return {"sum": told.sum(), "mean": told.mean(), "min": told.min(), "max": told.max()}


def record(store, uid, scale=1.0, *, agents=("a",), workers=1, status="finished", skip=None, **changed):
    """One phase ``main`` of two episodes of three steps, and an evaluation of one.

    In step s (from 0) of episode e of worker w, the objective is scale * (10 e + s) + w, NaN at the step
    ``skip``; the reward ``grid.r`` is s; the readings of bus 1 and 2 are 1 + 0.1 s and 1 - 0.2 s; the
    set-point of the n-th agent is 5 n. In the evaluation the objective is 100 scale at each step.
    ``changed``: another class of the ``objective`` (``None``: none), another number of ``evaluations``.
    """
    run = store.begin_run(
        uid=uid, document={"uid": uid}, text="", hash=f"hash of {uid}", seed=1, version="3.5"
    )
    sensors = [ChannelRecord(f"grid.bus.{i}", "", 1) for i in (1, 2)]
    actuators = [[ChannelRecord(f"grid.{name}.q", "", 1)] for name in agents]
    phase = run.begin_phase(
        *(0, "main"),
        mode="train",
        workers=workers,
        episodes=2,
        controller="vanilla",
        environments=[EnvironmentRecord("grid", "Grid", {}, sensors=sensors, actuators=[], rewards=[])],
        agents=[
            one_body(
                name,
                objective=changed.get("objective", "O"),
                sensors=sensors,
                actuators=own,
                rewards=["grid.r"],
            )
            for name, own in zip(agents, actuators, strict=True)
        ],
    )

    def value_of(worker, episode, step, evaluation):
        if step == skip:
            return NAN
        return 100 * scale if evaluation else scale * (10 * episode + step) + worker

    def episode_of(episode, evaluation):
        # workers take turns, so the rows of an episode do not stand together
        for step, worker in itertools.product(range(3), reversed(range(workers))):
            readings = np.array([1 + 0.1 * step, 1 - 0.2 * step])
            at = (worker, episode, step, step)
            phase.environment("grid", evaluation=evaluation).append(*at, readings, [], step == 2, False, None)
            value = value_of(worker, episode, step, evaluation)
            for number, name in enumerate(agents):
                row = (readings, [5.0 * number], [float(step)], value, step == 2, False, 0.0)
                phase.agent(name, evaluation=evaluation).append(*at, *row)
        for worker in range(workers):
            values = [value_of(worker, episode, step, evaluation) for step in range(3)]
            told = {"objective": moments(values), "rewards": {"grid.r": moments([0.0, 1.0, 2.0])}}
            phase.episode(
                *(worker, episode),
                **{"steps": 3 + worker, "ticks": 3, "ended_by": "x", "flow": "RESET", "duration": 0.0},
                agents=dict.fromkeys(agents, told),
                evaluation=evaluation,
            )

    for evaluation, episodes in ((False, 2), (True, changed.get("evaluations", 1))):
        for episode in range(episodes):
            episode_of(episode, evaluation)
    phase.statistic("a", 0, 0, 1, "loss.actor", 4.0)
    phase.statistic("a", 0, 0, 2, "loss.actor", 6.0)
    phase.statistic("a", 0, 1, 1, "loss.critic", 1.0)
    phase.finish("done")
    run.finish(status)
    return run.uid


@pytest.fixture
def store(tmp_path: Path):
    with Store(tmp_path / "results", create=True) as opened:
        yield opened


def value(store, run, of, **keys):
    return take(store, [run], OutcomeSpec("y", of, **keys))[run]


@pytest.mark.parametrize(
    ("of", "keys", "wanted"),
    [
        # objectives 0, 1, 2 and 10, 11, 12
        ("objective", {}, (3 + 33) / 2),
        ("objective", {"step": "mean", "episode": "max"}, 11.0),
        ("objective", {"step": "max", "episode": "first"}, 2.0),
        ("objective", {"step": "min", "episode": "last"}, 10.0),
        ("objective", {"step": "median", "episode": "sum"}, 1.0 + 11.0),
        ("objective", {"step": "first", "episode": "min"}, 0.0),
        ("objective", {"step": "last", "episode": "median"}, 7.0),
        ("objective", {"step": "sum", "outside": (1.0, 10.0)}, (1 + 0 + 0 + 0 + 1 + 2) / 2),
        ("objective", {"evaluation": True}, 300.0),
        ("objective", {"phase": 0, "agent": "a"}, 18.0),
        ("reward.r", {"phase": "main"}, 3.0),
        ("reward.r", {"step": "last"}, 2.0),
        ("reward.grid.r", {}, 3.0),
        ("reward.grid.r", {"step": "median"}, 1.0),
        ("steps", {}, 3.0),
        # bus 1 reads 1, 1.1, 1.2; bus 2 reads 1, 0.8, 0.6
        ("reading.grid.bus.1", {"step": "max"}, 1.2),
        ("reading.grid.bus.*", {"step": "min"}, 0.6),
        ("reading.grid.bus.*", {"step": "last"}, (1.2 + 0.6) / 2),
        ("reading.grid.bus.*", {"step": "sum", "outside": (0.95, 1.05)}, 0.05 + 0.15 + 0.15 + 0.35),
        ("reading.*", {"step": "mean", "agent": "a"}, (3.3 + 2.4) / 6),
        ("setpoint.grid.a.q", {"step": "max"}, 0.0),
        ("statistic.loss.actor", {"step": "last"}, 6.0),
        ("statistic.loss.*", {"step": "mean", "episode": "sum"}, 5.0 + 1.0),
    ],
)
def test_folds_and_sources(store, of, keys, wanted):
    assert value(store, record(store, "one"), of, **keys) == pytest.approx(wanted, abs=1e-12)


def test_episodes_of_all_workers_are_taken_in_order(store):
    run = record(store, "two", workers=2)
    assert value(store, run, "objective", step="last", episode="first") == 2.0
    assert value(store, run, "objective", step="max", episode="last") == 13.0
    assert value(store, run, "objective", episode="mean") == pytest.approx((3 + 6 + 33 + 36) / 4)
    assert value(store, run, "steps", episode="max") == 4.0


@pytest.mark.parametrize("step", ["sum", "mean", "min", "max"])
@pytest.mark.parametrize("skip", [None, 1])
def test_aggregates_and_recorded_steps_agree(store, step, skip, monkeypatch):
    run = record(store, "one", scale=1.7, skip=skip, workers=2)
    kept = value(store, run, "objective", step=step)
    monkeypatch.setattr(outcomes, "_KEPT", ())
    assert value(store, run, "objective", step=step) == pytest.approx(kept, rel=1e-14)


def test_an_episode_without_any_value_makes_the_outcome_nan(store, monkeypatch):
    run = record(store, "one", scale=NAN)
    assert np.isnan(value(store, run, "objective"))
    monkeypatch.setattr(outcomes, "_KEPT", ())
    assert np.isnan(value(store, run, "objective"))


def test_several_agents_must_be_told_apart_only_where_they_differ(store):
    run = record(store, "one", agents=("a", "b"))
    assert value(store, run, "reward.r") == value(store, run, "reward.r", step="median") * 3 == 3.0
    assert value(store, run, "setpoint.*", step="max") == 5.0
    assert value(store, run, "setpoint.*", step="max", agent="a") == 0.0
    for step in ("sum", "median"):
        with pytest.raises(StoreError, match=r"outcome 'y': several agents have objective: .* \(a, b\)"):
            value(store, run, "objective", step=step)
    assert [outcome.name for outcome in default_outcomes(store, [run])] == ["objective.a", "objective.b"]


@pytest.mark.parametrize(
    ("of", "keys", "message"),
    [
        ("objectiv", {}, "unknown source 'objectiv' (did you mean 'objective'?); allowed: objective, steps"),
        ("objective", {"phase": "mian"}, "no run has the phase 'mian' (did you mean 'main'?)"),
        ("objective", {"phase": 3}, "no run has the phase '3'; there are: 0"),
        ("objective", {"agent": "aa"}, "no run has the agent 'aa'"),
        ("reward.R", {}, "no run has the reward 'R'; there are: grid.r"),
        ("reading.grid.buss.1", {}, "no run has the reading 'grid.buss.1' (did you mean 'grid.bus.1'?)"),
        ("statistic.los", {}, "there are: loss.actor, loss.critic"),
    ],
)
def test_what_no_run_has_is_told_with_what_there_is(store, of, keys, message):
    run = record(store, "one")
    with pytest.raises(StoreError) as told:
        value(store, run, of, **keys)
    assert message in str(told.value)


@pytest.mark.parametrize("step", ["sum", "median"])
def test_an_agent_without_an_objective_has_the_sum_of_its_rewards(store, step):
    run, other = record(store, "one", objective=None), record(store, "two")
    wanted = {"sum": (3 + 33) / 2, "median": (1 + 11) / 2}[step]
    assert value(store, run, "objective", step=step) == value(store, run, "objective", step=step, agent="a")
    assert take(store, [run, other], OutcomeSpec("y", "objective", step=step)) == {run: wanted, other: wanted}
    assert default_outcomes(store, [run]) == (OutcomeSpec("objective", "objective", better="higher"),)
    several = record(store, "three", agents=("a", "b"), objective=None)
    with pytest.raises(StoreError, match=r"several agents have objective: .* \(a, b\)"):
        value(store, several, "objective", step=step)
    assert [one.name for one in default_outcomes(store, [several])] == ["objective.a", "objective.b"]


@pytest.mark.parametrize("of", ["objective", "steps", "reward.grid.r", "reading.grid.bus.1"])
@pytest.mark.parametrize("step", ["sum", "median"])
def test_episodes_that_no_run_has_are_told(store, of, step):
    run = record(store, "one", evaluations=0)
    with pytest.raises(StoreError, match=rf"no run has {of} in evaluation episodes of this phase"):
        value(store, run, of, step=step, evaluation=True)


class Folder(DesignFolder):
    """Has no documents that could be read: a run is known by its hash alone."""

    def contents(self, hashes):
        return {}


def folder_of(path: Path, rows: int, repetitions: int = 1, duplicates: tuple[int, ...] = ()) -> DesignFolder:
    """A generated folder of a design with one factor, whose row r was run as ``r-REPETITION``."""
    base = {key: value for key, value in document().canonical.items() if key not in ("uid", "seed")}
    design = {
        **{"uid": "d", "seed": 1, "version": "3.5", "repetitions": repetitions, "base": base},
        "factors": {
            "e": {"path": "schedule[0].phase_0.phase_config.episodes", "levels": list(range(1, rows + 1))}
        },
        "outcomes": {"y": {"of": "objective"}, "steps_": {"of": "steps"}},
    }
    runs = []
    for row in range(rows):
        for repetition in range(repetitions):
            stands = 0 if row in duplicates else row
            uid, run = f"{row}-{repetition}", f"{stands}-{repetition}"
            runs.append(PlannedRun(uid, row, repetition, 1, f"hash of {run}", run, f"runs/{run}.yml"))
    return Folder(path, from_mapping(design), {}, tuple(runs))


def test_runs_are_joined_to_their_rows_whatever_happened_to_them(store, tmp_path):
    """Rows: 0 fine, 1 a duplicate of 0, 2 failed, 3 never ran, 4 failed once and ran again, 5 NaN."""
    record(store, "5-0", NAN)
    record(store, "4-0", 9.0, status="failed")
    record(store, "4-0", 2.0)
    record(store, "0-0", 1.0)
    record(store, "2-0", 3.0, status="failed")
    record(store, "of another design")
    frame = Results(folder_of(tmp_path, 6, duplicates=(1,)), store).outcomes()
    assert frame.columns.tolist() == ["row", "repetition", "uid", "run", "status", "instance", "y", "steps_"]
    assert frame["uid"].tolist() == [f"{row}-0" for row in range(6)]
    assert frame["run"].tolist() == ["0-0", "0-0", *(f"{row}-0" for row in range(2, 6))]
    assert frame["status"].tolist() == ["finished", "finished", "failed", "missing", "finished", "finished"]
    np.testing.assert_array_equal(frame["y"], [18.0, 18.0, NAN, NAN, 36.0, NAN])
    np.testing.assert_array_equal(frame["steps_"], [3.0, 3.0, NAN, NAN, 3.0, 3.0])
    assert frame["instance"].isna().tolist() == [False, False, False, True, False, False]


def test_nothing_depends_on_the_order_in_which_runs_ended(tmp_path):
    rng = np.random.Generator(np.random.PCG64(3))
    names = [(row, repetition) for row in range(4) for repetition in range(3)]
    frames, means = [], []
    for attempt in range(2):
        with Store(tmp_path / f"results-{attempt}", create=True) as store:
            for place in rng.permutation(len(names)):
                row, repetition = names[place]
                record(store, f"{row}-{repetition}", row + 0.1 * repetition)
            results = Results(folder_of(tmp_path, 4, 3), store)
            frames.append(results.outcomes().drop(columns="instance").to_csv())
            means.append(results.by_row().to_csv())
    assert frames[0] == frames[1]
    assert means[0] == means[1]


def test_repetitions_are_reduced_to_the_mean_of_what_is_finite(store, tmp_path):
    for repetition, scale in enumerate((1.0, 2.0, NAN)):
        record(store, f"0-{repetition}", scale)
    record(store, "1-0", NAN)
    record(store, "1-1", 1.0, status="failed")
    record(store, "1-2", float("inf"))
    frame = Results(folder_of(tmp_path, 2, 3), store).by_row()
    assert frame["count"].tolist() == [3, 2]
    np.testing.assert_array_equal(frame["y"], [27.0, NAN])
    np.testing.assert_array_equal(frame["steps_"], [3.0, 3.0])


def test_without_a_store_or_a_finished_run_it_is_said_what_to_do(tmp_path):
    with pytest.raises(StoreError, match=r"has the design been run\? arsenai run"):
        Results(folder_of(tmp_path, 2)).outcomes()


def test_the_files_of_a_database_lie_in_the_folder(tmp_path):
    """As ``arsenai run --store URL`` writes them; an outcome of steps is read from them."""
    url = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    folder = folder_of(tmp_path / "folder", 2)
    with Store(url, directory=tmp_path / "folder" / "results", create=True) as store:
        record(store, "0-0")
    outcomes = (OutcomeSpec("y", "objective", step="median"),)
    folder.spec = replace(folder.spec, outcomes=outcomes)
    np.testing.assert_array_equal(Results(folder, url).outcomes()["y"], [(1 + 11) / 2, NAN])
