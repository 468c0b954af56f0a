"""Executes runs as job arrays of Slurm, and waits for them. ``arsenai submit`` does not wait."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import FAILED, SchedulerError

from ..executor import Executor
from ..job import Job, JobRecord, Marker, RecordStatus, write_end
from ..settings import Settings
from ..status import FAILED_BEFORE_RUNS
from .scheduler import TaskState
from .slurm import Slurm
from .submission import Submission, Submissions, TaskRun
from .submit import submit_folder
from .task_assignment import task_states

logger = logging.getLogger(__name__)
#: seconds between two checks of the records, and between two queries to Slurm
_POLL, _SQUEUE_POLL = 0.5, 5.0
#: seconds after the end of a task within which records may appear, because network file systems cache
_FILE_SYSTEM_DELAY = 10.0


class SlurmExecutor(Executor):
    """Submits all jobs to Slurm at once, and yields their records as they appear.

    If a task ends without a record of a job, the record is written here, with Slurm's state of the task. Interrupted
    runs are resumed as long as their task is requeued. Cancelling the executor cancels the arrays; a failure with
    ``fail_fast`` cancels the queued tasks.
    """

    def __init__(self, folder: DesignFolder, settings: Settings):
        super().__init__()
        self._folder, self._settings = folder, settings
        self._scheduler = Slurm()
        self._cancel_sent = 0
        self._silent = False
        #: whether a run failed with ``fail_fast``, and whether queued tasks were cancelled because of that
        self._enough = self._stopped = False

    @property
    def processes(self) -> int:
        """The number of concurrent runs of a task, times the limit on concurrent tasks, if there is one."""
        slurm = self._settings.slurm
        return slurm.runs_at_a_time * (slurm.throttle or 1)

    def run(self, jobs: Iterable[Job]) -> Iterator[JobRecord]:
        """See :class:`Executor`."""
        taken = {job.path.name: job for job in jobs}
        if not taken:
            return
        runs = [TaskRun.of(job, self._folder.path) for job in taken.values()]
        submission = submit_folder(self._folder, runs, self._settings)
        submissions = Submissions(self._folder.path)
        tasks = enumerate(submissions.tasks(submission.number))
        waiting = _Waiting(taken, {run.slug: number for number, task in tasks for run in task})
        polled = time.monotonic()
        try:
            while waiting.jobs:
                time.sleep(_POLL)
                if time.monotonic() - polled >= _SQUEUE_POLL or self._cancelled > self._cancel_sent:
                    waiting.states = self._ask(submissions, submission, waiting.states)
                    polled = time.monotonic()
                for record in waiting.ended():
                    if record.status == "failed" and self._settings.fail_fast and not self._enough:
                        # query Slurm at once
                        self._enough, polled = True, -math.inf
                    yield record
                yield from waiting.give_up(self._cancelled)
        finally:
            if waiting.jobs:
                self._scheduler.cancel(submission)

    def _ask(
        self, submissions: Submissions, submission: Submission, states: dict[int, TaskState]
    ) -> dict[int, TaskState]:
        """Return the current states of tasks, or ``states`` if Slurm does not answer; records arrive without it."""
        try:
            if self._cancelled > self._cancel_sent:
                self._cancel_sent = self._cancelled
                self._scheduler.cancel(submission, now=self._cancelled > 1)
            states = task_states(submissions, submission, states, held=True, slurm=self._scheduler)
            if self._enough and not self._stopped:
                queued = [task for task, state in states.items() if state is TaskState.QUEUED]
                if queued:
                    self._scheduler.cancel(submission, queued)
                self._stopped = True
        except SchedulerError as error:
            if not self._silent:
                logger.warning("waiting for the records of runs, and for Slurm to answer again: %s", error)
            self._silent = True
        else:
            self._silent = False
        return states


class _Waiting:
    """The submitted jobs without a final record, by the name of their files.

    Args:
        jobs: the jobs.
        tasks: the number of the task of each.
    """

    def __init__(self, jobs: dict[str, Job], tasks: dict[str, int]):
        self.jobs, self._tasks = jobs, tasks
        self.states = dict.fromkeys(tasks.values(), TaskState.QUEUED)
        #: the time at which each task was seen to have ended
        self._ended_at: dict[int, float] = {}
        #: tasks with a run that has begun
        self._begun: set[int] = set()

    def ended(self) -> Iterator[JobRecord]:
        """Yield the final records, and remove their jobs."""
        for task, state in self.states.items():
            if state.ended:
                self._ended_at.setdefault(task, time.monotonic())
        folder = next(iter(self.jobs.values())).path.parent
        for name in files.list_names(folder):
            slug = name.removesuffix(".json")
            job = self.jobs.get(slug) if slug != name else None
            record = None if job is None else JobRecord.read(job.record)
            if job is None or record is None or not job.is_covered_by(record):
                continue
            task = self._tasks[slug]
            # Slurm may requeue the task of an interrupted run
            if record.status == "interrupted" and task not in self._ended_at:
                continue
            del self.jobs[slug]
            self._begun.add(task)
            yield record

    def give_up(self, cancelled: int) -> Iterator[JobRecord]:
        """Remove jobs after their tasks have ended without a record. Write and yield the records of failed ones.

        Args:
            cancelled: 0 if the executor was not cancelled, 1 if it was, 2 if its runs are killed.
        """
        overdue = [slug for slug in self.jobs if self._is_overdue(slug, cancelled)]
        self._begun |= {self._tasks[slug] for slug in overdue if _has_begun(self.jobs[slug])}
        for slug in overdue:
            job, task = self.jobs.pop(slug), self._tasks[slug]
            state = self.states[task]
            # the run can be executed later, unless its task fails before any run
            postponed = cancelled or task in self._begun or state not in FAILED_BEFORE_RUNS
            if _has_begun(job) or not postponed:
                interrupted = cancelled or state is TaskState.NODE_FAILED
                error = f"its task on the cluster ended and left no record of the run: {state.value}"
                status: RecordStatus = "interrupted" if interrupted else "failed"
                yield write_end(job, Marker.read(job.marker), status, error, exit_code=FAILED)

    def _is_overdue(self, slug: str, cancelled: int) -> bool:
        ended_at = self._ended_at.get(self._tasks[slug])
        if ended_at is None:
            return False
        unbegun = cancelled and not self.jobs[slug].marker.exists()
        return unbegun or cancelled > 1 or time.monotonic() - ended_at > _FILE_SYSTEM_DELAY


def _has_begun(job: Job) -> bool:
    marker = Marker.read(job.marker)
    return marker is not None and job.is_covered_by(marker)
