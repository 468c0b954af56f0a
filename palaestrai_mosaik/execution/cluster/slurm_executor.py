"""Executes runs as job arrays of Slurm, and waits for them. ``arsenai submit`` does not wait."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterable, Iterator

from palaestrai_mosaik import files
from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.errors import FAILED, SchedulerError

from ..executor import Executor
from ..job import Job, JobRecord, Marker
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
        waiting = {job.path.name: job for job in jobs}
        if not waiting:
            return
        runs = [TaskRun.of(job, self._folder.path) for job in waiting.values()]
        submission = submit_folder(self._folder, runs, self._settings)
        submissions = Submissions(self._folder.path)
        tasks = {
            run.slug: number
            for number, task in enumerate(submissions.tasks(submission.number))
            for run in task
        }
        by_run = {job.run: tasks[slug] for slug, job in waiting.items()}
        polled, states = time.monotonic(), dict.fromkeys(tasks.values(), TaskState.QUEUED)
        ended_at: dict[int, float] = {}
        #: tasks with a run that has begun
        moved_on: set[int] = set()
        try:
            while waiting:
                time.sleep(_POLL)
                if time.monotonic() - polled >= _SQUEUE_POLL or self._cancelled > self._cancel_sent:
                    states = self._ask(submissions, submission, states)
                    polled = time.monotonic()
                for task, state in states.items():
                    if state.ended:
                        ended_at.setdefault(task, time.monotonic())
                for record in self._ended(waiting, tasks, ended_at):
                    if record.status == "failed" and self._settings.fail_fast and not self._enough:
                        # query Slurm at once
                        self._enough, polled = True, -math.inf
                    moved_on.add(by_run[record.run])
                    yield record
                given_up = [
                    slug for slug in waiting if self._is_given_up(waiting[slug], ended_at.get(tasks[slug]))
                ]
                moved_on |= {tasks[slug] for slug in given_up if self._has_begun(waiting[slug])}
                for slug in given_up:
                    job = waiting.pop(slug)
                    task = tasks[slug]
                    missing_record = self._write_missing_record(job, states[task], moved_on=task in moved_on)
                    if missing_record is not None:
                        yield missing_record
        finally:
            if waiting:
                self._scheduler.cancel(submission)

    def _ask(
        self, submissions: Submissions, submission: Submission, states: dict[int, TaskState]
    ) -> dict[int, TaskState]:
        """Return the current states of tasks, or ``states`` if Slurm does not answer; records arrive without it."""
        try:
            self._cancel(submission)
            states = task_states(submissions, submission, states, held=True, slurm=self._scheduler)
            self._cancel_queued(submission, states)
        except SchedulerError as error:
            if not self._silent:
                logger.warning("waiting for the records of runs, and for Slurm to answer again: %s", error)
            self._silent = True
        else:
            self._silent = False
        return states

    def _cancel(self, submission: Submission) -> None:
        if self._cancelled > self._cancel_sent:
            self._cancel_sent = self._cancelled
            self._scheduler.cancel(submission, now=self._cancelled > 1)

    def _cancel_queued(self, submission: Submission, states: dict[int, TaskState]) -> None:
        queued = [task for task, state in states.items() if state is TaskState.QUEUED]
        if self._enough and not self._stopped:
            if queued:
                self._scheduler.cancel(submission, queued)
            self._stopped = True

    def _is_given_up(self, job: Job, over: float | None) -> bool:
        """Whether no record of the run is expected; ``over`` is the time at which its task was seen to have ended."""
        if over is None:
            return False
        unbegun = self._cancelled and not job.marker.exists()
        return unbegun or self._cancelled > 1 or time.monotonic() - over > _FILE_SYSTEM_DELAY

    @staticmethod
    def _has_begun(job: Job) -> bool:
        marker = Marker.read(job.marker)
        return marker is not None and job.is_covered_by(marker)

    @staticmethod
    def _ended(waiting: dict[str, Job], tasks: dict[str, int], over: dict[int, float]) -> Iterator[JobRecord]:
        """Yield the final records, and remove their jobs from ``waiting``."""
        folder = next(iter(waiting.values())).path.parent
        for name in os.listdir(folder):
            slug = name.removesuffix(".json")
            job = waiting.get(slug) if name != slug else None
            record = None if job is None else JobRecord.read(job.record)
            if job is None or record is None or not job.is_covered_by(record):
                continue
            if record.status == "interrupted" and tasks[slug] not in over:
                continue
            del waiting[slug]
            yield record

    def _write_missing_record(self, job: Job, state: TaskState, *, moved_on: bool) -> JobRecord | None:
        """Write the record of a run after its task has ended without one.

        Args:
            job: the job of the run.
            state: the state of its task.
            moved_on: whether any run of the task has begun.

        Returns:
            The record; ``None`` if the run had not begun, and can be executed later.
        """
        marker = Marker.read(job.marker)
        begun = self._has_begun(job)
        if not begun and (self._cancelled or moved_on or state not in FAILED_BEFORE_RUNS):
            return None
        record = JobRecord.of_dead_process(
            job,
            marker,
            status="interrupted" if self._cancelled or state is TaskState.NODE_FAILED else "failed",
            seconds=0.0,
            exit_code=FAILED,
            error=f"its task on the cluster ended and left no record of the run: {state.value}",
        )
        record.write(job.record)
        files.remove(job.marker, missing_ok=True)
        return record
