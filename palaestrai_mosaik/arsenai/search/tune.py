"""Execute a search: ``arsenai tune``, and ``submit`` of a search's folder.

On this machine, and with pilots, the calling process proposes the settings. Tasks on Slurm propose them themselves
(:mod:`.task`); the calling process submits these, and may wait (:mod:`.cluster`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from palaestrai_mosaik.arsenai.design.folder import JOBS, RESULTS, DesignFolder, execution_lock
from palaestrai_mosaik.arsenai.design.growing import GrowingFolder
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.arsenai.design.settings import SettingRecord, count_failed, failure_reasons, retries_of
from palaestrai_mosaik.arsenai.execution import (
    Settings,
    SubmitSummary,
    Summary,
    run_folder,
    submit_missing,
)
from palaestrai_mosaik.arsenai.execution.cluster.collect import Collected
from palaestrai_mosaik.arsenai.execution.job import JobRecord, held
from palaestrai_mosaik.arsenai.execution.runs import (
    OWN_STORES,
    collect_stores,
    make_executor,
    signals_cancel,
    wait_for_dead_command,
    why_unreadable,
)
from palaestrai_mosaik.arsenai.execution.status import LostResults, load_run_states
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store.read_back import NOT_READ_BACK
from palaestrai_mosaik.store.store import StoreLocation

from .cluster import FailedTasks, Submitted, TaskWatch, failed_tasks
from .cluster import submit as submit_search
from .lost import Recovery
from .progress import SearchProgress
from .ranking import make_confirming, write_winner
from .result import BestSetting, best_settings
from .search import Search, check_journal, executed
from .stores import Worker


@dataclass
class SearchSummary:
    """What an execution and a submission of a search tell of it; see :class:`TuneSummary`."""

    folder: Path
    best: list[BestSetting] = field(default_factory=list)
    winner: str | None = None
    ended_by: str | None = None
    collected: Collected | None = None
    not_collected: str | None = None
    not_read_back: str | None = None
    to_retry: int = 0
    retries_left: int = 0
    lost: LostResults = field(default_factory=LostResults)
    restored: list[str] = field(default_factory=list)

    def count_retries(self, records: Sequence[SettingRecord]) -> None:
        """Count the settings that may be retried on request, and those that will be."""
        self.to_retry = count_failed(records)
        self.retries_left = sum(by is None for by in retries_of(records).values())

    def find_best(self, spec: DesignSpec, records: Sequence[SettingRecord], store: str | None) -> None:
        """Find the best settings, and write the winner's document unless results are lost."""
        self.best = best_settings(spec, self.folder, records, store)
        if self.lost.runs:
            # A setting with lost results may be the best one.
            self.best = [replace(setting, recommended=False) for setting in self.best]
        elif self.best:
            winner = next((setting.number for setting in self.best if setting.recommended), None)
            self.winner = write_winner(self.folder, spec, winner)


@dataclass
class TuneSummary(SearchSummary):
    """The result of one execution of a search.

    Attributes:
        folder: the folder of the search.
        states: number of settings in each state, earlier ones included.
        settings: number of settings settled now.
        ended: number of runs executed now, by status.
        again: number of these that have recorded lost results again.
        failures: the records of runs that failed now.
        reasons: the reasons for the failures of all failed settings, by number.
        best: the best settings, the best first; for several objectives, the Pareto front.
        confirmed: the execution of the best settings with fresh seeds; ``None``: they were not executed.
        winner: the run document of the recommended setting, relative to the folder; ``None``: there is no such setting,
            or results are lost.
        ended_by: the limit of the budget, or the other reason, that ended the search; ``None``: it can go on.
        interrupted: whether the user ended it.
        seconds: duration.
        collected: the results copied from runs' own stores to the common one; ``None``: no run has its own store.
        not_collected: the reason if that failed.
        not_read_back: the reason why what was recorded now cannot be read back, if so.
        failed_tasks: the failed tasks of the newest submission to Slurm, if any, with their output.
        retried: number of failed settings marked now for another execution.
        to_retry: number of settings that have failed by themselves, and may be retried on request.
        retries_left: number of marked settings that were not proposed again yet.
        lost: the results that are still lost.
        restored: the files of run documents that were missing or edited, and were written again, relative to the folder.
    """

    states: dict[str, int] = field(default_factory=dict)
    settings: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    again: int = 0
    failures: list[JobRecord] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    confirmed: Summary | None = None
    interrupted: bool = False
    seconds: float = 0.0
    failed_tasks: FailedTasks | None = None
    retried: int = 0


