"""The store of one run, what earlier attempts have left in it, and stores that no run of the design has."""

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

from palaestrai_mosaik import files
from palaestrai_mosaik.design.folder import JOBS, STORES, DesignFolder
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.printing import write
from palaestrai_mosaik.runner.checkpoint import resumable
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.location import StoreLocation
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

from .job import JobRecord, with_suffix

#: how a store in a folder names its database
_DATABASE = "store.db"


class KnownInstance(NamedTuple):
    """An execution of a run document: its id in the store, its status (also ``lost``), the document's hash."""

    uid: str
    status: str
    hash: str


def instances_of(
    store: Store, hashes: Sequence[str], contents: Contents | None = None
) -> dict[str, list[KnownInstance]]:
    """Return the instances of the documents with these hashes, by hash, the newest last.

    With ``contents``, also those of documents with the same content, where none of its own has finished.
    """
    return store.database.repeat(lambda _: _instances_of(store, hashes, contents))


def _instances_of(
    store: Store, hashes: Sequence[str], contents: Contents | None
) -> dict[str, list[KnownInstance]]:
    with store.database.reading() as session:
        found = executions(store.lookup, session, hashes, contents)
        return {
            hash_: [KnownInstance(one.uid, status_of(one), one.hash) for one in several]
            for hash_, several in found.items()
        }


def open_run_store(location: StoreLocation) -> Store:
    """Open the store of one run, whose process this is; it is made where it is missing.

    Its database has no log beside it: that needs memory which hosts do not share over a network. One
    that is damaged is moved aside, which the log tells, and a new one is made. Raises
    :class:`~palaestrai_mosaik.errors.StoreError`.
    """
    folder = Path(location.location)
    damage = _damage(folder)
    if damage is not None:
        aside = _move_aside(folder)
        write(f"{damage}; it is now {aside}, this run starts from the beginning", sys.stderr)
    file = folder / _DATABASE
    # the store creates its database itself then, and reports what cannot be written
    with suppress(OSError):
        files.make_folder(file.parent)
        if not os.path.lexists(file):
            files.write_bytes(file, empty_database(), durable=False)
    return location.open(create=True, journal="delete")


def is_whole(folder: Path, instance: str, status: str = "finished") -> bool:
    """Whether ``instance`` ended with ``status`` in the own store ``folder``, in which no damage was found.

    Its rows are not read.
    """
    try:
        if marked_status(folder / INSTANCES / instance) != status or (folder / DAMAGE_NOTE).exists():
            return False
        return (folder / _DATABASE).stat().st_size > 0
    except OSError:
        return False


def _damage(folder: Path) -> str | None:
    """Return why the own store ``folder`` cannot be used any more; ``None`` where it can, or is not there."""
    with suppress(OSError):
        return files.read_text(folder / DAMAGE_NOTE, errors="replace").strip()
    file = folder / _DATABASE
    if not file.exists() or not file.stat().st_size:
        return f"the store {folder} has lost its database" if instance_uids(folder) else None
    try:
        with Store(folder, create=False) as store, store.database.reading() as session:
            found = session.scalar(text("PRAGMA quick_check(1)"))
    except StoreError as error:
        if is_damage(error):
            return f"the store {folder} is damaged: {error}"
        raise
    return None if found == "ok" else f"the store {folder} is damaged: {found}"


def _move_aside(folder: Path) -> Path:
    """Rename a damaged store so that nothing takes it for one; return its new path. Raises :class:`StoreError`."""
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
    """Return the database of a store that holds nothing yet: copying it is faster than making it."""
    with tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-") as folder:
        StoreLocation(folder).open(create=True, journal="delete").close()
        return Path(folder, _DATABASE).read_bytes()


class EarlierAttempts(NamedTuple):
    """What earlier attempts left: the finished instance, or the one to resume; if any."""

    finished: str | None
    resumable: str | None


def earlier_attempts(store: Store, hash: str) -> EarlierAttempts:
    """Return what earlier attempts left of the document with ``hash`` in ``store``, its run's own.

    The caller has the claim to the run, so none of them is still running, on any host:
    instances of processes that died are marked as interrupted, which another host could not know.
    """
    known = instances_of(store, [hash]).get(hash, [])
    if any(one.status in ("running", "lost") for one in known):
        with store.database.writing() as session:
            ended = {"status": "interrupted", "ended": utc_now()}
            session.execute(update(Instance).where(Instance.status == "running").values(ended))
    finished = next((one.uid for one in known if one.status == "finished"), None)
    if finished is not None:
        # its process may have been killed right before
        put_marker(store.instance_directory(finished))
    return EarlierAttempts(finished, resumable(store, [(one.uid, "interrupted") for one in known]))


def orphaned_stores(folder: DesignFolder, records: Mapping[str, JobRecord]) -> dict[Path, str]:
    """Return the stores of runs that have finished and are no run of the design any more, with the instance of each.

    ``records`` are those of the design's own runs, by uid.
    """
    root = folder.path.absolute()
    try:
        names = sorted(os.listdir(root / STORES))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    stems = {Path(run.file).stem for run in folder.documents if run.uid in records}
    found = {}
    for name in names:
        if name in stems or name.startswith("."):
            continue
        record = JobRecord.read(with_suffix(root / JOBS / name, ".json"))
        if record is None or record.status != "finished" or record.instance is None:
            continue
        if is_whole(root / STORES / name, record.instance):
            found[root / STORES / name] = record.instance
    return found


def uncollected_contents(orphans: Mapping[Path, str], store: Store | None) -> set[str]:
    """Return the contents of the documents that were executed in these stores, and are not in ``store`` yet."""
    collected: set[str] = set()
    if orphans and store is not None:
        collected = store.database.repeat(lambda _: _collected(store, list(orphans.values())))
    found: set[str] = set()
    with closing(StoreReader()) as reader:
        for path, instance in orphans.items():
            if instance in collected:
                continue
            # (problems are reported when it is collected)
            with suppress(StoreError), reader.reading(path) as session:
                executed = select(RunDocument.content).join(Instance).where(Instance.uid == instance)
                content = session.scalar(executed)
                if content is not None:
                    found.add(content)
    return found


def _collected(store: Store, instances: Sequence[str]) -> set[str]:
    with store.database.reading() as session:
        return {state.uid for state in instance_states(session, instances)}
