"""``arsenai run``, ``resume``, ``submit``, ``cancel`` and ``collect``: execute the runs of a design folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from palaestrai_mosaik.design.folder import CONFIRM, RESULTS, STORES, SUBMISSIONS, DesignFolder
from palaestrai_mosaik.design.rounds import Rounds
from palaestrai_mosaik.errors import FAILED, FINISHED, INTERRUPTED, ExecutionError
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
from palaestrai_mosaik.execution.cluster.submission import Submission, Submissions
from palaestrai_mosaik.execution.cluster.submit import cancel_folder, plan_submission
from palaestrai_mosaik.execution.runs import RunsToExecute
from palaestrai_mosaik.execution.settings import user_settings
from palaestrai_mosaik.execution.status import job_path
from palaestrai_mosaik.text import count

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
from .submissions import dry_lines, job_numbers, print_collected, submitted_lines
from .tables import duration

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

        opened, summary = run_rounds(opened, **options, on_round=_print_round)
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

    Of a search, settings that failed are executed once more only where ``retry_failed`` says so.

    Unless it is said where (``executor`` or ``jobs``), they go where the newest submission went: to
    Slurm again, or to pilots, with the same settings, those of runs included. Wherever they go, documents may
    name the modules that the user allowed for that submission, if any were said.
    """
    opened = find_folder(folder)
    searching = opened.spec.search is not None
    submissions = Submissions(opened.path)
    numbers = submissions.numbers()
    if not numbers:
        return _go_on(opened, **options)
    newest = submissions.read(numbers[-1])
    before = _limit_of(newest, opened.spec.resolved.get("execution"))
    if options.get("executor") is not None or options.get("jobs") is not None:
        return _go_on(opened, before=before, **options)
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
        return _go_on(opened, before=before, **{**options, "executor": "parsl"})

    # (a search goes on with what it proposes, whatever failed)
    which: RunsToExecute = "failed" if options.get("failed") else "missing" if searching else "unfinished"
    kept = ("store", "rows", "ignore_queue", "timeout", "runs_per_process", "allow_modules", "retry_failed")
    given = {name: options[name] for name in kept if name in options}
    return submit(folder, which=which, before=before, **given)


def _go_on(folder: DesignFolder, **options: Any) -> int:
    """Execute what is missing of ``folder``, and wait."""
    if folder.spec.search is None:
        options.pop("retry_failed", None)
        return run(str(folder.path), again=True, **options)
    from .tune import resume as go_on

    return go_on(folder, **options)


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

    if (folder.path / STORES).is_dir():
        _collect(folder, store, remove=False)
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
    by what earlier ones took, or by ``seconds_per_run``. Of a search, ``retry_failed`` may be given, too: settings that
    failed are executed once more.
    """
    opened = find_folder(folder)
    options: dict[str, Any] = {"store": store, "ignore_queue": ignore_queue, "dry_run": dry_run}
    if opened.spec.search is not None:
        from .tune import submit as submit_search

        options |= {"rows": rows, "which": which, "seconds_per_run": seconds_per_run}
        return submit_search(opened, **options, **given)
    given.pop("retry_failed", None)
    settings = user_settings(opened.spec.resolved.get("execution"), **given, executor="slurm")
    if opened.rounds is not None and rows is None and not dry_run:
        opened = _advance(opened, store)
    summary = submit_missing(
        opened,
        which=which,
        rows=row_numbers(opened, rows),
        settings=settings,
        **options,
    )
    print_left_out(summary.before)
    name = f"{shlex.quote(short_path(opened.path))}{store_option(store)}"
    if dry_run and summary.runs:
        submission, tasks = plan_submission(opened, summary.runs, settings)
        for line in dry_lines(opened, settings, seconds_per_run, submission, [len(task) for task in tasks]):
            say(line)
    elif summary.submission is not None:
        for line in submitted_lines(opened, summary.submission):
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
    confirming = _confirming(opened)
    if confirming is not None:
        cancelled = cancelled.with_(cancel_folder(confirming.path))
    if cancelled.foreign:
        jobs = job_numbers(cancelled.foreign)
        say(
            f"left: {jobs}: the name is that of a submission of this folder, but the script is not this folder's"
        )
    if not cancelled.jobs:
        say_unless_quiet("nothing to cancel: Slurm has no job of this folder")
        return FINISHED
    tasks = f"{count(cancelled.running, 'running task')}, {cancelled.queued:,} queued"
    say_unless_quiet(f"cancelled {job_numbers(cancelled.jobs)}: {tasks}")
    say_unless_quiet(f"next: arsenai status {shlex.quote(short_path(opened.path))}")
    return FINISHED


def collect(folder: str | None, *, store: str | None, remove: bool) -> int:
    """Copy what runs of ``folder`` have recorded on a cluster into ``store``; return the exit code.

    It is 1 where the own store of a run cannot be read, or removed. ``remove``: the own stores of
    finished runs are removed once they are copied, and the copy was read.
    """
    opened = find_folder(folder)
    found = _collect(opened, store, remove)
    confirming = _confirming(opened)
    # (the design that confirms a search has a folder of its own in that of the search)
    confirmed = None if confirming is None else _collect(confirming, store, remove)
    if wants_json():
        data = _collected_data(found)
        if opened.spec.search is not None:
            data["confirm"] = None if confirmed is None else _collected_data(confirmed)
        answer(data)
    every = [found] if confirmed is None else [found, confirmed]
    # (what has not ended is collected by another call)
    left, option = any(one.going_on or one.damaged for one in every), store_option(store)
    then = "status" if left else "analyse"
    say_unless_quiet(f"next: arsenai {then} {shlex.quote(short_path(opened.path))}{option}")
    if option and any(one.runs or one.before for one in every):
        say_unless_quiet(
            f"the results are now in this store: all other commands, such as status and resume, need{option}, too"
        )
    return FAILED if any(one.damaged or one.kept for one in every) else FINISHED


def _collect(folder: DesignFolder, store: str | None, remove: bool) -> Collected:
    location = StoreLocation.of(folder.path / RESULTS, store)
    with count_progress("collect", "looked at") as progress:
        found = collect_folder(folder, location, remove=remove, progress=progress)
    print_collected(folder, found)
    return found


def _confirming(folder: DesignFolder) -> DesignFolder | None:
    """Return the design that confirms the search in ``folder``, where that has a part of a cluster in it."""
    path = folder.path / CONFIRM
    if folder.spec.search is None or not any((path / name).is_dir() for name in (SUBMISSIONS, STORES)):
        return None
    return DesignFolder.open(path)
