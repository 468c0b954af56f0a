"""One worker: the persistent objects of a world (environments, bodies), and the execution of its episodes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.simulation.body import AnyBody
from palaestrai_mosaik.simulation.conditions import EpisodeOutcome, TerminationCondition
from palaestrai_mosaik.simulation.coordinator import ENDED_BY_USER, EpisodeCoordinator
from palaestrai_mosaik.simulation.environment_handle import AgentSink, EnvironmentHandle, EnvironmentSink
from palaestrai_mosaik.simulation.episode import Episode
from palaestrai_mosaik.simulation.frames import FrameSink, RenderedStream
from palaestrai_mosaik.simulation.learner import ExperienceSink
from palaestrai_mosaik.simulation.values import Tally
from palaestrai_mosaik.simulation.world_builder import RewindingBuilder, WorldBuilder
from palaestrai_mosaik.types import Mode, SimulationFlowControl

from .factory import WorkerPlan, call_all, make_bodies
from .interrupt import Interrupt


@dataclass(frozen=True, slots=True)
class EpisodeTask:
    """The next episode of a worker. Training episodes and evaluations are counted separately, from 0.

    ``seed`` replaces the document's seed.
    """

    number: int
    evaluation: bool = False
    seed: int | None = None


@dataclass
class EpisodeReport:
    """The result of an episode.

    ``outcomes`` has, for each agent, the sum, mean, minimum and maximum of its objective and rewards over all steps
    of its bodies.
    """

    worker: int
    number: int
    evaluation: bool
    steps: int
    ticks: int
    flow: SimulationFlowControl
    ended_by: str
    duration: float
    outcomes: dict[str, dict[str, Any]]
    #: by agent, the number of its bodies' last row; -1 without one
    last_rows: dict[str, int] = field(default_factory=dict)
    objectives: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    interrupted: bool = False
    #: by environment, the number of values outside of their spaces
    values: dict[str, Tally] = field(default_factory=dict)

    def record(self, recorder: Any) -> None:
        """Write the report to the recorder of the phase."""
        recorder.episode(
            self.worker,
            self.number,
            steps=self.steps,
            ticks=self.ticks,
            ended_by=self.ended_by,
            flow=self.flow.name,
            duration=self.duration,
            agents=self.outcomes,
            evaluation=self.evaluation,
        )

    def outcome(self) -> EpisodeOutcome:
        """Return the part of the report that conditions may see."""
        return EpisodeOutcome(self.worker, self.number, self.steps, self.flow, self.ended_by, self.objectives)


@dataclass
class Running:
    """An episode, with its report after its end."""

    episode: Episode
    report: EpisodeReport = field(init=False)


class Recording(Protocol):
    """The destination of a worker's rows: the phase's recorder, or a message to it."""

    def agent(self, name: str, evaluation: bool = False, group: int = 0) -> AgentSink:
        """Return the stream of an agent's group of identical bodies."""

    def environment(self, uid: str, evaluation: bool = False) -> EnvironmentSink:
        """Return the stream of an environment."""

    def frames(self, uid: str, evaluation: bool = False) -> FrameSink:
        """Return the stream of an environment's rendered frames."""

    def statistic(
        self, agent: str, worker: int, episode: int, step: int, key: str, value: float, /, *, evaluation: bool
    ) -> None:
        """Record a figure that an agent reports about itself."""

    def world(self, data: Mapping[str, Any]) -> None:
        """Record the phase's world as plain data."""


