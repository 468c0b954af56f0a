"""The statuses of the runs of a folder."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal

import sqlalchemy as sa

from palaestrai_mosaik.arsenai.design.folder import JOBS, RESULTS, STORES, DesignFolder, PlannedRun
from palaestrai_mosaik.arsenai.design.settings import SearchJournal, SettingRecord, read_journal
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ExecutionError, StoreError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.database import Database, MissingStoreError
from palaestrai_mosaik.store.merge import instance_states
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.store.urls import check_named, is_database

from .cluster.scheduler import TaskState
from .cluster.submission import TaskRun, run_store_location
from .cluster.task_assignment import TaskAssignment, task_assignments
from .job import Evidence, JobRecord, Marker, is_stale, with_suffix
from .run_store import KnownInstance, instances_of, is_whole, orphaned_stores, uncollected_contents


class RunStatus(StrEnum):
    """The status of a planned run."""

    #: the run has not been started
    WAITING = "waiting"
    #: a cluster's scheduler has the run, and it has not begun
    QUEUED = "queued"
    #: a process executes the run
    RUNNING = "running"
    #: the common store or the run's own has its complete results
    FINISHED = "finished"
    #: the run failed, reached its time limit, or its process died; or its task failed before any of its runs began
    FAILED = "failed"
    #: a search stopped the run early, and kept its records
    PRUNED = "pruned"
    #: a search does not need the run, because another run of its setting was pruned or failed
    SKIPPED = "skipped"
    #: the user ended the run
    INTERRUPTED = "interrupted"
    #: the scheduler ended the run's task, and the run has no record
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    NODE_FAILED = "node failed"
    CANCELLED = "cancelled"
    #: the run's process is gone without a record, or its results are gone
    LOST = "lost"


#: the status of a run that had begun, without a record, by the final state of its task
_STATUS_BY_TASK_STATE = {
    TaskState.TIMED_OUT: RunStatus.TIMED_OUT,
    TaskState.OUT_OF_MEMORY: RunStatus.OUT_OF_MEMORY,
    TaskState.NODE_FAILED: RunStatus.NODE_FAILED,
    TaskState.CANCELLED: RunStatus.CANCELLED,
}
#: the status of all runs of a task in which none has begun: the task would fail in the same way again
FAILED_BEFORE_RUNS = {
    TaskState.FAILED: (RunStatus.FAILED, "failed"),
    TaskState.OUT_OF_MEMORY: (RunStatus.OUT_OF_MEMORY, "ran out of memory"),
}


@dataclass(frozen=True, slots=True)
class RunState:
    """A planned run, its status, and the evidence for it.

    Attributes:
        planned: the run.
        status: its status.
        record: the record in ``jobs/`` for its document, or for a document that differs only in its uid
            (``record.run``).
        marker: the marker in ``jobs/`` for its document.
        instances: its instances in the store, the newest last.
        assignment: the newest task of a cluster that has it.
        collected: false if it has finished or was pruned in its own store, and is not in the common one yet.
        lost: whether it has ended according to the search, and its results are in no store any more.
    """

    planned: PlannedRun
    status: RunStatus
    record: JobRecord | None
    marker: Marker | None
    instances: tuple[KnownInstance, ...]
    assignment: TaskAssignment | None = None
    collected: bool = True
    lost: bool = False

    @property
    def attempts(self) -> int:
        """The number of attempts that have begun, according to ``jobs/``."""
        return Evidence(self.record, self.marker).attempts

    @property
    def error(self) -> str | None:
        """The error of a failed run, if it is known."""
        if self.before is not None:
            return f"its task {self.before} before the run began"
        return self.record.error if self.status is RunStatus.FAILED and self.record is not None else None

    @property
    def before(self) -> str | None:
        """The reason if it failed because its task ended before any of the task's runs began (``failed``).

        ``assignment.log`` may have details.
        """
        if self.assignment is None or self.assignment.state is None or self.assignment.begun:
            return None
        status, how = FAILED_BEFORE_RUNS.get(self.assignment.state, (None, None))
        return how if status is self.status else None

    @property
    def out_of_time(self) -> bool:
        """Whether it waits again because the time limit of its task was reached before it began."""
        over = (TaskState.TIMED_OUT, TaskState.ASKED_TO_END)
        return (
            self.status is RunStatus.WAITING and self.assignment is not None and self.assignment.state in over
        )


#: the statuses of runs that have results
RECORDED = (RunStatus.FINISHED, RunStatus.PRUNED)
#: the statuses of runs that have results, or will have them
_KEPT = (*RECORDED, RunStatus.RUNNING, RunStatus.QUEUED)
RunsToExecute = Literal["missing", "unfinished", "failed"]
_FAILED = frozenset({RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.OUT_OF_MEMORY})
_MISSING = frozenset(
    {RunStatus.WAITING, RunStatus.INTERRUPTED, RunStatus.LOST, RunStatus.NODE_FAILED, RunStatus.CANCELLED}
)
#: the statuses of the runs to execute
STATUSES_TO_EXECUTE: Mapping[RunsToExecute, frozenset[RunStatus]] = {
    "missing": _MISSING,
    "unfinished": _MISSING | _FAILED,
    "failed": _FAILED,
}


@dataclass(frozen=True, slots=True)
class States:
    """The state of every run of a design, in its order.

    ``problems``, ``faults`` and ``searching`` are those of
    :class:`~palaestrai_mosaik.arsenai.execution.cluster.task_assignment.TaskAssignments`. ``journal`` is that of a search, as it
    was before the stores were read.
    """

    runs: tuple[RunState, ...]
    problems: tuple[str, ...] = ()
    searching: Mapping[int, Mapping[int, TaskState]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    journal: SearchJournal = field(default_factory=SearchJournal)

    @property
    def settings(self) -> list[SettingRecord]:
        """The settings of a search; those that have lost results, or repeat one that has, count as not executed."""
        lost = Counter(state.planned.row for state in self.runs if state.lost)
        return [
            setting
            if setting.state == "running" or lost.keys().isdisjoint((setting.number, setting.first))
            else replace(
                setting,
                state="lost",
                values=(),
                runs=setting.runs - lost[setting.number],
                steps=0,
                seconds=0.0,
            )
            for setting in self.journal.settings
        ]


@dataclass(frozen=True, slots=True)
class LostResults:
    """The lost results of a search.

    Attributes:
        runs: the ended runs with results in none of the searched stores.
        other_store: another store that has results of these runs, if it is to be named. It is not if another store than
            the folder's own was searched, and has results of the search.
    """

    runs: tuple[RunState, ...] = ()
    other_store: str | None = None

    @classmethod
    def of(cls, folder: Path, states: States, store: StoreLocation) -> LostResults:
        """Determine the lost results of the search in a folder.

        Args:
            folder: the folder.
            states: the states of its runs.
            store: the common store that ``states`` were read from.
        """
        runs = tuple(state for state in states.runs if state.lost)
        here = [state for state in states.runs if state.status in RECORDED and state.collected]
        if here and store.shown != StoreLocation.of(folder / RESULTS).shown:
            return cls(runs)
        # The records in a copy of a folder name the original's store, also those of runs with results in the copy.
        same = {store.shown, *(state.record.store for state in here if state.record is not None)}
        others = ((other, uids) for other, uids in _stores_of(runs).items() if other not in same)
        return cls(runs, next((other for other, uids in others if _has_results(folder, other, uids)), None))

    def check_store(self, store: StoreLocation, otherwise: str) -> None:
        """Raise :class:`ExecutionError` if another store than the searched one is to be named.

        Args:
            store: the searched store.
            otherwise: what follows from the error, for its message.
        """
        if self.other_store is not None:
            raise ExecutionError(
                f"the search has recorded results into another store than {store.shown}: name it with --store "
                f"{self.other_store}; {otherwise}"
            )

    def to_execute(self, *, retry_failed: bool = False) -> list[RunState]:
        """Return the runs to execute again; those that failed again only with ``retry_failed``."""
        statuses = STATUSES_TO_EXECUTE["unfinished" if retry_failed else "missing"]
        return [state for state in self.runs if state.status in statuses]


def job_path(folder: Path, planned: PlannedRun) -> Path:
    """Return the path of the run's files in ``jobs/``, without a suffix."""
    return folder.absolute() / JOBS / run_file_stem(planned)


