"""What an agent reads, sets and is rewarded by, of all that the environments offer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types.vectors import Layout

from .connections import Places, places
from .environment_handle import EnvironmentHandle

FloatVector = npt.NDArray[np.float64]


class Channels:
    """The channels of one agent; ``sensors`` and ``actuators`` are full ids, no patterns."""

    def __init__(self, ports: Sequence[EnvironmentHandle], sensors: Sequence[str], actuators: Sequence[str]):
        read = [self._port_of(ports, uid) for uid in sensors]
        used = {*read, *(self._port_of(ports, uid) for uid in actuators)}
        #: the environments (or incarnations) that it reads or acts in, in the document's order
        self.ports = tuple(sorted(used, key=lambda p: (ports.index(p.root), p.number)))
        self.around = frozenset(used)
        #: the environments whose new readings make this agent act
        self.watched = frozenset(read) or self.around
        self.rewards = [f"{p.uid}.{r.uid}" for p in self.ports for r in p.rewards]
        self.sensors = self._select(ports, "sensors", sensors)
        self.actuators = self._select(ports, "actuators", actuators)
        #: for each environment, where readings are in its state, and where they belong
        self._places: list[tuple[Places, Places]] = []
        for port in self.ports:
            mine = [i for i, p in enumerate(read) if p is port]
            take = [
                k for i in mine for k in _range(port.sensors.slices[port.sensors.index[self.sensors.uids[i]]])
            ]
            put = [k for i in mine for k in _range(self.sensors.slices[i])]
            self._places.append((places(take), places(put)))
        #: the places of all readings in the state of the environment, if there is only one
        self.alone = self._places[0][0] if len(self.ports) == 1 else None

    def readings(self) -> FloatVector:
        """Return the newest readings, as the environments have them: (readings,)."""
        return self.pick([port.vector for port in self.ports])

    def pick(self, states: Sequence[FloatVector]) -> FloatVector:
        """Return the readings (readings,) in the state vectors of the environments, one for each of ``ports``."""
        vector = np.empty(self.sensors.size)
        for state, (take, put) in zip(states, self._places, strict=True):
            vector[put] = state[take]
        return vector

    @staticmethod
    def _port_of(ports: Sequence[EnvironmentHandle], uid: str) -> EnvironmentHandle:
        for port in ports:
            seat = port.seat_of(uid)
            if seat is not None:
                return seat
        raise ContractError(f"no environment offers {uid!r}")

    def _select(self, ports: Sequence[EnvironmentHandle], kind: str, uids: Sequence[str]) -> Layout:
        spaces = []
        for uid in uids:
            layout: Layout = getattr(self._port_of(ports, uid), kind)
            if uid not in layout.index:
                raise ContractError(f"{uid!r} is none of the {kind}")
            spaces.append(layout.spaces[layout.index[uid]])
        return Layout(uids, spaces)


def _range(part: slice) -> range:
    return range(part.start, part.stop)
