"""Executes runs in processes on the cores of this machine."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from palaestrai_mosaik.arsenai.design.design import available_cores
from palaestrai_mosaik.core.errors import FAILED, FINISHED

from .executor import Executor, PreloadedClass
from .job import Job, JobRecord, Marker, RecordStatus, write_end
from .processes import DEFAULT_METHOD, Ended, Launcher, StartMethod, describe_exit, make_launcher
from .task import EXIT_LEFT_OUT

#: seconds between two checks of records, time limits and interrupts
_POLL = 0.1
#: seconds between two calls of ``should_end``
_SHOULD_END_POLL = 1.0
#: seconds for which short runs share a process, by start method: much longer than the start of a process, and short
#: enough for all cores to end at about the same time
SHARED_SECONDS: dict[StartMethod, float] = {"fork": 0.5, "fork here": 0.5, "spawn": 10.0}
#: number of newest runs used to estimate the duration of a run
_NEWEST = 20
#: seconds within which a run must end after a request to stop; the request is repeated after half of them
PATIENCE = 10.0


class LocalExecutor(Executor):
    """Executes jobs in several concurrent processes.

    If a process dies, its current run has failed; a new process executes its remaining runs.

    Args:
        processes: the maximum number of concurrent runs; ``None``: one per core.
        timeout: the time limit of a run in seconds, after which it is ended and has failed; ``None``: no limit.
        runs_per_process: the number of runs that share a process, one after the other. Sharing saves about 30 ms per
            run if processes are forked, otherwise the start of an interpreter. Changes of a run to the globals of
            modules remain for the next. ``None``: as many as take about :data:`SHARED_SECONDS`, and only runs without
            users' code.
        preload: classes of this package that runs use, to be prepared once.
        method: the start method of processes.
        launcher: a launcher to start the processes, which stays open; ``None``: each call of :meth:`run` makes one
            from ``preload`` and ``method``.
        should_end: called once a second; cancels the executor when it returns true.
    """

    def __init__(
        self,
        processes: int | None = None,
        *,
        timeout: float | None = None,
        runs_per_process: int | None = None,
        preload: Sequence[PreloadedClass] = (),
        method: StartMethod = DEFAULT_METHOD,
        launcher: Launcher | None = None,
        should_end: Callable[[], bool] = lambda: False,
    ):
        super().__init__()
        self._processes = available_cores() if processes is None else processes
        self._timeout, self._runs_per_process = timeout, runs_per_process
        #: the durations of the newest runs
        self._seconds: deque[float] = deque(maxlen=_NEWEST)
        #: whether runs have users' code, and must therefore not share processes
        self._isolate_runs = False
        self._preload, self._method, self._launcher = preload, method, launcher
        self._should_end, self._asked = should_end, 0.0

    @property
    def processes(self) -> int:
        """See :class:`Executor`."""
        return self._processes

    def run(self, jobs: Iterable[Job]) -> Iterator[JobRecord]:
        """See :class:`Executor`."""
        source = iter(jobs)
        again: deque[Job] = deque()
        running: dict[int, _Process] = {}
        with self._started(running) as launcher:
            while True:
                self._ask()
                while len(running) < self._processes and (batch := self._take(again, source)):
                    key = launcher.start(batch)
                    running[key] = _Process(launcher, key, batch, self._timeout)
                if not running:
                    return
                for ended in launcher.ended(_POLL):
                    # the signal that ends this process may have reached the run's process first
                    self._ask(now=True)
                    process = running.pop(ended.key)
                    yield from self._noted(process.poll())
                    if ended.code == FINISHED and process.jobs:
                        self._isolate_runs = True
                    if process.is_left_out(ended):
                        self.left_out.append(process.jobs.popleft().run)
                    else:
                        yield from process.end(ended, cancelled=self._cancelled > 0)
                    again += process.jobs
                for process in running.values():
                    yield from self._noted(process.poll())
                    process.enforce_end(self._cancelled)

    def _ask(self, *, now: bool = False) -> None:
        if (now or time.monotonic() - self._asked >= _SHOULD_END_POLL) and not self._cancelled:
            self._asked = time.monotonic()
            if self._should_end():
                self.cancel()

    @contextlib.contextmanager
    def _started(self, running: Mapping[int, _Process]) -> Iterator[Launcher]:
        """Yield a launcher, and finally end all processes in ``running``."""
        if self._launcher is None:
            with contextlib.closing(make_launcher(self._method, self._preload)) as launcher:
                yield launcher
            return
        try:
            yield self._launcher
        finally:
            self._launcher.end(running)

    def _take(self, again: deque[Job], source: Iterator[Job]) -> list[Job]:
        batch: list[Job] = []
        most = self._batch_size()
        while not self._cancelled and len(batch) < most:
            job = again.popleft() if again else next(source, None)
            if job is None:
                break
            batch.append(replace(job, shares_process=self._runs_per_process is not None))
        return batch

    def _batch_size(self) -> int:
        if self._runs_per_process is not None:
            return self._runs_per_process
        if self._isolate_runs or not self._seconds:
            return 1
        mean = sum(self._seconds) / len(self._seconds)
        return max(1, int(SHARED_SECONDS[self._method] / max(mean, 1e-3)))

    def _noted(self, records: Iterable[JobRecord]) -> Iterator[JobRecord]:
        for record in records:
            self._seconds.append(record.seconds)
            yield record


class _Process:
    """A process and its remaining ``jobs``; it executes the first one now."""

    def __init__(self, launcher: Launcher, key: int, jobs: Iterable[Job], timeout: float | None):
        self.jobs = deque(jobs)
        self._launcher, self._key, self._timeout = launcher, key, timeout
        self._asked = time.monotonic()
        #: the time when the marker of the first job was seen, which counts as its start
        self._since: float | None = None
        self._done = 0
        #: the time of the first request to stop, and its reason
        self._signalled_at: float | None = None
        self._timed_out = self._wanted = self._signalled_twice = self._killed = False

    def poll(self) -> Iterator[JobRecord]:
        """Yield the records written since the last poll."""
        while self.jobs:
            job = self.jobs[0]
            if self._since is None and job.marker.exists():
                self._since = time.monotonic()
            record = JobRecord.read(job.record)
            if record is None or not _belongs_to(record, job):
                return
            self.jobs.popleft()
            self._done += 1
            self._since = None
            if self._timed_out and record.status == "interrupted":
                record = replace(record, status="failed", exit_code=FAILED, error=self._limit())
                record.write(job.record)
            yield record

    def enforce_end(self, cancelled: int) -> None:
        """End the process if its run exceeds the time limit, or the executor was cancelled.

        The first signal ends the run between two steps, the second within a step.

        Args:
            cancelled: 0 if the executor was not cancelled, 1 if it was, 2 to kill the process at once.
        """
        clock = time.monotonic()
        if self._signalled_at is None:
            if self._timeout is not None and self._since is not None:
                self._timed_out = clock - self._since > self._timeout
            self._wanted = cancelled > 0 and not self._timed_out
            if self._timed_out or self._wanted:
                self._signalled_at = clock
                self._launcher.terminate(self._key)
        waited = 0.0 if self._signalled_at is None else clock - self._signalled_at
        if waited > PATIENCE / 2 and not self._signalled_twice:
            self._signalled_twice = True
            self._launcher.terminate(self._key)
        if (waited > PATIENCE or cancelled > 1) and not self._killed:
            self._killed = True
            self._launcher.kill(self._key)

    def is_left_out(self, process: Ended) -> bool:
        """Whether the process has ended because another one executes its run."""
        if not self.jobs or self._marker(process) is not None:
            return False
        marker = Marker.read(self.jobs[0].marker)
        return process.code == EXIT_LEFT_OUT or (marker is not None and marker.alive)

    def _marker(self, process: Ended) -> Marker | None:
        """Return the marker of the first job if this process wrote it."""
        marker = Marker.read(self.jobs[0].marker)
        mine = marker is not None and marker.of_this_host and marker.pid == process.pid
        return marker if mine else None

    def end(self, process: Ended, *, cancelled: bool) -> Iterator[JobRecord]:
        """Write and yield the record of the run that the process was executing when it ended, if any.

        The jobs that remain in ``jobs`` had not begun.

        Args:
            process: the process that has ended.
            cancelled: whether the executor was cancelled.
        """
        if not self.jobs:
            return
        self._wanted = self._wanted or (cancelled and not self._timed_out)
        job = self.jobs[0]
        marker = self._marker(process)
        # fail the first job of a process that wrote no marker, else it would be started over and over again
        if marker is None and (self._done or self._wanted):
            return
        self.jobs.popleft()
        since = self._asked if self._since is None else self._since
        status: RecordStatus = "interrupted" if self._wanted else "failed"
        why, seconds = self._why(process.code), time.monotonic() - since
        yield write_end(job, marker, status, why, exit_code=process.code, seconds=seconds)

    def _why(self, code: int) -> str:
        if self._timed_out:
            return self._limit()
        if self._wanted:
            return "killed: it was interrupted, and did not end by itself"
        hint = "; the system does this when memory runs out" if code == -9 else ""
        return f"its process died ({describe_exit(code)}) before the run had ended{hint}"

    def _limit(self) -> str:
        return f"took longer than the time limit of {self._timeout:g} s"


def _belongs_to(record: JobRecord, job: Job) -> bool:
    """Whether the record was written for this attempt at ``job`` by a process of this host."""
    here = (job.hash, job.attempt, job.task, socket.gethostname())
    return (record.hash, record.attempt, record.task, record.host) == here
