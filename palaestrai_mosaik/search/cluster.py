"""A search on Slurm: how many tasks work on it, what tasks that have ended left, and waiting for them.

A submission of a search is one of a design, with tasks that have no runs: each asks for its next setting itself
(:mod:`.task`). All that they share is the journal in the folder.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from palaestrai_mosaik import files
from palaestrai_mosaik.design.folder import JOBS, DesignFolder
from palaestrai_mosaik.design.model import SearchSpec
from palaestrai_mosaik.errors import FAILED, SchedulerError
from palaestrai_mosaik.execution import JobRecord, Settings
from palaestrai_mosaik.execution.cluster.scheduler import TaskState
from palaestrai_mosaik.execution.cluster.settings import SlurmSettings
from palaestrai_mosaik.execution.cluster.slurm import Slurm
from palaestrai_mosaik.execution.cluster.submission import Submission, Submissions, task_numbers
from palaestrai_mosaik.execution.cluster.submit import plan_search, recover_submissions, submit_tasks
from palaestrai_mosaik.execution.cluster.task_assignment import search_task_states
from palaestrai_mosaik.execution.job import Job, Marker, with_suffix
from palaestrai_mosaik.execution.status import job_path
from palaestrai_mosaik.store.location import StoreLocation

from .budget import runs_left
from .progress import SearchProgress
from .retries import marked_settings
from .search import Search
from .settings import claims_folder, record_of, runs_of

logger = logging.getLogger(__name__)
#: settings that a task is expected to execute one after the other: with fewer, a sampler learns too little
SETTINGS_IN_TURN = 10
#: tasks where the budget does not count runs, and nothing limits them
_UNCOUNTED = 10
#: seconds between two looks at the journal, and between two questions to Slurm
_POLL, _SQUEUE_POLL = 0.5, 5.0


@dataclass(frozen=True, slots=True)
class Submitted:
    """What :func:`submit` has done.

    Attributes:
        submission: the new submission; ``None``: no task was submitted.
        live: how many tasks of earlier ones wait or run.
        tasks: how many tasks there were to submit.
        settings_left: how many settings they can work on; ``None``: the budget does not count runs.
        retried: how many failed settings are executed once more because that was asked for now.
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
    """Submit as many tasks as a search can use, and does not have yet; the caller holds the folder's lock.

    What tasks that have ended left is taken in before. ``ignore_queue``: count no task as live, and do not ask Slurm.
    ``dry_run``: submit nothing. ``retry_failed``: see :meth:`Search.retry_failed`. Raises :class:`SchedulerError` where Slurm does not answer.
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
    marked, trials = marked_settings(search.journal), search.journal.trials()
    left = settings_left(search.spec.search, trials, marked)
    wanted = 0
    if search.over() is None:
        wanted = max(0, tasks_for(search.spec.search, left, settings.slurm) - live)
    submission = None
    if wanted and not dry_run:
        submission = submit_tasks(folder.path, *plan_search(folder, wanted, settings))
    return Submitted(submission, live, wanted, left, retried)


def settings_left(search: SearchSpec, trials: Sequence[Any], marked: Collection[int] = ()) -> int | None:
    """Return how many settings there are to work on: those not settled, and what is left of the budget.

    ``None`` where it does not count runs. Those that are ``marked`` are executed again, and do not count.
    """
    left = runs_left(search, trials, marked=marked)
    unsettled = sum(not trial.state.is_finished() for trial in trials)
    return None if left is None else unsettled + max(0, left) // search.seeds


def tasks_for(search: SearchSpec, left: int | None, slurm: SlurmSettings) -> int:
    """Return how many tasks are to work on so many settings (``None``: nobody knows how many).

    Where it is said how many runs a task executes, as many as that takes; else so many that each is expected to execute
    ten settings in turn, or as many as ``throttle`` allows, if that is more. Never more than there are settings for.
    """
    at_a_time = slurm.runs_at_a_time
    if left is None:
        return slurm.throttle or _UNCOUNTED
    if slurm.runs_per_task is not None:
        return math.ceil(left * search.seeds / max(slurm.runs_per_task, search.seeds))
    in_turn = math.ceil(left / (SETTINGS_IN_TURN * at_a_time))
    return min(max(in_turn, slurm.throttle or 0), math.ceil(left / at_a_time))


def states_of(folder: Path) -> dict[int, dict[int, TaskState]]:
    """Return the states of all tasks on Slurm that work on the search in ``folder``, for each submission.

    Raises :class:`SchedulerError`.
    """
    submissions = Submissions(folder)
    return {
        one.number: search_task_states(submissions, one)
        for one in submissions.all()
        if one.search and one.executor == "slurm"
    }


class FailedTasks(NamedTuple):
    """How many tasks of a submission have failed, and the folder of what they printed."""

    tasks: int
    output: Path


def failed_tasks(folder: Path, states: Mapping[int, Mapping[int, TaskState]]) -> FailedTasks | None:
    """Return how many tasks have failed of the newest submission that works on a search; ``None``: none of them has."""
    if not states:
        return None
    newest = max(states)
    failed = sum(state.failed for state in states[newest].values())
    return FailedTasks(failed, Submissions(folder).output(newest)) if failed else None


def give_back(folder: Path, states: Mapping[int, Mapping[int, TaskState]]) -> None:
    """Give back the settings that tasks had when they were killed, and record that their runs were interrupted.

    Otherwise this host would not know for minutes that processes of another one are gone.
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
    for path in (folder / JOBS).glob("*.running"):
        marker = Marker.read(path)
        # (a process of this host that still ends is believed)
        if marker is not None and marker.task in over and not (marker.of_this_host and marker.alive):
            _note_killed(folder, path, marker)
    for path in claims_folder(folder).glob("*.running"):
        marker = Marker.read(path)
        if marker is not None and marker.task in over and not (marker.of_this_host and marker.alive):
            files.remove(path, missing_ok=True)


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
        error = "its task on the cluster was killed"
        JobRecord.of_dead_process(
            job, marker, status="interrupted", seconds=0.0, exit_code=FAILED, error=error
        ).write(job.record)
    files.remove(path, missing_ok=True)


