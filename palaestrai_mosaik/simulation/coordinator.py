"""Who acts when, and when the episode ends.

At every time at which an environment has a new state, in this order:

1. the new states are taken over;
2. every agent whose row is open and that watches an environment with a new state closes
   its row; rewards of environments in which it only acts are added up until then;
3. the conditions are asked; if the episode ends, rows are recorded with the reason and
   nobody acts;
4. the brains of the agents that closed a row think;
5. the agents whose turn it is act, in document order;
6. rows whose agent has acted again are recorded, then the new states.

*Vanilla*: every agent acts that watches an environment with a new state. *Taking turns*:
agents act one after the other, in document order, each with all its bodies that have
something new to see; the next one acts as soon as every environment has been stepped since
the last turn.

Where a condition says so, an environment that has ended begins again at its next step, while
the others go on (``environments_reset``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.environment.cosimulation import CoSimulation
from palaestrai_mosaik.environment.environment import EnvironmentState
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types import SimulationFlowControl
from palaestrai_mosaik.types.arrays import FloatVector

from .body import AnyBody
from .conditions import TerminationCondition
from .connections import InputWire, read
from .environment_handle import EnvironmentHandle
from .external_control import ExternalControl

_FLAG = (bool, np.bool_)

#: the reason of an episode that the user ended
INTERRUPTED = "interrupted"


class Interruptible(Protocol):
    """Holds the wish to end."""

    requested: bool


class EpisodeCoordinator:
    """Leads the episodes of one worker."""

    def __init__(
        self,
        handles: Sequence[EnvironmentHandle],
        bodies: Sequence[AnyBody],
        conditions: Sequence[TerminationCondition],
        *,
        taking_turns: bool,
        interrupt: Interruptible | None = None,
        on_step: Callable[[int], None] | None = None,
    ):
        self.handles = tuple(handles)
        self.bodies = tuple(bodies)
        self.conditions = tuple(conditions)
        self.environments_reset = False
        self.taking_turns = taking_turns
        self.interrupt = interrupt
        #: called after every step with the number of environment steps done (progress)
        self.on_step = on_step
        #: the bodies that an external controller decides for
        self.external_control: ExternalControl | None = None
        self.worker = self.episode = self.steps = -1
        self.time = 0
        self.over = self.interrupted = False
        self.flow = SimulationFlowControl.CONTINUE
        self.ended_by = ""
        #: (terminated, truncated) of every environment's newest state, and how often it has ended
        self.ended: dict[str, tuple[bool, bool]] = {}
        self.endings: dict[str, int] = {}
        self.fresh: Sequence[EnvironmentHandle] = ()
        #: how many bodies have still to act at this time; after the last one, :meth:`settle`
        self.missing = 0
        #: the next time at which an environment has a new state
        self.following: int | None = None
        #: the bodies of every agent
        self.agents: dict[str, list[AnyBody]] = {}
        #: what brains have learned, for all bodies of the agent
        self._news: dict[str, Any] = {}
        #: the bodies of each agent whose filters learn together
        self._filtered: list[Sequence[AnyBody]] = []
        for order, body in enumerate(self.bodies):
            body.order = order
            self.agents.setdefault(body.agent, []).append(body)
        for same_agent in self.agents.values():
            if len(same_agent) > 1:
                self._share(same_agent)

    def begin(self, worker: int, episode: int, wires: Sequence[Sequence[InputWire]]) -> None:
        """Start an episode. ``wires``: for each environment, those to the coordinator."""
        self.worker, self.episode = worker, episode
        #: for each environment: its input, or how to make a state of several inputs
        self.sources: dict[EnvironmentHandle, tuple[str, Callable[..., FloatVector] | None]] = {}
        for handle, laid in zip(self.handles, wires, strict=True):
            if isinstance(handle.domain, CoSimulation):
                self.sources[handle] = "", partial(self._judged, handle, handle.domain, laid)
            else:
                self.sources[handle] = laid[0].attribute, None
        self.time = 0
        #: environment steps so far; the first state is the beginning, not a step
        self.steps = -1
        self.missing = 0
        self.turn = 0
        self.stepped: set[EnvironmentHandle] = set()
        self.over = False
        self.interrupted = False
        self.flow = SimulationFlowControl.CONTINUE
        self.ended_by = ""
        names = [name for handle in self.handles for name in handle.names]
        self.ended = dict.fromkeys(names, (False, False))
        self.endings = dict.fromkeys(names, 0)
        self.some_done = False
        self.environments_reset = any(condition.environments_reset for condition in self.conditions)
        self._news.clear()

    def observe(self, time: int, inputs: Mapping[str, Mapping[str, Any]]) -> Sequence[AnyBody]:
        """Take in the states of ``time``; return the bodies that act now, in order.

        When they have, or there is none, :meth:`settle` is due.
        """
        self.time = time
        fresh: Collection[EnvironmentHandle]
        fresh = self.fresh = [p for p in self.handles if not p.stopped and time % p.step_size == 0]
        eventful: list[tuple[EnvironmentHandle, FloatVector]] = []
        for handle in fresh:
            attribute, make = self.sources[handle]
            if make is None:
                (vector,) = inputs[attribute].values()
            else:
                vector = make(time, inputs)
            if handle.alone and not (handle.done or vector[-2] or vector[-1]):
                handle.vector = vector
                handle.steps += 1
            else:
                eventful.append((handle, vector))
        if eventful:
            fresh = self._take(eventful)
        self.following = min(
            [time - time % p.step_size + p.step_size for p in self.handles if not p.stopped], default=None
        )
        everyone = len(self.fresh) == len(self.handles)
        closed = [b for b in self.bodies if b.open is not None] if everyone else self._concerned(fresh)
        for body in closed:
            body.close(fresh)
        self.steps += 1
        self.flow, self.ended_by = SimulationFlowControl.CONTINUE, ""
        view: Any = self
        answers = [condition.episode_flow_control(view) for condition in self.conditions]
        for answer in answers:
            if answer is not SimulationFlowControl.CONTINUE:
                self.flow, self.ended_by = strongest(self.conditions, "episode_flow_control", answers)
                break
        interrupted = self.interrupt is not None and self.interrupt.requested
        if (self.flow or self.some_done or interrupted) and self._ends(interrupted, fresh, closed):
            return ()
        for body in closed:
            if body.learns:
                # taking turns, it acts on states that are still to come
                body.think(ahead=body.muscle.looks_ahead and not self.taking_turns)
        if self._news or self._filtered:
            self._distribute_updates()
        simple = everyone and not (self.taking_turns or self.some_done)
        acting = self.bodies if simple else self._acting(fresh)
        self.missing = len(acting)
        return acting

    def _take(
        self, eventful: Sequence[tuple[EnvironmentHandle, FloatVector]]
    ) -> Collection[EnvironmentHandle]:
        """Take over the new states of environments that have ended, begun again, or are many.

        Returns what has a new state, with the parts in which bodies sit.
        """
        begun = False
        # many, perhaps: who looks whether one is there must not look through all
        found = set(self.fresh)
        for handle, vector in eventful:
            found.update(handle.sub_environments)
            begun = self._changed(handle, handle.take(vector)) or begun
        if begun:
            for body in self.bodies:
                body.begin_again()
        return found

    def _concerned(self, fresh: Collection[EnvironmentHandle]) -> list[AnyBody]:
        """Return the bodies whose row is to be closed; add up the rewards of the others."""
        concerned = []
        for body in self.bodies:
            if body.open is not None:
                if not body.watched.isdisjoint(fresh):
                    concerned.append(body)
                elif not body.handle_set.isdisjoint(fresh):
                    body.collect(fresh)
        return concerned

    def _ends(self, interrupted: bool, fresh: Collection[EnvironmentHandle], closed: list[AnyBody]) -> bool:
        """Return whether the episode is over, now that the conditions were asked; end it for whom it is."""
        if interrupted:
            self.interrupted = self.over = True
            self.ended_by = INTERRUPTED
        elif self.flow:
            self.over = True
        elif all(handle.stopped for handle in self.handles):
            # an environment that has ended cannot be stepped, whatever the conditions say
            self.flow, self.ended_by, self.over = SimulationFlowControl.RESET, "environments", True
        if self.over:
            self._finish(fresh, closed)
            self._distribute_updates()
        elif self.some_done:
            self._let_go(closed)
        return self.over

    def _changed(self, handle: EnvironmentHandle, changed: Mapping[str, tuple[bool, bool]]) -> bool:
        """Count what has ended of ``handle``; return whether something has begun again."""
        handle.stopped = handle.done and not (self.environments_reset and handle.begins_again)
        begun = False
        for name, flags in changed.items():
            self.ended[name] = flags
            if flags[0] or flags[1]:
                self.endings[name] += 1
                self.some_done = True
            else:
                begun = True
        return begun

    def _share(self, bodies: Sequence[AnyBody]) -> None:
        """Let an agent's bodies have what is learned from any of them, if it is for all."""
        learner = bodies[0].learner
        if learner is not None and any(body.filters is not None for body in bodies):
            self._filtered.append(bodies)
            for body in bodies:
                body.shares_filters = True
        if learner is not None and learner.shared_updates:
            for body in bodies:
                body.on_update = partial(self._news.__setitem__, body.agent)

    def _distribute_updates(self) -> None:
        """Give the newest update of every brain, and what filters have learned, to all bodies of its agent."""
        for bodies in self._filtered:
            learner = bodies[0].learner
            if bodies[0].learns and learner is not None:
                learner.exchange([body.filters for body in bodies if body.filters is not None])
        for agent, update in self._news.items():
            for body in self.agents[agent]:
                body.muscle.update(update)
        self._news.clear()

    def flush_rows(self) -> None:
        """Record what can be recorded, and show progress; once all have acted."""
        for body in self.bodies:
            if body.complete is not None:
                body.record()
        for handle in self.fresh:
            handle.record(self.time)
        if self.on_step is not None:
            self.on_step(self.steps)

    def pack(self, handle: EnvironmentHandle, state: EnvironmentState) -> FloatVector:
        """Return ``state`` as a state vector (:class:`EnvironmentHandle`); compute the reward."""
        if not isinstance(state, EnvironmentState):
            raise ContractError(
                f"environment {handle.uid!r} returned {type(state).__name__}, not EnvironmentState"
            )
        n, k = handle.n_readings, handle.n_rewards
        vector = np.empty(n + k + 2)
        readings = np.asarray(state.readings)
        if (readings is not state.readings or readings.dtype != np.float64) and readings.dtype.kind in "fiub":
            # a list, or integers: rewards, transformers and the store get an array of float64
            readings = readings.astype(np.float64)
            state = replace(state, readings=readings)
        rewards = np.asarray(state.rewards if handle.reward is None else handle.reward(state))
        if readings.shape != (n,) or (rewards.shape != (k,) and (k != 1 or rewards.shape)):
            raise ContractError(
                f"environment {handle.uid!r} returned readings of shape {readings.shape} and rewards of shape "
                f"{rewards.shape}; declared are {n} readings and {k} rewards"
            )
        if readings.dtype.kind not in "fiub" or rewards.dtype.kind not in "fiub":
            what, values = ("rewards", rewards) if readings.dtype.kind in "fiub" else ("readings", readings)
            raise ContractError(f"environment {handle.uid!r} returned {what} that are no numbers: {values!r}")
        terminated, truncated = state.terminated, state.truncated
        if not (isinstance(terminated, _FLAG) and isinstance(truncated, _FLAG)):
            what, flag = (
                ("truncated", truncated) if isinstance(terminated, _FLAG) else ("terminated", terminated)
            )
            raise ContractError(f"environment {handle.uid!r}: {what} must be True or False, not {flag!r}")
        vector[:n] = readings
        vector[n:-2] = rewards
        vector[-2] = terminated
        vector[-1] = truncated
        # all agents see this one vector
        vector.setflags(write=False)
        handle.state = state
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
        self._news.clear()

    def objectives(self, agent: str) -> npt.NDArray[np.float64]:
        """(n,): the agent's objective values of this episode, without those that are NaN."""
        bodies = self.agents.get(agent, ())
        if not bodies:
            return np.empty(0)
        values = bodies[0].objectives() if len(bodies) == 1 else self.history(agent)[:, 2]
        missing = np.isnan(values)
        return values[~missing] if missing.any() else values

    def history(self, agent: str) -> npt.NDArray[np.float64]:
        """(n, 3): time, body and objective of an agent's closed rows.

        They are in the order of time and, at one time, of the bodies.
        """
        return _in_order([body.history()[:, :3] for body in self.agents[agent]])

    def rewards(self, agent: str, name: str) -> npt.NDArray[np.float64]:
        """(n,): the reward ``name`` in the closed rows of the agent's bodies that have it, as in :meth:`history`."""
        tables = []
        for body in self.agents[agent]:
            if name in body.reward_names:
                table = body.history()
                tables.append(table[:, [0, 1, 3 + body.reward_names.index(name)]])
        return _in_order(tables)[:, 2]

    def _judged(
        self,
        handle: EnvironmentHandle,
        domain: CoSimulation,
        wires: Sequence[InputWire],
        time: int,
        inputs: Mapping[str, Mapping[str, Any]],
    ) -> FloatVector:
        return self.pack(handle, domain.judge(time, read(wires, inputs, handle.n_readings)))

    def _acting(self, fresh: Collection[EnvironmentHandle]) -> Sequence[AnyBody]:
        """Return who acts now."""
        if self.taking_turns:
            return self._turn()
        return [body for body in self.bodies if not body.out and not body.watched.isdisjoint(fresh)]

    def _turn(self) -> Sequence[AnyBody]:
        self.stepped.update(self.fresh)
        if not self.bodies or any(p not in self.stepped and not p.stopped for p in self.handles):
            return ()
        self.stepped.clear()
        names = list(self.agents)
        for _ in names:
            bodies = self.agents[names[self.turn % len(names)]]
            self.turn += 1
            acting = [body for body in bodies if not body.out]
            if acting:
                return acting
        return ()

    def _let_go(self, closed: list[AnyBody]) -> None:
        """End the episode for the bodies that watch only environments that have ended."""
        for body in self.bodies:
            if not body.out and body.has_ended(self.environments_reset):
                body.end_episode(closed)

    def _finish(self, fresh: Collection[EnvironmentHandle], closed: list[AnyBody]) -> None:
        for body in self.bodies:
            if body.open is not None:
                body.close(fresh)
                closed.append(body)
            body.finish(learns=body in closed)


def _in_order(tables: Sequence[FloatVector]) -> npt.NDArray[np.float64]:
    if len(tables) == 1:
        return tables[0]
    rows = np.concatenate(tables)
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]


def ask(
    conditions: Sequence[TerminationCondition], hook: str, view: Any
) -> tuple[SimulationFlowControl, str]:
    """Ask all conditions in order; return the strongest answer and who gave it first."""
    return strongest(conditions, hook, [getattr(condition, hook)(view) for condition in conditions])


def strongest(
    conditions: Sequence[TerminationCondition], hook: str, answers: Sequence[SimulationFlowControl]
) -> tuple[SimulationFlowControl, str]:
    """Return the strongest of the conditions' answers and who gave it first."""
    flow, by = SimulationFlowControl.CONTINUE, ""
    for condition, answer in zip(conditions, answers, strict=True):
        if not isinstance(answer, SimulationFlowControl):
            raise ContractError(
                f"{type(condition).__name__}.{hook} must return a SimulationFlowControl, not {answer!r}"
            )
        if answer > flow:
            flow, by = answer, type(condition).__name__
            if condition.termination_reason:
                by = f"{by}: {condition.termination_reason}"
    return flow, by
