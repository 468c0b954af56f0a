"""Imports the instances of a palaestrAI database into a store.

Each instance is first recorded in a temporary store inside the results folder, then moved into the store, either
completely or not at all. An instance keeps its uid, so repeating an import only adds new or changed instances. An
imported run has the uid of its run document but a different hash, so it is never confused with a run of this package.

Rows and files cannot be replaced atomically, and the process may be killed at any time. Therefore, one transaction
replaces the rows, moves the old files aside and the new ones into place. The old files are deleted after the commit. If
an import was killed in between, the next import keeps the files that match the rows in the database.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import DocumentError, StoreError, did_you_mean
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.experiment import canonical_json, dumps, from_mapping
from palaestrai_mosaik.store.merge import StoreReader, copy_rows, lock, remove_rows
from palaestrai_mosaik.store.models import (
    Base,
    Episode,
    Instance,
    Phase,
    Stream,
    document_id,
    experiment_id,
    to_json,
)
from palaestrai_mosaik.store.parts import write_text
from palaestrai_mosaik.store.query.lookup import INSTANCES
from palaestrai_mosaik.store.recorder import InstanceRecorder, Status, digests_of, read_marker
from palaestrai_mosaik.store.store import Store

from .database import PalaestraiDatabase, as_int, mapping
from .phase import Layout, NewChannel, PhaseImport, as_date, zone_of

#: the file in an imported instance's directory with its source and the source's numbers of rows
ORIGIN = "origin.json"
#: prefix of the experiment names that palaestrAI generates for runs without one
_NO_EXPERIMENT = "Dummy Experiment record"

#: saves a brain: instance's directory, run, phase, agent, dump, tag
KeepBrain = Callable[[Path, str, str, str, bytes, str], None]


@dataclass
class Imported:
    """The result of importing one instance of palaestrAI's database.

    Attributes:
        run: the uid of the instance in the store.
        document: the uid of its run document.
        outcome: ``imported``, ``renewed`` (changed since an earlier import), ``known`` (unchanged) or ``failed``.
        status: the status of the instance.
        rows: the number of its rows.
        notes: data that could not be imported.
        problem: the reason for a failure.
    """

    run: str
    document: str
    outcome: str
    status: str = ""
    rows: int = 0
    notes: list[str] = field(default_factory=list)
    problem: str | None = None


def import_results(
    location: str,
    store: Store,
    keep_brain: KeepBrain,
    *,
    experiment_run: str | None = None,
    progress: ProgressCallback | None = None,
) -> Iterator[Imported]:
    """Import the instances in palaestrAI's database at ``location`` into ``store``.

    An instance that cannot be read does not prevent the import of the next one.

    Args:
        location: an SQLite file, a URL, ``@FILE`` or ``env:NAME``.
        store: the open store.
        keep_brain: saves dumps of brains as files.
        experiment_run: only the instances of the run document with this uid.
        progress: is called with the number of rows read so far, and the total.

    Yields:
        The result for each instance.

    Raises:
        StoreError: if the database cannot be opened, is not palaestrAI's or from another release, or lacks the run.
    """
    with PalaestraiDatabase(location) as database:
        finish_interrupted_imports(store)
        sources, unreadable = _sources(database, experiment_run)
        yield from unreadable
        with store.database.reading() as session:
            existing = set(session.scalars(select(Instance.uid)))
        complete = {source.uid for source in sources if source.uid in existing and source.is_in(store)}
        counted = PartsProgress(
            progress, sum(instance.size for instance in sources if instance.uid not in complete)
        )
        for source in sources:
            if source.uid in complete:
                yield Imported(source.uid, source.document, "known", rows=source.size)
                continue
            try:
                yield _import(source, store, keep_brain, counted.add, renew=source.uid in existing)
            except (StoreError, DocumentError) as error:
                yield Imported(source.uid, source.document, "failed", problem=str(error))
            # do not count rows twice that were read again because of additional columns
            counted.end(source.size)


class _SourceInstance:
    """One instance in palaestrAI's database."""

    def __init__(self, database: PalaestraiDatabase, run: Any, instance: Any, experiment: str | None):
        self.database, self.run, self.instance, self.experiment = database, run, instance, experiment
        self.document = str(run.uid)
        self.dated = instance.created_at is not None
        self.created = as_date(instance.created_at if self.dated else datetime(1970, 1, 1))
        digest = hashlib.sha256(str(instance.uid).encode()).hexdigest()
        #: begins with the time, so that it sorts like the uids of this package's instances
        self.uid = f"{self.created:%Y%m%dT%H%M%S%f}-{digest[:8]}"
        rows = database.rows("experiment_run_phases", "experiment_run_instance_id", [instance.id])
        self.phases = sorted(rows, key=lambda row: (as_int(row.number, "the number of a phase"), row.id))
        ids = [row.id for row in self.phases]
        agents = [row.id for row in database.rows("agents", "experiment_run_phase_id", ids)]
        worlds = [row.id for row in database.rows("environments", "experiment_run_phase_id", ids)]
        counts = {
            "muscle_actions": database.count("muscle_actions", "agent_id", agents),
            "world_states": database.count("world_states", "environment_id", worlds),
        }
        self.size = sum(counts.values())
        self.status = str(getattr(instance, "status", None) or "")
        states = database.count("brain_states", "agent_id", agents)
        #: the source and its numbers of rows, which differ if the source has changed
        self.origin = {
            "database": database.name,
            "instance": str(instance.uid),
            "rows": {**counts, "brain_states": states},
            "status": self.status,
        }

    def is_in(self, store: Store) -> bool:
        """Return whether ``store`` has the complete instance, imported from this database or a copy elsewhere."""
        try:
            text = files.read_text(store.instance_directory(self.uid) / ORIGIN)
            origin = json.loads(text)
        except (OSError, ValueError):
            return False
        return isinstance(origin, dict) and origin | {"database": ""} == self.origin | {"database": ""}


