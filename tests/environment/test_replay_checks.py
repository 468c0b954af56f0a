"""What is known of a replay before it runs, and where its sessions ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.runner import execute, inspect
from palaestrai_mosaik.runner.recorded_sessions import read_sessions
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation
from tests.support.documents import DUMMY, ENVIRONMENT_ENDS, document, environment, named, phase

REPLAY = "palaestrai_mosaik.environment.replay:SessionPoolEnvironment"
PENDULUM = "palaestrai_mosaik.environment.pendulum:BatchPendulum"
ALL_END = [named(ENVIRONMENT_ENDS, when="all")]


def viewer(**keys: Any) -> dict[str, Any]:
    keys = keys or {"bodies": [{"environment": "lived"}]}
    return {
        "name": "a",
        "muscle": named(f"{DUMMY}:DummyMuscle"),
        "objective": named(f"{DUMMY}:DummyObjective"),
        **keys,
    }


def problems(**params: Any) -> list[tuple[str, str]]:
    world = environment("lived", REPLAY, **params)
    found = inspect(document(phase([world], [viewer()], ALL_END, mode="test")))
    return [(problem.path, problem.message) for problem in found]


def test_a_replay_that_cannot_run_is_told_when_it_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    declared = {"observations": 4, "actions": [{"name": "action", "dtype": "float64"}]}
    # what is not there yet may be there when its phase begins
    assert problems(source={"npz": str(path)}, **declared) == []
    np.savez(path, observations=np.ones((2, 3, 3)), actions=np.ones((2, 3)), rewards=np.ones((2, 3)))
    assert problems(source={"npz": str(path)}) == []
    assert problems(source={"npz": str(path)}, **{**declared, "observations": 3}) == []
    ((place, message),) = problems(source={"npz": str(path)}, **declared)
    assert place == "schedule.0.phase_0.environments.0.environment.params.source"
    assert "observations are observation float64[3], but declared are observation float64[4]" in message
    for params in ({}, {"source": None}, {"source": None, "observations": 2}):
        ((place, message),) = problems(**params)
        assert place == "schedule.0.phase_0.environments.0.environment.params.source"
        assert "environment 'lived' has nothing to replay: give it a 'source'" in message


@pytest.mark.parametrize(
    ("uid", "sensors", "actuators", "incarnation"),
    [
        ("x.0.y", ["x.0.y.0.*"], ["x.0.y.0.*"], 0),  # the uid has the number as well
        ("p", ["p.1.*"], ["p.1.*", "other.*"], 1),  # in several environments, but sees one
        ("p", ["p.0.*", "p.1.*"], ["p.0.*"], None),  # sees two incarnations
    ],
)
def test_the_last_state_is_that_of_the_incarnation_which_is_seen(
    tmp_path: Path, uid: str, sensors: list[str], actuators: list[str], incarnation: int | None
) -> None:
    worlds = [environment(uid, PENDULUM, batch=3, max_steps=5), environment("other", PENDULUM, max_steps=5)]
    agent = viewer(sensors=sensors, actuators=actuators)
    with Store(tmp_path, create=True) as store:
        execute(document(phase(worlds, [agent], ALL_END, mode="test", episodes=1), uid="r"), store=store)
        pool = read_sessions(store, "r")
        states = store.environment_states("r", environment=uid)
    states = states[states["truncated"]].sort_values("incarnation")
    last = states[[name for name in states if name.startswith("reading")]].to_numpy()
    before = pool.sessions.by_tick["observation.0"][-1]
    expected = before if incarnation is None else last[incarnation]
    assert incarnation is None or not np.array_equal(expected, before)
    np.testing.assert_array_equal(pool.sessions.by_session["final.0"][0], expected)


class Lanes(Environment):
    """Three lanes side by side: where each of them is after so many ticks."""

    def setup(self) -> EnvironmentBaseline:
        somewhere = Box(-np.inf, np.inf, shape=())
        return EnvironmentBaseline(
            [SensorInformation(0.0, somewhere, f"{lane}.x") for lane in range(3)],
            [ActuatorInformation(0.0, somewhere, f"{lane}.u") for lane in range(3)],
            [RewardInformation(0.0, somewhere, "r")],
        )

    def reset(self) -> EnvironmentState:
        self.ticks = 0
        return self._state()

    def step(self, setpoints: Any) -> EnvironmentState:
        self.ticks += 1
        return self._state()

    def _state(self) -> EnvironmentState:
        places = np.array([100.0 * lane + self.ticks for lane in range(3)])
        return EnvironmentState(places, (0.0,), terminated=self.ticks >= 3)


def test_bodies_in_lanes_of_one_environment_have_their_own_last_states(tmp_path: Path) -> None:
    body = {"count": 2, "first": 1, "sensors": ["m.{body}.x"], "actuators": ["m.{body}.u"]}
    around = environment("m", "tests.environment.test_replay_checks:Lanes")
    one = {"name": "a", "muscle": named(f"{DUMMY}:DummyMuscle"), "bodies": [body]}
    with Store(tmp_path, create=True) as store:
        result = execute(document(phase([around], [one])), store=store)
        pool = read_sessions(store, instance=result.instance)
    assert pool.sessions.by_session["final.0"].tolist() == [[103.0], [203.0]]