def tune(
    spec: DesignSpec,
    path: Path,
    *,
    store: str | None = None,
    settings: Settings | None = None,
    progress: SearchProgress | None = None,
    retry_failed: bool = False,
) -> TuneSummary:
    """Search for the best settings of a design in a folder, or continue the search that is there.

    SIGINT, SIGTERM and SIGHUP stop the search so that the next call can go on; a second one kills the runs.

    Args:
        spec: a design with a search.
        path: the folder.
        store: the store of the runs; ``None``: ``results`` in the folder.
        settings: execution settings; ``None``: those of the design.
        progress: called with the events of the search; ``None``: no reports.
        retry_failed: retry failed settings before others are proposed.

    Returns:
        The result.

    Raises:
        DocumentError: the folder has other content, or the documents of a setting are invalid.
        ExecutionError: Optuna is missing, another process executes the folder, constraints reject everything, or another
            store has results of the search.
    """
    settings = settings or Settings.of(spec.resolved.get("execution"))
    progress = progress or SearchProgress()
    clock = time.perf_counter()
    path = GrowingFolder.make(spec, path)
    location = StoreLocation.of(path / RESULTS, store)
    summary = TuneSummary(path)
    with held(execution_lock(path), path):
        search = _begin(spec, path, settings, location)
        summary.restored = search.restored
        if settings.executor == "slurm":
            _wait_for_tasks(search, settings, progress, summary, retry_failed)
        else:
            _work_here(search, settings, location, progress, summary, retry_failed)
        summary.failures += search.failures
        summary.collected, summary.not_collected = collect_stores(DesignFolder.open(path), location)
        records = _settings_now(search, location, summary)
        summary.ended_by = search.ended_by or search.over()
        if any(record.state == "running" for record in records) or summary.lost.to_execute():
            # Settings of killed processes are still running, so the search can go on.
            summary.ended_by = None
    summary.states = dict(Counter(record.state for record in records))
    summary.count_retries(records)
    summary.reasons = failure_reasons(records)
    is_over = not summary.interrupted and summary.ended_by is not None
    if is_over and summary.not_read_back is None and not summary.lost.runs:
        folder = make_confirming(spec, path, records)
        if folder is not None:
            summary.confirmed = run_folder(
                folder, which="unfinished", store=store, settings=settings, progress=progress.confirming
            )
            summary.interrupted = summary.confirmed.interrupted
    summary.find_best(spec, records, store)
    summary.seconds = time.perf_counter() - clock
    return summary


def _begin(
    spec: DesignSpec, path: Path, settings: Settings, location: StoreLocation, *, writes: bool = True
) -> Search:
    """Open a search in its folder; the caller holds the lock of the folder. See :class:`Worker`."""
    growing = GrowingFolder(spec, path)
    growing.begin()
    wait_for_dead_command(path)
    check_journal(spec, path)
    worker = Worker(location, own_store=settings.executor in OWN_STORES, writes=writes)
    search = Search(spec, growing, settings, worker)
    search.write(now=True)
    return search


def _work_here(
    search: Search,
    settings: Settings,
    location: StoreLocation,
    progress: SearchProgress,
    summary: TuneSummary,
    retry_failed: bool,
) -> None:
    """Execute runs with lost results again, then those of the search, until nothing is left or the user ends it.

    Raises :class:`ExecutionError` if another store has results that are missing in this one.
    """
    folder = DesignFolder.open(search.path)
    states = load_run_states(folder, location, held=True, ask=False)
    lost = LostResults.of(search.path, states, location)
    otherwise = f"nothing was executed (to execute these runs again, remove {search.path / JOBS})"
    lost.check_store(location, otherwise)
    recovery = Recovery(search, lost.to_execute(retry_failed=retry_failed))
    if retry_failed:
        summary.retried = search.retry_failed()
        states = load_run_states(folder, location, held=True, ask=False)
    executor = make_executor(settings, folder)
    progress.begin_search(search.spec, states.settings, executor.processes)
    records: list[JobRecord] = []
    try:
        with signals_cancel(executor, progress):
            for record in executor.run(recovery) if recovery.runs else ():
                records.append(record)
                recovery.ended(record)
                progress.ended(record)
            for setting in recovery.settings():
                progress.settled(setting)
            for record in () if executor.cancelled else executed(search, executor):
                records.append(record)
                settled = search.ended(record)
                progress.ended(record)
                if settled is not None:
                    summary.settings += 1
                    progress.settled(settled)
    finally:
        progress.end()
        search.close()
        summary.ended = dict(Counter(record.status for record in records))
        summary.interrupted = executor.cancelled
        summary.again = recovery.recorded
    summary.not_read_back = why_unreadable(location, records)


