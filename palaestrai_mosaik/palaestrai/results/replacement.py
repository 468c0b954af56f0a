"""Putting an instance that was imported in the place of what was there of it: whole, or not at all.

Rows and files cannot be exchanged in one step, and this may be killed at any moment. So in one
transaction the rows are exchanged, the old files are set aside, and the new ones put in their place;
only when the rows are there for good, the old files go. Where a killed import has set files aside, the
next one decides between old and new files by the rows, which are one or the other.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from sqlalchemy import select
from sqlalchemy.orm import Session

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.store.merge import StoreReader, copy_rows, lock, remove_rows
from palaestrai_mosaik.store.models import Instance, Phase, Stream
from palaestrai_mosaik.store.phase_recorder import digests_of
from palaestrai_mosaik.store.query.lookup import INSTANCES
from palaestrai_mosaik.store.recorder import read_marker
from palaestrai_mosaik.store.store import Store

_STAGING = ".import-"
#: what the name of the files ends with that were there before
_BEFORE = ".before"


@contextmanager
def staging(store: Store) -> Iterator[Path]:
    """Give a folder beside the files of instances, so that they can be moved; it is removed afterwards."""
    folder = store.directory / INSTANCES
    prefix = f"{_STAGING}{socket.gethostname()}-{os.getpid()}-"
    try:
        files.make_folder(folder, parents=True)
        path = files.make_hidden(folder, prefix, "")
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error}") from error
    try:
        yield path
    finally:
        files.discard_tree(path)


def replace_instance(staged: Store, store: Store, uid: str) -> None:
    """Move the instance ``uid`` from ``staged`` to ``store``, in place of what is there of it.

    Raises :class:`StoreError` where that cannot be; then all is as it was.
    """
    source, target = staged.instance_directory(uid), store.instance_directory(uid)
    before = _before(target)
    reader = StoreReader()
    try:
        with reader.reading(staged.directory) as own, store.database.writing() as session:
            lock(session)
            _keep_matching_files(session, before)
            remove_rows(session, uid)
            copy_rows(own, source, session, uid)
            if os.path.lexists(target):
                files.move(target, before)
            files.move(source, target)
    except BaseException as error:
        with suppress(StoreError):  # (else the next import does)
            finish_interrupted_imports(store)
        if isinstance(error, OSError):
            raise StoreError(f"cannot write to {target.parent}: {error}") from error
        raise
    finally:
        reader.close()
    files.discard_tree(before)


def finish_interrupted_imports(store: Store) -> None:
    """Bring to an end what imports have left that were killed on this host, or have failed.

    Raises :class:`StoreError` where files cannot be moved.
    """
    folder = store.directory / INSTANCES
    begin = f"{_STAGING}{socket.gethostname()}-"
    for left in folder.glob(f"{_STAGING}*"):
        pid = left.name.removeprefix(begin).partition("-")[0]
        if left.name.startswith(begin) and pid.isdecimal() and not psutil.pid_exists(int(pid)):
            files.discard_tree(left)
    for before in folder.glob(f".*{_BEFORE}"):
        with store.database.writing() as session:
            lock(session)
            try:
                _keep_matching_files(session, before)
            except OSError as error:
                raise StoreError(f"cannot put {before} in its place: {error}") from error


def _before(target: Path) -> Path:
    return target.with_name(f".{target.name}{_BEFORE}")


def _keep_matching_files(session: Session, before: Path) -> None:
    """Take ``before`` back where its files are those of the rows, else remove it."""
    if not os.path.lexists(before):
        return
    target = before.with_name(before.name[1 : -len(_BEFORE)])
    if not target.exists() or _are_of(session, target.name, before):
        files.discard_tree(target)
        files.move(before, target)
    else:
        files.discard_tree(before)


def _are_of(session: Session, uid: str, directory: Path) -> bool:
    """Whether the files in ``directory`` are those of the rows of the instance ``uid``."""
    status = session.scalar(select(Instance.status).where(Instance.uid == uid))
    question = select(Stream.folder, Stream.rows, Stream.digest).join(Phase, Phase.id == Stream.phase_id)
    question = question.join(Instance, Instance.id == Phase.instance_id).where(Instance.uid == uid)
    streams = {row.folder: {"rows": row.rows, "digest": row.digest} for row in session.execute(question)}
    try:
        marker = json.loads(read_marker(directory))
        found: tuple[str, dict[str, str]] = (marker["status"], marker["digests"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return found == (status, digests_of(streams))
