"""Submits the runs of a folder to a cluster: the batch script, the tasks, and an estimate of their resources."""

from __future__ import annotations

import math
import os
import re
import secrets
import shlex
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from palaestrai_mosaik.arsenai.design.design import EMPTY_DATABASE, Experience, experience
from palaestrai_mosaik.arsenai.design.expansion import Expansion, Values, run_file, run_uid, slug
from palaestrai_mosaik.arsenai.design.folder import SCRIPT, DesignFolder
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.arsenai.design.rows import all_rows, draw_rows, representative_rows
from palaestrai_mosaik.arsenai.design.search import examples
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import SchedulerError
from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.experiment import from_mapping, load, modules_of
from palaestrai_mosaik.runner.worker_process import THREADS

from ..executor import classes_to_preload
from ..job import now, write_file
from ..settings import Settings, SlurmSettings
from .scheduler import TaskState
from .slurm import Slurm
from .submission import Array, ClusterExecutorName, Submission, Submissions, TaskRun
from .task_assignment import task_states

_PLAIN = re.compile(r"[\w@+=:,./-]+", re.ASCII)
#: Slurm's options and the settings with their values
_OPTIONS = {"partition": "partition", "time": "time", "mem": "memory", "account": "account", "qos": "qos"}

_BEGINNING = """\
#!/bin/bash
#
# Submission {number} of the design in this folder: {what} in {tasks}. It was written by
# "arsenai submit", which hands it to Slurm like this:
#
#     sbatch --array=0-{last}{throttle} {script} 0
#
# or, where that is more than an array may have, in several arrays: the argument is the number of the
# task that element 0 executes. {tasks_file} has a line for each task: its runs{runs}.

{directives}
"""

_REST = """\
task=$((${{1:?give the number of the first task}} + ${{SLURM_ARRAY_TASK_ID:?submit this with --array}}))
folder={folder}

# the runs find what those find that are executed where this was submitted
cd {directory} || exit 2
{path}
# runs share the cores of the task: libraries do not start a thread for each core
export {threads}
{prologue}
# What Slurm tells this shell is handed on: USR1 says that the time limit is near, TERM that the task
# is cancelled. The runs then store what they have.
runs= told=
hand_on() {{
    told=$1
    if [ -n "$runs" ]; then kill -s "$1" "$runs"; fi
}}
trap 'hand_on USR1' USR1
trap 'hand_on TERM' TERM

{python} -m palaestrai_mosaik.cli.node "$folder" {number} "$task" &
runs=$!
# (it came before there was anybody to hand it to)
if [ -n "$told" ]; then kill -s "$told" "$runs"; fi

# A signal ends "wait" early, so wait until the process is gone. The task ends as it has ended.
until wait "$runs"; ! kill -0 "$runs" 2> /dev/null; do :; done
wait "$runs"
exit
"""


def write_script(folder: Path, submission: Submission) -> Path:
    """Write the script of ``submission`` to the design folder; return its path.

    Args:
        folder: the design folder.
        submission: the submission.

    Raises:
        SchedulerError: a script cannot contain the folder's path.
        ExecutionError: the script cannot be written.
    """
    path = folder.absolute() / SCRIPT
    text = script(folder.absolute(), submission)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SchedulerError(f"{str(folder)!a}: the paths of what runs on a cluster must be UTF-8") from None
    write_file(path, text)
    return path


def script(folder: Path, submission: Submission) -> str:
    """Return the text of the script. Raises :class:`SchedulerError` if it cannot contain the folder's path."""
    settings = SlurmSettings.of(submission.settings)
    output = Submissions(folder).output(submission.number)
    beginning = _BEGINNING.format(
        number=submission.number,
        what="a search" if submission.search else count(submission.runs, "run"),
        runs=", of which it asks for one after the other" if submission.search else "",
        tasks=count(submission.tasks, "task"),
        last=submission.tasks - 1,
        throttle=f"%{settings.throttle}" if settings.throttle else "",
        script=SCRIPT,
        tasks_file=f"{output.relative_to(folder)}.tasks",
        directives="\n".join(_directives(submission, settings, output)),
    )
    body = _REST.format(
        folder=shlex.quote(str(folder)),
        directory=shlex.quote(os.getcwd()),
        path=_python_path() if settings.python is None else "",
        threads=" ".join(f'{name}="${{{name}:-1}}"' for name in THREADS),
        prologue="".join(f"{line}\n" for line in ("", *settings.prologue) if settings.prologue),
        python=shlex.quote(settings.python or sys.executable),
        number=submission.number,
    )
    return f"{beginning}\n{body}"


