"""How far the runs of a folder are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from palaestrai_mosaik.design.folder import JOBS, DesignFolder, PlannedRun
from palaestrai_mosaik.design.settings_table import read_settings
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.location import StoreLocation

from .cluster.scheduler import TaskState
from .cluster.submission import TaskRun, run_store_location
from .cluster.task_assignment import TaskAssignment, TaskAssignments, task_assignments
from .job import JobRecord, Marker, is_stale, with_suffix
from .run_store import KnownInstance, instances_of, is_whole, orphaned_stores, uncollected_contents


class RunStatus(StrEnum):
    """What is known of a planned run."""

    #: nobody has started it
    WAITING = "waiting"
    #: the scheduler of a cluster has it, and it has not begun
    QUEUED = "queued"
    #: a process executes it
    RUNNING = "running"
    #: the store, or its own one, has all of it
    FINISHED = "finished"
    #: it raised, ran out of time, or its process died; or its task failed before any of its runs began
    FAILED = "failed"
    #: a search stopped it early: what it has recorded is kept
    PRUNED = "pruned"
    #: a search has not started it, as another run of its setting was pruned or failed
    SKIPPED = "skipped"
    #: the user ended it
    INTERRUPTED = "interrupted"
    #: the scheduler ended the task that executed it (or was to), and it has recorded nothing
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    NODE_FAILED = "node failed"
    CANCELLED = "cancelled"
    #: whatever executed it is gone and has said nothing, or its results are gone
    LOST = "lost"


#: what the end of a task says of a run that had begun in it, and recorded nothing
_STATUS_BY_TASK_STATE = {
    TaskState.TIMED_OUT: RunStatus.TIMED_OUT,
    TaskState.OUT_OF_MEMORY: RunStatus.OUT_OF_MEMORY,
    TaskState.NODE_FAILED: RunStatus.NODE_FAILED,
    TaskState.CANCELLED: RunStatus.CANCELLED,
}
#: what the end of a task in which no run has begun says of all of them: it would end so again
_FAILED_BEFORE_RUNS = {
    TaskState.FAILED: (RunStatus.FAILED, "failed"),
    TaskState.TIMED_OUT: (RunStatus.TIMED_OUT, "reached its time limit"),
    TaskState.OUT_OF_MEMORY: (RunStatus.OUT_OF_MEMORY, "ran out of memory"),
}


@dataclass(frozen=True, slots=True)
class RunState:
    """A planned run, its status, and where that is known from.

    ``record`` and ``marker`` are the files of ``jobs/`` that belong to its document (or, of the record, to
    one that differs in its uid alone: ``record.run`` is not the run's uid then);
    ``instances`` what the store knows, the newest last; ``assignment`` which task of a cluster has it.
    ``collected`` is false where it has finished, or was pruned, in its own store, and the store does not have it yet.
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
        """How many attempts at it have begun, as far as ``jobs/`` knows."""
        return max(found.attempt if found is not None else 0 for found in (self.record, self.marker))

    @property
    def error(self) -> str | None:
        """What went wrong, where it has failed and somebody said what."""
        if self.before is not None:
            return f"its task {self.before} before the run began"
        return self.record.error if self.status is RunStatus.FAILED and self.record is not None else None

    @property
    def before(self) -> str | None:
        """How its task ended (``failed``), where no run of that had begun and this is why it has failed.

        ``assignment.log`` may say why.
        """
        if self.assignment is None or self.assignment.state is None or self.assignment.begun:
            return None
        status, how = _FAILED_BEFORE_RUNS.get(self.assignment.state, (None, None))
        return how if status is self.status else None


@dataclass(frozen=True, slots=True)
class States:
    """The state of every run that is executed, in the order of the design.

    ``problems``: what was said by schedulers that did not answer. ``searching``: the states of tasks that work on the
    folder's search, by number, for each submission.
    """

    runs: tuple[RunState, ...]
    problems: tuple[str, ...] = ()
    searching: Mapping[int, Mapping[int, TaskState]] = field(default_factory=dict)


def job_path(folder: Path, planned: PlannedRun) -> Path:
    """Return the path of the run's files in ``jobs/``, without a suffix."""
    return folder.absolute() / JOBS / run_file_stem(planned)


def run_file_stem(planned: PlannedRun) -> str:
    """Return how the files of the run are named: as its document."""
    return Path(planned.file).name.removesuffix(".yml")


def job_records(folder: DesignFolder) -> dict[str, JobRecord]:
    """Return the records of all runs that have one that belongs to their document, by uid."""
    found = {}
    for planned in folder.documents:
        record = JobRecord.read(with_suffix(job_path(folder.path, planned), ".json"))
        if record is not None and record.hash == planned.hash:
            found[planned.uid] = record
    return found


def _records_under_other_names(
    folder: DesignFolder,
    records: Mapping[str, JobRecord],
    known: Mapping[str, Sequence[KnownInstance]],
    hashes: Mapping[str, str],
) -> dict[str, JobRecord]:
    """Return the records of runs, by uid, whose newest instance was executed under another name in this folder."""
    newest = {
        uid: known[hash_][-1] for uid, hash_ in hashes.items() if uid not in records and known.get(hash_)
    }
    others = {one.uid: uid for uid, one in newest.items() if one.hash != hashes[uid]}
    if not others:
        return {}
    found = {}
    for file in (folder.path / JOBS).glob("*.json"):
        record = JobRecord.read(file)
        if record is not None and record.instance in others:
            found[others[record.instance]] = record
    return found


def run_states(folder: DesignFolder, store: Store | None, *, held: bool = False, ask: bool = True) -> States:
    """Return the state of every run that is executed, in the order of the design.

    A run has finished if the store has a finished instance of its document, or of one that differs in its uid
    alone, whatever ``jobs/`` says; that folder may be deleted. So it has if such an instance has finished in
    a store of its own.

    Args:
        folder: the design folder.
        store: where its results are; ``None``: there are none yet.
        held: this process has the folder's lock.
        ask: ask schedulers what they still have; else that is treated as gone.
    """
    planned = folder.documents
    hashes = {run.uid: run.hash for run in planned}
    known = {} if store is None else instances_of(store, list(hashes.values()), folder.contents)
    try:
        markers = {name for name in os.listdir(folder.path / JOBS) if name.endswith(".running")}
    except FileNotFoundError:
        markers = set()
    records = job_records(folder)
    finished = {
        run.uid for run in planned if any(one.status == "finished" for one in known.get(run.hash, ()))
    }

    orphans = uncollected_contents(orphaned_stores(folder, records), store)
    records |= _records_under_other_names(folder, records, known, hashes)
    waiting = [run.hash for run in planned if run.uid not in finished] if orphans else []
    in_run_store = {
        hash_
        for hash_, content in (folder.contents(waiting) if waiting else {}).items()
        if content in orphans
    }

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
    states = (
        _state(
            folder,
            run,
            records.get(run.uid),
            markers,
            tuple(known.get(run.hash, ())),
            assignments,
            run.hash in in_run_store,
        )
        for run in planned
    )
    found = tuple(states)
    if folder.spec.search is not None:
        found = tuple(_with_skipped(folder, found))
    return States(found, tuple(assignments.problems), assignments.searching)


def _with_skipped(folder: DesignFolder, states: Sequence[RunState]) -> Iterator[RunState]:
    """Yield the states of a search's runs: what nobody has started of settings that are settled will not be."""
    settled = {one.number for one in read_settings(folder.path) if one.state != "running"}
    for state in states:
        skipped = state.status is RunStatus.WAITING and state.planned.row in settled
        yield replace(state, status=RunStatus.SKIPPED) if skipped else state


def _state(
    folder: DesignFolder,
    run: PlannedRun,
    record: JobRecord | None,
    markers: set[str],
    instances: tuple[KnownInstance, ...],
    assignments: TaskAssignments,
    in_run_store: bool,
) -> RunState:
    path = with_suffix(job_path(folder.path, run), ".running")
    marker = Marker.read(path) if path.name in markers else None
    if marker is not None and (marker.hash != run.hash or _is_current(record, marker.attempt)):
        marker = None
    assignment = assignments.by_run.get(run.uid)
    if marker is not None and not marker.of_this_host:
        instances = tuple(_mark_dead_instances(instances, marker, path))
    statuses = [instance.status for instance in instances]
    in_run_store = in_run_store or (
        record is not None and record.status == "finished" and _is_whole(folder.path, run, record)
    )
    status = _status(record, marker, statuses, in_run_store, assignment)
    if status is None:
        assert marker is not None
        status = RunStatus.LOST if is_stale(path) else RunStatus.RUNNING
    recorded = status in (RunStatus.FINISHED, RunStatus.PRUNED)
    collected = not recorded or status.value in statuses
    return RunState(run, status, record, marker, instances, assignment, collected)


def _mark_dead_instances(
    instances: tuple[KnownInstance, ...], marker: Marker, path: Path
) -> Iterator[KnownInstance]:
    """Yield the instances; that of a marker of another host, at ``path``, is lost if it has not been touched for long.

    The store believes that whatever another host has begun still runs there.
    """
    for one in instances:
        dead = one.uid == marker.instance and one.status == "running" and is_stale(path)
        yield one._replace(status="lost") if dead else one


def _status(
    record: JobRecord | None,
    marker: Marker | None,
    statuses: list[str],
    in_run_store: bool,
    assignment: TaskAssignment | None,
) -> RunStatus | None:
    """Return the status of a run; ``None`` where only the age of its marker can tell.

    ``marker`` is that of an attempt of which there is no record; ``statuses`` are those of its
    instances, the newest last; ``in_run_store``: its own store has all of it.
    """
    if marker is not None and marker.of_this_host and marker.alive:
        return RunStatus.RUNNING
    if "finished" in statuses or in_run_store:
        return RunStatus.FINISHED
    if "running" in statuses:
        return RunStatus.RUNNING
    current = assignment is not None and _is_current(record, assignment.attempt)
    if assignment is not None and assignment.state is not None and not (current and not _will_resume(record)):
        found = _by_task_state(record if current else None, marker, assignment.state, begun=assignment.begun)
        if found is not None:
            return found
    if marker is not None:
        return RunStatus.LOST if marker.of_this_host or (assignment and assignment.state) else None
    return _status_without_process(record, statuses)


def _status_without_process(record: JobRecord | None, statuses: list[str]) -> RunStatus:
    """Return the status of an unfinished run that no process executes."""
    if record is not None:
        return RunStatus.LOST if record.status == "finished" else RunStatus(record.status)
    return RunStatus(statuses[-1]) if statuses else RunStatus.WAITING


def _by_task_state(
    record: JobRecord | None, marker: Marker | None, word: TaskState, *, begun: bool
) -> RunStatus | None:
    """Return what the scheduler's word says of a run without a final record; ``None``: nothing.

    ``begun``: whether any run of the task has.
    """
    if word is TaskState.RUNNING and marker is not None:
        return RunStatus.RUNNING
    if not word.ended:
        return RunStatus.QUEUED
    if not begun and word in _FAILED_BEFORE_RUNS:
        return _FAILED_BEFORE_RUNS[word][0]
    if marker is not None or (record is None and word is TaskState.CANCELLED):
        return _STATUS_BY_TASK_STATE.get(word)
    return None


def _will_resume(record: JobRecord | None) -> bool:
    """Whether a requeued task will resume the run."""
    return record is not None and record.status == "interrupted"


def _is_current(record: JobRecord | None, attempt: int) -> bool:
    return record is not None and record.attempt >= attempt


def _is_whole(folder: Path, run: PlannedRun, record: JobRecord) -> bool:
    """Whether the run's own store has the instance of its record, with the marker of its end."""
    if record.instance is None:
        return False
    return is_whole(Path(run_store_location(folder, run_file_stem(run)).location), record.instance)


def load_run_states(
    folder: DesignFolder, location: StoreLocation, *, held: bool = False, ask: bool = True
) -> States:
    """Return the state of every run that is executed, from the store at a location.

    Args:
        folder: the design folder.
        location: where its results are, if anywhere.
        held: this process has the folder's lock.
        ask: ask schedulers what they still have; else that is treated as gone.
    """
    if location.folder is not None and not (location.folder / "store.db").exists():
        return run_states(folder, None, held=held, ask=ask)
    with location.look() as store:
        return run_states(folder, store, held=held, ask=ask)
