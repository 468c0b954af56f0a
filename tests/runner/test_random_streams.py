"""Phases that draw the same random numbers: the same days, seen by different agents."""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from support.documents import document, named, phase
from support.learning import digests, follower, learner, track

from palaestrai_mosaik.agent.filters import NormFilter
from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.expansion import Expansion
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.experiment import from_mapping, loads
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

_OF_A_BASE = ("version", "schedule", "run_config")
CONSTANT = named("palaestrai_mosaik.agent.library.constant:ConstantMuscle", values=0.0)


def two(streams: str | None, *, second: dict[str, Any] | None = None, **config: Any) -> Any:
    """Return a document of two phases, the second one with the agent ``second`` and these random streams."""
    config = {"episodes": 3} | config
    own = {} if streams is None else {"random_streams": streams}
    first = phase([track(steps=5)], [learner()], [], **config)
    return document(first, phase([track(steps=5)], [second or learner()], [], **config, **own))


def recorded(tmp_path: Any, doc: Any, name: str = "s") -> tuple[list[Any], dict[str, str]]:
    with Store(tmp_path / name, create=True) as store:
        execute(doc, store=store)
        return [store.environment_states("latest", phase=k) for k in (0, 1)], digests(store)


def noise(table: Any) -> Any:
    return table.groupby(["worker", "episode"])["reading.t.noise"].apply(list).to_dict()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_days_for_another_agent(tmp_path, workers):
    first, second = recorded(tmp_path, two("phase_0", second=learner(muscle=CONSTANT), workers=workers))[0]
    assert noise(first) == noise(second)
    # the reward is the set-point
    assert first["reward.t.r"].tolist() != second["reward.t.r"].tolist()
    first, second = recorded(tmp_path, two(None, second=learner(muscle=CONSTANT), workers=workers), "own")[0]
    assert not set(map(tuple, noise(first).values())) & set(map(tuple, noise(second).values()))


def test_the_same_agents_learn_and_act_the_same(tmp_path):
    """Environments, evaluations, muscles, brains and memories: a phase that is a repetition is one, bit for bit."""
    config = {"evaluate_every": 2, "workers": 2, "sync_every": 3}
    agents = [{**follower(), "filters": [named("palaestrai_mosaik.agent.filters:NormFilter")]}, learner("b")]
    plain = phase([track(steps=5)], agents, [], episodes=4, **config)
    for shared in (True, False):
        other = phase([track(steps=5)], agents, [], episodes=4, **config)
        if shared:
            other["phase_config"]["random_streams"] = "phase_0"
        found = recorded(tmp_path, document(plain, other), f"s{shared}")[1]
        by_phase = [
            {
                path.split("/", 1)[1]: value
                for path, value in found.items()
                if path.startswith(f"phase-{number}/")
            }
            for number in (0, 1)
        ]
        assert by_phase[0] and by_phase[0].keys() == by_phase[1].keys()
        assert (by_phase[0] == by_phase[1]) is shared


class Owned(NormFilter):
    """A filter that gets a seed."""

    _has_owner = True


@pytest.mark.parametrize("streams", ["phase_0", None])
def test_all_generators_of_a_phase_hang_below_its_streams(monkeypatch, streams):
    """Also those of parts that draw in no test here."""
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    original, seen = seeding.seed_sequence, []
    monkeypatch.setattr(
        seeding, "seed_sequence", lambda seed, *path: seen.append(path) or original(seed, *path)
    )
    one = {**follower(), "filters": [named(f"{__name__}:Owned")]}
    one["objective"] = named("palaestrai_mosaik.agent.library.dummy:DummyObjective")
    execute(two(streams, second=one, evaluate_every=1))
    first, parts = {path[0] for path in seen}, {path[1] for path in seen}
    assert first == {"phase_0", *(["phase_1"] if streams is None else [])}
    assert parts == {"worker", "brain", "memory", "filter", "muscle", "objective"}


def test_a_chain_has_the_streams_of_its_end(tmp_path):
    three = two("phase_0").canonical
    body = dict(three["schedule"][1]["phase_1"])
    body["phase_config"] = {**body["phase_config"], "random_streams": "phase_1"}
    three["schedule"].append({"phase_2": body})
    with Store(tmp_path, create=True) as store:
        execute(from_mapping(three), store=store)
        readings = [store.environment_states("latest", phase=k)["reading.t.noise"] for k in range(3)]
    np.testing.assert_array_equal(readings[0], readings[2])


@pytest.mark.parametrize("create", [True, False])
def test_a_factor_decides_whether_phases_share_their_streams(create):
    base = deepcopy(two(None).canonical)
    if not create:
        base["schedule"][1]["phase_1"]["phase_config"]["random_streams"] = None
    levels = ["phase_0", None]
    factor: dict[str, Any] = {"path": "schedule.phase_1.phase_config.random_streams", "levels": levels}
    if create:
        factor["create"] = True
    keys = {"uid": "d", "seed": 7, "version": "3.5", "factors": {"days": factor}}
    expansion = Expansion(Design.from_mapping({**keys, "base": {k: base[k] for k in _OF_A_BASE}}).spec)
    texts = [expansion.row({"days": level}, row).document("d", 1)[0] for row, level in enumerate(levels)]
    assert [loads(text).phases[1].streams for text in texts] == ["phase_0", "phase_1"]
