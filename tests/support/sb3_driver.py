"""Runs a muscle and a brain of Stable-Baselines3 in a Gymnasium environment without the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from palaestrai_mosaik.agent import Memory
from palaestrai_mosaik.agent.library.sb3 import SB3Brain, SB3Muscle
from palaestrai_mosaik.environment.gymnasium import GymnasiumEnvironment
from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation
from palaestrai_mosaik.types.vectors import Layout
from tests.support.acting import ask


class TwinMuscle(SB3Muscle):
    """Draws from the brain's random states, as Stable-Baselines3 does with its global ones."""

    def share(self, brain: SB3Brain) -> None:
        """Use the states of ``brain`` in all episodes."""
        self.brain = brain

    def _begin_episode(self, policy: Any) -> None:
        (explorer,) = policy.explorers
        if not hasattr(explorer, "random"):
            explorer.random = self.brain._random
            explorer.space.seed(self.brain.seed)


def layouts_of(offered: Any) -> tuple[Layout, Layout]:
    """Return the layouts of an environment's sensors and actuators."""
    return (
        Layout([s.uid for s in offered.sensors], [s.space for s in offered.sensors]),
        Layout([a.uid for a in offered.actuators], [a.space for a in offered.actuators]),
    )


def make_brain(sensors: Layout, actuators: Layout, seed: int, *args: Any, **params: Any) -> SB3Brain:
    """Return a brain that is set up."""
    brain = SB3Brain(*args, **params)
    brain.name, brain.seed, brain.rng = "learner", seed, np.random.default_rng(seed)
    brain._memory = Memory()
    brain.sensors = [SensorInformation(None, s, u) for s, u in zip(sensors.spaces, sensors.uids, strict=True)]
    brain.actuators = [
        ActuatorInformation(None, s, u) for s, u in zip(actuators.spaces, actuators.uids, strict=True)
    ]
    brain.setup()
    return brain


class Driver:
    """One environment with one muscle, whose rows go to ``brain`` one by one.

    ``known``: the brain is told at once what follows a row (else with the muscle's next row).
    """

    def __init__(self, env: str, brain: SB3Brain, muscle: SB3Muscle, *, known: bool = True, **kwargs: Any):
        self.world = gymnasium.make(env, **kwargs)
        self.brain, self.muscle, self.known = brain, muscle, known
        self.sensors, self.actuators = layouts_of(GymnasiumEnvironment(env, kwargs).setup())
        muscle.uid, muscle.mode = muscle.uid or "learner.0", Mode.TRAIN
        self.episode = 0
        #: gives the generators of muscle and environment for an episode, if they are not of our own
        self.generators: Callable[[int], tuple[np.random.Generator, np.random.Generator]] | None = None
        self.setpoints: list[list[float]] = []
        self.observation: Any = None
        self.returns: list[float] = []
        self._sum = 0.0

    def begin(self, seed: int | None = None) -> None:
        """Start an episode."""
        self.muscle.rng = np.random.default_rng([7, self.episode])
        if self.generators is not None:
            self.muscle.rng, of_world = self.generators(self.episode)
            seed = int(of_world.integers(2**31))
        self.episode += 1
        self.observation = self.world.reset(seed=seed)[0]

    def step(self) -> None:
        """Make one step: act, let the brain think, hand on its update."""
        readings = np.asarray(self.observation, dtype=np.float64).reshape(-1)
        chosen, data = ask(self.muscle, self.sensors, self.actuators, readings)
        self.setpoints.append(chosen.tolist())
        space = self.world.action_space
        action: Any = int(chosen[0]) if not space.shape else chosen.astype(space.dtype).reshape(space.shape)
        self.observation, reward, terminated, truncated, _ = self.world.step(action)
        following = np.asarray(self.observation, dtype=np.float64).reshape(-1)
        self._sum += float(reward)
        memory = self.brain._memory
        memory.append(readings, chosen, np.array([reward]), data, float(reward), muscle=self.muscle.uid)
        if terminated or truncated:
            memory.mark_end(
                terminated=terminated,
                truncated=truncated and not terminated,
                muscle=self.muscle.uid,
                final_observations=following,
            )
        self.brain.next_observations = following if self.known else None
        update = self.brain.thinking(self.muscle.uid, data)
        self.brain.pop_statistics()
        if update is not None:
            self.muscle.update(update)
        if terminated or truncated:
            self.returns.append(self._sum)
            self._sum = 0.0
            self.muscle.reset()
            self.begin()

    def run(self, steps: int) -> None:
        """Make ``steps`` steps."""
        for _ in range(steps):
            self.step()
