"""Episodes in which the caller decides for some agents: who is asked when, and what is left behind.

The stories are those of docs/timing.md.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.documents import agent, document, environment, named, phase
from support.engine import ANY, Adder, Counter
from support.processes import children

pytest.importorskip("gymnasium")

from palaestrai_mosaik import make_vec
from palaestrai_mosaik.agent.muscle import BatchObjective
from palaestrai_mosaik.core.errors import ActionError, ContractError, DocumentError, StoreError
from palaestrai_mosaik.environment import EnvironmentBaseline
from palaestrai_mosaik.interop.rl.driver import Options, Session
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.simulation.world_builder import WorldBuilder
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import RewardInformation

SIMULATORS = Path(__file__).parents[2] / "example_simulators"
DESCRIBED = "palaestrai_mosaik.environment.described:DescribedCoSimulation"
LIBRARY = "palaestrai_mosaik.agent.library"
LOG: list[str] = []


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    LOG.clear()


class Count(Counter):
    """The environment E of the stories."""

    def __init__(self, steps: int = 3):
        super().__init__("", LOG, steps=steps)


class Unpaid(Count):
    """Its second reward is missing, like one that an environment of palaestrAI leaves out."""

    def setup(self) -> EnvironmentBaseline:
        reward = RewardInformation(0.0, ANY, "r", may_be_missing=True)
        return replace(super().setup(), rewards=[reward])

    def _state(self) -> Any:
        state = super()._state()
        return replace(state, rewards=(np.nan,)) if self.count == 2 else state


class Odd(BatchObjective):
    """The reading, and no value where it is odd."""

    def internal_reward(self, memory: Any, **kwargs: Any) -> float:
        reading = float(memory.tail(1).sensor_readings[-1, 0])
        return np.nan if reading % 2 else reading

    def internal_rewards(self, rows: Any) -> Any:
        readings = rows.readings[:, 0]
        return np.where(readings % 2, np.nan, readings)


class Inside(Adder):
    """The agent b of the stories."""

    def __init__(self) -> None:
        super().__init__(200.0, LOG)


class Stubborn(Inside):
    """Is interrupted, or fails, when it acts for the second time."""

    def __init__(self, error: str):
        super().__init__()
        self.error, self.count = {"interrupt": KeyboardInterrupt, "value": ValueError}[error], 0

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        self.count += 1
        if self.count == 2:
            raise self.error("enough")
        return super().propose_actions(sensors, actuators_available)


def story(controller: str = "vanilla", other: dict[str, Any] | None = None) -> Any:
    plain = {"brain": None, "objective": None, "sensors": ["E.x"]}
    muscle = named(f"{__name__}:Inside") if other is None else other
    agents = [
        agent("a", **plain, muscle=named("never:Imported"), actuators=["E.u1"]),
        agent("b", **plain, muscle=muscle, actuators=["E.u2"]),
    ]
    return document(phase([environment("E", f"{__name__}:Count")], agents, controller=controller))


def test_one_agent_is_the_callers_and_the_other_acts_at_the_same_time():
    session = Session(story(), learners=["a"])
    seen, got, turn = [], [], session.reset()
    while not turn.over:
        assert turn.acting == ("a",)
        seen.append(turn.readings["a"].tolist())
        turn = session.step({"a": 100.0 + turn.readings["a"]})
        got.append(turn.rewards)
    assert (seen, got) == ([[0.0], [1.0], [2.0]], [{"a": 10.0}, {"a": 20.0}, {"a": 30.0}])
    assert (turn.terminated, turn.truncated, turn.time) == ({"a": True}, {"a": False}, 3)
    assert turn.readings["a"].tolist() == [3.0]
    assert turn.infos["a"] == {"time": 3, "objective": 30.0, "rewards": {"E.r": 30.0}}
    assert [
        *("E resets", "b.0 sees 0 sets 200", "E steps to 1 with 100 200", "b.0 sees 1 sets 201"),
        *("E steps to 2 with 101 201", "b.0 sees 2 sets 202", "E steps to 3 with 102 202"),
    ] == LOG
    session.close()


def test_both_are_the_callers_and_take_turns():
    session = Session(story("taking_turns"))
    assert session.taking_turns
    told, turn = [], session.reset()
    while not turn.over:
        (who,) = turn.acting
        base = {"a": 100.0, "b": 200.0}[who]
        told.append((who, turn.readings[who].tolist(), dict(turn.rewards)))
        turn = session.step({who: base + turn.readings[who]})
    assert told == [("a", [0.0], {}), ("b", [1.0], {"a": 10.0}), ("a", [2.0], {"b": 20.0})]
    assert turn.rewards == {"a": 30.0} and turn.terminated == {"a": True, "b": True}
    # "-": nothing was ever set
    assert [
        *("E resets", "E steps to 1 with 100 -", "E steps to 2 with 100 201", "E steps to 3 with 102 201"),
    ] == LOG
    session.close()


def test_alone_in_turn_the_callers_agent_waits_for_the_other():
    session = Session(story("taking_turns"), learners=["a"])
    turn = session.reset()
    turn = session.step({"a": [100.0]})
    # b acted at 1; the reward of that step is not a's
    assert (turn.time, turn.acting, turn.rewards) == (2, ("a",), {"a": 10.0})
    session.close()


def constant(value: float, **keys: Any) -> dict[str, Any]:
    muscle = named(f"{LIBRARY}.constant:ConstantMuscle", values=value)
    return agent("a", **keys, muscle=muscle, brain=None)


def random_dummy(**config: Any) -> Any:
    found = environment("myenv", discrete=False, max_iter=6)
    return document(phase([found], [constant(0.5), agent("b", 5)], **config))


def test_an_episode_is_that_of_the_run(tmp_path):
    found = random_dummy(episodes=2)
    with Store(tmp_path, create=True) as store:
        execute(found, store=store)
        rows = store.steps("latest", agent="a")
    recorded = rows[[c for c in rows if c.startswith("reading.")]].to_numpy()

    def episode(session: Session, **seed: int) -> Any:
        turn, readings = session.reset(**seed), []
        while not turn.over:
            readings.append(turn.readings["a"])
            turn = session.step({"a": np.full(5, 0.5)})
        return np.array(readings)

    session = Session(found, learners=["a"])
    first, second = episode(session), episode(session)
    assert np.array([first, second]).reshape(12, 5).tobytes() == recorded.tobytes()
    assert episode(session, seed=42).tobytes() == first.tobytes()
    assert episode(session).tobytes() == second.tobytes()
    other = episode(session, seed=7)
    assert other.tobytes() != first.tobytes()
    session.close()
    seven = Session(found, learners=["a"], options=Options(seed=7))
    assert episode(seven).tobytes() == other.tobytes()
    seven.close()


def remote(end: int = 20) -> Any:
    space = "Box(0, 1, ())"
    world = environment(
        "co",
        DESCRIBED,
        end=end,
        simulators={
            "s": {"cmd": f'"{sys.executable}" "{SIMULATORS / "slow_sim.py"}" %(addr)s', "timeout": 30.0}
        },
        entities=[{"uid": "m", "simulator": "s", "model": "Slow"}],
        sensors=[{"uid": "got", "entity": "m", "attribute": "got", "space": "Box(-99, 99, (3,))"}],
        actuators=[{"uid": "x", "entity": "m", "attribute": "x", "space": space, "value": 0.0}],
    )
    return document(phase([world], [constant(0.5, sensors=["co.got"], actuators=["co.x"], objective=None)]))


def test_nothing_is_left_of_a_world_that_is_given_up():
    before, threads = children(), threading.active_count()
    session = Session(remote())
    session.reset()
    session.step({"a": [0.5]})
    (process,) = children() - before
    # mosaik is in the midst of its run; the next episode has a process of its own
    turn = session.reset()
    assert not process.is_running() and len(children() - before) == 1
    assert turn.acting == ("a",)
    del session
    gc.collect()
    assert children() <= before and threading.active_count() == threads


def test_after_an_episode_that_is_given_up_the_next_one_has_its_world(monkeypatch):
    built, build = [], WorldBuilder.build
    monkeypatch.setattr(WorldBuilder, "build", lambda self: built.append(self) or build(self))
    session = Session(story(), learners=["a"])
    given_up, got = [], []
    for steps in (1, 2, 3):
        turn = session.reset(seed=1)
        rewards = []
        for _ in range(steps):
            turn = session.step({"a": 100.0 + turn.readings["a"]})
            rewards.append(turn.rewards["a"])
        (got if turn.over else given_up).append(rewards)
    assert (given_up, got) == ([[10.0], [10.0, 20.0]], [[10.0, 20.0, 30.0]])
    assert len(built) == 1
    session.close()


def test_it_works_below_a_running_loop():
    """As in a notebook, whose cells run below a loop."""

    async def cell() -> Any:
        session = Session(story(), learners=["a"])
        turn, got = session.reset(), []
        while not turn.over:
            turn = session.step({"a": 100.0 + turn.readings["a"]})
            await asyncio.sleep(0)
            got.append(turn.rewards["a"])
        with pytest.raises(ContractError, match="reset first"):
            session.step({})
        # a world that is given up there, too
        session.reset()
        session.close()
        return got

    assert asyncio.run(cell()) == [10.0, 20.0, 30.0]
    assert not [one for one in threading.enumerate() if one.name.startswith("palaestrai-mosaik")]


@pytest.mark.parametrize(("kind", "error"), [("value", ValueError), ("interrupt", KeyboardInterrupt)])
def test_what_another_agent_raises_ends_the_episode_and_no_more(kind, error):
    session = Session(story(other=named(f"{__name__}:Stubborn", error=kind)), learners=["a"])
    session.reset()
    session.step({"a": [1.0]})
    with pytest.raises(error, match="enough"):
        session.step({"a": [1.0]})
    with pytest.raises(ContractError, match="reset first"):
        session.step({"a": [1.0]})
    turn = session.reset()
    turn = session.step({"a": [1.0]})
    assert (turn.time, turn.rewards) == (1, {"a": 10.0})
    session.close()


def test_a_wrong_decision_leaves_the_turn_as_it_is():
    session = Session(random_dummy(), learners=["a"])
    session.reset()
    with pytest.raises(ActionError, match=r"\[11\.0\] of actuator 'myenv\.1' is not in Box"):
        session.step({"a": [0.0, 11.0, 0.0, 0.0, 0.0]})
    with pytest.raises(ContractError, match=r"shape \(2,\), expected \(5,\)"):
        session.step({"a": [0.0, 0.0]})
    with pytest.raises(ContractError, match="the turn of a, but there are set-points of b"):
        session.step({"b": np.zeros(5)})
    assert session.step({"a": np.zeros(5)}).time == 1
    session.close()


def test_a_fork_has_no_world():
    session = Session(story(), learners=["a"])
    session.reset()
    child = os.fork()
    if child == 0:
        try:
            session.step({"a": [1.0]})
        except ContractError as error:
            session.close()
            os._exit(7 if "another process" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert session.step({"a": [1.0]}).time == 1
    session.close()


def test_others_act_with_what_an_earlier_phase_has_learned(tmp_path):
    learned = {
        "brain": named("support.learning:Wanderer"),
        "muscle": named("support.learning:WandererMuscle"),
    }
    track = environment("track", "support.learning:Track")
    pupil = agent("b", **learned, objective=None, sensors=["track.*"], actuators=["track.*"])
    plain = {"brain": None, "objective": None, "sensors": ["track.*"], "actuators": []}
    mine = agent("a", muscle=named(f"{LIBRARY}.idle:IdleMuscle"), **plain)
    found = document(
        phase([track], [mine, pupil]), phase([track], [mine, {**pupil, "load": {}}], mode="test")
    )
    with pytest.raises(StoreError, match="'b' loads what it has learned in an earlier phase"):
        Session(found, phase="phase_1", learners=["a"])
    with Store(tmp_path, create=True) as store:
        execute(found, store=store)
        rows = store.steps("latest", phase=1, agent="a")
        session = Session(found, phase=1, learners=["a"], options=Options(store=store))
    turn, got = session.reset(), []
    while not turn.over:
        turn = session.step({"a": []})
        got.append(turn.rewards["a"])
    session.close()
    # the reward is what b sets, by the weights that it has learned
    assert got == rows["objective"].tolist() and len(set(got)) == 4


def test_names_that_are_not_there():
    found = story()
    with pytest.raises(ContractError, match=r"no phase 'phase_9'.*did you mean 'phase_0'"):
        Session(found, phase="phase_9")
    with pytest.raises(ContractError, match="no agent 'c'; there is a, b"):
        Session(found, learners=["c"])
    with pytest.raises(ContractError, match=r"'a' has no reward 's'; there is objective, E\.r"):
        Session(found, learners=["a"], reward="s")
    wrong = document(
        phase([environment("E", f"{__name__}:Count")], [constant(1.0, sensors=["E.y"], actuators=["E.u1"])])
    )
    with pytest.raises(DocumentError, match=r"schedule\.0\.phase_0\.agents\.0\.sensors\.0: no sensor 'E\.y'"):
        Session(wrong)


@pytest.mark.parametrize(("learn", "expected"), [(False, [0.0, 0.0, 0.0, 0.0]), (True, [0.0, 1.0, 2.0, 3.0])])
def test_others_learn_if_they_shall(learn, expected):
    """The pupil sets the number of rows that his teacher has seen; the track pays what is set."""
    learned = {"brain": named("support.learning:Teacher"), "muscle": named("support.learning:Follower")}
    channels = {"objective": None, "sensors": ["track.*"]}
    mine = agent("a", muscle=named(f"{LIBRARY}.idle:IdleMuscle"), brain=None, **channels, actuators=[])
    pupil = agent("b", **learned, **channels, actuators=["track.*"])
    found = document(phase([environment("track", "support.learning:Track")], [mine, pupil]))
    session = Session(found, learners=["a"], options=Options(others_learn=learn))
    turn, got = session.reset(), []
    while not turn.over:
        turn = session.step({"a": []})
        got.append(turn.rewards["a"])
    session.close()
    assert got == expected and turn.truncated == {"a": True}


NAN = np.nan


@pytest.mark.parametrize(
    ("world", "objective", "reward", "expected"),
    [
        ("Count", "Odd", "objective", [0.0, 0.0, 2.0]),
        ("Unpaid", "Odd", "objective", [0.0, NAN, 2.0]),
        ("Unpaid", None, "objective", [10.0, NAN, 30.0]),
        ("Unpaid", "Odd", "r", [10.0, NAN, 30.0]),
    ],
)
def test_only_an_objective_without_a_value_is_a_reward_of_0(world, objective, reward, expected):
    found = one_agent(world, objective=None if objective is None else named(f"{__name__}:{objective}"))
    session = Session(found, reward=reward)
    turn, got = session.reset(), []
    while not turn.over:
        turn = session.step({"a": [1.0, 1.0]})
        got.append(turn.rewards["a"])
    session.close()
    many = make_vec(found, 2, backend="world", reward=reward)
    many.reset()
    both = [many.step(np.ones((2, 2)))[1] for _ in expected]
    many.close()
    assert np.array_equal(got, expected, equal_nan=True)
    assert np.array_equal(both, np.array([expected] * 2).T, equal_nan=True)


def one_agent(world: str, **keys: Any) -> Any:
    params = keys.pop("params", {})
    channels = {"sensors": ["E.x"], "actuators": ["E.u1", "E.u2"]}
    mine = agent("a", **{"brain": None, "muscle": named("never:Imported"), **channels, **keys})
    return document(phase([environment("E", f"{__name__}:{world}", **params)], [mine]))


def test_an_episode_that_ends_with_its_first_state_is_an_error():
    session = Session(one_agent("Count", params={"steps": 0}, objective=None))
    for number in range(2):
        with pytest.raises(ContractError, match=f"episode {number} of a was over with its first state"):
            session.reset()
        assert session.over
    session.close()


def test_a_process_that_ends_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    session = Session(one_agent("Count", objective=None))
    session.reset()
    # no brain could write into it
    assert not list(tmp_path.iterdir())
    session.close()
    learned = {"brain": named("support.learning:Teacher"), "muscle": named("support.learning:Follower")}
    plain = {"objective": None, "sensors": ["track.*"]}
    agents = [
        agent("a", brain=None, **plain, actuators=[]),
        agent("b", **learned, **plain, actuators=["track.*"]),
    ]
    found = document(phase([environment("track", "support.learning:Track")], agents))

    def unclosed() -> None:
        LOG.append(Session(found, learners=["a"]))  # type: ignore[arg-type]
        assert len(list(tmp_path.iterdir())) == 1

    child = multiprocessing.get_context("fork").Process(target=unclosed)
    child.start()
    child.join()
    assert child.exitcode == 0 and not list(tmp_path.iterdir())
