"""Imports the instances of one database of palaestrAI into a store.

Each instance is first recorded in a temporary store beside the results, then moved into the store:
completely, or not at all. An instance keeps its uid, so importing a database again adds only what is new
or has changed. An imported run has the uid of its run document but a different hash, so it is never
mistaken for a run of ours.

Rows and files cannot be replaced in one step, and the process may be killed at any moment. One
transaction therefore replaces the rows, sets the old files aside and puts the new ones in their place; the
old files are deleted after the commit. If an import was killed in between, the next import keeps the files
that match the rows in the database.
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

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import DocumentError, StoreError, did_you_mean
from palaestrai_mosaik.experiment import canonical_json, dumps, from_mapping
from palaestrai_mosaik.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.store.merge import StoreReader, copy_rows, lock, remove_rows
from palaestrai_mosaik.store.models import Base, Episode, Instance, Phase, Stream, to_json
from palaestrai_mosaik.store.parts import write_text
from palaestrai_mosaik.store.phase_recorder import digests_of
from palaestrai_mosaik.store.query.lookup import INSTANCES
from palaestrai_mosaik.store.recorder import InstanceRecorder, Status, read_marker
from palaestrai_mosaik.store.shared import document_id, experiment_id
from palaestrai_mosaik.store.store import Store

from .database import PalaestraiDatabase
from .jsonpickle import as_int, mapping
from .phase import Layout, NewChannel, PhaseImport, as_date, zone_of

#: the file that an imported instance's directory holds: where it is from, and how much was there
ORIGIN = "origin.json"
#: how palaestrAI says that an instance ended, and how it is called here
_STATUS: Mapping[str, Status] = {"finished": "finished", "error": "failed"}
#: what begins the name of an experiment that palaestrAI made up for a run without one
_NO_EXPERIMENT = "Dummy Experiment record"

#: keeps a brain: folder of the instance, run, phase, agent, dump, tag
KeepBrain = Callable[[Path, str, str, str, bytes, str], None]


@dataclass
class Imported:
    """What became of one instance of palaestrAI's database.

    ``run`` is its uid here, ``outcome`` is ``imported``, ``renewed`` (it had changed since it was
    imported), ``known`` (nothing to do) or ``failed``, for the reason in ``problem``. ``notes`` say
    what could not be taken over.
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
    """Bring the instances in palaestrAI's database at ``location`` into ``store``; yield what became of each.

    ``experiment_run`` picks those of one run document, by its uid. ``progress`` gets how many rows
    are read, and of how many. ``keep_brain`` keeps dumps of brains as files. An instance that cannot be
    read does not keep the next one from being imported.

    Raises :class:`StoreError` where the database cannot be opened, is none of palaestrAI or of another
    release, or has no such run.
    """
    with PalaestraiDatabase(location) as database:
        finish_interrupted_imports(store)
        sources, unreadable = _sources(database, experiment_run)
        yield from unreadable
        with store.database.reading() as session:
            known = set(session.scalars(select(Instance.uid)))
        there = {source.uid for source in sources if source.uid in known and source.is_in(store)}
        counted = PartsProgress(progress, sum(one.size for one in sources if one.uid not in there))
        for source in sources:
            if source.uid in there:
                yield Imported(source.uid, source.document, "known", rows=source.size)
                continue
            try:
                yield _import(source, store, keep_brain, counted.add, renew=source.uid in known)
            except (StoreError, DocumentError) as error:
                yield Imported(source.uid, source.document, "failed", problem=str(error))
            # (what was read again, because of more columns, does not count twice)
            counted.end(source.size)


