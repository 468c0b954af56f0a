"""Slurm, asked by its own commands: job arrays are submitted, looked after, and ended.

The commands are called with lists of arguments, never by a shell, and what they print is read in the
forms that are meant for programs. ``SLURM_CONF`` says which cluster is meant, where it is set.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from palaestrai_mosaik.errors import SchedulerError

from .scheduler import Scheduler, TaskState
from .submission import Array, Submission

#: seconds that a command may take; sbatch tries again for two minutes where the cluster is busy
_PATIENCE = 180.0
#: seconds after which the accounting of a cluster has heard how a job ended, and between two looks
_LAG, _POLL = 10.0, 1.0
#: seconds that submitting may take; what has no array then never gets one
_SUBMITTING = 600.0
#: which jobs sacct tells of: not only those of today
_SINCE = "--starttime=1970-01-01"
#: characters of a command's answer that an error quotes
_QUOTED = 500

_Q, _R = TaskState.QUEUED, TaskState.RUNNING
#: the words for the states of jobs, some of which mean that it runs, or will run
_STATES: Mapping[str, TaskState] = {
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD"), _Q),
    **dict.fromkeys(("SPECIAL_EXIT", "CONFIGURING"), _Q),
    # (a completing job has ended, but how is known only when it is over)
    **dict.fromkeys(("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT", "SIGNALING"), _R),
    **dict.fromkeys(("RESIZING", "POWER_UP_NODE", "UPDATE_DB"), _R),
    "COMPLETED": TaskState.COMPLETED,
    "FAILED": TaskState.FAILED,
    **dict.fromkeys(("LAUNCH_FAILED", "RECONFIG_FAIL"), TaskState.FAILED),
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), TaskState.TIMED_OUT),
    "OUT_OF_MEMORY": TaskState.OUT_OF_MEMORY,
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL"), TaskState.NODE_FAILED),
    # (what is pre-empted and may be queued again is REQUEUED or PENDING)
    **dict.fromkeys(("CANCELLED", "PREEMPTED", "REVOKED"), TaskState.CANCELLED),
}
#: environment variables that say how a job is submitted; what the script says goes before them
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
#: they may hold the password of a database, which no task needs and Slurm would keep with the job
_SECRET = ("PALAESTRAI_MOSAIK_STORE", "PGPASSWORD")
_SECRET_VALUE = re.compile(r"postgres(ql)?(\+\w+)?://", re.IGNORECASE)


#: a job, the element of it that is meant (``None``: all that nothing else is said of), and the word
_Report = tuple[str, int | None, TaskState]


@dataclass
class LiveJob:
    """An array that Slurm has not ended: the path of its script, and the words about its tasks."""

    script: str
    words: list[TaskState] = field(default_factory=list)


class Slurm(Scheduler):
    """The Slurm that the commands on this host belong to, with or without accounting."""

    def submit(self, submission: Submission, script: Path, first: int, tasks: int) -> Array:
        """Submit an array of ``tasks`` elements for the tasks from ``first`` on.

        ``script`` takes ``first`` as its argument. Raises :class:`SchedulerError` where Slurm refuses.
        """
        throttle = submission.settings.get("throttle")
        elements = f"0-{tasks - 1}" + (f"%{throttle}" if throttle else "")
        environment = _for_sbatch(submission.settings)
        arguments = ["--parsable", f"--array={elements}", str(script), str(first)]
        printed = _call("sbatch", *arguments, environment=environment)
        # (with several clusters, the name of this one follows)
        job = printed.strip().rpartition("\n")[2].partition(";")[0]
        if not job.isdigit():
            raise SchedulerError(f"sbatch printed {_quoted(printed)!r}, which is no number of a job")
        return Array(job, first, tasks)

    def arrays(self, name: str) -> dict[str, int]:
        """Return the arrays with this name that Slurm remembers: how many elements each has, by job.

        What Slurm has refused is none of them, though it remembers that, too.
        """
        known: list[tuple[str, int | None]] = []
        refused = set()
        for job, element, state, reason in _listed(name, "%T", "%r"):
            known.append((job, element))
            if (state, reason) == ("FAILED", "BadConstraints"):
                refused.add(job)
        if self._has_accounting:
            known += [(job, element) for job, element, _ in _accounts(f"--name={name}", _SINCE)]
        found: dict[str, int] = {}
        for job, element in known:
            if element is not None and job not in refused:
                found[job] = max(found.get(job, 0), element + 1)
        return found

    def live(self, name: str) -> dict[str, LiveJob]:
        """Return the arrays with this name that wait or run, by job."""
        found: dict[str, LiveJob] = {}
        for job, _, state, command in _listed(name, "%T", "%o"):
            word = _task_state(state)
            if not word.ended:
                # (the command is the script with its argument)
                script = re.sub(r" \d+$", "", command)
                found.setdefault(job, LiveJob(script)).words.append(word)
        return found

    def cancel_jobs(self, jobs: Collection[str]) -> None:
        """End all tasks of these jobs, as :meth:`cancel` does."""
        if jobs:
            _call("scancel", "--quiet", *jobs)

    def task_states(self, submission: Submission) -> dict[int, TaskState]:
        """See :class:`Scheduler`.

        What the controller remembers is asked first, then the accounting, which hears of the end of a job
        seconds later. A task without an array is queued as long as it may yet be submitted, ten
        minutes; then it is cancelled, as it was never begun.
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
        """See :class:`Scheduler`. Slurm tells what runs to end, and kills it after half a minute."""
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
        """The cluster's name, ``None`` where it has none."""
        return self._configuration.get("ClusterName")

    @property
    def array_size(self) -> int:
        """How many elements an array may have."""
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
    """Yield the elements of an array in Slurm's short form: ``5``, or ``[0-2,7,10-20:5%3]``."""
    for part in filter(None, text.strip("[]").partition("%")[0].split(",")):
        span, _, step = part.partition(":")
        low, dash, high = span.partition("-")
        yield from range(int(low), int(high if dash else low) + 1, int(step or 1))