def _sources(
    database: PalaestraiDatabase, run_uid: str | None
) -> tuple[list[_SourceInstance], list[Imported]]:
    """Return the readable instances, and failures for the others."""
    experiments = {row.id: str(row.name) for row in database.rows("experiments", "id")}
    runs = {run.id: run for run in _runs(database, run_uid)}
    sources, failed = list[_SourceInstance](), list[Imported]()
    for row, owner in database.ids("experiment_run_instances", "experiment_run_id"):
        if owner not in runs:
            continue
        run = runs[owner]
        name = experiments.get(run.experiment_id)
        experiment = None if name is None or name.startswith(_NO_EXPERIMENT) else name
        try:
            # one by one, so that an unreadable instance does not affect the others
            (instance,) = database.rows("experiment_run_instances", "id", [row])
            sources.append(_SourceInstance(database, run, instance, experiment))
        except StoreError as error:
            failed.append(Imported(f"instance {row}", str(run.uid), "failed", problem=str(error)))
    return sources, failed


def _runs(database: PalaestraiDatabase, run_uid: str | None) -> list[Any]:
    """Return the experiment runs with this uid, or all of them."""
    runs = list(database.rows("experiment_runs", "id"))
    if run_uid is None:
        return runs
    uids = [str(run.uid) for run in runs]
    if run_uid not in uids:
        hint = did_you_mean(run_uid, uids)
        raise StoreError(
            f"{database.name} has no experiment run {run_uid!r}{hint}; it has: {', '.join(uids) or 'none'}"
        )
    return [run for run in runs if str(run.uid) == run_uid]


def _import(
    source: _SourceInstance, store: Store, keep_brain: KeepBrain, read: Callable[[int], None], *, renew: bool
) -> Imported:
    layout = Layout()
    while True:
        with staging(store) as folder, Store(folder, create=True) as staged:
            try:
                imported = _InstanceImport(source, staged, layout, keep_brain, read).record()
            except NewChannel:
                continue
            staged.database.close()
            replace_instance(staged, store, source.uid)
        imported.outcome = "renewed" if renew else "imported"
        return imported


