"""Deleting runs from a store: their rows, then their files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback

from .merge import remove_rows
from .models import Description, Environment, Experiment, Instance, Phase, RunDocument
from .query.runs import status_of

if TYPE_CHECKING:
    from .store import Store


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
