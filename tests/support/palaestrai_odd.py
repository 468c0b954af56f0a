"""Parts for palaestrAI that do what few do: tell figures early, draw where nobody expects it, give the wrong thing."""

# ruff: noqa: NPY002 (such parts draw from global generators)

from __future__ import annotations

import random

import numpy as np
import palaestrai.agent as their
from palaestrai.environment import DummyEnvironment, EnvironmentState, EnvironmentStateTransformer, Reward
from palaestrai.experiment import TerminationCondition
from palaestrai.types import Box, SimulationFlowControl


def drawn() -> float:
    """Draw from Python's and numpy's global generators."""
    return random.random() + np.random.rand()


class Reporter(their.Brain):
    """Tells how often it was asked: without rows, too."""

    asked = 0

    def pretrain(self):
        self.add_statistics("asked", -1)

    def thinking(self, muscle_id, data_from_muscle):
        self.asked += 1
        self.add_statistics("asked", self.asked)
        if data_from_muscle is None:
            self.add_statistics("first", 7)


class Forms(their.Objective):
    """Minus the reward; in what form, ``form`` says."""

    def __init__(self, form: str):
        super().__init__({})
        self.form = form

    def internal_reward(self, memory, **kwargs):
        value = -float(memory.tail(1).rewards["ten"].iloc[0])
        return {"array": np.array([value]), "none": None, "empty": np.array([]), "nan": value * np.nan}[
            self.form
        ]


class Drawing(their.Objective):
    """Draws its value."""

    def __init__(self):
        super().__init__({})

    def internal_reward(self, memory, **kwargs):
        return drawn()


class DrawnReward(Reward):
    """Draws its reward."""

    def __call__(self, state):
        return their.RewardInformation(drawn(), Box(0, 2, ()), "drawn")


class DrawnState(EnvironmentStateTransformer):
    """Stores a number that it draws."""

    def __call__(self, environment_state):
        environment_state.world_state = drawn()
        return environment_state


class Capricious(TerminationCondition):
    """Ends an episode when it likes."""

    def brain_flow_control(self, brain, message):
        ends = drawn() < 0.4
        return SimulationFlowControl.RESET if ends else SimulationFlowControl.CONTINUE, None


class Answering(their.Muscle):
    """Gives what ``form`` says instead of actuators."""

    def __init__(self, form: str):
        super().__init__()
        self.form = form

    def propose_actions(self, sensors, actuators_available):
        return {
            "none": None,
            "pair": (None, None),
            "numbers": ([0.5], None),
            "three": (actuators_available, 1, 2),
        }[self.form]


class Answerless(DummyEnvironment):
    """Gives for sensors and rewards what ``form`` says, from its second step on."""

    def __init__(self, form: str, **parameters):
        super().__init__(**parameters)
        self.form = form

    def update(self, actuators):
        state = EnvironmentState(*super().update(actuators))
        if self.iter < 2:
            return state
        if self.form == "sensors":
            return EnvironmentState([0.5], state.rewards, state.done)
        rewards = None if self.form == "none" else state.rewards[0]
        return EnvironmentState(state.sensor_information, rewards, state.done)
