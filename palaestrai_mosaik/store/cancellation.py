"""Cancelling a run: its process is asked to end, and keeps what was recorded."""

from __future__ import annotations

import socket

from sqlalchemy import select

from palaestrai_mosaik.errors import StoreError

from .models import Instance
from .process import terminate
from .query.runs import START_TOLERANCE, status_of
from .store import Store


def cancel_run(store: Store, run: str) -> int:
    """Ask the process of a run to end (SIGTERM), as Ctrl-C does; return its number.

    The run ends between two steps and becomes ``interrupted``. Only the process that recorded it is signalled.

    Args:
        store: the open store.
        run: which run, as :meth:`Store.find_run` takes it.

    Raises:
        StoreError: there is no such run, it does not run, or its process is on another host or another user's.
    """
    uid = store.find_run(run)
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
        if not terminate(pid, started, START_TOLERANCE):
            raise StoreError(f"run {uid} is not running any more: process {pid} has ended")
    except PermissionError:
        raise StoreError(f"run {uid}: process {pid} belongs to another user") from None
    return pid
