"""Resuming a run from a mark: rows and parts after it are removed, those before it are read again and checked."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import and_, delete, false, func, not_, or_, select, update
from sqlalchemy.orm import Session

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback

from .models import (
    Agent,
    Body,
    Channel,
    Environment,
    Episode,
    Failure,
    Instance,
    Outcome,
    Phase,
    RunDocument,
    StoredBrain,
    Stream,
    Warned,
    utc_now,
)
from .open_parts import open_part_files
from .parts import open_part, part_files, part_number, part_path, read_parts, wall_folder
from .process import process_started
from .query.lookup import Lookup, inside
from .query.runs import status_of
from .recorder import MARKER, PENDING_MARKER, InstanceRecorder, wait_for_others
from .row_stream import (
    AGENT_HEADER,
    ENVIRONMENT_HEADER,
    Header,
    Kept,
    ListDigest,
    Packed,
    RowDigest,
    StatisticsDigest,
)
from .streams import (
    EVALUATION,
    TRAJECTORIES,
    Frame,
    FrameDigest,
)

if TYPE_CHECKING:
    import pyarrow.parquet as pq


_WHOSE = ("body", "incarnation", "environment_episode")
_LINE = ("agent", "worker", "episode", "step", "key", "value")


def read_kept(kind: str, folder: Path, parts: int, progress: ProgressCallback | None = None) -> Kept:
    """Read the first ``parts`` parts in ``folder``.

    Args:
        kind: ``agent``, ``environment``, ``frames`` or ``statistics``.
        folder: the folder of the parts.
        parts: the number of parts.
        progress: called with the number of parts read, and the total.

    Raises:
        StoreError: a part is missing or cannot be read.
    """
    if kind == "statistics":
        return _read_records(StatisticsDigest(), _LINE, folder, parts, progress)
    if kind == "frames":
        return _read_records(FrameDigest(), Frame._fields, folder, parts, progress)
    return _read_rows(folder, parts, AGENT_HEADER if kind == "agent" else ENVIRONMENT_HEADER, progress)


def count_rows(folder: Path, parts: int) -> int:
    """Count the rows of the first ``parts`` parts in ``folder`` by reading all of them.

    Raises :class:`StoreError` for a part that is missing or damaged.
    """
    return sum(open_part(part_path(folder, number), _count) for number in range(parts))


def _read_rows(folder: Path, parts: int, header: Header, progress: ProgressCallback | None) -> Kept:
    digest, rows, counted = RowDigest(), 0, PartsProgress(progress, parts)
    values: list[str] = []
    for number in range(parts):
        table = read_parts([part_path(folder, number)])
        present = set(table.schema.names)
        fixed = {*header.names, *_WHOSE, "state"}
        values = [name for name in table.schema.names if name not in fixed]
        block = np.empty((table.num_rows, header.cells + len(values)))
        heads = header.of(block)
        for name in header.names:
            heads[name] = table[name].to_numpy()
        for column, name in enumerate(values, header.cells):
            block[:, column] = table[name].to_numpy()
        texts = table["state"].to_pylist() if "state" in present else []
        states = {row: text for row, text in enumerate(texts) if text is not None}
        owner = "body" if "body" in present else "incarnation"
        owners, episodes = (table[name].to_numpy() for name in (owner, "environment_episode"))
        digest.add(Packed(block, heads, owners, episodes), states)
        rows += table.num_rows
        counted.end()
    return Kept(rows, parts, digest, values)


def _read_records(
    digest: ListDigest,
    columns: Sequence[str],
    folder: Path,
    parts: int,
    progress: ProgressCallback | None,
) -> Kept:
    rows, counted = 0, PartsProgress(progress, parts)
    for number in range(parts):
        table = read_parts([part_path(folder, number)])
        digest.add(zip(*(table[name].to_pylist() for name in columns), strict=True))
        rows += table.num_rows
        counted.end()
    return Kept(rows, parts, digest)


def _count(file: pq.ParquetFile) -> int:
    return sum(batch.num_rows for batch in file.iter_batches())


def resume(store: Lookup, run: str, mark: Mapping[str, Any]) -> InstanceRecorder:
    """Roll the instance named ``run`` back to ``mark``; return its recorder.

    Raises :class:`StoreError` if there is no such instance, the mark belongs to another one, the instance
    has finished, its process still runs, or rows or parts before the mark are missing.
    """
    uid = store.find_run(run)
    if mark["instance"] != uid:
        raise StoreError(f"this is a mark of the instance {mark['instance']}, not of {uid}")
    directory = store.instance_directory(uid)
    instance, hashed, kinds = store.database.repeat(lambda _: _check(store, uid, mark))
    kept = {
        folder: _check_stream(directory, folder, kinds[folder], state)
        for phase in mark["phases"]
        for folder, state in phase["streams"].items()
    }
    for name in (MARKER, PENDING_MARKER):
        files.remove(directory / name, missing_ok=True)

    def set_back(session: Session) -> bool:
        _take_over(session, instance)
        _set_back(session, instance.id, mark)
        if instance.status == "running" and instance.host != socket.gethostname():
            text = f"resumed, although it may still run on host {instance.host} (process {instance.pid})"
            session.add(Warned(instance_id=instance.id, text=text, time=utc_now()))
        return True

    def done(session: Session) -> bool | None:
        wait_for_others(session, instance.id)
        mine = [getattr(Instance, name) == value for name, value in _mine().items() if value is not None]
        row_id = session.scalar(select(Instance.id).where(Instance.id == instance.id, *mine))
        return None if row_id is None else True

    store.database.write(set_back, done)
    try:
        _remove_files(directory, kinds, mark)
    except OSError as error:
        raise StoreError(f"cannot remove what came after the mark in {directory}: {error}") from error
    return InstanceRecorder(
        *(store.database, instance.id, uid, hashed, directory), marked=mark["phases"], kept=kept
    )


def _check(store: Lookup, uid: str, mark: Mapping[str, Any]) -> tuple[Instance, str, dict[str, str]]:
    """Check the instance against the mark; return it, its document's hash, and the kind of every stream by folder."""
    with store.database.reading() as session:
        instance = session.scalars(select(Instance).where(Instance.uid == uid)).one()
        _refuse_if_busy(instance)
        document = select(RunDocument.hash).where(RunDocument.id == instance.run_document_id)
        hashed = session.scalars(document).one()
        kinds = _check_database(session, instance, mark)
        session.expunge(instance)
        return instance, hashed, kinds


