"""Who acts when, and when the episode ends. The same for every form of the bridge.

At every time at which an environment has a new state, in this order:

1. the new states are taken over;
2. every agent that waits for a reward closes its row;
3. the conditions are asked; if the episode ends, rows are recorded with the reason and
   nobody acts;
4. the brains of the agents that closed a row think;
5. the agents whose turn it is act, in document order.

*Vanilla*: every agent acts that watches an environment with a new state. *Taking turns*:
agents act one after the other, in document order; the next one acts as soon as every
environment has been stepped since the last turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.environment.cosimulation import CoSimulation
from palaestrai_mosaik.types import SimulationFlowControl

from .body import Body
from .conditions import TerminationCondition, ask
from .ports import EnvironmentPort, InputWire, read

#: the reason of an episode that the user ended
INTERRUPTED = "interrupted"


class Director:
    """Leads the episodes of one worker."""

    def __init__(
        self,
        ports: Sequence[EnvironmentPort],
        bodies: Sequence[Body],
        conditions: Sequence[TerminationCondition],
        *,
        taking_turns: bool,
        on_step: Callable[[int], bool] | None = None,
    ):
        self.ports = tuple(ports)
        self.bodies = tuple(bodies)
        self.conditions = tuple(conditions)
        self.taking_turns = taking_turns
        #: called after every step with the time; True asks for the end (an interruption)
        self.on_step = on_step
        self.worker = self.episode = self.steps = -1
        self.time = 0
        self.over = self.interrupted = False
        self.flow = SimulationFlowControl.CONTINUE
        self.ended_by = ""
        self._by_name = {body.name: body for body in self.bodies}
        for order, body in enumerate(self.bodies):
            body.order = order

    def begin(self, worker: int, episode: int, wires: Sequence[Sequence[InputWire]]) -> None:
        """Start an episode. ``wires``: for each environment, those to the director."""
        self.worker, self.episode = worker, episode
        #: for each environment: its wires, the length of its vector, who makes a state of it
        self.sources: dict[EnvironmentPort, tuple[Sequence[InputWire], int, Any]] = {}
        for port, laid in zip(self.ports, wires, strict=True):
            if isinstance(port.domain, CoSimulation):
                self.sources[port] = (laid, port.n_readings, port.domain.judge)
            else:
                self.sources[port] = (laid, len(port.vector), None)
        self.time = 0
        #: environment steps so far; the first state is the beginning, not a step
        self.steps = -1
        self.turn = 0
        self.stepped: set[EnvironmentPort] = set()
        self.over = False
        self.interrupted = False
        self.flow = SimulationFlowControl.CONTINUE
        self.ended_by = ""

    def observe(self, time: int, inputs: Mapping[str, Mapping[str, Any]]) -> Sequence[Body]:
        """Take in the states of ``time``; return the agents that act now, in order."""
        self.time = time
        fresh = [p for p in self.ports if not p.done and time % p.step_size == 0]
        for port in fresh:
            wires, width, judge = self.sources[port]
            vector = read(wires, inputs, width)
            if judge is not None:
                vector = port.pack(judge(time, vector))
            port.accept(vector)
        everyone = len(fresh) == len(self.ports)
        closed = []
        for body in self.bodies:
            if body.open and (everyone or not body.around.isdisjoint(fresh)):
                body.close(fresh)
                closed.append(body)
        self.steps += 1
        self.flow, self.ended_by = ask(self.conditions, "episode_flow_control", self)
        if self.on_step is not None and self.on_step(time):
            self.interrupted = self.over = True
            self.ended_by = INTERRUPTED
        elif self.flow is not SimulationFlowControl.CONTINUE:
            self.over = True
        elif all(port.done for port in self.ports):
            # an environment that has ended cannot be stepped, whatever the conditions say
            self.flow, self.ended_by, self.over = SimulationFlowControl.RESET, "environments", True
        for port in fresh:
            port.record(time)
        if self.over:
            self._finish(fresh, closed)
            return ()
        for body in closed:
            if body.brain is not None:
                body.learn()
        return self._acting(fresh)

    def abandon(self, reason: str) -> None:
        """End an episode whose world was stopped from outside, or failed.

        Rows that have their reward are recorded; what an agent did last has none yet.
        """
        self.over = True
        self.interrupted = reason == INTERRUPTED
        self.ended_by = reason
        for body in self.bodies:
            if body.pending:
                body.end()
                body.record()

    def next_time(self) -> int | None:
        """The next time at which an environment has a new state."""
        times = [self.time - self.time % p.step_size + p.step_size for p in self.ports if not p.done]
        return min(times, default=None)

    def ended(self) -> Mapping[str, tuple[bool, bool]]:
        """(terminated, truncated) of every environment, by uid."""
        return {port.uid: (port.terminated, port.truncated) for port in self.ports}

    def objectives(self, agent: str) -> npt.NDArray[np.float64]:
        """(n,): the agent's objective values of this episode, without those that are NaN."""
        body = self._by_name.get(agent)
        if body is None:
            return np.empty(0)
        values = body.objectives()
        missing = np.isnan(values)
        return values[~missing] if missing.any() else values

    def _acting(self, fresh: Sequence[EnvironmentPort]) -> Sequence[Body]:
        if not self.taking_turns:
            if len(fresh) == len(self.ports):
                return self.bodies
            return [body for body in self.bodies if not body.watched.isdisjoint(fresh)]
        self.stepped.update(fresh)
        if not self.bodies or any(p not in self.stepped and not p.done for p in self.ports):
            return ()
        self.stepped.clear()
        body = self.bodies[self.turn % len(self.bodies)]
        self.turn += 1
        return (body,)

    def _finish(self, fresh: Sequence[EnvironmentPort], closed: list[Body]) -> None:
        for body in self.bodies:
            if body.open:
                body.close(fresh)
                closed.append(body)
            if body.pending:
                body.end()
                if body in closed:
                    body.learn()
                body.record()
