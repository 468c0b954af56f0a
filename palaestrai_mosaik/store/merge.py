"""Copies instances from one store into another, and deletes them."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    URL,
    ColumnElement,
    Table,
    bindparam,
    create_engine,
    delete,
    exists,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback

from .database import Database
from .labels import Labels, labels_of, lock_labels, set_labels
from .models import (
    Base,
    Description,
    Environment,
    Experiment,
    Instance,
    Label,
    Phase,
    RunDocument,
    SharedDescription,
    description_ids,
    document_id,
    experiment_id,
)
from .parts import part_files
from .query.lookup import INSTANCES, in_chunks, inside
from .query.runs import status_of
from .recorder import MARKER, digests_of
from .schema import HEAD
from .sqlite_files import TIMEOUT, check_sqlite
from .verify import marker_damage

if TYPE_CHECKING:
    from .store import Store


#: the status of an instance whose process ended without recording an end
LOST = "lost"
#: the file in a store's folder that says why the store is no longer used
DAMAGE_NOTE = "damaged"
# SQLite's error codes for damage: SQLITE_ERROR (such as a missing table), SQLITE_CORRUPT, SQLITE_FORMAT and
# SQLITE_NOTADB; other codes are for the file system, locks or permissions
_CORRUPT = (1, 11, 24, 26)
_TABLES = Base.metadata.tables
#: the tables with rows of one instance; referenced tables come first
OWNED = (
    *("phases", "environments", "agents", "bodies", "channels", "streams", "episodes", "outcomes"),
    *("brains", "errors", "warnings"),
)


def _of_instance(table: Table) -> ColumnElement[bool]:
    """Build the condition for the rows of the instance with the id ``row_id``."""
    if "instance_id" in table.c:
        return table.c.instance_id == bindparam("row_id")
    return table.c.phase_id.in_(select(Phase.id).where(Phase.instance_id == bindparam("row_id")))


# built once: compiling takes SQLAlchemy longer than SQLite's answer
_INSTANCE = select(_TABLES["instances"]).where(_TABLES["instances"].c.uid == bindparam("instance"))
_DOCUMENT = select(
    *(getattr(RunDocument, name) for name in ("uid", "document", "text", "hash", "content"))
).where(RunDocument.id == bindparam("row_id"))
_EXPERIMENT = select(Experiment.uid).where(Experiment.id == bindparam("row_id"))
_DESCRIPTION = select(Description.kind, Description.hash, Description.content).where(
    Description.id == bindparam("row_id")
)
_OWNED = {
    name: select(_TABLES[name]).where(_of_instance(_TABLES[name])).order_by(*_TABLES[name].primary_key)
    for name in OWNED
}
#: columns with ids, which change in the target -> the table of the ids
REFERENCES = {
    "instance_id": "instances",
    "phase_id": "phases",
    "environment_id": "environments",
    "agent_id": "agents",
}
#: columns with ids of descriptions, which instances share
DESCRIPTIONS = ("world_id", "topology_id")
_INSERT = {
    name: insert(_TABLES[name]).returning(_TABLES[name].c.id, sort_by_parameter_order=True)
    if name in REFERENCES.values()
    else insert(_TABLES[name])
    for name in ("instances", *OWNED)
}
# the number of rows in memory at once
_ROWS = 10_000
# as in database.py; without this lock, two merges of equal documents in different orders into a
# PostgreSQL would deadlock
_POSTGRESQL_LOCK = 0x70A1E57B


class DamagedStore(StoreError):
    """Rows or files of a store are missing or damaged; reading it again is no use."""


def is_damage(error: BaseException | None) -> bool:
    """Whether ``error``, or its cause, reports that the file of an SQLite database is damaged."""
    while error is not None and not isinstance(error, DBAPIError):
        error = error.__cause__
    code = None if error is None else getattr(error.orig, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _CORRUPT


class InstanceState(NamedTuple):
    """The state of an instance. It differs after a change: a resumed run has another process.

    ``status`` is the recorded one, even if the process is gone.
    """

    uid: str
    status: str
    ended: datetime | None
    host: str
    pid: int
    pid_started: float

    def over(self) -> InstanceState:
        """Return the state of the copy: a copied instance does not run any more."""
        return self._replace(status=LOST) if self.status == "running" else self


class StoreReader:
    """Reads many stores in folders, one after the other.

    Each is attached to the same connection, so that SQLAlchemy compiles each statement only once: with an
    engine for each store, that takes most of the time.
    """

    def __init__(self) -> None:
        self._engine = create_engine("sqlite://", connect_args={"uri": True, "timeout": TIMEOUT})

    @contextmanager
    def reading(self, directory: Path) -> Iterator[Session]:
        """Open a session that reads the store in ``directory``, after an upgrade of an earlier schema.

        Raises :class:`StoreError` if it cannot be opened, and :class:`DamagedStore` if that is
        because of damage. Unqualified table names work, because the connection has no tables
        of its own.
        """
        file = directory / "store.db"
        check_sqlite(file)
        _check_size(file)
        with self._engine.connect() as connection, Session(connection) as session:
            if not self._attach(session, file):
                try:
                    Database(URL.create("sqlite", database=str(file)), create=False).close()
                except StoreError as error:
                    raise (DamagedStore(str(error)) if is_damage(error) else error) from error
                if not self._attach(session, file):
                    raise StoreError(f"{file} cannot be read")
            try:
                yield session
            finally:
                session.execute(text("DETACH DATABASE own"))

    def close(self) -> None:
        """Close the connection."""
        self._engine.dispose()

    def _attach(self, session: Session, file: Path) -> bool:
        """Attach ``file`` if its schema is current."""
        try:
            session.execute(text("ATTACH DATABASE :file AS own"), {"file": f"{file.as_uri()}?mode=rw"})
        except SQLAlchemyError:
            return False
        try:
            if session.scalar(text("SELECT version_num FROM alembic_version")) == HEAD:
                return True
        except SQLAlchemyError:
            pass
        session.execute(text("DETACH DATABASE own"))
        return False


def _check_size(file: Path) -> None:
    """Refuse a database that is missing or empty: a new one is put in place with all its tables."""
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        raise DamagedStore(f"there is no store at {file}") from None
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error}") from error
    if not size:
        raise DamagedStore(f"{file} is damaged: it is empty")


def instance_states(session: Session, uids: Sequence[str] | None = None) -> list[InstanceState]:
    """Select the states of a store's instances, or of ``uids`` only; the oldest first."""
    columns = [getattr(Instance, name) for name in InstanceState._fields]
    question = select(*columns).order_by(Instance.id)
    if uids is None:
        return [InstanceState(*row) for row in session.execute(question)]
    queries = (question.where(Instance.uid.in_(chunk)) for chunk in in_chunks(uids))
    return [InstanceState(*row) for query in queries for row in session.execute(query)]