def _refuse_if_busy(instance: Instance) -> None:
    if instance.status == "finished":
        raise StoreError(f"the run {instance.uid} has finished: there is nothing to resume")
    # A process on another host cannot be checked from here.
    if instance.host == socket.gethostname() and status_of(instance) == "running":
        raise StoreError(f"the run {instance.uid} still runs in the process {instance.pid}")


def _check_database(session: Session, instance: Instance, mark: Mapping[str, Any]) -> dict[str, str]:
    """Compare the SQL rows with the mark; return the kind of every stream by folder."""
    phases = _phase_ids(session, instance.id)
    kinds: dict[str, str] = {}
    for phase in mark["phases"]:
        where = f"phase {phase['phase']} of the run {instance.uid}"
        row_id = phases.get(phase["phase"])
        if row_id is None:
            raise StoreError(f"the database has no {where}, but the mark has")
        for evaluation, worker, last, count in phase["episodes"]:
            condition = (Episode.phase_id == row_id, _up_to(Episode, evaluation, worker, last))
            counted = session.scalar(select(func.count()).select_from(Episode).where(*condition))
            if counted != count:
                noun = "evaluations" if evaluation else "episodes"
                raise StoreError(
                    f"{where}: the mark has {count} {noun} of worker {worker}, the database {counted}"
                )
        streams = select(Stream.folder, Stream.kind).where(Stream.phase_id == row_id)
        phase_kinds = dict(session.execute(streams).all())
        for folder in phase["streams"]:
            if folder not in phase_kinds:
                raise StoreError(f"{where}: the database has no stream {folder!r}, but the mark has")
        kinds |= phase_kinds
    return kinds


