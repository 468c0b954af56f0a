"""Copying instances from one store into another: their files, and their rows of SQL with new ids.

The order matters, because this may be killed at any moment, and others look at the target
meanwhile. Files come first, under another name, and their folder is renamed when it is whole; then
rows come, those of an instance in one transaction: whoever finds rows finds their files. An instance
that has changed since it was copied loses its rows before its files are exchanged. Wherever it ends,
doing it again leads to the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Table, bindparam, create_engine, delete, func, insert, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import StoreError

from .database import HEAD, TIMEOUT, check_sqlite
from .models import Base, Description, Experiment, Instance, Phase, RunDocument
from .parts import part_files
from .phase_recorder import digests_of
from .query.lookup import INSTANCES, in_chunks, inside
from .recorder import MARKER, PENDING_MARKER
from .shared import SharedDescription, description_ids, document_id, experiment_id
from .store import Store
from .verify import marker_damage

#: the status of an instance whose process is gone and has not said so
LOST = "lost"
#: the file that tells why the store in whose folder it lies is not used any more
DAMAGE_NOTE = "damaged"
# SQLite's codes for what is no fault of the file system, of another process or of rights: an error
# (no such table), corrupt, format, not a database
_CORRUPT = (1, 11, 24, 26)
_TABLES = Base.metadata.tables
#: what belongs to one instance: what a row refers to comes before it
OWNED = (
    *("phases", "environments", "agents", "bodies", "channels", "streams", "episodes", "outcomes"),
    *("brains", "errors", "warnings"),
)


def _of_instance(table: Table) -> ColumnElement[bool]:
    """Return the condition for the rows of the instance with the id ``row_id``."""
    if "instance_id" in table.c:
        return table.c.instance_id == bindparam("row_id")
    return table.c.phase_id.in_(select(Phase.id).where(Phase.instance_id == bindparam("row_id")))


# (made once: SQLAlchemy takes longer for a statement than SQLite for its answer)
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
#: columns that hold ids, which are others in the target -> the table of these ids
REFERENCES = {
    "instance_id": "instances",
    "phase_id": "phases",
    "environment_id": "environments",
    "agent_id": "agents",
}
#: columns that hold ids of descriptions, which instances share
DESCRIPTIONS = ("world_id", "topology_id")
_INSERT = {
    name: insert(_TABLES[name]).returning(_TABLES[name].c.id, sort_by_parameter_order=True)
    if name in REFERENCES.values()
    else insert(_TABLES[name])
    for name in ("instances", *OWNED)
}
# rows that are in memory at once
_ROWS = 10_000
# as in database.py: one at a time merges into a PostgreSQL, or two that bring equal documents in
# different orders would wait for each other
_POSTGRESQL_LOCK = 0x70A1E57B


class DamagedStore(StoreError):
    """A store does not have what was recorded into it; to read it again is no use."""


def is_damage(error: BaseException | None) -> bool:
    """Whether ``error``, or what it was raised from, says that the file of an SQLite database is damaged."""
    while error is not None and not isinstance(error, DBAPIError):
        error = error.__cause__
    code = None if error is None else getattr(error.orig, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _CORRUPT


class InstanceState(NamedTuple):
    """What tells whether an instance has changed: going on with it changes its process.

    ``status`` is as it is written, whatever became of the process.
    """

    uid: str
    status: str
    ended: datetime | None
    host: str
    pid: int
    pid_started: float

    def over(self) -> InstanceState:
        """Return the state as it is copied: whatever is copied does not run any more."""
        return self._replace(status=LOST) if self.status == "running" else self


class StoreReader:
    """Reads stores in folders, many of them, one after the other.

    All are attached to one connection, in which SQLAlchemy compiles each question only once: with an
    engine for each store, that takes most of the time.
    """

    def __init__(self) -> None:
        self._engine = create_engine("sqlite://", connect_args={"uri": True, "timeout": TIMEOUT})

    @contextmanager
    def reading(self, directory: Path) -> Iterator[Session]:
        """Give a session that reads the store in ``directory``; one of an older release is upgraded.

        Raises :class:`StoreError` where it cannot be opened, and :class:`DamagedStore` where that is
        because it is damaged. Tables are found by their names alone, because the connection has none
        of its own.
        """
        file = directory / "store.db"
        check_sqlite(file)
        _check_size(file)
        with self._engine.connect() as connection, Session(connection) as session:
            if not self._attach(session, file):
                try:
                    Store(directory, create=False).close()
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
        """Attach ``file`` if it has today's tables."""
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
    """Refuse a database that is missing, or empty: one is put in place with all its tables."""
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        raise DamagedStore(f"there is no store at {file}") from None
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error}") from error
    if not size:
        raise DamagedStore(f"{file} is damaged: it is empty")


