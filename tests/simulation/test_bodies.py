"""Bodies: one by one and all at once, in a batch of any size, in one environment or in copies of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.bodies import ALONE, AT_ONCE, calls, drift, drifting, steerer
from support.documents import agent, document, named, phase
from support.learning import digests, write

from palaestrai_mosaik.agent import BatchMuscle
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import ActionError, ContractError, DocumentError, SimulationError
from palaestrai_mosaik.runner import checkpoint, execute, inspect
from palaestrai_mosaik.store import Store

ALL = {"environment": "e"}


def everything(doc: Any, directory: Path, **keys: Any) -> dict[str, Any]:
    """Run a document; return digests of its streams, outcomes of its episodes, and what brains remember."""
    with Store(directory, create=True) as store:
        run = execute(doc, store=store, **keys).instance
        clock = ["duration", "started", "ended", "run", "instance"]
        episodes = store.episodes(run).drop(columns=clock, errors="ignore")
        brains = sorted((store.instance_directory(run) / "brains").rglob("*.bin"))
        return {
            "digests": digests(store, run),
            "episodes": episodes.to_json(double_precision=15),
            "brains": [(path.name, path.read_bytes()) for path in brains],
        }


def rows_of(doc: Any, directory: Path, name: str = "a") -> dict[int, pd.DataFrame]:
    """Run a document; return the rows of every body of an agent."""
    with Store(directory, create=True) as store:
        run = execute(doc, store=store).instance
        rows = store.steps(run, agent=name)
    if "body" not in rows:  # it has only one
        rows.insert(0, "body", 0)
    return {int(number): of.reset_index(drop=True) for number, of in rows.groupby("body")}


def plain(rows: pd.DataFrame) -> dict[str, bytes]:
    """Return the columns as bytes, without the clock on the wall; whatever the environment and incarnation.

    Where an entry has one body, its number is in the names of the columns, not what stands for it.
    """
    rows = rows.dropna(axis="columns", how="all").drop(
        columns=["body", "environment", "wall"], errors="ignore"
    )
    return {re.sub(r"\.e\d*\.(\d+|{body})\.", ".e.", name): rows[name].to_numpy().tobytes() for name in rows}


# --- one pass for all -----------------------------------------------------------------------


def test_muscle_and_brain_are_asked_once_about_all_bodies_of_a_tick():
    """By hand: bodies 0 to 3 have episodes of 3, 4, 5 and 6 steps, and begin again with the tick after.

    t              0   1   2   3   4   5   6
    acting         4   4   4   3   3   3       (at 3, 4, 5 the bodies 0, 1, 2 have ended)
    rows closed        4   4   4   3   3   3   (those that end an episode come to the brain before the others)
    """
    calls.clear()
    execute(
        drifting([drift(batch=4, drawn=False)], [steerer(None, {**ALL, "count": 4})], ends={"when": "all"})
    )
    assert [size for call, size in calls if call == "propose_batch"] == [4, 4, 4, 3, 3, 3]
    # at 6 all have ended at least once: the episode is over, and so it is for those in the midst of theirs
    assert [size for call, size in calls if call == "thinking_batch"] == [4, 4, 1, 3, 1, 2, 1, 2, 3]


# --- both paths, any scheduler, any number of workers --------------------------------


@pytest.mark.parametrize(
    ("keys", "ends"),
    [
        ({"episodes": 2}, {"when": "all", "episodes": 2}),
        ({"scheduler": "mosaik"}, {"when": "all", "episodes": 2}),
        ({"controller": "taking_turns"}, {"when": "all"}),
        ({"episodes": 2, "evaluate_every": 1}, {"when": "any"}),
        ({"workers": 2, "sync_every": 3}, {"when": "all"}),
    ],
)
def test_bodies_at_once_are_bodies_one_by_one(keys, ends, tmp_path):
    """Same bytes in all streams: readings, set-points, rewards, objectives, ends; and so the same was learned."""
    mixed = [{**AT_ONCE, "brain": "Judge"}, {**AT_ONCE, "objective": "Worth"}]
    found = []
    for parts in (ALONE, AT_ONCE, *(mixed if keys == {"episodes": 2} else ())):
        bodies = [{**ALL, "count": 3, "first": 2}, {**ALL, "count": 2}, {"environment": "o", "count": 2}]
        agents = [steerer(parts, *bodies), steerer(ALONE, {"environment": "o", "first": 2}, name="b")]
        doc = drifting([drift(batch=5), drift("o", batch=3)], agents, ends=ends, **keys)
        found.append(everything(doc, tmp_path / str(len(found))))
    assert len(found[0]["digests"]) >= 6 and len(found[0]["brains"]) == 2
    assert found[1:] == found[:1] * (len(found) - 1)


@pytest.mark.parametrize("keys", [{}, {"controller": "taking_turns"}, {"scheduler": "mosaik"}])
@pytest.mark.parametrize(
    ("alone", "at_once", "statistics"),
    [
        (("Ahead", "Seer"), [("AheadAll", "Seer"), ("AheadAll", "SeerOfAll")], True),
        (("Steer", "Tutor"), [("SteerEach", "Tutor")], False),
    ],
    ids=["what is seen next", "an update for each"],
)
def test_brains_are_told_the_same_and_tell_the_same(alone, at_once, statistics, keys, tmp_path):
    """What muscles see next, statistics of rows, and updates that are for one muscle alone."""
    found = []
    for muscle, brain in (alone, *at_once):
        parts = {"muscle": muscle, "objective": "WorthOfAll", "brain": brain}
        doc = drifting([drift(batch=4)], [steerer(parts, {**ALL, "count": 4})], episodes=2, **keys)
        found.append(everything(doc, tmp_path / str(len(found))))
    assert found[1:] == found[:1] * len(at_once)
    assert ("phase-0/statistics" in found[0]["digests"]) == statistics


def test_the_clock_of_a_batch_is_that_of_its_bodies(tmp_path):
    """The episode ends at 3, where the batch has no new state: the open rows get no reward a second time."""
    found = []
    for parts in (ALONE, AT_ONCE):
        slow = drift(batch=2)
        slow["environment"]["step_size"] = 2
        doc = drifting(
            [slow, drift("o", drawn=False)], [steerer(parts, {**ALL, "count": 2})], ends={"when": "any"}
        )
        found.append(rows_of(doc, tmp_path / parts["muscle"]))
    assert [plain(found[0][k]) for k in (0, 1)] == [plain(found[1][k]) for k in (0, 1)]
    last = found[1][0].iloc[-1]
    assert (last["time"], last["truncated"], last["reward.e.{body}.alive"]) == (2, True, 0.0)


def test_a_run_of_bodies_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_SHARE", 1e9)
    found = {}
    for parts in (ALONE, AT_ONCE):
        broken = tmp_path / "broken"
        world = drift(batch=3, broken=str(broken), at=2, episode=3)
        doc = drifting([world], [steerer(parts, {**ALL, "count": 3})], episodes=5, evaluate_every=2)
        undisturbed = everything(doc, tmp_path / f"{parts['muscle']} undisturbed")
        broken.touch()
        with Store(tmp_path / parts["muscle"], create=True) as store:
            with pytest.raises(SimulationError, match="not mended yet"):
                execute(doc, store=store, checkpoint_every=1e-9)
            instance = store.runs()["run"].iloc[0]
            broken.unlink()
        found[parts["muscle"]] = everything(doc, tmp_path / parts["muscle"], resume=instance)
        assert found[parts["muscle"]] == undisturbed
    assert found["Steer"] == found["SteerAll"]


# --- body k of 64 ------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "batch"), [(0, 1), (5, 1), (63, 1), (17, 7)])
def test_a_body_of_64_is_the_same_alone(first, batch, whole, tmp_path):
    """With the same names in the tree of seeds: its number among the agent's, and that of the incarnation."""
    others = [{"environment": "others", "count": first}] if first else []
    world = [drift(batch=batch, first=first), *([drift("others", batch=first)] if first else [])]
    parts = {**AT_ONCE, "brain": ""}
    del parts["brain"]
    doc = drifting(world, [steerer(parts, *others, {**ALL, "count": batch})])
    part = rows_of(doc, tmp_path)
    for number in range(first, first + batch):
        one, other = (rows[rows["environment_episode"] < 2] for rows in (part[number], whole[number]))
        assert len(one) >= 6 and set(one["environment_episode"]) == {0, 1}
        assert plain(one) == plain(other)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The rows of 64 bodies in a batch of 64, of which nothing is learned."""
    parts = {key: AT_ONCE[key] for key in ("muscle", "objective")}
    doc = drifting([drift(batch=64)], [steerer(parts, {**ALL, "count": 64})])
    return rows_of(doc, tmp_path_factory.mktemp("whole"))


def test_bodies_in_one_environment_are_one_body_in_each_of_several(tmp_path):
    """The symmetry of the seed: "equivalent to an agent with a single body existing in multiple copies".

    One batched environment of five, or five environments with one each, in one world, with one brain
    that learns from all bodies.
    """
    together = drifting([drift(batch=5, drawn=False)], [steerer(None, {**ALL, "count": 5})], episodes=2)
    copies = drifting(
        [drift(f"e{k}", first=k, drawn=False) for k in range(5)],
        [steerer(ALONE, *({"environment": f"e{k}"} for k in range(5)))],
        episodes=2,
    )
    one, other = rows_of(together, tmp_path / "one"), rows_of(copies, tmp_path / "other")
    assert set(one) == set(other) == set(range(5))
    for k in range(5):
        assert plain(one[k]) == plain(other[k])
    # something was learned
    assert one[0]["setpoint.e.{body}.push"].nunique() > 10


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({**ALL, "count": 4}, "bodies need the incarnations 0 to 3, but environment 'e' has 3 (0 to 2)"),
        ({**ALL, "count": 2, "first": 2}, "bodies need the incarnations 2 to 3, but environment 'e' has 3"),
        ({**ALL, "first": 3}, "the body needs the incarnation 3, but environment 'e' has 3 (0 to 2)"),
        ({"sensors": ["e.3.place"]}, "no sensor 'e.3.place'"),
        ({"sensors": ["e.{body}.plaice"]}, "environment 'e' offers e.{body}.place for {body} from 0 to 2"),
        ({"actuators": ["e.0.push", "e.1.push"]}, "body 0 would be in 2 environments (e.0, e.1)"),
        ({"sensors": ["e.0.place"], "actuators": ["o.0.push"]}, "the body is in two environments, 'e'"),
    ],
)
def test_bodies_that_have_no_place_are_told_where_they_are_written(body, said):
    with pytest.raises(DocumentError) as caught:
        execute(drifting([drift(batch=3), drift("o")], [steerer(None, body)]))
    assert said in str(caught.value)
    assert "agents.0.bodies.0" in str(caught.value)


def test_bodies_with_the_same_actuators_are_warned_of():
    body = {"count": 2, "sensors": ["myenv.{body}"], "actuators": ["myenv.5"]}
    shared = {**agent("a"), "sensors": None, "actuators": None, "bodies": [body]}
    (warning,) = document(phase(agents=[shared])).warnings
    assert "the 2 bodies have the same actuators (myenv.5)" in str(warning)


class Wrong(BatchMuscle):
    """Answers as ``how`` says."""

    def __init__(self, how: str):
        self.how = how

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        raise AssertionError("asked for one body")

    def propose_batch(self, batch: Any) -> Any:
        n = len(batch.bodies)
        setpoints = np.zeros((n, 1))
        if self.how == "outside":
            setpoints[2] = 2.5
        return {
            "one for all": (np.zeros(1), None),
            "flat": (np.zeros(n), None),
            "too few": (np.zeros((n - 1, 1)), None),
            "data": (setpoints, [1]),
            "no pair": setpoints,
            "outside": (setpoints, None),
        }[self.how]


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ("one for all", ContractError, r"of shape \(1,\); expected is \(4, 1\): 4 bodies, 1 set-points"),
        ("flat", ContractError, r":Wrong\): propose_batch returned set-points of shape \(4,\)"),
        ("too few", ContractError, r"of shape \(3, 1\); expected is \(4, 1\)"),
        (
            "data",
            ContractError,
            ":Wrong\\): propose_batch returned data for 1 bodies; expected is one for each of 4",
        ),
        ("no pair", ContractError, r"must return \(set-points, data\)"),
        # body 2 of these sits in incarnation 3
        ("outside", ActionError, r"set-point \[2\.5\] of actuator 'e\.3\.push' is not in"),
    ],
)
def test_a_wrong_answer_for_many_bodies_is_named(how, error, said):
    one = {
        "name": "a",
        "muscle": named(f"{__name__}:Wrong", how=how),
        "bodies": [{**ALL, "count": 4, "first": 1}],
    }
    with pytest.raises(error, match=said):
        execute(drifting([drift(batch=6)], [one], mode="test"))


class Uneven(BatchMuscle):
    """Of a brain that has an update for each of its muscles; does not say how to take it."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        return actuators_available, None

    def propose_batch(self, batch: Any) -> Any:
        return np.zeros((len(batch.bodies), 1)), [float(body) for body in batch.bodies]