class TaskWatch:
    """Waits for the tasks that work on a search, and tells what they do. Cancelling cancels all of them.

    Attributes:
        settled: how many settings were settled meanwhile.
        ended: how many runs were executed meanwhile, by how they ended.
        failures: the records of those that failed.
        states: what Slurm said last of the tasks, by number, for each submission.
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
        """End the tasks; ``now``: kill them. Only notes the wish: a signal handler may call it."""
        self._cancelled = max(self._cancelled, 2 if now else 1)

    def wait(self) -> None:
        """Wait until no task waits or runs."""
        asked, over = -math.inf, False
        while not over:
            if time.monotonic() - asked >= _SQUEUE_POLL or self._cancelled > self._cancel_sent:
                asked, self.states = time.monotonic(), self._ask(self.states)
                give_back(self._path, self.states)
                words = [state for of_one in self.states.values() for state in of_one.values()]
                over = bool(words) and all(state.ended for state in words)
            # (once more after the end)
            self._look()
            if not over:
                time.sleep(_POLL)

    def _trials(self) -> list[Any]:
        return self._search.journal.trials()

    def _look(self) -> None:
        """Tell what the journal has that it had not before."""
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
        """Return what Slurm says now; what it has said ``before`` where it does not answer."""
        try:
            live = [one for one in self._submissions.all() if one.search and one.executor == "slurm"]
            states: dict[int, dict[int, TaskState]] = {}
            for one in live:
                known = before.get(one.number)
                if known is not None and all(state.ended for state in known.values()):
                    states[one.number] = known
                    continue
                if self._cancelled > self._cancel_sent:
                    self._scheduler.cancel(one, now=self._cancelled > 1)
                states[one.number] = search_task_states(self._submissions, one, self._scheduler)
                if self._fail_fast and self.failures and not self._stopped:
                    queued = [task for task, state in states[one.number].items() if state is TaskState.QUEUED]
                    if queued:
                        self._scheduler.cancel(one, queued)
            self._cancel_sent = self._cancelled
            self._stopped = self._stopped or bool(self._fail_fast and self.failures)
        except SchedulerError as error:
            if not self._silent:
                logger.warning(
                    "waiting for the tasks of the search, and for Slurm to answer again: %s", error
                )
            self._silent = True
            return before
        self._silent = False
        return states
