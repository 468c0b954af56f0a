"""The statuses of the runs of a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from palaestrai_mosaik.arsenai.design.folder import JOBS, DesignFolder, PlannedRun
from palaestrai_mosaik.arsenai.design.settings import SearchJournal, SettingRecord, read_journal
from palaestrai_mosaik.core import files
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.database import MissingStoreError
from palaestrai_mosaik.store.store import StoreLocation

from .cluster.scheduler import TaskState
from .cluster.submission import TaskRun, run_store_location
from .cluster.task_assignment import TaskAssignment, TaskAssignments, task_assignments
from .job import JobRecord, Marker, is_stale, with_suffix
from .run_store import (
    KnownInstance,
    instances_of,
    is_whole,
    orphaned_stores,
    uncollected_contents,
)


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
    """

    planned: PlannedRun
    status: RunStatus
    record: JobRecord | None
    marker: Marker | None
    instances: tuple[KnownInstance, ...]
    assignment: TaskAssignment | None = None
    collected: bool = True

    @property
    def attempts(self) -> int:
        """The number of attempts that have begun, according to ``jobs/``."""
        return max(evidence.attempt if evidence is not None else 0 for evidence in (self.record, self.marker))

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


#: the statuses of runs that have results, or will have them
_KEPT = frozenset({RunStatus.FINISHED, RunStatus.PRUNED, RunStatus.RUNNING, RunStatus.QUEUED})


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
    def lost_results(self) -> tuple[RunState, ...]:
        """The runs of a search that have ended, and whose results are in no store any more."""
        settings = {setting.number: setting for setting in self.journal.settings}
        return tuple(
            state
            for state in self.runs
            if state.status not in _KEPT
            and state.planned.row in settings
            and settings[state.planned.row].has_result(state.planned.repetition)
        )

    @property
    def settings(self) -> list[SettingRecord]:
        """The settings of a search; those that have lost results, or repeat one that has, count as not executed."""
        lost = Counter(state.planned.row for state in self.lost_results)
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


def _records_under_other_names(
    folder: DesignFolder,
    records: Mapping[str, JobRecord],
    instances: Mapping[str, Sequence[KnownInstance]],
    hashes: Mapping[str, str],
) -> dict[str, JobRecord]:
    """Read the records of runs that were last executed under another name in this folder, by uid."""
    newest = {
        uid: instances[hash_][-1]
        for uid, hash_ in hashes.items()
        if uid not in records and instances.get(hash_)
    }
    uid_by_instance = {instance.uid: uid for uid, instance in newest.items() if instance.hash != hashes[uid]}
    if not uid_by_instance:
        return {}
    renamed = {}
    for name in _job_files(folder, ".json"):
        record = JobRecord.read(folder.path / JOBS / name)
        if record is not None and record.instance in uid_by_instance:
            renamed[uid_by_instance[record.instance]] = record
    return renamed


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
    planned = folder.documents
    hashes = {run.uid: run.hash for run in planned}
    records = job_records(folder)
    in_own_store = {
        run.uid for run in planned if run.uid in records and _is_whole(folder.path, run, records[run.uid])
    }
    instances = {} if store is None else instances_of(store, list(hashes.values()), folder.contents)
    markers = _job_files(folder, ".running")
    finished = {
        run.uid
        for run in planned
        if any(instance.status == "finished" for instance in instances.get(run.hash, ()))
    }
    unfinished = [run.hash for run in planned if run.uid not in finished]
    in_orphaned_store = _in_orphaned_stores(folder, store, records, unfinished)
    records |= _records_under_other_names(folder, records, instances, hashes)

    def is_final(run: TaskRun) -> bool:
        record = records.get(run.run)
        done = _is_current(record, run.attempt) and record is not None and record.status != "interrupted"
        return done or run.run in finished or not ask

    def begun(run: TaskRun) -> bool:
        if run.run in finished or _is_current(records.get(run.run), run.attempt):
            return True
        name = f"{run.slug}.running"
        marker = Marker.read(folder.path / JOBS / name) if name in markers else None
        return marker is not None and marker.hash == run.hash and marker.attempt >= run.attempt

    assignments = task_assignments(folder.path, hashes, is_final, begun, held=held, ask=ask)
    states: Iterable[RunState] = (
        _state(
            folder,
            run,
            records.get(run.uid),
            markers,
            tuple(instances.get(run.hash, ())),
            assignments,
            records[run.uid].status
            if run.uid in in_own_store
            else "finished" * (run.hash in in_orphaned_store),
        )
        for run in planned
    )
    if journal.settings:
        states = _with_settings(states, journal.settings)
    return States(
        tuple(states), tuple(assignments.problems), assignments.searching, tuple(assignments.faults), journal
    )


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


