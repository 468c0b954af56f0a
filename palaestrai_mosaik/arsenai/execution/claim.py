"""Claims: at most one process, on any host, executes a run. It holds the run's marker file.

A process may create a missing marker, or replace the marker of a dead process:

- A process of this host is dead if it does not run any more.
- A process of another host is considered dead if its marker has not been touched for
  :data:`~palaestrai_mosaik.arsenai.execution.job.STALE_AFTER` seconds, or if it belongs to an earlier start of this process's
  own task, because a scheduler ends a task before it starts it again.

At most one process may replace a marker. To do so, it first claims a second file in the same way, so a process that is
killed in between does not block others.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Self

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.runner import Interrupt

from .job import HEARTBEAT_INTERVAL, Job, JobRecord, Marker, is_stale

#: errors of file systems without hard links
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
#: seconds within which a marker is completely written on file systems without hard links
_WRITING = 10.0
_POLL = 0.1


def claim(job: Job) -> Marker | None:
    """Claim the run of ``job`` for this process.

    Returns:
        The marker of this process, which has been written; ``None`` if another process executes the run, or has
        meanwhile recorded this attempt or a later one.

    Raises:
        ExecutionError: the marker cannot be written.
    """
    marker = Marker.of_this_process(job)
    try:
        if not _take(job.marker, marker):
            return None
        record = JobRecord.read(job.record)
        if record is not None and job.is_covered_by(record):
            files.remove(job.marker)
            return None
    except OSError as error:
        raise ExecutionError(f"cannot write {job.marker}: {error.strerror}") from error
    return marker


def is_taken_over(job: Job, marker: Marker) -> bool:
    """Whether another process has replaced ``marker``, because this process did not touch it for too long."""
    current = Marker.read(job.marker)
    return current is not None and (current.host, current.pid, current.pid_started) != (
        marker.host,
        marker.pid,
        marker.pid_started,
    )


def wait_for_exits(markers: Iterable[Path], seconds: float, of: Callable[[Marker], bool]) -> None:
    """Wait until no live process of this host holds one of the markers.

    The processes of a dead driver notice its end, and exit within seconds.

    Args:
        markers: the paths of the markers.
        seconds: the maximum time to wait.
        of: selects the markers to wait for.
    """
    waiting = list(markers)
    until = time.monotonic() + seconds
    while waiting and time.monotonic() < until:
        pairs = [(path, Marker.read(path)) for path in waiting]
        waiting = [
            path
            for path, marker in pairs
            if marker is not None and marker.of_this_host and marker.alive and of(marker)
        ]
        if waiting:
            time.sleep(_POLL)


class Heartbeat:
    """Touches the marker of a run at regular intervals while its block is executed.

    The interval is :data:`~palaestrai_mosaik.arsenai.execution.job.HEARTBEAT_INTERVAL`. If another process has taken over the
    run, because this one was suspended for longer than :data:`~palaestrai_mosaik.arsenai.execution.job.STALE_AFTER`, the run is
    asked to stop.
    """

    def __init__(self, job: Job, marker: Marker, interrupt: Interrupt):
        self._job, self._marker, self._interrupt = job, marker, interrupt
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT_INTERVAL):
            # do not end the run because a file system is full or does not respond
            with suppress(OSError):
                if is_taken_over(self._job, self._marker):
                    self._interrupt.request()
                    return
                files.touch(self._job.marker)


def _take(path: Path, marker: Marker) -> bool:
    """Atomically write ``marker`` to ``path``; return false if another process holds it."""
    temporary = files.temporary_path(path)
    try:
        files.write_text(temporary, json.dumps(asdict(marker), indent=1) + "\n", durable=False)
        while not _link(temporary, path):
            other = Marker.read(path)
            if other is None and not os.path.lexists(path):
                continue  # the other process has just removed it
            if not _is_gone(path, other, marker):
                return False
            return _replace(temporary, path, other, marker)
        return True
    finally:
        with suppress(OSError):
            files.remove(temporary)


def _link(temporary: Path, path: Path) -> bool:
    """Link the file ``temporary`` to ``path``; return false if ``path`` exists."""
    try:
        files.link(temporary, path)
    except FileExistsError:
        # a network file system may have repeated a successful request after losing the reply
        return os.stat(temporary).st_nlink > 1
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _create(path, files.read_bytes(temporary))
    return True


def _create(path: Path, content: bytes) -> bool:
    try:
        file = files.open_new(path)
    except FileExistsError:
        return False
    with file:
        file.write(content)
    return True


def _is_gone(path: Path, other: Marker | None, marker: Marker) -> bool:
    """Whether the process of the marker ``other`` at ``path`` is dead."""
    if other is None:  # incomplete: being written, or left by a machine failure
        return is_stale(path, _WRITING)
    if other.of_this_host:
        # this process executes nothing yet, so its own marker is one that it failed to remove
        return not other.alive or (other.pid, other.pid_started) == (marker.pid, marker.pid_started)
    return (other.task is not None and other.task == marker.task) or is_stale(path)


def _replace(temporary: Path, path: Path, other: Marker | None, marker: Marker) -> bool:
    """Replace the marker ``other`` by ``temporary``; return false if another process was faster."""
    right = path.with_name(f".{path.name[:200]}.taking")
    if not _take(right, marker):
        return False
    try:
        if Marker.read(path) != other:
            return False
        files.move(temporary, path)
        return True
    finally:
        with suppress(OSError):
            files.remove(right)
