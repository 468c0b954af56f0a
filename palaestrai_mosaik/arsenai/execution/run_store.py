"""Stores of single runs: their creation, the results of earlier attempts, and stores without a run in the design."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import select, text, update

from palaestrai_mosaik.arsenai.design.folder import JOBS, STORES, DesignFolder
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.printing import write
from palaestrai_mosaik.runner.checkpoint import resumable
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.merge import (
    DAMAGE_NOTE,
    StoreReader,
    instance_states,
    instance_uids,
    is_damage,
    marked_status,
)
from palaestrai_mosaik.store.models import Instance, RunDocument, utc_now
from palaestrai_mosaik.store.query.lookup import INSTANCES
from palaestrai_mosaik.store.query.runs import Contents, executions, status_of
from palaestrai_mosaik.store.recorder import put_marker
from palaestrai_mosaik.store.store import StoreLocation

from .job import JobRecord, with_suffix

#: the database file in a store's folder
_DATABASE = "store.db"


class KnownInstance(NamedTuple):
    """An execution of a run document: its uid in the store, its status (may be ``lost``), and the document's hash."""

    uid: str
    status: str
    hash: str


def instances_of(
    store: Store, hashes: Sequence[str], contents: Contents | None = None
) -> dict[str, list[KnownInstance]]:
    """Return the instances of each document by its hash, the newest last.

    Args:
        store: the store.
        hashes: the hashes of the documents.
        contents: if given, a document without a finished instance also gets those of documents with the same content.
    """
    return store.database.repeat(lambda _: _instances_of(store, hashes, contents))


def _instances_of(
    store: Store, hashes: Sequence[str], contents: Contents | None
) -> dict[str, list[KnownInstance]]:
    with store.database.reading() as session:
        rows_by_hash = executions(store, session, hashes, contents)
        return {
            hash_: [KnownInstance(row.uid, status_of(row), row.hash) for row in rows]
            for hash_, rows in rows_by_hash.items()
        }


def open_run_store(location: StoreLocation) -> Store:
    """Open the store of the run that this process executes, creating it if it is missing.

    Its database has no write-ahead log, which needs memory that hosts do not share over a network. A damaged store is
    moved aside, with a message in the run's log, and replaced by a new one.

    Raises:
        StoreError: the store cannot be opened, created or moved.
    """
    folder = Path(location.location)
    damage = _damage(folder)
    if damage is not None:
        aside = _move_aside(folder)
        write(f"{damage}; it is now {aside}, this run starts from the beginning", sys.stderr)
    file = folder / _DATABASE
    # on failure, the store creates the database itself and reports the error
    with suppress(OSError):
        files.make_folder(file.parent)
        if not os.path.lexists(file):
            files.write_bytes(file, empty_database(), durable=False)
    return location.open(create=True, journal="delete")


def is_whole(folder: Path, instance: str, status: str = "finished") -> bool:
    """Whether ``instance`` ended with ``status`` in the undamaged run store ``folder``, without opening its database."""
    try:
        if marked_status(folder / INSTANCES / instance) != status or (folder / DAMAGE_NOTE).exists():
            return False
        return (folder / _DATABASE).stat().st_size > 0
    except OSError:
        return False


def _damage(folder: Path) -> str | None:
    """Return a message about the damage of the run store ``folder``; ``None`` if it is sound or missing."""
    with suppress(OSError):
        return files.read_text(folder / DAMAGE_NOTE, errors="replace").strip()
    file = folder / _DATABASE
    if not file.exists() or not file.stat().st_size:
        return f"the store {folder} has lost its database" if instance_uids(folder) else None
    try:
        with Store(folder, create=False) as store, store.database.reading() as session:
            result = session.scalar(text("PRAGMA quick_check(1)"))
    except StoreError as error:
        if is_damage(error):
            return f"the store {folder} is damaged: {error}"
        raise
    return None if result == "ok" else f"the store {folder} is damaged: {result}"


def _move_aside(folder: Path) -> Path:
    """Rename a damaged store so that it is no longer found as one; return its new path. Raises :class:`StoreError`."""
    number = 1
    while (aside := folder.with_name(f".damaged-{folder.name}-{number}")).exists():
        number += 1
    try:
        files.move(folder, aside)
    except OSError as error:
        raise StoreError(f"cannot move the damaged store {folder} aside: {error}") from error
    return aside


@cache
def empty_database() -> bytes:
    """Return the content of an empty store's database, because copying it is faster than creating one."""
    with tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-") as folder:
        StoreLocation(folder).open(create=True, journal="delete").close()
        return Path(folder, _DATABASE).read_bytes()


class EarlierAttempts(NamedTuple):
    """The finished instance of earlier attempts, or the one to resume, if any."""

    finished: str | None
    resumable: str | None


def earlier_attempts(store: Store, hash: str) -> EarlierAttempts:
    """Return the results of earlier attempts at the document with ``hash`` in its run's own store.

    The caller holds the claim to the run, so no attempt is still running on any host. Instances of dead processes are
    therefore marked as interrupted, which other hosts could not detect.

    Args:
        store: the store of the run.
        hash: the hash of the run's document.
    """
    instances = instances_of(store, [hash]).get(hash, [])
    if any(instance.status in ("running", "lost") for instance in instances):
        with store.database.writing() as session:
            ended = {"status": "interrupted", "ended": utc_now()}
            session.execute(update(Instance).where(Instance.status == "running").values(ended))
    finished = next((instance.uid for instance in instances if instance.status == "finished"), None)
    if finished is not None:
        # its process may have been killed just before this
        put_marker(store.instance_directory(finished))
    return EarlierAttempts(
        finished, resumable(store, [(instance.uid, "interrupted") for instance in instances])
    )


def orphaned_stores(folder: DesignFolder, records: Mapping[str, JobRecord]) -> dict[Path, str]:
    """Return the stores of finished runs that the design no longer has, with the instance of each.

    Args:
        folder: the design folder.
        records: the records of the design's runs, by uid.
    """
    root = folder.path.absolute()
    try:
        names = sorted(files.list_names(root / STORES))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    stems = {Path(run.file).stem for run in folder.documents if run.uid in records}
    orphans = {}
    for name in names:
        if name in stems or name.startswith("."):
            continue
        record = JobRecord.read(with_suffix(root / JOBS / name, ".json"))
        if record is None or record.status != "finished" or record.instance is None:
            continue
        if is_whole(root / STORES / name, record.instance):
            orphans[root / STORES / name] = record.instance
    return orphans


def uncollected_contents(orphans: Mapping[Path, str], store: Store | None) -> set[str]:
    """Return the contents of the documents in orphaned stores that ``store`` does not have yet.

    Args:
        orphans: the instance in each orphaned store.
        store: the common store; ``None`` if it does not exist yet.
    """
    collected: set[str] = set()
    if orphans and store is not None:
        collected = store.database.repeat(lambda _: _collected(store, list(orphans.values())))
    contents: set[str] = set()
    with closing(StoreReader()) as reader:
        for path, instance in orphans.items():
            if instance in collected:
                continue
            # collecting the store reports its problems
            with suppress(StoreError), reader.reading(path) as session:
                executed = select(RunDocument.content).join(Instance).where(Instance.uid == instance)
                content = session.scalar(executed)
                if content is not None:
                    contents.add(content)
    return contents


def _collected(store: Store, instances: Sequence[str]) -> set[str]:
    with store.database.reading() as session:
        return {state.uid for state in instance_states(session, instances)}
