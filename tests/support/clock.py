"""An environment and a brain that record what time it is, so that one can see how old a value on a page is."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from support.documents import agent, document, environment, named, phase
from support.parts import Slow

from palaestrai_mosaik.agent import Brain
from palaestrai_mosaik.environment import EnvironmentState
from palaestrai_mosaik.experiment import RunDocument


class Clock(Slow):
    """Reads the seconds since 1970; its reward is the same at the last step of an episode, and 0 at all others."""

    def step(self, setpoints: Any) -> EnvironmentState:
        state = super().step(setpoints)
        now = time.time()
        state.readings = np.array([now])
        state.rewards = (now if state.truncated else 0.0,)
        return state


class ClockBrain(Brain):
    """Reports what time it is as the statistic ``clock`` at the end of an episode."""

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        if self.memory.tail(1).objective[0]:
            self.add_statistics("clock", time.time())


def clock_document(uid: str, episodes: int, *, steps: int, seconds: float) -> RunDocument:
    """Return a document of one agent that looks at the clock: ``steps`` of ``seconds`` in each episode."""
    world = environment("clock", "support.clock:Clock", seconds=seconds, max_steps=steps)
    one = agent("a", uid="clock", sensors=["clock.x"], actuators=["clock.u"])
    one |= {
        "brain": named("support.clock:ClockBrain"),
        "muscle": named("palaestrai_mosaik.agent.library.idle:IdleMuscle"),
        "objective": named(
            "palaestrai_mosaik.agent.library.aggregate:AggregateRewardsObjective", rewards="n"
        ),
    }
    return document(phase([world], [one], episodes=episodes), uid=uid)
