"""Runs of a design, their submissions to a cluster and collected results in the output of commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.design.design import Experience, experience
from palaestrai_mosaik.arsenai.design.folder import SCRIPT, STORES, DesignFolder
from palaestrai_mosaik.arsenai.design.model import INACTIVE, DesignSpec, Factor
from palaestrai_mosaik.arsenai.execution import RunStatus, Settings, Summary, row_values
from palaestrai_mosaik.arsenai.execution.cluster.collect import Collected
from palaestrai_mosaik.arsenai.execution.cluster.slurm import Slurm
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submission, Submissions
from palaestrai_mosaik.arsenai.execution.cluster.submit import DryRun, write_script
from palaestrai_mosaik.arsenai.execution.cluster.submit import dry_run as estimate
from palaestrai_mosaik.core.errors import SchedulerError
from palaestrai_mosaik.core.printing import count, listed

from .common import store_option
from .output import (
    byte_size,
    compose,
    duration,
    first_line,
    number,
    quiet,
    say,
    say_unless_quiet,
    status,
    table,
)

if TYPE_CHECKING:
    from palaestrai_mosaik.arsenai.search import SearchSubmission, TuneSummary


_LISTED = 20
_WIDTH = 60
#: maximum number of settings listed for a reason of failure
_NUMBERS = 5
#: descriptions of runs that are not executed
_LEFT_OUT = {
    RunStatus.FINISHED: "finished before",
    RunStatus.FAILED: "failed before (arsenai resume executes them again)",
    RunStatus.TIMED_OUT: "reached the time limit of their task (arsenai resume executes them again)",
    RunStatus.OUT_OF_MEMORY: "ran out of memory (arsenai resume executes them again)",
    RunStatus.QUEUED: "the cluster has queued",
    RunStatus.RUNNING: "another process executes",
    RunStatus.WAITING: "nobody has started",
    RunStatus.INTERRUPTED: "were interrupted",
    RunStatus.NODE_FAILED: "were on a node that failed",
    RunStatus.CANCELLED: "were cancelled",
    RunStatus.PRUNED: "a search stopped early",
    RunStatus.SKIPPED: "a search did not start",
    RunStatus.LOST: "were lost",
}


def print_left_out(before: Mapping[RunStatus, int]) -> None:
    """Print how many runs are not executed, by reason."""
    for state, which in _LEFT_OUT.items():
        if before.get(state):
            say_unless_quiet(f"left out: {count(before[state], 'run')} that {which}")


def print_failures(failures: Sequence[Mapping[str, Any]], reasons: Sequence[str] = ()) -> None:
    """Print a table of failed runs, and further ``reasons`` of failures; with ``--quiet``, on standard error."""
    if failures or reasons:
        say(compose(status("failed", error=quiet()), ":"), error=quiet())
    if failures:
        list_runs(failures, error=quiet())
    say(*reasons, error=quiet())


def list_runs(items: Iterable[Mapping[str, Any]], *, error: bool = False) -> None:
    """Print a table with a row for each of the first runs and a column for each key."""
    runs = list(items)
    rows = [[_cell(value) for value in item.values()] for item in runs[:_LISTED]]
    say(table(list(runs[0]), rows, indent="  ", whole=("run",), leaving=("log",), error=error), error=error)
    if len(runs) > _LISTED:
        say(f"  and {len(runs) - _LISTED:,} more: see arsenai status", error=error)


def reason_lines(reasons: Mapping[int, str], listed_runs: Iterable[str]) -> Iterator[str]:
    """Yield the reasons of failed settings, grouped, up to a maximum number.

    ``reasons`` has the reasons by setting. Those about ``listed_runs``, which were already printed, are skipped.
    """
    prefixes = tuple(f"run {run}: " for run in listed_runs)
    grouped: dict[str, list[int]] = {}
    for setting, why in reasons.items():
        if not prefixes or not why.startswith(prefixes):
            grouped.setdefault(why, []).append(setting)
    for why, numbers in list(grouped.items())[:_LISTED]:
        yield f"  setting{'s' * (len(numbers) > 1)} {listed(numbers, _NUMBERS)}: {first_line(why, 2 * _WIDTH)}"
    if len(grouped) > _LISTED:
        yield f"  and {len(grouped) - _LISTED:,} more reasons: see search/settings.csv in the folder"


def _cell(value: Any) -> Any:
    return first_line(value, _WIDTH) if isinstance(value, str) and "\n" in value else value


def failed_runs(
    folder: DesignFolder, failures: Iterable[tuple[str, str | None, str]]
) -> list[dict[str, Any]]:
    """Return the data of failed runs, with their factors; ``failures`` has the uid, error and log of each."""
    rows = list(failures)
    values = row_values(folder, {run for run, _, _ in rows})
    return [
        {"run": run, "factors": _factors(folder, values[run]), "error": error, "log": log}
        for run, error, log in rows
    ]


def _factors(folder: DesignFolder, values: Mapping[str, Any]) -> str:
    """Return the factors of a row on one line, with the labels of levels."""
    parts = [
        f"{name}={number(value) if isinstance(value, float) else value}"
        for name, value in labelled_factors(folder.spec, values).items()
        if value is not None
    ]
    return first_line(" ".join(parts), _WIDTH)


def labelled_factors(spec: DesignSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the factors for tables, see :func:`factor_value`."""
    return {factor.name: factor_value(factor, values[factor.name]) for factor in spec.factors}


