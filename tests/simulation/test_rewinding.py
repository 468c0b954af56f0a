"""One world for all episodes: the simulators of co-simulations are replaced, the rest is as if built anew."""

from __future__ import annotations

from typing import Any, ClassVar

import mosaik_api_v3
import numpy as np
import pytest
from support.documents import agent, document, environment, phase
from support.learning import digests

from palaestrai_mosaik.core.errors import SimulatorError
from palaestrai_mosaik.environment.cosimulation import (
    ActuatorPort,
    ConnectionSpec,
    CoSimulation,
    CoSimulationPlan,
    EntitySpec,
    SensorPort,
    SimulatorSpec,
)
from palaestrai_mosaik.environment.environment import EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.simulation.world_builder import WorldBuilder
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import ActuatorInformation, Box, SensorInformation

STEPS = 3


class Sum(mosaik_api_v3.Simulator):
    """Adds up what it is given; begins at ``start``."""

    #: what happened to all simulators of this class, in order
    calls: ClassVar[list[str]] = []

    def __init__(self, number: int = 0, eid: str = "sum"):
        model = {"public": True, "params": [], "attrs": ["value", "input"]}
        super().__init__({"api_version": "3.0", "type": "time-based", "models": {"Sum": model}})
        self.number, self.eid, self.value = number, eid, 0.0

    def init(self, sid: str, time_resolution: float = 1.0, start: float = 0.0) -> Any:
        self.calls.append(f"init {self.number}")
        if self.number == World.fails_at:
            raise ValueError("has had enough")
        self.value = start
        return self.meta

    def create(self, num: int, model: str) -> Any:
        return [{"eid": self.eid, "type": model}]

    def setup_done(self) -> None:
        self.calls.append(f"set up {self.number}")

    def step(self, time: int, inputs: Any, max_advance: int) -> int:
        self.value += sum(inputs.get(self.eid, {}).get("input", {}).values())
        return time + 1

    def get_data(self, outputs: Any) -> Any:
        return {self.eid: {"value": self.value}}

    def finalize(self) -> None:
        self.calls.append(f"finalize {self.number}")


class Other(Sum):
    """Another class with the same entities."""


class World(CoSimulation):
    """Two simulators, one fed by the other; ``changes`` says what is different from the second episode on."""

    fails_at: ClassVar[int | None] = None

    def __init__(self, changes: str = "nothing"):
        self.changes, self.resets, self.made = changes, 0, 0
        space = Box(-1e9, 1e9, shape=(), dtype=np.float64)
        self.sensor = SensorInformation(0.0, space, "value")
        self.actuator = ActuatorInformation(0.0, Box(-1, 1, shape=(), dtype=np.float64), "input")
        self.ports = (
            [SensorPort(self.sensor, "second", "value")],
            [ActuatorPort(self.actuator, "first", "input")],
        )

    def setup(self) -> EnvironmentBaseline:
        return EnvironmentBaseline([self.sensor], [self.actuator])

    def reset(self) -> None:
        self.resets += 1
        assert self.resets == self.episode + 1, "an environment begins each episode once"

    def plan(self) -> CoSimulationPlan:
        later = self.episode > 0

        def make() -> Sum:
            self.made += 1
            number = self.made
            if later and self.changes == "class":
                return Other(number)
            return Sum(number, "another" if later and self.changes == "entity" else "sum")

        start = {"start": 10.0 if later and self.changes == "params" else 1.0}
        names = ["first", "second", *(["third"] if later and self.changes == "simulators" else [])]
        return CoSimulationPlan(
            [SimulatorSpec(name, factory=make, params=start) for name in names],
            [EntitySpec(name, name, "Sum") for name in names],
            [ConnectionSpec("first", "second", [("value", "input")])],
            *self.ports,
        )

    def judge(self, time: int, readings: Any) -> EnvironmentState:
        return EnvironmentState(readings, truncated=time + 1 >= STEPS)


@pytest.fixture(autouse=True)
def _afresh(monkeypatch):
    monkeypatch.setattr(Sum, "calls", [])


@pytest.fixture
def built(monkeypatch):
    """The worlds that were built."""
    found: list[WorldBuilder] = []
    original = WorldBuilder.build

    async def build(self):
        found.append(self)
        await original(self)

    monkeypatch.setattr(WorldBuilder, "build", build)
    return found


def run_document(changes, scheduler="direct", episodes=3):
    one = agent("a", sensors=["co.value"], actuators=["co.input"])
    world = environment("co", f"{__name__}:World", changes=changes)
    return document(phase([world], [one], episodes=episodes, scheduler=scheduler))


def streams(folder, *arguments):
    with Store(folder, create=True) as store:
        run = execute(run_document(*arguments), store=store)
        return digests(store, run.uid if hasattr(run, "uid") else "latest")


@pytest.mark.parametrize(
    ("changes", "worlds"), [("nothing", 1), ("params", 2), ("simulators", 2), ("class", 3), ("entity", 3)]
)
def test_results_are_those_of_worlds_that_are_built_for_each_episode(tmp_path, built, changes, worlds):
    here = streams(tmp_path / "direct", changes)
    # preflight builds none
    assert len(built) == worlds
    assert here == streams(tmp_path / "mosaik", changes, "mosaik")
    assert len(built) == worlds + 3


def test_each_episode_has_simulators_of_its_own_which_are_finalized(built):
    execute(run_document("nothing"))
    assert len(built) == 1
    each = [f"{what} {{}}" for what in ("init", "init", "set up", "set up", "finalize", "finalize")]
    expected = [what.format(2 * episode + 1 + i % 2) for episode in range(3) for i, what in enumerate(each)]
    assert Sum.calls == expected


def test_one_that_fails_in_a_later_episode_leaves_none_behind(monkeypatch):
    """The fourth one is the second of the second episode."""
    monkeypatch.setattr(World, "fails_at", 4)
    with pytest.raises(SimulatorError, match="'0-co-second' could not be started: has had enough"):
        execute(run_document("nothing"))
    assert Sum.calls[-5:] == ["finalize 1", "finalize 2", "init 3", "init 4", "finalize 3"]
