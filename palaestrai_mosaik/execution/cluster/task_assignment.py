"""Which task has a run, and what its scheduler says of that task."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from palaestrai_mosaik.design.lock import execution_lock
from palaestrai_mosaik.errors import SchedulerError

from .scheduler import Scheduler, TaskState
from .submission import Submission, Submissions, TaskRun

_ENDED = frozenset(word.value for word in TaskState if word.ended)


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """The newest task that has a run: its submission, its number, the run's attempt, and the word.

    ``word`` is ``None`` where nobody has asked, or the scheduler did not answer. ``begun``: whether any run
    of the task has. ``log`` is the file for what the task prints, relative to the folder.
    """

    submission: int
    task: int
    attempt: int
    word: TaskState | None
    begun: bool = True
    log: str | None = None


@dataclass
class TaskAssignments:
    """The covers of the runs of a folder, by uid, and what schedulers that did not answer said."""

    covers: dict[str, TaskAssignment] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def coverage(
    folder: Path,
    hashes: Mapping[str, str],
    settled: Callable[[TaskRun], bool],
    begun: Callable[[TaskRun], bool],
    *,
    held: bool,
) -> TaskAssignments:
    """Return which tasks have the runs of the folder, and ask the schedulers about them.

    ``hashes``: those of the documents, by the run's uid; a submission of other documents counts
    for nothing. ``settled`` says whether the record of a run is the last word: schedulers are asked
    only about submissions with runs of which it is not. ``begun`` says whether a run has begun the attempt
    that a task is to execute. ``held``: this process has the folder's lock.
    """
    submissions, found = Submissions(folder), TaskAssignments()
    for number in reversed(submissions.numbers()):
        mine: dict[str, tuple[int, TaskRun]] = {}
        at_work: set[int] = set()
        for task, runs in enumerate(submissions.tasks(number)):
            for run in runs:
                if hashes.get(run.run) != run.hash:
                    continue
                if run.run not in found.covers:
                    mine[run.run] = (task, run)
                if begun(run):
                    at_work.add(task)
        words: Mapping[int, TaskState] = {}
        logs: Mapping[int, str] = {}
        asked = {task for task, run in mine.values() if not settled(run)}
        if asked:
            submission = submissions.read(number)
            logs = _logs(submissions, submission)
            try:
                words = words_of(submissions, submission, asked, held=held)
            except SchedulerError as error:
                found.problems.append(str(error))
        for uid, (task, run) in mine.items():
            word, log = words.get(task), logs.get(task)
            found.covers[uid] = TaskAssignment(number, task, run.attempt, word, task in at_work, log)
    return found


def _logs(submissions: Submissions, submission: Submission) -> dict[int, str]:
    """Return where each task of Slurm prints to, relative to the folder."""
    output = submissions.output(submission.number).relative_to(submissions.folder)
    return {
        array.first + element: str(output / f"{array.job}_{element}.log")
        for array in submission.arrays
        for element in range(array.tasks)
    }


def words_of(
    submissions: Submissions,
    submission: Submission,
    tasks: Collection[int],
    *,
    held: bool,
    slurm: Scheduler | None = None,
) -> dict[int, TaskState]:
    """Return the word about each of ``tasks``; how tasks ended is kept, because schedulers forget.

    What was kept counts where the scheduler has forgotten a task, or does not answer. ``slurm``: who is
    asked again and again; else one is made.

    Raises :class:`~palaestrai_mosaik.errors.SchedulerError`.
    """
    kept = {
        task: TaskState(word) for task, word in submissions.ended(submission.number).items() if word in _ENDED
    }
    if submission.executor == "parsl":
        alive = not held and _driver_lives(submissions.folder, submission)
        word = TaskState.QUEUED if alive else TaskState.GONE
        return dict.fromkeys(tasks, word)
    from .slurm import Slurm

    try:
        words = (slurm or Slurm()).words(submission)
    except SchedulerError:
        if all(task in kept for task in tasks):
            return {task: kept[task] for task in tasks}
        raise
    # what it says now goes first: what had ended may have been queued again
    ended = kept | {task: word for task, word in words.items() if word.ended and word is not TaskState.GONE}
    for task, word in words.items():
        if not word.ended:
            ended.pop(task, None)
    if ended != kept:
        submissions.note_ended(submission.number, {task: word.value for task, word in ended.items()})
    return {task: ended.get(task, words.get(task, TaskState.GONE)) for task in tasks}


def _driver_lives(folder: Path, submission: Submission) -> bool:
    """Whether the command that made the submission, without which its pilots end, still has the folder."""
    holder = execution_lock(folder).holder()
    if holder is None or holder.since > submission.submitted:
        return False
    return holder.host != socket.gethostname() or psutil.pid_exists(holder.pid)
