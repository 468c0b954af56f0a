"""Which run of a document goes on, and from which of its checkpoints."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.errors import CheckpointError, DocumentError, StoreError
from palaestrai_mosaik.experiment import RunDocument, content_digest, loads

from .checkpoint import discard_newer, has_checkpoints, whole_checkpoints

if TYPE_CHECKING:
    from palaestrai_mosaik.store import InstanceRecorder, Store


@dataclass(frozen=True)
class Earlier:
    """An earlier run of a document: its instance, status, and whether it has checkpoints."""

    instance: str
    status: str
    has_checkpoint: bool


def earlier_run(document: RunDocument, store: Store) -> Earlier | None:
    """Return the run of ``document`` that would go on; ``None`` if it never ran.

    The newest one counts if it has finished or still runs. Otherwise it is the newest with
    a checkpoint of all that are newer than the last finished one; if none has any, the
    newest.
    """
    runs = store.runs()
    runs = runs[runs["hash"] == document.hash]
    newest: Earlier | None = None
    for run, status in zip(runs["run"][::-1], runs["status"][::-1], strict=True):
        found = Earlier(run, status, has_checkpoints(store.instance_directory(run)))
        newest = newest or found
        if newest is found and status in ("finished", "running"):
            return found
        if status == "finished":
            break
        if found.has_checkpoint:
            return found
    return newest


def as_begun(document: RunDocument, store: Store, instance: str) -> RunDocument:
    """Return ``document`` as ``instance`` was begun with it, which may have been under another uid.

    What it has kept until now (dumps of brains, for instance) has that uid in its names.
    """
    stored = store.document_of(instance)
    if stored.hash == document.hash:
        return document
    with suppress(DocumentError):
        begun = loads(stored.text, document.source)
        if content_digest(begun.canonical) == content_digest(document.canonical):
            return begun
    return document


def reopen(document: RunDocument, store: Store, instance: str) -> tuple[InstanceRecorder, dict[str, Any]]:
    """Take the store back to the newest checkpoint of ``instance`` that it can go on from.

    Return the recorder and the state. Raises :class:`CheckpointError` or
    :class:`StoreError`, with nothing changed, where there is no such checkpoint.
    """
    problem: Exception | None = None
    for checkpoint in whole_checkpoints(store.instance_directory(instance), document.hash, versions()):
        try:
            state = checkpoint.state()
            recorder = store.resume_run(instance, checkpoint.mark)
        except (CheckpointError, StoreError) as error:
            problem = problem or error
            continue
        discard_newer(checkpoint)
        recorder.warning(f"resumed from checkpoint {int(checkpoint.path.name)}")
        return recorder, state
    assert problem is not None
    raise problem


def versions() -> dict[str, str]:
    """Return the versions that a resumed run must share with its beginning."""
    # here, because worker processes need no store
    from palaestrai_mosaik.store.store import package_versions

    return package_versions()
