"""The workers of a phase, in this process or in processes of their own.

Worker processes are *bulk-synchronous*. Each makes up to ``sync_every`` steps of its episode and sends its rows. Once
all have sent them, the brains learn from the rows in the workers' order, all workers get the updates, and the next
steps begin. Thus, results do not depend on the workers' speed. In *asynchronous* phases, a worker gets its answer as
soon as it has sent its rows.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from palaestrai_mosaik.agent import Experience
from palaestrai_mosaik.core.errors import CheckpointError, ContractError, RunInterrupted, SimulationError
from palaestrai_mosaik.core.importing import limit
from palaestrai_mosaik.core.printing import print_warnings
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.simulation.learner import Learner

from .factory import WorkerPlan, make_handles, muscle_uids
from .run_context import RunContext
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
    from palaestrai_mosaik.store import PhaseRecorder


class WorkerPool(Protocol):
    """The workers of a phase, as the phase runner uses them."""

    #: whether another process used a global random generator
    globals_used: bool
    #: called with the report of every episode, including failed ones
    on_report: Callable[[EpisodeReport], None]

    def start(self, recorder: PhaseRecorder | None) -> None:
        """Wait until all workers are set up. From then on, they record to ``recorder``."""

    def run(self, tasks: Mapping[int, EpisodeTask]) -> list[EpisodeReport]:
        """Run one task per worker; return the reports in the order of ``tasks``."""

    def serve(
        self, tasks: Mapping[int, EpisodeTask], following: Callable[[EpisodeReport], EpisodeTask | None]
    ) -> None:
        """Run episodes without synchronisation; ``following`` returns a worker's next task or ``None``."""

    def rebuild(self, worker: int) -> None:
        """Create new environments and muscles for a worker."""

    def state(self) -> Any:
        """Return the persistent state between two episodes, which can be pickled.

        Raises :class:`CheckpointError` if an object of a worker cannot be pickled.
        """

    def restore(self, state: Any) -> None:
        """Continue from a state returned by :meth:`state`."""

    def finish(self) -> None:
        """Release the workers after a successful phase."""

    def close(self) -> None:
        """Release the workers after success or failure."""


def deliver(worker: Worker, learners: Mapping[str, Learner]) -> None:
    """Pass earlier updates of the brains to newly created muscles."""
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
    """One worker, in this process. It records nothing until :meth:`start`; :meth:`rebuild` keeps the recorder."""

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
        self._worker = self._make_worker()

    def start(self, recorder: PhaseRecorder | None) -> None:
        self._recorder = self._worker.recording = recorder

    def _make_worker(self) -> Worker:
        context = self._context
        handles = make_handles(self._plan.phase.environments, self._plan.stored, context.environments.take)
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
        self._worker = self._make_worker()

    def state(self) -> Any:
        """See :class:`WorkerPool`. The conditions are shared with the phase, so both must be in one pickle."""
        return self._worker.state()

    def restore(self, state: Any) -> None:
        self._worker.restore(state)
        self._conditions = state["conditions"]

    def finish(self) -> None:
        self._worker.close()

    def close(self) -> None:
        self._worker.close()


#: seconds between two checks for an interrupt
_POLL = 0.2


