"""Parts of the race's documents, as this package's users write them."""

from race_clock import Clock

from palaestrai_mosaik.agent.library.dummy import DummyMuscle
from palaestrai_mosaik.environment import Reward
from palaestrai_mosaik.environment.dummy import DummyEnvironment
from palaestrai_mosaik.types import Box, RewardInformation


class TimedDummyEnvironment(DummyEnvironment):
    """The dummy environment, with a clock."""

    def __init__(self, **params):
        super().__init__(**params)
        self.clock = Clock()

    def step(self, setpoints):
        self.clock.tick()
        state = super().step(setpoints)
        if state.terminated:
            self.clock.stop()
        return state


class RaisingMuscle(DummyMuscle):
    """Raises whenever it is asked."""

    def propose_actions(self, sensors, actuators_available):
        raise RuntimeError("planted in a muscle")


class Warmth(Reward):
    """The first room's temperature."""

    def setup(self, baseline):
        return [RewardInformation(15.0, Box(-50.0, 100.0, shape=()), "warmth")]

    def __call__(self, state):
        return float(state.readings[0])