def run_file_stem(planned: PlannedRun) -> str:
    """Return the name of the run's files, which is its document's."""
    return Path(planned.file).name.removesuffix(".yml")


def job_records(folder: DesignFolder) -> dict[str, JobRecord]:
    """Read the records that match the documents of their runs, by uid."""
    records = {}
    for planned in folder.documents:
        record = JobRecord.read(with_suffix(job_path(folder.path, planned), ".json"))
        if record is not None and record.hash == planned.hash:
            records[planned.uid] = record
    return records


def run_states(folder: DesignFolder, store: Store | None, *, held: bool = False, ask: bool = True) -> States:
    """Determine the state of every run of a design, in its order.

    A run has finished if the common store or an own store has a finished instance of its document, or of one that
    differs only in its uid. This is independent of ``jobs/``, which may be deleted.

    Args:
        folder: the design folder.
        store: the store with its results; ``None`` if it does not exist yet.
        held: whether this process has the folder's lock.
        ask: query the schedulers; otherwise, all their tasks count as gone.

    Returns:
        The states. Runs of a search that have ended according to its journal, but are in no store, are lost.

    Raises:
        ExecutionError: the journal of the search is damaged.
        StoreError: the store cannot be read.
    """
    return _run_states(folder, store, _journal_of(folder), held=held, ask=ask)


