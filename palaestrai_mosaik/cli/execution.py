"""``arsenai run``, ``resume``, ``submit``, ``cancel`` and ``collect``: execute the runs of a design folder."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from palaestrai_mosaik.design.design import Experience, experience
from palaestrai_mosaik.design.folder import RESULTS, SCRIPT, STORES, DesignFolder
from palaestrai_mosaik.design.rounds import Rounds
from palaestrai_mosaik.errors import FAILED, FINISHED, INTERRUPTED, ExecutionError, SchedulerError
from palaestrai_mosaik.execution import (
    Settings,
    StoreLocation,
    Summary,
    make_progress,
    row_values,
    run_folder,
    submit_missing,
)
from palaestrai_mosaik.execution.cluster.collect import Collected, collect_folder
from palaestrai_mosaik.execution.cluster.script import write_script
from palaestrai_mosaik.execution.cluster.slurm import Slurm
from palaestrai_mosaik.execution.cluster.submission import Submission, Submissions, TaskRun
from palaestrai_mosaik.execution.cluster.submit import DryRun, cancel_folder, plan_submission
from palaestrai_mosaik.execution.cluster.submit import dry_run as estimate
from palaestrai_mosaik.execution.runs import RunsToExecute
from palaestrai_mosaik.execution.settings import user_settings
from palaestrai_mosaik.execution.status import job_path
from palaestrai_mosaik.text import count, listed

from .answers import answer
from .common import find_folder, store_option
from .output import (
    Printable,
    compose,
    count_progress,
    quiet,
    say,
    say_unless_quiet,
    status,
    wants_json,
    without_progress,
)
from .run_lists import factors_of, list_runs, print_left_out, short_path
from .tables import byte_size, duration, number

_LISTED = 20


def run(  # noqa: PLR0913 (one parameter for each option)
    folder: str | None,
    *,
    jobs: int | None = None,
    executor: str | None = None,
    store: str | None = None,
    rows: Sequence[range] | None = None,
    failed: bool = False,
    fail_fast: bool = False,
    timeout: float | None = None,
    runs_per_process: int | None = None,
    again: bool = False,
    ignore_queue: bool = False,
    allow_modules: str | None = None,
    before: Mapping[str, Any] | None = None,
) -> int:
    """Execute the runs of ``folder`` that are missing; return the exit code.

    Runs that failed are left out, unless ``failed`` asks for these alone or ``again``
    (``arsenai resume``) for all that did not finish. ``rows`` chooses rows of the
    design. ``jobs``, ``executor``, ``timeout``, ``runs_per_process``, ``fail_fast`` and ``allow_modules``
    replace what the section ``execution`` of the design, or of the user's configuration, says; so does
    ``before``, settings of a submission of the folder, within what :meth:`Settings.of` takes of them.
    """
    opened = find_folder(folder)
    if opened.spec.search is not None:
        raise ExecutionError(
            f"{opened.path} is the folder of a search, which proposes its runs itself: "
            f"arsenai resume {shlex.quote(short_path(opened.path))}"
        )
    settings = user_settings(
        opened.spec.resolved.get("execution"),
        jobs=jobs,
        executor=executor,
        timeout=timeout,
        runs_per_process=runs_per_process,
        fail_fast=fail_fast or None,
        allow_modules=allow_modules,
        before=before,
    )
    which: RunsToExecute = "failed" if failed else "unfinished" if again else "missing"
    options: dict[str, Any] = {
        "which": which,
        "store": store,
        "settings": settings,
        "progress": make_progress(quiet=without_progress()),
        "ignore_queue": ignore_queue,
    }
    if opened.rounds is not None and rows is None:
        from palaestrai_mosaik.rounds import run_rounds

        opened, summary = run_rounds(opened, **options, told=_print_round)
    else:
        summary = run_folder(opened, rows=row_numbers(opened, rows), **options)
    _print_summary(opened, summary, store)
    if wants_json():
        answer(_summary_data(opened, summary))
    if summary.interrupted:
        return INTERRUPTED
    damaged = summary.not_collected or (summary.collected is not None and summary.collected.damaged)
    return FINISHED if summary.whole and not damaged else FAILED


def resume(folder: str | None, **options: Any) -> int:
    """Execute all runs of ``folder`` that did not finish, those that failed included. See :func:`run`.

    Unless it is said where (``executor`` or ``jobs``), they go where the newest submission went: to
    Slurm again, or to pilots, with the same settings, those of runs included. Wherever they go, documents may
    name the modules that the user allowed for that submission, if any were said.
    """
    opened = find_folder(folder)
    if opened.spec.search is not None:
        from .tune import resume as go_on

        return go_on(opened, **options)
    submissions = Submissions(opened.path)
    numbers = submissions.numbers()
    if not numbers:
        return run(folder, again=True, **options)
    newest = submissions.read(numbers[-1])
    before = _limit_of(newest, opened.spec.resolved.get("execution"))
    if options.get("executor") is not None or options.get("jobs") is not None:
        return run(folder, again=True, before=before, **options)
    before[newest.executor] = newest.settings
    # (0: there was no limit, whatever the design says)
    before |= {"timeout": newest.timeout or 0, "runs_per_process": newest.runs_per_process}
    before["checkpoint_every"] = newest.checkpoint_every
    if newest.executor == "slurm" and options.get("fail_fast"):
        raise ExecutionError(
            f"submission {newest.number} went to Slurm, and resume submits again and does not wait, so "
            "--fail-fast means nothing: say where, too (--executor slurm waits for its tasks)"
        )
    say_unless_quiet(
        f"with the settings of submission {newest.number}: {newest.executor} (--executor local: on this machine)"
    )
    if newest.executor == "parsl":
        return run(folder, again=True, before=before, **{**options, "executor": "parsl"})

    which: RunsToExecute = "failed" if options.get("failed") else "unfinished"
    kept = ("store", "rows", "ignore_queue", "timeout", "runs_per_process", "allow_modules")
    given = {name: options[name] for name in kept if name in options}
    return submit(folder, which=which, before=before, **given)


def _limit_of(submission: Submission, section: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the section ``execution`` that says which modules the user allowed for ``submission``.

    It is empty if none were given, or by the design alone, whose ``section`` still says the same.
    """
    if not submission.limited or submission.allow_modules == Settings.of(section).allow_modules:
        return {}
    return {"allow_modules": submission.allow_modules}


