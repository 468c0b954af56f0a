"""A body of an agent: calls its muscle, closes its rows, and passes them to its brain."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np

from palaestrai_mosaik.agent import Experience, Memory, Muscle, Objective
from palaestrai_mosaik.agent.filter import FilterChain
from palaestrai_mosaik.agent.muscle import objective_value, proposal
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.core.importing import class_name
from palaestrai_mosaik.types import ActuatorInformation, Mode
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout, SensorReadings, collect_setpoints

from .connections import STATES, Channels, EnvironmentPlans, MosaikConnection, OutputWire, wire_actuators
from .environment_handle import AgentSink, EnvironmentHandle
from .learner import ExperienceSink, check_statistics

#: default number of rows in a muscle's memory
MUSCLE_MEMORY = 10_000

RowT = TypeVar("RowT")

#: set-points sent to an environment: the time they were set, the agent's position in the document, their
#: indices in the environment's set-points, and the values
Packet = tuple[int, int, Any, FloatVector]


@dataclass(frozen=True, slots=True)
class BodyIdentity:
    """The agent's name, the body's number, and its group of identical bodies.

    ``rewards`` are reward names shared by the whole group (``None``: the original names).
    """

    agent: str
    number: int | None = None
    group: int = 0
    rewards: Sequence[str] | None = None

    @property
    def name(self) -> str:
        """The body's name in the mosaik world; with the ``@``, it cannot equal an agent's name."""
        return self.agent if self.number is None else f"{self.agent}@{self.number}"


class BaseBody(ABC, Generic[RowT]):
    """One body of an agent, or identical bodies that are stepped as arrays.

    A *row* is ``open`` from the action (:meth:`act`) to the reward that follows (:meth:`close`). Then it is
    ``pending`` until it is known whether the episode ended with it: until the next action, or until
    :meth:`finish`. Then it is ``complete``, and :meth:`record` records it. Each of these attributes is
    a row or ``None``.
    """

    muscle: Muscle
    sensors: Layout
    actuators: Layout
    memory: Memory | None = None
    filters: FilterChain | None = None
    #: whether its filters learn together with those of the agent's other bodies, after all brains have been updated
    shares_filters = False
    #: its position in the document
    order = 0
    #: receives the updates from rows of this body (``None``: its muscle)
    on_update: Callable[[Any], None] | None = None
    stream: AgentSink | None = None
    statistic: Callable[[int, int, int, str, Any], None] | None = None

    def __init__(
        self,
        identity: BodyIdentity,
        objective: Objective | None,
        handles: tuple[EnvironmentHandle, ...],
        reward_names: Sequence[str],
        learner: ExperienceSink | None,
    ):
        self.identity = identity
        self.name, self.agent = identity.name, identity.agent
        self.objective = objective
        self.learner = learner
        #: whether rows are learned from: there is a brain, and the mode is train
        self.learns = learner is not None
        #: the environments that it reads from or acts in
        self.handles = handles
        self.handle_set = frozenset(handles)
        #: the environments whose new states make it act
        self.watched = self.handle_set
        self.reward_names = list(reward_names)
        self.open: RowT | None = None
        self.pending: RowT | None = None
        self.complete: RowT | None = None
        #: the last closed row
        self.closed: RowT | None = None
        #: whether the episode is over for this agent: the environments that it watches have ended
        self.out = False
        #: the newest value of each attribute, for mosaik
        self.values: dict[str, Any] = {}
        #: time, body, objective and rewards of this episode's closed rows
        self._history = np.empty((256, 3 + len(self.reward_names)))
        self._filled = 0

    @property
    @abstractmethod
    def muscles(self) -> Sequence[str]:
        """The uids of its muscles, as used by the brain."""

    @property
    @abstractmethod
    def last_row(self) -> int:
        """The number of this episode's last row; -1 if there is none."""

    @abstractmethod
    def update_of(self, muscle: str, update: Any) -> None:
        """Apply a brain's update for ``muscle`` alone."""

    def switch(self, mode: Mode) -> None:
        """Switch to training (and learning) or testing from the next episode on."""
        self.muscle.mode = mode
        if self.filters is not None:
            self.filters.mode = mode
        self.learns = self.learner is not None and mode is Mode.TRAIN

    def restore(self, muscle: Any, objective: Any, memory: Any, filters: FilterChain | None) -> None:
        """Replace the new parts by those of a checkpoint."""
        muscle._dumpers = self.muscle._dumpers
        self.muscle.teardown()
        self.muscle, self.objective, self.filters = muscle, objective, filters
        if memory is not None:
            self.memory = memory

    @abstractmethod
    def wire(self, sockets: EnvironmentPlans) -> list[MosaikConnection]:
        """Prepare the outputs in a new world; return their connections."""

    @abstractmethod
    def wired(self) -> dict[str, int]:
        """Return the number of values of each connected attribute."""

    def begin(self, worker: int, episode: int, rng: Callable[..., np.random.Generator]) -> None:
        """Start an episode. ``rng`` makes the generator for a name below the agent's."""
        self.worker, self.episode = worker, episode
        self.open = self.pending = self.complete = self.closed = None
        self.out = False
        self._filled = 0

    @abstractmethod
    def has_ended(self, resets: bool) -> bool:
        """Return whether the environments that it watches have ended; ``resets``: whether they can restart."""

    @abstractmethod
    def begin_again(self) -> None:
        """Start the next episode of an environment if it has restarted after its end."""

    @abstractmethod
    def act(self, time: int, states: Sequence[Any]) -> None:
        """Open a row: call the muscle at ``time``, and convert its set-points to values for mosaik.

        ``states``: the newest state vector of each of its environments (:class:`EnvironmentHandle`).
        """

    @abstractmethod
    def collect(self, fresh: Collection[EnvironmentHandle]) -> Any:
        """Add the rewards of the ``fresh`` environments to those of the open row."""

    @abstractmethod
    def close(self, fresh: Collection[EnvironmentHandle]) -> None:
        """Close the open row with the rewards since the action, including those of ``fresh``."""

    @abstractmethod
    def think(self, ahead: bool) -> None:
        """Pass the last closed row to the brain.

        ``ahead``: whether the muscle acts on the current states, so that a muscle that looks ahead can add its
        next observation.
        """

    @abstractmethod
    def end_episode(self, closed: list[Any]) -> None:
        """End the episode for a body that :meth:`has_ended`; ``closed``: the bodies that closed a row now."""

    def finish(self, *, learns: bool) -> None:
        """End the episode with the last closed row, and record it.

        ``learns``: whether the brain has not received it yet.
        """
        self.record()
        row, self.pending = self.pending, None
        if row is not None:
            self._end(row, learns=learns)

    @abstractmethod
    def _end(self, row: RowT, *, learns: bool) -> None:
        """Mark ``row`` as the last one of its episode, and record it."""

    def record(self) -> None:
        """Record the complete row, and the statistics of muscle and brain."""
        row, self.complete = self.complete, None
        if row is not None:
            self._write(row)

    @abstractmethod
    def _write(self, row: RowT) -> None:
        """Write ``row`` to the streams."""

    def _reserve(self, rows: int) -> FloatMatrix:
        """Return the history, enlarged to at least ``rows``."""
        history = self._history
        if rows > len(history):
            more = np.empty((max(len(history), rows), history.shape[1]))
            history = self._history = np.concatenate([history, more])
        return history

    def objectives(self) -> FloatVector:
        """(n,): the objective of this episode's closed rows."""
        return self._history[: self._filled, 2]

    def history(self) -> FloatMatrix:
        """(n, 3 + rewards): time, body, objective and rewards of this episode's closed rows."""
        return self._history[: self._filled]


