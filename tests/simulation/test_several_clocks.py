"""Agents that act more, or less, often than an environment steps: no set-point is lost, no reward counted twice.

The expected values are worked out by hand from docs/timing.md: at each step, an actuator has the latest set-point that
was chosen for it, and a row has the rewards since its action, each once.
"""

from __future__ import annotations

from typing import Any

import mosaik_api_v3
import numpy as np
import pytest
from support.documents import ENVIRONMENT_ENDS, document, phase
from support.documents import named as entry

import palaestrai_mosaik as pm
from palaestrai_mosaik.agent import Brain, Muscle
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.environment.batch import BatchEnvironment
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    RewardInformation,
    SensorInformation,
    SimulationFlowControl,
)

HUNDRED = Box(-1000.0, 1000.0, shape=())
SCHEDULERS = ["direct", "mosaik"]


class Echo(Environment):
    """Reads its set-points of this step, a and b; its reward is their sum."""

    def __init__(self, steps: int = 9):
        self.steps = steps

    def setup(self) -> EnvironmentBaseline:
        return EnvironmentBaseline(
            [SensorInformation(0.0, HUNDRED, name) for name in "xy"],
            [ActuatorInformation(0.0, HUNDRED, name) for name in "ab"],
            [RewardInformation(0.0, HUNDRED, "sum")],
        )

    def reset(self) -> EnvironmentState:
        self.count = 0
        return EnvironmentState(np.zeros(2), [0.0])

    def step(self, setpoints: Any) -> EnvironmentState:
        self.count += 1
        return EnvironmentState(setpoints, [float(sum(setpoints))], truncated=self.count >= self.steps)


class Impulse(Environment):
    """An environment without memory: set-points are in force for one step."""

    hold_setpoints = False
    setup, reset = Echo.setup, Echo.reset

    def step(self, setpoints: Any) -> EnvironmentState:
        return EnvironmentState(np.nan_to_num(setpoints, nan=-1.0), [0.0])


class Held(BatchEnvironment):
    """Each incarnation observes its last action."""

    action_dtypes = (np.float64,)

    def __init__(self, batch: int = 2, first: int = 0, max_steps: int = 50):
        super().__init__(batch=batch, first=first, max_steps=max_steps)

    def get_action_spaces(self) -> Any:
        return [HUNDRED]

    def get_first_states(self, incarnations: Any) -> Any:
        return [np.zeros(len(incarnations))], [np.zeros(len(incarnations))]

    def get_action_results(self, last_states: Any, actions: Any) -> Any:
        return [actions[0].copy()], [actions[0].copy()]

    def get_rewards(self, last_states: Any, actions: Any, new_states: Any) -> Any:
        return actions[0]


class Table(Muscle):
    """Sets its actuators as a table says, by the number of the action and the place of the actuator."""

    def __init__(self, table: dict[int, list[float | None]]):
        self.table, self.count = table, 0

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        for actuator, value in zip(actuators_available, self.table.get(self.count, []), strict=False):
            if value is not None:
                actuator.value = value
        self.count += 1
        return actuators_available, None


class Learner(Brain):
    """Notes the rewards and the objective of the rows that it learns from."""

    rows: list[tuple[float, float]] = []

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> None:
        row = self.memory.tail(1)
        Learner.rows.append((float(row.rewards.sum()), float(row.objective[0])))


class EndsAt(TerminationCondition):
    """Ends the episode at a time."""

    def __init__(self, time: int):
        self.time = time

    def episode_flow_control(self, view: Any) -> SimulationFlowControl:
        return SimulationFlowControl.RESET if view.time >= self.time else SimulationFlowControl.CONTINUE


class LampSim(mosaik_api_v3.Simulator):
    """Four lamps with a vector of levels; it steps at every third tick and keeps the level that is not NaN."""

    def __init__(self) -> None:
        attributes = ["levels", "seen"]
        super().__init__(
            {
                "type": "time-based",
                "models": {"Lamps": {"public": True, "params": [], "attrs": attributes}},
            }
        )

    def create(self, num: int, model: str) -> Any:
        self.seen = np.zeros(2)
        return [{"eid": "lamps", "type": model}]

    def step(self, time: int, inputs: Any, max_advance: int) -> int:
        for vector in inputs.get("lamps", {}).get("levels", {}).values():
            vector = np.array(vector, dtype=float)
            self.seen = np.where(np.isnan(vector), self.seen, vector)
        return time + 3

    def get_data(self, outputs: Any) -> Any:
        return {"lamps": {"seen": self.seen}}