def _journal_of(folder: DesignFolder) -> SearchJournal:
    return SearchJournal() if folder.spec.search is None else read_journal(folder.path)


def _run_states(
    folder: DesignFolder, store: Store | None, journal: SearchJournal, *, held: bool, ask: bool
) -> States:
    """Determine the state of every run; see :func:`run_states`.

    ``journal`` must have been read before the store was opened. A run is in a store before it is in the journal, and
    moves from its own store to the common one. With the journal read first and the common store last, no run that ends
    or moves in between is called lost.
    """
    evidence = _FolderEvidence(folder, store)
    assignments = task_assignments(
        folder.path,
        evidence.hashes,
        is_final=lambda run: evidence.is_final(run) or not ask,
        begun=evidence.has_begun,
        held=held,
        ask=ask,
    )
    settings = {setting.number: setting for setting in journal.settings}
    states = (evidence.state(run, assignments.by_run.get(run.uid)) for run in folder.documents)
    return States(
        tuple(_with_setting(state, settings.get(state.planned.row)) for state in states),
        tuple(assignments.problems),
        assignments.searching,
        tuple(assignments.faults),
        journal,
    )


def _with_setting(state: RunState, setting: SettingRecord | None) -> RunState:
    """Return the state of a run of a search: without a process, it is lost or skipped if the search says so."""
    if setting is None or state.status in _KEPT:
        return state
    lost = setting.has_result(state.planned.repetition)
    if state.status not in (RunStatus.WAITING, RunStatus.LOST):
        return replace(state, lost=lost)
    if lost:
        return replace(state, status=RunStatus.LOST, lost=True)
    return state if setting.state == "running" else replace(state, status=RunStatus.SKIPPED)


