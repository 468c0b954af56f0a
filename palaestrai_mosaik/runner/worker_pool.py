"""The workers of a phase: the one in this process, and those in processes of their own.

They are *bulk-synchronous*: each makes up to ``sync_every`` steps of its episode
and sends what happened. Once all have, the brains think about the rows, worker by worker in
order, and every worker gets the updates and goes on. Nothing depends on which of them was
faster. In *asynchronous* phases every worker gets its answer as soon as it has sent.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from palaestrai_mosaik.agent import Experience
from palaestrai_mosaik.errors import CheckpointError, ContractError, RunInterrupted, SimulationError
from palaestrai_mosaik.importing import limit
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.simulation.learner import Learner

from .factory import WorkerPlan, make_handles, muscle_uids
from .worker import EpisodeReport, EpisodeTask, Worker
from .worker_messages import (
    Answer,
    Batch,
    Continue,
    End,
    Rebuild,
    RemoteError,
    Restore,
    Save,
    Start,
    StreamKey,
    UpdateKey,
    transitions,
)
from .worker_process import WorkerDied

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from palaestrai_mosaik.experiment import RunDocument
    from palaestrai_mosaik.store import InstanceRecorder, PhaseRecorder, Store

    from .interrupt import Interrupt
    from .preflight import Inspection
    from .progress import Progress
    from .run_log import RunLog
    from .scalars import Scalars
    from .worker_process import ProcessPool


@dataclass
class RunContext:
    """One execution of a run document."""

    document: RunDocument
    inspection: Inspection
    directory: Path
    store: Store | None
    recorder: InstanceRecorder | None
    progress: Progress
    interrupt: Interrupt
    loop: asyncio.AbstractEventLoop
    pool: ProcessPool
    log: RunLog
    scalars: Scalars | None = None


class WorkerPool(Protocol):
    """What the runner of a phase asks its workers to do."""

    #: a global random generator was used in another process
    globals_used: bool
    #: called with the report of every episode, also of one that failed
    on_report: Callable[[EpisodeReport], None]

    def start(self, recorder: PhaseRecorder | None) -> None:
        """Wait until all workers are set up; ``recorder`` gets what they do."""

    def run(self, tasks: Mapping[int, EpisodeTask]) -> list[EpisodeReport]:
        """Run one episode in each of some workers; return the reports in the workers' order."""

    def serve(
        self, tasks: Mapping[int, EpisodeTask], following: Callable[[EpisodeReport], EpisodeTask | None]
    ) -> None:
        """Run episodes without waiting for each other; ``following`` says what a worker does next."""

    def rebuild(self, worker: int) -> None:
        """Create new environments and muscles for a worker."""

    def state(self) -> Any:
        """Return, between two episodes, what lasts; to be pickled.

        Raises :class:`CheckpointError` where a worker has what cannot be pickled.
        """

    def restore(self, state: Any) -> None:
        """Go on from what :meth:`state` returned."""

    def finish(self) -> None:
        """Let everything go after a phase without faults."""

    def close(self) -> None:
        """Let everything go, whatever has happened."""


def deliver(worker: Worker, learners: Mapping[str, Learner]) -> None:
    """Give new muscles what the brains of their agents have learned before."""
    for body in worker.bodies:
        learner = learners.get(body.agent)
        if learner is None or not body.learns:
            continue
        if learner.shared_updates:
            number, update = learner.update_for(body.agent)
            if number:
                body.muscle.update(update)
        else:
            for muscle in body.muscles:
                number, update = learner.update_for(muscle)
                if number:
                    body.update_of(muscle, update)
        if body.filters is not None and learner.filters is not None:
            body.filters.set_state(learner.filters.state())


