"""Executes the runs of a design folder: those that are missing, or those that are asked for."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from palaestrai_mosaik.design.folder import JOBS, RESULTS, DesignFolder
from palaestrai_mosaik.errors import DocumentError, ExecutionError
from palaestrai_mosaik.run import Interrupt
from palaestrai_mosaik.store.location import StoreLocation

from .executor import Executor
from .instances import resumable
from .job import Job, JobRecord, Marker
from .lock import FolderLock
from .progress import FolderProgress
from .settings import Settings, make_executor
from .status import RunState, RunStatus, job_path, run_states
from .task import GRACE

Which = Literal["missing", "unfinished", "failed"]
#: which states are executed
CHOSEN: Mapping[Which, frozenset[RunStatus]] = {
    "missing": frozenset({RunStatus.WAITING, RunStatus.INTERRUPTED, RunStatus.LOST}),
    "unfinished": frozenset({RunStatus.WAITING, RunStatus.INTERRUPTED, RunStatus.LOST, RunStatus.FAILED}),
    "failed": frozenset({RunStatus.FAILED}),
}
_POLL = 0.1


@dataclass
class Summary:
    """How the execution of a folder went.

    ``considered``: the runs that were asked about; ``before``: how many of them had each status
    and were left as they are; ``ended``: how many were executed, by how they ended;
    ``not_begun``: those that Ctrl-C or ``fail_fast`` came before. ``failures``: the records of those
    that failed now.
    """

    considered: int
    before: dict[RunStatus, int] = field(default_factory=dict)
    ended: dict[RunStatus, int] = field(default_factory=dict)
    not_begun: int = 0
    failures: list[JobRecord] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def finished(self) -> int:
        """How many of the runs asked about have finished, now or earlier."""
        return self.ended.get(RunStatus.FINISHED, 0) + self.before.get(RunStatus.FINISHED, 0)

    @property
    def whole(self) -> bool:
        """Whether all runs asked about have finished."""
        return self.finished == self.considered


def run_folder(
    folder: DesignFolder,
    *,
    which: Which = "missing",
    rows: Collection[int] | None = None,
    store: str | None = None,
    settings: Settings | None = None,
    progress: FolderProgress | None = None,
) -> Summary:
    """Execute runs of ``folder`` and record them in ``store`` (default: its ``results``).

    ``which``: ``missing`` leaves out those that failed, ``unfinished`` does not, ``failed`` means
    these alone; what runs now or has finished is always left out. ``rows``: only
    these rows of the design. A run that was interrupted goes on from its checkpoint, if it has one.
    SIGINT and SIGTERM end it, and leave what the next call goes on from; a second one kills.

    ``settings`` is by default what the design says. Raises, with nothing executed,
    :class:`ExecutionError` where another process executes the folder or a row does not exist,
    :class:`~palaestrai_mosaik.errors.DocumentError` where a file of the folder was edited.
    """
    settings = settings or Settings.of(folder.spec.resolved.get("execution"))
    progress = progress or FolderProgress()
    considered = select_runs(folder, rows)
    location = StoreLocation.of(folder.path / RESULTS, store)
    clock = time.perf_counter()
    with FolderLock(folder.path):
        problems = folder.verify()
        if problems:
            raise DocumentError(problems)
        _settle(folder.path / JOBS)
        with location.open(create=True) as opened:
            states = [state for state in run_states(folder, opened) if state.planned.uid in considered]
            chosen = [state for state in states if state.status in CHOSEN[which]]
            going_on = {state.planned.uid: resumable(opened, state.instances) for state in chosen}
        kept = [state.status for state in states if state.status not in CHOSEN[which]]
        summary = Summary(len(states), before=dict(Counter(kept)))
        if chosen:
            executor = make_executor(settings, folder.spec.resolved)
            every = settings.checkpoint_every
            jobs = (
                replace(
                    _job(folder, state, location), resume=going_on[state.planned.uid], checkpoint_every=every
                )
                for state in chosen
            )
            with _signals_cancel(executor, progress):
                _execute(executor, jobs, len(chosen), settings.fail_fast, progress, summary)
    summary.seconds = time.perf_counter() - clock
    return summary


def select_runs(folder: DesignFolder, rows: Collection[int] | None) -> set[str]:
    """Return the uids of the runs that are executed for ``rows`` (all of them if ``None``).

    Raises :class:`ExecutionError` for a row that the design does not have.
    """
    if rows is None:
        return {run.uid for run in folder.documents}
    known = {run.row for run in folder.runs}
    strange = sorted(set(rows) - known)
    if strange:
        have = f"rows 0 to {max(known)}" if known else "no rows"
        raise ExecutionError(f"the design has no row {strange[0]}: it has {have}")
    return {run.run for run in folder.runs if run.row in rows}


def row_values(folder: DesignFolder, uids: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """Return what the factors are in the row of each of these runs, by uid."""
    if not uids:
        return {}
    values = folder.values()
    return {run.uid: values[run.row] for run in folder.documents if run.uid in uids}


def _job(folder: DesignFolder, state: RunState, location: StoreLocation) -> Job:
    planned = state.planned
    document = (folder.path / planned.file).absolute()
    path = job_path(folder.path, planned)
    return Job(planned.uid, planned.hash, document, path, location, state.attempts + 1)


def _execute(
    executor: Executor,
    jobs: Iterator[Job],
    total: int,
    fail_fast: bool,
    progress: FolderProgress,
    summary: Summary,
) -> None:
    ended: Counter[RunStatus] = Counter()

    def wanted() -> Iterator[Job]:
        for job in jobs:
            if fail_fast and ended[RunStatus.FAILED]:
                return
            yield job

    progress.begin(total, executor.processes)
    try:
        for record in executor.run(wanted()):
            ended[RunStatus(record.status)] += 1
            if record.status == "failed":
                summary.failures.append(record)
            progress.ended(record)
    finally:
        progress.end()
        summary.ended, summary.interrupted = dict(ended), executor.cancelled
        summary.not_begun = total - ended.total()


@contextmanager
def _signals_cancel(executor: Executor, progress: FolderProgress) -> Iterator[None]:
    """Let SIGINT and SIGTERM cancel the executor, a second one at once."""
    previous: dict[signal.Signals, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        if not executor.cancelled:
            progress.wait()
        executor.cancel(now=executor.cancelled)

    # (Python allows handlers in the main thread only)
    if threading.current_thread() is threading.main_thread():
        previous = {number: signal.signal(number, handle) for number in Interrupt.SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _settle(jobs: Path) -> None:
    """Wait for runs of a command that is gone: they notice, and end within seconds."""
    until = time.monotonic() + 2 * GRACE
    while time.monotonic() < until:
        markers = (Marker.read(path) for path in jobs.glob("*.running"))
        if not any(marker is not None and marker.of_this_host and marker.alive for marker in markers):
            return
        time.sleep(_POLL)
