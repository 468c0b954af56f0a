"""Submits, monitors and cancels job arrays with Slurm's commands.

The commands are called without a shell, and print in machine-readable formats. The variable ``SLURM_CONF`` selects the
cluster.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from palaestrai_mosaik.core.errors import INTERRUPTED, SchedulerError

from .scheduler import Scheduler, TaskState
from .submission import Array, Submission

#: time limit of a command in seconds; sbatch itself retries for two minutes if the cluster is busy
_PATIENCE = 180.0
#: delay of the accounting after the end of a job, and pause between two queries, in seconds
_LAG, _POLL = 10.0, 1.0
#: time limit of a submission in seconds; tasks without an array by then never get one
_SUBMITTING = 600.0
#: all jobs, one line per element; --all includes hidden partitions
_ALL = ("--noheader", "--all", "--array", "--states=all")
#: make sacct list all jobs, not only today's
_SINCE = "--starttime=1970-01-01"
#: maximum length of a command's output in an error message
_QUOTED = 500

_Q, _R = TaskState.QUEUED, TaskState.RUNNING
#: Slurm's job states; several of them mean running or queued
_STATES: Mapping[str, TaskState] = {
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD"), _Q),
    **dict.fromkeys(("SPECIAL_EXIT", "CONFIGURING"), _Q),
    # the exit state of a completing job is not known yet
    **dict.fromkeys(("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT", "SIGNALING"), _R),
    **dict.fromkeys(("RESIZING", "POWER_UP_NODE", "UPDATE_DB"), _R),
    "COMPLETED": TaskState.COMPLETED,
    "FAILED": TaskState.FAILED,
    **dict.fromkeys(("LAUNCH_FAILED", "RECONFIG_FAIL"), TaskState.FAILED),
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), TaskState.TIMED_OUT),
    "OUT_OF_MEMORY": TaskState.OUT_OF_MEMORY,
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL"), TaskState.NODE_FAILED),
    # a pre-empted job that may be queued again is REQUEUED or PENDING
    **dict.fromkeys(("CANCELLED", "PREEMPTED", "REVOKED"), TaskState.CANCELLED),
}
#: wait statuses of scripts that ended because the time limit was near: all runs were interrupted; the signal killed
#: Python during its start; the signal killed the script in its prologue
_ASKED_TO_END = frozenset({INTERRUPTED << 8, (128 + signal.SIGUSR1) << 8, int(signal.SIGUSR1)})
#: environment variables with options of sbatch; the options of the script override them
_FOR_SBATCH = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_MEM_PER_CPU": "memory",
    "SBATCH_MEM_PER_NODE": "memory",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_TIMELIMIT": "time",
    **dict.fromkeys(
        ("SBATCH_ARRAY_INX", "SBATCH_EXPORT", "SBATCH_JOB_NAME", "SBATCH_NO_REQUEUE", "SBATCH_OPEN_MODE"), ""
    ),
    **dict.fromkeys(("SBATCH_OUTPUT", "SBATCH_REQUEUE", "SBATCH_SIGNAL", "SBATCH_WAIT"), ""),
}
#: variables that may hold a database password, which no task needs and Slurm would store with the job
_SECRET = ("PALAESTRAI_MOSAIK_STORE", "PGPASSWORD")
_SECRET_VALUE = re.compile(r"postgres(ql)?(\+\w+)?://", re.IGNORECASE)


#: a job, the index of an element (``None``: all elements without their own report), and its state
_Report = tuple[str, int | None, TaskState]


@dataclass
class LiveJob:
    """An array that has not ended: the path of its script, and the states of its tasks."""

    script: str
    words: list[TaskState] = field(default_factory=list)


class Slurm(Scheduler):
    """The Slurm cluster of this host's commands, with or without accounting."""

    def submit(self, submission: Submission, script: Path, first: int, tasks: int) -> Array:
        """Submit an array of ``tasks`` elements for the tasks from ``first`` on.

        ``script`` takes ``first`` as its argument. Raises :class:`SchedulerError` if Slurm refuses.
        """
        throttle = submission.settings.get("throttle")
        elements = f"0-{tasks - 1}" + (f"%{throttle}" if throttle else "")
        environment = _for_sbatch(submission.settings)
        arguments = ["--parsable", f"--array={elements}", str(script), str(first)]
        printed = _call("sbatch", *arguments, environment=environment)
        # in a federation, the name of the cluster follows
        job = printed.strip().rpartition("\n")[2].partition(";")[0]
        if not job.isdigit():
            raise SchedulerError(f"sbatch printed {_quoted(printed)!r}, which is no number of a job")
        return Array(job, first, tasks)

    def arrays(self, name: str) -> dict[str, int]:
        """Return the number of elements of each array with this name, by job.

        Arrays that Slurm refused are left out.
        """
        elements: list[tuple[str, int | None]] = []
        refused = set()
        for job, element, state, reason in _listed(name, "%T", "%r"):
            elements.append((job, element))
            if (state, reason) == ("FAILED", "BadConstraints"):
                refused.add(job)
        if self._has_accounting:
            elements += [(job, element) for job, element, _ in _accounts(f"--name={name}", _SINCE)]
        sizes: dict[str, int] = {}
        for job, element in elements:
            if element is not None and job not in refused:
                sizes[job] = max(sizes.get(job, 0), element + 1)
        return sizes

    def live(self, name: str) -> dict[str, LiveJob]:
        """Return the queued and running arrays with this name, by job."""
        jobs: dict[str, LiveJob] = {}
        for job, _, state, command in _listed(name, "%T", "%o"):
            word = _task_state(state)
            if not word.ended:
                # the command is the script with its argument
                script = re.sub(r" \d+$", "", command)
                jobs.setdefault(job, LiveJob(script)).words.append(word)
        return jobs

    def cancel_jobs(self, jobs: Collection[str]) -> None:
        """Cancel all tasks of these jobs, like :meth:`cancel`."""
        if jobs:
            _call("scancel", "--quiet", *jobs)

    def task_states(self, submission: Submission) -> dict[int, TaskState]:
        """See :class:`Scheduler`.

        The controller is queried first, then the accounting, which learns of the end of a job
        seconds later. A task without an array counts as queued for ten minutes, while it may still be
        submitted; after that, as cancelled.
        """
        if submission.cluster is not None and submission.cluster != self.cluster:
            raise SchedulerError(
                f"submission {submission.number} went to the cluster {submission.cluster!r}, and this is "
                f"{self.cluster!r}"
            )
        words = _by_task(submission, _queue(submission.name))
        submitted = range(sum(array.tasks for array in submission.arrays))
        until = time.monotonic() + _LAG
        while (missing := set(submitted) - words.keys()) and self._has_accounting:
            jobs = ",".join(array.job for array in submission.arrays)
            reports = _by_task(submission, _accounts(f"--jobs={jobs}"))
            words |= {task: reports[task] for task in missing if task in reports and reports[task].ended}
            if missing <= words.keys() or time.monotonic() > until:
                break
            time.sleep(_POLL)
        early = _Q if _age(submission) < _SUBMITTING else TaskState.CANCELLED
        return {
            task: words.get(task, TaskState.GONE if task in submitted else early)
            for task in range(submission.tasks)
        }

    def cancel(
        self, submission: Submission, tasks: Collection[int] | None = None, *, now: bool = False
    ) -> None:
        """See :class:`Scheduler`. Slurm terminates running tasks, and kills them after half a minute."""
        if now:
            _call("scancel", "--quiet", "--signal=KILL", "--full", f"--name={submission.name}")
        if tasks is None:
            _call("scancel", "--quiet", f"--name={submission.name}")
            return
        live = {task for task, word in self.task_states(submission).items() if not word.ended}
        for array in submission.arrays:
            elements = sorted(live.intersection(tasks, range(array.first, array.first + array.tasks)))
            if elements:
                _call("scancel", "--quiet", f"{array.job}_[{_ranges(elements, array.first)}]")

    @property
    def cluster(self) -> str | None:
        """The cluster's name, or ``None`` if it has none."""
        return self._configuration.get("ClusterName")

    @property
    def array_size(self) -> int:
        """The maximum number of elements of an array."""
        limits = [self._limit("MaxArraySize", self._configuration.get("MaxArraySize", "1001"))]
        more = re.search(r"\bmax_array_tasks=(\d+)", self._configuration.get("SchedulerParameters", ""))
        if more:
            limits.append(int(more[1]))
        if min(limits) < 1:
            raise SchedulerError(
                "this Slurm takes no job arrays (MaxArraySize=0): its administrators know why"
            )
        return min(limits)

    @staticmethod
    def _limit(name: str, value: str) -> int:
        if not value.isdigit():
            raise SchedulerError(f"scontrol says {name}={value!r}, which is no number")
        return int(value)

    @property
    def _has_accounting(self) -> bool:
        return self._configuration.get("AccountingStorageType", "") not in ("", "accounting_storage/none")

    @cached_property
    def _configuration(self) -> dict[str, str]:
        lines = (line.partition("=") for line in _call("scontrol", "show", "config").splitlines())
        return {key.strip(): value.strip() for key, equals, value in lines if equals}


