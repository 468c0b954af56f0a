"""Executes a search: ``arsenai tune``, and ``submit`` of a search's folder.

On this machine, and with pilots, the process that was called proposes the settings. Tasks on Slurm do it themselves
(:mod:`.task`); the process that was called submits them, and may wait (:mod:`.cluster`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from palaestrai_mosaik.design.folder import JOBS, RESULTS, DesignFolder, execution_lock
from palaestrai_mosaik.design.growing import GrowingFolder
from palaestrai_mosaik.design.model import DesignSpec
from palaestrai_mosaik.design.settings_table import SettingRecord, count_failed, failure_reasons, retries_of
from palaestrai_mosaik.execution import Executor, Settings, SubmitSummary, Summary, submit_missing
from palaestrai_mosaik.execution.claim import wait_for_exits
from palaestrai_mosaik.execution.cluster.collect import Collected
from palaestrai_mosaik.execution.cluster.submission import Submissions
from palaestrai_mosaik.execution.job import JobRecord, held
from palaestrai_mosaik.execution.runs import OWN_STORES, collect_stores, make_executor, signals_cancel
from palaestrai_mosaik.execution.task import GRACE
from palaestrai_mosaik.store.location import StoreLocation

from .cluster import FailedTasks, Submitted, TaskWatch, failed_tasks
from .cluster import submit as submit_search
from .confirm import confirm, make_confirming, write_winner
from .progress import SearchProgress
from .result import BestSetting, best_settings
from .search import Search, Worker, executed


@dataclass
class TuneSummary:
    """How a search went, this time.

    Attributes:
        folder: the folder of the search.
        states: how many settings there are in each state, earlier ones included.
        settings: how many settings were settled now.
        ended: how many runs were executed now, by how they ended.
        failures: the records of runs that failed now.
        reasons: of all settings that have failed, earlier ones included, why, by their numbers.
        best: the best settings, the best first; of several objectives the Pareto front.
        confirmed: how the best ones were executed with fresh seeds; ``None``: they were not.
        winner: the run document of the best setting, relative to the folder; ``None`` where there is none.
        ended_by: which limit of the budget ended the search, or what else; ``None``: it can go on.
        interrupted: whether the user ended it.
        collected: what was brought from runs' own stores to the common one; ``None``: no run has one.
        not_collected: why that could not be done.
        failed_tasks: how many tasks on Slurm have failed of the newest submission, if any; it has what they printed.
        retried: how many failed settings are executed once more because that was asked for now.
        to_retry: how many settings have failed by themselves, and may be executed once more if that is asked for.
        retries_left: how many are to be executed once more, and were not yet.
    """

    folder: Path
    states: dict[str, int] = field(default_factory=dict)
    settings: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    failures: list[JobRecord] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    best: list[BestSetting] = field(default_factory=list)
    confirmed: Summary | None = None
    winner: str | None = None
    ended_by: str | None = None
    interrupted: bool = False
    seconds: float = 0.0
    collected: Collected | None = None
    not_collected: str | None = None
    failed_tasks: FailedTasks | None = None
    retried: int = 0
    to_retry: int = 0
    retries_left: int = 0


def tune(
    spec: DesignSpec,
    path: Path,
    *,
    store: str | None = None,
    settings: Settings | None = None,
    progress: SearchProgress | None = None,
    retry_failed: bool = False,
) -> TuneSummary:
    """Search for the best settings of a design, in a folder; one that is there goes on.

    SIGINT and SIGTERM stop the search so that the next call can go on; a second one kills the runs.

    Args:
        spec: a design with a search.
        path: the folder.
        store: where the runs are recorded; ``None``: ``results`` in the folder.
        settings: how runs are executed; ``None``: as the design says.
        progress: is called with what happens; ``None``: nothing is shown.
        retry_failed: execute failed settings once more, before others are proposed.

    Raises:
        DocumentError: something else is in the folder, or the documents of a setting are not sound.
        ExecutionError: Optuna is missing, another process executes the folder, or constraints reject everything.
    """
    settings = settings or Settings.of(spec.resolved.get("execution"))
    progress = progress or SearchProgress()
    clock = time.perf_counter()
    path = GrowingFolder.make(spec, path)
    location = StoreLocation.of(path / RESULTS, store)
    summary = TuneSummary(path)
    with held(execution_lock(path), path):
        search = _begin(spec, path, settings, location)
        if settings.executor == "slurm":
            _wait_for_tasks(search, settings, progress, summary, retry_failed)
        else:
            if retry_failed:
                summary.retried = search.retry_failed()
            work(search, make_executor(settings, DesignFolder.open(path)), progress, summary)
        summary.failures += search.failures
        records = search.records()
        summary.ended_by = search.ended_by or search.over()
        if any(one.state == "running" for one in records):
            # (of those who were killed: it can go on)
            summary.ended_by = None
        summary.collected, summary.not_collected = collect_stores(DesignFolder.open(path), location)
    summary.states = dict(Counter(one.state for one in records))
    _count_retries(summary, records)
    summary.reasons = failure_reasons(records)
    if not summary.interrupted and summary.ended_by is not None:
        summary.confirmed = confirm(
            spec, path, records, store=store, settings=settings, progress=progress.confirming
        )
        summary.interrupted = summary.confirmed is not None and summary.confirmed.interrupted
    _find_best(spec, summary, records, store)
    summary.seconds = time.perf_counter() - clock
    return summary


def _begin(spec: DesignSpec, path: Path, settings: Settings, location: StoreLocation) -> Search:
    """Open a search in its folder, whose lock the caller holds."""
    growing = GrowingFolder(spec, path)
    growing.begin()
    # runs of a command that is gone
    pilots = tuple(f"{one.name}:" for one in Submissions(path).all() if one.executor == "parsl")
    wait_for_exits(
        (path / JOBS).glob("*.running"),
        2 * GRACE,
        of=lambda marker: marker.task is None or marker.task.startswith(pilots),
    )
    return Search(spec, growing, settings, Worker(location, own_store=settings.executor in OWN_STORES))


def _count_retries(summary: TuneSummary, records: Sequence[SettingRecord]) -> None:
    summary.to_retry = count_failed(records)
    summary.retries_left = sum(by is None for by in retries_of(records).values())


def _find_best(
    spec: DesignSpec, summary: TuneSummary, records: Sequence[SettingRecord], store: str | None
) -> None:
    summary.best = best_settings(spec, summary.folder, records, store)
    if summary.best:
        summary.winner = write_winner(summary.folder, spec, summary.best[0].number)


def _wait_for_tasks(
    search: Search, settings: Settings, progress: SearchProgress, summary: TuneSummary, retry_failed: bool
) -> None:
    """Submit the tasks that the search can use, and wait for them and those that are there."""
    try:
        submitted = submit_search(search, DesignFolder.open(search.path), settings, retry_failed=retry_failed)
        summary.retried = submitted.retried
        watch = TaskWatch(search, settings.fail_fast, progress)
        tasks = submitted.live + (0 if submitted.submission is None else submitted.tasks)
        if tasks:
            at_a_time = min(tasks, settings.slurm.throttle or tasks) * settings.slurm.runs_at_a_time
            progress.begin_search(search.spec, search.records(), at_a_time)
            try:
                with signals_cancel(watch, progress):
                    watch.wait()
            finally:
                progress.end()
            summary.settings, summary.ended = watch.settled, dict(watch.ended)
            summary.failures, summary.interrupted = watch.failures, watch.cancelled
            summary.failed_tasks = failed_tasks(search.path, watch.states)
            search.settle()
    finally:
        search.close()


@dataclass(frozen=True, slots=True)
class SearchSubmission:
    """What :func:`submit` has done with a search.

    Attributes:
        submitted: the tasks, and what they have to do.
        over: why the search is over; ``None``: it is not.
        confirming: what was submitted of the design that confirms the best settings of a search that is over; ``None``:
            nothing is to be confirmed (yet).
        collected: what was brought from runs' own stores to the common one.
        not_collected: why that could not be done.
        best: the best settings until now.
        winner: the run document of the best one, relative to the folder.
        to_retry: how many settings have failed by themselves, and may be executed once more if that is asked for.
        retries_left: how many are to be executed once more, and were not yet.
    """

    submitted: Submitted
    over: str | None
    confirming: SubmitSummary | None
    collected: Collected | None
    not_collected: str | None
    best: list[BestSetting]
    winner: str | None
    to_retry: int
    retries_left: int


def submit(
    spec: DesignSpec,
    path: Path,
    *,
    store: str | None = None,
    settings: Settings,
    ignore_queue: bool = False,
    dry_run: bool = False,
    retry_failed: bool = False,
) -> SearchSubmission:
    """Submit tasks to Slurm that work on a search, and do not wait; of one that is over, the runs that confirm it.

    Args:
        spec: a design with a search.
        path: the folder.
        store: where results are collected; ``None``: ``results`` in the folder.
        settings: how runs are executed.
        ignore_queue: treat tasks of earlier submissions as gone, and do not ask Slurm.
        dry_run: submit nothing.
        retry_failed: have settings executed once more of which a run failed, before others are proposed.

    Raises:
        ExecutionError: Optuna is missing, or another process executes the folder. Nothing was submitted.
        SchedulerError: Slurm does not answer. Nothing was submitted.
    """
    path = GrowingFolder.make(spec, path)
    location = StoreLocation.of(path / RESULTS, store)
    summary = TuneSummary(path)
    with held(execution_lock(path), path):
        search = _begin(spec, path, settings, location)
        try:
            submitted = submit_search(
                search,
                DesignFolder.open(path),
                settings,
                ignore_queue=ignore_queue,
                dry_run=dry_run,
                retry_failed=retry_failed,
            )
            over, records = search.over(), search.records()
        finally:
            search.close()
        if over is not None and not dry_run:
            summary.collected, summary.not_collected = collect_stores(DesignFolder.open(path), location)
    confirming = None
    folder = None if over is None or dry_run else make_confirming(spec, path, records)
    if folder is not None:
        _, summary.not_collected = (
            collect_stores(folder, StoreLocation.of(folder.path / RESULTS, store))
            if summary.not_collected is None
            else (None, summary.not_collected)
        )
        confirming = submit_missing(
            folder, which="unfinished", store=store, settings=settings, ignore_queue=ignore_queue
        )
    _count_retries(summary, records)
    if not dry_run:
        _find_best(spec, summary, records, store)
    return SearchSubmission(
        submitted,
        over,
        confirming,
        summary.collected,
        summary.not_collected,
        summary.best,
        summary.winner,
        summary.to_retry,
        summary.retries_left,
    )


def work(search: Search, executor: Executor, progress: SearchProgress, summary: TuneSummary) -> None:
    """Execute what ``search`` gives, until there is nothing more to begin or the user ends it."""
    ended: Counter[str] = Counter()
    progress.begin_search(search.spec, search.records(), executor.processes)
    try:
        with signals_cancel(executor, progress):
            for record in executed(search, executor):
                ended[record.status] += 1
                settled = search.ended(record)
                progress.ended(record)
                if settled is not None:
                    summary.settings += 1
                    progress.settled(settled)
    finally:
        progress.end()
        search.close()
        summary.ended, summary.interrupted = dict(ended), executor.cancelled
