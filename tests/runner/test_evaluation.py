"""Evaluations: episodes in test mode between those in training, and what is made of them."""

from __future__ import annotations

import pytest
from support.documents import CONDITIONS, VANILLA_RUN, document, named, phase
from support.learning import HERE, digests, follower, learner, noted, track

from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

EVALUATION = "palaestrai_mosaik.simulation.evaluation:AgentEvaluationObjectiveTerminationCondition"


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """Two workers, whose episodes have 2 and 3 steps; an evaluation after every second one.

    All rows of an episode act with the number of rows that the brain knew when it began: 5 per
    round, so 0, 5, (10), 10, 15, (20), where evaluations are in parentheses.
    """
    base = tmp_path_factory.mktemp("evaluated")
    log = base / "log"
    one = follower(
        log,
        muscle={"short": {0: 2}},
        objective=named(f"{HERE}:Noting"),
        filters=[named(f"{HERE}:Watching", log=str(log))],
    )
    with Store(base / "store", create=True) as store:
        doc = document(
            phase([track(steps=3)], [one], workers=2, sync_every=10, episodes=50, evaluate_every=2),
            {
                "agents": [{"name": "a", "load": {}}],
                "phase_config": {"mode": "test", "workers": 1, "episodes": 1},
            },
            run=[named(f"{HERE}:Evaluations", last=1, log=str(log)), named(VANILLA_RUN)],
        )
        result = execute(doc, store=store)
        yield store, result, noted(log)


def told(log, *words):
    """Return the lines of a log that begin with ``words``."""
    start = " ".join(words) + " "
    return [line.removeprefix(start) for line in log if line.startswith(start)]


def test_the_metrics_are_means_over_the_workers(evaluated):
    _, _, log = evaluated
    # worker 0: 2 steps with 10 each, worker 1: 3 steps; mean objective 10, sums 20 and 30
    assert told(log, "a evaluated") == [
        "objective=10 objective_sum=25 steps=2.5",
        "objective=20 objective_sum=50 steps=2.5",
    ]
    # conditions are told what the brain adds, too
    assert told(log, "condition") == [
        "0 a 2 objective=10 objective_sum=25 steps=2.5 thought=10",
        "1 a 2 objective=20 objective_sum=50 steps=2.5 thought=20",
    ]


def test_a_condition_ends_the_phase_after_the_evaluation(evaluated):
    store, result, _ = evaluated
    assert result.phases[0].reason == "Evaluations"
    # evaluations count neither as episodes nor as steps
    assert (result.phases[0].episodes, result.phases[0].steps) == (8, 4 * 5)
    assert store.phases("latest")["reason"].iloc[0] == "Evaluations"


def test_evaluations_are_stored_as_such_and_numbered_on_their_own(evaluated):
    store, _, _ = evaluated
    training, evaluations = (
        store.episodes("latest", phase=0, evaluation=flag).sort_values(["worker", "episode"])
        for flag in (False, True)
    )
    assert training[["worker", "episode"]].to_numpy().tolist() == [[w, e] for w in (0, 1) for e in range(4)]
    assert evaluations[["worker", "episode", "steps", "objective_sum"]].to_numpy().tolist() == [
        [0, 0, 2, 20],
        [0, 1, 2, 40],
        [1, 0, 3, 30],
        [1, 1, 3, 60],
    ]
    assert training["objective_sum"].tolist() == [0, 10, 20, 30, 0, 15, 30, 45]
    steps = store.steps("latest", phase=0, agent="a", evaluation=True)
    assert len(steps) == 10
    assert set(steps["setpoint.t.u"]) == {10, 20}


def test_muscles_are_in_test_mode_and_nobody_thinks(evaluated):
    _, _, log = evaluated
    for worker, length in ((0, 2), (1, 3)):
        modes = [line.split()[0] for line in told(log, f"a.{worker} propose")]
        training, evaluation = ["train"] * 2 * length, ["test"] * length
        in_phase_0 = (training + evaluation) * 2
        assert modes[: len(in_phase_0)] == in_phase_0
    # 4 training episodes of 2 and 3 rows, and none of the evaluations
    assert len(told(log, "a thinking")) == 20


def test_filters_learn_in_training_and_are_frozen_in_evaluations(evaluated):
    _, _, log = evaluated
    seen = [tuple(line.split()) for line in told(log, "filter")]
    known = {(mode, int(known)) for mode, _, known in seen}
    # a training episode shows 3 and 4 readings (the last one too), and all of them know of all
    # that was seen before it began; what evaluations and the test phase show is not learned
    assert known == {("train", n) for n in (0, 7, 14, 21)} | {("test", n) for n in (14, 28)}