def instance_states(session: Session, uids: Sequence[str] | None = None) -> list[InstanceState]:
    """Return the states of the instances of a store, oldest first; of those of ``uids``, if given."""
    columns = [getattr(Instance, name) for name in InstanceState._fields]
    question = select(*columns).order_by(Instance.id)
    if uids is None:
        return [InstanceState(*row) for row in session.execute(question)]
    asked = (question.where(Instance.uid.in_(some)) for some in in_chunks(uids))
    return [InstanceState(*row) for one in asked for row in session.execute(one)]


def instance_uids(directory: Path) -> list[str]:
    """Return the uids of the instances that have a folder in the store at ``directory``, the oldest first."""
    try:
        return sorted(name for name in os.listdir(directory / INSTANCES) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def marked_status(directory: Path) -> str | None:
    """Return how the instance in ``directory`` ended; ``None`` where that is not marked."""
    marker = _read_marker(directory)
    try:
        return None if marker is None else str(json.loads(marker)["status"])
    except (ValueError, KeyError, TypeError):
        return None


def has_finished(directory: Path) -> bool:
    """Whether an instance in the store at ``directory`` has finished, as its marker says; nothing is opened.

    Not so where the store was found damaged, or may not be read.
    """
    try:
        uids = [] if (directory / DAMAGE_NOTE).exists() else instance_uids(directory)
        return any(marked_status(directory / INSTANCES / uid) == "finished" for uid in reversed(uids))
    except OSError:
        return False


def has_files_of(source: Path, target: Path) -> bool:
    """Whether the instance's folder ``target`` is there and has the same marker as ``source``, or none either."""
    return target.is_dir() and _read_marker(target) == _read_marker(source)


def _read_marker(directory: Path) -> bytes | None:
    try:
        return files.read_bytes(directory / MARKER)
    except (FileNotFoundError, NotADirectoryError):
        return None


def place_files(source: Path, target: Path, leave_out: Collection[str] = ()) -> None:
    """Make the folder ``target`` what the instance's folder ``source`` is: whole, or not at all.

    Files are hard links where the file system has them, else copies. ``leave_out`` names what stays
    behind. A target with the same marker has the same files already. Raises ``OSError``.
    """
    new, old = (target.with_name(f".{target.name}.{word}") for word in ("new", "old"))
    for left in (new, old):  # by a process that was killed
        files.remove_tree(left)
    if _read_marker(source) is not None and has_files_of(source, target):
        return
    files.make_folder(target.parent, parents=True)
    _copy_folder(source, new, leave_out)
    if os.path.lexists(target):
        files.move(target, old)
    files.move(new, target)
    files.remove_tree(old)


def same_files(source: Path, target: Path, leave_out: Collection[str] = ()) -> bool:
    """Whether ``target`` has each file of the folder ``source``, with as many bytes. Raises ``OSError``."""
    for entry in os.scandir(source):
        if _stays(entry.name, leave_out):
            continue
        there = target / entry.name
        if entry.is_dir(follow_symlinks=False):
            if not same_files(Path(entry.path), there):
                return False
        elif not os.path.lexists(there) or there.lstat().st_size != entry.stat(follow_symlinks=False).st_size:
            return False
    return True


def _stays(name: str, leave_out: Collection[str]) -> bool:
    """Whether it stays behind: by its name, or as its writer was killed before it was whole."""
    return name in leave_out or files.is_temporary(name)


def _copy_folder(source: Path, target: Path, leave_out: Collection[str]) -> None:
    files.make_folder(target, exist_ok=False)
    for entry in os.scandir(source):
        if _stays(entry.name, leave_out):
            continue
        there = target / entry.name
        if entry.is_dir(follow_symlinks=False):
            _copy_folder(Path(entry.path), there, ())
        else:
            files.copy_file(entry.path, there)


def lock(session: Session) -> None:
    """Lock this database against other merges until the transaction ends."""
    if session.connection().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(_POSTGRESQL_LOCK)))


def remove_rows(session: Session, uid: str) -> None:
    """Remove all rows of the instance ``uid``, if there are any; what it shares with others stays."""
    row_id = session.scalar(select(Instance.id).where(Instance.uid == uid))
    for name in reversed(OWNED):
        table = _TABLES[name]
        session.execute(delete(table).where(_of_instance(table)), {"row_id": row_id})
    session.execute(delete(Instance).where(Instance.id == row_id))