def instance_uids(directory: Path) -> list[str]:
    """List the uids of the instances that have a folder in the store at ``directory``, the oldest first."""
    try:
        return sorted(name for name in os.listdir(directory / INSTANCES) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def marked_status(directory: Path) -> str | None:
    """Read the final status of the instance in ``directory`` from its marker, or return ``None``."""
    marker = _read_marker(directory)
    try:
        return None if marker is None else str(json.loads(marker)["status"])
    except (ValueError, KeyError, TypeError):
        return None


def has_finished(directory: Path) -> bool:
    """Whether an instance in the store at ``directory`` has finished, by its marker; no database is opened.

    False if the store was found damaged, or may not be read.
    """
    try:
        uids = [] if (directory / DAMAGE_NOTE).exists() else instance_uids(directory)
        return any(marked_status(directory / INSTANCES / uid) == "finished" for uid in reversed(uids))
    except OSError:
        return False


def has_files_of(source: Path, target: Path) -> bool:
    """Whether the instance's folder ``target`` exists and has the same marker as ``source``, or neither has one."""
    return target.is_dir() and _read_marker(target) == _read_marker(source)


def _read_marker(directory: Path) -> bytes | None:
    try:
        return files.read_bytes(directory / MARKER)
    except (FileNotFoundError, NotADirectoryError):
        return None


def place_files(source: Path, target: Path, leave_out: Collection[str] = ()) -> None:
    """Make the folder ``target`` a copy of the instance's folder ``source``, completely or not at all.

    Files are hard links if the file system supports them. A target with the same marker is left as is: its files
    are the same.

    Args:
        source: the folder of the instance.
        target: the new folder.
        leave_out: names of files and folders in ``source`` that are not copied.

    Raises:
        OSError: the files cannot be copied.
    """
    new, old = (target.with_name(f".{target.name}.{word}") for word in ("new", "old"))
    for path in (new, old):  # by a process that was killed
        files.remove_tree(path)
    if _read_marker(source) is not None and has_files_of(source, target):
        return
    files.make_folder(target.parent, parents=True)
    _copy_folder(source, new, leave_out)
    if os.path.lexists(target):
        files.move(target, old)
    files.move(new, target)
    files.remove_tree(old)


def same_files(source: Path, target: Path, leave_out: Collection[str] = ()) -> bool:
    """Whether ``target`` has each file of the folder ``source``, of the same size. Raises ``OSError``."""
    for entry in os.scandir(source):
        if _stays(entry.name, leave_out):
            continue
        counterpart = target / entry.name
        if entry.is_dir(follow_symlinks=False):
            if not same_files(Path(entry.path), counterpart):
                return False
        elif (
            not os.path.lexists(counterpart)
            or counterpart.lstat().st_size != entry.stat(follow_symlinks=False).st_size
        ):
            return False
    return True


def _stays(name: str, leave_out: Collection[str]) -> bool:
    """Whether to skip a file: by its name, or because its writer was killed before it was complete."""
    return name in leave_out or files.is_temporary(name)


def _copy_folder(source: Path, target: Path, leave_out: Collection[str]) -> None:
    files.make_folder(target, exist_ok=False)
    for entry in os.scandir(source):
        if _stays(entry.name, leave_out):
            continue
        copy = target / entry.name
        if entry.is_dir(follow_symlinks=False):
            _copy_folder(Path(entry.path), copy, ())
        else:
            files.copy_file(entry.path, copy)


def lock(session: Session) -> None:
    """Lock this database against other merges until the transaction ends."""
    if session.connection().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(_POSTGRESQL_LOCK)))


