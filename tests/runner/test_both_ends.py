"""An episode that terminates in the same step in which its time runs out is both, wherever that is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.documents import agent, document, environment, named, phase

import palaestrai_mosaik as pm
from palaestrai_mosaik.agent import Brain, Objective
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.testing import check_environment
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation

UNIT = Box(0.0, 10.0, shape=())
SEEN: list[Any] = []


class Ending(Environment):
    """Counts to 3, and ends there as ``how`` says: terminated (T), truncated (t)."""

    def __init__(self, how: str = "Tt"):
        self.how = how

    def setup(self) -> EnvironmentBaseline:
        return EnvironmentBaseline(
            [SensorInformation(0.0, UNIT, "count")],
            [ActuatorInformation(0.0, UNIT, "u")],
            [RewardInformation(0.0, UNIT, "r")],
        )

    def reset(self) -> EnvironmentState:
        self.count = 0
        return self.state()

    def step(self, setpoints: Any) -> EnvironmentState:
        self.count += 1
        return self.state()

    def state(self) -> EnvironmentState:
        over = self.count == 3
        return EnvironmentState(
            np.array([float(self.count)]), (1.0,), over and "T" in self.how, over and "t" in self.how
        )


class Looking(TerminationCondition):
    """Notes how environments have ended."""

    def episode_flow_control(self, view: Any) -> Any:
        SEEN.append(dict(view.ended))
        return super().episode_flow_control(view)


class Noting(Objective):
    """Notes the ends that its memory has."""

    def internal_reward(self, memory: Any) -> float:
        last = memory.tail(1)
        SEEN.append((bool(last.terminated[0]), bool(last.truncated[0])))
        return 1.0


class Recalling(Brain):
    """Notes the ends of the rows that were replayed to it."""

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        rows = self.memory.tail(4)
        if len(rows) == 4:
            SEEN.append(list(zip(rows.terminated.tolist(), rows.truncated.tolist(), strict=True)))


def story(how: dict[str, str], first: dict[str, Any] | None = None, uid: str = "ends", **keys: Any) -> Any:
    """One agent in each environment of ``how`` it ends, and one in all of them."""
    environments = [environment(uid, f"{__name__}:Ending", how=ends) for uid, ends in how.items()]
    plain = {
        "brain": None,
        "objective": None,
        "muscle": named("palaestrai_mosaik.agent.library.random_agent:RandomMuscle"),
    }
    agents = [agent(f"in-{uid}", **plain, sensors=[f"{uid}.count"], actuators=[f"{uid}.u"]) for uid in how]
    if len(how) > 1:
        every = [f"{uid}.count" for uid in how]
        agents.append(agent("in-both", **plain, sensors=every, actuators=[]))
    agents[0] |= first or {}
    return document(phase(environments, agents, **keys), uid=uid)


def last(rows: Any) -> tuple[bool, bool]:
    """Return the flags of the last row; no other row has one."""
    assert not rows[["terminated", "truncated"]][:-1].to_numpy().any()
    return bool(rows["terminated"].iloc[-1]), bool(rows["truncated"].iloc[-1])


@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_rows_states_objectives_and_conditions_have_both(tmp_path: Path, scheduler: str) -> None:
    SEEN.clear()
    spec = story({"e": "Tt"}, {"objective": named(f"{__name__}:Noting")}, scheduler=scheduler)
    with Store(tmp_path, create=True) as store:
        execute(spec, store=store)
        assert last(store.steps("ends", 0, "in-e")) == (True, True)
        assert last(store.environment_states("ends", 0, "e")) == (True, True)
        ends = store.body_episodes("ends")[["terminated", "truncated", "complete"]]
        assert ends.to_numpy().tolist() == [[True, True, True]]
    assert SEEN == [(False, False), (False, False), (True, True)]


@pytest.mark.parametrize(
    ("how", "rows"),
    [
        (("T", "t"), [(True, False), (False, True), (True, True)]),
        (("Tt", ""), [(True, True), (False, True), (True, True)]),
        # the episode is cut for b, in which nothing has ended
        (("T", ""), [(True, False), (False, True), (True, False)]),
        (("t", ""), [(False, True), (False, True), (False, True)]),
    ],
)
def test_an_agents_last_row_has_what_its_environments_have(
    tmp_path: Path, how: tuple[str, str], rows: list[tuple[bool, bool]]
) -> None:
    with Store(tmp_path, create=True) as store:
        execute(story(dict(zip("ab", how, strict=True))), store=store)
        assert [last(store.steps("ends", 0, f"in-{who}")) for who in ("a", "b", "both")] == rows


def test_a_condition_sees_both() -> None:
    SEEN.clear()
    execute(story({"e": "Tt"}, conditions=[named(f"{__name__}:Looking"), ENDS]))
    assert SEEN[-1] == {"e": (True, True)}


ENDS = named("palaestrai_mosaik.simulation.conditions:EnvironmentTerminationCondition")


def test_what_is_replayed_into_a_memory_has_both(tmp_path: Path) -> None:
    SEEN.clear()
    pupil = {
        "brain": named(f"{__name__}:Recalling"),
        "replay": [{"experiment_run": "ends", "phase": 0, "agent": "in-e"}],
    }
    with Store(tmp_path, create=True) as store:
        execute(story({"e": "Tt"}), store=store)
        execute(story({"e": "Tt"}, pupil, "pupil"), store=store)
    assert SEEN[0] == [(False, False), (False, False), (True, True), (False, False)]


def test_a_session_that_is_replayed_ends_as_it_did(tmp_path: Path) -> None:
    world = environment("again", "session_pool", source={"run": "ends", "store": str(tmp_path)})
    one = agent(
        "a",
        uid="again",
        brain=None,
        objective=None,
        muscle=named("palaestrai_mosaik.agent.library.random_agent:RandomMuscle"),
        sensors=["again.0.e.count"],
        actuators=["again.0.e.u"],
    )
    with Store(tmp_path, create=True) as store:
        execute(story({"e": "Tt"}), store=store)
        execute(document(phase([world], [one]), uid="again"), store=store)
        assert last(store.steps("again", 0, "a")) == (True, True)


def test_gymnasium_and_pettingzoo_have_both() -> None:
    pytest.importorskip("pettingzoo", reason="the extra 'rl' is not installed")
    spec = story({"e": "Tt"})
    env = pm.make(spec)
    env.reset(seed=0)
    assert [env.step(env.action_space.sample())[2:4] for _ in range(3)] == [(False, False)] * 2 + [
        (True, True)
    ]
    env.close()
    many = pm.make_vec(spec, 2)
    many.reset(seed=0)
    steps = [many.step(many.action_space.sample())[2:4] for _ in range(3)]
    assert [[flags.tolist() for flags in step] for step in steps] == [[[False] * 2] * 2] * 2 + [
        [[True] * 2] * 2
    ]
    many.close()
    game = pm.parallel_env(spec, agents=["in-e"])
    game.reset(seed=0)
    ends = [game.step({"in-e": game.action_space("in-e").sample()})[2:4] for _ in range(3)]
    assert ends[-1] == ({"in-e": True}, {"in-e": True})
    game.close()


def test_a_listing_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store("palaestrai-results", create=True) as store:
        execute(story({"e": "Tt"}), store=store)
    assert main(["show", "ends", "--body", "0"]) == 0
    assert "terminated, truncated" in capsys.readouterr().out


def test_the_conformance_check_allows_both() -> None:
    check_environment(Ending)
