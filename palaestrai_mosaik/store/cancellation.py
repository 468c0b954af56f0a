"""Cancelling a run: its process is asked to end, and its recording is kept."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from sqlalchemy import select

from palaestrai_mosaik.core.errors import StoreError

from .models import Instance
from .process import LOCK, recording_process, terminate
from .query.runs import START_TOLERANCE, status_of

if TYPE_CHECKING:
    from .store import Store


def cancel_run(store: Store, run: str) -> int:
    """Ask the process of a run to end (SIGTERM), as Ctrl-C does; return its number.

    The run ends between two steps and becomes ``interrupted``. Only a process that holds the lock of the run is
    signalled, whatever process the database names.

    Args:
        store: the open store.
        run: the run, in any form that :meth:`Store.find_run` accepts.

    Raises:
        StoreError: there is no such run, it does not run, its process is on another host or another user's, or does not
            hold the lock of the run.
    """
    uid = store.find_run(run)
    directory = store.instance_directory(uid)
    with store.database.reading() as session:
        instance = session.scalar(select(Instance).where(Instance.uid == uid))
        assert instance is not None
        status, host = status_of(instance), instance.host
        pid, started = instance.pid, instance.pid_started
    if status != "running":
        raise StoreError(f"run {uid} is not running: it is {status}")
    if host != socket.gethostname():
        raise StoreError(
            f"run {uid} is executed on host {host!r}; end it there (this is {socket.gethostname()!r})"
        )
    try:
        refused = why_not_cancelled(store, uid, pid)
        if refused is not None:
            raise StoreError(f"run {uid} is not cancelled: {refused}")
        if not terminate(pid, started, START_TOLERANCE, lambda: recording_process(directory) == pid):
            raise StoreError(f"run {uid} is not running any more: process {pid} has ended")
    except PermissionError:
        raise StoreError(f"run {uid}: process {pid} belongs to another user") from None
    return pid


def why_not_cancelled(store: Store, uid: str, pid: int) -> str | None:
    """Explain why the process ``pid`` of this host must not be signalled to end a run; ``None`` if it may be."""
    directory = store.instance_directory(uid)
    if recording_process(directory) == pid:
        return None
    return (
        f"process {pid}, which the store names, does not hold the lock on {directory / LOCK}; it may be another program. "
        "End the run where it was started"
    )
