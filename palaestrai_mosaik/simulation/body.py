"""An agent inside a world: asks its muscle, closes its rows, lets its brain think."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Experience, Memory, Muscle, Objective
from palaestrai_mosaik.agent.filter import FilterChain
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types import ActuatorInformation, Mode
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, SensorReadings, collect_setpoints

from .channels import Channels
from .connections import STATES, EnvironmentPlans, MosaikConnection, OutputWire, wire_actuators
from .environment_handle import AgentStream, EnvironmentHandle
from .learner import ExperienceSink, check_statistics

FloatVector = npt.NDArray[np.float64]


#: rows that a muscle remembers, unless it sets ``memory.size_limit``
MUSCLE_MEMORY = 10_000


@dataclass(frozen=True, slots=True)
class BodyIdentity:
    """Whose body it is: the agent's name, the body's number, and the group of alike bodies it is in.

    ``rewards`` are the names of the rewards as they stand for all of the group (``None``: as they are).
    """

    agent: str
    number: int | None = None
    group: int = 0
    rewards: Sequence[str] | None = None

    @property
    def name(self) -> str:
        """What the body is called in the mosaik world; with the sign it is no name of an agent."""
        return self.agent if self.number is None else f"{self.agent}@{self.number}"


class BodyState:
    """A body's muscle, memory, objective and wires, and what it keeps of an episode."""

    def __init__(
        self,
        identity: BodyIdentity,
        muscle: Muscle,
        objective: Objective | None,
        channels: Channels,
        learner: ExperienceSink | None = None,
        filters: FilterChain | None = None,
    ):
        self.identity = identity
        self.name, self.agent = identity.name, identity.agent
        self.number = identity.number or 0
        self.muscle = muscle
        self.objective = objective
        self.learner = learner
        #: whether rows are learned from: there is a brain, and the mode is train
        self.learns = learner is not None
        self.filters = filters
        self.channels = channels
        self.handles, self.around, self.watched = channels.handles, channels.around, channels.watched
        for handle in self.handles:
            handle.occupy()
        self.reward_names = channels.rewards if identity.rewards is None else list(identity.rewards)
        self.sensors, self.actuators = channels.sensors, channels.actuators
        #: what the muscle sees of them
        self.seen = self.sensors if filters is None else filters.sensors
        self._offered = self.offered = self.actuators if filters is None else filters.actuators
        #: takes what the brain learned from a row of this body (``None``: its muscle)
        self.hand_on: Callable[[Any], None] | None = None
        #: its filters learn together with those of the agent's other bodies, after all have thought
        self.together = False
        #: how often its environment has begun again
        self.episodes = 0
        self.proposed: FloatVector | None = None
        self.memory = Memory(size_limit=MUSCLE_MEMORY)
        self.stream: AgentStream | None = None
        self.statistic: Callable[[int, int, int, str, Any], None] | None = None
        self.order = 0
        self.rows = 0
        #: a row is open (waits for its reward), or closed and not yet settled
        self.open = self.pending = False
        #: the settled row, as the stream takes it, and what was reported with it
        self.settled: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self.row: tuple[Any, ...] = ()
        #: the rewards that the open row has got so far
        self.collected: FloatVector | None = None
        #: the episode is over for this agent: what it watches has ended
        self.out = False
        #: what muscle and brain report about themselves at the newest row
        self.told: dict[str, Any] = {}
        #: what the muscle sees next, where that was needed before it acts
        self.ahead: FloatVector | None = None
        #: what is replayed: it does what was recorded, whatever it proposes
        self._replayed = [handle for handle in self.handles if handle.replays]
        #: time, body, objective, rewards of this episode's closed rows
        self._history = np.empty((256, 3 + len(self.reward_names)))

    @property
    def muscles(self) -> Sequence[str]:
        """The uid of its muscle."""
        return (self.muscle.uid,)

    def update_of(self, muscle: str, update: Any) -> None:
        """Give ``muscle`` what was learned for it alone."""
        self.muscle.update(update)

    @property
    def last_row(self) -> int:
        """The number of this episode's last row; -1 if there is none."""
        return self.rows - 1

    def switch(self, mode: Mode) -> None:
        """Train (and learn) or test in the episodes to come."""
        self.muscle.mode = mode
        if self.filters is not None:
            self.filters.mode = mode
        self.learns = self.learner is not None and mode is Mode.TRAIN

    def restore(
        self, muscle: Muscle, objective: Objective | None, memory: Memory, filters: FilterChain | None
    ) -> None:
        """Put the parts of a checkpoint in the place of those that were made anew."""
        muscle._dumpers = self.muscle._dumpers
        self.muscle.teardown()
        self.muscle, self.objective, self.memory, self.filters = muscle, objective, memory, filters

    def wire(self, sockets: EnvironmentPlans) -> list[MosaikConnection]:
        """Lay the wires of a new world; return the links of its outputs."""
        self.outputs, links = wire_actuators(sockets, self.handles, self.actuators.uids)
        return links

    def wired(self) -> dict[str, int]:
        """Return the number of floats behind each attribute that is wired."""
        setpoints = np.arange(self.actuators.size)
        found = {wire.attribute: setpoints[wire.take].size for wire in self.outputs}
        return {STATES: self.sensors.size, **found}

    def begin(self, worker: int, episode: int, rng: Callable[..., np.random.Generator]) -> None:
        """Start an episode. ``rng`` makes the generator for a name below the agent's."""
        self.worker, self.episode = worker, episode
        generator = rng() if self.identity.number is None else rng(self.number)
        self.muscle.rng = generator
        self.offered = self._offered.bound(generator)
        if self.filters is not None:
            self.filters.reset()
        self.rows = self.episodes = 0
        self.open = self.pending = self.out = False
        self.settled = None
        self.ahead = None
        self.values: dict[str, Any] = {wire.attribute: wire.initial for wire in self.outputs}

    def has_ended(self, resets: bool) -> bool:
        """Return whether the episode is over for this body: what it watches has ended.

        With ``resets``, where environments begin again, one of several is enough.
        """
        if resets and any(handle.done and handle.begins_again for handle in self.watched):
            return True
        return all(handle.done for handle in self.watched)

    def begin_again(self) -> None:
        """Begin the next episode of an environment that has ended, if it is there now."""
        if self.out and not self.has_ended(True):
            self.out = False
            # of one environment, what counts is how often it has begun, even if it ended at once
            self.episodes = self.handles[0].episodes if len(self.handles) == 1 else self.episodes + 1
            self.muscle.reset()
            if self.filters is not None:
                self.filters.reset()

    def record(self) -> None:
        """Record the settled row, and what muscle and brain report about themselves."""
        if self.settled is None:
            return
        (row, told), self.settled = self.settled, None
        if self.stream is not None:
            self.stream.append(*row)
        if self.statistic is not None:
            for key, value in told.items():
                self.statistic(row[0], row[1], row[2], key, value)

    def objectives(self) -> FloatVector:
        """(n,): the objective of this episode's closed rows."""
        return self._history[: self.rows, 2]

    def history(self) -> npt.NDArray[np.float64]:
        """Return (n, 3 + rewards): time, body, objective and rewards of this episode's closed rows."""
        return self._history[: self.rows]


