"""The claims of processes to the settings of a search, and to activities of one process at a time.

A claim is a marker with a heartbeat, as for runs. If the marker of a setting belongs to a dead process,
the setting has no worker, and another process may take it over.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from palaestrai_mosaik.arsenai.design.settings import FOLDER
from palaestrai_mosaik.arsenai.execution.claim import Heartbeat, claim, wait_for_exits
from palaestrai_mosaik.arsenai.execution.job import Job, Marker, is_stale
from palaestrai_mosaik.arsenai.execution.task import GRACE
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.runner import Interrupt
from palaestrai_mosaik.store.store import StoreLocation

#: the activities of one process at a time: to check the budget and propose, and to write the tables
PROPOSING, TABLES = "proposing", "tables"
#: the folder of the markers
_MARKERS = "settings"
#: seconds between two searches for settings without a worker
_LOOK_EVERY = 60.0
#: seconds between two attempts to get a turn
_POLL = 0.02


class Claim:
    """The exclusive right of one process of a search to a setting or an activity."""

    def __init__(self, job: Job, marker: Marker):
        self._job, self._held = job, True
        self._beat = Heartbeat(job, marker, Interrupt())
        self._beat.__enter__()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the claim. Repeated calls do nothing, because another process may have it by then."""
        if not self._held:
            return
        self._held = False
        self._beat.__exit__()
        files.remove(self._job.marker, missing_ok=True)


class Claims:
    """The claims of one process in the search ``study`` in a design folder.

    Args:
        folder: the folder.
        study: the hash of the design.
        task: the scheduler's name of the task of this process; ``None``: it belongs to none.
    """

    def __init__(self, folder: Path, study: str, task: str | None):
        self._folder, self._study, self._task = folder, study, task
        self._looked = -float("inf")
        #: settings that other processes seem to execute -> time until which they are avoided
        self._avoided: dict[int, float] = {}

    def setting(self, number: int) -> Claim | None:
        """Claim a setting, or return None if another process has it."""
        return self._take(f"setting-{number}")

    def turn(self, activity: str, seconds: float) -> Claim | None:
        """Wait for the exclusive right to an activity; return None after ``seconds``."""
        until = time.monotonic() + seconds
        while (turn := self._take(activity)) is None:
            if time.monotonic() >= until:
                return None
            time.sleep(_POLL)
        return turn

    def without_worker(self, numbers: Iterable[int], *, last: bool = False) -> int | None:
        """Return the first of some settings without a worker, or None.

        Args:
            numbers: the numbers of the settings, which are only read if a search is due.
            last: search even if the last search was less than a minute ago.
        """
        clock = time.monotonic()
        if not last and clock - self._looked < _LOOK_EVERY:
            return None
        for number in numbers:
            claim = self.setting(number) if self._avoided.get(number, clock) <= clock else None
            if claim is not None:
                claim.release()
                return number
        self._looked = clock
        return None

    def avoid(self, number: int) -> None:
        """Leave a setting to other processes for a minute."""
        self._avoided[number] = time.monotonic() + _LOOK_EVERY

    def are_executed(self, markers: Sequence[Path], *, wait: bool) -> bool:
        """Whether a process still executes a run of a setting without a worker.

        Args:
            markers: the paths of the markers of the runs.
            wait: wait for processes of this host, which notice the end of their worker and exit within seconds.
        """
        if wait:
            wait_for_exits(markers, 2 * GRACE, of=lambda marker: True)
        for path in markers:
            marker = Marker.read(path)
            if marker is None or not marker.alive:
                continue
            ended = marker.task is not None and marker.task == self._task
            if marker.of_this_host or not (ended or is_stale(path)):
                return True
        return False

    def _take(self, name: str) -> Claim | None:
        markers = claims_folder(self._folder)
        try:
            files.make_folder(markers)
        except OSError as error:
            raise ExecutionError(f"cannot write to {markers}: {error.strerror}") from error
        location = StoreLocation(str(self._folder))
        job = Job(name, self._study, self._folder, markers / name, location, task=self._task)
        marker = claim(job)
        return None if marker is None else Claim(job, marker)


def claims_folder(folder: Path) -> Path:
    """Return the folder of the markers of workers on the search in the design folder ``folder``."""
    return folder / FOLDER / _MARKERS


def worker_name(task: str | None) -> str:
    """Return the name of this process in the journal."""
    name = f"{socket.gethostname()}:{os.getpid()}"
    return name if task is None else f"{name} ({task})"
