"""``arsenai tune``: searches for the best settings of a design. Also ``resume`` and ``submit`` of a search's folder."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.folder import CONFIRM, DESIGN, DesignFolder
from palaestrai_mosaik.arsenai.design.search import sought
from palaestrai_mosaik.arsenai.execution import RunStatus, Settings
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submissions
from palaestrai_mosaik.arsenai.execution.settings import user_settings
from palaestrai_mosaik.core.errors import FAILED, FINISHED, INTERRUPTED, UNSOUND, ExecutionError
from palaestrai_mosaik.core.printing import count, listed

from .output import (
    answer,
    compose,
    duration,
    number,
    say,
    say_unless_quiet,
    select,
    status,
    table,
    warn,
    without_progress,
)
from .run_lists import (
    arguments,
    dry_lines,
    is_collected,
    labelled_factors,
    print_collection,
    print_failures,
    print_not_collected,
    reason_lines,
    short_path,
    submission_data,
    submitted_lines,
)

if TYPE_CHECKING:
    from palaestrai_mosaik.arsenai.design.model import DesignSpec
    from palaestrai_mosaik.arsenai.execution.cluster.submission import Submission
    from palaestrai_mosaik.arsenai.execution.design_check import Extent
    from palaestrai_mosaik.arsenai.execution.status import LostResults
    from palaestrai_mosaik.arsenai.search import SearchSubmission, TuneSummary
    from palaestrai_mosaik.arsenai.search.result import BestSetting, Confirmed

_TITLE = 40
#: at most so many files are named
MOST_FILES = 3


def tune(
    design: str,
    output: str | None,
    store: str | None,
    extent: Extent,
    allow_modules: Any,
    retry_failed: bool = False,
    **options: Any,
) -> int:
    """Search for the best settings of ``design``, continuing an existing search in its folder.

    ``retry_failed`` executes failed settings once more. ``options`` are settings of the execution. Returns the exit code.
    """
    from .design import check_documents

    if (Path(design) / DESIGN).is_file():
        raise ExecutionError(
            f"{design} is the folder of a design, and tune takes its document; a search that is there goes on with: "
            f"arsenai resume {shlex.quote(design)}"
        )
    loaded = Design.load(design)
    if loaded.spec.search is None:
        raise ExecutionError(
            f"{design} says nothing under 'search', so there is nothing to look for; to execute the rows of its sampler: "
            f"arsenai generate {shlex.quote(design)}, then arsenai run"
        )
    _optuna()
    warn(*loaded.spec.warnings)
    if not check_documents(loaded, extent, allow_modules):
        return UNSOUND
    path = loaded.folder if output is None else Path(output)
    modules = None if allow_modules is None else ",".join(allow_modules)
    settings = user_settings(loaded.spec.resolved.get("execution"), allow_modules=modules, **options)
    return _tune(loaded.spec, path, store, settings, retry_failed)


def resume(
    folder: DesignFolder,
    *,
    store: str | None = None,
    before: dict[str, Any] | None = None,
    retry_failed: bool = False,
    **options: Any,
) -> int:
    """Continue the search in ``folder``; return the exit code."""
    _refuse_choices(options, "ignore_queue")
    options.pop("runs_per_process", None)
    settings = user_settings(folder.spec.resolved.get("execution"), before=before, **options)
    return _tune(folder.spec, folder.path, store, settings, retry_failed)


def _refuse_choices(options: dict[str, Any], *more: str) -> None:
    for name in ("rows", "failed", *more):
        if options.pop(name, None):
            hint = "; --retry-failed executes failed settings once more" if name == "failed" else ""
            raise ExecutionError(
                f"a search proposes its settings itself: --{name.replace('_', '-')} means nothing here{hint}"
            )


def submit(
    folder: DesignFolder,
    *,
    store: str | None = None,
    which: str = "missing",
    ignore_queue: bool = False,
    dry_run: bool = False,
    seconds_per_run: float | None = None,
    retry_failed: bool = False,
    **options: Any,
) -> int:
    """Submit tasks to Slurm for the search in ``folder`` or for its confirmation; return the exit code."""
    _refuse_choices({"rows": options.pop("rows", None), "failed": which == "failed"})
    _optuna()
    from palaestrai_mosaik.arsenai.search import submit as submit_search

    settings = user_settings(folder.spec.resolved.get("execution"), **options, executor="slurm")
    done = submit_search(
        folder.spec,
        folder.path,
        store=store,
        settings=settings,
        ignore_queue=ignore_queue,
        dry_run=dry_run,
        retry_failed=retry_failed,
    )
    if retry_failed:
        say_unless_quiet(_retried_line(done.submitted.retried))
    say_unless_quiet(*_submitted_lines(folder, done, store))
    print_not_collected(done)
    if dry_run and done.submitted.tasks:
        say(*dry_lines(folder, settings, seconds_per_run, *_expected(folder, done, settings)))
    answer(_submitted_data(folder, done))
    lost_for_good = done.ended_by is not None and done.lost.runs
    return FAILED if lost_for_good or done.not_read_back is not None else FINISHED


def _expected(
    folder: DesignFolder, done: SearchSubmission, settings: Settings
) -> tuple[Submission, list[int]]:
    """Return the planned submission, and the expected number of runs of each task."""
    from palaestrai_mosaik.arsenai.execution.cluster.submit import plan_search

    tasks, left = done.submitted.tasks, done.submitted.settings_left
    seeds = folder.spec.repetitions
    # unless the budget is in runs, their number is unknown: assume one batch per task
    runs = tasks * settings.slurm.runs_at_a_time * seeds if left is None else left * seeds
    of_each = [runs // tasks + (task < runs % tasks) for task in range(tasks)]
    return plan_search(folder, tasks, settings)[0], of_each


def _submitted_lines(folder: DesignFolder, done: SearchSubmission, store: str | None) -> Iterator[str]:
    name = arguments(folder.path, store)
    submitted = done.submitted
    yield from restored_lines(done.restored)
    if submitted.live:
        yield f"{count(submitted.live, 'task')} of earlier submissions wait or run"
    if submitted.submission is not None:
        yield from submitted_lines(folder, submitted.submission)
    if done.lost.runs:
        yield lost_line(done.lost, folder.path, store)
    if done.ended_by is not None:
        yield from _over_lines(folder, done, name)
        return
    if submitted.submission is None and not submitted.tasks:
        yield "nothing to submit"
    if submitted.submission is not None or submitted.live:
        yield f"next: arsenai status {name}"
        yield f"      arsenai resume {name} (once the tasks have ended: collects, confirms, or goes on)"


def _over_lines(folder: DesignFolder, done: SearchSubmission, name: str) -> Iterator[str]:
    """Yield the results of a search that is over, and the next commands for ``name``."""
    yield f"the search is over: {done.ended_by}"
    yield from retry_lines(done.to_retry, done.retries_left, name)
    confirming = done.confirming
    if confirming is not None and confirming.submission is not None:
        yield "with fresh seeds, the best settings:"
        yield from submitted_lines(DesignFolder.open(folder.path / CONFIRM), confirming.submission)
    yield from best_lines(folder.spec, done.best)
    if done.lost.runs or done.not_read_back is not None:
        return
    yield from winner_lines(folder.spec, folder.path, done.best, done.winner)
    left = confirming is not None and confirming.before.get(RunStatus.FINISHED, 0) < confirming.considered
    yield f"next: arsenai {'status' if left else 'report'} {name}"
    if left:
        yield f"      arsenai resume {name} (once these runs have ended)"


def _submitted_data(folder: DesignFolder, done: SearchSubmission) -> dict[str, Any]:
    submission, before, runs = done.submitted.submission, {}, []
    if done.confirming is not None:
        before, runs = done.confirming.before, [run.run for run in done.confirming.runs]
        submission = submission or done.confirming.submission
    search = {
        "live_tasks": done.submitted.live,
        "settings_left": done.submitted.settings_left,
        "ended_by": done.ended_by,
        "retried": done.submitted.retried,
        "lost": len(done.lost.runs),
        "not_read_back": done.not_read_back,
        "best": [best_data(setting) for setting in done.best],
    }
    return submission_data(folder, runs, submission) | {"before": before, "search": search}


def _optuna() -> None:
    """Raise an error if Optuna is missing, before documents are checked, which may take long."""
    from palaestrai_mosaik.arsenai.execution.journal import optuna

    optuna()


def _tune(
    spec: DesignSpec, path: Path, store: str | None, settings: Settings, retry_failed: bool = False
) -> int:
    from palaestrai_mosaik.arsenai.search import tune as search
    from palaestrai_mosaik.arsenai.search.progress import make_search_progress

    progress = make_search_progress(quiet=without_progress())
    summary = search(spec, path, store=store, settings=settings, progress=progress, retry_failed=retry_failed)
    if retry_failed:
        say_unless_quiet(_retried_line(summary.retried))
    _print(spec, summary, store)
    answer(_data(spec, summary))
    if summary.interrupted:
        return INTERRUPTED
    return FINISHED if _is_complete(summary) else FAILED


def _is_complete(summary: TuneSummary) -> bool:
    """Return whether the search is over, nothing was lost, and the best settings are confirmed."""
    lost = summary.not_read_back or summary.lost.runs or not is_collected(summary)
    left = summary.to_retry or summary.retries_left or summary.ended_by is None
    confirmed = summary.confirmed is None or summary.confirmed.whole
    return bool(summary.best) and confirmed and not lost and not left


def _print(spec: DesignSpec, summary: TuneSummary, store: str | None) -> None:
    folder = arguments(summary.folder, store)
    runs = sum(summary.ended.values())
    say_unless_quiet(
        f"{arguments(summary.folder)}: {count(sum(summary.states.values()), 'setting')}, {count(runs, 'run')} executed now, "
        f"in {duration(summary.seconds)}"
    )
    say_unless_quiet(
        *(compose("  ", status(f"{n:,} {state}", state)) for state, n in sorted(summary.states.items()))
    )
    print_failures(
        [{"run": run.run, "error": run.error} for run in summary.failures],
        list(reason_lines(summary.reasons, (run.run for run in summary.failures))),
    )
    print_collection(summary.folder, summary)
    _print_lost(summary, store)
    if summary.ended_by is not None:
        say_unless_quiet(f"ended by: {summary.ended_by}")
    elif summary.failed_tasks is not None:
        failed, output = summary.failed_tasks
        say(f"{count(failed, 'task')} failed: what they printed is in {short_path(output)}", error=True)
    say_unless_quiet(
        *retry_lines(summary.to_retry, summary.retries_left, folder), *best_lines(spec, summary.best)
    )
    if not summary.lost.runs:
        say_unless_quiet(*winner_lines(spec, summary.folder, summary.best, summary.winner))
    if summary.interrupted or summary.ended_by is None:
        say_unless_quiet(f"to go on: arsenai resume {folder}")
    elif summary.best:
        say_unless_quiet(f"next: arsenai report {folder}")
    else:
        say("nothing was found: no setting is complete", error=True)


def restored_lines(files: Sequence[str]) -> Iterator[str]:
    """Yield a line on the run documents of a search that were written again."""
    if files:
        were = "it was" if len(files) == 1 else "they were"
        yield f"written again, as {were} missing or edited: {listed(files, MOST_FILES)}"


def _print_lost(summary: TuneSummary, store: str | None) -> None:
    """Print the restored documents and the lost results."""
    say_unless_quiet(*restored_lines(summary.restored))
    if summary.again:
        say_unless_quiet(f"executed again, as their results were gone: {count(summary.again, 'run')}")
    if summary.lost.runs:
        say(lost_line(summary.lost, summary.folder, store), error=True)


def winner_lines(
    spec: DesignSpec, folder: Path, best: Sequence[BestSetting], winner: str | None
) -> Iterator[str]:
    """Yield the path of the winner's document and its position in a Pareto front, or why there is no winner."""
    if winner is not None:
        first, *more = sought(spec)
        of_front = f" (of the front, that with the best {first.name})" if more else ""
        yield f"winner     {short_path(folder / winner)}{of_front}"
    elif best:
        yield "no winner: all of these settings lost runs with fresh seeds, and that could change which is the best"


