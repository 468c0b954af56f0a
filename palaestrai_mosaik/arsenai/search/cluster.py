"""A search on Slurm: the number of tasks, the settings that ended tasks left, and waiting for tasks.

A submission of a search is like one of a design, but its tasks have no runs: each proposes its next setting itself
(:mod:`.task`). The tasks share only the journal in the folder.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from palaestrai_mosaik.arsenai.design.folder import JOBS, DesignFolder
from palaestrai_mosaik.arsenai.design.model import SearchSpec
from palaestrai_mosaik.arsenai.design.settings import record_of
from palaestrai_mosaik.arsenai.execution import JobRecord, Settings
from palaestrai_mosaik.arsenai.execution.cluster.scheduler import TaskState
from palaestrai_mosaik.arsenai.execution.cluster.slurm import Slurm
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submission, Submissions, task_numbers
from palaestrai_mosaik.arsenai.execution.cluster.submit import plan_search, recover_submissions, submit_tasks
from palaestrai_mosaik.arsenai.execution.cluster.task_assignment import search_task_states
from palaestrai_mosaik.arsenai.execution.job import Job, Marker, with_suffix, write_end
from palaestrai_mosaik.arsenai.execution.settings import SlurmSettings
from palaestrai_mosaik.arsenai.execution.status import job_path
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import FAILED, SchedulerError
from palaestrai_mosaik.store.store import StoreLocation

from .budget import runs_left
from .claims import claims_folder
from .progress import SearchProgress
from .search import Search
from .settings import Trials, runs_of

logger = logging.getLogger(__name__)
#: settings that a task should execute one after the other; with fewer, the sampler learns too little
SETTINGS_IN_TURN = 10
#: number of tasks if the budget has no limit on runs, and there is no throttle
_UNCOUNTED = 10
#: seconds between reads of the journal, and between queries to Slurm
_POLL, _SQUEUE_POLL = 0.5, 5.0


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of :func:`submit`.

    Attributes:
        submission: the new submission; ``None``: no task was submitted.
        live: number of queued and running tasks of earlier submissions.
        tasks: number of tasks to submit.
        settings_left: number of settings that they can work on; ``None``: the budget has no limit on runs.
        retried: number of failed settings marked now for another execution.
    """

    submission: Submission | None
    live: int
    tasks: int
    settings_left: int | None
    retried: int = 0


def submit(
    search: Search,
    folder: DesignFolder,
    settings: Settings,
    *,
    ignore_queue: bool = False,
    dry_run: bool = False,
    retry_failed: bool = False,
) -> Submitted:
    """Submit the tasks that a search can use in addition to those it has; the caller holds the folder's lock.

    The results of ended tasks are processed first.

    Args:
        search: the search.
        folder: its folder.
        settings: execution settings of the runs.
        ignore_queue: treat all earlier tasks as gone, without asking Slurm.
        dry_run: submit nothing.
        retry_failed: see :meth:`Search.retry_failed`.

    Raises:
        SchedulerError: Slurm does not answer.
    """
    live = 0
    if not ignore_queue:
        recover_submissions(folder.path)
        states = states_of(folder.path)
        live = sum(not state.ended for of_one in states.values() for state in of_one.values())
        give_back(folder.path, states)
    retried = 0
    if retry_failed and not dry_run:
        retried = search.retry_failed()
    else:
        search.settle()
    search.write(now=True)
    assert search.spec.search is not None
    left = settings_left(search.spec.search, Trials.of(search.journal))
    needed = 0
    if search.over() is None:
        needed = max(0, tasks_for(search.spec.search, left, settings.slurm) - live)
    submission = None
    if needed and not dry_run:
        submission = submit_tasks(folder.path, *plan_search(folder, needed, settings))
    return Submitted(submission, live, needed, left, retried)