class Body(BodyState):
    """One incarnation of an agent in one world: acts, and tells its brain what came of it.

    A *row* is opened by :meth:`act`, closed by the reward that follows (:meth:`close`), and
    settled, which means that it can be recorded, when it is known whether the episode
    ended with it: with the next action, or at the end.
    """

    def act(self, time: int, states: Sequence[FloatVector]) -> None:
        """Ask the muscle for set-points at ``time`` and lay them out for mosaik.

        ``states``: the newest state vector of each of its environments (:class:`EnvironmentHandle`).
        """
        if self.pending:
            self.settled, self.pending = (self.row, self.told), False
        alone = self.channels.alone
        readings = self.channels.pick(states) if alone is None else states[0][alone]
        readings.setflags(write=False)
        filters = self.filters
        ahead, self.ahead = self.ahead, None
        seen = readings
        if filters is not None:
            seen = filters.pre(readings) if ahead is None else ahead
        available = ActuatorSetpoints(self.offered)
        started = perf_counter()
        answer = self.muscle.propose_actions(SensorReadings(self.seen, seen), available)
        self.wall = perf_counter() - started
        self.told = self.muscle.pop_statistics() if self.muscle._statistics else {}
        if (
            not isinstance(answer, tuple | list)
            or len(answer) != 2
            or isinstance(answer[0], ActuatorInformation)
        ):
            raise ContractError(
                f"{type(self.muscle).__name__}.propose_actions must return (actuators, data), not {answer!r}"
            )
        actions, self.data = answer
        chosen = setpoints = collect_setpoints(self.offered, actions)
        if filters is not None:
            setpoints = filters.post(chosen)
        if self._replayed:
            self.proposed = setpoints
            chosen = setpoints = self._recorded(setpoints)
            if filters is not None:
                chosen = filters.undo(setpoints)
        self.time, self.readings, self.setpoints = time, readings, setpoints
        self.observations, self.actions = seen, chosen
        self.open, self.collected = True, None
        values: dict[str, Any] = {}
        for wire in self.outputs:
            if wire.kind == "packet":
                # the time makes sure that a set-point, which mosaik delivers again and
                # again, is accepted once
                sent = setpoints if wire.whole else setpoints[wire.take]
                values[wire.attribute] = (time, self.order, wire.put, sent)
            else:
                values[wire.attribute] = self._value_for(wire, setpoints)
        self.values = values

    def _value_for(self, wire: OutputWire, setpoints: FloatVector) -> Any:
        """Return what a simulator's attribute gets; without a new set-point, what it had."""
        if wire.at is not None:
            number = setpoints.item(wire.at)
            return self.values[wire.attribute] if math.isnan(number) else wire.unflatten(number)
        sent = setpoints[wire.take]
        if wire.kind == "vector":
            vector = np.full(wire.size, np.nan)
            vector[wire.put] = sent
            return vector
        return self.values[wire.attribute] if np.isnan(sent).any() else wire.unflatten(sent)

    def _recorded(self, proposed: FloatVector) -> FloatVector:
        """Return what was in truth done, where that is known."""
        done = proposed.copy()
        for i, uid in enumerate(self.actuators.uids):
            for handle in self._replayed:
                place = handle.actuators.index.get(uid)
                if place is not None and handle.recorded is not None:
                    done[self.actuators.slices[i]] = handle.recorded[handle.actuators.slices[place]]
        return done

    def collect(self, fresh: Collection[EnvironmentHandle]) -> FloatVector:
        """Add the rewards of the ``fresh`` environments to those of the open row; return the sum.

        An environment that has no new state gives no reward: 0.
        """
        parts = [p.vector[p.n_readings : -2] if p in fresh else np.zeros(p.n_rewards) for p in self.handles]
        rewards: FloatVector = parts[0] if len(parts) == 1 else np.concatenate(parts)
        self.collected = rewards if self.collected is None else self.collected + rewards
        return self.collected

    def close(self, fresh: Collection[EnvironmentHandle]) -> None:
        """Close the open row with the rewards since the action, those of ``fresh`` included."""
        handle = self.handles[0]
        if len(self.handles) == 1 and handle in fresh and self.collected is None:
            rewards = handle.vector[handle.n_readings : -2]
        else:
            rewards = self.collect(fresh)
        memory = self.memory
        own = (None, None) if self.filters is None else (self.observations, self.actions)
        memory.append(
            self.readings,
            self.setpoints,
            rewards,
            self.data,
            muscle=self.muscle.uid,
            observations=own[0],
            actions=own[1],
        )
        for watched in self.watched:
            if not watched.done:
                break
        else:
            # for the objective; where something else ends the episode, nobody knows it yet
            terminated = any(handle.terminated for handle in self.handles)
            memory.mark_end(terminated=terminated, truncated=not terminated)
        if self.objective is None:
            value = float(rewards.sum())
        else:
            answer = self.objective.internal_reward(memory)
            value = answer if type(answer) is float else self._number(answer)
        memory.close(value)
        history = self._history
        if self.rows == len(history):
            history = self._history = np.concatenate([history, np.empty_like(history)])
        row = history[self.rows]
        row[0] = self.time
        row[1] = self.number
        row[2] = value
        row[3:] = rewards
        self.rows += 1
        self.rewards, self.value = rewards, value
        self.row = (
            self.worker,
            self.episode,
            self.rows - 1,
            self.time,
            self.readings,
            self.setpoints,
            rewards,
            value,
            False,
            False,
            self.wall,
            self.number,
            self.episodes,
            self.proposed,
        )
        self.open, self.pending = False, True

    def look_ahead(self) -> FloatVector:
        """Return what the muscle sees next, if it acts on the states that are there now."""
        readings = self.channels.readings()
        self.ahead = readings if self.filters is None else self.filters.pre(readings)
        return self.ahead

    def end_episode(self, closed: list[Any]) -> None:
        """End the episode: what this body watches has ended. ``closed``: whose row was closed now."""
        self.out = True
        if self.open:
            self.close(())
            closed.append(self)
        self.finish(learns=self in closed)
        if self in closed:
            closed.remove(self)

    def think(
        self,
        ahead: bool = False,
        terminated: bool = False,
        truncated: bool = False,
        final: FloatVector | None = None,
    ) -> None:
        """Let the brain think about the row that was closed last, and take its update.

        ``ahead``: it is told what the muscle sees next. ``final``: the episode ended with the row,
        and this is what the muscle would have seen.
        """
        if ahead:
            final = self.look_ahead()
        learner = self.learner
        assert learner is not None
        update = learner.learn(
            Experience(
                self.muscle.uid,
                self.readings,
                self.setpoints,
                self.rewards,
                self.value,
                self.data,
                self.observations,
                self.actions,
                terminated,
                truncated,
                final,
                self.rows - 1,
            )
        )
        if learner.told:
            self._tell(learner.told)
        if self.filters is not None and not self.together:
            learner.exchange([self.filters])
        if update is not None:
            (self.hand_on or self.muscle.update)(update)

    def finish(self, *, learns: bool) -> None:
        """End the episode with the row that was closed last, and record it.

        The row is terminated where one of the agent's environments has; in every other
        case (time ran out, another environment or a condition ended the episode) it is
        truncated. ``learns``: the brain has not thought about it yet.
        """
        if self.settled is not None:
            self.record()
        if not self.pending:
            return
        terminated = any(handle.terminated for handle in self.handles)
        truncated = not terminated
        self.memory.mark_end(terminated=terminated, truncated=truncated)
        if self.learns and self.learner is not None:
            final = self.channels.readings()
            if self.filters is not None:
                final = self.filters.pre(final)
            if learns:
                self.think(False, terminated, truncated, final)
            else:
                self.learner.mark_end(self.muscle.uid, terminated, truncated, final)
        row = (*self.row[:8], terminated, truncated, *self.row[10:])
        self.settled, self.pending = (row, self.told), False
        self.record()

    def _number(self, answer: Any) -> float:
        if answer is None:
            return math.nan
        if isinstance(answer, bool) or not isinstance(answer, int | float | np.number | np.ndarray):
            raise ContractError(
                f"{type(self.objective).__name__}.internal_reward of agent {self.name!r} must return a number or "
                f"None, not {answer!r}"
            )
        return float(answer)

    def _tell(self, reported: dict[str, Any]) -> None:
        check_statistics(self.agent, self.told, reported)
        self.told |= reported