AnyBody = BaseBody[Any]


@dataclass(slots=True, eq=False)
class Row:
    """One action of a body and its result; :meth:`Body.close` sets ``rewards`` and ``objective``.

    ``observations`` and ``actions`` are those of the muscle; ``data`` is for the brain.
    """

    step: int
    time: int
    environment_episode: int
    readings: FloatVector
    setpoints: FloatVector
    observations: FloatVector
    actions: FloatVector
    data: Any
    wall: float
    #: the muscle's set-points, if the environment replays recorded ones
    proposed: FloatVector | None
    #: statistics of muscle and brain
    statistics: dict[str, Any]
    rewards: FloatVector = field(init=False)
    objective: float = field(init=False)
    terminated: bool = False
    truncated: bool = False


class Body(BaseBody[Row]):
    """One body of an agent in one world."""

    memory: Memory

    def __init__(
        self,
        identity: BodyIdentity,
        muscle: Muscle,
        objective: Objective | None,
        channels: Channels,
        learner: ExperienceSink | None = None,
        filters: FilterChain | None = None,
    ):
        names = channels.rewards if identity.rewards is None else identity.rewards
        super().__init__(identity, objective, channels.handles, names, learner)
        self.number = identity.number or 0
        self.muscle = muscle
        self.filters = filters
        self.channels = channels
        self.watched = channels.watched
        for handle in self.handles:
            handle.attach_body()
        self.sensors, self.actuators = channels.sensors, channels.actuators
        #: the muscle's sensors, after the filters
        self.muscle_sensors = self.sensors if filters is None else filters.sensors
        self._unbound_actuators = self.actuators if filters is None else filters.actuators
        self.muscle_actuators: Layout = self._unbound_actuators
        #: number of restarts of its environment
        self.episodes = 0
        self.memory = Memory(size_limit=MUSCLE_MEMORY)
        #: the rewards of the open row so far
        self._collected: FloatVector | None = None
        #: the muscle's next observation, if it was needed before the action
        self._next_observations: FloatVector | None = None
        #: environments that replay recorded set-points, whatever the muscle proposes
        self._replayed = [handle for handle in self.handles if handle.replays]

    @property
    def muscles(self) -> Sequence[str]:
        return (self.muscle.uid,)

    @property
    def last_row(self) -> int:
        return self._filled - 1

    def update_of(self, muscle: str, update: Any) -> None:
        self.muscle.update(update)

    def wire(self, sockets: EnvironmentPlans) -> list[MosaikConnection]:
        self.outputs, links = wire_actuators(sockets, self.handles, self.actuators.uids)
        return links

    def wired(self) -> dict[str, int]:
        setpoints = np.arange(self.actuators.size)
        sizes = {wire.attribute: setpoints[wire.take].size for wire in self.outputs}
        return {STATES: self.sensors.size, **sizes}

    def begin(self, worker: int, episode: int, rng: Callable[..., np.random.Generator]) -> None:
        super().begin(worker, episode, rng)
        generator = rng() if self.identity.number is None else rng(self.number)
        self.muscle.rng = generator
        self.muscle_actuators = self._unbound_actuators.bound(generator)
        if self.filters is not None:
            self.filters.reset()
        self.episodes = 0
        self._next_observations = None
        self.values = {wire.attribute: wire.initial for wire in self.outputs}

    def has_ended(self, resets: bool) -> bool:
        # if environments restart, one that has ended is enough
        if resets and any(handle.done and handle.begins_again for handle in self.watched):
            return True
        return all(handle.done for handle in self.watched)

    def begin_again(self) -> None:
        if self.out and not self.has_ended(True):
            self.out = False
            # an episode of the only environment that it watches counts even if it ended immediately
            if len(self.watched) == 1:
                (handle,) = self.watched
                self.episodes = handle.episodes
            else:
                self.episodes += 1
            self.muscle.reset()
            if self.filters is not None:
                self.filters.reset()

    def act(self, time: int, states: Sequence[FloatVector]) -> None:
        if self.pending is not None:
            self.complete, self.pending = self.pending, None
        alone = self.channels.alone
        readings = self.channels.pick(states) if alone is None else states[0][alone]
        readings.setflags(write=False)
        filters = self.filters
        ahead, self._next_observations = self._next_observations, None
        observations = readings
        if filters is not None:
            observations = filters.pre(readings) if ahead is None else ahead
        available = ActuatorSetpoints(self.muscle_actuators)
        try:
            started = perf_counter()
            answer = self.muscle.propose_actions(SensorReadings(self.muscle_sensors, observations), available)
            wall = perf_counter() - started
            # skip a call for the usual result
            if type(answer) is not tuple or len(answer) != 2 or isinstance(answer[0], ActuatorInformation):
                answer = proposal(answer)
            proposed, data = answer
            actions = setpoints = collect_setpoints(self.muscle_actuators, proposed)
        except ContractError as error:
            raise self._named(error, self.muscle) from error
        statistics = self.muscle.pop_statistics() if self.muscle._statistics else {}
        if filters is not None:
            setpoints = filters.post(actions)
        replaced = None
        if self._replayed:
            replaced = setpoints
            actions = setpoints = self._recorded(setpoints)
            if filters is not None:
                actions = filters.undo(setpoints)
        choice = setpoints, observations, actions, data
        self.open = Row(self._filled, time, self.episodes, readings, *choice, wall, replaced, statistics)
        self._collected = None
        values: dict[str, Any] = {}
        for wire in self.outputs:
            if wire.kind == "packet":
                sent = setpoints if wire.whole else setpoints[wire.take]
                packet = (time, self.order, wire.put, sent)
                # mosaik delivers only the newest value, so it must include earlier unread packets
                last_step = time - time % wire.step_size
                unread = [earlier for earlier in self.values[wire.attribute] if earlier[0] >= last_step]
                values[wire.attribute] = (*unread, packet)
            else:
                values[wire.attribute] = self._value_for(wire, setpoints)
        self.values = values

    def _value_for(self, wire: OutputWire, setpoints: FloatVector) -> Any:
        """Return the value of a simulator's attribute, with the latest set-point of each actuator.

        A simulator may step less often than the agent acts, and receives only the newest value.
        """
        if wire.at is not None:
            number = setpoints.item(wire.at)
            return self.values[wire.attribute] if math.isnan(number) else wire.unflatten(number)
        sent = setpoints[wire.take]
        if wire.kind == "vector":
            vector = self.values[wire.attribute].copy()
            vector[wire.put] = np.where(np.isnan(sent), vector[wire.put], sent)
            return vector
        return self.values[wire.attribute] if np.isnan(sent).any() else wire.unflatten(sent)

    def _recorded(self, proposed: FloatVector) -> FloatVector:
        """Return the recorded set-points, and those ``proposed`` if nothing is recorded."""
        result = proposed.copy()
        for i, uid in enumerate(self.actuators.uids):
            for handle in self._replayed:
                channel = handle.actuators.index.get(uid)
                if channel is not None and handle.recorded is not None:
                    result[self.actuators.slices[i]] = handle.recorded[handle.actuators.slices[channel]]
        return result

    def collect(self, fresh: Collection[EnvironmentHandle]) -> FloatVector:
        """Add the rewards of the ``fresh`` environments to those of the open row; return the sum.

        An environment without a new state has a reward of 0.
        """
        parts = [
            handle.vector[handle.n_readings : -2] if handle in fresh else np.zeros(handle.n_rewards)
            for handle in self.handles
        ]
        rewards: FloatVector = parts[0] if len(parts) == 1 else np.concatenate(parts)
        self._collected = rewards if self._collected is None else self._collected + rewards
        return self._collected

    def close(self, fresh: Collection[EnvironmentHandle]) -> None:
        row, self.open = self.open, None
        assert row is not None
        handle = self.handles[0]
        if len(self.handles) == 1 and handle in fresh and self._collected is None:
            rewards = handle.vector[handle.n_readings : -2]
        else:
            rewards = self.collect(fresh)
        memory, filtered = self.memory, self.filters is not None
        memory.append(
            row.readings,
            row.setpoints,
            rewards,
            row.data,
            muscle=self.muscle.uid,
            observations=row.observations if filtered else None,
            actions=row.actions if filtered else None,
        )
        for watched in self.watched:
            if not watched.done:
                break
        else:
            # for the objective; other reasons of an end are not known yet
            terminated, truncated = self.ends()
            memory.mark_end(terminated=terminated, truncated=truncated)
        if self.objective is None:
            value = float(rewards.sum())
        else:
            answer = self.objective.internal_reward(memory)
            try:
                value = answer if type(answer) is float else objective_value(answer)
            except ContractError as error:
                raise self._named(error, self.objective) from error
        memory.close(value)
        filled = self._filled
        history = self._history if filled < len(self._history) else self._reserve(filled + 1)
        cells = history[filled]
        cells[0] = row.time
        cells[1] = self.number
        cells[2] = value
        cells[3:] = rewards
        self._filled = filled + 1
        row.rewards, row.objective = rewards, value
        self.pending = self.closed = row

    def ends(self) -> tuple[bool, bool]:
        """Return whether the episode that ends now is terminated, and whether it is truncated.

        Each is true if it is true for any of the agent's environments. An episode that ends for another reason,
        such as a condition or another agent's environment, is truncated.
        """
        terminated = any(handle.terminated for handle in self.handles)
        return terminated, not terminated or any(handle.truncated for handle in self.handles)

    def look_ahead(self) -> FloatVector:
        """Return the muscle's next observation, if it acts on the current states."""
        readings = self.channels.readings()
        self._next_observations = readings if self.filters is None else self.filters.pre(readings)
        return self._next_observations

    def end_episode(self, closed: list[Any]) -> None:
        self.out = True
        if self.open is not None:
            self.close(())
            closed.append(self)
        self.finish(learns=self in closed)
        if self in closed:
            closed.remove(self)

    def think(self, ahead: bool = False, final: FloatVector | None = None) -> None:
        """See :class:`BaseBody`; ``final``: the final observation, if the episode ended with the row."""
        if ahead and self.muscle.looks_ahead:
            final = self.look_ahead()
        row, learner = self.closed, self.learner
        assert row is not None and learner is not None
        experience = Experience(
            self.muscle.uid,
            row.readings,
            row.setpoints,
            row.rewards,
            row.objective,
            row.data,
            row.observations,
            row.actions,
            row.terminated,
            row.truncated,
            final,
            row.step,
        )
        update = learner.learn(experience)
        if learner.statistics:
            check_statistics(self.agent, row.statistics, learner.statistics)
            row.statistics |= learner.statistics
        if self.filters is not None and not self.shares_filters:
            learner.exchange([self.filters])
        if update is not None:
            (self.on_update or self.muscle.update)(update)

    def _end(self, row: Row, *, learns: bool) -> None:
        row.terminated, row.truncated = self.ends()
        self.memory.mark_end(terminated=row.terminated, truncated=row.truncated)
        if self.learns and self.learner is not None:
            final = self.channels.readings()
            if self.filters is not None:
                final = self.filters.pre(final)
            if learns:
                self.think(final=final)
            else:
                self.learner.mark_end(self.muscle.uid, row.terminated, row.truncated, final)
        self._write(row)

    def _write(self, row: Row) -> None:
        if self.stream is not None:
            self.stream.append(
                self.worker,
                self.episode,
                row.step,
                row.time,
                row.readings,
                row.setpoints,
                row.rewards,
                row.objective,
                row.terminated,
                row.truncated,
                row.wall,
                self.number,
                row.environment_episode,
                row.proposed,
            )
        if self.statistic is not None:
            for key, value in row.statistics.items():
                self.statistic(self.worker, self.episode, row.step, key, value)

    def _named(self, error: ContractError, part: Any) -> ContractError:
        """Return ``error``, of the muscle or the objective, prefixed with the names of agent and class."""
        return type(error)(f"agent {self.name!r} ({class_name(type(part))}): {error}")