def lost_line(lost: LostResults, folder: Path, store: str | None) -> str:
    """Return the line on lost results of the search in ``folder``, and on how to make them again."""
    if lost.other_store is not None:
        return (
            "the search has recorded results into another store: name it with --store "
            f"{shlex.quote(lost.other_store)}"
        )
    line = (
        f"results of {count(len(lost.runs), 'run')} are gone, so their settings count as not executed, no setting is "
        "confirmed, and no winner is written"
    )
    name = arguments(folder, store)
    if not lost.to_execute():
        return f"{line}; they failed when executed again; once the cause is fixed: arsenai resume {name} --retry-failed"
    submissions = Submissions(folder)
    numbers = submissions.numbers()
    # Tasks on Slurm do not reach the common store.
    here = " --executor local" if numbers and submissions.read(numbers[-1]).executor == "slurm" else ""
    return f"{line}; to make them again: arsenai resume {name}{here}"


def _retried_line(retried: int) -> str:
    if not retried:
        return "no failed setting is left to try again"
    return f"tried again: {count(retried, 'setting')} that failed"


def retry_lines(failed: int, left: int, name: str) -> Iterator[str]:
    """Yield how to repeat settings that ``failed``, and how many requested repetitions are ``left``.

    ``name`` is the folder, with the store's option, for a command.
    """
    if left:
        yield f"{count(left, 'failed setting')} not tried again yet; if the budget is spent, write a larger one"
    if failed:
        yield f"{count(failed, 'setting')} failed; once the cause is fixed: arsenai resume {name} --retry-failed"


