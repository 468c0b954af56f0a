"""Submits the runs of a folder to a cluster, or says what a submission would take."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from palaestrai_mosaik import files
from palaestrai_mosaik.design.design import EMPTY_DATABASE, Experience, experience
from palaestrai_mosaik.design.expansion import Expansion, Values
from palaestrai_mosaik.design.folder import SCRIPT, DesignFolder
from palaestrai_mosaik.design.model import DesignSpec
from palaestrai_mosaik.design.rows import all_rows, draw_rows, representative_rows
from palaestrai_mosaik.design.run_names import run_file, run_uid, slug
from palaestrai_mosaik.design.search import examples
from palaestrai_mosaik.errors import SchedulerError
from palaestrai_mosaik.experiment import from_mapping, load, modules_of

from ..executor import classes_to_preload
from ..job import now
from ..settings import Settings
from .scheduler import TaskState
from .script import write_script
from .settings import SlurmSettings
from .slurm import Slurm
from .submission import Array, ClusterExecutorName, Submission, Submissions, TaskRun
from .task_assignment import task_states

T = TypeVar("T")
#: seconds that a task takes at least, so that what Slurm needs to begin it does not matter
_MIN_TASK_SECONDS = 300.0
#: tasks that there are at most where nothing is known of how long runs take
_MANY = 1000
#: characters of the design's uid in the names of jobs
_LONGEST = 40
#: files and folders of a run beside those of its results: record and log; the folder of its own store,
#: the database in it, and the folder around the results
_OF_JOBS, _OF_STORE = 2, 3


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What :func:`cancel_folder` has ended: the jobs, and how many of their tasks waited and ran.

    ``foreign`` are jobs with the name of a submission that another script than the folder's executes; they are left alone.
    """

    jobs: tuple[str, ...] = ()
    queued: int = 0
    running: int = 0
    foreign: tuple[str, ...] = ()

    def with_(self, other: Cancelled) -> Cancelled:
        """Return both together."""
        mine, others = astuple(self), astuple(other)
        return Cancelled(*(one + another for one, another in zip(mine, others, strict=True)))


def submit_folder(folder: DesignFolder, runs: Sequence[TaskRun], settings: Settings) -> Submission:
    """Submit ``runs`` to Slurm, as few arrays as it takes; return the submission.

    The script and the submission's files are written into the folder, whose lock the caller holds.
    Raises :class:`SchedulerError`, which says what was submitted nevertheless; the folder then says that too.
    """
    return submit_tasks(folder.path, *plan_submission(folder, runs, settings))


def submit_tasks(folder: Path, submission: Submission, tasks: Sequence[Sequence[TaskRun]]) -> Submission:
    """Submit what was planned. See :func:`submit_folder`."""
    scheduler, submissions = Slurm(), Submissions(folder)
    size = scheduler.array_size
    submission = replace(submission, cluster=scheduler.cluster)
    script = write_script(folder, submission)
    submissions.begin(submission, tasks)
    try:
        for tasks_of_array in array_sizes(submission.tasks, size):
            array = scheduler.submit(submission, script, _submitted(submission), tasks_of_array)
            # at once: if this process is killed now, the array is known
            submission = replace(submission, arrays=(*submission.arrays, array))
            submissions.write(submission)
    except SchedulerError as error:
        # (Slurm may not answer this, either; the next submission asks again)
        kept = submission
        with suppress(SchedulerError):
            kept = _recover(scheduler, submissions, submission)
        raise SchedulerError(f"{_what_was_submitted(kept, submission)}: {error}") from error
    return submission


def plan_submission(
    folder: DesignFolder, runs: Sequence[TaskRun], settings: Settings
) -> tuple[Submission, list[list[TaskRun]]]:
    """Return what :func:`submit_folder` submits, with the runs of each task. Nothing is written."""
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
    """Return a submission of so many tasks that work on the search of ``folder``. Nothing is written."""
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
    """Return the folder's next submission; ``plain`` are the settings of ``executor``. Nothing is written.

    Documents may name the modules that they name now, unless the settings say which (then it is ``limited``).
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
    """Return the runs (or their jobs) of each task, in order; all tasks but the last have ``runs_per_task``."""
    return [list(runs[first : first + runs_per_task]) for first in range(0, len(runs), runs_per_task)]


def default_runs_per_task(runs: int, seconds: float | None, at_a_time: int, limit: int | None) -> int:
    """Return how many runs a task is given by default.

    Where earlier runs of the folder took ``seconds`` (their median), so many that a task, which
    executes ``at_a_time``, takes five minutes, or half of the time limit (``limit`` seconds), if that
    is less. Where nothing is known, as many as it executes at a time, as long as that makes no more than
    1,000 tasks.
    """
    if seconds is None:
        return max(at_a_time, math.ceil(runs / _MANY))
    wanted = _MIN_TASK_SECONDS if limit is None else min(_MIN_TASK_SECONDS, limit / 2)
    # (a run takes no less than a clock shows)
    return max(1, math.floor(wanted / max(seconds, 0.001))) * at_a_time


def _named(folder: DesignFolder, runs: Sequence[TaskRun]) -> tuple[str, ...]:
    return named_modules(folder, runs) if folder.spec.search is None else searched_modules(folder.spec)


def searched_modules(spec: DesignSpec) -> tuple[str, ...]:
    """Return the modules that the settings of a search may name, sorted; of each level some are looked at.

    Raises :class:`~palaestrai_mosaik.errors.DocumentError`.
    """
    spec = examples(spec)
    rows, expansion = draw_rows(spec), Expansion(spec)
    kinds: dict[tuple[str, ...], Values] = {}
    for some in (representative_rows(spec, rows), all_rows(spec, rows)):
        for values in some.values():
            kinds.setdefault(_words(values), values)
    found: set[str] = set()
    for number, values in enumerate(kinds.values()):
        data = expansion.mapping(values, run_uid(spec.uid, number, 0), 0)
        found |= modules_of(from_mapping(data, run_file(spec.uid, number, 0), text="", hashed=False))
    return tuple(sorted(found))


def _words(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what of a row's values is no number: numbers name nothing."""
    return tuple(f"{key}={value!r}" for key, value in values.items() if not isinstance(value, Real))


