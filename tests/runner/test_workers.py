"""Workers in processes: rounds in a defined order, updates, streams, and what crosses between processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import agent, document, environment, named, phase
from support.learning import HERE, data, digests, follower, learner, noted, told, track, write
from support.waiting import HANG

from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

ROOT = Path(__file__).parents[2]


def run(directory, *phases, **keys):
    """Execute a document in a new store; return the store and the result."""
    store = Store(directory, create=True)
    return store, execute(document(*phases, **keys), store=store)


def setpoints(store, phase=0):
    """Return the set-points ``u`` of agent a by (worker, episode)."""
    steps = store.steps("latest", agent="a", phase=phase)
    grouped = steps.groupby(["worker", "episode"])["setpoint.t.u"]
    return {key: values.tolist() for key, values in grouped}


def thoughts(log):
    """Return what the brain thought about, in order: muscle, its row, and how it ended."""
    told = [line.split() for line in noted(log) if " thinking " in f" {line} "]
    return [(muscle, int(row), end) for _, _, muscle, row, _, end in told]


def heard(log):
    """Return the updates that each muscle got, in order."""
    told = [line.split() for line in noted(log) if " update " in f" {line} "]
    return {m: [float(value) for uid, _, value in told if uid == m] for m in ("a.0", "a.1")}


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    """Two episodes of five steps in two workers that hear from the brain every two steps."""
    base = tmp_path_factory.mktemp("rounds")
    log = base / "log"
    store, result = run(
        base / "store",
        phase([track(steps=5)], [follower(log)], workers=2, sync_every=2, episodes=2),
    )
    yield store, result, log
    store.close()


def test_the_brain_sees_the_rows_round_by_round_and_worker_by_worker(rounds):
    _, _, log = rounds
    episode = [
        *[("a.0", 0), ("a.0", 1), ("a.1", 0), ("a.1", 1)],
        *[("a.0", 2), ("a.0", 3), ("a.1", 2), ("a.1", 3)],
        *[("a.0", 4), ("a.1", 4)],
    ]
    expected = [(m, row, "truncated" if row == 4 else "goes-on") for m, row in episode]
    # the muscles go on counting their rows
    expected += [(m, row + 5, end) for m, row, end in expected]
    assert thoughts(log) == expected


def test_an_update_counts_from_the_first_action_after_the_exchange(rounds):
    store, _, _ = rounds
    # Rows 0 and 1 of both workers make update 4. They are sent with the state of time 2, on which the
    # muscles have acted by then, so 3 is the first action with it. Rows 2 and 3 make update 8, for
    # which the episode is too short, row 4 of both makes update 10, with which the next one begins.
    first, second = [0, 0, 0, 4, 4], [10, 10, 10, 14, 14]
    assert setpoints(store) == {(0, 0): first, (0, 1): second, (1, 0): first, (1, 1): second}


def test_all_muscles_get_the_newest_update_at_every_exchange(rounds):
    _, _, log = rounds
    expected = [4, 8, 10, 14, 18]
    assert heard(log) == {"a.0": expected, "a.1": expected}


def test_rewards_and_objectives_belong_to_their_rows(rounds):
    store, result, _ = rounds
    steps = store.steps("latest", agent="a")
    assert (steps["objective"] == steps["setpoint.t.u"]).all()
    assert (steps["reward.t.r"] == steps["setpoint.t.u"]).all()
    assert (steps["reading.t.x"] == steps["step"]).all()
    assert (steps["truncated"] == (steps["step"] == 4)).all()
    episodes = store.episodes("latest").sort_values(["worker", "episode"])
    # set-points of 0 0 0 4 4 and 10 10 10 14 14
    for name in ("objective", "reward.t.r"):
        for of, values in (("sum", [8, 58]), ("mean", [1.6, 11.6]), ("min", [0, 10]), ("max", [4, 14])):
            assert episodes[f"{name}_{of}"].tolist() == values * 2, (name, of)
    assert (result.phases[0].episodes, result.phases[0].steps) == (4, 20)


def test_workers_see_different_random_streams(rounds):
    store, _, _ = rounds
    noise = store.steps("latest", agent="a")["reading.t.noise"]
    assert noise.nunique() == len(noise) == 20


def test_without_shared_updates_a_muscle_gets_only_its_own(tmp_path):
    log = tmp_path / "log"
    one = follower(log, brain={"shared": False})
    store, _ = run(tmp_path / "s", phase([track(steps=5)], [one], workers=2, sync_every=2))
    with store:
        assert setpoints(store) == {(0, 0): [0, 0, 0, 2, 2], (1, 0): [0, 0, 0, 4, 4]}
    assert heard(log) == {"a.0": [2, 6], "a.1": [4, 8]}


def test_a_worker_that_ends_early_waits_for_the_others(tmp_path):
    log = tmp_path / "log"
    one = follower(log, muscle={"short": {0: 2}})
    store, _ = run(tmp_path / "s", phase([track(steps=5)], [one], workers=2, sync_every=2, episodes=2))
    with store:
        assert setpoints(store) == {
            (0, 0): [0, 0],
            (1, 0): [0, 0, 0, 4, 4],
            (0, 1): [7, 7],
            (1, 1): [7, 7, 7, 11, 11],
        }
        assert store.steps("latest", agent="a")["terminated"].sum() == 2
    assert thoughts(log)[:7] == [
        *[("a.0", 0, "goes-on"), ("a.0", 1, "terminated"), ("a.1", 0, "goes-on"), ("a.1", 1, "goes-on")],
        *[("a.1", 2, "goes-on"), ("a.1", 3, "goes-on"), ("a.1", 4, "truncated")],
    ]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("shared", [True, False])
def test_what_pretrain_returns_reaches_all_muscles_before_their_first_action(tmp_path, workers, shared):
    world = [track(steps=3)]
    run(tmp_path, phase(world, [follower()]))[0].close()
    log = tmp_path / "log"
    pupil = follower(log, brain={"pretrained": 7.0, "shared": shared}, replay=[{}])
    store, _ = run(tmp_path, phase(world, [pupil], workers=workers, sync_every=9))
    with store:
        found = setpoints(store)
    assert "a pretrain 3" in noted(log)
    if workers == 2:
        assert found == {(0, 0): [7, 7, 7], (1, 0): [7, 7, 7]}
    else:
        # one worker hears from the brain after every row
        assert found == {(0, 0): [7, 1, 2]}


SCRIPT = """
import sys
from palaestrai_mosaik.experiment import load
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store
from support.learning import digests
if __name__ == "__main__":
    with Store(sys.argv[2], create=True) as store:
        execute(load(sys.argv[1]), store=store)
        print(sorted(digests(store).items()))