def row_numbers(folder: DesignFolder, rows: Sequence[range] | None) -> set[int] | None:
    """Return the numbers of the rows that are asked for; they may be many more than there are."""
    if rows is None:
        return None
    last = max((run.row for run in folder.runs), default=-1)
    for asked in rows:
        if asked[-1] > last:
            raise ExecutionError(f"the design has no row {asked[-1]}: it has rows 0 to {last}")
    return set().union(*rows)


def _advance(folder: DesignFolder, store: str | None) -> DesignFolder:
    """Return the folder of a design that grows with its next round, if the runs of those before have ended on the cluster."""
    from palaestrai_mosaik.rounds import advance

    location = StoreLocation.of(folder.path / RESULTS, store)
    if (folder.path / STORES).is_dir():
        print_collected(folder, collect_folder(folder, location))
    grown = advance(folder, store)
    if grown.rounds is not None and grown.rounds != folder.rounds:
        _print_round(grown.rounds)
    return grown


def _print_round(rounds: Rounds) -> None:
    """Print what the round gave that was executed last, and whether there is another."""
    lines = rounds.lines()
    if rounds.ended:
        say_unless_quiet(f"{lines[-1]}\nno more rows: {rounds.ended}")
    elif len(lines) > 1:
        more = int(rounds.measured[-1]["rows"]) - int(rounds.measured[-2]["rows"])
        say_unless_quiet(f"{lines[-2]}; {count(more, 'row')} more")


def _print_summary(folder: DesignFolder, summary: Summary, store: str | None) -> None:
    """Print how it went, and what to do next."""
    print_left_out(summary.before)
    ended = {one.value: n for one, n in summary.ended.items()}
    words = [status(f"{n:,} {name}", name) for name, n in sorted(ended.items())]
    if summary.not_begun:
        words.append(compose(f"{summary.not_begun:,} not begun"))
    if summary.left_out:
        words.append(compose(f"{summary.left_out:,} executed by another process"))
    if words:
        say_unless_quiet(compose("runs: ", Printable(", ".join(words)), f", in {duration(summary.seconds)}"))
    if summary.failures:
        values = row_values(folder, {record.run for record in summary.failures})
        by_uid = {run.uid: run for run in folder.documents}
        failures = sorted(
            summary.failures, key=lambda record: (by_uid[record.run].row, by_uid[record.run].repetition)
        )
        # (a run that failed is an error: with --quiet, too, but then nothing goes to standard output)
        say(compose(status("failed", error=quiet()), ":"), error=quiet())
        failed = (
            {
                "run": record.run,
                "factors": factors_of(folder, values[record.run]),
                "error": record.error,
                "log": short_path(job_path(folder.path, by_uid[record.run])) + ".log",
            }
            for record in failures
        )
        list_runs(failed, error=quiet())
    if summary.collected is not None and (summary.collected.runs or summary.collected.damaged):
        print_collected(folder, summary.collected)
    if summary.not_collected is not None:
        say(f"not collected: {summary.not_collected}", error=True)
    say_unless_quiet(f"{summary.finished:,} of {count(summary.considered, 'run')} finished")
    option, name = store_option(store), shlex.quote(short_path(folder.path))
    if summary.whole:
        say_unless_quiet(f"next: arsenai analyse {name}{option}")
    else:
        say_unless_quiet(f"to go on: arsenai resume {name}{option}")