def remove_rows(session: Session, uid: str) -> None:
    """Delete all rows of the instance ``uid``, if it has any; rows that it shares with others stay, and its label."""
    row_id = session.scalar(select(Instance.id).where(Instance.uid == uid))
    for name in reversed(OWNED):
        table = _TABLES[name]
        session.execute(delete(table).where(_of_instance(table)), {"row_id": row_id})
    session.execute(delete(Instance).where(Instance.id == row_id))


def check_rows(source: Session, directory: Path, uid: str) -> None:
    """Raise :class:`DamagedStore` if :func:`copy_rows` would, because of the source."""
    for _ in _read(source, directory, uid):
        pass


def copy_rows(source: Session, directory: Path, target: Session, uid: str) -> None:
    """Insert the rows of the instance ``uid`` of ``source``, whose files are in ``directory``, into ``target``.

    Args:
        source: a session of :meth:`StoreReader.reading`.
        directory: the instance's folder.
        target: a session that may write.
        uid: the instance's uid.

    Raises:
        DamagedStore: rows or files are missing or damaged.
        StoreError: the source cannot be read for another reason.
        sqlalchemy.exc.SQLAlchemyError: the target does not accept the rows.
    """
    ids: dict[str, dict[int, int]] = {name: {} for name in REFERENCES.values()}
    for table, rows in _read(source, directory, uid):
        if table.name == "instances":
            document, experiment = rows[0].pop("document"), rows[0].pop("experiment")
            rows[0]["run_document_id"] = document_id(target, **document)
            rows[0]["experiment_id"] = experiment and experiment_id(target, experiment)
        for column in rows[0].keys() & set(DESCRIPTIONS):
            ids_by_hash = description_ids(target, [row[column] for row in rows if row[column] is not None])
            for row in rows:
                row[column] = None if row[column] is None else ids_by_hash[row[column].hash]
        old = [row.pop("id", None) for row in rows]
        for column in REFERENCES.keys() & rows[0].keys():
            _exchange(rows, column, ids[REFERENCES[column]], directory)
        added = target.execute(_INSERT[table.name], rows)
        if table.name in ids:
            ids[table.name].update(zip(old, added.scalars(), strict=True))
    copy_labels(source, directory, target, [uid])


def copy_labels(source: Session, directory: Path, target: Session, uids: Sequence[str]) -> None:
    """Add the labels of instances in ``source`` to those in ``target``, which keeps its names, notes and tags.

    Args:
        source: a session of :meth:`StoreReader.reading`.
        directory: names the source in errors.
        target: a session that may write.
        uids: the instances.

    Raises:
        DamagedStore: a label is damaged.
    """
    with _damage_of_rows(directory):
        chunks = (select(Label).where(Label.run.in_(chunk)) for chunk in in_chunks(uids))
        labels = [(label, labels_of(label)) for chunk in chunks for label in source.scalars(chunk)]
    if labels:
        lock_labels(target)
    for label, added in labels:
        present = target.get(Label, label.run)
        if present is None:
            present = Label(run=label.run, tags=[], changed=label.changed)
            target.add(present)
        before = labels_of(present)
        tags = tuple({*before.tags, *added.tags})
        set_labels(present, Labels(before.name or added.name, tags, before.note or added.note))
    target.flush()