def factor_value(factor: Factor, value: Any) -> Any:
    """Return the value of a factor for tables: the label of a level, or ``None`` if the factor is inactive."""
    if value is INACTIVE or (value is None and None not in factor.levels):
        return None
    if factor.choice is None and factor.levels:
        levels = zip(factor.levels, factor.labels, strict=True)
        # compare types, too: True equals 1, but is another level
        return next(label for level, label in levels if type(level) is type(value) and level == value)
    return value


def arguments(folder: Path, store: str | None = None) -> str:
    """Return the arguments of a suggested command for a design's folder and its store."""
    return f"{shlex.quote(short_path(folder))}{store_option(store)}"


def short_path(path: Path) -> str:
    """Return ``path`` relative to the working directory if it is inside."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


_LISTED_JOBS = 20


def submitted_lines(folder: DesignFolder, submission: Submission) -> Iterator[str]:
    """Yield the lines about a new submission."""
    what = "a search" if submission.search else count(submission.runs, "run")
    jobs = job_numbers([array.job for array in submission.arrays])
    tasks = count(submission.tasks, "task")
    yield f"submission {submission.number}: {what} in {tasks}, {jobs} ({submission.name})"
    yield f"script     {short_path(folder.path / SCRIPT)}"
    yield f"output     {short_path(Submissions(folder.path).output(submission.number))}"


def submission_data(
    folder: DesignFolder, runs: Sequence[str], submission: Submission | None
) -> dict[str, Any]:
    """Return the data of a new submission of ``runs`` for ``--json``."""
    data: dict[str, Any] = {"design": folder.spec.uid, "folder": folder.path, "runs": runs}
    if submission is None:
        return data | {"submission": None, "jobs": [], "tasks": None}
    jobs = [array.job for array in submission.arrays]
    return data | {"submission": submission.number, "jobs": jobs, "tasks": submission.tasks}


def job_numbers(jobs: Sequence[str]) -> str:
    """Return the numbers of jobs, for a message."""
    return f"{'job' if len(jobs) == 1 else 'jobs'} {listed(jobs, _LISTED_JOBS)}"


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
    say_unless_quiet(*_collected_lines(folder, collected))
    for what, reasons in (("not collected", collected.damaged), ("not removed", collected.kept)):
        shown = list(reasons.items())[:_LISTED_JOBS]
        say(*(f"{what}: {path.name}: {reason}" for path, reason in shown), error=True)
        if len(reasons) > _LISTED_JOBS:
            say(f"and {len(reasons) - _LISTED_JOBS:,} more", error=True)


def print_collection(folder: Path, summary: Summary | TuneSummary) -> None:
    """Print the results that an execution has collected or could not collect."""
    if summary.collected is not None and (summary.collected.runs or summary.collected.damaged):
        print_collected(DesignFolder.open(folder), summary.collected)
    print_not_collected(summary)


def print_not_collected(summary: Summary | TuneSummary | SearchSubmission) -> None:
    """Print why results could not be collected or read back."""
    if summary.not_collected is not None:
        say(f"not collected: {summary.not_collected}", error=True)
    if summary.not_read_back is not None:
        say(summary.not_read_back, error=True)


def is_collected(summary: Summary | TuneSummary) -> bool:
    """Return whether no result of an execution on a cluster is missing."""
    return not summary.not_collected and not (summary.collected and summary.collected.damaged)


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
