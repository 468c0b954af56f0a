"""What a store knows of the runs of a folder: all at once, whatever executed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import load_only

from palaestrai_mosaik.run.checkpoint import has_checkpoints
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.models import Instance, RunDocument
from palaestrai_mosaik.store.query import status_of

#: hashes in one question; databases limit how many there may be
_TOGETHER = 500


class KnownInstance(NamedTuple):
    """An execution of a run document: its id in the store, and its status (also ``lost``)."""

    uid: str
    status: str


def instances_of(store: Store, hashes: Sequence[str]) -> dict[str, list[KnownInstance]]:
    """Return the instances of the documents with these hashes, by hash, the newest last."""
    return store.database.repeat(lambda _: _instances_of(store, hashes))


def _instances_of(store: Store, hashes: Sequence[str]) -> dict[str, list[KnownInstance]]:
    columns = ("uid", "status", "host", "pid", "pid_started")
    options = load_only(*(getattr(Instance, name) for name in columns))
    found: dict[str, list[KnownInstance]] = {}
    with store.database.reading() as session:
        for first in range(0, len(hashes), _TOGETHER):
            wanted = RunDocument.hash.in_(hashes[first : first + _TOGETHER])
            statement = select(RunDocument.hash, Instance).join(Instance).where(wanted)
            for hash_, instance in session.execute(statement.options(options).order_by(Instance.id)):
                found.setdefault(hash_, []).append(KnownInstance(instance.uid, status_of(instance)))
            session.expunge_all()
    return found


def resumable(store: Store, instances: Sequence[KnownInstance]) -> str | None:
    """Return the instance that goes on from a checkpoint, of those of one document; if any does.

    It is the newest that has one of all that are newer than the last finished one.
    """
    for instance in reversed(instances):
        if instance.status in ("finished", "running"):
            return None
        if has_checkpoints(store.instance_directory(instance.uid)):
            return instance.uid
    return None