def _read(session: Session, directory: Path, uid: str) -> Iterator[tuple[Table, list[dict[str, Any]]]]:
    """Yield tables with rows of the instance ``uid``, in an order in which they can be inserted.

    Ids of shared rows are replaced: the instance's row has ``document`` (a
    mapping) and ``experiment`` (a uid), and columns of :data:`DESCRIPTIONS` have the description. Raises
    :class:`DamagedStore`.
    """
    if not directory.is_dir():
        raise DamagedStore(f"{directory} is missing")
    streams: dict[str, Any] = {}
    with _damage_of_rows(directory):
        instance = _instance_row(session, uid)
        # a consumer replaces entries of the row
        row_id, status = instance["id"], instance["status"]
        yield _TABLES["instances"], [instance]
        for name, rows in _owned_rows(session, row_id):
            if name == "streams":
                _check_streams(directory, rows)
                streams |= {row["folder"]: row for row in rows if row["digest"] is not None}
            yield _TABLES[name], rows
    if status == "finished":
        damage = marker_damage(directory, uid, digests_of(streams))
        if damage is not None:
            raise DamagedStore(damage)


@contextmanager
def _damage_of_rows(directory: Path) -> Iterator[None]:
    """Raise :class:`DamagedStore` if reading the rows of ``directory`` fails because of their content."""
    try:
        yield
    except (SQLAlchemyError, ValueError, TypeError) as error:  # an invalid date or JSON
        if isinstance(error, DBAPIError) and not is_damage(error):
            raise StoreError(f"the rows of {directory} cannot be read: {error.orig}") from error
        raise DamagedStore(f"the rows of {directory} are damaged: {error}") from error


def _instance_row(session: Session, uid: str) -> dict[str, Any]:
    """Select the row of an instance, with its document and experiment instead of their ids."""
    row = dict(session.execute(_INSTANCE, {"instance": uid}).mappings().one())
    document = row.pop("run_document_id")
    row["document"] = dict(session.execute(_DOCUMENT, {"row_id": document}).mappings().one())
    row["experiment"] = session.scalar(_EXPERIMENT, {"row_id": row.pop("experiment_id")})
    row["status"] = LOST if row["status"] == "running" else row["status"]
    return row


def _owned_rows(session: Session, instance: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield tables with rows that the instance owns, with descriptions instead of their ids."""
    described: dict[int, SharedDescription] = {}
    for name, question in _OWNED.items():
        result = session.execute(question, {"row_id": instance})
        while chunk := result.fetchmany(_ROWS):
            rows = [dict(row._mapping) for row in chunk]
            for column in rows[0].keys() & set(DESCRIPTIONS):
                for row in rows:
                    row[column] = _description(session, row[column], described)
            yield name, rows


def _description(
    session: Session, row_id: int | None, descriptions: dict[int, SharedDescription]
) -> SharedDescription | None:
    if row_id is not None and row_id not in descriptions:
        descriptions[row_id] = SharedDescription(*session.execute(_DESCRIPTION, {"row_id": row_id}).one())
    return None if row_id is None else descriptions[row_id]


def _exchange(rows: Sequence[dict[str, Any]], column: str, ids: Mapping[int, int], directory: Path) -> None:
    for row in rows:
        old = row[column]
        if old is not None:
            if old not in ids:
                raise DamagedStore(f"the rows of {directory} are damaged: {column} {old} is not there")
            row[column] = ids[old]


def _check_streams(directory: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        folder = inside(directory, row["folder"])
        count = len(part_files(folder))
        if row["parts"] is not None and count < row["parts"]:
            raise DamagedStore(f"{folder} is damaged: of {row['parts']} part files, {count} are there")


def delete_runs(
    store: Store, runs: Iterable[str], progress: ProgressCallback | None = None
) -> tuple[str, ...]:
    """Delete runs with all their rows and files.

    The rows of all runs are deleted in one transaction, then the folders: if the process is killed in between,
    unreferenced folders are left. Run documents, experiments and descriptions that no other run uses are deleted, too.

    Args:
        store: the store.
        runs: which runs, as :meth:`Store.find_run` takes them.
        progress: called with the number of deleted folders, and the total.

    Returns:
        The uids of the instances.

    Raises:
        StoreError: there is no such run, or it is running, on any machine. Then nothing is deleted.
    """
    uids = tuple(dict.fromkeys(store.find_run(run) for run in runs))

    def remove(session: Session) -> None:
        for uid in uids:
            instance = session.scalar(select(Instance).where(Instance.uid == uid))
            if instance is not None and status_of(instance) == "running":
                raise StoreError(f"run {uid} is running; end it first. Nothing was deleted")
        for uid in uids:
            remove_rows(session, uid)
            session.execute(delete(Label).where(Label.run == uid))
        for owner, key in ((RunDocument, Instance.run_document_id), (Experiment, Instance.experiment_id)):
            session.execute(delete(owner).where(~exists().where(key == owner.id)))
        used = (Environment.topology_id, Phase.world_id)
        unused = [~exists().where(key == Description.id) for key in used]
        session.execute(delete(Description).where(*unused))

    store.database.write(remove)
    counted = PartsProgress(progress, len(uids))
    for uid in uids:
        files.remove_tree(store.instance_directory(uid))
        counted.end()
    return uids