def _with_settings(states: Iterable[RunState], settings: Sequence[SettingRecord]) -> Iterator[RunState]:
    """Yield the states of a search's runs: those without a process are lost or skipped if the search says so."""
    by_number = {setting.number: setting for setting in settings}
    for state in states:
        setting = by_number.get(state.planned.row)
        if setting is not None and state.status in (RunStatus.WAITING, RunStatus.LOST):
            if setting.has_result(state.planned.repetition):
                state = replace(state, status=RunStatus.LOST)
            elif setting.state != "running":
                state = replace(state, status=RunStatus.SKIPPED)
        yield state


def _state(
    folder: DesignFolder,
    run: PlannedRun,
    record: JobRecord | None,
    markers: set[str],
    instances: tuple[KnownInstance, ...],
    assignments: TaskAssignments,
    own_status: str,
) -> RunState:
    path = with_suffix(job_path(folder.path, run), ".running")
    marker = Marker.read(path) if path.name in markers else None
    if marker is not None and (marker.hash != run.hash or _is_current(record, marker.attempt)):
        marker = None
    assignment = assignments.by_run.get(run.uid)
    if marker is not None and not marker.of_this_host:
        instances = tuple(_mark_dead_instances(instances, marker, path))
    statuses = [instance.status for instance in instances]
    status = _status(record, marker, [*statuses, own_status] if own_status else statuses, assignment)
    if status is None:
        assert marker is not None
        status = RunStatus.LOST if is_stale(path) else RunStatus.RUNNING
    collected = status not in (RunStatus.FINISHED, RunStatus.PRUNED) or status.value in statuses
    return RunState(run, status, record, marker, instances, assignment, collected)


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
    record: JobRecord | None,
    marker: Marker | None,
    statuses: list[str],
    assignment: TaskAssignment | None,
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
    if "finished" in statuses:
        return RunStatus.FINISHED
    if "running" in statuses:
        return RunStatus.RUNNING
    current = assignment is not None and _is_current(record, assignment.attempt)
    if assignment is not None and assignment.state is not None and not (current and not _will_resume(record)):
        status = _by_task_state(record if current else None, marker, assignment.state, begun=assignment.begun)
        if status is not None:
            return status
    if marker is not None:
        return RunStatus.LOST if marker.of_this_host or (assignment and assignment.state) else None
    return _status_without_process(record, statuses, submitted_again=assignment is not None and not current)


def _status_without_process(
    record: JobRecord | None, statuses: list[str], *, submitted_again: bool
) -> RunStatus:
    """Determine the status of an unfinished run without a process.

    ``submitted_again``: whether it was submitted again after this record, and its task ended before it began.
    """
    if record is not None and record.status == "failed" and submitted_again:
        return RunStatus.WAITING
    if record is not None:
        gone = record.status in ("finished", "pruned") and record.status not in statuses
        return RunStatus.LOST if gone else RunStatus(record.status)
    return RunStatus(statuses[-1]) if statuses else RunStatus.WAITING


def _by_task_state(
    record: JobRecord | None, marker: Marker | None, word: TaskState, *, begun: bool
) -> RunStatus | None:
    """Derive the status of a run without a final record from its task's state; ``None`` if that does not determine it.

    ``begun``: whether any run of the task has begun.
    """
    if word is TaskState.RUNNING and marker is not None:
        return RunStatus.RUNNING
    if not word.ended:
        return RunStatus.QUEUED
    if not begun and word in FAILED_BEFORE_RUNS:
        return FAILED_BEFORE_RUNS[word][0]
    if marker is not None or (record is None and word is TaskState.CANCELLED):
        return _STATUS_BY_TASK_STATE.get(word)
    return None


def _will_resume(record: JobRecord | None) -> bool:
    """Whether a requeued task will resume the run."""
    return record is not None and record.status == "interrupted"


def _is_current(record: JobRecord | None, attempt: int) -> bool:
    return record is not None and record.attempt >= attempt


def _is_whole(folder: Path, run: PlannedRun, record: JobRecord) -> bool:
    """Whether the run's own store has the instance of its record, which ended as the record says."""
    if record.instance is None or record.status not in ("finished", "pruned"):
        return False
    own_store = Path(run_store_location(folder, run_file_stem(run)).location)
    return is_whole(own_store, record.instance, record.status)


def load_run_states(
    folder: DesignFolder,
    location: StoreLocation,
    *,
    held: bool = False,
    ask: bool = True,
    journal: SearchJournal | None = None,
) -> States:
    """Determine the state of every run of a design from the store at a location.

    Args:
        folder: the design folder.
        location: the store with its results, which need not exist yet.
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
    try:
        store = location.look()
    except MissingStoreError:
        return _run_states(folder, None, journal, held=held, ask=ask)
    with store:
        return _run_states(folder, store, journal, held=held, ask=ask)
