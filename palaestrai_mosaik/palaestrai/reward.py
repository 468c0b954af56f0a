"""Rewards that are written for palaestrAI: classes that derive from its ``Reward``."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
import palaestrai.agent

from palaestrai_mosaik.environment.environment import (
    EnvironmentBaseline,
    EnvironmentState,
    FloatVector,
    Reward,
    World,
)
from palaestrai_mosaik.errors import ContractError, did_you_mean
from palaestrai_mosaik.types import ActuatorInformation, RewardInformation, SensorInformation
from palaestrai_mosaik.types.vectors import Layout

from .random_streams import Streams
from .state import PalaestraiStates
from .translate import PalaestraiChannels, checked, our_space, their_actuator, their_sensor


class AdaptedReward(Reward):
    """Asks a reward of palaestrAI; subclasses have its class in :attr:`theirs`.

    One of palaestrAI's environments is given the reward and asks it in its own way. With any other
    environment, the reward is called with palaestrAI's state of the environment; its global generators
    are seeded anew for every episode then.
    """

    theirs: ClassVar[type]

    def __init__(self, **params: Any):
        self.params = params
        self._environment: World | None = None
        self._streams = Streams(0)
        #: the object of palaestrAI's class
        self.part = self.make()
        self._channels: dict[Layout, PalaestraiChannels] = {}

    def belongs_to(self, environment: World) -> None:
        """Take note of the environment, which knows the generator of the episode."""
        self._environment = environment

    def make(self) -> Any:
        """Return a new object of palaestrAI's class."""
        with self._streams:
            return self.theirs(**deepcopy(self.params))

    def ask(self, *what: Any) -> list[Any]:
        """Call the reward with ``what``; return palaestrAI's reward objects, in a list."""
        # there is none while the environment is set up
        rng = getattr(self._environment, "rng", None)
        if rng is not None:
            self._streams.renew(rng, "reward")
        with self._streams:
            found = self.part(*what)
        one = isinstance(found, palaestrai.agent.RewardInformation)
        return checked(
            [found] if one else found, palaestrai.agent.RewardInformation, f"reward {type(self).__name__}"
        )

    def setup(self, baseline: EnvironmentBaseline) -> Sequence[RewardInformation]:
        self._states = PalaestraiStates(baseline)
        # which rewards there are, nobody knows before the first call
        parts = [
            np.full(s.space.size, np.nan) if s.value is None else s.space.flatten(s.value)
            for s in baseline.sensors
        ]
        readings = np.concatenate(parts) if parts else np.empty(0)
        first = EnvironmentState(readings, [0.0 for _ in baseline.rewards])
        return self._declare(self.ask(self._states(first)))

    def __call__(self, state: EnvironmentState) -> FloatVector:
        return self._values(self.ask(self._states(state)))

    def declare(
        self, sensors: Sequence[SensorInformation], actuators: Sequence[ActuatorInformation]
    ) -> Sequence[RewardInformation]:
        """Declare the rewards for an environment that calls it as palaestrai-mosaik does.

        ``sensors`` and ``actuators`` carry the first readings and set-points.
        """
        return self._declare(
            self.ask([their_sensor(s) for s in sensors], [their_actuator(a) for a in actuators])
        )

    def compute(
        self, sensors: Layout, readings: FloatVector, actuators: Layout, setpoints: FloatVector
    ) -> FloatVector:
        """Return the rewards that :meth:`declare` told, for readings and set-points as vectors."""
        for layout, make in (
            (sensors, palaestrai.agent.SensorInformation),
            (actuators, palaestrai.agent.ActuatorInformation),
        ):
            if layout not in self._channels:
                self._channels[layout] = PalaestraiChannels(layout, make, gaps=True)
        asked = self._channels[sensors](readings), self._channels[actuators](setpoints)
        return self._values(self.ask(*asked))

    def _declare(self, infos: Sequence[Any]) -> list[RewardInformation]:
        rewards = declared(infos)
        self._names = [reward.uid for reward in rewards]
        # what it has kept of the call that told them is no part of the run
        self.part = self.make()
        return rewards

    def _values(self, infos: Sequence[Any]) -> FloatVector:
        return reward_values(infos, self._names, f"reward {type(self).__name__}")


def declared(infos: Sequence[Any]) -> list[RewardInformation]:
    """Return our rewards for palaestrAI's reward objects; one of several numbers is several rewards."""
    found = []
    for info in infos:
        space = our_space(info.space)
        if space.size == 1:
            found.append(RewardInformation(0.0, space, str(info.uid)))
        else:
            found += [RewardInformation(0.0, space, f"{info.uid}.{i}") for i in range(space.size)]
    return found


def reward_values(infos: Sequence[Any], names: Sequence[str], what: str) -> FloatVector:
    """Return the rewards called ``names``, NaN where ``infos`` (palaestrAI's objects) leave one out.

    Raises :class:`ContractError` for one that is not among them; ``what`` says who gave it.
    """
    vector = np.full(len(names), np.nan)
    for info in infos:
        values = np.asarray(info.value, dtype=np.float64).reshape(-1)
        for i, value in enumerate(values):
            name = str(info.uid) if len(values) == 1 else f"{info.uid}.{i}"
            if name not in names:
                raise ContractError(
                    f"{what} gave the reward {name!r}{did_you_mean(name, names)}, which was not among those of its "
                    f"first step: {', '.join(names) or 'none'}"
                )
            vector[names.index(name)] = value
    return vector
