"""Executes the missing or selected runs of a design folder."""

from __future__ import annotations

import logging
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from palaestrai_mosaik.arsenai.design.design import available_cores
from palaestrai_mosaik.arsenai.design.folder import JOBS, RESULTS, STORES, DesignFolder, execution_lock
from palaestrai_mosaik.core.errors import DocumentError, ExecutionError, SchedulerError, StoreError
from palaestrai_mosaik.runner.checkpoint import FOLDER as CHECKPOINTS
from palaestrai_mosaik.runner.checkpoint import resumable, versions, why_unusable
from palaestrai_mosaik.runner.interrupt import HANGUP, ending_signals, leave_terminal
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.read_back import NOT_READ_BACK, check_recorded
from palaestrai_mosaik.store.store import StoreLocation

from .claim import wait_for_exits
from .cluster.submission import Submission, Submissions, TaskRun, run_store_location
from .executor import Executor, InlineExecutor, classes_to_preload
from .job import Job, JobRecord, held
from .local import LocalExecutor
from .progress import FolderProgress
from .run_store import orphaned_stores
from .settings import Settings
from .status import (
    RECORDED,
    STATUSES_TO_EXECUTE,
    RunState,
    RunStatus,
    RunsToExecute,
    States,
    job_path,
    job_records,
    load_run_states,
    run_file_stem,
    run_states,
)
from .task import GRACE

if TYPE_CHECKING:
    from .cluster.collect import Collected


logger = logging.getLogger(__name__)

#: executors that give each run a store of its own
OWN_STORES = ("slurm", "parsl")


@dataclass(frozen=True, slots=True)
class RunSelection:
    """The runs to be executed (``chosen``), and the number of others by status (``before``)."""

    chosen: tuple[RunState, ...]
    before: dict[RunStatus, int]

    @property
    def considered(self) -> int:
        """The number of runs considered."""
        return len(self.chosen) + sum(self.before.values())


def select_by_status(states: States, which: RunsToExecute, considered: Collection[str]) -> RunSelection:
    """Select the runs to be executed by their status.

    Args:
        states: the states of all runs of the design.
        which: the statuses to select.
        considered: the uids of the runs to select from.

    Raises:
        SchedulerError: it is unknown whether a scheduler still has some of the runs.
    """
    if states.problems:
        raise SchedulerError(
            f"it is unknown which runs the cluster still has: {'; '.join(states.problems)} "
            "(--ignore-queue treats them as lost)"
        )
    statuses = STATUSES_TO_EXECUTE[which]
    states_considered = [state for state in states.runs if state.planned.uid in considered]
    chosen = tuple(state for state in states_considered if state.status in statuses)
    kept = Counter(state.status for state in states_considered if state.status not in statuses)
    return RunSelection(chosen, dict(kept))


def select_runs(folder: DesignFolder, rows: Collection[int] | None) -> set[str]:
    """Return the uids of the runs of some rows.

    Args:
        folder: the design folder.
        rows: numbers of rows of the design, from 0; ``None``: all.

    Raises:
        ExecutionError: the design does not have one of the rows.
    """
    if rows is None:
        return {run.uid for run in folder.documents}
    rows_of_design = {run.row for run in folder.runs}
    unknown = sorted(set(rows) - rows_of_design)
    if unknown:
        have = f"rows 0 to {max(rows_of_design)}" if rows_of_design else "no rows"
        raise ExecutionError(f"the design has no row {unknown[0]}: it has {have}")
    return {run.run for run in folder.runs if run.row in rows}