def named_modules(folder: DesignFolder, runs: Sequence[TaskRun]) -> tuple[str, ...]:
    """Return the modules that the documents of ``runs`` name, sorted.

    Of documents that differ in numbers only one is read: numbers name nothing.
    Raises :class:`~palaestrai_mosaik.errors.DocumentError`.
    """
    values = folder.values()
    rows = {planned.uid: planned.row for planned in folder.documents}
    kinds: dict[tuple[str, ...], TaskRun] = {}
    for run in runs:
        kinds.setdefault(_words(values[rows[run.run]]), run)
    found: set[str] = set()
    for run in kinds.values():
        found |= modules_of(load(folder.path / run.file))
    return tuple(sorted(found))


def recover_submissions(folder: Path) -> None:
    """Bring submissions to an end that were cut off in the middle; the caller holds the folder's lock.

    An array that was submitted and not written down is found by its name. Tasks that were not submitted
    are taken out of the submission, so that their runs wait again. Raises :class:`SchedulerError` where
    Slurm does not answer.
    """
    submissions = Submissions(folder)
    for submission in submissions.all():
        if submission.executor == "slurm" and _submitted(submission) < submission.tasks:
            _recover(Slurm(), submissions, submission)


def cancel_folder(folder: Path) -> Cancelled:
    """End all tasks of the folder that wait or run. Raises :class:`SchedulerError`.

    Names and numbers of jobs are not believed, as another user may have written them into the folder: what
    is ended executes the folder's own script.
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
        of_folder = [job for job, one in live.items() if os.path.realpath(one.script) == script]
        Slurm().cancel_jobs(of_folder)
        jobs += of_folder
        foreign += [job for job in live if job not in of_folder]
        ended += [word for job in of_folder for word in live[job].words]
    queued, running = ended.count(TaskState.QUEUED), ended.count(TaskState.RUNNING)
    return Cancelled(tuple(jobs), queued, running, tuple(foreign))


def _recover(scheduler: Slurm, submissions: Submissions, submission: Submission) -> Submission:
    """Return ``submission`` with the tasks that Slurm has, as it is then written; it is deleted if none."""
    known = {array.job for array in submission.arrays}
    for job, elements in scheduler.arrays(submission.name).items():
        if job not in known:
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
    # the submission's own file first: without it, the others are not read
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
    """What a submission would take. ``None``: not known.

    ``arrays``: how many tasks each job array has; ``runs_per_task``: the most that a task has,
    ``runs_at_a_time`` of them at the same time. ``task_seconds``: of the longest task;
    ``core_seconds``: of all tasks' cores together; ``seconds``: of the whole where as many tasks run as
    ``throttle`` lets of each array (``None`` without one: it is the cluster that says). ``fitting``: how
    many runs fit into a task's time limit.

    ``files`` (folders with them: what counts towards a quota) and ``size`` (bytes) are what runs add to the
    folder until they are collected, each with a database of its own. ``collected_files`` and
    ``collected_size`` are left once all are collected and their own stores removed; ``database`` of these
    bytes are in the database.
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
    """Return what ``tasks`` would take, of which it is known how many runs each has.

    ``experience``: what a run takes. ``array_size``: how many tasks the cluster lets a job array have
    (``None``: not known). The time that a task needs to begin is not counted.
    """
    runs, at_a_time, seconds = sum(tasks), settings.runs_at_a_time, experience.seconds
    arrays = None if array_size is None else array_sizes(len(tasks), array_size)
    rounds = [math.ceil(of_task / at_a_time) for of_task in tasks]
    longest = None if seconds is None else max(rounds, default=0) * seconds
    whole = None
    if longest is not None and arrays is not None and settings.throttle is not None:
        # arrays do not wait for each other
        whole = max((math.ceil(size / settings.throttle) for size in arrays), default=0) * longest
    limit, fitting = settings.time_limit, None
    if limit is not None and seconds:
        fitting = math.floor((limit - settings.warning) / seconds) * at_a_time
    files, size = experience.files, experience.size
    return DryRun(
        runs=runs,
        tasks=len(tasks),
        arrays=arrays,
        runs_per_task=max(tasks, default=0),
        runs_at_a_time=at_a_time,
        task_seconds=longest,
        core_seconds=None if seconds is None else sum(rounds) * seconds * settings.cpus,
        seconds=whole,
        fitting=fitting,
        files=None if files is None else round(runs * (files + _OF_JOBS + _OF_STORE)) + len(tasks),
        size=None if size is None else runs * (size + EMPTY_DATABASE),
        collected_files=None if files is None else round(runs * (files + _OF_JOBS)) + len(tasks),
        collected_size=None if size is None else runs * size,
        database=None if experience.database is None else runs * experience.database,
    )


def array_sizes(tasks: int, array_size: int) -> tuple[int, ...]:
    """Return how many tasks each job array has, where one may have ``array_size``."""
    whole, rest = divmod(tasks, array_size)
    return (array_size,) * whole + ((rest,) if rest else ())