def settings_left(search: SearchSpec, trials: Trials) -> int | None:
    """Return the number of settings to work on: those not settled, and those that the rest of the budget allows.

    None if the budget has no limit on runs.
    """
    left = runs_left(search, trials)
    unsettled = sum(not trial.state.is_finished() for trial in trials.all)
    return None if left is None else unsettled + max(0, left) // search.seeds


def tasks_for(search: SearchSpec, left: int | None, slurm: SlurmSettings) -> int:
    """Return the number of tasks for ``left`` settings (``None``: unknown).

    With a number of runs per task, it follows from that. Otherwise, each task should execute ten settings in turn, or
    there are as many tasks as ``throttle`` allows, if that is more. There are never more tasks than settings.
    """
    at_a_time = slurm.runs_at_a_time
    if left is None:
        return slurm.throttle or _UNCOUNTED
    if slurm.runs_per_task is not None:
        return math.ceil(left * search.seeds / max(slurm.runs_per_task, search.seeds))
    in_turn = math.ceil(left / (SETTINGS_IN_TURN * at_a_time))
    return min(max(in_turn, slurm.throttle or 0), math.ceil(left / at_a_time))


def states_of(folder: Path) -> dict[int, dict[int, TaskState]]:
    """Return the states of the Slurm tasks that work on the search in ``folder``, by submission and task.

    Raises :class:`SchedulerError`.
    """
    submissions = Submissions(folder)
    return {
        submission.number: search_task_states(submissions, submission)
        for submission in _of_search(submissions)
    }


def _of_search(submissions: Submissions) -> list[Submission]:
    return [entry for entry in submissions.all() if entry.search and entry.executor == "slurm"]


class FailedTasks(NamedTuple):
    """The number of failed tasks of a submission, and the folder of their output."""

    tasks: int
    output: Path


def failed_tasks(folder: Path, states: Mapping[int, Mapping[int, TaskState]]) -> FailedTasks | None:
    """Return the failed tasks of the newest submission of a search, or None if none failed."""
    if not states:
        return None
    newest = max(states)
    failed = sum(state.failed for state in states[newest].values())
    return FailedTasks(failed, Submissions(folder).output(newest)) if failed else None


def give_back(folder: Path, states: Mapping[int, Mapping[int, TaskState]]) -> None:
    """Release the settings of killed tasks, and record their runs as interrupted.

    Otherwise it would take this host minutes to notice that processes of another host are gone.
    """
    submissions = Submissions(folder)
    over = {
        name
        for number, of_one in states.items()
        for name, task in task_numbers(submissions.read(number)).items()
        if task in of_one and of_one[task].ended
    }
    if not over:
        return
    for path, marker in _markers_of(over, (folder / JOBS).glob("*.running")):
        _note_killed(folder, path, marker)
    for path, _ in _markers_of(over, claims_folder(folder).glob("*.running")):
        files.remove(path, missing_ok=True)


def _markers_of(tasks: Collection[str], paths: Iterable[Path]) -> Iterator[tuple[Path, Marker]]:
    """Yield the markers of ended tasks, except those of processes of this host that are still ending."""
    for path in paths:
        marker = Marker.read(path)
        if marker is not None and marker.task in tasks and not (marker.of_this_host and marker.alive):
            yield path, marker


def _note_killed(folder: Path, path: Path, marker: Marker) -> None:
    stem = path.name.removesuffix(".running")
    job = Job(
        *(marker.run, marker.hash, folder / "runs" / f"{stem}.yml", folder / JOBS / stem),
        StoreLocation(str(folder)),
        marker.attempt,
        task=marker.task,
    )
    record = JobRecord.read(job.record)
    if record is None or not job.is_covered_by(record):
        write_end(job, marker, "interrupted", "its task on the cluster was killed", exit_code=FAILED)
    files.remove(path, missing_ok=True)