class _SourceInstance:
    """One instance in palaestrAI's database."""

    def __init__(self, database: PalaestraiDatabase, run: Any, instance: Any, experiment: str | None):
        self.database, self.run, self.instance, self.experiment = database, run, instance, experiment
        self.document = str(run.uid)
        self.dated = instance.created_at is not None
        self.created = as_date(instance.created_at if self.dated else datetime(1970, 1, 1))
        digest = hashlib.sha256(str(instance.uid).encode()).hexdigest()
        #: sorts by time, as those of our own instances do
        self.uid = f"{self.created:%Y%m%dT%H%M%S%f}-{digest[:8]}"
        found = database.rows("experiment_run_phases", "experiment_run_instance_id", [instance.id])
        self.phases = sorted(found, key=lambda row: (as_int(row.number, "the number of a phase"), row.id))
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
        #: what is kept about where it is from; others where there is more than before
        self.origin = {
            "database": database.name,
            "instance": str(instance.uid),
            "rows": {**counts, "brain_states": states},
            "status": self.status,
        }

    def is_in(self, store: Store) -> bool:
        """Whether ``store`` has the files of all of it, from whatever place the database was then."""
        try:
            text = files.read_text(store.instance_directory(self.uid) / ORIGIN)
            found = json.loads(text)
        except (OSError, ValueError):
            return False
        return isinstance(found, dict) and found | {"database": ""} == self.origin | {"database": ""}


def _sources(
    database: PalaestraiDatabase, wanted: str | None
) -> tuple[list[_SourceInstance], list[Imported]]:
    """Return the instances that there are, and those of which not even that can be read."""
    experiments = {row.id: str(row.name) for row in database.rows("experiments", "id")}
    runs = list(database.rows("experiment_runs", "id"))
    if wanted is not None:
        uids = [str(run.uid) for run in runs]
        if wanted not in uids:
            hint = did_you_mean(wanted, uids)
            raise StoreError(
                f"{database.name} has no experiment run {wanted!r}{hint}; it has: {', '.join(uids) or 'none'}"
            )
        runs = [run for run in runs if str(run.uid) == wanted]
    found, failed = list[_SourceInstance](), list[Imported]()
    by_id = {run.id: run for run in runs}
    for row, owner in database.ids("experiment_run_instances", "experiment_run_id"):
        if owner not in by_id:
            continue
        run = by_id[owner]
        name = experiments.get(run.experiment_id)
        experiment = None if name is None or name.startswith(_NO_EXPERIMENT) else name
        try:
            # one by one, so that one that cannot be read keeps no other from being imported
            (instance,) = database.rows("experiment_run_instances", "id", [row])
            found.append(_SourceInstance(database, run, instance, experiment))
        except StoreError as error:
            failed.append(Imported(f"instance {row}", str(run.uid), "failed", problem=str(error)))
    return found, failed


def _import(
    source: _SourceInstance, store: Store, keep_brain: KeepBrain, read: Callable[[int], None], *, renew: bool
) -> Imported:
    layout = Layout()
    while True:
        with staging(store) as folder, Store(folder, create=True) as staged:
            try:
                found = _InstanceImport(source, staged, layout, keep_brain, read).record()
            except NewChannel:
                continue
            staged.database.close()
            replace_instance(staged, store, source.uid)
        found.outcome = "renewed" if renew else "imported"
        return found