class _FolderEvidence:
    """What ``jobs/``, the runs' own stores and the common store say of the runs of a folder."""

    def __init__(self, folder: DesignFolder, store: Store | None):
        planned = folder.documents
        self._folder = folder
        self.hashes = {run.uid: run.hash for run in planned}
        self._records = job_records(folder)
        in_own_store = _statuses_in_own_stores(folder, self._records)
        self._instances = (
            {} if store is None else instances_of(store, list(self.hashes.values()), folder.contents)
        )
        self._markers = _job_files(folder, ".running")
        self._finished = {
            run.uid
            for run in planned
            if any(instance.status == "finished" for instance in self._instances.get(run.hash, ()))
        }
        unfinished = [run.hash for run in planned if run.uid not in self._finished]
        orphaned = _in_orphaned_stores(folder, store, self._records, unfinished)
        #: the status of each run in its own store, or in one of a run that the design no longer has
        self._own_statuses = {run.uid: "finished" for run in planned if run.hash in orphaned} | in_own_store
        self._records |= self._records_under_other_names()

    def _records_under_other_names(self) -> dict[str, JobRecord]:
        """Read the records of runs that were last executed under another name in this folder, by uid."""
        newest = {
            uid: self._instances[hash_][-1]
            for uid, hash_ in self.hashes.items()
            if uid not in self._records and self._instances.get(hash_)
        }
        uid_by_instance = {
            instance.uid: uid for uid, instance in newest.items() if instance.hash != self.hashes[uid]
        }
        if not uid_by_instance:
            return {}
        folder = self._folder.path / JOBS
        records = (JobRecord.read(folder / name) for name in _job_files(self._folder, ".json"))
        return {
            uid_by_instance[record.instance]: record
            for record in records
            if record is not None and record.instance in uid_by_instance
        }

    def _marker(self, file_stem: str, hash_: str) -> Marker | None:
        """Return the marker of a run with this document."""
        name = f"{file_stem}.running"
        marker = Marker.read(self._folder.path / JOBS / name) if name in self._markers else None
        return marker if marker is not None and marker.hash == hash_ else None

    def is_final(self, run: TaskRun) -> bool:
        """Whether the run of a task has ended, so that the state of its task does not matter."""
        record = self._records.get(run.run)
        done = _is_current(record, run.attempt) and not _will_resume(record)
        return done or run.run in self._finished

    def has_begun(self, run: TaskRun) -> bool:
        """Whether a run has begun the attempt of its task."""
        if run.run in self._finished or _is_current(self._records.get(run.run), run.attempt):
            return True
        marker = self._marker(run.slug, run.hash)
        return marker is not None and marker.attempt >= run.attempt

    def state(self, run: PlannedRun, assignment: TaskAssignment | None) -> RunState:
        """Return the state of a run without regard to a search."""
        record, instances = self._records.get(run.uid), tuple(self._instances.get(run.hash, ()))
        marker = self._marker(run_file_stem(run), run.hash)
        if marker is not None and _is_current(record, marker.attempt):
            marker = None
        path = with_suffix(job_path(self._folder.path, run), ".running")
        if marker is not None and not marker.of_this_host:
            instances = tuple(_mark_dead_instances(instances, marker, path))
        statuses = [instance.status for instance in instances]
        own_status = [self._own_statuses[run.uid]] if run.uid in self._own_statuses else []
        status = _status(record, marker, statuses + own_status, assignment)
        if status is None:
            status = RunStatus.LOST if is_stale(path) else RunStatus.RUNNING
        collected = status not in RECORDED or status.value in statuses
        return RunState(run, status, record, marker, instances, assignment, collected)


def _statuses_in_own_stores(folder: DesignFolder, records: Mapping[str, JobRecord]) -> dict[str, str]:
    """Return the statuses of runs whose own stores have the instance of their record, ended as it says, by uid."""
    statuses: dict[str, str] = {}
    for run in folder.documents:
        record = records.get(run.uid)
        if record is not None and record.instance is not None and record.status in RECORDED:
            own_store = Path(run_store_location(folder.path, run_file_stem(run)).location)
            if is_whole(own_store, record.instance, record.status):
                statuses[run.uid] = record.status
    return statuses


def _job_files(folder: DesignFolder, suffix: str) -> set[str]:
    """Return the names of the files in ``jobs/`` that end with ``suffix``."""
    try:
        return {name for name in files.list_names(folder.path / JOBS) if name.endswith(suffix)}
    except FileNotFoundError:
        return set()


def _in_orphaned_stores(
    folder: DesignFolder, store: Store | None, records: Mapping[str, JobRecord], hashes: Sequence[str]
) -> set[str]:
    """Return those of the ``hashes`` whose content has finished in a store of a run that the design no longer has."""
    contents = uncollected_contents(orphaned_stores(folder, records), store)
    if not contents or not hashes:
        return set()
    return {hash_ for hash_, content in folder.contents(hashes).items() if content in contents}


def _mark_dead_instances(
    instances: tuple[KnownInstance, ...], marker: Marker, path: Path
) -> Iterator[KnownInstance]:
    """Yield the instances; the one of another host's marker at ``path`` is lost if the marker is stale.

    The store assumes that instances of another host are still running.
    """
    for instance in instances:
        dead = instance.uid == marker.instance and instance.status == "running" and is_stale(path)
        yield instance._replace(status="lost") if dead else instance


def _status(
    record: JobRecord | None, marker: Marker | None, statuses: list[str], assignment: TaskAssignment | None
) -> RunStatus | None:
    """Determine the status of a run; ``None`` if it depends on the age of the marker.

    Args:
        record: the run's record.
        marker: the marker of an attempt without a record.
        statuses: the statuses of its instances, the newest last, and of the complete one in its own store.
        assignment: its task.
    """
    if marker is not None and marker.of_this_host and marker.alive:
        return RunStatus.RUNNING
    for status in (RunStatus.FINISHED, RunStatus.RUNNING):
        if status in statuses:
            return status
    by_task = None if assignment is None else _by_task(record, marker, assignment)
    if by_task is not None:
        return by_task
    if marker is not None:
        is_asked = assignment is not None and assignment.state is not None
        return RunStatus.LOST if marker.of_this_host or is_asked else None
    submitted_again = assignment is not None and not _is_current(record, assignment.attempt)
    return _status_without_process(record, statuses, submitted_again=submitted_again)


