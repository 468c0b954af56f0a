"""Stores of single runs that a design has left behind: it has grown, and their names are those of other runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from sqlalchemy import select

from palaestrai_mosaik.design.folder import JOBS, STORES, DesignFolder
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.merge import StoreReader, instance_states
from palaestrai_mosaik.store.models import Instance, RunDocument

from .job import JobRecord, with_suffix
from .own import is_whole


def stray_stores(folder: DesignFolder, records: Mapping[str, JobRecord]) -> dict[Path, str]:
    """Return the stores of runs that have finished and are no run of the design any more, with the instance of each.

    ``records`` are those of the design's own runs, by uid.
    """
    root = folder.path.absolute()
    try:
        names = sorted(os.listdir(root / STORES))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    mine = {Path(run.file).stem for run in folder.documents if run.uid in records}
    found = {}
    for name in names:
        if name in mine or name.startswith("."):
            continue
        record = JobRecord.read(with_suffix(root / JOBS / name, ".json"))
        if record is None or record.status != "finished" or record.instance is None:
            continue
        if is_whole(root / STORES / name, record.instance):
            found[root / STORES / name] = record.instance
    return found


def contents_of(strays: Mapping[Path, str], store: Store | None) -> set[str]:
    """Return the contents of the documents that were executed in these stores, and are not in ``store`` yet."""
    collected: set[str] = set()
    if strays and store is not None:
        collected = store.database.repeat(lambda _: _collected(store, list(strays.values())))
    found: set[str] = set()
    with closing(StoreReader()) as reader:
        for path, instance in strays.items():
            if instance in collected:
                continue
            # (what is wrong with it is told by who collects it)
            with suppress(StoreError), reader.reading(path) as session:
                executed = select(RunDocument.content).join(Instance).where(Instance.uid == instance)
                content = session.scalar(executed)
                if content is not None:
                    found.add(content)
    return found


def _collected(store: Store, instances: Sequence[str]) -> set[str]:
    with store.database.reading() as session:
        return {state.uid for state in instance_states(session, instances)}
