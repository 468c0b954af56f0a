"""``arsenai run``, ``resume``, ``submit``, ``cancel`` and ``collect``: execution of the runs of a design folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    select,
    status,
    without_progress,
)
from .run_lists import (
    arguments,
    dry_lines,
    failed_runs,
    is_collected,
    job_numbers,
    print_collected,
    print_collection,
    print_failures,
    print_left_out,
    short_path,
    submission_data,
    submitted_lines,
)


def run(
    folder: str | None,
    *,
    store: str | None = None,
    rows: Sequence[range] | None = None,
    failed: bool = False,
    again: bool = False,
    ignore_queue: bool = False,
    before: Mapping[str, Any] | None = None,
    **execution: Any,
) -> int:
    """Execute the missing runs of a design folder.

    Args:
        folder: the path of the folder; ``None`` for the only one here.
        store: the location of the results.
        rows: only these rows of the design.
        failed: execute only failed runs.
        again: also execute runs that did not finish (``arsenai resume``).
        ignore_queue: do not query the scheduler.
        before: settings of an earlier submission of the folder, as far as :meth:`Settings.of` accepts them.
        **execution: settings that override the section ``execution`` of the design and of the user's configuration,
            unless they are ``None``.

    Returns:
        The exit code.
    """
    opened = find_folder(folder)
    if opened.spec.search is not None:
        raise ExecutionError(
            f"{opened.path} is the folder of a search, which proposes its runs itself: "
            f"arsenai resume {arguments(opened.path)}"
        )
    which: RunsToExecute = "failed" if failed else "unfinished" if again else "missing"
    options: dict[str, Any] = {
        "which": which,
        "store": store,
        "settings": user_settings(opened.spec.resolved.get("execution"), before=before, **execution),
        "progress": make_progress(quiet=without_progress()),
        "ignore_queue": ignore_queue,
    }
    if opened.rounds is not None and rows is None:
        from palaestrai_mosaik.arsenai.search.rounds import run_rounds

        opened, summary = run_rounds(opened, **options, on_round=_print_round)
    else:
        summary = run_folder(opened, rows=row_numbers(opened, rows), **options)
    _print_summary(opened, summary, store)
    if summary.interrupted:
        return INTERRUPTED
    return FINISHED if summary.whole and is_collected(summary) else FAILED


def resume(folder: str | None, **options: Any) -> int:
    """Execute all unfinished runs of a design folder, including failed ones. See :func:`run`.

    In a search, failed settings are only repeated with ``retry_failed``.

    Without ``executor`` or ``jobs``, runs are executed like those of the newest submission, on Slurm or by pilots, with
    the same settings. In any case, documents may name the modules that the user allowed for that submission.
    """
    opened = find_folder(folder)
    submissions = Submissions(opened.path)
    numbers = submissions.numbers()
    if not numbers:
        return _go_on(opened, **options)
    newest = submissions.read(numbers[-1])
    before = _limit_of(newest, opened.spec.resolved.get("execution"))
    if options.get("executor") is not None or options.get("jobs") is not None:
        return _go_on(opened, before=before, **options)
    # a timeout of 0: the submission had no limit, whatever the design specifies
    before |= {newest.executor: newest.settings, "timeout": newest.timeout or 0}
    before |= select(newest, "runs_per_process", "checkpoint_every")
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

    for name in ("executor", "jobs", "fail_fast"):
        options.pop(name, None)
    which: RunsToExecute = "unfinished"
    if options.pop("failed", False):
        which = "failed"
    elif opened.spec.search is not None:
        # a search continues with new proposals, including after failures
        which = "missing"
    return submit(folder, which=which, before=before, **options)


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
    """Print the results of an execution, the next command, and all as JSON."""
    print_left_out(summary.before)
    ended = {state.value: n for state, n in summary.ended.items()}
    words = [status(f"{n:,} {name}", name) for name, n in sorted(ended.items())]
    if summary.not_begun:
        words.append(compose(f"{summary.not_begun:,} not begun"))
    if summary.left_out:
        words.append(compose(f"{summary.left_out:,} executed by another process"))
    if words:
        say_unless_quiet(compose("runs: ", Printable(", ".join(words)), f", in {duration(summary.seconds)}"))
    failures = _failures(folder, summary)
    print_failures(failures)
    print_collection(folder.path, summary)
    after = "next: arsenai analyse" if summary.whole else "to go on: arsenai resume"
    say_unless_quiet(
        f"{summary.finished:,} of {count(summary.considered, 'run')} finished",
        f"{after} {arguments(folder.path, store)}",
    )
    by_run = {failure["run"]: failure for failure in failures}
    answer(
        {
            "design": folder.spec.uid,
            "folder": folder.path,
            **select(summary, "considered", "finished", "before", "ended", "not_begun"),
            "executed_by_others": summary.left_out,
            "seconds": summary.seconds,
            "failed": [
                {name: by_run[record.run][name] for name in ("run", "factors", "error")}
                for record in summary.failures
            ],
            "collected": None if summary.collected is None else _collected_data(summary.collected),
            **select(summary, "not_collected", "not_read_back"),
        }
    )


def _failures(folder: DesignFolder, summary: Summary) -> list[dict[str, Any]]:
    """Return the failed runs in the order of the design, with their factors, errors and logs."""
    planned = {run.uid: run for run in folder.documents}
    failures = sorted(
        summary.failures, key=lambda record: (planned[record.run].row, planned[record.run].repetition)
    )
    return failed_runs(
        folder,
        (
            (record.run, record.error, short_path(job_path(folder.path, planned[record.run])) + ".log")
            for record in failures
        ),
    )


def _collected_data(collected: Collected) -> dict[str, Any]:
    return {
        "collected": collected.runs,
        "before": collected.before,
        "not_ended": collected.going_on,
        **select(collected, "empty", "damaged", "removed"),
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
    options: dict[str, Any] = {
        "store": store,
        "which": which,
        "ignore_queue": ignore_queue,
        "dry_run": dry_run,
    }
    if opened.spec.search is not None:
        from .tune import submit as submit_search

        return submit_search(opened, **options, rows=rows, seconds_per_run=seconds_per_run, **execution)
    execution.pop("retry_failed", None)
    settings = user_settings(opened.spec.resolved.get("execution"), **execution, executor="slurm")
    if opened.rounds is not None and rows is None and not dry_run:
        opened = _advance(opened, store)
    summary = submit_missing(opened, rows=row_numbers(opened, rows), settings=settings, **options)
    print_left_out(summary.before)
    if dry_run and summary.runs:
        submission, tasks = plan_submission(opened, summary.runs, settings)
        say(*dry_lines(opened, settings, seconds_per_run, submission, [len(task) for task in tasks]))
    else:
        say_unless_quiet(*_submitted_lines(opened, summary.submission, store))
    runs = [run.run for run in summary.runs]
    answer(submission_data(opened, runs, summary.submission) | {"before": summary.before})
    return FINISHED


def _submitted_lines(folder: DesignFolder, submission: Submission | None, store: str | None) -> Iterator[str]:
    """Yield the lines about a submission, and the next commands."""
    name = arguments(folder.path, store)
    if submission is None:
        yield "nothing to submit"
        yield f"next: arsenai status {name}"
    else:
        yield from submitted_lines(folder, submission)
        yield f"next: arsenai status {name}"
        yield f"      arsenai collect {name}"


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
    say_unless_quiet(
        f"cancelled {job_numbers(cancelled.jobs)}: {tasks}", f"next: arsenai status {arguments(opened.path)}"
    )
    return FINISHED


def collect(folder: str | None, *, store: str | None, remove: bool) -> int:
    """Copy the results of cluster runs of a design folder into ``store``.

    ``remove`` deletes the stores of finished runs after their copies were read back.

    Returns 1 if the store of a run cannot be read or removed, otherwise 0.
    """
    opened = find_folder(folder)
    results = [_collect(opened, store, remove)]
    confirming = _confirming(opened)
    if confirming is not None:
        # the design that confirms a search has a separate folder inside that of the search
        results.append(_collect(confirming, store, remove))
    data, *confirmed = map(_collected_data, results)
    if opened.spec.search is not None:
        data["confirm"] = confirmed[0] if confirmed else None
    answer(data)
    # unfinished runs have to be collected later
    left = any(result.going_on or result.damaged for result in results)
    say_unless_quiet(f"next: arsenai {'status' if left else 'analyse'} {arguments(opened.path, store)}")
    if store is not None and any(result.runs or result.before for result in results):
        say_unless_quiet(
            "the results are now in this store: all other commands, such as status and resume, "
            f"need{store_option(store)}, too"
        )
    return FAILED if any(result.damaged or result.kept for result in results) else FINISHED


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