class ProcessWorkerPool:
    """Several workers, each in a process of its own; the brains stay in this process."""

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
        #: the number of the last update sent to a worker's muscles
        self._sent: dict[tuple[int, UpdateKey], int] = {}
        self._pickled: dict[str, tuple[int, bytes]] = {}
        #: figures that brains reported for a worker's last batch: (agent, episode, step, key)
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
        self._ask_all([Start(plan, learning, recorder is not None, limit(), log) for plan in self._plans])

    def run(self, tasks: Mapping[int, EpisodeTask]) -> list[EpisodeReport]:
        for worker, task in tasks.items():
            self._go(worker, task)
        reports: dict[int, EpisodeReport] = {}
        running = list(tasks)
        while running:
            answers = self._answers(running)
            for name, learner in self._learners.items():
                # updates are sent only after the brain has learned from all these rows
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
        answers = self._ask_all([Save()] * len(self._plans))
        for worker, answer in enumerate(answers):
            if answer.problem is not None:
                raise CheckpointError(f"the state of worker {worker} cannot be pickled: {answer.problem}")
        return {"workers": [answer.state for answer in answers], "sent": self._sent}

    def restore(self, state: Any) -> None:
        self._sent = dict(state["sent"])
        self._ask_all([Restore(pickled) for pickled in state["workers"]])

    def finish(self) -> None:
        answers = self._ask_all([End()] * len(self._plans))
        self.globals_used = any(answer.globals_used for answer in answers)

    def close(self) -> None:
        """See :class:`WorkerPool`. The processes end with the run."""

    def _ask_all(self, messages: Sequence[Any]) -> list[Answer]:
        """Send each worker its message, and return all answers."""
        for worker, message in enumerate(messages):
            self._send(worker, message)
        return [self._receive(worker) for worker in range(len(messages))]

    def _answers(self, workers: Sequence[int]) -> list[Answer]:
        """Return the next answer of each worker; if one fails, record the answers received before it."""
        answers: list[Answer] = []
        try:
            for worker in workers:
                answers.append(self._receive(worker))
        except BaseException:
            for worker, answer in zip(workers, answers, strict=False):
                self._record_all(worker, answer)
            raise
        return answers

    def _record_all(self, worker: int, answer: Answer) -> None:
        """Record an answer from which no brain will learn, because the run has failed."""
        if answer.batch is not None:
            self._record(worker, answer.batch)
        if answer.report is not None:
            self.on_report(answer.report)

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
        # cached, because one update goes to many workers
        entry = self._pickled.get(name)
        if entry is None or entry[0] != number:
            try:
                entry = self._pickled[name] = number, pickle.dumps(update, pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                raise ContractError(
                    f"agent {name!r}: what a brain returns for muscles in other processes must be something that "
                    f"can be pickled: {error}"
                ) from error
        return entry[1]

    def _send(self, worker: int, message: Any) -> None:
        try:
            self._processes[worker].send(message)
        except WorkerDied as error:
            raise self._ended(worker, error) from None

    def _ended(self, worker: int, error: WorkerDied) -> Exception:
        """Return the error for a worker process that has ended: an interrupt, if requested, or ``error``."""
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
        """Wait for a frame, and forward an interrupt to the workers."""
        arrived = self._pool.receive(_POLL)
        if arrived is not None:
            index, frame = arrived
            if frame is not None:
                self._waiting[index].append(frame)
            elif index >= len(self._waiting) or not self._waiting[index]:
                # the death of any worker ends the run, but a failure reported by a frame before it takes precedence
                raise self._ended(index, self._pool.died(index))
        if self._interrupt.requested and not self._interrupt_sent:
            self._interrupt_sent = True
            for process in self._processes:
                process.interrupt()

    def _open(self, worker: int) -> Answer:
        answer = pickle.loads(self._waiting[worker].popleft())
        print_warnings(answer.warned)
        if answer.trace is not None:
            self._fail(worker, answer)
        assert isinstance(answer, Answer)
        return answer

    def _fail(self, worker: int, answer: Answer) -> None:
        """Record the last rows of a failed worker, and raise its error."""
        self._record_all(worker, answer)
        error: BaseException = SimulationError(f"worker {worker}: {answer.said}")
        if answer.error is not None:
            error = pickle.loads(answer.error)
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
        # a muscle's figures arrive with their row or with the next batch
        muscles = {
            (agent, episode, step, key) for agent, _, episode, step, key, _, ev in batch.statistics if not ev
        }
        before, reported = self._reported_by_brains.get(worker, set()), set[tuple[str, int, int, str]]()
        for name, learner in self._learners.items():
            for news in batch.news.get(name, ()):
                assert learner.filters is not None
                learner.filters.learn(news)
            for transition in transitions(batch, name):
                if isinstance(transition[0], int):
                    learner.mark_end(*transition[1:])
                    continue
                rows, at_once = transition
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
        """Let the brain learn from ``rows``; yield its own figures as step, key and value."""
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
    return recorder.frames(name, evaluation) if kind == "frames" else recorder.environment(name, evaluation)