class _InstanceImport:
    """Records one instance in a store of its own."""

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
        #: when phases ended, by their numbers
        self.ended: dict[int, datetime | None] = {}

    def record(self) -> Imported:
        """Record it. Raises :class:`NewChannel` where it must be done again."""
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
        # (who started it is no part of a document)
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
        """Return why and when phases ended, by their numbers."""
        found = self.source.database.rows_if_present(
            "phase_termination_events", "experiment_run_instance_uid", self.source.instance.uid
        )
        return {
            as_int(row.experiment_run_phase, "the number of a phase"): (
                str(row.reason),
                as_date(row.terminated_at),
            )
            for row in found
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
        # releases that did not say how it went: what is there decides
        return "finished" if whole and status in ("finished", "") else "lost"

    def _doubt(self, planned: int) -> str:
        known = (
            f"has the status {self.source.status!r} there" if self.source.status else "has no status there"
        )
        begun, over = len(self.phases), sum(phase.is_over() for phase in self.phases)
        return (
            f"nobody knows how this run ended: it {known}; of {planned} phases of its schedule {begun} were begun, "
            f"and {over} came to the end of an episode"
        )

    def _notes(self) -> list[str]:
        for table in ("stored_evaluation_results", "checkpoint_refs"):
            found = self.source.database.rows_if_present(
                table, "experiment_run_instance_uid", self.source.instance.uid
            )
            self.notes[f"row of palaestrAI's table {table}"] += len(found)
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
        """Put the times of palaestrAI in place of those of the import."""
        episodes = [(phase, key, one) for phase in self.phases for key, one in phase.episodes.items()]
        started = self.source.created
        first = min((one.first for _, _, one in episodes), default=started)
        ends = [
            (max(one.last for one in phase.episodes.values()), ended)
            for phase in self.phases
            if phase.episodes and (ended := self.ended[phase.number]) is not None
        ]
        # (without its date nothing can be said of the zone)
        shift = zone_of(started, first, ends) if self.source.dated else timedelta(0)
        started = started if self.source.dated else first
        with self.store.database.writing() as session:
            owner = Instance.uid == recorder.uid
            ended = max((one.last for _, _, one in episodes), default=first) - shift
            session.execute(update(Instance).where(owner).values(started=started, ended=ended))
            for phase in self.phases:
                of_phase = phase.episodes.values()
                times = {
                    "started": min((one.first for one in of_phase), default=first) - shift,
                    "ended": max((one.last for one in of_phase), default=first) - shift,
                }
                session.execute(update(Phase).where(Phase.id == phase.row_id).values(times))
            rows = [
                {
                    "row": phase.row_id,
                    "w": key.worker,
                    "n": key.episode,
                    "e": key.evaluation,
                    "at": one.last - shift,
                }
                for phase, key, one in episodes
            ]
            if rows:
                table = Base.metadata.tables[Episode.__tablename__]
                one = (table.c.phase_id == bindparam("row")) & (table.c.worker == bindparam("w"))
                one &= (table.c.episode == bindparam("n")) & (table.c.evaluation == bindparam("e"))
                session.connection().execute(update(table).where(one).values(ended=bindparam("at")), rows)


def _controllers(document: Mapping[str, Any]) -> list[str]:
    """Return the names of the simulation controllers of the phases of a run document's schedule."""
    schedule = document.get("schedule", [])
    if not isinstance(schedule, list) or not all(isinstance(entry, dict) for entry in schedule):
        raise StoreError("the run document cannot be read: its schedule is no list of phases")
    found = []
    for config in (config for entry in schedule for config in entry.values()):
        simulation = (config.get("simulation") or {}) if isinstance(config, dict) else None
        if not isinstance(simulation, dict):
            raise StoreError("the run document cannot be read: a phase of its schedule is no mapping")
        found.append(str(simulation.get("name", "")))
    return found


_STAGING = ".import-"
#: suffix of the old files while they are set aside
_BEFORE = ".before"


@contextmanager
def staging(store: Store) -> Iterator[Path]:
    """Give a folder beside the files of instances, so that they can be moved; it is removed afterwards."""
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
    """Move the instance ``uid`` from ``staged`` to ``store``, in place of what is there of it.

    Raises :class:`StoreError` where that cannot be; then all is as it was.
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
        with suppress(StoreError):  # (else the next import does)
            finish_interrupted_imports(store)
        if isinstance(error, OSError):
            raise StoreError(f"cannot write to {target.parent}: {error}") from error
        raise
    finally:
        reader.close()
    files.discard_tree(before)


def finish_interrupted_imports(store: Store) -> None:
    """Bring to an end what imports have left that were killed on this host, or have failed.

    Raises :class:`StoreError` where files cannot be moved.
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
    """Take ``before`` back where its files are those of the rows, else remove it."""
    if not os.path.lexists(before):
        return
    target = before.with_name(before.name[1 : -len(_BEFORE)])
    if not target.exists() or _are_of(session, target.name, before):
        files.discard_tree(target)
        files.move(before, target)
    else:
        files.discard_tree(before)


def _are_of(session: Session, uid: str, directory: Path) -> bool:
    """Whether the files in ``directory`` are those of the rows of the instance ``uid``."""
    status = session.scalar(select(Instance.status).where(Instance.uid == uid))
    question = select(Stream.folder, Stream.rows, Stream.digest).join(Phase, Phase.id == Stream.phase_id)
    question = question.join(Instance, Instance.id == Phase.instance_id).where(Instance.uid == uid)
    streams = {row.folder: {"rows": row.rows, "digest": row.digest} for row in session.execute(question)}
    try:
        marker = json.loads(read_marker(directory))
        found: tuple[str, dict[str, str]] = (marker["status"], marker["digests"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return found == (status, digests_of(streams))