def named(cls: type) -> str:
    return f"{__name__}:{cls.__name__}"


def world(uid: str, cls: Any, step_size: int = 1, **params: Any) -> dict[str, Any]:
    return {"environment": {"uid": uid, "name": named(cls), "step_size": step_size, "params": params}}


def agent(name: str, table: dict[int, Any], sensors: list[str], actuators: list[str], **more: Any) -> Any:
    muscle = {"name": named(Table), "params": {"table": table}}
    return {"name": name, "muscle": muscle, "sensors": sensors, "actuators": actuators, **more}


def run(
    environments: Any, agents: Any, scheduler: str, tmp_path: Any, mode: str = "test", **simulation: Any
) -> Any:
    only = phase(environments, agents, scheduler=scheduler, mode=mode, **simulation)
    return pm.run(document(only), store=tmp_path / "store", quiet=True)


def readings(result: Any, environment: str, *sensors: str) -> list[Any]:
    states = result.environment_states()
    states = states[states.environment == environment]
    return states[[f"reading.{environment}.{sensor}" for sensor in sensors]].to_numpy().tolist()


FAST_AND_SLOW = [world("fast", Echo), world("slow", Echo, 3)]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_setpoint_waits_for_the_next_step(scheduler, tmp_path):
    setter = agent("g", {1: [11], 4: [14]}, ["fast.x"], ["slow.a"])
    result = run(FAST_AND_SLOW, [setter], scheduler, tmp_path)
    assert readings(result, "slow", "x") == [[0], [11], [14], [14]]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_each_actuator_has_the_latest_setpoint_of_its_own(scheduler, tmp_path):
    table = {k: [10 + k, None] if k % 2 == 0 else [None, 10 + k] for k in range(9)}
    setter = agent("g", table, ["fast.x"], ["slow.a", "slow.b"])
    result = run(FAST_AND_SLOW, [setter], scheduler, tmp_path)
    assert readings(result, "slow", "x", "y") == [[0, 0], [12, 11], [14, 15], [18, 17]]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_of_two_agents_the_later_setpoint_is_in_force(scheduler, tmp_path):
    # g: 10 at t=0, 11 at t=1. h: 20 at t=1, 23 at t=3; g sets 13 at t=3, before h, and 14 at t=4.
    agents = [
        agent("g", {0: [10], 1: [11], 3: [13], 4: [14]}, ["fast.x"], ["slow.a"]),
        agent("h", {1: [20], 3: [23]}, ["fast.x"], ["slow.a"]),
    ]
    result = run(FAST_AND_SLOW, agents, scheduler, tmp_path)
    assert readings(result, "slow", "x") == [[0], [20], [14], [14]]
    # g's new packet at t=2, without a value, does not bring its older set-point back
    agents = [
        agent("g", {0: [10]}, ["fast.x"], ["slow.a"]),
        agent("h", {1: [20]}, ["fast.x"], ["slow.a"]),
    ]
    result = run(FAST_AND_SLOW, agents, scheduler, tmp_path / "again")
    assert readings(result, "slow", "x") == [[0], [20], [20], [20]]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_without_holding_a_setpoint_is_in_force_for_one_step(scheduler, tmp_path):
    setter = agent("g", {1: [11], 2: [None, 22]}, ["fast.x"], ["slow.a", "slow.b"])
    result = run([world("fast", Echo), world("slow", Impulse, 3)], [setter], scheduler, tmp_path)
    assert readings(result, "slow", "x", "y") == [[0, 0], [11, 22], [-1, -1], [-1, -1]]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_restart_forgets_setpoints_that_wait(scheduler, tmp_path):
    # slow ends at 3 and restarts at 6; what was set from 3 on is too late for its first episode
    environments = [world("fast", Echo, steps=12), world("slow", Echo, 3, steps=1)]
    setter = agent("g", {1: [11], 3: [13], 4: [14], 7: [None, 17]}, ["fast.x"], ["slow.a", "slow.b"])
    when = [entry(ENVIRONMENT_ENDS, when="all", episodes=1)]
    result = run(environments, [setter], scheduler, tmp_path, conditions=when)
    assert readings(result, "slow", "x", "y") == [[0, 0], [11, 0], [0, 0], [0, 17], [0, 0]]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_bodies_of_a_batch_keep_their_setpoints(scheduler, tmp_path):
    agents = [
        agent("g", {1: [11], 4: [14]}, ["fast.x"], ["slow.0.*"]),
        agent("h", {k: [20 + k] for k in range(9)}, ["fast.x"], ["slow.1.*"]),
    ]
    result = run([world("fast", Echo), world("slow", Held, 3)], agents, scheduler, tmp_path)
    states = result.environment_states()
    states = states[states.environment == "slow"]
    column = "reading.slow.{body}.observation"
    assert states[states.incarnation == 0][column].tolist() == [0, 11, 14, 14]
    assert states[states.incarnation == 1][column].tolist() == [0, 22, 25, 28]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_elements_of_a_vector_wait_for_the_simulator(scheduler, tmp_path):
    ends = {"entity": "lamps", "space": "Box(-1000, 1000)"}
    parameters = {
        "simulators": {"sim": {"python": named(LampSim)}},
        "entities": [{"uid": "lamps", "simulator": "sim", "model": "Lamps"}],
        "sensors": [
            {**ends, "uid": f"seen-{i}", "attribute": "seen", "index": i, "value": 0.0} for i in range(2)
        ],
        "actuators": [{**ends, "uid": f"level-{i}", "attribute": "levels", "index": i} for i in range(2)],
        "end": 9,
    }
    lamps = {"environment": {"uid": "lamps", "name": "cosimulation", "params": parameters}}
    setter = agent(
        "g", {1: [11], 2: [None, 22], 4: [14]}, ["lamps.seen-0"], ["lamps.level-0", "lamps.level-1"]
    )
    result = run([lamps], [setter], scheduler, tmp_path)
    assert readings(result, "lamps", "seen-0", "seen-1")[::3] == [[0, 0], [11, 22], [14, 22], [14, 22]]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("steps", [6, 7, 8])
