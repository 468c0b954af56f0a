"""Which process executes a run: one at a time, on any host, may have its marker.

A marker is put in place only where there is none, or in place of one whose process is gone:

- a process of this host is gone when it does not run any more;
- one of another host, when the marker has not been touched for
  :data:`~palaestrai_mosaik.execution.job.STALE_AFTER` seconds, or when it belongs to an earlier start of the very task
  that this process belongs to: a scheduler ends a task before it starts it again.

Two processes that find the marker of a dead one must not both replace it. To replace it, a process holds a
second file meanwhile, which is won in the same way as the marker itself; so nothing is stuck where a
process is killed in between.
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

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import ExecutionError
from palaestrai_mosaik.runner import Interrupt

from .job import HEARTBEAT_INTERVAL, Job, JobRecord, Marker, is_stale

#: what file systems without hard links say
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
#: seconds within which a marker is written whole where there are no hard links
_WRITING = 10.0
_POLL = 0.1


def claim(job: Job) -> Marker | None:
    """Make this process the one that executes ``job``, and return its marker, which is in place then.

    ``None``: another process executes the run, or has recorded this attempt or a later one meanwhile.
    Raises :class:`ExecutionError` where the marker cannot be written.
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
    """Whether another process has taken the place of ``marker``, because it was silent for too long."""
    found = Marker.read(job.marker)
    return found is not None and (found.host, found.pid, found.pid_started) != (
        marker.host,
        marker.pid,
        marker.pid_started,
    )


def wait_for_exits(markers: Iterable[Path], seconds: float, of: Callable[[Marker], bool]) -> None:
    """Wait while processes of this host have those of the markers that ``of`` chooses.

    They are those of a driver that is gone: they notice, and end within seconds.
    """
    waiting = list(markers)
    until = time.monotonic() + seconds
    while waiting and time.monotonic() < until:
        found = [(path, Marker.read(path)) for path in waiting]
        waiting = [
            path
            for path, marker in found
            if marker is not None and marker.of_this_host and marker.alive and of(marker)
        ]
        if waiting:
            time.sleep(_POLL)


class Heartbeat:
    """While entered, touches the marker of a run every :data:`~palaestrai_mosaik.execution.job.HEARTBEAT_INTERVAL` seconds.

    Where another process has taken the run over (this one was held up for longer than
    :data:`~palaestrai_mosaik.execution.job.STALE_AFTER`), the run is asked to stop.
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
            # a file system that does not answer, or is full, is no reason to end the run
            with suppress(OSError):
                if is_taken_over(self._job, self._marker):
                    self._interrupt.request()
                    return
                files.touch(self._job.marker)


def _take(path: Path, marker: Marker) -> bool:
    """Put ``marker`` in place at ``path``, whole; false if another process has that place."""
    temporary = files.temporary_path(path)
    try:
        files.write_text(temporary, json.dumps(asdict(marker), indent=1) + "\n", durable=False)
        while not _link(temporary, path):
            found = Marker.read(path)
            if found is None and not os.path.lexists(path):
                continue  # it has ended in between
            if not _is_gone(path, found, marker):
                return False
            return _replace(temporary, path, found, marker)
        return True
    finally:
        with suppress(OSError):
            files.remove(temporary)


def _link(temporary: Path, path: Path) -> bool:
    """Give the file ``temporary`` the name ``path`` too; false if something has that name."""
    try:
        files.link(temporary, path)
    except FileExistsError:
        # over a network the answer may have been lost, and the question put again
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


def _is_gone(path: Path, found: Marker | None, marker: Marker) -> bool:
    """Whether the process of the marker ``found`` at ``path`` executes nothing any more."""
    if found is None:  # being written, or left half-written by a fault of the machine
        return is_stale(path, _WRITING)
    if found.of_this_host:
        # (this process executes nothing yet: it has failed to remove one)
        return not found.alive or (found.pid, found.pid_started) == (marker.pid, marker.pid_started)
    return (found.task is not None and found.task == marker.task) or is_stale(path)


def _replace(temporary: Path, path: Path, found: Marker | None, marker: Marker) -> bool:
    """Put ``temporary`` in the place of the marker ``found``; false if another process was faster."""
    right = path.with_name(f".{path.name[:200]}.taking")
    if not _take(right, marker):
        return False
    try:
        if Marker.read(path) != found:
            return False
        files.move(temporary, path)
        return True
    finally:
        with suppress(OSError):
            files.remove(right)