def _directives(submission: Submission, settings: SlurmSettings, output: Path) -> list[str]:
    options = [
        ("job-name", submission.name),
        ("output", f"{_for_output(output)}/%A_%a.log"),
        ("open-mode", "append"),
        ("ntasks", "1"),
        ("cpus-per-task", str(settings.cpus)),
    ]
    for option, name in _OPTIONS.items():
        value = getattr(settings, name)
        if value is not None:
            options.append((option, value))
    if settings.warning:
        options.append(("signal", f"B:USR1@{settings.warning}"))
    lines = [f"--{option}={_quoted(value)}" for option, value in options]
    lines.append("--requeue" if settings.requeue else "--no-requeue")
    return [f"#SBATCH {line}" for line in (*lines, *settings.directives)]


def _for_output(path: Path) -> str:
    """Escape a path for Slurm's option ``output``, in which percent signs begin placeholders."""
    text = str(path)
    # backslashes have a special meaning there and cannot be escaped, and a directive is a single line
    if "\\" in text or text.splitlines() != [text]:
        raise SchedulerError(
            f"Slurm cannot write to {text!r}: move the design's folder to where its path has no backslash "
            "and no line break"
        )
    return text.replace("%", "%%")


def _quoted(value: str) -> str:
    """Quote a value for a directive, which sbatch parses without a shell; it knows double quotes and backslashes."""
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _python_path() -> str:
    """Return a line that sets ``PYTHONPATH`` to this interpreter's additional folders for modules."""
    standard_folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    standard_folders.append(str(Path(sys.base_prefix) / "lib" / "python"))
    paths = [
        os.path.abspath(path) for path in sys.path if path and not path.startswith(tuple(standard_folders))
    ]
    return f"export PYTHONPATH={shlex.quote(os.pathsep.join(dict.fromkeys(paths)))}"


