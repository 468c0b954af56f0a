"""Parts of the race's documents, as palaestrAI's users write them."""

import numpy as np
from palaestrai.agent.dummy_muscle import DummyMuscle
from palaestrai.agent.reward_information import RewardInformation
from palaestrai.environment.dummy_environment import DummyEnvironment
from palaestrai.environment.reward import Reward
from palaestrai.types import Box
from race_clock import Clock


class TimedDummyEnvironment(DummyEnvironment):
    """The dummy environment, with a clock."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.clock = Clock()

    def update(self, actuators):
        self.clock.tick()
        state = super().update(actuators)
        if self.iter >= self.max_iter:
            self.clock.stop()
        return state


class RaisingMuscle(DummyMuscle):
    """Raises whenever it is asked."""

    def propose_actions(self, sensors, actuators_available):
        raise RuntimeError("planted in a muscle")


class Warmth(Reward):
    """The first room's temperature."""

    def __call__(self, sensors, actuators):
        space = Box(-50.0, 100.0, shape=())
        return [RewardInformation(np.array(sensors[0].value, np.float32), space, "warmth")]
