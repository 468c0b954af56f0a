"""The channels of an agent: its sensors, actuators and rewards among all that the environments have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .environment_handle import EnvironmentHandle, Places, places


class Channels:
    """The channels of one agent; ``sensors`` and ``actuators`` are full ids, no patterns."""

    def __init__(
        self, handles: Sequence[EnvironmentHandle], sensors: Sequence[str], actuators: Sequence[str]
    ):
        read = [self._handle_of(handles, uid) for uid in sensors]
        used = {*read, *(self._handle_of(handles, uid) for uid in actuators)}
        #: the environments (or incarnations) that it reads from or acts in, in the document's order
        self.handles = tuple(sorted(used, key=lambda p: (handles.index(p.root), p.number)))
        #: the environments that make this agent act by new readings
        self.watched = frozenset(read) or frozenset(used)
        self.rewards = [f"{p.uid}.{r.uid}" for p in self.handles for r in p.rewards]
        self.sensors = self._select(handles, "sensors", sensors)
        self.actuators = self._select(handles, "actuators", actuators)
        #: for each environment, the indices of readings in its state and in the agent's vector
        self._places: list[tuple[Places, Places]] = []
        for handle in self.handles:
            take: list[int] = []
            put: list[int] = []
            for uid, source, part in zip(sensors, read, self.sensors.slices, strict=True):
                if source is handle:
                    take += _range(handle.sensors.slices[handle.sensors.index[uid]])
                    put += _range(part)
            self._places.append((places(take), places(put)))
        #: the indices of all readings in the environment's state, if there is only one environment
        self.alone = self._places[0][0] if len(self.handles) == 1 else None

    def readings(self) -> FloatVector:
        """Return the newest readings of the environments: (readings,)."""
        return self.pick([handle.vector for handle in self.handles])

    def pick(self, states: Sequence[FloatVector]) -> FloatVector:
        """Extract the readings (readings,) from the state vectors of all ``handles``, in order."""
        vector = np.empty(self.sensors.size)
        for state, (take, put) in zip(states, self._places, strict=True):
            vector[put] = state[take]
        return vector

    @staticmethod
    def _handle_of(handles: Sequence[EnvironmentHandle], uid: str) -> EnvironmentHandle:
        for handle in handles:
            channel_handle = handle.handle_of(uid)
            if channel_handle is not None:
                return channel_handle
        raise ContractError(f"no environment offers {uid!r}")

    def _select(self, handles: Sequence[EnvironmentHandle], kind: str, uids: Sequence[str]) -> Layout:
        spaces = []
        for uid in uids:
            layout: Layout = getattr(self._handle_of(handles, uid), kind)
            if uid not in layout.index:
                raise ContractError(f"{uid!r} is none of the {kind}")
            spaces.append(layout.spaces[layout.index[uid]])
        return Layout(uids, spaces)


def _range(part: slice) -> range:
    return range(part.start, part.stop)
