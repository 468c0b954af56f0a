"""Which task has a run, and what its scheduler says of that task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from palaestrai_mosaik.design.lock import execution_lock
from palaestrai_mosaik.errors import SchedulerError

from .scheduler import TaskWord
from .submission import Submission, Submissions, TaskRun


@dataclass(frozen=True, slots=True)
class Cover:
    """The newest task that has a run: its submission, its number, the run's attempt, and the word.

    ``word`` is ``None`` where nobody has asked, or the scheduler did not answer.
    """

    submission: int
    task: int
    attempt: int
    word: TaskWord | None


@dataclass
class Coverage:
    """The covers of the runs of a folder, by uid, and what schedulers that did not answer said."""

    covers: dict[str, Cover] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def coverage(
    folder: Path, hashes: Mapping[str, str], settled: Callable[[TaskRun], bool], *, held: bool
) -> Coverage:
    """Return which tasks have the runs of the folder, and ask the schedulers about them.

    ``hashes``: those of the documents, by the run's uid; a submission of other documents counts
    for nothing. ``settled`` says whether the record of a run is the last word: schedulers are asked
    only about submissions with runs of which it is not. ``held``: this process has the folder's lock.
    """
    submissions, found = Submissions(folder), Coverage()
    for number in reversed(submissions.numbers()):
        mine: dict[str, tuple[int, TaskRun]] = {}
        for task, runs in enumerate(submissions.tasks(number)):
            for run in runs:
                if run.run not in found.covers and hashes.get(run.run) == run.hash:
                    mine[run.run] = (task, run)
        words: Mapping[int, TaskWord] = {}
        asked = {task for task, run in mine.values() if not settled(run)}
        if asked:
            try:
                words = words_of(submissions, submissions.read(number), asked, held=held)
            except SchedulerError as error:
                found.problems.append(str(error))
        for uid, (task, run) in mine.items():
            found.covers[uid] = Cover(number, task, run.attempt, words.get(task))
    return found


def words_of(
    submissions: Submissions, submission: Submission, tasks: Collection[int], *, held: bool
) -> dict[int, TaskWord]:
    """Return the word about each of ``tasks``; how tasks ended is kept, because schedulers forget.

    Raises :class:`~palaestrai_mosaik.errors.SchedulerError`.
    """
    kept = {task: TaskWord(word) for task, word in submissions.ended(submission.number).items()}
    if all(task in kept for task in tasks):
        return {task: kept[task] for task in tasks}
    if submission.executor == "parsl":
        alive = not held and _driver_lives(submissions.folder)
        word = TaskWord.QUEUED if alive else TaskWord.GONE
        return {task: kept.get(task, word) for task in tasks}
    from .slurm import Slurm

    words = Slurm().words(submission) | kept
    ended = {task: word.value for task, word in words.items() if word.ended}
    if len(ended) > len(kept):
        submissions.note_ended(submission.number, ended)
    return {task: words.get(task, TaskWord.GONE) for task in tasks}


def _driver_lives(folder: Path) -> bool:
    """Whether the command that executes the folder, without which pilots end, is there."""
    lock = execution_lock(folder)
    if not lock.path.exists():
        return False
    try:
        with lock:
            return False
    except BlockingIOError:
        return True
    except OSError:  # a folder that cannot be written is executed by nobody
        return False