def elements_of(text: str) -> Iterator[int]:
    """Expand Slurm's short form of array elements: ``5``, or ``[0-2,7,10-20:5%3]``."""
    for part in filter(None, text.strip("[]").partition("%")[0].split(",")):
        span, _, step = part.partition(":")
        low, dash, high = span.partition("-")
        yield from range(int(low), int(high if dash else low) + 1, int(step or 1))


def _ranges(elements: Collection[int], first: int) -> str:
    """Format sorted numbers in the short form, relative to ``first``."""
    spans: list[list[int]] = []
    for element in elements:
        if spans and spans[-1][1] == element - 1:
            spans[-1][1] = element
        else:
            spans.append([element, element])
    return ",".join(f"{low - first}-{high - first}" for low, high in spans)


def _queue(name: str) -> Iterator[_Report]:
    """Yield the controller's reports of the jobs ``name``."""
    reports = [(job, element, _task_state(state)) for job, element, state in _listed(name, "%T")]
    failed = any(state is TaskState.FAILED for *_, state in reports)
    statuses = _wait_statuses(name) if failed else {}
    for job, element, state in reports:
        yield job, element, _refined(state, statuses.get((job, element)))


def _wait_statuses(name: str) -> dict[tuple[str, int], int]:
    """Query the controller for the wait statuses of the elements of the jobs ``name``."""
    statuses = {}
    # without wait statuses, the states still count
    with suppress(SchedulerError):
        columns = "ArrayJobID:|,ArrayTaskID:|,exit_code:|"
        for line in _call("squeue", *_ALL, f"--name={name}", f"--Format={columns}").split("\n"):
            job, *numbers = (part.strip() for part in line.split("|")[:3])
            if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
                statuses[job, int(numbers[0])] = int(numbers[1])
    return statuses


