"""Random run documents: every value that the engine records is that of a plain loop, written from docs/timing.md."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from support.plain_comparison import differences
from support.random_documents import CONDITIONS, documents, named

from palaestrai_mosaik.store import Store


def check(folder: Path, count: int, number: int) -> None:
    """Compare ``count`` documents that are drawn with the seed ``number``."""
    with Store(folder, create=True) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore")

        @seed(number)
        @settings(
            max_examples=count,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        )
        @given(documents())
        def equal(drawn):
            assert not differences(drawn.document, store, drawn.scheduler)

        equal()


def test_random_documents_equal_the_plain_loop(tmp_path):
    check(tmp_path, 25, 1)


def test_many_random_documents_equal_the_plain_loop(tmp_path):
    check(tmp_path, 100, 2)


# What random documents have found, as small documents with values by hand.


def place(uid: str, step_size: int, steps: int, batch: int | None = None) -> dict[str, Any]:
    """Return the entry of an environment that ends after ``steps`` steps."""
    entry = named("Place", steps=[steps])
    if batch is not None:
        entry = {"name": "palaestrai_mosaik.environment.copies:Copies", "params": {"batch": batch, **entry}}
    return {"environment": {"uid": uid, "step_size": step_size, **entry}}


def story(environments: list[Any], agent: dict[str, Any], simulation: dict[str, Any], **config: Any) -> Any:
    """Return a document with one agent ``a`` in one phase."""
    phase = {
        "environments": environments,
        "agents": [{"name": "a", "muscle": named("Doer"), **agent}],
        "simulation": simulation,
        "phase_config": {"episodes": 1, **config},
    }
    ends = {"conditions": [named(f"{CONDITIONS}:MaxEpisodesTerminationCondition")]}
    return {"uid": "story", "seed": 1, "version": "3.5", "schedule": [{"only": phase}], "run_config": ends}


def test_the_first_answer_that_ends_a_phase_is_its_reason(tmp_path):
    """A condition stops the phase in its last episode, after which the maximum is reached, too."""
    stops = {"name": "vanilla", "conditions": [named("At", flow="STOP_PHASE", time=2)]}
    document = story([place("E", 1, 5)], {"sensors": ["E.s0"], "actuators": ["E.a0"]}, stops)
    with Store(tmp_path, create=True) as store:
        assert not differences(document, store)
        assert store.phases("story")["reason"].tolist() == ["At"]


def test_rows_that_wait_are_counted_one_by_one(tmp_path):
    """Each of two workers sends the rows of two bodies that act at once; the brain takes them one by one."""
    bodies = [{"environment": "B", "count": 2, "sensors": ["B.{body}.s0"], "actuators": ["B.{body}.a0"]}]
    agent = {"muscle": named("Crowd"), "brain": named("Thinker"), "bodies": bodies}
    ends = {"name": "vanilla", "conditions": [named(f"{CONDITIONS}:EnvironmentTerminationCondition")]}
    document = story([place("B", 1, 1, batch=2)], agent, ends, workers=2)
    with Store(tmp_path, create=True) as store:
        assert not differences(document, store)
        waiting = store.statistics("story", key="waiting").sort_values("worker")["value"]
    assert sorted(waiting, reverse=True) == [3, 2, 1, 0]


@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_a_turn_in_which_nobody_can_act_passes(scheduler, tmp_path):
    """
    t          0    2    3    4    6    8    9    10   12   14   15   16   18   20   21
    E        reset       1         2         3         4         5         6       ends
    F        reset  1         2    3  ends       reset 1    2         3  ends reset
    a        acts       acts      acts     (turn)     acts      acts      (turn)
    """
    ends = {"name": "taking_turns", "conditions": [
        named(f"{CONDITIONS}:EnvironmentTerminationCondition", when="all")
    ]}  # fmt: skip
    document = story([place("E", 3, 7), place("F", 2, 4)], {"sensors": ["F.s0"], "actuators": ["F.a0"]}, ends)
    with Store(tmp_path, create=True) as store:
        assert not differences(document, store, scheduler)
        assert store.steps("story", agent="a")["time"].tolist() == [0, 3, 6, 12, 15]