"""


def test_no_delay_and_no_hash_seed_changes_the_results(tmp_path):
    """Workers that take turns in being late, processes with other hash seeds, and cores kept busy."""
    learning = learner(muscle=named(f"{HERE}:WandererMuscle"), brain=named(f"{HERE}:Wanderer"))
    other = learner("b", "second", muscle=named(f"{HERE}:Noise", what="dict"))
    path = write(
        tmp_path / "run.yml",
        document(
            phase(
                [track(steps=6, jitter=0.004), track("second", steps=4, jitter=0.004)],
                [learning, other],
                workers=2,
                sync_every=2,
                episodes=3,
                evaluate_every=2,
            )
        ),
    )
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        outputs = []
        for seed in ("0", "4242"):
            done = subprocess.run(
                [sys.executable, "-c", SCRIPT, str(path), str(tmp_path / seed)],
                env={
                    **os.environ,
                    "PYTHONHASHSEED": seed,
                    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
                },
                capture_output=True,
                text=True,
                check=True,
                timeout=HANG,
            )
            outputs.append(done.stdout)
    finally:
        busy.kill()
        busy.wait()
    assert outputs[0] == outputs[1]
    for folder in ("phase-0/agent-a", "phase-0/evaluation/agent-b", "phase-0/environment-second"):
        assert folder in outputs[0]
    # and a learning agent hears of it, in each of these executions
    with Store(tmp_path / "0", create=True) as store:
        assert len(store.statistics("latest", key="weight")) == 2 * 3 * 4


def test_adding_an_agent_changes_nobody_elses_stream(tmp_path):
    def world(*agents):
        return phase([track(steps=4), track("second", steps=4)], list(agents), workers=2, sync_every=3)

    log = str(tmp_path / "log")
    noisy = learner(muscle=named(f"{HERE}:Noise", what="array"), brain=named(f"{HERE}:Hearing", log=log))
    alone, _ = run(tmp_path / "one", world(noisy))
    both, _ = run(tmp_path / "two", world(learner("new", "second"), noisy))
    with alone, both:
        first, second = digests(alone), digests(both)
    for stream in ("agent-a", "environment-t"):
        assert first[f"phase-0/{stream}"] == second[f"phase-0/{stream}"]
    # the new one acts
    assert "phase-0/agent-new" in second.keys() - first.keys()
    assert first["phase-0/environment-second"] != second["phase-0/environment-second"]


def test_asynchronous_workers_run_and_store_all_episodes(tmp_path):
    log = tmp_path / "log"
    one = follower(log, muscle={"short": {0: 3}})
    store, result = run(
        tmp_path / "s",
        phase([track(steps=5, jitter=0.01)], [one], workers=2, sync_every=2, episodes=4, asynchronous=True),
    )
    with store:
        steps = store.steps("latest", agent="a")
        episodes = store.episodes("latest")
    assert steps.groupby(["worker", "episode"]).size().to_dict() == {
        (worker, episode): length for worker, length in ((0, 3), (1, 5)) for episode in range(4)
    }
    assert len(episodes) == 8
    assert (result.phases[0].episodes, result.phases[0].steps) == (8, 32)
    # every row once, and those of a worker in order
    found = thoughts(log)
    for muscle, rows in (("a.0", 12), ("a.1", 20)):
        assert [row for m, row, _ in found if m == muscle] == list(range(rows))


@pytest.mark.parametrize("workers", [1, 2])
def test_data_of_any_kind_reach_the_brain_as_they_were_sent(tmp_path, workers):
    kinds = ["None", "array", "ragged", "dict", "text", "mixed", "huge", "masked", "big-endian"]
    logs = {kind: tmp_path / kind for kind in kinds}
    agents = [
        learner(
            kind,
            f"t{i}",
            muscle=named(f"{HERE}:Noise", what=kind),
            brain=named(f"{HERE}:Hearing", log=str(logs[kind])),
        )
        for i, kind in enumerate(kinds)
    ]
    worlds = [track(f"t{i}", steps=4) for i in range(len(kinds))]
    execute(document(phase(worlds, agents, workers=workers, sync_every=3)))
    for kind in kinds:
        expected = [told(data(kind, number)) for number in range(1, 5)]
        for worker in range(workers):
            start = f"{kind}.{worker} "
            mine = [line.removeprefix(start) for line in noted(logs[kind]) if line.startswith(start)]
            assert mine == expected


def test_discrete_spaces_and_several_environments_work_in_several_workers(tmp_path):
    worlds = [environment("one", max_iter=5), environment("two", max_iter=5)]
    both = agent("a", uid="one", sensors=[f"{uid}.{i}" for uid in ("one", "two") for i in range(2)])
    store, _ = run(
        tmp_path, phase(worlds, [both, agent("b", 5, uid="two")], workers=2, sync_every=2, episodes=2)
    )
    with store:
        for name in ("a", "b"):
            steps = store.steps("latest", agent=name)
            assert steps.groupby(["worker", "episode"]).size().tolist() == [5] * 4
            points = steps[[c for c in steps.columns if c.startswith("setpoint")]]
            assert points.shape == (20, 5)
            assert (points == points.round()).all(axis=None)
        steps = store.steps("latest", agent="a")
    assert (steps["reading.two.1"] == steps["step"]).all()


def test_stored_rows_do_not_depend_on_the_number_of_workers_or_processes(tmp_path):
    """Worker 0 does the same alone in the main process as beside another one in a process of its own."""

    def rows(name, **keys):
        store, _ = run(tmp_path / name, phase([track(steps=4)], [learner()], episodes=2, **keys))
        with store:
            steps = store.steps("latest", agent="a")
            states = store.environment_states("latest")
        return steps[steps["worker"] == 0], states[states["worker"] == 0]

    for alone, together in zip(rows("one"), rows("two", workers=2, sync_every=3), strict=True):
        assert len(alone) >= 8
        kept = [column for column in alone.columns if not column.startswith("wall")]
        assert alone[kept].reset_index(drop=True).equals(together[kept].reset_index(drop=True))


def test_a_restart_makes_muscles_anew_and_lets_brain_and_conditions_live(tmp_path):
    found = {}
    for workers in (1, 2):
        log, asked = tmp_path / f"log{workers}", tmp_path / f"asked{workers}"
        store, _ = run(
            tmp_path / str(workers),
            phase(
                [track(steps=3)],
                [follower(log)],
                [named(f"{HERE}:RestartOnce", log=str(asked))],
                workers=workers,
                sync_every=9,
                episodes=2,
            ),
        )
        with store:
            assert [x[:1] for x in setpoints(store).values()] == [[0], [3 * workers]] * workers
        assert noted(log).count("a.0 setup train") == noted(log).count("a.0 teardown") == 2
        # a worker's condition goes on counting: two episodes of four states
        found[workers] = [line for line in noted(asked) if line.startswith("0 ")]
        assert found[workers][-1] == "0 1 3 8"
    assert found[1] == found[2]


def test_muscles_hear_of_an_update_once_and_new_ones_of_the_last(tmp_path):
    """The only update is 2; exchanges follow at time 2 and 4 and at the end, then come new muscles."""
    log = tmp_path / "log"
    one = follower(log, brain={"until": 2})
    restart = [named(f"{HERE}:RestartOnce")]
    keys = {"workers": 2, "sync_every": 2, "episodes": 3}
    store, _ = run(tmp_path / "s", phase([track(steps=5)], [one], restart, **keys))
    with store:
        found = setpoints(store)
    assert heard(log) == {"a.0": [2, 2], "a.1": [2, 2]}
    assert [found[1, episode] for episode in range(3)] == [[0, 0, 0, 2, 2], [2] * 5, [2] * 5]
