"""Who acts when, and when the episode ends. The same for every form of the bridge.

At every time at which an environment has a new state, in this order:

1. the new states are taken over;
2. every agent whose row is open and that watches an environment with a new state closes
   its row; rewards of environments in which it only acts are added up until then;
3. the conditions are asked; if the episode ends, rows are recorded with the reason and
   nobody acts;
4. the brains of the agents that closed a row think;
5. the agents whose turn it is act, in document order.

*Vanilla*: every agent acts that watches an environment with a new state. *Taking turns*:
agents act one after the other, in document order; the next one acts as soon as every
environment has been stepped since the last turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.environment.cosimulation import CoSimulation
from palaestrai_mosaik.environment.environment import EnvironmentState
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types import SimulationFlowControl

from .body import Body
from .conditions import TerminationCondition
from .ports import EnvironmentPort, InputWire, read

FloatVector = npt.NDArray[np.float64]

#: the reason of an episode that the user ended
INTERRUPTED = "interrupted"


class Interruptible(Protocol):
    """Holds the wish to end."""

    requested: bool


class Director:
    """Leads the episodes of one worker."""

    def __init__(
        self,
        ports: Sequence[EnvironmentPort],
        bodies: Sequence[Body],
        conditions: Sequence[TerminationCondition],
        *,
        taking_turns: bool,
        interrupt: Interruptible | None = None,
        on_step: Callable[[int], None] | None = None,
    ):
        self.ports = tuple(ports)
        self.bodies = tuple(bodies)
        self.conditions = tuple(conditions)
        self.taking_turns = taking_turns
        self.interrupt = interrupt
        #: called after every step with the number of environment steps done (progress)
        self.on_step = on_step
        self.worker = self.episode = self.steps = -1
        self.time = 0
        self.over = self.interrupted = False
        self.flow = SimulationFlowControl.CONTINUE
        self.ended_by = ""
        #: (terminated, truncated) of every environment, by uid
        self.ended: dict[str, tuple[bool, bool]] = {}
        self.fresh: Sequence[EnvironmentPort] = ()
        self._by_name = {body.name: body for body in self.bodies}
        for order, body in enumerate(self.bodies):
            body.order = order

    def begin(self, worker: int, episode: int, wires: Sequence[Sequence[InputWire]]) -> None:
        """Start an episode. ``wires``: for each environment, those to the director."""
        self.worker, self.episode = worker, episode
        #: for each environment: its input, or how to make a state of several inputs
        self.sources: dict[EnvironmentPort, tuple[str, Callable[..., FloatVector] | None]] = {}
        for port, laid in zip(self.ports, wires, strict=True):
            if isinstance(port.domain, CoSimulation):
                self.sources[port] = "", partial(self._judged, port, port.domain, laid)
            else:
                self.sources[port] = laid[0].attribute, None
        self.time = 0
        #: environment steps so far; the first state is the beginning, not a step
        self.steps = -1
        self.turn = 0
        self.stepped: set[EnvironmentPort] = set()
        self.over = False
        self.interrupted = False
        self.flow = SimulationFlowControl.CONTINUE
        self.ended_by = ""
        self.ended = {port.uid: (False, False) for port in self.ports}
        self.some_done = False

    def observe(self, time: int, inputs: Mapping[str, Mapping[str, Any]]) -> Sequence[Body]:
        """Take in the states of ``time``; return the agents that act now, in order."""
        self.time = time
        fresh = self.fresh = [p for p in self.ports if not p.done and time % p.step_size == 0]
        for port in fresh:
            attribute, make = self.sources[port]
            if make is None:
                (vector,) = inputs[attribute].values()
            else:
                vector = make(time, inputs)
            port.vector = vector
            port.steps += 1
            if vector[-2] or vector[-1]:
                self.ended[port.uid] = port.end()
                self.some_done = True
        everyone = len(fresh) == len(self.ports)
        closed = []
        for body in self.bodies:
            if body.open:
                if everyone or not body.watched.isdisjoint(fresh):
                    body.close(fresh)
                    closed.append(body)
                elif not body.around.isdisjoint(fresh):
                    body.collect(fresh)
        self.steps += 1
        self.flow, self.ended_by = ask(self.conditions, "episode_flow_control", self)
        interrupted = self.interrupt is not None and self.interrupt.requested
        if (self.flow or self.some_done or interrupted) and self._ends(interrupted):
            self._finish(fresh, closed)
            return ()
        if self.some_done:
            self._let_go(closed)
        for body in closed:
            if body.learns:
                # taking turns, it acts on states that are still to come
                ahead = body.muscle.looks_ahead and not self.taking_turns
                body.learn(final=body.look_ahead() if ahead else None)
        if self.taking_turns:
            return self._turn(fresh)
        if everyone and not self.some_done:
            return self.bodies
        return [body for body in self.bodies if not body.out and not body.watched.isdisjoint(fresh)]

    def _ends(self, interrupted: bool) -> bool:
        """Return whether the episode is over, now that the conditions were asked; keep why."""
        if interrupted:
            self.interrupted = self.over = True
            self.ended_by = INTERRUPTED
        elif self.flow:
            self.over = True
        elif all(port.done for port in self.ports):
            # an environment that has ended cannot be stepped, whatever the conditions say
            self.flow, self.ended_by, self.over = SimulationFlowControl.RESET, "environments", True
        return self.over

    def settle(self) -> None:
        """Record what can be recorded, and show progress; once all have acted."""
        for body in self.bodies:
            if body.settled is not None:
                body.record()
        for port in self.fresh:
            port.record(self.time)
        if self.on_step is not None:
            self.on_step(self.steps)

    def pack(self, port: EnvironmentPort, state: EnvironmentState) -> FloatVector:
        """Return ``state`` as a state vector (:class:`EnvironmentPort`); compute the reward."""
        if not isinstance(state, EnvironmentState):
            raise ContractError(
                f"environment {port.uid!r} returned {type(state).__name__}, not EnvironmentState"
            )
        n, k = port.n_readings, port.n_rewards
        vector = np.empty(n + k + 2)
        readings = np.asarray(state.readings)
        rewards = np.asarray(state.rewards if port.reward is None else port.reward(state))
        if readings.shape != (n,) or (rewards.shape != (k,) and (k != 1 or rewards.shape)):
            raise ContractError(
                f"environment {port.uid!r} returned readings of shape {readings.shape} and rewards of shape "
                f"{rewards.shape}; declared are {n} readings and {k} rewards"
            )
        for what, values in (("readings", readings), ("rewards", rewards)):
            if values.dtype.kind not in "fiub":
                raise ContractError(
                    f"environment {port.uid!r} returned {what} that are no numbers: {values!r}"
                )
        for what, flag in (("terminated", state.terminated), ("truncated", state.truncated)):
            if not isinstance(flag, bool | np.bool_):
                raise ContractError(f"environment {port.uid!r}: {what} must be True or False, not {flag!r}")
        vector[:n] = readings
        vector[n:-2] = rewards
        vector[-2] = state.terminated
        vector[-1] = state.truncated
        # all agents see this one vector
        vector.flags.writeable = False
        port.state = state
        return vector

    def abandon(self, reason: str) -> None:
        """End an episode whose world was stopped from outside, or failed.

        Rows that have their reward are recorded; what an agent did last has none yet.
        """
        self.over = True
        self.interrupted = reason == INTERRUPTED
        self.ended_by = reason
        for body in self.bodies:
            body.finish(learns=False)

    def next_time(self) -> int | None:
        """The next time at which an environment has a new state."""
        times = [self.time - self.time % p.step_size + p.step_size for p in self.ports if not p.done]
        return min(times, default=None)

    def objectives(self, agent: str) -> npt.NDArray[np.float64]:
        """(n,): the agent's objective values of this episode, without those that are NaN."""
        body = self._by_name.get(agent)
        if body is None:
            return np.empty(0)
        values = body.objectives()
        missing = np.isnan(values)
        return values[~missing] if missing.any() else values

    def _judged(
        self,
        port: EnvironmentPort,
        domain: CoSimulation,
        wires: Sequence[InputWire],
        time: int,
        inputs: Mapping[str, Mapping[str, Any]],
    ) -> FloatVector:
        return self.pack(port, domain.judge(time, read(wires, inputs, port.n_readings)))

    def _turn(self, fresh: Sequence[EnvironmentPort]) -> Sequence[Body]:
        self.stepped.update(fresh)
        if not self.bodies or any(p not in self.stepped and not p.done for p in self.ports):
            return ()
        self.stepped.clear()
        for _ in self.bodies:
            body = self.bodies[self.turn % len(self.bodies)]
            self.turn += 1
            if not body.out:
                return (body,)
        return ()

    def _let_go(self, closed: list[Body]) -> None:
        """End the episode for the agents who watch only environments that have ended."""
        for body in self.bodies:
            if not body.out and all(port.done for port in body.watched):
                body.out = True
                if body.open:
                    body.close(())
                    closed.append(body)
                body.finish(learns=body in closed)
                if body in closed:
                    closed.remove(body)

    def _finish(self, fresh: Sequence[EnvironmentPort], closed: list[Body]) -> None:
        for body in self.bodies:
            if body.open:
                body.close(fresh)
                closed.append(body)
            body.finish(learns=body in closed)


def ask(
    conditions: Iterable[TerminationCondition], hook: str, view: Any
) -> tuple[SimulationFlowControl, str]:
    """Ask all conditions in order; return the strongest answer and who gave it first."""
    flow, by = SimulationFlowControl.CONTINUE, ""
    for condition in conditions:
        answer = getattr(condition, hook)(view)
        if not isinstance(answer, SimulationFlowControl):
            raise ContractError(
                f"{type(condition).__name__}.{hook} must return a SimulationFlowControl, not {answer!r}"
            )
        if answer > flow:
            flow, by = answer, type(condition).__name__
            if condition.termination_reason:
                by = f"{by}: {condition.termination_reason}"
    return flow, by
