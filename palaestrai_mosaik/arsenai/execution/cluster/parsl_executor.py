"""Executes runs with pilot jobs of Parsl: the driver, and the function that workers call.

As for Slurm, the jobs become tasks of a submission. A task is one function call in a worker. Its return only signals
the end of the task; the results of runs are in their records. A task that ended with runs without a final record is
retried:

- after the death of its worker or pilot, up to ``retries`` times; then its current run has failed;
- while another process still has the run (one that lost its worker, and ends within seconds), until it has ended.

A retry does not execute runs that have ended, and resumes a run with a checkpoint.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.design.design import available_cores
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import FAILED, INTERRUPTED, ExecutionError
from palaestrai_mosaik.core.installation import install_extra

from ..early_stopping import Reporting
from ..executor import Executor
from ..job import Job, JobRecord, Marker, RecordStatus, is_stale
from ..local import PATIENCE
from ..processes import DEFAULT_METHOD, Launcher, make_launcher
from ..settings import Settings
from ..task import GRACE
from .node import execute_task, start_method
from .submission import Submissions, TaskRun
from .submit import new_submission, pack

if TYPE_CHECKING:
    from .pilots import Pilots

#: seconds between two checks of records, pilots and interrupts
_POLL = 0.1
#: seconds between two checks of records in tasks with several runs
_LONG_POLL = 2.0
#: seconds before a task is retried
_RETRY_DELAY = 1.0
#: seconds after a request to stop, after which a task without a marker is considered not started
_UNBEGUN = 2.0
#: number of tasks submitted to Parsl at the same time, per potential worker
_PREFETCH = 2
_FINAL = frozenset({"finished", "failed", "pruned"})
_ANY = _FINAL | {"interrupted"}


class ParslExecutor(Executor):
    """Submits the jobs as tasks to pilots of Parsl, and yields their records as they appear.

    All jobs are taken at once. After a failure with ``fail_fast``, jobs that were not yet submitted to Parsl yield no
    record, as after :meth:`cancel`. At the end, all pilots and their processes have ended. If this process is killed,
    the runs are asked to stop within a second, and the pilots end within half a minute.

    :meth:`run` raises :class:`ExecutionError` if Parsl is not installed or rejects the settings, and
    :class:`~palaestrai_mosaik.core.errors.SchedulerError` if no pilot starts.

    Args:
        folder: the design folder.
        settings: settings of the execution.
        one_by_one: make each job a task, and take it when a worker is free, because the next job depends on the results
            of earlier ones.
    """

    def __init__(self, folder: DesignFolder, settings: Settings, *, one_by_one: bool = False):
        super().__init__()
        self._folder, self._settings, self._parsl = folder, settings, settings.parsl
        self._one_by_one = one_by_one
        if self._parsl.provider == "local" and self._parsl.workers is None:
            self._parsl = replace(self._parsl, workers=settings.jobs or available_cores())

    @property
    def processes(self) -> int:
        """The number of workers of all pilots; by default, one per node for each core of this machine."""
        return (self._parsl.workers or available_cores()) * self._parsl.nodes * self._parsl.max_blocks

    def run(self, jobs: Iterable[Job]) -> Iterator[JobRecord]:
        """See :class:`Executor`."""
        pilots_of, source = _import_pilots(), iter(jobs)
        tasks = self._tasks(islice(source, 1) if self._one_by_one else source)
        if not tasks or self._cancelled:
            return
        runs = [self._runs(task) for task in tasks]
        submissions = Submissions(self._folder.path)
        submission = new_submission(self._folder, runs, self._settings, "parsl", asdict(self._parsl))
        stop = _stop_file(submissions, submission.number)
        logs = stop.with_name("parsl")
        at_a_time = self.processes if self._one_by_one else _PREFETCH * self.processes
        pilots = pilots_of(
            submission.name, self._parsl, logs, stop, at_a_time if self._one_by_one else len(tasks)
        )
        submissions.begin(submission, runs)
        files.write_bytes(stop, b"", durable=False)
        work = _Work(deque(tasks), logs)
        pilots.start()
        try:
            while not self._cancelled:
                pilots.check()
                yield from work.give_up(self._parsl.retries)
                for job in islice(source, max(0, at_a_time - work.count)):
                    task = _Task(len(runs), deque([job]))
                    runs.append(self._runs(task))
                    work.new.append(task)
                if len(runs) > submission.tasks:
                    submission = replace(submission, tasks=len(runs), runs=sum(map(len, runs)))
                    submissions.begin(submission, runs)
                if not work.left:
                    break
                for task in work.take(at_a_time):
                    name = f"{submission.name}:{task.number}.{task.tries}"
                    arguments = str(submissions.folder), submission.number, task.number, name
                    reporting = task.jobs[0].reporting
                    work.running[pilots.submit(execute, *arguments, reporting)] = task
                for record in work.ended(pilots.note_answer):
                    if record.status == "failed" and self._settings.fail_fast:
                        work.new.clear()
                    yield record
            if self._cancelled == 1:  # type: ignore[comparison-overlap] # (another thread cancels)
                _request_stop(stop)
                yield from self._wait_for_end(work)
        finally:
            # this is also executed if the caller stops iterating
            _request_stop(stop)
            pilots.close(0.0 if self._cancelled > 1 else 2 * GRACE)
        yield from work.interrupted()

    def _runs(self, task: _Task) -> list[TaskRun]:
        return [TaskRun.of(job, self._folder.path) for job in task.jobs]

    def _tasks(self, jobs: Iterable[Job]) -> list[_Task]:
        packed = pack(list(jobs), 1 if self._one_by_one else self._parsl.runs_per_task)
        return [_Task(number, deque(some)) for number, some in enumerate(packed)]

    def _wait_for_end(self, work: _Work) -> Iterator[JobRecord]:
        """Yield the records of runs that were asked to stop, until no more are expected soon."""
        until = time.monotonic() + PATIENCE + _UNBEGUN
        begun = time.monotonic()
        while work.running and self._cancelled == 1 and time.monotonic() < until:
            yield from work.ended(lambda: None, _ANY)
            if any(job.marker.exists() for task in work.running.values() for job in task.jobs):
                begun = time.monotonic()
            elif time.monotonic() - begun > _UNBEGUN:
                return


def _import_pilots() -> type[Pilots]:
    try:
        from .pilots import Pilots
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != "parsl":
            raise
        raise ExecutionError(f"the executor 'parsl' needs Parsl: {install_extra('parsl')}") from error
    return Pilots


@dataclass(eq=False)
class _Task:
    """A task of the submission.

    Attributes:
        number: the number of the task in the submission.
        jobs: the jobs without a final record, the current one first.
        tries: the number of times that it was submitted to Parsl.
        worker_deaths: the number of times that its worker died during the current job.
        why: the reason of the last death.
        not_before: the time of the next retry.
    """

    number: int
    jobs: deque[Job]
    tries: int = 0
    worker_deaths: int = 0
    why: str = ""
    not_before: float = 0.0

    def ended(self, statuses: Collection[str] = _FINAL, *, in_turn: bool = False) -> Iterator[JobRecord]:
        """Yield the records with these statuses, and remove their jobs.

        Args:
            statuses: the statuses.
            in_turn: stop at the first job without such a record.
        """
        for job in tuple(self.jobs):
            record = JobRecord.read(job.record)
            if record is not None and job.is_covered_by(record) and record.status in statuses:
                self.jobs.remove(job)
                self.worker_deaths = 0
                yield record
            elif in_turn:
                return

    def is_occupied(self) -> bool:
        """Whether a process seems to be still executing the current job."""
        path = self.jobs[0].marker
        marker = Marker.read(path)
        return marker is not None and marker.alive and (marker.of_this_host or not is_stale(path))


class _Work:
    """The tasks that have not ended: not submitted to Parsl yet (``new``), submitted (``running``), or to be retried.

    Args:
        new: the tasks to execute.
        logs: the folder with the output of pilots.
    """

    def __init__(self, new: deque[_Task], logs: Path):
        self.new, self._logs = new, logs
        self.running: dict[Future[Any], _Task] = {}
        self._again: list[_Task] = []
        self._polled = 0.0

    @property
    def left(self) -> bool:
        """Whether any tasks are left."""
        return bool(self.new or self.running or self._again)

    @property
    def count(self) -> int:
        """The number of tasks left."""
        return len(self.new) + len(self.running) + len(self._again)

    def take(self, most: int) -> Iterator[_Task]:
        """Yield due retries, and new tasks while fewer than ``most`` are submitted, to submit them to Parsl."""
        for task in self._due_for_retry():
            self._again.remove(task)
            task.tries += 1
            yield task
        while self.new and len(self.running) < most:
            task = self.new.popleft()
            task.tries += 1
            yield task

    def give_up(self, retries: int) -> Iterator[JobRecord]:
        """Write and yield failure records of runs that lost their worker more than ``retries`` times."""
        for task in self._due_for_retry():
            if task.worker_deaths > retries:
                job, tries, task.worker_deaths = task.jobs.popleft(), task.worker_deaths, 0
                if not task.jobs:
                    self._again.remove(task)
                # only the pilot itself can report the cause of its end
                why = f"its worker died or failed, also at try {tries} ({task.why}); pilots write to {self._logs}"
                yield _write_missing_record(job, "failed", why)

    def ended(
        self, note_answer: Callable[[], None], statuses: Collection[str] = _FINAL
    ) -> Iterator[JobRecord]:
        """Wait briefly, and yield new records with these statuses.

        Args:
            note_answer: called for each task that a worker has executed.
            statuses: the statuses.
        """
        if not self.running:
            time.sleep(_POLL)
            return
        for future in wait(self.running, _POLL, FIRST_COMPLETED).done:
            task, error = self.running.pop(future), future.exception()
            if error is None:
                note_answer()
                # a run that someone else stopped remains interrupted
                yield from task.ended(_ANY)
            else:
                yield from task.ended(statuses)
                task.worker_deaths, task.why = task.worker_deaths + 1, str(error)
            if task.jobs:
                task.not_before = time.monotonic() + _RETRY_DELAY
                self._again.append(task)
        if time.monotonic() - self._polled > _LONG_POLL:
            self._polled = time.monotonic()
            for task in self.running.values():
                if len(task.jobs) > 1:
                    yield from task.ended(statuses, in_turn=True)

    def interrupted(self) -> Iterator[JobRecord]:
        """Yield the records of runs that were executing when the pilots were ended, and write missing ones."""
        for task in (*self.running.values(), *self._again):
            yield from task.ended(_ANY)
            for job in task.jobs:
                marker = Marker.read(job.marker)
                if marker is not None and job.is_covered_by(marker):
                    yield _write_missing_record(
                        job, "interrupted", "killed: it was interrupted, and did not end by itself"
                    )

    def _due_for_retry(self) -> list[_Task]:
        """Return the tasks that can be retried, because no process executes their runs any more."""
        clock, tasks = time.monotonic(), []
        for task in self._again:
            if task.not_before > clock:
                continue
            if task.is_occupied():
                task.not_before = clock + _RETRY_DELAY
            else:
                tasks.append(task)
        return tasks


def execute(
    folder: str, number: int, task: int, name: str, reporting: Reporting | None = None
) -> dict[str, Any] | None:
    """Execute a task; called by a pilot's worker.

    Args:
        folder: the design folder.
        number: the number of the submission.
        task: the number of the task in the submission.
        name: a unique name of this try.
        reporting: how the task's run reports to a search; ``None``: it does not.

    Returns:
        The fields of the :class:`~palaestrai_mosaik.arsenai.execution.cluster.node.TaskOutcome`; ``None`` if the runs had been
        asked to stop.
    """
    stop = _stop_file(Submissions(Path(folder)), number)
    if _stop_requested(stop):
        return None
    launcher = _launcher(folder, number)
    try:
        outcome = execute_task(
            *(Path(folder), number, task),
            name=name,
            launcher=launcher,
            should_end=lambda: _stop_requested(stop),
            reporting=reporting,
        )
    except ExecutionError:
        # the launcher may be broken
        _launcher.cache_clear()
        launcher.close()
        raise
    return asdict(outcome)


@cache
def _launcher(folder: str, number: int) -> Launcher:
    """Return the launcher of run processes, which all tasks of a worker share."""
    # a worker of Parsl has no other threads until it has returned its first result
    alone = threading.active_count() == 1
    method = start_method(os.environ) if alone else DEFAULT_METHOD
    return make_launcher(method, Submissions(Path(folder)).read(number).preload)


def _stop_file(submissions: Submissions, number: int) -> Path:
    """Return the path of a file that is empty until the runs of a submission must end."""
    return submissions.output(number) / "stop"


def _request_stop(stop: Path) -> None:
    # if the file cannot be written, the runs stop when the pilots end
    with suppress(OSError):
        files.write_text(stop, "the runs are to end\n", durable=False)


def _stop_requested(stop: Path) -> bool:
    # opening the file makes a network file system query its server; otherwise, a missing file may stay cached for long
    try:
        with files.open_read(stop) as file:
            return bool(file.read(1))
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _write_missing_record(job: Job, status: RecordStatus, error: str) -> JobRecord:
    """Write and return the record of a run after its process has ended or was asked to."""
    marker, earlier = Marker.read(job.marker), JobRecord.read(job.record)
    code = INTERRUPTED if status == "interrupted" else FAILED
    if (
        earlier is not None
        and job.is_covered_by(earlier)
        and (marker is None or marker.attempt <= earlier.attempt)
    ):
        record = replace(earlier, status=status, exit_code=code, error=error)
    else:
        record = JobRecord.of_dead_process(
            job, marker, status=status, seconds=0.0, exit_code=code, error=error
        )
    record.write(job.record)
    if marker is not None and not (marker.alive and not marker.of_this_host):
        files.remove(job.marker, missing_ok=True)
    return record