class TaskWatch:
    """Waits for the tasks that work on a search, and reports their progress. Cancelling cancels all of them.

    Attributes:
        settled: number of settings settled since the start.
        ended: number of runs executed since the start, by status.
        failures: the records of failed runs.
        states: the latest states of the tasks from Slurm, by submission and number.
    """

    def __init__(self, search: Search, fail_fast: bool, progress: SearchProgress):
        self._search, self._progress, self._fail_fast = search, progress, fail_fast
        self._path = search.path
        self._submissions, self._scheduler = Submissions(search.path), Slurm()
        self._known = {
            trial.number: (trial.state.is_finished(), len(runs_of(trial))) for trial in self._trials()
        }
        self._cancelled = self._cancel_sent = 0
        self._silent = self._stopped = False
        self.states: dict[int, dict[int, TaskState]] = {}
        self.settled, self.ended, self.failures = 0, Counter[str](), []  # type: int, Counter[str], list[JobRecord]

    @property
    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called."""
        return self._cancelled > 0

    def cancel(self, *, now: bool = False) -> None:
        """Request the end of the tasks; ``now``: kill them. Only sets a flag, so that a signal handler may call it."""
        self._cancelled = max(self._cancelled, 2 if now else 1)

    def wait(self) -> None:
        """Wait until no task is queued or running."""
        last_query, over = -math.inf, False
        while not over:
            if time.monotonic() - last_query >= _SQUEUE_POLL or self._cancelled > self._cancel_sent:
                last_query, self.states = time.monotonic(), self._ask(self.states)
                give_back(self._path, self.states)
                words = [state for of_one in self.states.values() for state in of_one.values()]
                over = bool(words) and all(state.ended for state in words)
            # Also once after the end.
            self._look()
            if not over:
                time.sleep(_POLL)

    def _trials(self) -> list[Any]:
        return self._search.journal.trials()

    def _look(self) -> None:
        """Report the new entries of the journal."""
        for trial in self._trials():
            was_settled, before = self._known.get(trial.number, (False, 0))
            runs = runs_of(trial)
            self._known[trial.number] = (trial.state.is_finished(), len(runs))
            for run in runs[before:]:
                self.ended[run.status] += 1
            for record in self._records(trial.number, range(before, len(runs))):
                self._progress.ended(record)
                if record.status == "failed":
                    self.failures.append(record)
            if trial.state.is_finished() and not was_settled:
                self.settled += 1
                self._progress.settled(record_of(trial))

    def _records(self, number: int, repetitions: Collection[int]) -> Iterator[JobRecord]:
        for run in self._search.runs_of(number) if repetitions else ():
            record = JobRecord.read(with_suffix(job_path(self._path, run), ".json"))
            if run.repetition in repetitions and record is not None:
                yield record

    def _ask(self, before: dict[int, dict[int, TaskState]]) -> dict[int, dict[int, TaskState]]:
        """Return the current states from Slurm, or those from ``before`` if it does not answer."""
        try:
            states = {
                submission.number: self._states(submission, before.get(submission.number, {}))
                for submission in _of_search(self._submissions)
            }
        except SchedulerError as error:
            if not self._silent:
                logger.warning(
                    "waiting for the tasks of the search, and for Slurm to answer again: %s", error
                )
            self._silent = True
            return before
        self._cancel_sent = self._cancelled
        self._stopped = self._stopped or bool(self._fail_fast and self.failures)
        self._silent = False
        return states

    def _states(self, submission: Submission, before: dict[int, TaskState]) -> dict[int, TaskState]:
        """Return the states of a submission's tasks, after cancelling those that are not needed."""
        if before and all(state.ended for state in before.values()):
            return before
        if self._cancelled > self._cancel_sent:
            self._scheduler.cancel(submission, now=self._cancelled > 1)
        states = search_task_states(self._submissions, submission, self._scheduler)
        queued = [task for task, state in states.items() if state is TaskState.QUEUED]
        if queued and self._fail_fast and self.failures and not self._stopped:
            self._scheduler.cancel(submission, queued)
        return states