def _settings_now(search: Search, location: StoreLocation, summary: SearchSummary) -> list[SettingRecord]:
    """Return the settings of the search; those with lost results, which ``summary`` gets, count as not executed."""
    try:
        states = load_run_states(DesignFolder.open(search.path), location, held=True, ask=False)
    except StoreError as error:
        summary.not_read_back = summary.not_read_back or f"{NOT_READ_BACK}: {error}"
        return search.records()
    summary.lost = LostResults.of(search.path, states, location)
    return states.settings


def _wait_for_tasks(
    search: Search, settings: Settings, progress: SearchProgress, summary: TuneSummary, retry_failed: bool
) -> None:
    """Submit the tasks that the search can use, and wait for all of its tasks."""
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


@dataclass(kw_only=True)
class SearchSubmission(SearchSummary):
    """The result of :func:`submit` for a search; see :class:`TuneSummary` for the other attributes.

    Attributes:
        submitted: the submitted tasks and their work.
        confirming: the submission of the design that confirms the best settings; ``None``: there is nothing to confirm
            now.
        not_read_back: the reason why the store cannot be read, if so; nothing is confirmed then.
        lost: the lost results, which tasks do not make again.
    """

    submitted: Submitted
    confirming: SubmitSummary | None = None


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
    """Submit tasks to Slurm that work on a search; if it is over, submit the runs that confirm it. Do not wait.

    Args:
        spec: a design with a search.
        path: the folder.
        store: the store to collect results into; ``None``: ``results`` in the folder.
        settings: execution settings.
        ignore_queue: treat tasks of earlier submissions as gone, without asking Slurm.
        dry_run: submit nothing.
        retry_failed: retry settings with a failed run before others are proposed.

    Returns:
        The result.

    Raises:
        ExecutionError: Optuna is missing, or another process executes the folder. Nothing was submitted.
        SchedulerError: Slurm does not answer. Nothing was submitted.
    """
    path = GrowingFolder.make(spec, path)
    location = StoreLocation.of(path / RESULTS, store)
    with held(execution_lock(path), path):
        search = _begin(spec, path, settings, location, writes=not dry_run)
        try:
            submitted = submit_search(
                search,
                DesignFolder.open(path),
                settings,
                ignore_queue=ignore_queue,
                dry_run=dry_run,
                retry_failed=retry_failed,
            )
            summary = SearchSubmission(path, submitted=submitted, restored=search.restored)
            records = _settings_now(search, location, summary)
            summary.ended_by = None if summary.lost.to_execute() else search.over()
        finally:
            search.close()
        is_over = summary.ended_by is not None and not dry_run
        if is_over:
            summary.collected, summary.not_collected = collect_stores(DesignFolder.open(path), location)
    if is_over and summary.not_read_back is None and not summary.lost.runs:
        folder = make_confirming(spec, path, records)
        if folder is not None:
            summary.confirming = _submit_confirming(folder, summary, store, settings, ignore_queue)
    summary.count_retries(records)
    if not dry_run and summary.not_read_back is None:
        summary.find_best(spec, records, store)
    return summary


def _submit_confirming(
    folder: DesignFolder, summary: SearchSubmission, store: str | None, settings: Settings, ignore_queue: bool
) -> SubmitSummary:
    """Collect and submit the runs that confirm the best settings."""
    if summary.not_collected is None:
        location = StoreLocation.of(folder.path / RESULTS, store)
        summary.not_collected = collect_stores(folder, location)[1]
    return submit_missing(
        folder, which="unfinished", store=store, settings=settings, ignore_queue=ignore_queue
    )