def _ranges(elements: Collection[int], first: int) -> str:
    """Return sorted numbers in the short form, counted from ``first``."""
    spans: list[list[int]] = []
    for element in elements:
        if spans and spans[-1][1] == element - 1:
            spans[-1][1] = element
        else:
            spans.append([element, element])
    return ",".join(f"{low - first}-{high - first}" for low, high in spans)


def _queue(name: str) -> Iterator[_Report]:
    """Yield what the controller remembers of the jobs ``name``."""
    for job, element, state in _listed(name, "%T"):
        yield job, element, _task_state(state)


def _listed(name: str, *columns: str) -> Iterator[Any]:
    """Yield job, element and these columns of squeue for each task of the jobs ``name``."""
    wanted = ("%F", "%K", *columns)
    # (--all: partitions that are hidden from users, too)
    arguments = (
        "--noheader",
        "--all",
        "--array",
        "--states=all",
        f"--name={name}",
        f"--format={'|'.join(wanted)}",
    )
    for line in _call("squeue", *arguments).split("\n"):
        parts = line.split("|", len(wanted) - 1)
        # (a path of somebody else's job may have a line break in it)
        if len(parts) < len(wanted):
            continue
        job, elements, *more = parts
        # elements that were ended together before they began are one, without a number
        for element in [None] if elements == "N/A" else elements_of(elements):
            yield job, element, *more


def _accounts(*which: str) -> Iterator[_Report]:
    """Yield what the accounting knows of these jobs."""
    arguments = ("--noheader", "--parsable2", "--allocations", "--format=JobID,State")
    for line in _call("sacct", *arguments, *which).splitlines():
        task, _, state = line.partition("|")
        job, _, elements = task.partition("_")
        # what is said of those that waited together is old where one of them has a line of its own
        for element in elements_of(elements) if elements.isdigit() else [None]:
            yield job, element, _task_state(state)


def _by_task(submission: Submission, reports: Iterable[_Report]) -> dict[int, TaskState]:
    """Return the words by the tasks' numbers.

    An array that is not among those of the submission has just been submitted: it has the tasks after theirs.
    """
    arrays = {array.job: array for array in submission.arrays}
    next_ = sum(array.tasks for array in submission.arrays)
    one: dict[int, TaskState] = {}
    rest: dict[int, TaskState] = {}
    for job, element, word in reports:
        array = arrays.get(job, Array(job, next_, max(submission.tasks - next_, 0)))
        if element is None:
            rest |= dict.fromkeys(range(array.first, array.first + array.tasks), word)
        else:
            one[array.first + element] = word
    return rest | one


def _task_state(state: str) -> TaskState:
    # what accounting says of a cancelled job goes on with "by" and a user
    name = state.split(maxsplit=1)[0] if state.strip() else ""
    if name not in _STATES:
        raise SchedulerError(f"Slurm says {state!r} of a job, a state that this version does not know")
    return _STATES[name]


def _age(submission: Submission) -> float:
    since = submission.submitted
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()
    except (ValueError, TypeError):  # (no time, or none of a time zone)
        raise SchedulerError(f"submission {submission.number} says {since!r} for when it was made") from None


def _for_sbatch(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the environment of sbatch, which is also that of the tasks."""
    environment = _environment()
    for name, value in list(environment.items()):
        said = _FOR_SBATCH.get(name)
        if (
            said == ""
            or (said and settings.get(said) is not None)
            or name in _SECRET
            or _SECRET_VALUE.match(value)
        ):
            del environment[name]
    return environment


def _environment() -> dict[str, str]:
    """Return the environment without what would change what the commands print or mean.

    Within a job, that is also what tells the job's parts which one they are.
    """
    ours = re.compile(r"(SLURM|SLURMD|SQUEUE|SACCT|SCANCEL|SCONTROL)_")
    return {name: value for name, value in os.environ.items() if name == "SLURM_CONF" or not ours.match(name)}


def _call(program: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """Return what a command of Slurm prints. Raises :class:`SchedulerError`."""
    try:
        done = subprocess.run(
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
    if done.returncode != 0:
        said = _quoted(done.stderr or done.stdout) or f"exit code {done.returncode}"
        hint = (
            "; 'scontrol ping' says whether its controller is up"
            if re.search("contact|connect", said)
            else ""
        )
        raise SchedulerError(f"{program} says: {said}{hint}")
    return done.stdout


def _quoted(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines)[:_QUOTED]
