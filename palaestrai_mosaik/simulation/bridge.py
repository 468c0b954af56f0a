"""The mosaik simulators of this package's own parts: environments, agents, the director.

By default one simulator, ``agents``, holds the director and every agent as entities
(``bridge: agents``). With ``bridge: per_agent`` the director and every agent are
simulators of their own; the director then tells each agent whether it acts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mosaik_api_v3
import numpy as np

from palaestrai_mosaik.environment.environment import Environment

from .body import Body
from .director import Director
from .ports import EnvironmentPort

Inputs = Mapping[str, Mapping[str, Mapping[str, Any]]]

#: cannot be the name of an agent in a document
DIRECTOR = "@director"
TURN = "turn"
CLOCK = "clock"
#: what the director sends at first: (time, acts, next time)
NO_TURN = (-1, False, None)


def _meta(models: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {
        "api_version": "3.0",
        "type": "hybrid",
        "models": {
            model: {"public": True, "params": ["eid"], "attrs": list(attributes)}
            for model, attributes in models.items()
        },
    }


class _Shell(mosaik_api_v3.Simulator):
    """What the three simulators share: entities are created under a given id."""

    def __init__(self, models: Mapping[str, Sequence[str]]):
        super().__init__(_meta(models))
        self.outputs: dict[str, dict[str, Any]] = {}

    def init(self, sid: str, time_resolution: float = 1.0, **params: Any) -> Any:
        return self.meta

    def create(self, num: int, model: str, **params: Any) -> Any:
        eid = params["eid"]
        self.outputs[eid] = {}
        return [{"eid": eid, "type": model}]

    def get_data(self, outputs: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
        data = self.outputs
        return {eid: {attr: data[eid][attr] for attr in attrs} for eid, attrs in outputs.items()}


class EnvironmentSimulator(_Shell):
    """Steps one environment: set-points in, one state vector out."""

    def __init__(self, port: EnvironmentPort, environment: Environment, director: Director):
        super().__init__({"Environment": ("state", "setpoints", CLOCK)})
        self.port = port
        self.environment = environment
        self.director = director
        self.setpoints = port.initial_setpoints()
        self.accepted: dict[str, int] = {}

    def step(self, time: int, inputs: Inputs, max_advance: int) -> int | None:
        port, director = self.port, self.director
        if director.over or port.done:
            return None
        state = self.environment.reset() if time == 0 else self.environment.step(self._apply(inputs))
        vector = director.pack(port, state)
        self.outputs = {port.uid: {"state": vector}}
        if vector[-2] or vector[-1]:
            return None
        return time + port.step_size

    def _apply(self, inputs: Inputs) -> np.ndarray[Any, Any]:
        held = self.setpoints.copy()
        if not self.environment.hold_setpoints:
            held.fill(np.nan)
        packets = []
        for source, packet in inputs.get(self.port.uid, {}).get("setpoints", {}).items():
            if packet and packet[0] > self.accepted.get(source, -1):
                self.accepted[source] = packet[0]
                packets.append(packet)
        if len(packets) > 1:
            # where agents share an actuator, the later set-point holds; at one time, that
            # of the agent that stands later in the document
            packets.sort(key=lambda packet: packet[:2])
        for _, _, put, values in packets:
            if math.isnan(values.dot(values)):
                values = np.where(np.isnan(values), held[put], values)
            held[put] = values
        self.setpoints = held
        return held


class AgentsSimulator(_Shell):
    """The director and all agents of a world."""

    def __init__(self, director: Director, stop: Callable[[int], None], attributes: Sequence[str]):
        super().__init__({"Director": [*attributes, CLOCK], "Agent": attributes})
        self.director = director
        self.stop = stop

    def step(self, time: int, inputs: Inputs, max_advance: int) -> int | None:
        director = self.director
        for body in director.observe(time, inputs.get(DIRECTOR, {})):
            body.act(time, inputs.get(body.name, {}))
        self.outputs = {body.name: body.values for body in director.bodies}
        self.outputs[DIRECTOR] = {CLOCK: time}
        director.settle()
        if director.over:
            self.stop(time)
            return None
        return director.next_time()


class DirectorSimulator(_Shell):
    """The director as a simulator of its own: tells every agent whether it acts."""

    def __init__(self, director: Director, stop: Callable[[int], None], attributes: Sequence[str]):
        super().__init__({"Director": [*attributes, CLOCK, *(body.name for body in director.bodies)]})
        self.director = director
        self.stop = stop

    def step(self, time: int, inputs: Inputs, max_advance: int) -> int | None:
        director = self.director
        acting = director.observe(time, inputs.get(DIRECTOR, {}))
        following = None if director.over else director.next_time()
        self.outputs = {DIRECTOR: {b.name: (time, b in acting, following) for b in director.bodies}}
        self.outputs[DIRECTOR][CLOCK] = time
        director.settle()
        if director.over:
            self.stop(time)
        return following


class AgentSimulator(_Shell):
    """One agent as a simulator of its own."""

    def __init__(self, body: Body, attributes: Sequence[str]):
        super().__init__({"Agent": [*attributes, TURN]})
        self.body = body

    def step(self, time: int, inputs: Inputs, max_advance: int) -> int | None:
        body = self.body
        mine = inputs.get(body.name, {})
        (turn,) = mine[TURN].values()
        at, acts, following = turn
        if acts and at == time:
            body.act(time, mine)
        self.outputs = {body.name: body.values}
        return following