def _summary_data(folder: DesignFolder, summary: Summary) -> dict[str, Any]:
    values = row_values(folder, {record.run for record in summary.failures})
    return {
        "design": folder.spec.uid,
        "folder": folder.path,
        "considered": summary.considered,
        "finished": summary.finished,
        "before": summary.before,
        "ended": summary.ended,
        "not_begun": summary.not_begun,
        "executed_by_others": summary.left_out,
        "seconds": summary.seconds,
        "failed": [
            {"run": record.run, "factors": factors_of(folder, values[record.run]), "error": record.error}
            for record in summary.failures
        ],
        "collected": None if summary.collected is None else _collected_data(summary.collected),
        "not_collected": summary.not_collected,
    }


def _collected_data(found: Collected) -> dict[str, Any]:
    return {
        "collected": found.runs,
        "before": found.before,
        "not_ended": found.going_on,
        "empty": found.empty,
        "damaged": found.damaged,
        "removed": found.removed,
        "not_removed": found.kept,
    }


def submit(
    folder: str | None,
    *,
    store: str | None = None,
    rows: Sequence[range] | None = None,
    which: RunsToExecute = "missing",
    ignore_queue: bool = False,
    dry_run: bool = False,
    seconds_per_run: float | None = None,
    **given: Any,
) -> int:
    """Submit the runs of ``folder`` to Slurm that are missing (or ``which``); return the exit code.

    ``given`` are settings, which go before those of the design and of the user's configuration file;
    ``slurm`` of them is a mapping. ``dry_run``: only write the script, and report what the runs would take,
    by what earlier ones took, or by ``seconds_per_run``.
    """
    opened = find_folder(folder)
    if opened.spec.search is not None:
        raise ExecutionError(
            f"{opened.path} is the folder of a search, which cannot be submitted: execute it in one task with several cores "
            f"(arsenai resume {shlex.quote(short_path(opened.path))} in your own script)"
        )
    settings = user_settings(opened.spec.resolved.get("execution"), **given, executor="slurm")
    if opened.rounds is not None and rows is None and not dry_run:
        opened = _advance(opened, store)
    summary = submit_missing(
        opened,
        which=which,
        rows=row_numbers(opened, rows),
        store=store,
        settings=settings,
        ignore_queue=ignore_queue,
        dry_run=dry_run,
    )
    print_left_out(summary.before)
    name = f"{shlex.quote(short_path(opened.path))}{store_option(store)}"
    if dry_run and summary.runs:
        known = experience(opened.path)
        if seconds_per_run is not None:
            known = replace(known, runs=0, seconds=seconds_per_run)
        for line in _dry(opened, summary.runs, settings, known):
            say(line)
    elif summary.submission is not None:
        for line in _submitted(opened, summary.submission):
            say_unless_quiet(line)
        say_unless_quiet(f"next: arsenai status {name}")
        say_unless_quiet(f"      arsenai collect {name}")
    else:
        say_unless_quiet("nothing to submit")
        say_unless_quiet(f"next: arsenai status {name}")
    if wants_json():
        submitted = summary.submission
        answer(
            {
                "design": opened.spec.uid,
                "folder": opened.path,
                "runs": [run.run for run in summary.runs],
                "submission": None if submitted is None else submitted.number,
                "jobs": [] if submitted is None else [array.job for array in submitted.arrays],
                "tasks": None if submitted is None else submitted.tasks,
                "before": summary.before,
            }
        )
    return FINISHED


