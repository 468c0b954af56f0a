"""The grid's parts as entities of one mosaik simulator: the same values for less time.

What mosaik takes for a tick grows faster than the number of simulators: some 0.7 ms for
the four of a grid and the agents, 0.2 ms for one and the agents. Here the four shells of
:mod:`.simulators` stay what they are, but are stepped, in the order of their data flow,
by one simulator that hands on their outputs itself. Entities and attributes have the
same names as with four simulators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mosaik_api_v3

from palaestrai_mosaik.environment.cosimulation import ConnectionSpec

from .simulators import Inputs, Shell


class JointSimulator(mosaik_api_v3.Simulator):
    """Steps ``shells`` in their order, in which data must flow along ``connections``."""

    def __init__(self, shells: Sequence[Shell], connections: Sequence[ConnectionSpec]):
        models: dict[str, Any] = {}
        for shell in shells:
            models |= shell.meta["models"]
        super().__init__({"api_version": "3.0", "type": "hybrid", "models": models})
        self.shells = {shell.MODEL: shell for shell in shells}
        self._feeds: dict[str, list[tuple[str, str, str]]] = {name: [] for name in self.shells}
        for connection in connections:
            for source, target in connection.attributes:
                self._feeds[connection.target].append((target, connection.source, source))

    def init(self, sid: str, time_resolution: float = 1.0, **params: Any) -> Any:
        for shell in self.shells.values():
            shell.init(sid, time_resolution)
        return self.meta

    def create(self, num: int, model: str, **params: Any) -> Any:
        return self.shells[model].create(num, model)

    def step(self, time: int, inputs: Inputs, max_advance: int) -> int | None:
        following: int | None = None
        for name, shell in self.shells.items():
            mine: dict[str, Mapping[str, Any]] = dict(inputs.get(name, {}))
            for target, source, attribute in self._feeds[name]:
                mine[target] = {source: self.shells[source].outputs[attribute]}
            following = shell.step(time, {name: mine}, max_advance)
        return following

    def get_data(self, outputs: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
        return {eid: self.shells[eid].get_data({eid: names})[eid] for eid, names in outputs.items()}