class _InstanceImport:
    """Records one instance in a temporary store."""

    def __init__(
        self,
        source: _SourceInstance,
        store: Store,
        layout: Layout,
        keep_brain: KeepBrain,
        read: Callable[[int], None],
    ):
        self.source, self.store, self.layout = source, store, layout
        self.keep_brain, self.read = keep_brain, read
        self.notes: Counter[str] = Counter()
        self.phases: list[PhaseImport] = []
        #: when phases ended, by number
        self.ended: dict[int, datetime | None] = {}

    def record(self) -> Imported:
        """Record the instance. Raises :class:`NewChannel` if it must be repeated with more columns."""
        source = self.source
        document, hashed, text = self._document()
        version = str(document.get("version") or "")
        recorder = self._begin(document, hashed, text, version)
        controllers = _controllers(document)
        ends = self._ends()
        for number in dict.fromkeys(row.number for row in source.phases):
            rows = [row for row in source.phases if row.number == number]
            phase = PhaseImport(source.database, rows, self.layout, self.notes, self.read)
            controller = controllers[number] if 0 <= number < len(controllers) else ""
            reason, self.ended[number] = ends.get(number, ("not recorded", None))
            phase.record(recorder, controller, reason)
            self.phases.append(phase)
            self._keep_brains(recorder.directory, phase)
        notes, status = self._notes(), self._status(len(controllers))
        notes += [] if status in ("finished", "failed") else [self._doubt(len(controllers))]
        for note in notes:
            recorder.warning(note)
        recorder.finish(status)
        self._set_times(recorder)
        return Imported(source.uid, source.document, "imported", status, source.size, notes)

    def _document(self) -> tuple[dict[str, Any], str, str]:
        """Return the canonical form of the run document, its hash, and its text."""
        run = self.source.run
        data = mapping(run.document_json, f"the run document of {run.uid!r}")
        if not data:
            raise StoreError(f"the run document of {run.uid!r} is not there")
        # the user is not part of the document
        data = {key: value for key, value in data.items() if key != "user"}
        text = str(getattr(run, "document", None) or dumps(data))
        try:
            canonical = from_mapping(data, f"run {run.uid!r}", text=text).canonical
        except DocumentError as error:
            self.notes[f"run document that is not sound here ({error.problems[0]}); kept as it was"] += 1
            canonical = data
        seed = canonical.get("seed")
        if not isinstance(seed, int | None):
            raise StoreError(f"the seed {seed!r} of the run document of {run.uid!r} is no whole number")
        origin = f"palaestrAI {canonical_json(canonical)}"
        return canonical, hashlib.sha256(origin.encode("utf-8", "surrogatepass")).hexdigest(), text

    def _begin(self, document: dict[str, Any], hashed: str, text: str, version: str) -> InstanceRecorder:
        source = self.source
        directory = self.store.instance_directory(source.uid)
        files.make_folder(directory, parents=True, exist_ok=False)
        write_text(directory / ORIGIN, to_json(source.origin) + "\n")
        with self.store.database.writing() as session:
            instance = Instance(
                uid=source.uid,
                run_document_id=document_id(session, source.document, document, text, hashed),
                experiment_id=source.experiment and experiment_id(session, source.experiment),
                seed=document.get("seed") or 0,
                version=version,
                status="running",
                started=source.created,
                host=source.database.name,
                pid=0,
                pid_started=0.0,
                packages={"palaestrai": version},
            )
            session.add(instance)
            session.flush()
            row_id = instance.id
        return InstanceRecorder(self.store.database, row_id, source.uid, hashed, directory)

    def _ends(self) -> dict[int, tuple[str, datetime | None]]:
        """Return why and when phases ended, by number."""
        events = self.source.database.rows_if_present(
            "phase_termination_events", "experiment_run_instance_uid", self.source.instance.uid
        )
        return {
            as_int(row.experiment_run_phase, "the number of a phase"): (
                str(row.reason),
                as_date(row.terminated_at),
            )
            for row in events
        }

    def _keep_brains(self, directory: Path, phase: PhaseImport) -> None:
        names = phase.agent_ids
        for row in self.source.database.newest_brains(list(names)):
            name = names[row.agent_id]
            if not isinstance(row.state, bytes | bytearray | memoryview):
                raise StoreError(f"a state of the brain of agent {name!r} cannot be read: it is no bytes")
            dump, tag = bytes(row.state), str(row.tag or "")
            self.keep_brain(directory, self.source.document, phase.name, name, dump, tag)
            if row.states > 1:
                self.notes["older state of a brain (the newest is)"] += row.states - 1

    def _status(self, planned: int) -> Status:
        status, phases = self.source.status, self.phases
        if status == "error":
            return "failed"
        whole = len(phases) >= max(planned, 1) and all(phase.is_over() for phase in phases)
        # without a status, as in some releases, complete data count as finished
        return "finished" if whole and status in ("finished", "") else "lost"

    def _doubt(self, planned: int) -> str:
        status = (
            f"has the status {self.source.status!r} there" if self.source.status else "has no status there"
        )
        begun, over = len(self.phases), sum(phase.is_over() for phase in self.phases)
        return (
            f"nobody knows how this run ended: it {status}; of {planned} phases of its schedule {begun} were begun, "
            f"and {over} came to the end of an episode"
        )

    def _notes(self) -> list[str]:
        for table in ("stored_evaluation_results", "checkpoint_refs"):
            rows = self.source.database.rows_if_present(
                table, "experiment_run_instance_uid", self.source.instance.uid
            )
            self.notes[f"row of palaestrAI's table {table}"] += len(rows)
        notes = [f"not imported: {count} x {what}" for what, count in self.notes.items() if count]
        for phase in self.phases:
            notes += [
                f"agent {name!r} set no actuator at {count} of its steps in phase {phase.name!r}: palaestrAI goes on "
                "where a muscle raises"
                for name, count in phase.silent.items()
                if count
            ]
        return notes

    def _set_times(self, recorder: InstanceRecorder) -> None:
        """Replace the times of the import with palaestrAI's."""
        episodes = [episode for phase in self.phases for episode in phase.episodes.values()]
        started = self.source.created
        first = min((episode.first for episode in episodes), default=started)
        ends = [
            (max(episode.last for episode in phase.episodes.values()), ended)
            for phase in self.phases
            if phase.episodes and (ended := self.ended[phase.number]) is not None
        ]
        # without the instance's date, the time zone is unknown
        shift = zone_of(started, first, ends) if self.source.dated else timedelta(0)
        started = started if self.source.dated else first
        with self.store.database.writing() as session:
            ended = max((episode.last for episode in episodes), default=first) - shift
            instance = update(Instance).where(Instance.uid == recorder.uid)
            session.execute(instance.values(started=started, ended=ended))
            for phase in self.phases:
                times = {
                    "started": min((e.first for e in phase.episodes.values()), default=first) - shift,
                    "ended": max((e.last for e in phase.episodes.values()), default=first) - shift,
                }
                session.execute(update(Phase).where(Phase.id == phase.row_id).values(times))
            if episodes:
                self._set_episode_ends(session, shift)

    def _set_episode_ends(self, session: Session, shift: timedelta) -> None:
        """Replace the ends of all episodes with palaestrAI's, minus ``shift``."""
        rows = [
            {
                "row": phase.row_id,
                "w": key.worker,
                "n": key.episode,
                "e": key.evaluation,
                "at": episode.last - shift,
            }
            for phase in self.phases
            for key, episode in phase.episodes.items()
        ]
        table = Base.metadata.tables[Episode.__tablename__]
        condition = (table.c.phase_id == bindparam("row")) & (table.c.worker == bindparam("w"))
        condition &= (table.c.episode == bindparam("n")) & (table.c.evaluation == bindparam("e"))
        session.connection().execute(update(table).where(condition).values(ended=bindparam("at")), rows)


