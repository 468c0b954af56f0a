"""``arsenai run``, ``resume``, ``submit``, ``cancel`` and ``collect``: execution of the runs of a design folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaestrai_mosaik.arsenai.design.folder import (
    CONFIRM,
    RESULTS,
    STORES,
    SUBMISSIONS,
    DesignFolder,
    Rounds,
)
from palaestrai_mosaik.arsenai.execution import (
    Settings,
    StoreLocation,
    Summary,
    make_progress,
    row_values,
    run_folder,
    submit_missing,
)
from palaestrai_mosaik.arsenai.execution.cluster.collect import Collected, collect_folder
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submission, Submissions
from palaestrai_mosaik.arsenai.execution.cluster.submit import cancel_folder, plan_submission
from palaestrai_mosaik.arsenai.execution.settings import user_settings
from palaestrai_mosaik.arsenai.execution.status import RunsToExecute, job_path
from palaestrai_mosaik.core.errors import FAILED, FINISHED, INTERRUPTED, ExecutionError
from palaestrai_mosaik.core.printing import Printable, count

from .common import find_folder, store_option
from .output import (
    answer,
    compose,
    count_progress,
    duration,
    say,
    say_unless_quiet,
    status,
    wants_json,
    without_progress,
)
from .run_lists import (
    arguments,
    dry_lines,
    factors_of,
    job_numbers,
    print_collected,
    print_collection,
    print_failures,
    print_left_out,
    short_path,
    submission_data,
    submitted_lines,
)


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
    """Execute the missing runs of a design folder.

    Args:
        folder: the path of the folder; ``None`` for the only one here.
        jobs: the number of runs at a time.
        executor: ``local``, ``inline``, ``slurm`` or ``parsl``.
        store: the location of the results.
        rows: only these rows of the design.
        failed: execute only failed runs.
        fail_fast: start no more runs after a failure.
        timeout: maximum seconds of a run.
        runs_per_process: number of runs in one process.
        again: also execute runs that did not finish (``arsenai resume``).
        ignore_queue: do not query the scheduler.
        allow_modules: modules that documents may name.
        before: settings of an earlier submission of the folder, as far as :meth:`Settings.of` accepts them.

    Arguments for execution override the section ``execution`` of the design and of the user's configuration.

    Returns:
        The exit code.
    """
    opened = find_folder(folder)
    if opened.spec.search is not None:
        raise ExecutionError(
            f"{opened.path} is the folder of a search, which proposes its runs itself: "
            f"arsenai resume {arguments(opened.path)}"
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
        from palaestrai_mosaik.arsenai.search.rounds import run_rounds

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
    """Execute all unfinished runs of a design folder, including failed ones. See :func:`run`.

    In a search, failed settings are only repeated with ``retry_failed``.

    Without ``executor`` or ``jobs``, runs are executed like those of the newest submission, on Slurm or by pilots, with
    the same settings. In any case, documents may name the modules that the user allowed for that submission.
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
    # 0: the submission had no limit, whatever the design specifies
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

    # a search continues with new proposals, including after failures
    which: RunsToExecute = "failed" if options.get("failed") else "missing" if searching else "unfinished"
    kept = ("store", "rows", "ignore_queue", "timeout", "runs_per_process", "allow_modules", "retry_failed")
    overrides = {name: options[name] for name in kept if name in options}
    return submit(folder, which=which, before=before, **overrides)


def _go_on(folder: DesignFolder, **options: Any) -> int:
    """Execute the remaining runs of ``folder`` and wait for them."""
    if folder.spec.search is None:
        options.pop("retry_failed", None)
        return run(str(folder.path), again=True, **options)
    from .tune import resume as go_on

    return go_on(folder, **options)


