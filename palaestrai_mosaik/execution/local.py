"""Runs on the cores of this machine, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from .executor import Executor, OwnClass
from .job import Job, JobRecord, Marker, now, seconds_between
from .processes import DEFAULT_METHOD, Launcher, StartMethod, how_it_ended, make_launcher

#: seconds between two looks at records, time limits and whether the end is wanted
_LOOK = 0.1
#: seconds that a run has to end by itself once it was told to; after half of them it is told again
PATIENCE = 10.0


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class LocalExecutor(Executor):
    """Executes jobs in up to ``processes`` processes at the same time (default: one per core).

    ``timeout``: seconds that a run may take; it is ended then, and has failed.
    ``runs_per_process``: so many runs share a process, one after the other; saves some 50 ms per
    run where processes are forked, and an interpreter's start where they are not. What a run
    leaves in the globals of a module is then there for the next. A process that dies fails the run that it
    was at; the others of it get a new one. ``preload``: what runs need of this package, prepared once.
    """

    def __init__(
        self,
        processes: int | None = None,
        *,
        timeout: float | None = None,
        runs_per_process: int = 1,
        preload: Sequence[OwnClass] = (),
        method: StartMethod = DEFAULT_METHOD,
    ):
        super().__init__()
        self._processes = available_cores() if processes is None else processes
        self._timeout, self._share = timeout, runs_per_process
        self._preload, self._method = preload, method

    @property
    def processes(self) -> int:
        """See :class:`Executor`."""
        return self._processes

    def run(self, jobs: Iterable[Job]) -> Iterator[JobRecord]:
        """See :class:`Executor`."""
        source = iter(jobs)
        again: deque[Job] = deque()
        running: dict[int, _Process] = {}
        with contextlib.closing(make_launcher(self._method, self._preload)) as launcher:
            while True:
                while len(running) < self._processes and (batch := self._take(again, source)):
                    key = launcher.start(batch)
                    running[key] = _Process(launcher, key, batch, self._timeout)
                if not running:
                    return
                for key, code in launcher.ended(_LOOK):
                    process = running.pop(key)
                    yield from process.look()
                    yield from process.end(code)
                    again += process.jobs
                for process in running.values():
                    yield from process.look()
                    process.press(self._cancelled)

    def _take(self, again: deque[Job], source: Iterator[Job]) -> list[Job]:
        batch: list[Job] = []
        while not self._cancelled and len(batch) < self._share:
            job = again.popleft() if again else next(source, None)
            if job is None:
                break
            batch.append(job)
        return batch


class _Process:
    """A process that executes ``jobs``, the first of them now; those that are done leave."""

    def __init__(self, launcher: Launcher, key: int, jobs: Iterable[Job], timeout: float | None):
        self.jobs = deque(jobs)
        self._launcher, self._key, self._timeout = launcher, key, timeout
        self._asked = now()
        #: when the marker of the first job was seen; what comes before does not count as its time
        self._since: float | None = None
        self._done = 0
        #: when it was told to end, and why
        self._told: float | None = None
        self._late = self._wanted = self._urged = self._killed = False

    def look(self) -> Iterator[JobRecord]:
        """Yield the records that have been written since the last look."""
        while self.jobs:
            job = self.jobs[0]
            if self._since is None and job.marker.exists():
                self._since = time.monotonic()
            record = JobRecord.read(job.record)
            if record is None or (record.hash, record.attempt) != (job.hash, job.attempt):
                return
            self.jobs.popleft()
            self._done += 1
            self._since = None
            if self._late and record.status == "interrupted":
                record = replace(record, status="failed", exit_code=1, error=self._limit())
                record.write(job.record)
            yield record

    def press(self, cancelled: int) -> None:
        """End the process if its run takes too long or the user wants the end.

        The first signal ends the run between two steps, the second in the middle of one.
        """
        clock = time.monotonic()
        if self._told is None:
            if self._timeout is not None and self._since is not None:
                self._late = clock - self._since > self._timeout
            self._wanted = cancelled > 0 and not self._late
            if self._late or self._wanted:
                self._told = clock
                self._launcher.tell(self._key)
        waited = 0.0 if self._told is None else clock - self._told
        if waited > PATIENCE / 2 and not self._urged:
            self._urged = True
            self._launcher.tell(self._key)
        if (waited > PATIENCE or cancelled > 1) and not self._killed:
            self._killed = True
            self._launcher.kill(self._key)

    def end(self, code: int) -> Iterator[JobRecord]:
        """Yield the record of the run at which the process has ended, if it was at one.

        What is left in ``jobs`` had not begun.
        """
        if not self.jobs:
            return
        job = self.jobs[0]
        marker = Marker.read(job.marker)
        begun = marker is not None and marker.attempt == job.attempt
        # a process that could not even begin must not be started again and again
        if not begun and (self._done or self._wanted):
            return
        self.jobs.popleft()
        ended = now()
        started = marker.started if begun and marker is not None else self._asked
        record = JobRecord(
            job.run,
            job.hash,
            "interrupted" if self._wanted else "failed",
            marker.instance if begun and marker is not None else None,
            job.store.location,
            started,
            ended,
            seconds_between(started, ended),
            code,
            self._why(code),
            socket.gethostname(),
            marker.pid if begun and marker is not None else 0,
            job.attempt,
        )
        record.write(job.record)
        job.marker.unlink(missing_ok=True)
        yield record

    def _why(self, code: int) -> str:
        if self._late:
            return self._limit()
        if self._wanted:
            return "killed: it was interrupted, and did not end by itself"
        hint = "; the system does this when memory runs out" if code == -9 else ""
        return f"its process died ({how_it_ended(code)}) before the run had ended{hint}"

    def _limit(self) -> str:
        return f"took longer than the time limit of {self._timeout:g} s"
