"""Reports of submissions to a cluster, of their estimated cost, and of collected results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.design.design import Experience, experience
from palaestrai_mosaik.arsenai.design.folder import SCRIPT, STORES, DesignFolder
from palaestrai_mosaik.arsenai.execution import Settings, Summary
from palaestrai_mosaik.arsenai.execution.cluster.collect import Collected
from palaestrai_mosaik.arsenai.execution.cluster.script import write_script
from palaestrai_mosaik.arsenai.execution.cluster.slurm import Slurm
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submission, Submissions
from palaestrai_mosaik.arsenai.execution.cluster.submit import DryRun
from palaestrai_mosaik.arsenai.execution.cluster.submit import dry_run as estimate
from palaestrai_mosaik.core.errors import SchedulerError
from palaestrai_mosaik.core.text import count, listed

from .output import say, say_unless_quiet
from .run_lists import short_path
from .tables import byte_size, duration, number

if TYPE_CHECKING:
    from palaestrai_mosaik.arsenai.search import TuneSummary

_LISTED = 20


def submitted_lines(folder: DesignFolder, submission: Submission) -> Iterator[str]:
    """Yield the lines about a new submission."""
    what = "a search" if submission.search else count(submission.runs, "run")
    jobs = job_numbers([array.job for array in submission.arrays])
    yield (
        f"submission {submission.number}: {what} in "
        f"{count(submission.tasks, 'task')}, {jobs} ({submission.name})"
    )
    yield f"script     {short_path(folder.path / SCRIPT)}"
    yield f"output     {short_path(Submissions(folder.path).output(submission.number))}"


def submission_data(
    folder: DesignFolder, runs: Sequence[str], submission: Submission | None
) -> dict[str, Any]:
    """Return the data of a new submission of ``runs`` for ``--json``."""
    return {
        "design": folder.spec.uid,
        "folder": folder.path,
        "runs": runs,
        "submission": None if submission is None else submission.number,
        "jobs": [] if submission is None else [array.job for array in submission.arrays],
        "tasks": None if submission is None else submission.tasks,
    }


def job_numbers(jobs: Sequence[str]) -> str:
    """Return the numbers of jobs, for a message."""
    return f"{'job' if len(jobs) == 1 else 'jobs'} {listed(jobs, _LISTED)}"


def dry_lines(
    folder: DesignFolder,
    settings: Settings,
    seconds_per_run: float | None,
    submission: Submission,
    tasks: Sequence[int],
) -> Iterator[str]:
    """Write the script of a planned submission; yield lines about its estimated cost."""
    earlier = experience(folder.path)
    if seconds_per_run is not None:
        earlier = replace(earlier, runs=0, seconds=seconds_per_run)
    script = write_script(folder.path, submission)
    yield f"script     {short_path(script)}; nothing was submitted"
    try:
        limit, why = Slurm().array_size, ""
    except SchedulerError as error:
        limit, why = None, f"the maximum size of job arrays is unknown: {error}"
    planned = estimate(tasks, settings.slurm, earlier, limit)
    throttle = settings.slurm.throttle
    of_each = "" if planned.arrays is not None and len(planned.arrays) == 1 else " of each"
    together = "" if throttle is None else f", {count(throttle, 'task')}{of_each} at a time"
    arrays = why if planned.arrays is None else f"{count(len(planned.arrays), 'job array')}{together}"
    yield f"queue      {count(planned.runs, 'run')} in {count(planned.tasks, 'task')}; {arrays}"
    yield (
        f"tasks      {count(planned.runs_per_task, 'run')} each, {planned.runs_at_a_time:,} at a time, on "
        f"{count(settings.slurm.cpus, 'core')}"
    )
    yield from _time(planned, settings, earlier)
    yield from _space(planned)


def _time(planned: DryRun, settings: Settings, earlier: Experience) -> Iterator[str]:
    if planned.task_seconds is None or planned.core_seconds is None:
        yield "time       unknown: give --seconds-per-run, or execute some runs first"
        return
    source = "as given" if not earlier.runs else f"median of {earlier.runs} earlier"
    whole = "as many tasks at a time as the cluster has room for"
    if planned.seconds is not None:
        whole = f"{duration(planned.seconds)} in all, without waiting"
    yield f"time       {duration(planned.task_seconds)} for a task: {duration(earlier.seconds)} per run ({source}); {whole}"
    yield f"hours      {number(planned.core_seconds / 3600)} of a core"
    if planned.fitting is not None and planned.fitting < planned.runs_per_task:
        yield (
            f"warning: {count(max(planned.fitting, 0), 'run')} fit into the time limit {settings.slurm.time} of a task, "
            f"not {planned.runs_per_task:,}: give more time, fewer runs per task, or --requeue"
        )


def _space(planned: DryRun) -> Iterator[str]:
    if planned.files is None or planned.size is None:
        yield "results    unknown: execute some runs first"
        return
    yield f"results    {planned.files:,} files and folders, {byte_size(planned.size)}"
    if planned.collected_files is not None and planned.collected_size is not None:
        left = f"{planned.collected_files:,} files and folders, {byte_size(planned.collected_size)}"
        database = "without the database, of unknown size before some are collected"
        if planned.database is not None:
            database = f"{byte_size(planned.database)} of it in the database"
        yield f"collected  {left}, {database} (arsenai collect --remove)"


def print_collected(folder: DesignFolder, collected: Collected) -> None:
    """Print the collected results, and the errors."""
    for line in _collected_lines(folder, collected):
        say_unless_quiet(line)
    for what, reasons in (("not collected", collected.damaged), ("not removed", collected.kept)):
        for path, reason in list(reasons.items())[:_LISTED]:
            say(f"{what}: {path.name}: {reason}", error=True)
        if len(reasons) > _LISTED:
            say(f"and {len(reasons) - _LISTED:,} more", error=True)


def print_collection(folder: Path, summary: Summary | TuneSummary) -> None:
    """Print the results that an execution has collected or could not collect."""
    if summary.collected is not None and (summary.collected.runs or summary.collected.damaged):
        print_collected(DesignFolder.open(folder), summary.collected)
    if summary.not_collected is not None:
        say(f"not collected: {summary.not_collected}", error=True)
    if summary.not_read_back is not None:
        say(summary.not_read_back, error=True)


def _collected_lines(folder: DesignFolder, collected: Collected) -> Iterator[str]:
    new = collected.runs.total()
    words = ", ".join(f"{n:,} {status}" for status, n in sorted(collected.runs.items()))
    yield f"collected: {count(new, 'run')}" + (f" ({words})" if new else "")
    left = [
        (collected.before, "collected before"),
        (collected.going_on, "not ended yet (arsenai status)"),
        (collected.empty, "that recorded nothing"),
        (len(collected.damaged), "whose store cannot be read"),
    ]
    for runs, which in left:
        if runs:
            yield f"left out: {count(runs, 'run')} {which}"
    if collected.removed:
        yield (
            f"removed: {count(collected.removed, 'store')} of finished runs in {folder.path / STORES} "
            f"({count(collected.files, 'file')}, {byte_size(collected.freed)} are free now)"
        )
