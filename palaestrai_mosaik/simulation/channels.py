"""What an agent reads, sets and is rewarded by, of all that the environments offer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .connections import Places, places
from .environment_handle import EnvironmentHandle


class Channels:
    """The channels of one agent; ``sensors`` and ``actuators`` are full ids, no patterns."""

    def __init__(
        self, handles: Sequence[EnvironmentHandle], sensors: Sequence[str], actuators: Sequence[str]
    ):
        read = [self._handle_of(handles, uid) for uid in sensors]
        used = {*read, *(self._handle_of(handles, uid) for uid in actuators)}
        #: the environments (or incarnations) that it reads or acts in, in the document's order
        self.handles = tuple(sorted(used, key=lambda p: (handles.index(p.root), p.number)))
        #: the environments whose new readings make this agent act
        self.watched = frozenset(read) or frozenset(used)
        self.rewards = [f"{p.uid}.{r.uid}" for p in self.handles for r in p.rewards]
        self.sensors = self._select(handles, "sensors", sensors)
        self.actuators = self._select(handles, "actuators", actuators)
        #: for each environment, where readings are in its state, and where they belong
        self._places: list[tuple[Places, Places]] = []
        for handle in self.handles:
            mine = [i for i, p in enumerate(read) if p is handle]
            take = [
                k
                for i in mine
                for k in _range(handle.sensors.slices[handle.sensors.index[self.sensors.uids[i]]])
            ]
            put = [k for i in mine for k in _range(self.sensors.slices[i])]
            self._places.append((places(take), places(put)))
        #: the places of all readings in the state of the environment, if there is only one
        self.alone = self._places[0][0] if len(self.handles) == 1 else None

    def readings(self) -> FloatVector:
        """Return the newest readings, as the environments have them: (readings,)."""
        return self.pick([handle.vector for handle in self.handles])

    def pick(self, states: Sequence[FloatVector]) -> FloatVector:
        """Return the readings (readings,) in the state vectors of the environments, one for each of ``handles``."""
        vector = np.empty(self.sensors.size)
        for state, (take, put) in zip(states, self._places, strict=True):
            vector[put] = state[take]
        return vector

    @staticmethod
    def _handle_of(handles: Sequence[EnvironmentHandle], uid: str) -> EnvironmentHandle:
        for handle in handles:
            found = handle.handle_of(uid)
            if found is not None:
                return found
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