T = TypeVar("T")
#: minimum duration of a task in seconds, so that the time that Slurm needs to start it is negligible
_MIN_TASK_SECONDS = 300.0
#: maximum number of tasks if the duration of runs is unknown
_MANY = 1000
#: maximum length of the design's uid in the names of jobs
_LONGEST = 40
#: number of files and folders of a run in addition to its results: record and log in ``jobs/``; the folder of its own
#: store, the database in it, and the folder around its results
_OF_JOBS, _OF_STORE = 2, 3


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The result of :func:`cancel_folder`.

    Attributes:
        jobs: the cancelled jobs.
        queued: the number of their queued tasks.
        running: the number of their running tasks.
        foreign: jobs with the name of a submission, but without the folder's script; they were not cancelled.
    """

    jobs: tuple[str, ...] = ()
    queued: int = 0
    running: int = 0
    foreign: tuple[str, ...] = ()

    def with_(self, other: Cancelled) -> Cancelled:
        """Return the sum of both results."""
        values, other_values = astuple(self), astuple(other)
        return Cancelled(
            *(value + other_value for value, other_value in zip(values, other_values, strict=True))
        )


def submit_folder(folder: DesignFolder, runs: Sequence[TaskRun], settings: Settings) -> Submission:
    """Submit ``runs`` to Slurm in as few arrays as possible; return the submission.

    Writes the script and the submission's files to the folder. The caller holds the folder's lock.

    Args:
        folder: the design folder.
        runs: the runs.
        settings: settings of the execution.

    Raises:
        SchedulerError: some or all runs were not submitted. The message and the folder state the tasks that were.
    """
    return submit_tasks(folder.path, *plan_submission(folder, runs, settings))


def submit_tasks(folder: Path, submission: Submission, tasks: Sequence[Sequence[TaskRun]]) -> Submission:
    """Submit a planned submission. See :func:`submit_folder`."""
    scheduler, submissions = Slurm(), Submissions(folder)
    size = scheduler.array_size
    submission = replace(submission, cluster=scheduler.cluster)
    script = write_script(folder, submission)
    submissions.begin(submission, tasks)
    try:
        for tasks_of_array in array_sizes(submission.tasks, size):
            array = scheduler.submit(submission, script, _submitted(submission), tasks_of_array)
            # write each array at once, so that it is known if this process is killed
            submission = replace(submission, arrays=(*submission.arrays, array))
            submissions.write(submission)
    except SchedulerError as error:
        # if Slurm does not answer this query either, the next submission repeats it
        kept = submission
        with suppress(SchedulerError):
            kept = _recover(scheduler, submissions, submission)
        raise SchedulerError(f"{_what_was_submitted(kept, submission)}: {error}") from error
    return submission


def plan_submission(
    folder: DesignFolder, runs: Sequence[TaskRun], settings: Settings
) -> tuple[Submission, list[list[TaskRun]]]:
    """Plan the submission of ``runs``; return it with the runs of each task. Nothing is written."""
    slurm = settings.slurm
    at_a_time = slurm.runs_at_a_time
    per_task = slurm.runs_per_task
    if per_task is None:
        per_task = default_runs_per_task(
            len(runs), experience(folder.path).seconds, at_a_time, slurm.time_limit
        )
    tasks = pack(runs, per_task)
    submission = new_submission(folder, tasks, settings, "slurm", asdict(slurm))
    return replace(submission, processes=at_a_time), tasks


def plan_search(
    folder: DesignFolder, tasks: int, settings: Settings
) -> tuple[Submission, list[list[TaskRun]]]:
    """Plan a submission of ``tasks`` tasks for the search of ``folder``; return it with empty tasks."""
    slurm = settings.slurm
    without_runs: list[list[TaskRun]] = [[] for _ in range(tasks)]
    submission = new_submission(folder, without_runs, settings, "slurm", asdict(slurm))
    planned = replace(submission, processes=slurm.runs_at_a_time, search=True, fail_fast=settings.fail_fast)
    return planned, without_runs


def new_submission(
    folder: DesignFolder,
    tasks: Sequence[Sequence[TaskRun]],
    settings: Settings,
    executor: ClusterExecutorName,
    plain: dict[str, Any],
) -> Submission:
    """Return the folder's next submission. Nothing is written.

    Without ``allow_modules`` in the settings, documents may only name the modules that they name now. With it, the
    submission is ``limited``.

    Args:
        folder: the design folder.
        tasks: the runs of each task.
        settings: settings of the execution.
        executor: the executor.
        plain: the settings of the executor as plain data.
    """
    runs = [run for task in tasks for run in task]
    allowed = settings.allow_modules
    return Submission(
        number=Submissions(folder.path).next_number(),
        executor=executor,
        name=f"{slug(folder.spec.uid)[:_LONGEST]}-{secrets.token_hex(4)}",
        submitted=now(),
        tasks=len(tasks),
        runs=len(runs),
        settings=plain,
        timeout=settings.timeout or None,
        runs_per_process=settings.runs_per_process,
        checkpoint_every=settings.checkpoint_every,
        preload=tuple(classes_to_preload(folder.spec.resolved)),
        allow_modules=_named(folder, runs) if allowed is None else allowed,
        limited=allowed is not None,
    )


def pack(runs: Sequence[T], runs_per_task: int) -> list[list[T]]:
    """Distribute runs or jobs over tasks, in order; all tasks but the last have ``runs_per_task``."""
    return [list(runs[first : first + runs_per_task]) for first in range(0, len(runs), runs_per_task)]


def default_runs_per_task(runs: int, seconds: float | None, at_a_time: int, limit: int | None) -> int:
    """Return the default number of runs per task.

    If the duration of a run is known, a task takes five minutes, or half of its time limit if that is less. Otherwise,
    a task has as many runs as it executes concurrently, or more if that would make more than 1,000 tasks.

    Args:
        runs: the total number of runs.
        seconds: the median duration of earlier runs of the folder; ``None``: unknown.
        at_a_time: the number of concurrent runs of a task.
        limit: the time limit of a task in seconds; ``None``: no limit.
    """
    if seconds is None:
        return max(at_a_time, math.ceil(runs / _MANY))
    task_seconds = _MIN_TASK_SECONDS if limit is None else min(_MIN_TASK_SECONDS, limit / 2)
    # the recorded duration of a very short run may be 0
    return max(1, math.floor(task_seconds / max(seconds, 0.001))) * at_a_time


def _named(folder: DesignFolder, runs: Sequence[TaskRun]) -> tuple[str, ...]:
    return named_modules(folder, runs) if folder.spec.search is None else searched_modules(folder.spec)


def searched_modules(spec: DesignSpec) -> tuple[str, ...]:
    """Return the sorted modules that documents of a search may name, from examples of each level.

    Raises:
        DocumentError: a document is invalid.
    """
    spec = examples(spec)
    rows, expansion = draw_rows(spec), Expansion(spec)
    kinds: dict[tuple[str, ...], Values] = {}
    for selected in (representative_rows(spec, rows), all_rows(spec, rows)):
        for values in selected.values():
            kinds.setdefault(_words(values), values)
    modules: set[str] = set()
    for number, values in enumerate(kinds.values()):
        data = expansion.mapping(values, run_uid(spec.uid, number, 0), 0)
        modules |= modules_of(from_mapping(data, run_file(spec.uid, number, 0), text="", hashed=False))
    return tuple(sorted(modules))


def _words(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row's values that are not numbers, because numbers cannot name modules."""
    return tuple(f"{key}={value!r}" for key, value in values.items() if not isinstance(value, Real))


