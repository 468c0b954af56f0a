"""Whole runs: what one agent lived through is recorded, and another one is put on it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.agent import Brain
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.environment.replay.sources import read_parquet
from palaestrai_mosaik.runner import execute, inspect
from palaestrai_mosaik.runner.recorded_sessions import StoredSessions, read_sessions
from palaestrai_mosaik.store import Store
from tests.support.documents import (
    DUMMY,
    ENVIRONMENT_ENDS,
    agent,
    document,
    environment,
    named,
    phase,
)

LIBRARY = "palaestrai_mosaik.agent.library"
REPLAY = "palaestrai_mosaik.environment.replay:SessionPoolEnvironment"
PENDULUM = "palaestrai_mosaik.environment.pendulum:BatchPendulum"
ALL_END = [named(ENVIRONMENT_ENDS, when="all")]
BODIES, TICKS = 3, 7


def learner(name: str, world: str, **keys: Any) -> dict[str, Any]:
    return {
        "name": name,
        "brain": named(f"{LIBRARY}.cross_entropy:CrossEntropyBrain", population=2, elites=2),
        "muscle": named(f"{LIBRARY}.cross_entropy:CrossEntropyMuscle", policy="dense", std=1.0),
        "objective": named(f"{DUMMY}:DummyObjective"),
        "bodies": [{"environment": world, "count": BODIES}],
        **keys,
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """``recorded``: an agent that learns to swing three pendulums, then is tested on them."""
    world = environment("pendulum", PENDULUM, batch=BODIES, max_steps=TICKS)
    train = phase([world], [learner("a", "pendulum")], ALL_END, episodes=2)
    test = phase([world], [learner("a", "pendulum", load={})], ALL_END, mode="test", episodes=2)
    with Store(tmp_path_factory.mktemp("store"), create=True) as store:
        execute(document(train, test, uid="recorded"), store=store)
        yield store


def lived(store: Store, uid: str = "lived", **params: Any) -> dict[str, Any]:
    source = {"store": str(store.directory), "run": "recorded", "phase": "phase_1", "agent": "a"}
    return environment(uid, REPLAY, **{"source": source, "batch": BODIES, "sample": "in_order", **params})


def columns(frame: Any, prefix: str) -> np.ndarray:
    return frame[[name for name in frame if name.startswith(prefix)]].to_numpy(np.float64)


def in_order(store: Store, run: str, name: str, phase: str) -> Any:
    frame = store.steps(run, phase, name)
    return frame.sort_values(["worker", "episode", "body", "step"], ignore_index=True)


def test_sessions_of_a_store_are_the_episodes_of_the_bodies(store: Store) -> None:
    pool = read_sessions(store, "recorded", phase=1, agent="a")
    rows = in_order(store, "recorded", "a", "phase_1")
    assert pool.sessions.lengths.tolist() == [TICKS] * 2 * BODIES
    (seen,), (done,) = pool.signature.observations, pool.signature.actions
    assert (seen.name, seen.shape) == ("pendulum.observation", (3,))
    assert str(done.space) == "Box(low=-2.0, high=2.0, shape=(1,), dtype=float32)"
    np.testing.assert_array_equal(pool.observations[0].reshape(-1, 3), columns(rows, "reading"))
    np.testing.assert_array_equal(pool.actions[0].reshape(-1, 1), columns(rows, "setpoint"))
    np.testing.assert_array_equal(pool.rewards.reshape(-1, 1), columns(rows, "reward"))
    # what was seen after the last action is the environment's last state
    states = store.environment_states("recorded", "phase_1").sort_values(["episode", "incarnation", "step"])
    last = columns(states[states["truncated"]], "reading")
    np.testing.assert_array_equal(pool.sessions.by_session["final.0"], last)
    assert not np.array_equal(last, pool.observations[0][:, -1])
    one = read_sessions(store, "recorded", phase="phase_1", body=2, evaluation=None)
    np.testing.assert_array_equal(one.actions[0], pool.actions[0][[2, 5]])
    # of both phases: two training episodes come first
    assert read_sessions(store, "recorded").actions[0].shape == (4 * BODIES, TICKS, 1)
    assert len(read_sessions(store, "recorded", mode="test")) == 2 * BODIES


def test_evaluations_are_sessions_of_their_own(tmp_path: Path) -> None:
    world = environment("pendulum", PENDULUM, batch=BODIES, max_steps=TICKS)
    train = phase([world], [learner("a", "pendulum")], ALL_END, episodes=2, evaluate_every=1)
    with Store(tmp_path, create=True) as store:
        execute(document(train, uid="recorded"), store=store)
        trained, evaluated, both = (
            read_sessions(store, "recorded", evaluation=flag) for flag in (False, True, None)
        )
    assert both.sessions.lengths.tolist() == [TICKS] * 4 * BODIES
    columns = [(pool.sessions.by_tick | pool.sessions.by_session) for pool in (trained, evaluated, both)]
    for name, column in columns[2].items():
        np.testing.assert_array_equal(column, np.concatenate([one[name] for one in columns[:2]]))


def test_the_files_of_a_store_hold_the_same_sessions(store: Store) -> None:
    pool = read_sessions(store, "recorded", phase=1)
    uid = store.find_run("recorded")
    streams = store.streams(uid, 1)
    (folder,) = streams.loc[streams["kind"] == "agent", "folder"]
    other = read_parquet(store.instance_directory(uid) / folder)
    assert [f.name for f in other.signature.observations] == ["pendulum.observation"]
    assert other.signature.rewards == pool.signature.rewards
    assert other.sessions.offsets.tolist() == pool.sessions.offsets.tolist()
    for name, column in pool.sessions.by_tick.items():
        np.testing.assert_array_equal(other.sessions.by_tick[name], column)


def test_an_agent_lives_through_what_another_one_did(store: Store) -> None:
    """The same model would do the same; another muscle would not, but the same was done."""
    load = {"experiment_run": "recorded", "agent": "a", "phase_name": "phase_1"}
    twin = learner("twin", "lived", load=load)
    del twin["brain"]
    other = learner("other", "lived", muscle=named(f"{DUMMY}:DummyMuscle"))
    del other["brain"]
    run = document(phase([lived(store)], [twin, other], ALL_END, mode="test", episodes=2), uid="replayed")
    assert inspect(run) == []
    execute(run, store=store)
    recorded = in_order(store, "recorded", "a", "phase_1")
    same = in_order(store, "replayed", "twin", "phase_0")
    strange = in_order(store, "replayed", "other", "phase_0")
    for frame in (same, strange):
        assert frame["body"].tolist() == recorded["body"].tolist()
        for kind in ("reading", "setpoint", "reward"):
            np.testing.assert_array_equal(columns(frame, kind), columns(recorded, kind))
        np.testing.assert_array_equal(frame["objective"], recorded["objective"])
        np.testing.assert_array_equal(frame["truncated"], recorded["truncated"])
    np.testing.assert_array_equal(columns(same, "proposed"), columns(recorded, "setpoint"))
    assert (columns(strange, "proposed") != columns(recorded, "setpoint")).mean() > 0.9


class Watcher(Brain):
    """Keeps the rows that it learns from."""

    rows: list[list[float]] = []

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        row = self.memory.tail(1)
        Watcher.rows.append([*row.sensor_readings[0], *row.actuator_setpoints[0], *row.rewards[0]])


def test_what_is_learned_from_is_what_was_done(store: Store) -> None:
    Watcher.rows = []
    pupil = learner(
        "pupil", "lived", brain=named(f"{__name__}:Watcher"), muscle=named(f"{DUMMY}:DummyMuscle")
    )
    execute(document(phase([lived(store)], [pupil], ALL_END, episodes=2), uid="learned"))
    recorded = in_order(store, "recorded", "a", "phase_1")
    expected = np.hstack([columns(recorded, kind) for kind in ("reading", "setpoint", "reward")])
    assert sorted(Watcher.rows) == sorted(expected.tolist())


def test_who_learns_from_what_it_does_itself_is_refused(store: Store) -> None:
    run = document(phase([lived(store)], [learner("a", "lived")], ALL_END), uid="refused")
    with pytest.raises(Exception, match="which replays what others did"):
        execute(run)


def test_a_phase_replays_what_an_earlier_one_recorded(tmp_path: Any) -> None:
    """Without run and instance, the source is this very execution."""
    sensors = [{"name": f"myenv.{i}", "space": "Discrete(11)"} for i in range(2)]
    actuators = [{"name": f"myenv.{i}", "dtype": "float64", "space": "Discrete(100)"} for i in range(2)]
    params = {"observations": sensors, "actions": actuators, "rewards": ["fun"], "sample": "in_order"}
    source = {"phase": "phase_0", "agent": "a"}
    first = phase([environment(max_iter=4)], [agent("a", 0, 2)], mode="test", episodes=2)
    viewer = agent("b", 0, 2, uid="lived.0.myenv", brain=None)
    del viewer["brain"]
    world = environment("lived", REPLAY, source=source, **params)
    second = phase([world], [viewer], mode="test", episodes=2)
    with Store(tmp_path, create=True) as store:
        execute(document(first, second, uid="both"), store=store)
        done = store.steps("latest", 0, "a")
        again = store.steps("latest", 1, "b")
    for kind in ("reading", "setpoint", "reward"):
        np.testing.assert_array_equal(columns(again, kind), columns(done, kind))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_document_draws_by_its_own_seed_and_shows_what_was_remembered(tmp_path: Path, seed: int) -> None:
    """Sessions of an npz file observe their number; the memory before them held ten times that."""
    numbers = np.arange(40.0)
    np.savez(
        tmp_path / "lived.npz",
        observations=np.repeat(numbers[:, None, None], 3, axis=1),
        actions=np.zeros((40, 3)),
        rewards=np.zeros((40, 3)),
        prev_memories=np.column_stack([10 * numbers, -numbers]),
    )
    world = environment(
        "lived",
        REPLAY,
        source={"npz": str(tmp_path / "lived.npz")},
        batch=BODIES,
        rng_seed=9,
        agent_memories=[{"name": "hidden", "shape": [2]}],
    )
    viewer = learner("a", "lived", muscle=named("palaestrai_mosaik.agent.library.random_agent:RandomMuscle"))
    del viewer["brain"]
    run = document(phase([world], [viewer], ALL_END, mode="test", episodes=2), uid="drawn", seed=seed)
    with Store(tmp_path / "store", create=True) as store:
        execute(run, store=store)
        rows = in_order(store, "drawn", "a", "phase_0")
    seen, held = (
        columns(rows, "reading.lived.{body}.observation"),
        columns(rows, "reading.lived.{body}.hidden"),
    )
    np.testing.assert_array_equal(held, np.hstack([10 * seen, -seen]))
    # all three ticks of a session, another one for each body and episode, whatever the seed of the run
    drawn = [
        seeding.generator(9, "worker", 0, "episode", episode).permutation(40)[:BODIES] for episode in (0, 1)
    ]
    assert seen[::3, 0].tolist() == seen[2::3, 0].tolist() == np.concatenate(drawn).tolist()


def test_what_reads_a_store_can_be_sent_to_another_process(store: Store) -> None:
    reader = pickle.loads(pickle.dumps(StoredSessions.of(store)))
    assert len(reader({"run": "recorded", "phase": 1})) == 2 * BODIES


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"run": "recoded"}, "no experiment run 'recoded' .did you mean 'recorded'"),
        ({"instance": "latst"}, "no run 'latst'"),
        ({"run": "recorded", "phase": "phase_2"}, "has no phase 'phase_2' .did you mean"),
        (
            {"run": "recorded", "agent": "b"},
            "there is no agent 'b' in phases 0, 1 of instance .*; there are: a",
        ),
        ({"run": "recorded", "body": 7}, "has no body 7; it has: 0 to 2"),
        ({"run": "recorded", "phase": 0, "mode": "test"}, r"is in test mode, only \['train'\]"),
        ({"run": "recorded", "agnt": "a"}, "there is no key 'agnt' .did you mean 'agent'"),
        ({"phase": 0}, "names neither run nor instance"),
        ({"run": "recorded", "evaluation": True}, "agent 'a' has no steps in phases"),
    ],
)
def test_a_wrong_source_is_told_where_it_stands(store: Store, source: dict[str, Any], message: str) -> None:
    entry = lived(store, source={"store": str(store.directory), **source})
    (problem,) = inspect(document(phase([entry], [learner("a", "lived")], ALL_END)))
    assert problem.path == "schedule.0.phase_0.environments.0"
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(str(problem))