class LocalWorkerPool:
    """One worker, in this process."""

    globals_used = False

    def __init__(
        self,
        plan: WorkerPlan,
        context: RunContext,
        learners: Mapping[str, Learner],
        conditions: Sequence[TerminationCondition],
    ):
        self._plan = plan
        self._context = context
        self._learners = learners
        self._conditions = conditions
        self._recorder: PhaseRecorder | None = None
        self.on_report: Callable[[EpisodeReport], None] = lambda report: None
        self._worker = self._make()

    def start(self, recorder: PhaseRecorder | None) -> None:
        self._recorder = self._worker.recording = recorder

    def _make(self) -> Worker:
        context = self._context
        handles = make_handles(self._plan.phase.environments, self._plan.stored, context.inspection.take)
        worker = Worker(
            self._plan, handles, self._learners, self._conditions, context.interrupt, self._recorder
        )
        worker.on_step = partial(context.progress.step, self._plan.index)
        worker.on_report = self._reported
        try:
            deliver(worker, self._learners)
        except BaseException:
            worker.close()
            raise
        return worker

    def _reported(self, report: EpisodeReport) -> None:
        self.on_report(report)

    def run(self, tasks: Mapping[int, EpisodeTask]) -> list[EpisodeReport]:
        return [self._worker.run_episode(task, self._context.loop) for task in tasks.values()]

    def serve(
        self, tasks: Mapping[int, EpisodeTask], following: Callable[[EpisodeReport], EpisodeTask | None]
    ) -> None:
        task = next(iter(tasks.values()), None)
        while task is not None:
            task = following(self._worker.run_episode(task, self._context.loop))

    def rebuild(self, worker: int) -> None:
        self._worker.close()
        self._worker = self._make()

    def state(self) -> Any:
        """See :class:`WorkerPool`. Conditions are the phase's own objects, so pickle both together."""
        return self._worker.state()

    def restore(self, state: Any) -> None:
        self._worker.restore(state)
        self._conditions = state["conditions"]

    def finish(self) -> None:
        self._worker.close()

    def close(self) -> None:
        self._worker.close()


#: seconds between two looks at whether the user wants the end
_POLL = 0.2


