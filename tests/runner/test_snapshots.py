"""Models kept during a phase and at its end, and taken up by other phases, agents and runs."""

from __future__ import annotations

from io import BytesIO

import pytest
from support.documents import document, named, phase
from support.learning import HERE, follower, learner, noted, track

from palaestrai_mosaik.agent import Brain, BrainDumper
from palaestrai_mosaik.agent.library.dummy import DummyMuscle
from palaestrai_mosaik.core.errors import BrainDumpError, DocumentError
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

WORLD = [track(steps=3)]


def dumps(directory, uid="test"):
    """Return what every dump of :class:`Teacher` holds, by phase, agent, and snapshot."""
    root = directory / "brains" / uid
    found = {}
    for path in sorted(root.rglob("brain.bin")):
        _, _, content = path.read_bytes().partition(b"\n")
        found["/".join(path.relative_to(root).parts[:-1])] = int(content)
    return found


def loaded(log):
    return [int(line.split()[2]) for line in noted(log) if " load " in line]


def objective(target):
    return named(f"{HERE}:Noting", target=target)


def load(**keys):
    return {"agents": [{"name": "a", "load": keys}], "phase_config": {"mode": "test", "episodes": 1}}


def test_a_brain_is_kept_every_n_episodes_when_best_and_at_the_end(tmp_path):
    """The brain of one worker has thought 3 times after each episode of 3 steps.

    Its episodes act with 0 1 2, then 3 4 5, then 6 7 8; a target of 4 makes the second one best.
    """
    log = tmp_path / "log"
    one = follower(log, objective=objective(4), snapshots={"every": 2, "best": True})
    doc = document(
        phase(WORLD, [one], episodes=3),
        load(snapshot="best"),
        load(snapshot="episode-2", phase=0),
        load(phase_name="phase_0"),
    )
    with Store(tmp_path / "s", create=True) as store:
        result = execute(doc, store=store)
    assert dumps(result.directory) == {
        "phase_0/a": 9,
        "phase_0/a/snapshot-best": 6,
        "phase_0/a/snapshot-episode-2": 6,
        "phase_1/a": 6,
        "phase_2/a": 6,
        "phase_3/a": 9,
    }
    assert loaded(log) == [6, 6, 9]


def test_with_evaluations_the_best_is_that_of_the_best_evaluation(tmp_path):
    """Evaluations act with 3, 6, 9 and 12; a target of 9 makes the third one best, one of 99 the last."""
    for target, best in ((9, 9), (99, 12)):
        one = follower(objective=objective(target), snapshots={"best": True})
        doc = document(phase(WORLD, [one], episodes=4, evaluate_every=1))
        with Store(tmp_path / str(target), create=True) as store:
            result = execute(doc, store=store)
        assert dumps(result.directory) == {"phase_0/a": 12, "phase_0/a/snapshot-best": best}


def test_several_workers_make_one_snapshot(tmp_path):
    """The brain of two workers has thought 6 times after each round; all act with 0, then 6, then 12."""
    one = follower(objective=objective(6), snapshots={"every": 1, "best": True})
    doc = document(phase(WORLD, [one], episodes=3, workers=2))
    with Store(tmp_path, create=True) as store:
        result = execute(doc, store=store)
    every = {f"phase_0/a/snapshot-episode-{n}": 6 * n for n in (1, 2, 3)}
    assert dumps(result.directory) == {"phase_0/a": 18, "phase_0/a/snapshot-best": 12, **every}


def test_models_travel_between_agents_and_runs(tmp_path):
    log = tmp_path / "log"
    with Store(tmp_path / "s", create=True) as store:
        teacher = follower(snapshots={"every": 1})
        execute(document(phase(WORLD, [teacher], episodes=2), uid="school"), store=store)
        ours = {"experiment_run": "school", "agent": "a"}
        theirs = {"experiment_id": "school", "agent_name": "a"}
        for source in (
            {**ours, "phase": 0},
            {**theirs, "phase_name": "phase_0"},
            {**ours, "phase": "phase_0", "snapshot": "episode-1"},
        ):
            pupil = {**follower(log, load=source), "name": "pupil"}
            execute(document(phase(WORLD, [pupil], mode="test"), uid="work"), store=store)
    assert loaded(log) == [6, 6, 3]


def test_a_snapshot_that_nobody_took_is_an_error_that_says_what_there_is(tmp_path):
    doc = document(phase(WORLD, [follower(snapshots={"every": 2})], episodes=2), load(snapshot="episode-3"))
    with Store(tmp_path, create=True) as store:
        with pytest.raises(BrainDumpError, match=r"episode-3.*episode-2"):
            execute(doc, store=store)
        assert store.runs()["status"].tolist() == ["failed"]
        assert store.phases("latest")["reason"].iloc[0] == "VanillaRunGovernorTerminationCondition"


def test_a_phase_or_agent_that_is_not_there_is_an_error_before_anything_runs():
    for keys, words in (({"phase": 3}, "no phase 3"), ({"agent": "b"}, "no agent 'b'")):
        with pytest.raises(DocumentError, match=words):
            document(phase(WORLD, [follower()]), load(**keys))


def test_load_without_anyone_to_do_it_is_an_error(tmp_path):
    mute = learner(brain=named(f"{HERE}:Hearing", log=str(tmp_path / "log")), load={})
    with pytest.raises(DocumentError, match=r"neither Hearing\.load nor Gauss\.prepare_model"):
        execute(document(phase(WORLD, [follower()]), phase(WORLD, [mute])))


def test_a_muscle_loads_the_dump_with_its_tag(tmp_path):
    """A brain that stores two dumps, and a muscle that loads one of them."""
    one = learner(brain=named(f"{__name__}:TwoDumps"), muscle=named(f"{__name__}:Actor"))
    execute(document(phase(WORLD, [one]), load()), store=Store(tmp_path, create=True))
    assert Actor.found == [b"actor", b"critic", b"head"]


class TwoDumps(Brain):
    """Keeps three dumps."""

    def thinking(self, muscle_id, data_from_muscle):
        return None

    def store(self):
        for tag in ("", "actor", "critic"):
            BrainDumper.store_brain_dump(BytesIO((tag or "head").encode()), self._dumpers, tag)


class Actor(DummyMuscle):
    """Loads the dumps of :class:`TwoDumps`."""

    found = []

    def prepare_model(self):
        Actor.found = [self.load(tag).read() for tag in ("actor", "critic", "")]


def test_a_muscle_loads_what_its_brain_has_kept(tmp_path):
    """The muscle of a worker process loads in prepare_model, and acts by it at once."""
    one = learner(brain=named(f"{HERE}:Wanderer"), muscle=named(f"{HERE}:WandererMuscle"))
    found = []
    for source in ({}, None):
        test = {
            "agents": [{"name": "a", "load": source}],
            "phase_config": {"mode": "test", "episodes": 1, "workers": 2},
        }
        with Store(tmp_path / str(len(found)), create=True) as store:
            execute(document(phase(WORLD, [one], episodes=4), test), store=store)
            steps = store.steps("latest", phase=1, agent="a")
        assert len(steps) == 6
        found.append(steps[steps["step"] == 0]["setpoint.t.u"].tolist())
    loading, fresh = found
    # the same generators, other weights
    assert all(one != other for one, other in zip(loading, fresh, strict=True))