def test_the_test_phase_starts_with_what_brain_and_filters_have_learned(evaluated):
    store, _, log = evaluated
    assert told(log, "a load") == ["20"]
    steps = [line for line in told(log, "filter") if line.startswith("test") and line.endswith(" 28")]
    # those of the second evaluation, 2 and 3, and one episode of worker 0
    assert len(steps) == 5 + 2
    # a muscle that loads nothing itself does what it did when it was new: test mode has no updates
    assert store.steps("latest", phase=1, agent="a")["setpoint.t.u"].tolist() == [0, 0]


def test_evaluations_leave_the_streams_of_training_episodes_as_they_are(tmp_path):
    found = []
    for every in (0, 1):
        with Store(tmp_path / str(every), create=True) as store:
            execute(document(phase([track()], [learner()], episodes=3, evaluate_every=every)), store=store)
            found.append(digests(store))
    without, having = found
    assert without.items() < having.items()
    evaluations = {key: value for key, value in having.items() if "evaluation" in key}
    assert len(evaluations) == 2
    assert not set(evaluations.values()) & set(without.values())


def rule(**keys):
    return named(EVALUATION, agents={"a": keys})


SUCCESS = {"metric": "objective", "threshold": 6, "direction": "greater_equal"} | {
    "consecutive": 2,
    "min_evaluations": 1,
}
PLATEAU = {"metric": "steps", "direction": "maximize", "min_delta": 0.5, "patience": 2} | {
    "min_evaluations": 1,
    "window": 1,
}


@pytest.mark.parametrize(
    ("rules", "reason", "evaluations"),
    [
        # the objectives are 3, 6, 9: the third evaluation is the second good one
        ({"success": SUCCESS}, "success", 3),
        # the steps are 3, 3, 3: two without improvement after the first one
        ({"plateau": PLATEAU}, "plateau", 3),
        ({"success": {**SUCCESS, "consecutive": 1}, "plateau": PLATEAU}, "success", 2),
        ({"success": {**SUCCESS, "threshold": 99}, "plateau": {**PLATEAU, "patience": 4}}, "plateau", 5),
    ],
)
def test_the_rules_end_a_phase_at_the_right_evaluation(tmp_path, rules, reason, evaluations):
    one = follower(objective=named(f"{HERE}:Noting"))
    doc = document(
        phase([track(steps=3)], [one], evaluate_every=1, episodes=20),
        run=[rule(**rules)],
    )
    with Store(tmp_path, create=True) as store:
        result = execute(doc, store=store)
        expected = f"AgentEvaluationObjectiveTerminationCondition: {reason}"
        assert result.phases[0].reason == store.phases("latest")["reason"].item() == expected
        assert len(store.episodes("latest", evaluation=True)) == evaluations
        assert result.phases[0].episodes == evaluations


def test_a_rule_ends_an_asynchronous_phase(tmp_path):
    one = follower(objective=named(f"{HERE}:Noting"))
    doc = document(
        phase([track(steps=3)], [one], workers=2, evaluate_every=2, episodes=50, asynchronous=True),
        run=[rule(success={**SUCCESS, "threshold": 1, "consecutive": 1, "min_evaluations": 2})],
    )
    with Store(tmp_path, create=True) as store:
        result = execute(doc, store=store)
        assert result.phases[0].reason == "AgentEvaluationObjectiveTerminationCondition: success"
        found = store.episodes("latest", evaluation=True).groupby("worker")["episode"].apply(list)
        # both ran the first two; one may have been on to the next when the other had run its second
        assert all(numbers[:2] == [0, 1] and len(numbers) < 25 for numbers in found)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_evaluation_is_judged_without_a_worker_that_has_stopped(tmp_path, asynchronous):
    """Worker 0 ends its phase after one episode, before the first evaluation."""
    log = tmp_path / "log"
    ends = [named(f"{HERE}:StopsWorker", worker=0)]
    doc = document(
        phase(
            [track(steps=3)],
            [follower(log)],
            ends,
            workers=2,
            evaluate_every=2,
            episodes=6,
            asynchronous=asynchronous,
        ),
        run=[
            named(f"{HERE}:Evaluations", last=0, log=str(log)),
            named(f"{CONDITIONS}:MaxEpisodesTerminationCondition"),
        ],
    )
    result = execute(doc)
    assert result.phases[0].reason == "Evaluations"
    assert asynchronous or result.phases[0].episodes == 1 + 2
    first, *more = told(noted(log), "condition")
    assert first.startswith("0 a 1 objective=")
    # a worker that does not wait for the others may have reached its next one
    assert asynchronous or not more


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_evaluation_after_the_last_episode_is_judged_too(tmp_path, asynchronous):
    log = tmp_path / "log"
    keys = {"workers": 2, "evaluate_every": 2, "episodes": 4, "asynchronous": asynchronous}
    execute(document(phase([track(steps=3)], [follower(log)], **keys)))
    assert len(told(noted(log), "a evaluated")) == 2
