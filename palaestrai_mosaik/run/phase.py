"""One phase: its workers' episodes, one after the other, until a condition ends it.

Episodes are run in a fixed order: episode 0 of worker 0, episode 0 of worker 1, ...,
episode 1 of worker 0, and so on, leaving out workers that are done. ``episodes`` of the
document is the most that a worker runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.errors import RunInterrupted
from palaestrai_mosaik.experiment import PhaseSpec, RunDocument
from palaestrai_mosaik.simulation.body import Body
from palaestrai_mosaik.simulation.conditions import EpisodeOutcome, PhaseView
from palaestrai_mosaik.simulation.director import INTERRUPTED, Director, ask
from palaestrai_mosaik.simulation.ports import EnvironmentPort
from palaestrai_mosaik.simulation.world import Episode
from palaestrai_mosaik.types import SimulationFlowControl

from .brains import brain_keeper
from .inspect import Inspection
from .interrupt import Interrupt
from .parts import Agent, all_of, make_conditions
from .progress import Progress

if TYPE_CHECKING:
    from palaestrai_mosaik.store import InstanceRecorder, Store


@dataclass(frozen=True)
class PhaseResult:
    """How a phase went: why it ended, and how many episodes and steps there were."""

    name: str
    reason: str
    episodes: int
    steps: int
    flow: SimulationFlowControl


@dataclass
class Context:
    """What all phases of a run share."""

    document: RunDocument
    inspection: Inspection
    directory: Path
    store: Store | None
    recorder: InstanceRecorder | None
    progress: Progress
    interrupt: Interrupt
    loop: asyncio.AbstractEventLoop


class _Worker:
    """One world's lasting objects: environments, bodies, and the director."""

    def __init__(self, index: int, ports: list[EnvironmentPort], bodies: list[Body], director: Director):
        self.index = index
        self.ports = ports
        self.bodies = bodies
        self.director = director
        self.done = False
        #: why it is done
        self.reason = ""
        self._closed = False

    def reset(self) -> None:
        """Tell the muscles that an episode is over and another one follows."""
        for body in self.bodies:
            body.muscle.reset()

    def close(self) -> None:
        """Let everything go, once."""
        if self._closed:
            return
        self._closed = True
        all_of([*(b.muscle.teardown for b in self.bodies), *(p.domain.shutdown for p in self.ports)])