def _limit_of(submission: Submission, section: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return settings with the modules that the user allowed for ``submission``.

    They are empty if all modules were allowed, or if the limit is that of the design's unchanged ``section``.
    """
    if not submission.limited or submission.allow_modules == Settings.of(section).allow_modules:
        return {}
    return {"allow_modules": submission.allow_modules}


def row_numbers(folder: DesignFolder, rows: Sequence[range] | None) -> set[int] | None:
    """Return the numbers of the requested rows. Raises :class:`ExecutionError` if the design has fewer rows."""
    if rows is None:
        return None
    last = max((run.row for run in folder.runs), default=-1)
    for row_range in rows:
        if row_range[-1] > last:
            raise ExecutionError(f"the design has no row {row_range[-1]}: it has rows 0 to {last}")
    return set().union(*rows)


def _advance(folder: DesignFolder, store: str | None) -> DesignFolder:
    """Add the next round to a growing design if the cluster has finished the earlier ones; return its folder."""
    from palaestrai_mosaik.arsenai.search.rounds import advance

    if (folder.path / STORES).is_dir():
        _collect(folder, store, remove=False)
    grown = advance(folder, store)
    if grown.rounds is not None and grown.rounds != folder.rounds:
        _print_round(grown.rounds)
    return grown


def _print_round(rounds: Rounds) -> None:
    """Print the results of the last executed round, and the size of the next one or the reason for the end."""
    lines = rounds.lines()
    if rounds.ended:
        say_unless_quiet(f"{lines[-1]}\nno more rows: {rounds.ended}")
    elif len(lines) > 1:
        more = int(rounds.measured[-1]["rows"]) - int(rounds.measured[-2]["rows"])
        say_unless_quiet(f"{lines[-2]}; {count(more, 'row')} more")


def _print_summary(folder: DesignFolder, summary: Summary, store: str | None) -> None:
    """Print the results of an execution, and the next command."""
    print_left_out(summary.before)
    ended = {state.value: n for state, n in summary.ended.items()}
    words = [status(f"{n:,} {name}", name) for name, n in sorted(ended.items())]
    if summary.not_begun:
        words.append(compose(f"{summary.not_begun:,} not begun"))
    if summary.left_out:
        words.append(compose(f"{summary.left_out:,} executed by another process"))
    if words:
        say_unless_quiet(compose("runs: ", Printable(", ".join(words)), f", in {duration(summary.seconds)}"))
    print_failures(_failures(folder, summary))
    print_collection(folder.path, summary)
    say_unless_quiet(f"{summary.finished:,} of {count(summary.considered, 'run')} finished")
    after = "next: arsenai analyse" if summary.whole else "to go on: arsenai resume"
    say_unless_quiet(f"{after} {arguments(folder.path, store)}")


def _failures(folder: DesignFolder, summary: Summary) -> list[dict[str, Any]]:
    """Return the failed runs in the order of the design, with their factors, errors and logs."""
    values = row_values(folder, {record.run for record in summary.failures})
    planned = {run.uid: run for run in folder.documents}
    return [
        {
            "run": record.run,
            "factors": factors_of(folder, values[record.run]),
            "error": record.error,
            "log": short_path(job_path(folder.path, planned[record.run])) + ".log",
        }
        for record in sorted(
            summary.failures, key=lambda record: (planned[record.run].row, planned[record.run].repetition)
        )
    ]


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
        "not_read_back": summary.not_read_back,
    }


def _collected_data(collected: Collected) -> dict[str, Any]:
    return {
        "collected": collected.runs,
        "before": collected.before,
        "not_ended": collected.going_on,
        "empty": collected.empty,
        "damaged": collected.damaged,
        "removed": collected.removed,
        "not_removed": collected.kept,
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
    **execution: Any,
) -> int:
    """Submit runs of a design folder to Slurm.

    Args:
        folder: the path of the folder; ``None`` for the only one here.
        store: the location of the results.
        rows: only these rows of the design.
        which: the runs to submit.
        ignore_queue: do not query the scheduler.
        dry_run: only write the script, and estimate time and storage.
        seconds_per_run: for the estimate; by default, measured in earlier runs.
        **execution: settings that override the design's and the user's configuration; ``slurm`` is a mapping. In a search,
            ``retry_failed`` repeats failed settings.

    Returns:
        The exit code.
    """
    opened = find_folder(folder)
    options: dict[str, Any] = {"store": store, "ignore_queue": ignore_queue, "dry_run": dry_run}
    if opened.spec.search is not None:
        from .tune import submit as submit_search

        options |= {"rows": rows, "which": which, "seconds_per_run": seconds_per_run}
        return submit_search(opened, **options, **execution)
    execution.pop("retry_failed", None)
    settings = user_settings(opened.spec.resolved.get("execution"), **execution, executor="slurm")
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
    name = arguments(opened.path, store)
    if dry_run and summary.runs:
        submission, tasks = plan_submission(opened, summary.runs, settings)
        for line in dry_lines(opened, settings, seconds_per_run, submission, [len(task) for task in tasks]):
            say(line)
    elif summary.submission is None:
        say_unless_quiet("nothing to submit")
        say_unless_quiet(f"next: arsenai status {name}")
    else:
        for line in submitted_lines(opened, summary.submission):
            say_unless_quiet(line)
        say_unless_quiet(f"next: arsenai status {name}")
        say_unless_quiet(f"      arsenai collect {name}")
    if wants_json():
        runs = [run.run for run in summary.runs]
        data = submission_data(opened, runs, summary.submission)
        answer(data | {"before": summary.before})
    return FINISHED


def cancel(folder: str | None) -> int:
    """Cancel the jobs of a design folder on Slurm; return the exit code."""
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
    say_unless_quiet(f"next: arsenai status {arguments(opened.path)}")
    return FINISHED


def collect(folder: str | None, *, store: str | None, remove: bool) -> int:
    """Copy the results of cluster runs of a design folder into ``store``.

    ``remove`` deletes the stores of finished runs after their copies were read back.

    Returns 1 if the store of a run cannot be read or removed, otherwise 0.
    """
    opened = find_folder(folder)
    collected = _collect(opened, store, remove)
    confirming = _confirming(opened)
    # the design that confirms a search has a separate folder inside that of the search
    confirmed = None if confirming is None else _collect(confirming, store, remove)
    if wants_json():
        data = _collected_data(collected)
        if opened.spec.search is not None:
            data["confirm"] = None if confirmed is None else _collected_data(confirmed)
        answer(data)
    results = [collected] if confirmed is None else [collected, confirmed]
    _print_next(opened, results, store)
    return FAILED if any(result.damaged or result.kept for result in results) else FINISHED


def _print_next(folder: DesignFolder, results: Sequence[Collected], store: str | None) -> None:
    """Print the next command, and that ``store`` is needed from now on."""
    # unfinished runs have to be collected later
    left = any(result.going_on or result.damaged for result in results)
    option = store_option(store)
    say_unless_quiet(f"next: arsenai {'status' if left else 'analyse'} {arguments(folder.path, store)}")
    if option and any(result.runs or result.before for result in results):
        say_unless_quiet(
            f"the results are now in this store: all other commands, such as status and resume, need{option}, too"
        )


def _collect(folder: DesignFolder, store: str | None, remove: bool) -> Collected:
    location = StoreLocation.of(folder.path / RESULTS, store)
    with count_progress("collect", "looked at") as progress:
        collected = collect_folder(folder, location, remove=remove, progress=progress)
    print_collected(folder, collected)
    return collected


def _confirming(folder: DesignFolder) -> DesignFolder | None:
    """Return the design that confirms the search in ``folder``, if it was submitted to a cluster."""
    path = folder.path / CONFIRM
    if folder.spec.search is None or not any((path / name).is_dir() for name in (SUBMISSIONS, STORES)):
        return None
    return DesignFolder.open(path)
