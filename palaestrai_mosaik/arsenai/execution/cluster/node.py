"""A task of a cluster on its node: executes its runs, and reports how they ended.

Slurm's script calls::

    python -m palaestrai_mosaik.cli.node FOLDER NUMBER TASK

with the number of the submission, and the number of the task in it. A task of a search executes the runs that the
search proposes (:mod:`palaestrai_mosaik.arsenai.search.task`). The exit code is 0 if all runs of the task have finished, 1 if
some have not, 130 if the task was asked to stop, and 2 if the folder does not have the task. SIGTERM and SIGINT
(cancelled or pre-empted) end the runs. SIGUSR1 (close to the time limit) does so, too, and then the task is requeued if
the submission allows it.

Parsl's workers call :func:`execute_task`.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from palaestrai_mosaik.arsenai.design.folder import JOBS, STORES
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import FAILED, FINISHED, INTERRUPTED, UNSOUND, ExecutionError
from palaestrai_mosaik.core.printing import use_standard_streams, write
from palaestrai_mosaik.runner.checkpoint import FOLDER as CHECKPOINTS
from palaestrai_mosaik.runner.worker_process import THREADS

from ..claim import wait_for_exits
from ..job import Evidence, Job, JobRecord, now
from ..local import LocalExecutor
from ..processes import DEFAULT_METHOD, Launcher, StartMethod
from ..settings import SlurmSettings
from ..task import GRACE
from .submission import Submission, Submissions

if TYPE_CHECKING:
    from ..early_stopping import Reporting

#: seconds within which the scheduler must answer
_SCHEDULER_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The number of runs of a task by how they ended; plain data.

    Attributes:
        finished: finished runs, including those of earlier starts of the task.
        failed: failed runs, including those of earlier starts of the task.
        interrupted: interrupted runs.
        left_out: runs skipped because another process executes them, or has executed their new documents after the
            design was generated again.
        not_begun: runs that had not begun when the task was ended.
        ended: whether the task was asked to end.
        moved_on: whether a run ended by itself, or wrote a checkpoint, since this start of the task.
    """

    finished: int
    failed: int
    interrupted: int
    left_out: int
    not_begun: int
    ended: bool
    moved_on: bool

    @property
    def exit_code(self) -> int:
        """The exit code of the task's process."""
        if self.ended and self.interrupted + self.not_begun:
            return INTERRUPTED
        return FAILED if self.failed + self.interrupted + self.left_out + self.not_begun else FINISHED


def execute_task(  # noqa: PLR0913 (each caller knows something else)
    folder: Path,
    number: int,
    task: int,
    *,
    name: str | None,
    launcher: Launcher | None = None,
    method: StartMethod = DEFAULT_METHOD,
    should_end: Callable[[], bool] = lambda: False,
    reporting: Reporting | None = None,
) -> TaskOutcome:
    """Execute the runs of a task that have not ended yet, and print how each of them ends.

    Args:
        folder: the design folder.
        number: the number of the submission.
        task: the number of the task in the submission.
        name: the scheduler's name of the task.
        launcher: starts the processes of the runs, and stays open; ``None``: a new one with ``method``.
        method: the start method of a new launcher.
        should_end: called once a second; the runs are asked to stop when it returns true.
        reporting: how the task's only run reports to a search; ``None``: it does not.

    Raises:
        ExecutionError: the folder does not have the task.
    """
    submissions = Submissions(folder)
    submission = submissions.read(number, task=task)
    runs = submissions.task(number, task)
    jobs = [replace(submissions.job(submission, run, name), reporting=reporting) for run in runs]
    make_folders(submissions.folder)
    wait_for_exits((job.marker for job in jobs), 2 * GRACE, lambda marker: marker.task == name)
    begun = clock(submissions.folder)
    todo, statuses = [], []
    for job in jobs:
        again = _again(job)
        if isinstance(again, JobRecord):
            statuses.append(again.status)
        else:
            todo.append(again)
    print_line(
        f"task {task} of submission {number} of {submissions.folder}, on {socket.gethostname()}: "
        f"{_runs(len(jobs))}, {len(statuses)} of them ended before"
    )
    executor = LocalExecutor(
        submission.processes,
        timeout=submission.timeout or None,
        runs_per_process=submission.runs_per_process,
        preload=submission.preload,
        method=method,
        launcher=launcher,
        should_end=should_end,
    )
    moved_on = False
    if todo:
        for record in executor.run(todo):
            print_record(record)
            statuses.append(record.status)
            moved_on = moved_on or record.status != "interrupted"
    by_run = {job.run: job for job in jobs}
    for run in executor.left_out:
        print_line(f"run {run}: left out, {_why_left_out(by_run[run])}")
    outcome = TaskOutcome(
        statuses.count("finished"),
        statuses.count("failed"),
        statuses.count("interrupted"),
        len(executor.left_out),
        len(jobs) - len(statuses) - len(executor.left_out),
        executor.cancelled,
        moved_on or any(newest_checkpoint(job) > begun for job in todo),
    )
    print_line(
        f"{_runs(len(jobs))}: {outcome.finished} finished, {outcome.failed} failed, "
        f"{outcome.interrupted} interrupted, {outcome.left_out} left out, {outcome.not_begun} not begun"
    )
    return outcome


def _again(job: Job) -> Job | JobRecord:
    """Return the next attempt at ``job``, or the record of a run that has already ended."""
    evidence = Evidence.of(job.path, job.hash)
    record = evidence.record
    if record is not None and record.attempt >= job.attempt and record.status != "interrupted":
        return record
    return replace(job, attempt=max(job.attempt, evidence.attempts + 1))


