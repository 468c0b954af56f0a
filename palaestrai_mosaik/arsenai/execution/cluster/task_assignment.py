"""Finds the tasks of a cluster that have runs of a folder, and their states."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from palaestrai_mosaik.arsenai.design.folder import JOBS, RUNS, execution_lock
from palaestrai_mosaik.core.errors import ExecutionError, SchedulerError

from ..job import Marker
from .scheduler import Scheduler, TaskState
from .submission import Submission, Submissions, TaskRun, task_numbers

_ENDED = frozenset(state.value for state in TaskState if state.ended)


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """The newest task of a run.

    Attributes:
        submission: the number of the submission.
        task: the number of the task.
        attempt: the number of the run's attempt.
        state: the state of the task; ``None`` if the scheduler was not queried, or did not answer.
        begun: whether any run of the task has begun.
        log: the file with the task's output, relative to the folder.
    """

    submission: int
    task: int
    attempt: int
    state: TaskState | None
    begun: bool = True
    log: str | None = None


@dataclass
class TaskAssignments:
    """The tasks that have the runs of a folder.

    Attributes:
        by_run: the task of each run, by uid.
        problems: submissions with unknown tasks, because the scheduler did not answer or a file is damaged.
        faults: messages about invalid settings of submissions.
        searching: the states of tasks that work on the folder's search, and have no runs of their own, by submission
            and number.
    """

    by_run: dict[str, TaskAssignment] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    searching: dict[int, dict[int, TaskState]] = field(default_factory=dict)


def task_assignments(
    folder: Path,
    hashes: Mapping[str, str],
    is_final: Callable[[TaskRun], bool],
    begun: Callable[[TaskRun], bool],
    *,
    held: bool,
    ask: bool = True,
) -> TaskAssignments:
    """Find the tasks that have the runs of a folder, and query the schedulers for their states.

    Args:
        folder: the design folder.
        hashes: the hash of each run's document, by uid. Submissions of other documents are ignored.
        is_final: whether the record of a run is final. Schedulers are queried only about submissions with
            other runs.
        begun: whether a run has begun the attempt of its task.
        held: whether this process has the folder's lock.
        ask: query the schedulers about tasks that work on the folder's search; their current runs are known from
            markers.
    """
    submissions, assignments = Submissions(folder), TaskAssignments()
    for number in reversed(submissions.numbers()):
        try:
            submission = submissions.read(number)
            tasks: Sequence[Sequence[TaskRun]] = list(submissions.tasks(number))
        except ExecutionError as error:
            assignments.problems.append(str(error))
            continue
        if submission.settings_fault is not None:
            assignments.faults.append(submission.settings_fault)
        if tasks and not any(tasks) and submission.search:
            tasks = _runs_at_work(submissions, submission)
            if ask:
                with _noting_problems(assignments):
                    assignments.searching[number] = search_task_states(submissions, submission)
        runs = [
            (task, run) for task, runs in enumerate(tasks) for run in runs if hashes.get(run.run) == run.hash
        ]
        at_work = {task for task, run in runs if begun(run)}
        newest = {run.run: (task, run) for task, run in runs if run.run not in assignments.by_run}
        states, logs = {}, {}
        queried = {task for task, run in newest.values() if not is_final(run)}
        if queried:
            logs = _logs(submissions, submission)
            with _noting_problems(assignments):
                states = task_states(submissions, submission, queried, held=held)
        for uid, (task, run) in newest.items():
            state, log = states.get(task), logs.get(task)
            assignments.by_run[uid] = TaskAssignment(number, task, run.attempt, state, task in at_work, log)
    return assignments


@contextmanager
def _noting_problems(assignments: TaskAssignments) -> Iterator[None]:
    """Add the error to the problems if a scheduler does not answer."""
    try:
        yield
    except SchedulerError as error:
        assignments.problems.append(str(error))


def search_task_states(
    submissions: Submissions, submission: Submission, slurm: Scheduler | None = None
) -> dict[int, TaskState]:
    """Return the states of tasks that work on a search, without a query if all of them have ended.

    ``slurm``: a scheduler to reuse for repeated queries.

    Raises :class:`~palaestrai_mosaik.core.errors.SchedulerError`.
    """
    recorded = _recorded_states(submissions, submission)
    if len(recorded) == submission.tasks:
        return recorded
    return task_states(submissions, submission, range(submission.tasks), held=True, slurm=slurm)


def _recorded_states(submissions: Submissions, submission: Submission) -> dict[int, TaskState]:
    """Return the final states of tasks that were recorded earlier."""
    words = submissions.ended(submission.number)
    return {task: TaskState(word) for task, word in words.items() if word in _ENDED}


def _runs_at_work(submissions: Submissions, submission: Submission) -> list[list[TaskRun]]:
    """Return the runs that each task of a search executes, or executed when it was killed."""
    numbers, runs = task_numbers(submission), [[] for _ in range(submission.tasks)]  # type: ignore[var-annotated]
    for path in (submissions.folder / JOBS).glob("*.running"):
        marker = Marker.read(path)
        task = None if marker is None else numbers.get(marker.task or "")
        if marker is not None and task is not None:
            # another user may have created a file with an invalid name
            with suppress(ValueError):
                file = f"{RUNS}/{path.name.removesuffix('.running')}.yml"
                runs[task].append(TaskRun(marker.run, marker.hash, file, marker.attempt))
    return runs


def _logs(submissions: Submissions, submission: Submission) -> dict[int, str]:
    """Return the output file of each task of Slurm, relative to the folder."""
    output = submissions.output(submission.number).relative_to(submissions.folder)
    return {number: str(output / f"{name}.log") for name, number in task_numbers(submission).items()}


def task_states(
    submissions: Submissions,
    submission: Submission,
    tasks: Collection[int],
    *,
    held: bool,
    slurm: Scheduler | None = None,
) -> dict[int, TaskState]:
    """Return the state of each of ``tasks``, and record final states, because schedulers forget them.

    A recorded state counts if the scheduler has forgotten a task, or does not answer. ``slurm``: a scheduler
    to reuse for repeated queries.

    Raises :class:`~palaestrai_mosaik.core.errors.SchedulerError`.
    """
    if submission.executor == "parsl":
        alive = not held and _driver_lives(submissions.folder, submission)
        return dict.fromkeys(tasks, TaskState.QUEUED if alive else TaskState.GONE)
    from .slurm import Slurm

    recorded = _recorded_states(submissions, submission)
    try:
        states = (slurm or Slurm()).task_states(submission)
    except SchedulerError:
        if not recorded.keys() >= set(tasks):
            raise
        return {task: recorded[task] for task in tasks}
    # the current state overrides a recorded one, because a task may have been requeued
    newest = recorded | {task: state for task, state in states.items() if state is not TaskState.GONE}
    ended = {task: state for task, state in newest.items() if state.ended}
    if ended != recorded:
        submissions.note_ended(submission.number, {task: state.value for task, state in ended.items()})
    return {task: newest.get(task, TaskState.GONE) for task in tasks}


def _driver_lives(folder: Path, submission: Submission) -> bool:
    """Whether the command that made the submission still holds the folder. Its pilots end with it."""
    holder = execution_lock(folder).holder()
    if holder is None or holder.since > submission.submitted:
        return False
    return holder.host != socket.gethostname() or psutil.pid_exists(holder.pid)
