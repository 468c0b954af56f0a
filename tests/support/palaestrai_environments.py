"""Environments, rewards, transformers and conditions as users of palaestrAI write them."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime

import numpy as np
from palaestrai.agent import ActuatorInformation, RewardInformation, SensorInformation
from palaestrai.environment import (
    DummyEnvironment,
    Environment,
    EnvironmentBaseline,
    EnvironmentState,
    EnvironmentStateTransformer,
    Reward,
)
from palaestrai.experiment import (
    AgentObjectiveTerminationCondition,
    TerminationCondition,
    VanillaRunGovernorTerminationCondition,
)
from palaestrai.types import Box, Discrete, SimTime, SimulationFlowControl

#: what objects of this module have been asked, in order
LOG: list[str] = []


class Tank(Environment):
    """A tank of level x: x' = x + sum of inflows - 1; full at 5 (terminated), over after 6 steps (truncated)."""

    def __init__(self, uid: str, broker_uri: str, seed: int, start: float = 2.0):
        super().__init__(uid, broker_uri, seed)
        self.start = start
        self.episodes = 0
        self.rng = np.random.RandomState(seed)

    def start_environment(self) -> EnvironmentBaseline:
        self.episodes += 1
        self.level, self.steps = self.start, 0
        LOG.append(f"starts for the {self.episodes}. time")
        return EnvironmentBaseline(
            [*self._level(), SensorInformation(None, Box(0, 1, (2,), np.float64), "noise")],
            [ActuatorInformation(None, Box(0, 2, (1,), np.float64), f"inflow.{i}") for i in range(2)],
            SimTime(0, datetime(2026, 1, 1)),
            {"volume": np.float64(5.0)},
        )

    def update(self, actuators: list[ActuatorInformation]) -> EnvironmentState:
        LOG.append(" ".join(f"{a.uid}={float(a.value[0]):g}" for a in actuators) or "nothing")
        self.steps += 1
        self.level = float(self.level + sum(float(a.value[0]) for a in actuators) - 1)
        full, late = self.level >= 5, self.steps >= 6
        sensors = [*self._level(), SensorInformation(self.rng.rand(2), Box(0, 1, (2,), np.float64), "noise")]
        rewards = [RewardInformation(np.array([-abs(self.level - 3)]), Box(-9, 0, (1,)), "near three")]
        if self.reward is not None:
            rewards.append(self.reward(sensors, actuators))
        return EnvironmentState(
            # a full tank says nothing more
            [] if full else sensors,
            rewards,
            full or late,
            {"level": self.level, "sensors": sensors[:1], "time": SimTime(self.steps, None)},
            SimTime(self.steps, None),
            full,
            late and not full,
        )

    def _level(self) -> list[SensorInformation]:
        return [SensorInformation(np.array([self.level]), Box(-9, 9, (1,), np.float64), "level")]

    def shutdown(self) -> None:
        LOG.append("shuts down")


class AsynchronousTank(Environment):
    """A tank whose methods are coroutines that wait; over after 3 steps. It draws from global generators."""

    def __init__(self, **parameters):
        super().__init__(**parameters)
        self.seen = parameters["seed"]

    async def start_environment(self):
        await asyncio.sleep(0)
        self.steps = 0
        return [SensorInformation(0, Discrete(4), 0)], [ActuatorInformation(0, Discrete(3), 0)]

    async def update(self, actuators):
        await asyncio.sleep(0.001)
        self.steps += 1
        drawn = random.random() + np.random.uniform()  # noqa: NPY002 (as users do)
        return (
            [SensorInformation(self.steps, Discrete(4), 0)],
            [RewardInformation(drawn, Box(0, 2, ()), "drawn")],
            self.steps == 3,
        )

    async def shutdown(self):
        await asyncio.sleep(0)


class OwnReset(DummyEnvironment):
    """palaestrAI's dummy whose later episodes begin at 7."""

    async def reset(self, request):
        answer = await super().reset(request)
        self.iter = 7
        for sensor in answer.sensors:
            sensor.value = 7
        return answer


