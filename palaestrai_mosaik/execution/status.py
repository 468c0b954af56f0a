"""How far the runs of a folder are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from palaestrai_mosaik.design.folder import JOBS, DesignFolder, PlannedRun
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.location import StoreLocation

from .instances import KnownInstance, instances_of
from .job import JobRecord, Marker, with_suffix


class RunStatus(StrEnum):
    """What is known of a planned run."""

    #: nobody has begun it
    WAITING = "waiting"
    #: a process executes it
    RUNNING = "running"
    #: the store has all of it
    FINISHED = "finished"
    #: it raised, ran out of time, or its process died
    FAILED = "failed"
    #: the user ended it
    INTERRUPTED = "interrupted"
    #: whatever executed it is gone and has said nothing, or its results are gone
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class RunState:
    """A planned run, its status, and where that is known from.

    ``record`` and ``marker`` are the files of ``jobs/`` that belong to its document;
    ``instances`` what the store knows, the newest last.
    """

    planned: PlannedRun
    status: RunStatus
    record: JobRecord | None
    marker: Marker | None
    instances: tuple[KnownInstance, ...]

    @property
    def attempts(self) -> int:
        """How often the run was begun, as far as ``jobs/`` knows."""
        return max(found.attempt if found is not None else 0 for found in (self.record, self.marker))


def job_path(folder: Path, planned: PlannedRun) -> Path:
    """Return the path of the run's files in ``jobs/``, without a suffix."""
    return folder.absolute() / JOBS / Path(planned.file).name.removesuffix(".yml")


def job_records(folder: DesignFolder) -> dict[str, JobRecord]:
    """Return the records of all runs that have one that belongs to their document, by uid."""
    found = {}
    for planned in folder.documents:
        record = JobRecord.read(with_suffix(job_path(folder.path, planned), ".json"))
        if record is not None and record.hash == planned.hash:
            found[planned.uid] = record
    return found


def run_states(folder: DesignFolder, store: Store | None) -> list[RunState]:
    """Return the state of every run that is executed, in the order of the design.

    ``store``: where its results are, ``None`` if there are none yet. A run has finished if the
    store has a finished instance of its document, whatever ``jobs/`` says; that folder may be deleted.
    """
    planned = folder.documents
    known = {} if store is None else instances_of(store, [run.hash for run in planned])
    try:
        markers = {name for name in os.listdir(folder.path / JOBS) if name.endswith(".running")}
    except FileNotFoundError:
        markers = set()
    records = job_records(folder)
    states = []
    for run in planned:
        path = with_suffix(job_path(folder.path, run), ".running")
        marker = Marker.read(path) if path.name in markers else None
        if marker is not None and marker.hash != run.hash:
            marker = None
        record, instances = records.get(run.uid), tuple(known.get(run.hash, ()))
        states.append(RunState(run, _status(record, marker, instances), record, marker, instances))
    return states


def _status(
    record: JobRecord | None, marker: Marker | None, instances: tuple[KnownInstance, ...]
) -> RunStatus:
    statuses = {instance.status for instance in instances}
    if marker is not None and marker.alive:
        return RunStatus.RUNNING
    if "finished" in statuses:
        return RunStatus.FINISHED
    if "running" in statuses:
        return RunStatus.RUNNING
    if marker is not None and (record is None or record.attempt < marker.attempt):
        return RunStatus.LOST
    if record is not None:
        return RunStatus.LOST if record.status == "finished" else RunStatus(record.status)
    return RunStatus(instances[-1].status) if instances else RunStatus.WAITING


def states_of(folder: DesignFolder, location: StoreLocation) -> list[RunState]:
    """Return the states of the runs of ``folder``, whose results are at ``location``, if anywhere."""
    if "://" not in location.location and not (Path(location.location) / "store.db").exists():
        return run_states(folder, None)
    with location.open() as store:
        return run_states(folder, store)
