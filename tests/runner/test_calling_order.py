"""Who is called when: the table of docs/own-agent.md, compared with what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.documents import document, named, phase
from support.learning import HERE, follower, noted, track

from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

PAGE = Path(__file__).parents[2] / "docs" / "own-agent.md"
#: how the parts of ``support.learning`` note a call
NOTED = {
    "Brain": ("a", {}),
    "Muscle": ("a.0", {"propose_actions": "propose"}),
    "Objective": ("objective", {"internal_reward": "record"}),
}
#: what test mode leaves out
LEARNING = {"Brain.pretrain", "Brain.thinking", "Brain.evaluated", "Muscle.update"}


def table():
    """Return the calls of each row of the table, by its first column."""
    section = PAGE.read_text(encoding="utf-8").partition("## Calling order\n")[2].partition("\n(1)")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]
    found = {when.strip(): re.findall(r"`((?:Brain|Muscle|Objective)\.\w+)`", calls) for when, calls in rows}
    assert list(found) == [
        "the phase begins",
        "another episode begins",
        "a step",
        "an evaluation is over",
        "the phase ends",
    ]
    return found


def written(call):
    owner, _, method = call.partition(".")
    who, names = NOTED[owner]
    return f"{who} {names.get(method, method)}"


def happened(log):
    return [" ".join(line.split()[:2]) for line in noted(log)]


def of(events, who):
    return [event for event in events if event.startswith(f"{who} ")]


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """Return what is noted in a train and a test phase, with one worker and with two."""
    base = tmp_path_factory.mktemp("lived")
    found = {}
    world = [track(steps=2)]
    with Store(base, create=True) as store:
        execute(document(phase(world, [follower()])), store=store)
        for workers in (1, 2):
            log = base / f"log{workers}"
            one = follower(
                log,
                brain={"pretrained": 7.0},
                objective=named(f"{HERE}:Noting", log=str(log)),
                load={"experiment_run": "test", "phase": 0},
                replay=[{"experiment_run": "test", "phase": 0}],
            )
            train = phase(world, [one], workers=workers, sync_every=9, episodes=2, evaluate_every=2)
            test = {
                "agents": [{"name": "a", "load": {}}],
                "phase_config": {"mode": "test", "episodes": 2, "evaluate_every": 0},
            }
            execute(document(train, test, uid="lived"), store=store)
            found[workers] = happened(log)
    return found


def expected(*, train):
    """Return the events of one worker as the table has them: 2 episodes of 2 steps, and an evaluation."""
    rows = {
        mode: {
            when: [written(call) for call in calls if learns or call not in LEARNING]
            for when, calls in table().items()
        }
        for mode, learns in (("train", True), ("test", False))
    }
    mine, test = rows["train" if train else "test"], rows["test"]
    again = mine["another episode begins"]
    events = mine["the phase begins"] + mine["a step"] * 2 + again + mine["a step"] * 2
    if train:
        events += again + test["a step"] * 2 + mine["an evaluation is over"]
    return events + mine["the phase ends"]


def test_one_worker_calls_in_the_order_of_the_table(lived):
    assert lived[1] == expected(train=True) + expected(train=False)


def test_the_table_names_all_that_can_be_called():
    calls = {call for calls in table().values() for call in calls}
    assert calls == {
        *(f"Brain.{name}" for name in ("setup", "load", "pretrain", "thinking", "evaluated", "store")),
        *(
            f"Muscle.{name}"
            for name in ("setup", "prepare_model", "propose_actions", "update", "reset", "teardown")
        ),
        *(f"Objective.{name}" for name in ("setup", "internal_reward")),
    }


def test_the_brain_of_two_workers_is_called_in_the_same_order(lived):
    one = of(expected(train=True) + expected(train=False), "a")
    # a row of each worker where there was one
    assert of(lived[2], "a") == [event for event in one for _ in range(1 + (event == "a thinking"))]


@pytest.mark.parametrize("worker", [0, 1])
def test_the_muscles_of_two_workers_get_updates_between_their_episodes(lived, worker):
    short = [
        *("setup", "prepare_model", "update"),
        *("propose", "propose", "update", "reset"),
        *("propose", "propose", "update", "reset"),
        *("propose", "propose", "teardown"),
    ]
    test = ["setup", "prepare_model", "propose", "propose", "reset", "propose", "propose", "teardown"]
    assert of(lived[2], f"a.{worker}") == [f"a.{worker} {event}" for event in short + test]


def test_in_test_mode_nothing_learns(lived):
    for workers, events in lived.items():
        begins = len(events) - 1 - events[::-1].index("a setup")
        assert not {written(call) for call in LEARNING} & set(events[begins:])
        # in train mode, all of them were called
        assert {written(call) for call in LEARNING} <= set(events[:begins]), workers
