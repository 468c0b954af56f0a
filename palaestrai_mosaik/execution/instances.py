"""What a store knows of the runs of a folder: all at once, whatever executed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from palaestrai_mosaik.run.checkpoint import has_checkpoints
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.executions import Contents, executions
from palaestrai_mosaik.store.query import status_of


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
        found = executions(store, session, hashes, contents)
        return {
            hash_: [KnownInstance(one.uid, status_of(one), one.hash) for one in several]
            for hash_, several in found.items()
        }


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