class PhaseRunner:
    """Runs one phase of a document."""

    def __init__(self, context: Context, phase: PhaseSpec):
        self.context = context
        self.phase = phase
        self.conditions = make_conditions(phase.simulation.conditions)
        self.run_conditions = make_conditions(context.document.conditions)
        self.agents = [
            Agent(
                spec,
                phase,
                context.document.seed,
                brain_keeper(spec, phase, context.document, context.directory, context.store),
            )
            for spec in phase.agents
        ]
        self.workers: list[_Worker] = []
        self.recorder: Any = None
        self.steps = 0
        self.history: list[list[dict[str, float]]] = [[] for _ in range(phase.workers)]

    def run(self) -> PhaseResult:
        """Run the phase to its end."""
        context, phase = self.context, self.phase
        reason, flow = "failed", SimulationFlowControl.CONTINUE
        context.progress.begin_phase(phase.name, phase.workers, phase.episodes)
        try:
            for index in range(phase.workers):
                self.workers.append(self._make_worker(index))
            self._begin_recording()
            reason, flow = self._episodes()
            for agent in self.agents:
                agent.store()
        except RunInterrupted:
            reason = "interrupted"
            raise
        finally:
            self._end(reason)
        context.progress.end_phase(phase.name, reason)
        return PhaseResult(phase.name, reason, sum(map(len, self.history)), self.steps, flow)

    def _end(self, reason: str) -> None:
        endings: list[Callable[[], None]] = [worker.close for worker in self.workers]
        if self.recorder is not None:
            endings.append(partial(self.recorder.finish, reason))
        all_of(endings)

    def _make_worker(self, index: int) -> _Worker:
        ports: list[EnvironmentPort] = []
        try:
            for spec in self.phase.environments:
                ports.append(self.context.inspection.take(spec))
            bodies = [agent.body(index, ports) for agent in self.agents]
        except BaseException:
            for port in ports:
                port.domain.shutdown()
            raise
        director = Director(
            ports,
            bodies,
            [*self.conditions, *self.run_conditions],
            taking_turns=self.phase.simulation.controller == "taking_turns",
            interrupt=self.context.interrupt,
        )
        director.on_step = partial(self._on_step, index, director)
        return _Worker(index, ports, bodies, director)

    def _on_step(self, index: int, director: Director, steps: int) -> None:
        self.context.progress.step(index, director.episode, steps)

    def _episodes(self) -> tuple[str, SimulationFlowControl]:
        limit = self.phase.episodes
        while True:
            for worker in self.workers:
                if worker.done:
                    continue
                outcome = self._run_episode(worker)
                view = PhaseView(
                    self.phase.mode,
                    self.phase.workers,
                    limit,
                    [agent.spec.name for agent in self.agents],
                    outcome,
                    self.history,  # type: ignore[arg-type]
                )
                flow, by = ask(self.run_conditions, "phase_flow_control", view)
                if outcome.flow > flow:
                    flow, by = outcome.flow, outcome.ended_by
                if flow >= SimulationFlowControl.STOP_PHASE:
                    return by, flow
                if flow is SimulationFlowControl.STOP_SIMULATION:
                    worker.done, worker.reason = True, by
                elif limit is not None and len(self.history[worker.index]) >= limit:
                    worker.done, worker.reason = True, "episodes"
                if not worker.done:
                    if flow is SimulationFlowControl.RESTART:
                        self._rebuild(worker)
                    else:
                        worker.reset()
            if all(worker.done for worker in self.workers):
                reasons = {worker.reason for worker in self.workers}
                return (reasons.pop() if len(reasons) == 1 else "episodes"), SimulationFlowControl.CONTINUE

    def _rebuild(self, worker: _Worker) -> None:
        worker.close()
        self.workers[worker.index] = new = self._make_worker(worker.index)
        self._attach_streams(new)
        for old, body in zip(worker.bodies, new.bodies, strict=True):
            # the brain lives on, and with it what the muscle has learned from it
            if old.update is not None:
                body.update = old.update
                body.muscle.update(old.update)

    def _run_episode(self, worker: _Worker) -> EpisodeOutcome:
        context, director = self.context, worker.director
        number = len(self.history[worker.index])
        started = perf_counter()
        try:
            Episode(
                director,
                worker.index,
                number,
                context.document.seed,
                (self.phase.name, "worker", worker.index, "episode", number),
                self.phase.simulation.bridge,
                lambda: context.interrupt.requested,
            ).run(context.loop)
        except BaseException as error:
            try:
                if director.episode == number:
                    director.abandon("failed")
                    self._record_episode(worker, number, perf_counter() - started)
            except Exception as second:
                error.add_note(f"what was left to record could not be recorded: {second!r}")
            raise
        if not director.over:
            # the user asked for the end while a simulator was busy
            director.abandon(INTERRUPTED)
        steps = self._record_episode(worker, number, perf_counter() - started)
        objectives = {body.name: director.objectives(body.name).copy() for body in worker.bodies}
        outcome = EpisodeOutcome(worker.index, number, steps, director.flow, director.ended_by, objectives)
        means = {name: outcome.mean_objective(name) for name in objectives}
        context.progress.episode(worker.index, number, steps, means)
        if director.interrupted:
            raise RunInterrupted(f"interrupted in phase {self.phase.name!r}, episode {number}")
        self.history[worker.index].append(means)
        return outcome

    def _record_episode(self, worker: _Worker, number: int, duration: float) -> int:
        """Record how the episode went; return its number of steps."""
        director = worker.director
        steps = max(director.steps, 0)
        self.steps += steps
        if self.recorder is not None:
            self.recorder.episode(
                worker.index,
                number,
                steps=steps,
                ticks=director.time,
                ended_by=director.ended_by,
                flow=director.flow.name,
                duration=duration,
                agents={body.name: body.outcome() for body in worker.bodies},
            )
        return steps

    def _begin_recording(self) -> None:
        if self.context.recorder is None:
            return
        from .records import agent_record, environment_record

        phase, first = self.phase, self.workers[0]
        self.recorder = self.context.recorder.begin_phase(
            phase.index,
            phase.name,
            mode=phase.mode.value,
            workers=phase.workers,
            episodes=phase.episodes,
            controller=phase.simulation.controller,
            environments=[
                environment_record(s, p) for s, p in zip(phase.environments, first.ports, strict=True)
            ],
            agents=[agent_record(s, b) for s, b in zip(phase.agents, first.bodies, strict=True)],
        )
        for worker in self.workers:
            self._attach_streams(worker)

    def _attach_streams(self, worker: _Worker) -> None:
        recorder = self.recorder
        if recorder is not None:
            for port in worker.ports:
                port.stream = recorder.environment(port.uid)
            for body in worker.bodies:
                body.stream = recorder.agent(body.name)
                body.statistic = partial(recorder.statistic, body.name)