def best_lines(spec: DesignSpec, best: list[BestSetting]) -> Iterator[str]:
    """Yield the printed lines of the best settings: a table and an explanation of its figures."""
    if not best:
        return
    first, *more = [item.name for item in sought(spec)]
    yield "Pareto front:" if more else "best settings:"
    fresh = any(item.confirmed for item in best)
    yield _best_table(spec, best, (first, *more), fresh=fresh)
    tied = len(best) > 1 and len({item.values[first] for item in best}) == 1
    if tied and not more:
        yield f"  all of these gave the same {first} in the search, which could not tell them apart"
    if fresh:
        yield from _fresh_lines(best)
    elif spec.search is not None:
        honest = (
            "wait for those with fresh seeds"
            if spec.search.confirm
            else "'confirm: n' executes the best with fresh seeds"
        )
        yield f"  (the search has chosen them by these figures, which may therefore be too good: {honest})"


def _best_table(
    spec: DesignSpec, best: Sequence[BestSetting], outcomes: Sequence[str], *, fresh: bool
) -> str:
    """Format the settings as rows: factors, outcomes, and outcomes with ``fresh`` seeds."""
    confirmed = outcomes if fresh else ()
    rows = []
    for item in best:
        levels = map(_cell, labelled_factors(spec, item.factors).values())
        values = (f"{number(value)}{' (pruned)' * item.pruned}" for value in item.values.values())
        rows.append(
            [item.number, *levels, *values, *(_fresh(item.confirmed.get(name)) for name in confirmed)]
        )
    titles = [factor.name for factor in spec.factors]
    header = ["setting", *titles, *outcomes, *(f"{name}, fresh seeds" for name in confirmed)]
    return table(header, rows, indent="  ")


