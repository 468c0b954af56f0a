"""States of environments: palaestrAI's beside ours, and its state transformers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import palaestrai.agent
import palaestrai.environment
import palaestrai.types

from palaestrai_mosaik.environment import EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.environment.environment import EnvironmentStateTransformer, FloatVector, World
from palaestrai_mosaik.types.vectors import Layout

from .random_streams import Streams
from .translate import PalaestraiChannels


@dataclass(slots=True)
class PalaestraiState(EnvironmentState):
    """A state of one of palaestrAI's environments; ``theirs`` is the state that it gave."""

    theirs: Any = None


class PalaestraiReadings:
    """Takes readings from palaestrAI's objects.

    ``layout`` has the ids within the environment ``uid``. palaestrAI puts ``uid`` before them, and
    environments may do so.
    """

    def __init__(self, layout: Layout, uid: str):
        self.layout = layout
        self._places: dict[Any, int] = {}
        for place, name in enumerate(layout.uids):
            self._places.update({name: place, f"{uid}.{name}": place})
            if name.isdecimal():
                self._places[int(name)] = place

    def read(self, infos: Iterable[Any], before: FloatVector) -> FloatVector:
        """Return the readings of ``infos``; what they leave out is as ``before``.

        A reading of ``None`` is NaN. Sensors that the baseline has not are passed over: no agent
        can be connected to them.
        """
        layout = self.layout
        readings = before.copy()
        for info in infos:
            place = self._places.get(info.uid)
            if place is not None:
                value = info.value
                part = layout.slices[place]
                readings[part] = np.nan if value is None else layout.spaces[place].flatten(value)
        return readings


class PalaestraiStates:
    """Makes palaestrAI's states of ours, for rewards and transformers that are asked about them.

    ``baseline`` tells the sensors and rewards; their ids are those within the environment.
    """

    def __init__(self, baseline: EnvironmentBaseline):
        self.layout = Layout([s.uid for s in baseline.sensors], [s.space for s in baseline.sensors])
        self._sensors = PalaestraiChannels(self.layout, palaestrai.agent.SensorInformation, gaps=True)
        rewards = Layout([r.uid for r in baseline.rewards], [r.space for r in baseline.rewards])
        self._rewards = PalaestraiChannels(rewards, palaestrai.agent.RewardInformation, gaps=True)

    def __call__(self, state: EnvironmentState) -> Any:
        """Return palaestrAI's state for ``state``: the one that it was made from, if there is one."""
        if isinstance(state, PalaestraiState):
            return state.theirs
        return palaestrai.environment.EnvironmentState(
            self._sensors(state.readings),
            self._rewards(np.asarray(state.rewards, dtype=np.float64)),
            bool(state.terminated or state.truncated),
            state.world_state,
            None,
            bool(state.terminated),
            bool(state.truncated),
        )


def plain(value: Any) -> Any:
    """Return ``value`` with palaestrAI's objects in it as plain data, so that it can be stored.

    An information object becomes its id and value, a time its ticks and date.
    """
    agent = palaestrai.agent
    if isinstance(value, agent.SensorInformation | agent.ActuatorInformation | agent.RewardInformation):
        return {"uid": value.uid, "value": plain(value.value)}
    if isinstance(value, palaestrai.types.SimTime):
        date = value.simtime_timestamp
        return {"ticks": value.simtime_ticks, "date": None if date is None else date.isoformat()}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value


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
        self._states = PalaestraiStates(baseline)
        self._readings = PalaestraiReadings(self._states.layout, "")

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