def named_modules(folder: DesignFolder, runs: Sequence[TaskRun]) -> tuple[str, ...]:
    """Return the sorted modules that the documents of ``runs`` name.

    Reads only one of several documents that differ only in numbers, because numbers cannot name modules.

    Raises:
        DocumentError: a document is invalid.
    """
    values = folder.values()
    rows = {planned.uid: planned.row for planned in folder.documents}
    kinds: dict[tuple[str, ...], TaskRun] = {}
    for run in runs:
        kinds.setdefault(_words(values[rows[run.run]]), run)
    modules: set[str] = set()
    for run in kinds.values():
        modules |= modules_of(load(folder.path / run.file))
    return tuple(sorted(modules))


def recover_submissions(folder: Path) -> None:
    """Repair submissions that were interrupted. The caller holds the folder's lock.

    Submitted arrays that were not recorded are found by their name. Tasks that were not submitted are removed from the
    submission, so that their runs wait again.

    Raises:
        SchedulerError: Slurm does not answer.
    """
    submissions = Submissions(folder)
    for submission in submissions.all():
        if submission.executor == "slurm" and _submitted(submission) < submission.tasks:
            _recover(Slurm(), submissions, submission)


def cancel_folder(folder: Path) -> Cancelled:
    """Cancel all queued and running tasks of the folder.

    Names and numbers of jobs in the folder are not trusted, because another user may have written them. Only jobs that
    execute the folder's own script are cancelled.

    Raises:
        SchedulerError: Slurm does not answer.
    """
    submissions, script = Submissions(folder), os.path.realpath(folder / SCRIPT)
    jobs, foreign, ended = [], [], []
    for submission in submissions.all():
        if submission.executor != "slurm":
            continue
        words = list(task_states(submissions, submission, range(submission.tasks), held=False).values())
        if all(word.ended for word in words):
            continue
        live = Slurm().live(submission.name)
        of_folder = [job for job, live_job in live.items() if os.path.realpath(live_job.script) == script]
        Slurm().cancel_jobs(of_folder)
        jobs += of_folder
        foreign += [job for job in live if job not in of_folder]
        ended += [word for job in of_folder for word in live[job].words]
    queued, running = ended.count(TaskState.QUEUED), ended.count(TaskState.RUNNING)
    return Cancelled(tuple(jobs), queued, running, tuple(foreign))


def _recover(scheduler: Slurm, submissions: Submissions, submission: Submission) -> Submission:
    """Reduce a submission to the tasks that Slurm has, and write and return it. Delete it if there are no tasks."""
    jobs = {array.job for array in submission.arrays}
    for job, elements in scheduler.arrays(submission.name).items():
        if job not in jobs:
            array = Array(job, _submitted(submission), elements)
            submission = replace(submission, arrays=(*submission.arrays, array))
    tasks = list(islice(submissions.tasks(submission.number), _submitted(submission)))
    submission = replace(submission, tasks=len(tasks), runs=sum(map(len, tasks)))
    if tasks:
        submissions.begin(submission, tasks)
    else:
        _forget(submissions, submission.number)
    return submission


def _forget(submissions: Submissions, number: int) -> None:
    output = submissions.output(number)
    # remove the JSON file first, because the others are not read without it
    for suffix in (".json", ".tasks", ".ended.json"):
        files.remove(output.with_name(f"{output.name}{suffix}"), missing_ok=True)
    files.discard_tree(output)