def _status_without_process(
    record: JobRecord | None, statuses: list[str], *, submitted_again: bool
) -> RunStatus:
    """Determine the status of an unfinished run without a process.

    ``submitted_again``: whether it was submitted again after this record, and its task ended before it began.
    """
    if record is None:
        return RunStatus(statuses[-1]) if statuses else RunStatus.WAITING
    if record.status == "failed" and submitted_again:
        return RunStatus.WAITING
    gone = record.status in RECORDED and record.status not in statuses
    return RunStatus.LOST if gone else RunStatus(record.status)


def _by_task(record: JobRecord | None, marker: Marker | None, assignment: TaskAssignment) -> RunStatus | None:
    """Derive the status of a run without a final record from its task's state; ``None`` if that does not determine it."""
    word, current = assignment.state, _is_current(record, assignment.attempt)
    if word is None or (current and not _will_resume(record)):
        return None
    if word is TaskState.RUNNING and marker is not None:
        return RunStatus.RUNNING
    if not word.ended:
        return RunStatus.QUEUED
    if not assignment.begun and word in FAILED_BEFORE_RUNS:
        return FAILED_BEFORE_RUNS[word][0]
    if marker is not None or (not current and word is TaskState.CANCELLED):
        return _STATUS_BY_TASK_STATE.get(word)
    return None


def _will_resume(record: JobRecord | None) -> bool:
    """Whether a requeued task will resume the run."""
    return record is not None and record.status == "interrupted"


def _is_current(record: JobRecord | None, attempt: int) -> bool:
    return record is not None and record.attempt >= attempt


def load_run_states(
    folder: DesignFolder,
    location: StoreLocation | Store,
    *,
    held: bool = False,
    ask: bool = True,
    journal: SearchJournal | None = None,
) -> States:
    """Determine the state of every run of a design from its store.

    Args:
        folder: the design folder.
        location: the open store with its results, or its location, where it need not exist yet.
        held: whether this process has the folder's lock.
        ask: query the schedulers; otherwise, all their tasks count as gone.
        journal: the journal of the folder's search, if it has been read already.

    Returns:
        The states; see :func:`run_states`.

    Raises:
        ExecutionError: the journal of the search is damaged.
        StoreError: the store cannot be read.
    """
    journal = journal or _journal_of(folder)
    if isinstance(location, Store):
        return _run_states(folder, location, journal, held=held, ask=ask)
    try:
        store = location.look()
    except MissingStoreError:
        return _run_states(folder, None, journal, held=held, ask=ask)
    with store:
        return _run_states(folder, store, journal, held=held, ask=ask)


def _stores_of(runs: Iterable[RunState]) -> dict[str, list[str]]:
    """Return the instances of runs by the stores that their records name."""
    instances = defaultdict(list)
    for state in runs:
        if state.record is not None and state.record.instance is not None:
            instances[state.record.store].append(state.record.instance)
    return instances


def _has_results(folder: Path, recorded: str, instances: Sequence[str]) -> bool:
    """Whether a store that a record names has complete results of one of the instances, except a run's own store."""
    location: str | sa.URL = recorded
    try:
        if not is_database(recorded):
            if Path(recorded).parent.name == STORES or _is_below(recorded, folder / STORES):
                return False
            location = sa.URL.create("sqlite", database=os.path.join(recorded, "store.db"))
        elif not recorded.startswith("sqlite:"):
            # The password is masked, and a record must not make this process connect to a server.
            return True
        check_named(recorded)
        # Opened without its folder, a store gives no permission to follow links to it.
        with (
            closing(Database(location, create=False, read_only=True)) as database,
            database.reading() as session,
        ):
            return any(state.status in RECORDED for state in instance_states(session, instances))
    except (StoreError, ValueError):
        return False


def _is_below(path: str, folder: Path) -> bool:
    """Whether ``path`` is directly below ``folder``, whatever their names; false if one of the folders is missing."""
    try:
        return os.path.samefile(os.path.dirname(path), folder)
    except OSError:
        return False