def test_updates_for_single_bodies_need_a_muscle_that_takes_them(monkeypatch):
    monkeypatch.setattr("support.bodies.Judge.shared_updates", False)
    one = {**steerer(None, {**ALL, "count": 2}), "muscle": named(f"{__name__}:Uneven")}
    with pytest.raises(NotImplementedError, match=r"Uneven acts for many bodies.*needs update_body"):
        execute(drifting([drift(batch=2)], [one]))


@pytest.mark.parametrize("parts", [ALONE, AT_ONCE], ids=["alone", "at once"])
def test_an_exception_in_a_batched_environment_fails_the_run(parts, tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    (tmp_path / "broken").touch()
    world = drift(batch=3, broken=str(tmp_path / "broken"), at=1, episode=1)
    doc = drifting([world], [steerer(parts, {**ALL, "count": 3})], episodes=3)
    path = write(tmp_path / "broken.yml", doc)
    assert main(["start", "--store", str(tmp_path / "store"), str(path)]) != 0
    assert "not mended yet" in capsys.readouterr().err
    with Store(tmp_path / "store", create=True) as store:
        assert store.runs()["status"].tolist() == ["failed"]
        assert "get_action_results" in store.errors("latest")["traceback"].iloc[0]
        # what was there before can be read
        assert set(store.steps("latest", agent="a", episode=0)["body"]) == {0, 1, 2}


def test_a_muscle_for_many_that_filters_stand_before_is_asked_one_by_one():
    """The contract of the fast path: it is left where it does not hold."""
    filtered = {**ALL, "count": 2, "filters": [named("palaestrai_mosaik.agent.filters:NormFilter")]}
    doc = drifting([drift(batch=2)], [steerer(None, filtered)], ends={"when": "any"})
    assert inspect(doc) == []
    calls.clear()
    execute(doc)
    assert [call for call, _ in calls if call == "propose_batch"] == []