def cancel(folder: str | None) -> int:
    """End what Slurm has of the runs of ``folder``; return the exit code."""
    opened = find_folder(folder)
    cancelled = cancel_folder(opened.path)
    if cancelled.foreign:
        jobs = _jobs(cancelled.foreign)
        say(
            f"left: {jobs}: the name is that of a submission of this folder, but the script is not this folder's"
        )
    if not cancelled.jobs:
        say_unless_quiet("nothing to cancel: Slurm has no job of this folder")
        return FINISHED
    tasks = f"{count(cancelled.running, 'running task')}, {cancelled.queued:,} queued"
    say_unless_quiet(f"cancelled {_jobs(cancelled.jobs)}: {tasks}")
    say_unless_quiet(f"next: arsenai status {shlex.quote(short_path(opened.path))}")
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
        limit, why = None, f"the maximum size of job arrays is unknown: {error}"
    planned = estimate([len(task) for task in tasks], settings.slurm, known, limit)
    throttle = settings.slurm.throttle
    of_each = "" if planned.arrays is not None and len(planned.arrays) == 1 else " of each"
    together = "" if throttle is None else f", {count(throttle, 'task')}{of_each} at a time"
    arrays = why if planned.arrays is None else f"{count(len(planned.arrays), 'job array')}{together}"
    yield f"queue      {count(planned.runs, 'run')} in {count(planned.tasks, 'task')}; {arrays}"
    yield (
        f"tasks      {count(planned.runs_per_task, 'run')} each, {planned.runs_at_a_time:,} at a time, on "
        f"{count(settings.slurm.cpus, 'core')}"
    )
    yield from _time(planned, settings, known)
    yield from _space(planned)


def _time(planned: DryRun, settings: Settings, known: Experience) -> Iterator[str]:
    if planned.task_seconds is None or planned.core_seconds is None:
        yield "time       unknown: give --seconds-per-run, or execute some runs first"
        return
    source = "as given" if not known.runs else f"median of {known.runs} earlier"
    whole = "as many tasks at a time as the cluster has room for"
    if planned.seconds is not None:
        whole = f"{duration(planned.seconds)} in all, without waiting"
    yield f"time       {duration(planned.task_seconds)} for a task: {duration(known.seconds)} per run ({source}); {whole}"
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


def collect(folder: str | None, *, store: str | None, remove: bool) -> int:
    """Copy what runs of ``folder`` have recorded on a cluster into ``store``; return the exit code.

    It is 1 where the own store of a run cannot be read, or removed. ``remove``: the own stores of
    finished runs are removed once they are copied, and the copy was read.
    """
    opened = find_folder(folder)
    location = StoreLocation.of(opened.path / RESULTS, store)
    with count_progress("collect", "looked at") as progress:
        found = collect_folder(opened, location, remove=remove, progress=progress)
    print_collected(opened, found)
    if wants_json():
        answer(_collected_data(found))
    # (what has not ended is collected by another call)
    then, option = "status" if found.going_on or found.damaged else "analyse", store_option(store)
    say_unless_quiet(f"next: arsenai {then} {shlex.quote(short_path(opened.path))}{option}")
    if option and (found.runs or found.before):
        say_unless_quiet(
            f"the results are now in this store: all other commands, such as status and resume, need{option}, too"
        )
    return FAILED if found.damaged or found.kept else FINISHED


def print_collected(folder: DesignFolder, found: Collected) -> None:
    """Print what was collected, and what could not be."""
    for line in _lines(folder, found):
        say_unless_quiet(line)
    for what, reasons in (("not collected", found.damaged), ("not removed", found.kept)):
        for path, reason in list(reasons.items())[:_LISTED]:
            say(f"{what}: {path.name}: {reason}", error=True)
        if len(reasons) > _LISTED:
            say(f"and {len(reasons) - _LISTED:,} more", error=True)


def _lines(folder: DesignFolder, found: Collected) -> Iterator[str]:
    new = found.runs.total()
    words = ", ".join(f"{n:,} {status}" for status, n in sorted(found.runs.items()))
    yield f"collected: {count(new, 'run')}" + (f" ({words})" if new else "")
    left = [
        (found.before, "collected before"),
        (found.going_on, "not ended yet (arsenai status)"),
        (found.empty, "that recorded nothing"),
        (len(found.damaged), "whose store cannot be read"),
    ]
    for runs, which in left:
        if runs:
            yield f"left out: {count(runs, 'run')} {which}"
    if found.removed:
        yield (
            f"removed: {count(found.removed, 'store')} of finished runs in {folder.path / STORES} "
            f"({count(found.files, 'file')}, {byte_size(found.freed)} are free now)"
        )