def _submitted(submission: Submission) -> int:
    return sum(array.tasks for array in submission.arrays)


def _what_was_submitted(kept: Submission, wanted: Submission) -> str:
    if not kept.arrays:
        return "nothing was submitted"
    jobs = ", ".join(array.job for array in kept.arrays)
    return (
        f"only {_submitted(kept):,} of {wanted.tasks:,} tasks were submitted (job {jobs}), the runs of the "
        "others wait"
    )


@dataclass(frozen=True, slots=True)
class DryRun:
    """An estimate of the resources of a submission. ``None``: unknown.

    Numbers of files include folders, which count towards a quota.

    Attributes:
        runs: the number of runs.
        tasks: the number of tasks.
        arrays: the number of tasks of each job array.
        runs_per_task: the maximum number of runs of a task.
        runs_at_a_time: the number of concurrent runs of a task.
        task_seconds: the duration of the longest task.
        core_seconds: the core time of all tasks together.
        seconds: the total duration if each array always executes ``throttle`` tasks; ``None`` without a throttle,
            because the duration then depends on the cluster.
        fitting: the number of runs that fit into a task's time limit.
        files: the number of files that the runs add to the folder, until they are collected.
        size: the bytes that the runs add to the folder until they are collected, including a database for each.
        collected_files: the number of files after all runs were collected and their own stores removed.
        collected_size: the bytes after all runs were collected and their own stores removed.
        database: the part of ``collected_size`` in the database.
    """

    runs: int
    tasks: int
    arrays: tuple[int, ...] | None
    runs_per_task: int
    runs_at_a_time: int
    task_seconds: float | None
    core_seconds: float | None
    seconds: float | None
    fitting: int | None
    files: int | None
    size: int | None
    collected_files: int | None
    collected_size: int | None
    database: int | None


def dry_run(
    tasks: Sequence[int], settings: SlurmSettings, experience: Experience, array_size: int | None = None
) -> DryRun:
    """Estimate the resources of a submission, without the time that tasks need to start.

    Args:
        tasks: the number of runs of each task.
        settings: the settings of Slurm.
        experience: the resources of a run.
        array_size: the maximum number of tasks of a job array; ``None``: unknown.
    """
    runs, at_a_time, seconds = sum(tasks), settings.runs_at_a_time, experience.seconds
    arrays = None if array_size is None else array_sizes(len(tasks), array_size)
    rounds = [math.ceil(of_task / at_a_time) for of_task in tasks]
    longest = None if seconds is None else max(rounds, default=0) * seconds
    whole = None
    if longest is not None and arrays is not None and settings.throttle is not None:
        # arrays do not wait for each other
        whole = max((math.ceil(size / settings.throttle) for size in arrays), default=0) * longest
    stored, of_tasks = _OF_JOBS + _OF_STORE, len(tasks)
    return DryRun(
        runs=runs,
        tasks=len(tasks),
        arrays=arrays,
        runs_per_task=max(tasks, default=0),
        runs_at_a_time=at_a_time,
        task_seconds=longest,
        core_seconds=None if seconds is None else sum(rounds) * seconds * settings.cpus,
        seconds=whole,
        fitting=_fitting(settings, seconds),
        files=_of_all(runs, experience.files, stored, of_tasks),
        size=_of_all(runs, experience.size, EMPTY_DATABASE),
        collected_files=_of_all(runs, experience.files, _OF_JOBS, of_tasks),
        collected_size=_of_all(runs, experience.size),
        database=_of_all(runs, experience.database),
    )


def _fitting(settings: SlurmSettings, seconds: float | None) -> int | None:
    """Return the number of runs that end before the warning of a task's time limit, if both times are known."""
    if settings.time_limit is None or not seconds:
        return None
    return math.floor((settings.time_limit - settings.warning) / seconds) * settings.runs_at_a_time


def _of_all(runs: int, each: float | None, more: int = 0, once: int = 0) -> int | None:
    """Return the size or number of files of all runs: ``each`` and ``more`` for every run, and some ``once``."""
    return None if each is None else round(runs * (each + more)) + once


def array_sizes(tasks: int, array_size: int) -> tuple[int, ...]:
    """Return the number of tasks of each job array; ``array_size`` is the maximum."""
    full, remainder = divmod(tasks, array_size)
    return (array_size,) * full + ((remainder,) if remainder else ())