def _refined(state: TaskState, status: int | None) -> TaskState:
    """Distinguish a failed task from one that ended on request, by its wait status."""
    return TaskState.ASKED_TO_END if state is TaskState.FAILED and status in _ASKED_TO_END else state


def _listed(name: str, *columns: str) -> Iterator[Any]:
    """Yield the job, the element and these columns of squeue for each task of the jobs ``name``."""
    formats = ("%F", "%K", *columns)
    for line in _call("squeue", *_ALL, f"--name={name}", f"--format={'|'.join(formats)}").split("\n"):
        parts = line.split("|", len(formats) - 1)
        # the path of another user's job may contain a line break
        if len(parts) < len(formats):
            continue
        job, elements, *more = parts
        # elements that were cancelled together before they began share a line without a number
        for element in [None] if elements == "N/A" else elements_of(elements):
            yield job, element, *more


def _accounts(*which: str) -> Iterator[_Report]:
    """Yield the accounting's reports of these jobs."""
    arguments = ("--noheader", "--parsable2", "--allocations", "--format=JobID,ExitCode,State")
    for line in _call("sacct", *arguments, *which).splitlines():
        task, exit_code, state = (*line.split("|", 2), "", "")[:3]
        code, _, number = exit_code.partition(":")
        ended = code.isdecimal() and number.isdecimal()
        status = (int(code) << 8) + int(number) if ended else None
        job, _, elements = task.partition("_")
        # the common line of waiting elements is outdated for an element with its own line
        for element in elements_of(elements) if elements.isdigit() else [None]:
            yield job, element, _refined(_task_state(state), status)