def _why_left_out(job: Job) -> str:
    record = JobRecord.read(job.record)
    if record is None or record.hash == job.hash or job.marker.exists():
        return "another process executes it"
    return "the design was generated anew since it was submitted, and its new document was executed"


def make_folders(folder: Path) -> None:
    """Create the folders that runs write to in a design folder. Raises :class:`ExecutionError`."""
    for part in (JOBS, STORES):
        try:
            files.make_folder(folder / part)
        except OSError as error:
            raise ExecutionError(f"cannot make {folder / part}: {error.strerror}") from error


def clock(folder: Path) -> float:
    """Return the time of the file system of a design folder. Raises :class:`ExecutionError`."""
    try:
        return files.file_system_time(folder / JOBS / "clock")
    except OSError as error:
        raise ExecutionError(f"cannot write to {folder / JOBS}: {error.strerror}") from error


def newest_checkpoint(job: Job) -> float:
    """Return the time at which the run's newest checkpoint was written; 0 if it has none."""
    checkpoints = Path(job.store.location).glob(f"instances/*/{CHECKPOINTS}/[0-9]*")
    return max((checkpoint.stat().st_mtime for checkpoint in checkpoints), default=0.0)


def print_record(record: JobRecord) -> None:
    """Print the end of a run to the log of a task."""
    error = f": {record.error}" if record.error else ""
    print_line(f"run {record.run}: {record.status} after {record.seconds:.1f} s{error}")


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def print_line(line: str) -> None:
    """Print a line with the time to the log of a task."""
    # flush each line, because this process may be killed at any time
    write(f"{now()} {line}", sys.stdout)


class _Signals:
    """The signals that a scheduler has sent: ``late`` is the warning of the time limit, ``ended`` a request to end."""

    def __init__(self) -> None:
        self.late = self.ended = False
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
        for number in numbers:
            signal.signal(number, self._handle)
        # the command blocks these signals until they can be handled
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self.late = True
        else:
            self.ended = True

    def __call__(self) -> bool:
        return self.late or self.ended


def requeue(submission: Submission, outcome: TaskOutcome, environment: Mapping[str, str]) -> bool:
    """Requeue this task in Slurm, if the settings allow it and the task has made progress.

    Args:
        submission: the submission.
        outcome: the outcome of the task.
        environment: the environment variables of the task.

    Returns:
        False if Slurm refused, true otherwise.
    """
    limit, before = (
        SlurmSettings.of(submission.settings).requeue,
        int(environment.get("SLURM_RESTART_COUNT", 0)),
    )
    if before >= limit:
        print_line(f"the time limit is near; the task is not requeued ({before} of {limit} requeues used)")
        return True
    if not outcome.moved_on:
        print_line(
            "the time limit is near; the task is not requeued: no run ended, and no checkpoint was written"
        )
        return True
    task = slurm_task(environment)
    print_line(f"the time limit is near; the task is requeued ({before + 1} of {limit})")
    try:
        command = ["scontrol", "requeue", str(task)]
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_SCHEDULER_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print_line(f"cannot requeue {task}: {error}")
        return False
    if result.returncode:
        print_line(f"cannot requeue {task}: {result.stderr.strip() or result.stdout.strip()}")
    return result.returncode == 0


def start_method(environment: Mapping[str, str]) -> StartMethod:
    """Return the start method for processes of runs. This process must have no other threads."""
    # numeric libraries have been imported, and have read their numbers of threads from the environment
    one_thread = all(environment.get(name) == "1" for name in THREADS)
    return "fork here" if DEFAULT_METHOD == "fork" and one_thread else DEFAULT_METHOD


def slurm_task(environment: Mapping[str, str]) -> str | None:
    """Return Slurm's name of this process's task; ``None`` outside of Slurm."""
    job, element = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    return None if job is None or element is None else f"{job}_{element}"


class ExecuteTask(Protocol):
    """A function that executes a task of a submission, like :func:`execute_task`."""

    def __call__(
        self,
        folder: Path,
        number: int,
        task: int,
        *,
        name: str | None,
        method: StartMethod = DEFAULT_METHOD,
        should_end: Callable[[], bool] = lambda: False,
    ) -> TaskOutcome:
        """Execute the task, and return how its runs ended."""


def main(search: ExecuteTask, arguments: Sequence[str] | None = None) -> int:
    """Execute a task; return the exit code.

    Args:
        search: executes a task of a search.
        arguments: the command line; ``None``: that of this process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m palaestrai_mosaik.cli.node",
        description="Execute the runs of one task of a submission.",
    )
    parser.add_argument("folder", type=Path, help="the design folder")
    parser.add_argument("submission", type=int, help="the submission's number")
    parser.add_argument("task", type=int, help="the task's number in the submission, from 0")
    use_standard_streams()
    options = parser.parse_args(arguments)
    signals = _Signals()
    try:
        execute = search if Submissions(options.folder).read(options.submission).search else execute_task
        outcome = execute(
            *(options.folder, options.submission, options.task),
            name=slurm_task(os.environ),
            method=start_method(os.environ),
            should_end=signals,
        )
        if signals.late and not signals.ended and outcome.exit_code == INTERRUPTED:
            submission = Submissions(options.folder).read(options.submission)
            if not requeue(submission, outcome, os.environ):
                return FAILED
    except ExecutionError as error:
        write(f"error: {error}", sys.stderr)
        return UNSOUND
    return outcome.exit_code