def row_values(folder: DesignFolder, uids: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """Return the values of the factors in the row of each run.

    Args:
        folder: the design folder.
        uids: uids of runs.

    Returns:
        For each uid, the values of the factors by name.
    """
    if not uids:
        return {}
    values = folder.values()
    return {run.uid: values[run.row] for run in folder.documents if run.uid in uids}


@dataclass
class Summary:
    """The result of executing a folder.

    Attributes:
        considered: the number of runs considered.
        before: the number of runs that were not executed, by status.
        ended: the number of executed runs, by their new status.
        not_begun: the number of runs that did not begin because of Ctrl-C or ``fail_fast``.
        left_out: the number of runs skipped because another process executes them.
        failures: the records of runs that failed now.
        seconds: the duration of the execution.
        interrupted: whether the execution was interrupted.
        collected: the results copied from runs' own stores to the common one.
        not_collected: the error if they could not be copied.
        not_read_back: the error if results recorded now cannot be read back.
    """

    considered: int
    before: dict[RunStatus, int] = field(default_factory=dict)
    ended: dict[RunStatus, int] = field(default_factory=dict)
    not_begun: int = 0
    left_out: int = 0
    failures: list[JobRecord] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False
    collected: Collected | None = None
    not_collected: str | None = None
    not_read_back: str | None = None

    @property
    def finished(self) -> int:
        """The number of considered runs that have finished, now or earlier."""
        return self.ended.get(RunStatus.FINISHED, 0) + self.before.get(RunStatus.FINISHED, 0)

    @property
    def whole(self) -> bool:
        """Whether all considered runs have finished and can be read back."""
        return self.finished == self.considered and self.not_read_back is None


def run_folder(
    folder: DesignFolder,
    *,
    which: RunsToExecute = "missing",
    rows: Collection[int] | None = None,
    store: str | None = None,
    settings: Settings | None = None,
    progress: FolderProgress | None = None,
    ignore_queue: bool = False,
) -> Summary:
    """Execute runs of a design folder and record them.

    An interrupted run resumes from its checkpoint, if it has one (and on a cluster, if it was interrupted there).
    SIGINT, SIGTERM and SIGHUP stop the execution so that the next call can resume; a second SIGINT or SIGTERM kills the
    runs. On a cluster, each run has its own store, and finished results are collected at the end.

    Args:
        folder: the design folder.
        which: ``missing`` excludes failed runs, ``unfinished`` includes them, ``failed`` selects only them. Runs that
            are executing or have finished are never selected.
        rows: numbers of rows of the design, from 0; ``None``: all.
        store: the store for the results; ``None``: ``results`` in the folder.
        settings: settings of the execution; ``None``: those of the design.
        progress: displays the progress; ``None``: nothing is shown.
        ignore_queue: treat the tasks of earlier submissions to a cluster as gone, without querying the scheduler.

    Returns:
        The numbers of runs by status, and the records of failures.

    Raises:
        ExecutionError: another process executes the folder, or a row does not exist; nothing was executed.
        SchedulerError: the scheduler of a submission does not answer; nothing was executed.
        DocumentError: a file of the folder was edited; nothing was executed.
    """
    settings = settings or Settings.of(folder.spec.resolved.get("execution"))
    progress = progress or FolderProgress()
    considered = select_runs(folder, rows)
    location = StoreLocation.of(folder.path / RESULTS, store)
    clock = time.perf_counter()
    with held(execution_lock(folder.path), folder.path):
        problems = folder.verify()
        if problems:
            raise DocumentError(problems)
        wait_for_dead_command(folder.path)
        summary = Summary(len(considered))
        if orphaned_stores(folder, job_records(folder)):
            # collect them first, because runs that now have the same names would hide them
            _collect(folder, location, summary)
        with location.open(create=True) as opened:
            states = run_states(folder, opened, held=True, ask=not ignore_queue)
            selection = select_by_status(states, which, considered)
            to_resume = {
                state.planned.uid: resumable(opened, [entry[:2] for entry in state.instances])
                for state in selection.chosen
            }
            _warn_of_unusable_checkpoints(opened, selection.chosen, to_resume)
        summary.considered, summary.before = selection.considered, selection.before
        logger.info("%d of %d runs are executed", len(selection.chosen), selection.considered)
        if selection.chosen:
            executor = make_executor(settings, folder)
            jobs = (
                replace(
                    _job(folder, state, location, own_store=settings.executor in OWN_STORES),
                    resume=to_resume[state.planned.uid],
                    checkpoint_every=settings.checkpoint_every,
                    allow_modules=settings.allow_modules,
                )
                for state in selection.chosen
            )
            try:
                with signals_cancel(executor, progress):
                    recorded = _execute(
                        executor, jobs, len(selection.chosen), settings.fail_fast, progress, summary
                    )
            except ExecutionError:
                # collect the runs that ended before the error
                _collect(folder, location, summary)
                raise
            summary.not_read_back = why_unreadable(location, recorded)
        _collect(folder, location, summary)
    summary.seconds = time.perf_counter() - clock
    return summary


def wait_for_dead_command(folder: Path) -> None:
    """Wait for the processes that a dead command has left on this host in a design folder."""
    pilots = tuple(f"{entry.name}:" for entry in Submissions(folder).all() if entry.executor == "parsl")
    wait_for_exits(
        (folder / JOBS).glob("*.running"),
        2 * GRACE,
        of=lambda marker: marker.task is None or marker.task.startswith(pilots),
    )


def _collect(folder: DesignFolder, location: StoreLocation, summary: Summary) -> None:
    """Copy results from runs' own stores to the common one. Errors are stored in ``summary``, not raised."""
    collected, summary.not_collected = collect_stores(folder, location)
    if collected is not None:
        if summary.collected is not None:
            collected.runs += summary.collected.runs
        summary.collected = collected


def collect_stores(folder: DesignFolder, location: StoreLocation) -> tuple[Collected | None, str | None]:
    """Copy results from runs' own stores to the common one.

    Args:
        folder: the design folder.
        location: the common store.

    Returns:
        The copied results, or ``None`` if no run has its own store, and an error message or ``None``.
    """
    if not (folder.path / STORES).is_dir():
        return None, None
    from .cluster.collect import collect_folder

    try:
        return collect_folder(folder, location), None
    except (ExecutionError, StoreError) as error:
        return None, str(error)


def _warn_of_unusable_checkpoints(
    store: Store, chosen: Sequence[RunState], to_resume: Mapping[str, str | None]
) -> None:
    """Warn of runs with checkpoints that cannot be used, for example because they are signed with another key."""
    now, reasons = versions(), []
    for state in chosen:
        instance = to_resume[state.planned.uid]
        if instance is not None:
            hash_ = next(
                known_instance.hash for known_instance in state.instances if known_instance.uid == instance
            )
            reasons.append(why_unusable(store.instance_directory(instance), hash_, now))
    errors = [reason for reason in reasons if reason is not None]
    if errors:
        logger.warning(
            "%d of %d interrupted runs will start from the beginning: %s",
            len(errors),
            len(reasons),
            errors[0],
        )


def _job(folder: DesignFolder, state: RunState, location: StoreLocation, *, own_store: bool) -> Job:
    """Return the job of a run. A run with a checkpoint in its own store resumes there, regardless of the executor."""
    planned = state.planned
    document = (folder.path / planned.file).absolute()
    run_store = run_store_location(folder.path, run_file_stem(planned))
    own_store = own_store or any(Path(run_store.location).glob(f"instances/*/{CHECKPOINTS}"))
    path = job_path(folder.path, planned)
    store = run_store if own_store else location
    return Job(planned.uid, planned.hash, document, path, store, state.attempts + 1, own_store=own_store)


def _execute(
    executor: Executor,
    jobs: Iterator[Job],
    total: int,
    fail_fast: bool,
    progress: FolderProgress,
    summary: Summary,
) -> list[JobRecord]:
    """Execute jobs, update the summary, and return their records."""
    ended: Counter[RunStatus] = Counter()
    records: list[JobRecord] = []

    def wanted() -> Iterator[Job]:
        for job in jobs:
            if fail_fast and ended[RunStatus.FAILED]:
                return
            yield job

    progress.begin(total, executor.processes)
    try:
        for record in executor.run(wanted()):
            ended[RunStatus(record.status)] += 1
            records.append(record)
            if record.status == "failed":
                summary.failures.append(record)
            progress.ended(record)
    finally:
        progress.end()
        summary.ended, summary.interrupted = dict(ended), executor.cancelled
        summary.left_out = len(executor.left_out)
        summary.not_begun = total - ended.total() - summary.left_out
    return records


def why_unreadable(location: StoreLocation, records: Iterable[JobRecord]) -> str | None:
    """Return an error message if runs recorded at a location cannot be read back, else ``None``.

    Args:
        location: the store of the design.
        records: records of ended runs. Runs with their own store are ignored.
    """
    runs = [
        record.instance
        for record in records
        if record.instance is not None and record.status in RECORDED and record.store == location.shown
    ]
    if not runs:
        return None
    try:
        with location.look() as store:
            check_recorded(store, runs)
    except StoreError as error:
        return f"{NOT_READ_BACK}: {error}"
    return None


class Cancellable(Protocol):
    """An operation that Ctrl-C cancels."""

    @property
    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called."""

    def cancel(self, *, now: bool = False) -> None:
        """Start no more runs and stop the current ones, or kill them if ``now``."""


@contextmanager
def signals_cancel(executor: Cancellable, progress: FolderProgress) -> Iterator[None]:
    """Cancel the executor on SIGINT, SIGTERM and SIGHUP, and kill its runs on a second SIGINT or SIGTERM.

    Args:
        executor: the operation to cancel.
        progress: asks the user to wait for the current runs.
    """
    previous: dict[signal.Signals, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        if number == HANGUP:
            leave_terminal()
            executor.cancel()
            return
        if not executor.cancelled:
            progress.wait()
        executor.cancel(now=executor.cancelled)

    # Python allows signal handlers only in the main thread
    if threading.current_thread() is threading.main_thread():
        previous = {number: signal.signal(number, handle) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class SubmitSummary:
    """The result of a submission.

    Attributes:
        submission: the submission; ``None`` after a dry run, or if there were no runs to submit.
        runs: the runs of the submission.
        considered: the number of runs considered.
        before: the number of runs that were not submitted, by status.
    """

    submission: Submission | None
    runs: tuple[TaskRun, ...]
    considered: int
    before: dict[RunStatus, int]


def submit_missing(
    folder: DesignFolder,
    *,
    which: RunsToExecute = "missing",
    rows: Collection[int] | None = None,
    store: str | None = None,
    settings: Settings,
    ignore_queue: bool = False,
    dry_run: bool = False,
) -> SubmitSummary:
    """Submit runs of a design folder to Slurm, except those that a live task already has.

    Args:
        folder: the design folder.
        which: see :func:`~palaestrai_mosaik.arsenai.execution.run_folder`.
        rows: numbers of rows of the design, from 0; ``None``: all.
        store: the store that collects the results; ``None``: ``results`` in the folder.
        settings: settings of the execution.
        ignore_queue: treat the tasks of earlier submissions as gone, without querying Slurm.
        dry_run: submit nothing.

    Returns:
        The submission and its runs.

    Raises:
        ExecutionError: another process executes the folder; nothing was submitted.
        SchedulerError: Slurm does not answer; nothing was submitted.
        DocumentError: a file of the folder was edited; nothing was submitted.
    """
    from .cluster.collect import collect_folder
    from .cluster.submit import recover_submissions, submit_folder

    considered = select_runs(folder, rows)
    location = StoreLocation.of(folder.path / RESULTS, store)
    with held(execution_lock(folder.path), folder.path):
        problems = folder.verify()
        if problems:
            raise DocumentError(problems)
        if not ignore_queue:
            recover_submissions(folder.path)
        if not dry_run and orphaned_stores(folder, job_records(folder)):
            # collect them first, because runs that now have the same names would hide them
            collect_folder(folder, location)
        states = load_run_states(folder, location, held=True, ask=not ignore_queue)
        selection = select_by_status(states, which, considered)
        runs = tuple(task_run(state) for state in selection.chosen)
        submission = submit_folder(folder, runs, settings) if runs and not dry_run else None
    return SubmitSummary(submission, runs, selection.considered, selection.before)


def task_run(state: RunState) -> TaskRun:
    """Return the entry for the next attempt at the run of ``state`` in a task."""
    planned = state.planned
    return TaskRun(planned.uid, planned.hash, planned.file, state.attempts + 1)


def make_executor(settings: Settings, folder: DesignFolder) -> Executor:
    """Return the executor of ``settings`` for the runs of ``folder``.

    Runs of a search share no process or task, because each depends on the results of earlier ones.

    Args:
        settings: settings of the execution.
        folder: the design folder.
    """
    searching = folder.spec.search is not None
    if settings.executor == "inline":
        return InlineExecutor()
    if settings.executor == "slurm":
        from .cluster.slurm_executor import SlurmExecutor

        return SlurmExecutor(folder, settings)
    if settings.executor == "parsl":
        from .cluster.parsl_executor import ParslExecutor

        return ParslExecutor(folder, settings, one_by_one=searching)
    return LocalExecutor(
        settings.jobs,
        timeout=settings.timeout or None,
        # a shared process would start its next run after a failure
        runs_per_process=1 if settings.fail_fast or searching else settings.runs_per_process,
        preload=classes_to_preload(folder.spec.resolved),
    )


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """An estimate of the time that the missing runs will take.

    Attributes:
        seconds_per_run: the median over the finished runs, including the start of their processes; ``None`` if no
            finished run has a record.
        processes: the number of concurrent runs: those that are running, else as many as would be.
        seconds: the time until all runs are executed that have neither finished nor failed; ``None`` if
            ``seconds_per_run`` is.
    """

    seconds_per_run: float | None
    processes: int
    seconds: float | None


def time_left(folder: DesignFolder, states: States) -> TimeLeft:
    """Estimate the time that the missing runs of a design folder will take.

    Args:
        folder: the design folder.
        states: the states of its runs.
    """
    counts = Counter(state.status for state in states.runs)
    # read only `jobs`, because other settings of the section may be invalid
    section = folder.spec.resolved.get("execution") or {}
    processes = counts[RunStatus.RUNNING] or Settings(jobs=section.get("jobs")).jobs or available_cores()
    durations = [
        state.record.seconds
        for state in states.runs
        if state.status is RunStatus.FINISHED and state.record is not None
    ]
    if not durations:
        return TimeLeft(None, processes, None)
    over = (*RECORDED, RunStatus.SKIPPED, *STATUSES_TO_EXECUTE["failed"])
    missing = len(states.runs) - sum(counts[status] for status in over)
    median = statistics.median(durations)
    return TimeLeft(median, processes, median * missing / processes)