def _controllers(document: Mapping[str, Any]) -> list[str]:
    """Return the simulation controllers' names in the phases of a run document's schedule."""
    schedule = document.get("schedule", [])
    if not isinstance(schedule, list) or not all(isinstance(entry, dict) for entry in schedule):
        raise StoreError("the run document cannot be read: its schedule is no list of phases")
    names = []
    for config in (config for entry in schedule for config in entry.values()):
        simulation = (config.get("simulation") or {}) if isinstance(config, dict) else None
        if not isinstance(simulation, dict):
            raise StoreError("the run document cannot be read: a phase of its schedule is no mapping")
        names.append(str(simulation.get("name", "")))
    return names


_STAGING = ".import-"
#: suffix of the old files while the new ones are moved into place
_BEFORE = ".before"


@contextmanager
def staging(store: Store) -> Iterator[Path]:
    """Create a temporary folder beside the instances' directories, so that they can be moved without copying."""
    folder = store.directory / INSTANCES
    prefix = f"{_STAGING}{socket.gethostname()}-{os.getpid()}-"
    try:
        files.make_folder(folder, parents=True)
        path = files.make_hidden(folder, prefix, "")
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error}") from error
    try:
        yield path
    finally:
        files.discard_tree(path)


def replace_instance(staged: Store, store: Store, uid: str) -> None:
    """Move the instance ``uid`` from ``staged`` to ``store``, replacing an existing one.

    Raises :class:`StoreError` if this fails. The store is unchanged then.
    """
    source, target = staged.instance_directory(uid), store.instance_directory(uid)
    before = _before(target)
    reader = StoreReader()
    try:
        with reader.reading(staged.directory) as staged_session, store.database.writing() as session:
            lock(session)
            _keep_matching_files(session, before)
            remove_rows(session, uid)
            copy_rows(staged_session, source, session, uid)
            if os.path.lexists(target):
                files.move(target, before)
            files.move(source, target)
    except BaseException as error:
        with suppress(StoreError):  # the next import will try again
            finish_interrupted_imports(store)
        if isinstance(error, OSError):
            raise StoreError(f"cannot write to {target.parent}: {error}") from error
        raise
    finally:
        reader.close()
    files.discard_tree(before)