def check_rows(source: Session, directory: Path, uid: str) -> None:
    """Raise :class:`DamagedStore` where :func:`copy_rows` would, because of the source."""
    for _ in _read(source, directory, uid):
        pass


def copy_rows(source: Session, directory: Path, target: Session, uid: str) -> None:
    """Insert the rows of the instance ``uid`` of ``source``, whose files are in ``directory``, into ``target``.

    Raises :class:`DamagedStore` where rows or files are missing or damaged, :class:`StoreError` where the
    source cannot be read otherwise, and SQLAlchemy's errors where the target does not take the rows.
    """
    ids: dict[str, dict[int, int]] = {name: {} for name in REFERENCES.values()}
    for table, rows in _read(source, directory, uid):
        if table.name == "instances":
            document, experiment = rows[0].pop("document"), rows[0].pop("experiment")
            rows[0]["run_document_id"] = document_id(target, **document)
            rows[0]["experiment_id"] = experiment and experiment_id(target, experiment)
        for column in rows[0].keys() & set(DESCRIPTIONS):
            found = description_ids(target, [row[column] for row in rows if row[column] is not None])
            for row in rows:
                row[column] = None if row[column] is None else found[row[column].hash]
        old = [row.pop("id", None) for row in rows]
        for column in REFERENCES.keys() & rows[0].keys():
            _exchange(rows, column, ids[REFERENCES[column]], directory)
        added = target.execute(_INSERT[table.name], rows)
        if table.name in ids:
            ids[table.name].update(zip(old, added.scalars(), strict=True))


def _read(session: Session, directory: Path, uid: str) -> Iterator[tuple[Table, list[dict[str, Any]]]]:
    """Yield tables, and rows of the instance ``uid`` in them, in the order in which they can be inserted.

    In place of the ids of what it shares with others, the instance's row has ``document`` (a
    mapping) and ``experiment`` (a uid), and a column of :data:`DESCRIPTIONS` has the description. Raises :class:`DamagedStore`.
    """
    if not directory.is_dir():
        raise DamagedStore(f"{directory} is missing")
    streams: dict[str, Any] = {}
    described: dict[int, SharedDescription] = {}
    try:
        row = dict(session.execute(_INSTANCE, {"instance": uid}).mappings().one())
        row_id, document = row["id"], row.pop("run_document_id")
        row["document"] = dict(session.execute(_DOCUMENT, {"row_id": document}).mappings().one())
        row["experiment"] = session.scalar(_EXPERIMENT, {"row_id": row.pop("experiment_id")})
        row["status"] = LOST if row["status"] == "running" else row["status"]
        yield _TABLES["instances"], [row]
        for name, question in _OWNED.items():
            found = session.execute(question, {"row_id": row_id})
            while chunk := found.fetchmany(_ROWS):
                rows = [dict(row._mapping) for row in chunk]
                if name == "streams":
                    _check_streams(directory, rows)
                    streams |= {row["folder"]: row for row in rows if row["digest"] is not None}
                for column in rows[0].keys() & set(DESCRIPTIONS):
                    for one in rows:
                        one[column] = _description(session, one[column], described)
                yield _TABLES[name], rows
    except (SQLAlchemyError, ValueError, TypeError) as error:  # (a date or JSON that is none)
        if isinstance(error, DBAPIError) and not is_damage(error):
            raise StoreError(f"the rows of {directory} cannot be read: {error.orig}") from error
        raise DamagedStore(f"the rows of {directory} are damaged: {error}") from error
    # (in older releases, one that was killed right before it had its marker has all of the run)
    if row["status"] == "finished" and any((directory / name).exists() for name in (MARKER, PENDING_MARKER)):
        damage = marker_damage(directory, uid, digests_of(streams))
        if damage is not None:
            raise DamagedStore(damage)


def _description(
    session: Session, row_id: int | None, known: dict[int, SharedDescription]
) -> SharedDescription | None:
    if row_id is not None and row_id not in known:
        known[row_id] = SharedDescription(*session.execute(_DESCRIPTION, {"row_id": row_id}).one())
    return None if row_id is None else known[row_id]


def _exchange(rows: Sequence[dict[str, Any]], column: str, ids: Mapping[int, int], directory: Path) -> None:
    for row in rows:
        found = row[column]
        if found is not None:
            if found not in ids:
                raise DamagedStore(f"the rows of {directory} are damaged: {column} {found} is not there")
            row[column] = ids[found]


def _check_streams(directory: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        folder = inside(directory, row["folder"])
        there = len(part_files(folder))
        if row["parts"] is not None and there < row["parts"]:
            raise DamagedStore(f"{folder} is damaged: of {row['parts']} part files, {there} are there")