def test_the_last_reward_is_counted_once(steps, scheduler, tmp_path):
    # reads at 0, 3, 6; every step of the other one gives 10
    environments = [world("read", Echo, 3, steps=99), world("act", Echo, steps=steps)]
    learner = agent("g", {0: [10]}, ["read.x"], ["act.a"], brain={"name": named(Learner)})
    Learner.rows.clear()
    result = run(environments, [learner], scheduler, tmp_path, mode="train")
    expected = [30.0, 30.0] + ([10.0 * (steps - 6)] if steps > 6 else [])
    rows = result.steps()
    assert rows["reward.act.sum"].tolist() == expected
    assert rows["objective"].tolist() == expected
    assert Learner.rows == [(value, value) for value in expected]
    assert result.episodes["objective_sum"].tolist() == [10.0 * steps]


@pytest.mark.parametrize(
    "simulation",
    [
        {"controller": "taking_turns"},
        {"conditions": [entry(ENVIRONMENT_ENDS, when="all")]},
        {"conditions": [entry(named(EndsAt), time=7)]},
    ],
    ids=["taking turns", "when all", "condition"],
)
def test_rewards_of_rows_sum_to_those_of_the_states(simulation, tmp_path):
    environments = [world("read", Echo, 3, steps=2), world("act", Echo, steps=7)]
    result = run(
        environments, [agent("g", {0: [10]}, ["read.x"], ["act.a"])], "direct", tmp_path, **simulation
    )
    states = result.environment_states()
    rows = result.steps()
    taken = states[(states.environment == "act") & (states.time > 0)]
    # an agent that is out gets nothing more
    last = rows["time"].max() + 3
    assert rows["reward.act.sum"].sum() == taken[taken.time <= last]["reward.act.sum"].sum()
