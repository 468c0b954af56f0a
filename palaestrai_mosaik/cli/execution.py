"""``arsenai run`` and ``resume``: execute the runs of a design folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.errors import ExecutionError
from palaestrai_mosaik.execution import Settings, Summary, make_progress, row_values, run_folder
from palaestrai_mosaik.execution.choice import Which
from palaestrai_mosaik.execution.cluster.submission import Submission, Submissions
from palaestrai_mosaik.execution.config import user_settings
from palaestrai_mosaik.execution.status import job_path

from .collect import tell as tell_collected
from .common import FAILED, FINISHED, INTERRUPTED, say, store_option
from .folders import find_folder
from .run_lists import factors_of, list_runs, short_path, tell_left_out
from .tables import count, duration


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
    quiet: bool = False,
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
    which: Which = "failed" if failed else "unfinished" if again else "missing"
    summary = run_folder(
        opened,
        which=which,
        rows=row_numbers(opened, rows),
        store=store,
        settings=settings,
        progress=make_progress(quiet=quiet),
        ignore_queue=ignore_queue,
    )
    _tell(opened, summary, store)
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
    say(f"as submission {newest.number} was executed: {newest.executor} (--executor local: on this machine)")
    if newest.executor == "parsl":
        return run(folder, again=True, before=before, **{**options, "executor": "parsl"})
    from .cluster import submit

    which: Which = "failed" if options.get("failed") else "unfinished"
    kept = ("store", "rows", "ignore_queue", "timeout", "runs_per_process", "allow_modules")
    given = {name: options[name] for name in kept if name in options}
    return submit(folder, which=which, before=before, **given)


def _limit_of(submission: Submission, section: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the section ``execution`` that says which modules the user allowed for ``submission``.

    It is empty where nobody said any, or the design alone, whose ``section`` still says the same.
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


def _tell(folder: DesignFolder, summary: Summary, store: str | None) -> None:
    """Print how it went, and what to do next."""
    tell_left_out(summary.before)
    ended = {status.value: n for status, n in summary.ended.items()}
    words = [f"{n:,} {status}" for status, n in sorted(ended.items())]
    if summary.not_begun:
        words.append(f"{summary.not_begun:,} not begun")
    if summary.left_out:
        words.append(f"{summary.left_out:,} executed by another process")
    if words:
        say(f"runs: {', '.join(words)}, in {duration(summary.seconds)}")
    if summary.failures:
        values = row_values(folder, {record.run for record in summary.failures})
        by_uid = {run.uid: run for run in folder.documents}
        failures = sorted(
            summary.failures, key=lambda record: (by_uid[record.run].row, by_uid[record.run].repetition)
        )
        say("failed:")
        list_runs(
            {
                "run": record.run,
                "factors": factors_of(folder, values[record.run]),
                "error": record.error,
                "log": short_path(job_path(folder.path, by_uid[record.run])) + ".log",
            }
            for record in failures
        )
    if summary.collected is not None and (summary.collected.runs or summary.collected.damaged):
        tell_collected(folder, summary.collected)
    if summary.not_collected is not None:
        say(f"not collected: {summary.not_collected}", error=True)
    say(f"{summary.finished:,} of {count(summary.considered, 'run')} finished")
    option, name = store_option(store), shlex.quote(short_path(folder.path))
    if summary.whole:
        say(f"next: arsenai analyse {name}{option}")
    else:
        say(f"to go on: arsenai resume {name}{option}")