def _check_stream(directory: Path, folder: str, kind: str, state: Mapping[str, Any]) -> Kept:
    path = inside(directory, folder)
    kept = read_kept(kind, path, state["parts"])
    rows = [kept.rows]
    if kind == "agent":
        rows.append(count_rows(wall_folder(path), state["parts"]))
    if any(count != state["rows"] for count in rows) or kept.digest.hexdigest() != state["digest"]:
        raise StoreError(
            f"{path} is damaged: its first {state['parts']} parts hold other rows than the mark says"
        )
    return kept


def _phase_ids(session: Session, instance: int) -> dict[int, int]:
    numbered = select(Phase.number, Phase.id).where(Phase.instance_id == instance)
    return dict(session.execute(numbered).all())


def _up_to(table: type[Episode] | type[Outcome], evaluation: bool, worker: int, last: int) -> Any:
    return and_(table.evaluation.is_(evaluation), table.worker == worker, table.episode <= last)


def _take_over(session: Session, instance: Instance) -> None:
    """Make this process the owner of the instance, unless another was faster."""
    as_it_was = (
        Instance.id == instance.id,
        Instance.status == instance.status,
        Instance.pid == instance.pid,
        Instance.host == instance.host,
    )
    taken = session.execute(update(Instance).where(*as_it_was).values(_mine()).returning(Instance.id)).all()
    if not taken:
        raise StoreError(f"the run {instance.uid} is being resumed by another process")


def _mine() -> dict[str, Any]:
    """The column values of an instance that this process runs."""
    return {
        "status": "running",
        "ended": None,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "pid_started": process_started(),
    }


def _set_back(session: Session, instance: int, mark: Mapping[str, Any]) -> None:
    phases = _phase_ids(session, instance)
    kept = {phase["phase"] for phase in mark["phases"]}
    session.execute(delete(Failure).where(Failure.instance_id == instance))
    texts = select(Warned.id).where(Warned.instance_id == instance).order_by(Warned.id)
    late = list(session.scalars(texts))[mark["warnings"] :]
    session.execute(delete(Warned).where(Warned.id.in_(late)))
    session.execute(
        delete(StoredBrain).where(StoredBrain.instance_id == instance, StoredBrain.phase.not_in(kept))
    )
    surplus = [row_id for number, row_id in phases.items() if number not in kept]
    for table in (Outcome, Episode, Stream, Channel, Body, Agent, Environment):
        session.execute(delete(table).where(table.phase_id.in_(surplus)))
    session.execute(delete(Phase).where(Phase.id.in_(surplus)))
    for phase in mark["phases"]:
        if not phase["finished"]:
            _reopen(session, phases[phase["phase"]], phase)


def _reopen(session: Session, row_id: int, phase: Mapping[str, Any]) -> None:
    for table in (Outcome, Episode):
        stays = or_(false(), *(_up_to(table, *key) for *key, _ in phase["episodes"]))
        session.execute(delete(table).where(table.phase_id == row_id, not_(stays)))
    if not phase["evaluation"]:
        session.execute(delete(Stream).where(Stream.phase_id == row_id, Stream.evaluation))
    unknown = {"rows": None, "parts": None, "digest": None}
    session.execute(update(Stream).where(Stream.phase_id == row_id).values(unknown))
    session.execute(update(Phase).where(Phase.id == row_id).values(ended=None, reason=None))


def _remove_files(directory: Path, kinds: Mapping[str, str], mark: Mapping[str, Any]) -> None:
    """Remove the files that were written after the mark."""
    root = directory / TRAJECTORIES
    names = {f"phase-{phase['phase']}": phase for phase in mark["phases"]}
    for phase_folder in root.glob("phase-*"):
        if phase_folder.name not in names:
            files.remove_tree(phase_folder)
    for name, phase in names.items():
        if phase["finished"]:
            continue
        if not phase["evaluation"] and (root / name / EVALUATION).exists():
            files.remove_tree(root / name / EVALUATION)
        for relative, state in phase["streams"].items():
            folder = inside(directory, relative)
            _remove_parts(folder, state["parts"])
            if kinds[relative] == "agent":
                _remove_parts(wall_folder(folder), state["parts"])


def _remove_parts(folder: Path, count: int) -> None:
    """Remove all parts but the first ``count``, open parts and temporary files."""
    surplus = [part for part in part_files(folder) if part_number(part) >= count]
    for part in (*surplus, *open_part_files(folder), *folder.glob("*.tmp")):
        files.remove(part)
