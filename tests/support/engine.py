"""Small environments, agents and a runner of episodes for tests of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.agent import Muscle, Objective
from palaestrai_mosaik.environment.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.simulation.body import Body, BodyIdentity
from palaestrai_mosaik.simulation.conditions import EnvironmentTerminationCondition, TerminationCondition
from palaestrai_mosaik.simulation.connections import Channels
from palaestrai_mosaik.simulation.coordinator import EpisodeCoordinator
from palaestrai_mosaik.simulation.environment_handle import EnvironmentHandle
from palaestrai_mosaik.simulation.episode import Episode
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation

ANY = Box(-np.inf, np.inf, shape=())


class Counter(Environment):
    """Reads the number of its steps; its reward is ten times that; logs its set-points."""

    def __init__(self, uid: str, log: list[str], *, steps: int = 3, step_size: int = 1, actuators: int = 2):
        self.uid, self.log, self.steps, self.step_size = uid, log, steps, step_size
        self.n_actuators = actuators
        self.count = 0

    def setup(self) -> EnvironmentBaseline:
        return EnvironmentBaseline(
            sensors=[SensorInformation(0.0, ANY, "x")],
            actuators=[ActuatorInformation(None, ANY, f"u{i + 1}") for i in range(self.n_actuators)],
            rewards=[RewardInformation(0.0, ANY, "r")],
        )

    def _state(self) -> EnvironmentState:
        return EnvironmentState(
            np.array([float(self.count)]), (10.0 * self.count,), terminated=self.count >= self.steps
        )

    def reset(self) -> EnvironmentState:
        self.count = 0
        self.log.append(f"{self.uid} resets")
        return self._state()

    def step(self, setpoints: Any) -> EnvironmentState:
        self.count += 1
        shown = " ".join("-" if np.isnan(u) else f"{u:g}" for u in setpoints)
        self.log.append(f"{self.uid} steps to {self.count} with {shown}")
        return self._state()


class Adder(Muscle):
    """Sets all its actuators to ``base`` plus its first reading; logs what it sees."""

    def __init__(self, base: float, log: list[str]):
        self.base, self.log = base, log

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        value = self.base + sensors[0].value
        seen = " ".join(f"{s.value:g}" for s in sensors)
        self.log.append(f"{self.uid} sees {seen} sets {value:g}")
        for actuator in actuators_available:
            actuator.value = value
        return actuators_available, None


class Total(Objective):
    """The sum of the rewards; logs every row that is closed."""

    def __init__(self, name: str, log: list[str]):
        self.name, self.log = name, log

    def internal_reward(self, memory: Any, **kwargs: Any) -> float:
        row = memory.tail(1)
        rewards = " ".join(f"{r:g}" for r in row.rewards[0])
        self.log.append(f"{self.name} gets {rewards} for {row.actuator_setpoints[0, 0]:g}")
        return float(row.rewards.sum())


class Rows:
    """Stands in for the store: keeps what is recorded."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def append(self, *row: Any) -> None:
        self.rows.append(row)


def make_coordinator(
    environments: Sequence[Any],
    agents: Sequence[tuple[str, Muscle, Objective | None, Sequence[str], Sequence[str]]],
    *,
    taking_turns: bool = False,
    conditions: Sequence[TerminationCondition] | None = None,
) -> EpisodeCoordinator:
    """Return a coordinator for ``(name, muscle, objective, sensors, actuators)`` of each agent."""
    handles = [EnvironmentHandle(e) for e in environments]
    bodies = []
    for name, muscle, objective, sensors, actuators in agents:
        muscle.uid = name
        body = Body(BodyIdentity(name), muscle, objective, Channels(handles, sensors, actuators))
        muscle._memory = body.memory
        if objective is not None:
            objective.setup(body.reward_names)
        body.stream = Rows()
        bodies.append(body)
    for handle in handles:
        handle.stream = Rows()
    wanted = [EnvironmentTerminationCondition()] if conditions is None else conditions
    return EpisodeCoordinator(handles, bodies, wanted, taking_turns=taking_turns)


def run_episodes(
    coordinator: EpisodeCoordinator, episodes: int = 1, scheduler: str = "direct", worker: int = 0
) -> None:
    """Run some episodes, one world each, in one event loop."""
    loop = asyncio.new_event_loop()
    try:
        for number in range(episodes):
            path = ("phase", "worker", worker, "episode", number)
            Episode(coordinator, worker, number, 42, path, scheduler=scheduler).run(loop)
    finally:
        loop.close()