class ProcessWorkerPool:
    """Several workers, each in a process of its own; the brains are in this one."""

    def __init__(
        self,
        plans: Sequence[WorkerPlan],
        context: RunContext,
        learners: Mapping[str, Learner],
    ):
        self._plans = plans
        self._learners = learners
        self._interrupt = context.interrupt
        self._progress = context.progress
        self._log = context.log
        self._recorder: PhaseRecorder | None = None
        self.on_report: Callable[[EpisodeReport], None] = lambda report: None
        self.globals_used = False
        self._interrupt_sent = False
        #: the number of the update that a worker's muscles got last
        self._sent: dict[tuple[int, UpdateKey], int] = {}
        self._pickled: dict[str, tuple[int, bytes]] = {}
        #: what brains have reported about rows of a worker's last batch: (agent, episode, step, key)
        self._reported_by_brains: dict[int, set[tuple[str, int, int, str]]] = {}
        self._pool = context.pool
        self._waiting: list[deque[bytes]] = [deque() for _ in plans]
        self._processes = context.pool.take(len(plans))

    def start(self, recorder: PhaseRecorder | None) -> None:
        self._recorder = recorder
        learning = tuple(self._learners)
        log = None
        if self._log.directory is not None:
            log = self._log.directory, self._log.packages
        for plan, process in zip(self._plans, self._processes, strict=True):
            self._send(process.index, Start(plan, learning, recorder is not None, limit(), log))
        for plan in self._plans:
            self._receive(plan.index)

    def run(self, tasks: Mapping[int, EpisodeTask]) -> list[EpisodeReport]:
        for worker, task in tasks.items():
            self._go(worker, task)
        reports: dict[int, EpisodeReport] = {}
        running = list(tasks)
        while running:
            answers = self._answers(running)
            for name, learner in self._learners.items():
                # the workers hear of updates when all of these were learned from
                learner.brain.rows_waiting = sum(
                    len(a.batch.experiences.get(name, ())) for a in answers if a.batch is not None
                )
            for worker, answer in zip(running, answers, strict=True):
                self._take(worker, tasks[worker], answer)
                if answer.report is not None:
                    reports[worker] = answer.report
                    self.on_report(answer.report)
            running = [worker for worker in running if worker not in reports]
            for worker in running:
                self._go(worker)
        return [reports[worker] for worker in tasks]

    def serve(
        self, tasks: Mapping[int, EpisodeTask], following: Callable[[EpisodeReport], EpisodeTask | None]
    ) -> None:
        current = dict(tasks)
        for worker, task in tasks.items():
            self._go(worker, task)
        while current:
            worker, answer = self._receive_any()
            self._take(worker, current[worker], answer)
            if answer.report is None:
                self._go(worker)
                continue
            self.on_report(answer.report)
            task_next = following(answer.report)
            if task_next is None:
                del current[worker]
            else:
                current[worker] = task_next
                self._go(worker, task_next)

    def rebuild(self, worker: int) -> None:
        self._sent = {key: number for key, number in self._sent.items() if key[0] != worker}
        self._send(worker, Rebuild())
        self._receive(worker)

    def state(self) -> Any:
        answers = self._ask_all(Save())
        for worker, answer in enumerate(answers):
            if answer.problem is not None:
                raise CheckpointError(f"the state of worker {worker} cannot be pickled: {answer.problem}")
        return {"workers": [answer.state for answer in answers], "sent": self._sent}

    def restore(self, state: Any) -> None:
        self._sent = dict(state["sent"])
        for process, pickled in zip(self._processes, state["workers"], strict=True):
            self._send(process.index, Restore(pickled))
        for process in self._processes:
            self._receive(process.index)

    def finish(self) -> None:
        self.globals_used = any(answer.globals_used for answer in self._ask_all(End()))

    def close(self) -> None:
        """See :class:`WorkerPool`. The processes are ended with the run."""

    def _ask_all(self, message: Any) -> list[Answer]:
        for process in self._processes:
            self._send(process.index, message)
        return [self._receive(process.index) for process in self._processes]

    def _answers(self, workers: Sequence[int]) -> list[Answer]:
        """Return the next answer of each; where one has failed, record what those before it did."""
        answers: list[Answer] = []
        try:
            for worker in workers:
                answers.append(self._receive(worker))
        except BaseException:
            for worker, answer in zip(workers, answers, strict=False):
                if answer.batch is not None:
                    self._record(worker, answer.batch)
                if answer.report is not None:
                    self.on_report(answer.report)
            raise
        return answers

    def _go(self, worker: int, task: EpisodeTask | None = None) -> None:
        updates: dict[UpdateKey, bytes] = {}
        filters: dict[str, Any] = {}
        for name, learner in self._learners.items():
            muscles = [("agent", name)]
            if not learner.shared_updates:
                muscles = [("muscle", uid) for uid in self._muscles(name, worker)]
            for key in muscles:
                number, update = learner.update_for(key[1])
                if number > self._sent.get((worker, key), 0):
                    self._sent[worker, key] = number
                    updates[key] = self._pickle(name, number, update)
            if learner.filters is not None:
                filters[name] = learner.filters.state()
        self._send(worker, Continue(task, updates, filters))

    def _muscles(self, name: str, worker: int) -> list[str]:
        (spec,) = (spec for spec in self._plans[worker].phase.agents if spec.name == name)
        return muscle_uids(spec, worker)

    def _pickle(self, name: str, number: int, update: Any) -> bytes:
        # one update goes to many workers
        known = self._pickled.get(name)
        if known is None or known[0] != number:
            try:
                known = self._pickled[name] = number, pickle.dumps(update, pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                raise ContractError(
                    f"agent {name!r}: what a brain returns for muscles in other processes must be something that "
                    f"can be pickled: {error}"
                ) from error
        return known[1]

    def _send(self, worker: int, message: Any) -> None:
        try:
            self._processes[worker].send(message)
        except WorkerDied as error:
            raise self._ended(worker, error) from None

    def _ended(self, worker: int, error: WorkerDied) -> Exception:
        """Return what the end of a worker process means."""
        if self._interrupt.requested:
            return RunInterrupted(f"interrupted, worker {worker} has ended")
        return error

    def _receive(self, worker: int) -> Answer:
        while not self._waiting[worker]:
            self._wait()
        return self._open(worker)

    def _receive_any(self) -> tuple[int, Answer]:
        while True:
            for worker, waiting in enumerate(self._waiting):
                if waiting:
                    return worker, self._open(worker)
            self._wait()

    def _wait(self) -> None:
        """Wait for something to arrive; tell the workers if the user wants the end."""
        arrived = self._pool.receive(_POLL)
        if arrived is not None:
            index, frame = arrived
            if frame is not None:
                self._waiting[index].append(frame)
            elif index >= len(self._waiting) or not self._waiting[index]:
                # the death of any worker ends the run, whichever of them is waited for; but one
                # that has reported a failure is handled in its turn
                raise self._ended(index, self._pool.died(index))
        if self._interrupt.requested and not self._interrupt_sent:
            self._interrupt_sent = True
            for process in self._processes:
                process.interrupt()

    def _open(self, worker: int) -> Answer:
        answer = pickle.loads(self._waiting[worker].popleft())
        if answer.trace is not None:
            self._fail(worker, answer)
        assert isinstance(answer, Answer)
        return answer

    def _fail(self, worker: int, answer: Answer) -> None:
        """Record what a worker that failed could still tell, and raise its error."""
        if answer.batch is not None:
            self._record(worker, answer.batch)
        if answer.report is not None:
            self.on_report(answer.report)
        error: BaseException
        if answer.error is not None:
            error = pickle.loads(answer.error)
        else:
            error = SimulationError(f"worker {worker}: {answer.said}")
        error.add_note(f"raised in worker {worker}")
        raise error from RemoteError(answer.trace)

    def _take(self, worker: int, task: EpisodeTask, answer: Answer) -> None:
        batch = answer.batch
        assert batch is not None
        self._learn(worker, batch)
        self._record(worker, batch)
        for steps in range(batch.steps[0] + 1, batch.steps[1] + 1):
            self._progress.step(worker, task.number, steps)

    def _learn(self, worker: int, batch: Batch) -> None:
        # a muscle's figures come with the row, or with the next batch
        muscles = {
            (agent, episode, step, key) for agent, _, episode, step, key, _, ev in batch.statistics if not ev
        }
        before, reported = self._reported_by_brains.get(worker, set()), set[tuple[str, int, int, str]]()
        for name, learner in self._learners.items():
            filters = learner.filters
            if filters is not None:
                for news in batch.news.get(name, ()):
                    filters.learn(news)
            for transition in transitions(batch, name):
                if isinstance(transition[0], int):
                    learner.mark_end(*transition[1:])
                    continue
                rows, at_once = transition
                # (0 in asynchronous phases, where rows are not counted)
                learner.brain.rows_waiting = max(learner.brain.rows_waiting - len(rows), 0)
                for step, key, value in self._think(learner, rows, at_once):
                    reported.add((name, batch.episode, step, key))
                    if self._recorder is not None:
                        self._recorder.statistic(
                            *(name, worker, batch.episode, step, key, value), evaluation=False
                        )
        twice = (before | reported) & muscles
        if twice:
            agent, *_, key = min(twice)
            raise ContractError(f"muscle and brain of agent {agent!r} both report the statistic {key!r}")
        self._reported_by_brains[worker] = reported

    @staticmethod
    def _think(
        learner: Learner, rows: Sequence[Experience], at_once: bool
    ) -> Iterator[tuple[int, str, float]]:
        """Let the brain think about ``rows``; yield what it tells about itself: step, key, value."""
        if at_once:
            learner.learn_batch(rows)
            reported = learner.statistics_by_muscle
        else:
            learner.learn(rows[0])
            reported = {rows[0].muscle: learner.statistics}
        for row in rows:
            for key, value in reported.get(row.muscle, {}).items():
                yield row.step, key, value

    def _record(self, worker: int, batch: Batch) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        for key, rows in batch.rows.items():
            stream = _stream(recorder, key)
            for row in rows:
                stream.append(*row)
        for key, blocks in batch.blocks.items():
            stream = _stream(recorder, key)
            for block in blocks:
                stream.append_rows(block)
        statistic: Callable[..., None] = recorder.statistic
        for *figure, evaluation in batch.statistics:
            statistic(*figure, evaluation=evaluation)
        if batch.world is not None:
            recorder.world(batch.world)


def _stream(recorder: PhaseRecorder, key: StreamKey) -> Any:
    kind, name, group, evaluation = key
    if kind == "agent":
        return recorder.agent(name, evaluation, group)
    if kind == "frames":
        return recorder.frames(name, evaluation)
    return recorder.environment(name, evaluation)
