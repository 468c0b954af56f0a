"""What passes between an environment and the framework: types of set-points, readings and rewards."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from support.documents import agent, document, environment, named, phase

from palaestrai_mosaik.environment import (
    Environment,
    EnvironmentBaseline,
    EnvironmentState,
    EnvironmentStateTransformer,
    Reward,
)
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.testing import check_environment
from palaestrai_mosaik.types import ActuatorInformation, Box, Discrete, RewardInformation, SensorInformation

ANY = Box(-np.inf, np.inf, shape=())


class Levers(Environment):
    """Two levers with three places each; ``given`` and ``kind`` make other cases of it."""

    seen: ClassVar[list[Any]] = []

    def __init__(self, given: bool = True, kind: str = "discrete"):
        self.given, self.kind = given, kind

    def setup(self) -> EnvironmentBaseline:
        places = {"discrete": Discrete(3), "real": ANY}
        second = places["real" if self.kind == "mixed" else "discrete"]
        return EnvironmentBaseline(
            [SensorInformation(0, Discrete(9), "sum")],
            [
                ActuatorInformation(0 if self.given else None, places["discrete"], "left"),
                ActuatorInformation(1 if self.given else None, second, "right"),
            ],
            [RewardInformation(0.5, ANY, "gain")],
        )

    def step(self, setpoints: Any) -> EnvironmentState:
        Levers.seen.append(setpoints)
        total = int(np.nan_to_num(setpoints).sum())
        return EnvironmentState([total], [1.0], truncated=self.rng.random() < 0.2)


class Observed(Reward):
    """Notes the type of the readings that it is given."""

    readings: ClassVar[list[Any]] = []

    def __call__(self, state: EnvironmentState) -> float:
        Observed.readings.append(state.readings)
        return float(state.readings.mean())


class Doubled(EnvironmentStateTransformer):
    """Stores twice the readings, as a method of arrays gives them."""

    def __call__(self, environment_state: EnvironmentState) -> EnvironmentState:
        return EnvironmentState(environment_state.readings * 2, environment_state.rewards)


HERE = f"{__name__}:"
LIBRARY = "palaestrai_mosaik.agent.library"


def run(store: Store | None = None, scheduler: str = "direct", **keys: Any) -> list[Any]:
    """Execute a phase with ``Levers`` and random set-points; return what its ``step`` was given."""
    params = {name: keys.pop(name) for name in ("given", "kind") if name in keys}
    place = environment("levers", HERE + "Levers", **params)
    place.update(keys)
    actor = {
        "name": "a",
        "brain": named(f"{LIBRARY}.dummy:DummyBrain"),
        "muscle": named(f"{LIBRARY}.random_agent:RandomMuscle"),
        "objective": named(f"{LIBRARY}.dummy:DummyObjective"),
        "sensors": ["levers.sum"],
        "actuators": ["levers.left"] if params.get("given") is False else ["levers.left", "levers.right"],
    }
    if params.get("kind") == "mixed":
        actor["actuators"] = ["levers.left"]
    Levers.seen.clear()
    Observed.readings.clear()
    execute(document(phase([place], [actor], scheduler=scheduler, episodes=2)), store=store)
    return list(Levers.seen)


@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_setpoints_of_discrete_actuators_are_integers(scheduler):
    seen = run(scheduler=scheduler)
    assert len(seen) > 1
    for setpoints in seen:
        assert setpoints.dtype == np.int64 and not setpoints.flags.writeable
        # as an index, and compared with what it may be
        assert ["a", "b", "c"][setpoints[0]] in "abc"


def test_setpoints_of_other_actuators_are_floats():
    assert {setpoints.dtype for setpoints in run(kind="mixed")} == {np.dtype(np.float64)}


def test_a_setpoint_that_is_missing_is_nan():
    seen = run(given=False)
    assert seen
    for setpoints in seen:
        assert setpoints.dtype == np.float64 and np.isnan(setpoints[1]) and setpoints[0] in (0, 1, 2)


def test_copies_get_integers_too():
    copies = {
        "environment": {
            "uid": "levers",
            "name": "palaestrai_mosaik.environment.copies:Copies",
            "params": {"name": HERE + "Levers", "batch": 3, "max_steps": 4},
        }
    }
    actor = {**agent("a"), "muscle": named(f"{LIBRARY}.random_agent:RandomMuscle")}
    Levers.seen.clear()
    execute(document(phase([copies], [{**actor, "sensors": ["levers.*"], "actuators": ["levers.*"]}])))
    assert {setpoints.dtype for setpoints in Levers.seen} == {np.dtype(np.int64)}


def test_a_list_of_readings_is_an_array_for_everyone(tmp_path):
    with Store(tmp_path, create=True) as store:
        run(
            store,
            reward={"name": HERE + "Observed"},
            state_transformer={"name": HERE + "Doubled"},
        )
        stored = store.environment_states("latest")["reading.levers.sum"].to_numpy()
    assert {readings.dtype for readings in Observed.readings} == {np.dtype(np.float64)}
    assert stored.tolist() == [2.0 * readings[0] for readings in Observed.readings]


def test_an_episode_begins_with_the_rewards_of_the_baseline(tmp_path):
    with Store(tmp_path, create=True) as store:
        run(store)
        states = store.environment_states("latest")
    first = states[states["step"] == 0]
    assert first["reward.levers.gain"].tolist() == [0.5, 0.5]
    assert set(states[states["step"] > 0]["reward.levers.gain"]) == {1.0}


@pytest.mark.parametrize("kind", ["discrete", "mixed"])
def test_the_checks_call_an_environment_as_runs_do(kind):
    Levers.seen.clear()
    check_environment(lambda: Levers(kind=kind))
    expected = np.int64 if kind == "discrete" else np.float64
    assert {setpoints.dtype for setpoints in Levers.seen} == {np.dtype(expected)}