def finish_interrupted_imports(store: Store) -> None:
    """Clean up after failed imports, and imports that were killed on this host.

    Raises :class:`StoreError` if files cannot be moved.
    """
    folder = store.directory / INSTANCES
    begin = f"{_STAGING}{socket.gethostname()}-"
    for left in folder.glob(f"{_STAGING}*"):
        pid = left.name.removeprefix(begin).partition("-")[0]
        if left.name.startswith(begin) and pid.isdecimal() and not psutil.pid_exists(int(pid)):
            files.discard_tree(left)
    for before in folder.glob(f".*{_BEFORE}"):
        with store.database.writing() as session:
            lock(session)
            try:
                _keep_matching_files(session, before)
            except OSError as error:
                raise StoreError(f"cannot put {before} in its place: {error}") from error


def _before(target: Path) -> Path:
    return target.with_name(f".{target.name}{_BEFORE}")


def _keep_matching_files(session: Session, before: Path) -> None:
    """Restore ``before`` if its files match the rows, or else delete it."""
    if not os.path.lexists(before):
        return
    target = before.with_name(before.name[1 : -len(_BEFORE)])
    if not target.exists() or _are_of(session, target.name, before):
        files.discard_tree(target)
        files.move(before, target)
    else:
        files.discard_tree(before)


def _are_of(session: Session, uid: str, directory: Path) -> bool:
    """Return whether the files in ``directory`` match the rows of the instance ``uid``."""
    status = session.scalar(select(Instance.status).where(Instance.uid == uid))
    question = select(Stream.folder, Stream.rows, Stream.digest).join(Phase, Phase.id == Stream.phase_id)
    question = question.join(Instance, Instance.id == Phase.instance_id).where(Instance.uid == uid)
    streams = {row.folder: {"rows": row.rows, "digest": row.digest} for row in session.execute(question)}
    try:
        marker = json.loads(read_marker(directory))
        recorded: tuple[str, dict[str, str]] = (marker["status"], marker["digests"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return recorded == (status, digests_of(streams))
