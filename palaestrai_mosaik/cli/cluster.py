"""``arsenai submit`` and ``cancel``: the runs of a design folder on a cluster."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from palaestrai_mosaik.design.estimate import Experience, experience
from palaestrai_mosaik.design.folder import SCRIPT, DesignFolder
from palaestrai_mosaik.errors import SchedulerError, listed
from palaestrai_mosaik.execution import Settings, submit_missing
from palaestrai_mosaik.execution.choice import Which
from palaestrai_mosaik.execution.cluster.dry import DryRun, dry_run
from palaestrai_mosaik.execution.cluster.script import write_script
from palaestrai_mosaik.execution.cluster.slurm import Slurm
from palaestrai_mosaik.execution.cluster.submission import Submission, Submissions, TaskRun
from palaestrai_mosaik.execution.cluster.submit import cancel_folder, plan_submission
from palaestrai_mosaik.execution.config import user_settings

from .common import FINISHED, say, store_option
from .execution import row_numbers
from .folders import find_folder
from .run_lists import short_path, tell_left_out
from .tables import byte_size, count, duration, number

_LISTED = 20


def submit(
    folder: str | None,
    *,
    store: str | None = None,
    rows: Sequence[range] | None = None,
    which: Which = "missing",
    ignore_queue: bool = False,
    dry: bool = False,
    seconds_per_run: float | None = None,
    **given: Any,
) -> int:
    """Submit the runs of ``folder`` to Slurm that are missing (or ``which``); return the exit code.

    ``given`` are settings, which go before those of the design and of the user's configuration file;
    ``slurm`` of them is a mapping. ``dry``: only the script is written, and told what the runs would take,
    by what earlier ones took, or by ``seconds_per_run``.
    """
    opened = find_folder(folder)
    settings = user_settings(opened.spec.resolved.get("execution"), **given, executor="slurm")
    summary = submit_missing(
        opened,
        which=which,
        rows=row_numbers(opened, rows),
        store=store,
        settings=settings,
        ignore_queue=ignore_queue,
        dry_run=dry,
    )
    tell_left_out(summary.before)
    name = f"{shlex.quote(short_path(opened.path))}{store_option(store)}"
    if dry and summary.runs:
        known = experience(opened.path)
        if seconds_per_run is not None:
            known = replace(known, runs=0, seconds=seconds_per_run)
        for line in _dry(opened, summary.runs, settings, known):
            say(line)
    elif summary.submission is not None:
        for line in _submitted(opened, summary.submission):
            say(line)
        say(f"next: arsenai status {name}")
        say(f"      arsenai collect {name}")
    else:
        say("nothing to submit")
        say(f"next: arsenai status {name}")
    return FINISHED


def cancel(folder: str | None) -> int:
    """End what Slurm has of the runs of ``folder``; return the exit code."""
    opened = find_folder(folder)
    cancelled = cancel_folder(opened.path)
    if cancelled.strange:
        jobs = _jobs(cancelled.strange)
        say(f"left: {jobs}: named as a submission of this folder, but not submitted from where it is now")
    if not cancelled.jobs:
        say("nothing to cancel: Slurm has no job of this folder")
        return FINISHED
    tasks = f"{count(cancelled.running, 'running task')}, {cancelled.queued:,} queued"
    say(f"cancelled {_jobs(cancelled.jobs)}: {tasks}")
    say(f"next: arsenai status {shlex.quote(short_path(opened.path))}")
    return FINISHED


def _submitted(folder: DesignFolder, submission: Submission) -> Iterator[str]:
    jobs = _jobs([array.job for array in submission.arrays])
    yield (
        f"submission {submission.number}: {count(submission.runs, 'run')} in "
        f"{count(submission.tasks, 'task')}, {jobs} ({submission.name})"
    )
    yield f"script     {short_path(folder.path / SCRIPT)}"
    yield f"output     {short_path(Submissions(folder.path).output(submission.number))}"


def _jobs(jobs: Sequence[str]) -> str:
    return f"{'job' if len(jobs) == 1 else 'jobs'} {listed(jobs, _LISTED)}"


def _dry(
    folder: DesignFolder, runs: Sequence[TaskRun], settings: Settings, known: Experience
) -> Iterator[str]:
    """Write the script; yield what the submission would take."""
    submission, tasks = plan_submission(folder, runs, settings)
    script = write_script(folder.path, submission)
    yield f"script     {short_path(script)}; nothing was submitted"
    try:
        limit, why = Slurm().array_size, ""
    except SchedulerError as error:
        limit, why = None, f"not known how long job arrays may be: {error}"
    told = dry_run([len(task) for task in tasks], settings.slurm, known, limit)
    throttle = settings.slurm.throttle
    of_each = "" if told.arrays is not None and len(told.arrays) == 1 else " of each"
    together = "" if throttle is None else f", {count(throttle, 'task')}{of_each} at a time"
    arrays = why if told.arrays is None else f"{count(len(told.arrays), 'job array')}{together}"
    yield f"queue      {count(told.runs, 'run')} in {count(told.tasks, 'task')}; {arrays}"
    yield (
        f"tasks      {count(told.runs_per_task, 'run')} each, {told.runs_at_a_time:,} at a time, on "
        f"{count(settings.slurm.cpus, 'core')}"
    )
    yield from _time(told, settings, known)
    yield from _space(told)


def _time(told: DryRun, settings: Settings, known: Experience) -> Iterator[str]:
    if told.task_seconds is None or told.core_seconds is None:
        yield "time       not known: give --seconds-per-run, or execute some runs first"
        return
    source = "as given" if not known.runs else f"median of {known.runs} earlier"
    whole = "as many tasks at a time as the cluster has room for"
    if told.seconds is not None:
        whole = f"{duration(told.seconds)} in all, without waiting"
    yield f"time       {duration(told.task_seconds)} for a task: {duration(known.seconds)} per run ({source}); {whole}"
    yield f"hours      {number(told.core_seconds / 3600)} of a core"
    if told.fitting is not None and told.fitting < told.runs_per_task:
        yield (
            f"warning: {count(max(told.fitting, 0), 'run')} fit into the time limit {settings.slurm.time} of a task, "
            f"not {told.runs_per_task:,}: give more time, fewer runs per task, or --requeue"
        )


def _space(told: DryRun) -> Iterator[str]:
    if told.files is None or told.size is None:
        yield "results    not known: execute some runs first"
        return
    yield f"results    {told.files:,} files and folders, {byte_size(told.size)}"
    if told.collected_files is not None and told.collected_size is not None:
        left = f"{told.collected_files:,} files and folders, {byte_size(told.collected_size)}"
        database = "without the database, whose size is not known before some are collected"
        if told.database is not None:
            database = f"{byte_size(told.database)} of it in the database"
        yield f"collected  {left}, {database} (arsenai collect --remove)"