def _by_task(submission: Submission, reports: Iterable[_Report]) -> dict[int, TaskState]:
    """Map the reports to numbers of tasks.

    An array that the submission does not list has just been submitted: it has the tasks after those of the others.
    """
    arrays = {array.job: array for array in submission.arrays}
    next_ = sum(array.tasks for array in submission.arrays)
    words: dict[int, TaskState] = {}
    defaults: dict[int, TaskState] = {}
    for job, element, word in reports:
        array = arrays.get(job, Array(job, next_, max(submission.tasks - next_, 0)))
        if element is None:
            defaults |= dict.fromkeys(range(array.first, array.first + array.tasks), word)
        else:
            words[array.first + element] = word
    return defaults | words


def _task_state(state: str) -> TaskState:
    # the accounting appends "by" and a user to the state of a cancelled job
    name = state.split(maxsplit=1)[0] if state.strip() else ""
    if name not in _STATES:
        raise SchedulerError(f"Slurm says {state!r} of a job, a state that this version does not know")
    return _STATES[name]


def _age(submission: Submission) -> float:
    since = submission.submitted
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()
    except (ValueError, TypeError):  # no time, or a time without a zone
        raise SchedulerError(f"submission {submission.number} says {since!r} for when it was made") from None


def _for_sbatch(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the environment of sbatch, which the tasks inherit."""
    environment = _environment()
    for name, value in list(environment.items()):
        setting = _FOR_SBATCH.get(name)
        if (
            setting == ""
            or (setting and settings.get(setting) is not None)
            or name in _SECRET
            or _SECRET_VALUE.match(value)
        ):
            del environment[name]
    return environment


def _environment() -> dict[str, str]:
    """Return the environment without variables that change the commands' output or defaults.

    Within a job, this includes the variables that identify the job and its steps.
    """
    ours = re.compile(r"(SLURM|SLURMD|SQUEUE|SACCT|SCANCEL|SCONTROL)_")
    return {name: value for name, value in os.environ.items() if name == "SLURM_CONF" or not ours.match(name)}


def _call(program: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """Run a command of Slurm and return its output. Raises :class:`SchedulerError`."""
    try:
        result = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PATIENCE,
            env=_environment() if environment is None else environment,
            check=False,
        )
    except FileNotFoundError:
        raise SchedulerError(
            f"there is no {program!r} on this host: the commands of Slurm are needed (on clusters they are on "
            "the login nodes, some need 'module load slurm')"
        ) from None
    except OSError as error:
        raise SchedulerError(f"{program!r} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise SchedulerError(f"{program} did not answer within {_PATIENCE:g} s") from None
    if result.returncode != 0:
        message = _quoted(result.stderr or result.stdout) or f"exit code {result.returncode}"
        hint = (
            "; 'scontrol ping' says whether its controller is up"
            if re.search("contact|connect", message, re.IGNORECASE)
            else ""
        )
        raise SchedulerError(f"{program} says: {message}{hint}")
    return result.stdout


def _quoted(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines)[:_QUOTED]
