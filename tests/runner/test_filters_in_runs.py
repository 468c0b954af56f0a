"""Filters in whole runs: what muscles see, what brains learn from, what is stored."""

from __future__ import annotations

import numpy as np
import pytest
from support.documents import document, named, phase
from support.learning import HERE, digests, follower, learner, noted, track

from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

FILTERS = "palaestrai_mosaik.agent.filters"


def watching(log, **keys):
    return follower(log, filters=[named(f"{HERE}:Watching", log=str(log))], **keys)


def known(log):
    return [int(line.split()[3]) for line in noted(log) if line.startswith("filter ")]


def test_one_worker_hears_what_its_filters_have_learned_after_every_row(tmp_path):
    log = tmp_path / "log"
    execute(document(phase([track(steps=3)], [watching(log)], episodes=2)))
    # The last reading of an episode is seen before its last row is learned from, so still with 2 known.
    assert known(log) == [0, 1, 2, 2, 4, 5, 6, 6]


def test_several_workers_hear_of_each_other_with_the_updates(tmp_path):
    log = tmp_path / "log"
    execute(document(phase([track(steps=3)], [watching(log)], workers=2, sync_every=2, episodes=2)))
    # Both have seen the readings at 0, 1 and 2 when they first send; the last one comes with the end.
    assert sorted(known(log)) == sorted([0, 0, 0, 6, 8, 8, 8, 14] * 2)


def test_new_muscles_of_a_restart_get_what_filters_have_learned(tmp_path):
    for workers in (1, 2):
        log = tmp_path / f"log{workers}"
        one = watching(log)
        restart = [named(f"{HERE}:RestartOnce")]
        execute(document(phase([track(steps=2)], [one], restart, workers=workers, sync_every=9, episodes=2)))
        seen = sorted(known(log))
        # an episode shows 3 readings to each; the second one begins with all of them
        assert seen[3 * workers] == 3 * workers


@pytest.fixture(scope="module", params=[1, 2])
def filtered(request, tmp_path_factory):
    """A run with a chain of filters; yields what is stored and what the brain learned from."""
    base = tmp_path_factory.mktemp("filtered")
    log = base / "log"
    one = learner(
        muscle=named(f"{HERE}:Noise", what="array"),
        brain=named(f"{HERE}:Keeping", log=str(log)),
        filters=[
            named(f"{FILTERS}:NormFilter", normalise_objective=False),
            named(f"{FILTERS}:DeltaObsFilter", replace=False),
            named(f"{HERE}:Halving"),
        ],
    )
    doc = document(phase([track(steps=4)], [one], workers=request.param, sync_every=2, episodes=2))
    with Store(base / "s", create=True) as store:
        execute(doc, store=store)
        first = digests(store)
    learned = np.loadtxt(log, ndmin=2)
    with Store(base / "again", create=True) as again:
        execute(doc, store=again)
        assert digests(again) == first
    with Store(base / "s", create=True) as store:
        yield store.steps("latest", agent="a"), learned


def test_the_store_has_what_the_environment_gave_and_got(filtered):
    steps, _ = filtered
    assert (steps["reading.t.x"] == steps["step"]).all()
    assert np.allclose(steps["reward.t.r"], steps["setpoint.t.u"])
    assert np.allclose(steps["objective"], steps["reward.t.r"])


def test_the_brain_has_both_sides_of_the_filters(filtered):
    steps, learned = filtered
    steps = steps.sort_values(["worker", "episode", "step"])
    order = np.lexsort((learned[:, 2], learned[:, 1], learned[:, 0]))
    _, _, number, x, observed, change, u, action, objective = learned[order].T
    assert (number == steps["step"]).all()
    assert (x == steps["reading.t.x"]).all()
    assert np.allclose(u, steps["setpoint.t.u"])
    # the difference of what comes out of the filter before it
    first = number == 0
    assert (change[first] == 0).all()
    assert np.allclose(change[~first], np.diff(observed)[~first[1:]])
    # nothing is known at first; later, readings are normalised
    assert observed[0] == 0
    assert (np.abs(observed) < 3).all()
    assert not np.allclose(observed, x)
    # what the brain learns from is half of what is stored, what the environment got double of the action
    assert np.allclose(objective, 0.5 * steps["objective"])
    assert np.allclose(u, 2 * action)
