"""The coordinator: the order of actions within a time, and the end of the episode.

At every time at which an environment has a new state, in this order:

1. the new states are stored;
2. every agent with an open row that watches an environment with a new state closes
   its row; rewards of environments in which it only acts accumulate until then;
3. the conditions are called; if the episode ends, rows are recorded with the reason and
   no agent acts;
4. the brains of the agents that closed a row think;
5. the agents that must act now do so, in document order;
6. rows of agents that have acted again are recorded, then the new states.

*Vanilla*: every agent acts that watches an environment with a new state. *Taking turns*:
agents act one after the other, in document order, each with all its bodies that have
something new to see; the next one acts as soon as every environment has been stepped since
the last turn.

If a condition requests it, an environment that has ended restarts at its next step, while
the others continue (``environments_reset``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.environment.environment import EnvironmentState
from palaestrai_mosaik.types import SimulationFlowControl
from palaestrai_mosaik.types.arrays import FloatVector

from .body import AnyBody
from .conditions import TerminationCondition, check_flow
from .environment_handle import EnvironmentHandle
from .external_control import ExternalControl

_FLAG = (bool, np.bool_)
_OPEN_ROW = attrgetter("open")

#: the reason of an episode that the user ended
ENDED_BY_USER = "interrupted"


class Interruptible(Protocol):
    """Holds the user's request to end."""

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
        self.taking_turns = taking_turns
        never: Any = SimpleNamespace(requested=False)
        self.interrupt: Interruptible = interrupt or never
        #: called after every step with the number of environment steps, for the progress
        self.on_step = on_step
        #: the bodies under external control
        self.external_control: ExternalControl | None = None
        #: the environments with a new state
        self.fresh: Collection[EnvironmentHandle] = ()
        #: the bodies of every agent
        self.agents: dict[str, list[AnyBody]] = {}
        #: new updates of brains, for all bodies of the agent
        self._news: dict[str, Any] = {}
        #: the bodies of each agent with filters that learn together
        self._filtered: list[Sequence[AnyBody]] = []
        for order, body in enumerate(self.bodies):
            body.order = order
            self.agents.setdefault(body.agent, []).append(body)
        for same_agent in self.agents.values():
            if len(same_agent) > 1:
                self._share(same_agent)
        self.begin(-1, -1)

    def begin(self, worker: int, episode: int) -> None:
        """Start an episode."""
        self.worker, self.episode = worker, episode
        self.time = 0
        #: environment steps so far; the first state is not a step
        self.steps = -1
        #: number of bodies still to act at this time; after the last one, :meth:`flush_rows` is due
        self.missing = 0
        self.turn = 0
        self.stepped: set[EnvironmentHandle] = set()
        self.over = False
        self.flow = SimulationFlowControl.CONTINUE
        self.ended_by = ""
        names = [name for handle in self.handles for name in handle.names]
        #: the pair (terminated, truncated) of every environment's newest state, and the number of its ends
        self.ended: dict[str, tuple[bool, bool]] = dict.fromkeys(names, (False, False))
        self.endings = dict.fromkeys(names, 0)
        self.some_done = False
        self.environments_reset = any(condition.environments_reset for condition in self.conditions)
        self._news.clear()
        for handle in self.handles:
            handle.values.begin()

    def observe(self, time: int, states: Mapping[EnvironmentHandle, FloatVector]) -> Sequence[AnyBody]:
        """Take the steps 1 to 4 above for the new ``states`` of ``time``; return the bodies that act now, in order.

        After they have acted, or at once without any, :meth:`flush_rows` is due.
        """
        self.time = time
        self.fresh = states
        fresh: Collection[EnvironmentHandle] = states
        eventful = []
        for handle, vector in states.items():
            if handle.uneventful:
                handle.vector = vector
                handle.steps += 1
            else:
                eventful.append((handle, vector))
        if eventful:
            fresh = self._take(eventful)

        # without an end so far, new states of all environments concern every body
        usual = len(states) == len(self.handles) and not self.some_done
        closed = list(filter(_OPEN_ROW, self.bodies)) if usual else self._concerned(fresh)
        for body in closed:
            body.close(fresh)

        self.steps += 1
        view: Any = self
        answers = [condition.episode_flow_control(view) for condition in self.conditions]
        for answer in answers:
            if answer is not SimulationFlowControl.CONTINUE:
                self.flow, self.ended_by = strongest(self.conditions, "episode_flow_control", answers)
                break
        if (self.flow or self.some_done or self.interrupt.requested) and self._ends(closed):
            return ()

        for body in closed:
            if body.learns:
                body.think(ahead=not self.taking_turns)
        if self._news or self._filtered:
            self._distribute_updates()

        acting = self.bodies if usual and not self.taking_turns else self._acting(fresh)
        self.missing = len(acting)
        return acting

    def _take(
        self, eventful: Sequence[tuple[EnvironmentHandle, FloatVector]]
    ) -> Collection[EnvironmentHandle]:
        """Store new states of environments that have ended or restarted, and of batched ones.

        Returns the handles with a new state, including incarnations with a single body.
        """
        restarted = False
        # a set, because there may be many, and membership tests must be O(1)
        updated = set(self.fresh)
        for handle, vector in eventful:
            updated.update(handle.sub_environments)
            restarted = self._changed(handle, handle.take(vector)) or restarted
        if restarted:
            for body in self.bodies:
                body.begin_again()
        return updated

    def _concerned(self, fresh: Collection[EnvironmentHandle]) -> list[AnyBody]:
        """Return the bodies that must close their row; accumulate the rewards of the others."""
        concerned = []
        for body in self.bodies:
            if body.open is not None:
                if not body.watched.isdisjoint(fresh):
                    concerned.append(body)
                elif not body.handle_set.isdisjoint(fresh):
                    body.collect(fresh)
        return concerned

    @property
    def interrupted(self) -> bool:
        """Whether the user ended the episode."""
        return self.ended_by == ENDED_BY_USER

    def _ends(self, closed: list[AnyBody]) -> bool:
        """Return whether the episode is over after the conditions; end it for all bodies concerned."""
        if self.interrupt.requested:
            self.ended_by, self.over = ENDED_BY_USER, True
        elif self.flow:
            self.over = True
        elif all(handle.stopped for handle in self.handles):
            # environments that have ended cannot be stepped, independent of the conditions
            self.flow, self.ended_by, self.over = SimulationFlowControl.RESET, "environments", True
        if self.over:
            self._finish(closed)
            self._distribute_updates()
        elif self.some_done:
            self._let_go(closed)
        return self.over

    def _changed(self, handle: EnvironmentHandle, changed: Mapping[str, tuple[bool, bool]]) -> bool:
        """Count ends in ``handle``; return whether anything has restarted."""
        handle.stopped = handle.done and not (self.environments_reset and handle.begins_again)
        restarted = False
        for name, flags in changed.items():
            self.ended[name] = flags
            if flags[0] or flags[1]:
                self.endings[name] += 1
                self.some_done = True
            else:
                restarted = True
        return restarted

    def _share(self, bodies: Sequence[AnyBody]) -> None:
        """Share an agent's updates and filter states among its bodies, if the brain shares updates."""
        learner = bodies[0].learner
        if learner is not None and any(body.filters is not None for body in bodies):
            self._filtered.append(bodies)
            for body in bodies:
                body.shares_filters = True
        if learner is not None and learner.shared_updates:
            for body in bodies:
                body.on_update = partial(self._news.__setitem__, body.agent)

    def _distribute_updates(self) -> None:
        """Pass the newest update of every brain, and the state of filters, to all bodies of its agent."""
        for bodies in self._filtered:
            learner = bodies[0].learner
            if bodies[0].learns and learner is not None:
                learner.exchange([body.filters for body in bodies if body.filters is not None])
        for agent, update in self._news.items():
            for body in self.agents[agent]:
                body.muscle.update(update)
        self._news.clear()

    def flush_rows(self) -> None:
        """Record complete rows and new states, and report progress; called after all bodies have acted."""
        for body in self.bodies:
            if body.complete is not None:
                body.record()
        for handle in self.fresh:
            handle.record(self.time)
        if self.on_step is not None:
            self.on_step(self.steps)

    def pack(self, handle: EnvironmentHandle, state: EnvironmentState) -> FloatVector:
        """Compute the reward, and return ``state`` as a state vector (:class:`EnvironmentHandle`)."""
        if not isinstance(state, EnvironmentState):
            handle.check_state(state)
        n, k = handle.n_readings, handle.n_rewards
        check = handle.values
        vector: FloatVector = check.rows[check.filled]
        try:
            readings = np.asarray(state.readings)
        except ValueError:
            # ragged lists
            handle.check_state(state)
            raise
        if (readings is not state.readings or readings.dtype != np.float64) and readings.dtype.kind in "fiub":
            # a list or integers: rewards, transformers and the store receive a float64 array
            readings = readings.astype(np.float64)
            state = replace(state, readings=readings)
        terminated, truncated = state.terminated, state.truncated
        if (
            readings.shape != (n,)
            or readings.dtype.kind not in "fiub"
            or not (isinstance(terminated, _FLAG) and isinstance(truncated, _FLAG))
        ):
            handle.check_state(state)
        values = state.rewards if handle.reward is None else handle.rewards_of(state)
        try:
            rewards = np.asarray(values)
        except ValueError:
            handle.check_rewards(values)
            raise
        if rewards.dtype.kind not in "fiub" or (rewards.shape != (k,) and (k != 1 or rewards.shape)):
            handle.check_rewards(values)
        vector[:n] = readings
        vector[n:-2] = rewards
        vector[-2] = terminated
        vector[-1] = truncated
        # read-only, because all agents share this vector
        vector.setflags(write=False)
        if not isfinite(vector.dot(check.weights)):
            check.check_finite(vector)
        check.filled += 1
        if check.filled == check.room:
            check.count()
        handle.state = state
        handle.uneventful = not (terminated or truncated or handle.done)
        return vector

    def abandon(self, reason: str) -> None:
        """End an episode after its world failed or was stopped from outside.

        Rows with a reward are recorded; the last actions have none yet.
        """
        self.over = True
        self.ended_by = reason
        for body in self.bodies:
            body.finish(learns=False)
        self._news.clear()

    def objectives(self, agent: str) -> npt.NDArray[np.float64]:
        """(n,): the agent's objective values of this episode, without NaN."""
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

    def _acting(self, fresh: Collection[EnvironmentHandle]) -> Sequence[AnyBody]:
        """Return the bodies that act now."""
        if self.taking_turns:
            return self._turn()
        return [body for body in self.bodies if not body.out and not body.watched.isdisjoint(fresh)]

    def _turn(self) -> Sequence[AnyBody]:
        self.stepped.update(self.fresh)
        waiting = [handle for handle in self.handles if handle not in self.stepped and not handle.stopped]
        if not self.bodies or waiting:
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

    def _finish(self, closed: list[AnyBody]) -> None:
        """Close the open rows; they already have the newest rewards."""
        for body in self.bodies:
            if body.open is not None:
                body.close(())
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
    """Call all conditions in order; return the strongest result and the first condition that returned it."""
    return strongest(conditions, hook, [getattr(condition, hook)(view) for condition in conditions])


def strongest(
    conditions: Sequence[TerminationCondition], hook: str, answers: Sequence[SimulationFlowControl]
) -> tuple[SimulationFlowControl, str]:
    """Return the strongest of the conditions' results and the first condition that returned it."""
    flow, by = SimulationFlowControl.CONTINUE, ""
    for condition, answer in zip(conditions, answers, strict=True):
        check_flow(condition, hook, answer)
        if answer > flow:
            flow, by = answer, type(condition).__name__
            if condition.termination_reason:
                by = f"{by}: {condition.termination_reason}"
    return flow, by