class Unpredicted(DummyEnvironment):
    """Gives a reward from its second step on that its first step did not give."""

    def create_reward(self):
        return [RewardInformation(1, Discrete(3), "late" if self.iter > 1 else "early")]


class Sum(Reward):
    """The sum of the first reading and of all set-points, as rewards of palaestrai-mosaik are called."""

    def __init__(self, factor: float):
        super().__init__(factor=factor)
        self.calls = 0

    def __call__(self, sensors, actuators):
        self.calls += 1
        total = float(sensors[0].value[0]) + sum(float(a.value[0]) for a in actuators)
        return RewardInformation(self._parameters["factor"] * total + self.calls, Box(-99, 99, ()), "sum")


class OfState(Reward):
    """The highest reading of a state, and the mean of all."""

    def __call__(self, state):
        values = [float(sensor.value) for sensor in state.sensor_information]
        return [
            RewardInformation(max(values), Box(0, 100, ()), "highest"),
            RewardInformation(sum(values) / len(values), Box(0, 100, ()), "mean"),
        ]


class Reversed(EnvironmentStateTransformer):
    """Stores the negative of every reading, and what the state says."""

    def __init__(self, key: str):
        super().__init__(key=key)
        self.key = key

    def __call__(self, environment_state):
        for sensor in environment_state.sensor_information:
            if sensor.value is not None:
                sensor._value = -sensor.value
        environment_state.world_state = {
            self.key: environment_state.world_state,
            "done": environment_state.done,
        }
        return environment_state


class Patient(TerminationCondition):
    """Ends an episode once the newest ``rows`` objectives of a muscle are there, and tells their sum."""

    def __init__(self, rows: int):
        self.rows = rows

    def brain_flow_control(self, brain, message):
        tail = brain.memory.tail(self.rows, include_only=[message.sender])
        LOG.append(
            f"{brain.name} {brain.mode.name} {message.sender} {tail.objective.tolist()} of {len(brain.memory)}"
        )
        enough = len(tail) == self.rows
        return SimulationFlowControl.RESET if enough else SimulationFlowControl.CONTINUE, {
            brain.name: {"sum": float(tail.objective.sum())}
        }

    def environment_flow_control(self, environment):
        LOG.append("environment_flow_control was asked")
        return SimulationFlowControl.CONTINUE, None

    def phase_flow_control(self, run_governor, message):
        told = message.flow_control_data.get("Patient", (None, {}))[1]
        counts = dict(run_governor.current_episode_counts)
        LOG.append(f"{message.sender} {message.flow_control_indicator.name} {counts} {told}")
        episodes = run_governor.experiment_run.get_episodes(run_governor.current_phase)
        over = counts[message.sender] + 1 >= episodes - 1
        return SimulationFlowControl.STOP_PHASE if over else SimulationFlowControl.CONTINUE, None


class Sensitive(TerminationCondition):
    """Ends an episode when an environment's message has a reward of at least ``reward``."""

    def __init__(self, reward: float):
        self.reward = reward

    def check_termination(self, message, component=None):
        return any(reward.value >= self.reward for reward in message.rewards)


class Examined(TerminationCondition):
    """Ends the phase with the second evaluation; asks for the outcomes of evaluations if it is ``told``."""

    def __init__(self, told: bool):
        self.told = told

    @property
    def requires_evaluation_outcomes(self) -> bool:
        return self.told

    def evaluation_flow_control(self, run_governor, outcomes):
        (outcome,) = outcomes
        LOG.append(f"{outcome.agent_name} evaluated {outcome.evaluation_episode}")
        over = outcome.evaluation_episode == 1
        return SimulationFlowControl.STOP_PHASE if over else SimulationFlowControl.CONTINUE, None


class Wordy(TerminationCondition):
    """Answers with a word."""

    def phase_flow_control(self, run_governor, message):
        return "stop"


class OwnObjective(AgentObjectiveTerminationCondition):
    """palaestrAI's condition under a user's name."""


class OwnVanilla(VanillaRunGovernorTerminationCondition):
    """palaestrAI's condition under a user's name."""