class Worker:
    """Runs the episodes of one world of a phase.

    ``learners`` has an entry for each learning agent. ``on_step`` is called after every step with the coordinator's
    step count. ``on_report`` is called with every episode's report, even if the episode failed.
    """

    def __init__(
        self,
        plan: WorkerPlan,
        handles: Sequence[EnvironmentHandle],
        learners: Mapping[str, ExperienceSink],
        conditions: Sequence[TerminationCondition],
        interrupt: Interrupt,
        recording: Recording | None,
    ):
        self.plan = plan
        self.handles = handles
        for handle in handles:
            handle.values.strict = plan.phase.simulation.values == "strict"
        self.recording = recording
        self.on_step: Callable[[int, int], None] | None = None
        self.on_report: Callable[[EpisodeReport], None] = lambda report: None
        self._interrupt = interrupt
        self._used = self._closed = False
        #: the world of the last episode, if reusable
        self._builder: RewindingBuilder | None = None
        try:
            self.bodies: list[AnyBody] = [
                body
                for spec in plan.phase.agents
                for body in make_bodies(spec, plan, handles, learners.get(spec.name))
            ]
        except BaseException:
            for handle in handles:
                handle.domain.shutdown()
            raise
        self.coordinator = EpisodeCoordinator(
            handles,
            self.bodies,
            conditions,
            taking_turns=plan.phase.simulation.controller == "taking_turns",
            interrupt=interrupt,
        )

    def run_episode(self, task: EpisodeTask, loop: asyncio.AbstractEventLoop) -> EpisodeReport:
        """Run one episode, pass its report to ``on_report``, and return it."""
        with self.running(task) as running:
            running.episode.run(loop)
        return running.report

    def turns(self, task: EpisodeTask, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Run one episode like :meth:`run_episode`, but yield whenever an external controller has to act.

        See :attr:`EpisodeCoordinator.external_control`. Closing the iterator ends the episode.
        """
        with self.running(task) as running:
            yield from running.episode.turns(loop)

    @contextmanager
    def running(self, task: EpisodeTask) -> Iterator[Running]:
        """Begin an episode that the block runs, and report it afterwards."""
        coordinator, plan = self.coordinator, self.plan
        mode = Mode.TEST if task.evaluation else plan.phase.mode
        for body in self.bodies:
            if self._used:
                body.muscle.reset()
            body.switch(mode)
        self._used = True
        self._direct_streams(task)
        coordinator.on_step = None if self.on_step is None else partial(self.on_step, task.number)
        kind = "evaluation" if task.evaluation else "episode"
        # reset first, because an evaluation may have the same number as the previous episode
        coordinator.episode = -1
        # the first episode of the phase
        describes = plan.index == 0 and task.number == 0 and not task.evaluation
        episode = Episode(
            coordinator,
            worker=plan.index,
            number=task.number,
            seed=plan.seed if task.seed is None else task.seed,
            seed_path=(plan.phase.streams, "worker", plan.index, kind, task.number),
            wants_end=lambda: self._interrupt.requested,
            scheduler=plan.phase.simulation.scheduler,
            builder=self._builder,
            on_built=self._describe if describes else None,
        )
        self._builder = None
        running = Running(episode)
        started = perf_counter()
        try:
            yield running
        except BaseException as error:
            self._abandon(task, error, started)
            if isinstance(error, GeneratorExit):
                self._builder = episode.builder
            raise
        if not coordinator.over:
            # interrupted while a simulator was busy
            coordinator.abandon(ENDED_BY_USER)
        self._builder = episode.builder
        running.report = self._report(task, perf_counter() - started)
        self.on_report(running.report)

    def _abandon(self, task: EpisodeTask, error: BaseException, started: float) -> None:
        """Report an episode that ``error`` has ended, unless it had not begun."""
        try:
            if self.coordinator.episode == task.number:
                self.coordinator.abandon("abandoned" if isinstance(error, GeneratorExit) else "failed")
                self.on_report(self._report(task, perf_counter() - started))
        except Exception as second:
            error.add_note(f"what was left to record could not be recorded: {second!r}")

    def close(self) -> None:
        """Release all resources, once."""
        if self._closed:
            return
        self._closed = True
        call_all([*(b.muscle.teardown for b in self.bodies), *(p.domain.shutdown for p in self.handles)])

    def state(self) -> dict[str, Any]:
        """Return the persistent state between two episodes, which can be pickled."""
        parts = [(b.muscle, b.objective, b.memory, b.filters) for b in self.bodies]
        return {
            "bodies": parts,
            "conditions": self.coordinator.conditions,
            "used": self._used,
            "environments": [handle.domain.state() for handle in self.handles],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state returned by :meth:`state`."""
        self.coordinator.conditions = tuple(state["conditions"])
        self._used = state["used"]
        for body, parts in zip(self.bodies, state["bodies"], strict=True):
            body.restore(*parts)
        for handle, environment_state in zip(self.handles, state["environments"], strict=True):
            if environment_state is not None:
                handle.domain.restore(environment_state)

    def _describe(self, world: WorldBuilder) -> None:
        """Record the phase's world."""
        if self.recording is not None:
            # imported here because later episodes do not need it
            from palaestrai_mosaik.simulation.world_graph import graph_of, world_data

            self.recording.world(world_data(graph_of(world, self.plan.phase)))

    def _direct_streams(self, task: EpisodeTask) -> None:
        recording, evaluation = self.recording, task.evaluation
        if recording is not None:
            for spec, handle in zip(self.plan.phase.environments, self.handles, strict=True):
                stream = recording.environment(handle.uid, evaluation)
                if spec.frames is not None and spec.frames.includes(task.number):
                    frames = recording.frames(handle.uid, evaluation)
                    stream = RenderedStream(stream, frames, handle, spec.frames.step_every)
                handle.stream = stream
            for body in self.bodies:
                body.stream = recording.agent(body.agent, evaluation, body.identity.group)
                body.statistic = partial(recording.statistic, body.agent, evaluation=evaluation)

    def _outcome(self, agent: str) -> dict[str, Any]:
        """Compute sum, mean, minimum and maximum of an agent's objective and rewards over this episode."""
        coordinator = self.coordinator
        rows = coordinator.history(agent)
        names = dict.fromkeys(name for body in coordinator.agents[agent] for name in body.reward_names)
        rewards = {name: _aggregate(coordinator.rewards(agent, name)) for name in names}
        return {"objective": _aggregate(rows[:, 2]), "rewards": rewards}

    def _report(self, task: EpisodeTask, duration: float) -> EpisodeReport:
        coordinator = self.coordinator
        return EpisodeReport(
            self.plan.index,
            task.number,
            task.evaluation,
            max(coordinator.steps, 0),
            coordinator.time,
            coordinator.flow,
            coordinator.ended_by,
            duration,
            {agent: self._outcome(agent) for agent in coordinator.agents},
            {agent: max(body.last_row for body in bodies) for agent, bodies in coordinator.agents.items()},
            {agent: coordinator.objectives(agent).copy() for agent in coordinator.agents},
            coordinator.interrupted,
            {handle.uid: handle.values.taken(evaluation=task.evaluation) for handle in self.handles},
        )


def _aggregate(values: npt.NDArray[np.float64]) -> dict[str, float]:
    missing = np.isnan(values)
    if np.count_nonzero(missing):
        values = values[~missing]
    if not len(values):
        return dict.fromkeys(("sum", "mean", "min", "max"), math.nan)
    return {
        "sum": float(values.sum()),
        "mean": float(values.mean()),
        "min": float(values.min()),
        "max": float(values.max()),
    }