def _fresh_lines(best: Sequence[BestSetting]) -> Iterator[str]:
    """Yield an explanation of the figures with fresh seeds."""
    figures = [figure for item in best for figure in item.confirmed.values()]
    several = any(figure.seeds > 1 for figure in figures)
    means = f"  fresh seeds: mean{' ± standard deviation' * several} over seeds that the search has not used"
    if any(figure.lost for figure in figures):
        yield f"{means}, of the runs that finished;"
        yield "  a setting that lost runs ranks behind all that lost none"
    else:
        yield f"{means}; trust these"


def _fresh(figure: Confirmed | None) -> str | None:
    if figure is None:
        return None
    finished = f"{figure.seeds} of {figure.planned} finished" if figure.lost else f"n={figure.seeds}"
    if not figure.seeds:
        return finished
    # a single seed has no standard deviation
    spread = f" ± {number(figure.std)}" if figure.seeds > 1 else ""
    return f"{number(figure.mean)}{spread} ({finished})"


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return number(value)
    return value if value is None or isinstance(value, int) else str(value)[:_TITLE]


def _data(spec: DesignSpec, summary: TuneSummary) -> dict[str, Any]:
    confirmed = summary.confirmed
    return {
        "design": spec.uid,
        "folder": summary.folder,
        "settings": summary.states,
        "settled": summary.settings,
        **select(summary, "ended", "ended_by", "interrupted", "seconds", "again"),
        "lost": len(summary.lost.runs),
        **select(summary, "restored", "retried", "retries_left"),
        "failed": [{"run": run.run, "error": run.error} for run in summary.failures],
        "failed_settings": failed_settings(summary.reasons),
        "best": [best_data(run) for run in summary.best],
        "confirmed": None
        if confirmed is None
        else {"runs": confirmed.considered, "finished": confirmed.finished},
        "winner": None if summary.winner is None else summary.folder / summary.winner,
        "collected": None if summary.collected is None else summary.collected.runs,
        **select(summary, "not_collected", "not_read_back"),
    }


def failed_settings(reasons: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return the failed settings and the reasons, for ``--json``."""
    return [{"setting": setting, "why": why} for setting, why in reasons.items()]


def best_data(best: BestSetting) -> dict[str, Any]:
    """Return the data of one of the best settings for ``--json``."""
    return {
        "setting": best.number,
        "factors": best.factors,
        "outcomes": best.values,
        "fresh_seeds": {name: asdict(figure) for name, figure in best.confirmed.items()},
        **select(best, "recommended", "pruned"),
    }
