"""Executes a search on this machine: ``arsenai tune``."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from palaestrai_mosaik.design.folder import JOBS, RESULTS, execution_lock
from palaestrai_mosaik.design.growing import GrowingFolder
from palaestrai_mosaik.design.model import DesignSpec
from palaestrai_mosaik.errors import ExecutionError
from palaestrai_mosaik.execution import Executor, InlineExecutor, LocalExecutor, Settings, Summary
from palaestrai_mosaik.execution.claim import wait_for_exits
from palaestrai_mosaik.execution.executor import classes_to_preload
from palaestrai_mosaik.execution.job import JobRecord, held
from palaestrai_mosaik.execution.runs import signals_cancel
from palaestrai_mosaik.execution.task import GRACE
from palaestrai_mosaik.store.location import StoreLocation

from .confirm import confirm, write_winner
from .progress import SearchProgress
from .result import BestSetting, best_settings
from .search import Search, Worker


@dataclass
class TuneSummary:
    """How a search went, this time.

    Attributes:
        folder: the folder of the search.
        states: how many settings there are in each state, earlier ones included.
        settings: how many settings were settled now.
        ended: how many runs were executed now, by how they ended.
        failures: the records of runs that failed now.
        best: the best settings, the best first; of several objectives the Pareto front.
        confirmed: how the best ones were executed with fresh seeds; ``None``: they were not.
        winner: the run document of the best setting, relative to the folder; ``None`` where there is none.
        ended_by: which limit of the budget ended the search, or what else; ``None``: it can go on.
        interrupted: whether the user ended it.
    """

    folder: Path
    states: dict[str, int] = field(default_factory=dict)
    settings: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    failures: list[JobRecord] = field(default_factory=list)
    best: list[BestSetting] = field(default_factory=list)
    confirmed: Summary | None = None
    winner: str | None = None
    ended_by: str | None = None
    interrupted: bool = False
    seconds: float = 0.0


def tune(
    spec: DesignSpec,
    path: Path,
    *,
    store: str | None = None,
    settings: Settings | None = None,
    progress: SearchProgress | None = None,
) -> TuneSummary:
    """Search for the best settings of a design, in a folder; one that is there goes on.

    SIGINT and SIGTERM stop the search so that the next call can go on; a second one kills the runs.

    Args:
        spec: a design with a search.
        path: the folder.
        store: where the runs are recorded; ``None``: ``results`` in the folder.
        settings: how runs are executed; ``None``: as the design says.
        progress: is called with what happens; ``None``: nothing is shown.

    Raises:
        DocumentError: something else is in the folder, or the documents of a setting are not sound.
        ExecutionError: Optuna is missing, another process executes the folder, or constraints reject everything.
    """
    settings = settings or Settings.of(spec.resolved.get("execution"))
    if settings.executor not in ("local", "inline"):
        raise ExecutionError(
            f"a search is executed on this machine, by the executors local and inline, not by {settings.executor}: "
            "arsenai tune --executor local"
        )
    progress = progress or SearchProgress()
    clock = time.perf_counter()
    path = GrowingFolder.make(spec, path)
    summary = TuneSummary(path)
    with held(execution_lock(path), path):
        growing = GrowingFolder(spec, path)
        growing.begin()
        # runs of a command that is gone
        wait_for_exits((path / JOBS).glob("*.running"), 2 * GRACE, of=lambda marker: marker.task is None)
        search = Search(spec, growing, settings, Worker(StoreLocation.of(path / RESULTS, store)))
        work(search, executor_of(spec, settings), progress, summary)
        records = search.records()
    summary.failures, summary.ended_by = search.failures, search.ended_by
    summary.states = dict(Counter(one.state for one in records))
    if not summary.interrupted and summary.ended_by is not None:
        summary.confirmed = confirm(
            spec, path, records, store=store, settings=settings, progress=progress.confirming
        )
        summary.interrupted = summary.confirmed is not None and summary.confirmed.interrupted
    summary.best = best_settings(spec, path, records, store)
    if summary.best:
        summary.winner = write_winner(path, spec, summary.best[0].number)
    summary.seconds = time.perf_counter() - clock
    return summary


def executor_of(spec: DesignSpec, settings: Settings) -> Executor:
    """Return what executes the runs of a search here: one run a process, as each may decide what comes next."""
    if settings.executor == "inline":
        return InlineExecutor()
    return LocalExecutor(
        settings.jobs,
        timeout=settings.timeout or None,
        runs_per_process=1,
        preload=classes_to_preload(spec.resolved),
    )


def work(search: Search, executor: Executor, progress: SearchProgress, summary: TuneSummary) -> None:
    """Execute what ``search`` gives, until there is nothing more to begin or the user ends it."""
    ended: Counter[str] = Counter()
    progress.begin_search(search.spec, search.records(), executor.processes)
    try:
        with signals_cancel(executor, progress):
            for record in executor.run(search):
                ended[record.status] += 1
                settled = search.ended(record)
                progress.ended(record)
                if settled is not None:
                    summary.settings += 1
                    progress.settled(settled)
                if search.cancelled:
                    executor.cancel()
    finally:
        progress.end()
        search.close()
        summary.ended, summary.interrupted = dict(ended), executor.cancelled
