"""State transformers that are written for palaestrAI."""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, ClassVar

from palaestrai_mosaik.environment import EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.environment.environment import EnvironmentStateTransformer, World

from .state import TheirReadings, TheirStates, plain
from .streams import Streams


class AdaptedStateTransformer(EnvironmentStateTransformer):
    """Asks a state transformer of palaestrAI; subclasses have its class in :attr:`theirs`.

    As its documentation says, it changes what is stored: the world's state and the readings. (In
    palaestrAI, agents get what it has made of readings and rewards, too.) Its global generators are
    seeded anew for every episode.
    """

    theirs: ClassVar[type]

    def __init__(self, **params: Any):
        self._streams = Streams(0)
        with self._streams:
            #: the object of palaestrAI's class
            self.part = self.theirs(**params)

    def belongs_to(self, environment: World) -> None:
        """Take note of the environment, which knows the generator of the episode."""
        self._environment = environment

    def setup(self, baseline: EnvironmentBaseline) -> None:
        self._states = TheirStates(baseline)
        self._readings = TheirReadings(self._states.layout, "")

    def __call__(self, environment_state: EnvironmentState) -> EnvironmentState:
        state = copy(self._states(environment_state))
        # it may write to what it is given
        state.sensor_information = [_twin(info) for info in state.sensor_information]
        state.rewards = [_twin(info) for info in state.rewards]
        state.world_state = deepcopy(state.world_state)
        self._streams.renew(self._environment.rng, "state_transformer")
        with self._streams:
            found = self.part(state)
        return replace(
            environment_state,
            readings=self._readings.read(found.sensor_information, environment_state.readings),
            world_state=plain(found.world_state),
        )


def _twin(info: Any) -> Any:
    """Return a copy of one of palaestrAI's objects; copying them by the usual way takes long."""
    twin = object.__new__(type(info))
    twin.__dict__.update(info.__dict__)
    return twin
