"""A command and all processes that it starts: time, CPU, memory, what is left behind (Linux only)."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

#: prctl: children of ended processes become ours, so that none is lost
_SET_CHILD_SUBREAPER = 36
#: seconds between two samples, at least; and how much dearer waiting must be than sampling
_PAUSE, _SHARE = 0.05, 20
#: seconds that processes have to end after their main process
GRACE = 3.0
_MEGABYTE = 1e6


@dataclass(frozen=True)
class Usage:
    """What a command took.

    ``seconds``: wall-clock time until its own process ended. ``cpu_seconds``: user and system time of
    all processes. ``peak_mb``: the largest sum of their proportional set sizes in a sample (memory that
    several share counts once), ``peak_rss_mb`` of their resident set sizes. ``processes``: the most at
    once. ``left``: names of those that lived on for :data:`GRACE` seconds; they were killed then.
    """

    returncode: int
    began: float
    seconds: float
    cpu_seconds: float
    peak_mb: float
    peak_rss_mb: float
    processes: int
    left: tuple[str, ...]
    timed_out: bool
    output: str


def run(
    command: Sequence[str | Path],
    *,
    folder: Path,
    environment: Mapping[str, str],
    limit: float,
    kill: Callable[[], bool] | None = None,
) -> Usage:
    """Run ``command`` in ``folder`` and watch it.

    After ``limit`` seconds the whole tree is killed. Where ``kill`` is given, the main process alone is
    killed (SIGKILL) as soon as it returns true. What the command prints also lies in ``output.txt``.
    """
    log = folder / "output.txt"
    with _adopting(), log.open("wb") as output:
        began = time.time()
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        tree = Tree(process.pid)
        try:
            timed_out = _wait(process.pid, tree, began + limit, kill)
            ended = time.time()
            left = tree.leave(0.0 if timed_out else GRACE)
        finally:
            tree.end()
            # waited for above; Popen must not wait for it again
            process.returncode = os.waitstatus_to_exitcode(tree.status)
    return Usage(
        returncode=process.returncode,
        began=began,
        seconds=ended - began,
        cpu_seconds=tree.cpu_seconds,
        peak_mb=tree.peak_pss / _MEGABYTE,
        peak_rss_mb=tree.peak_rss / _MEGABYTE,
        processes=tree.most,
        left=left,
        timed_out=timed_out,
        output=log.read_text(encoding="utf-8", errors="replace"),
    )


@dataclass
class Tree:
    """The processes that stem from one, sampled."""

    root: int
    peak_pss: int = 0
    peak_rss: int = 0
    most: int = 0
    #: exit status of the root, as ``os.wait4`` gives it
    status: int = 0
    #: by process: CPU seconds when it was last seen, and as its parent was told in the end
    _seen: dict[int, float] = field(default_factory=dict)
    _told: dict[int, float] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all: what the kernel told of those that we waited for, at least what was seen."""
        return max(sum(self._told.values()), sum(self._seen.values()))

    def members(self) -> list[psutil.Process]:
        """Return those that live: the root's descendants and those that have become ours."""
        found = {}
        for child in psutil.Process().children():
            try:
                if child.pid in (self.root, *self._seen) or os.getsid(child.pid) == self.root:
                    for one in (child, *child.children(recursive=True)):
                        found[one.pid] = one
            except (psutil.Error, ProcessLookupError):
                continue  # ended meanwhile
        return [one for one in found.values() if _lives(one)]

    def sample(self) -> None:
        """Look at all of them once."""
        pss = rss = count = 0
        for process in self.members():
            try:
                memory = process.memory_full_info()
                times = process.cpu_times()
            except psutil.Error:
                continue
            pss, rss, count = pss + memory.pss, rss + memory.rss, count + 1
            self._seen[process.pid] = times.user + times.system
        self.peak_pss, self.peak_rss = max(self.peak_pss, pss), max(self.peak_rss, rss)
        self.most = max(self.most, count)

    def reap(self, pid: int, options: int = 0) -> bool:
        """Wait for a child of ours; true if it has ended."""
        try:
            found, status, usage = os.wait4(pid, options)
        except ChildProcessError:
            return True
        if not found:
            return False
        if pid == self.root:
            self.status = status
        self._told[pid] = usage.ru_utime + usage.ru_stime
        return True

    def leave(self, grace: float) -> tuple[str, ...]:
        """Return the names of those that have not ended within ``grace`` seconds."""
        until = time.monotonic() + grace
        while True:
            self._bury()
            found = self.members()
            if not found or time.monotonic() > until:
                return tuple(sorted(filter(None, map(_name, found))))
            time.sleep(_PAUSE)

    def end(self) -> None:
        """Kill and reap all that is left."""
        while found := self.members():
            for process in found:
                try:
                    os.kill(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self._bury()
            time.sleep(_PAUSE)
        self._bury()

    def _bury(self) -> None:
        """Reap those that have become ours and have ended."""
        for child in psutil.Process().children():
            if child.pid in (self.root, *self._seen) or _session(child.pid) == self.root:
                self.reap(child.pid, os.WNOHANG)


def _wait(pid: int, tree: Tree, until: float, kill: Callable[[], bool] | None) -> bool:
    """Sample until the process ends; false if it did by itself."""
    ending = os.pidfd_open(pid)
    try:
        pause = 0.0
        while not select.select([ending], [], [], pause)[0]:
            begun = time.perf_counter()
            if time.time() > until:
                return True
            tree.sample()
            if kill is not None and kill():
                os.kill(pid, signal.SIGKILL)
                kill = None
            pause = max(_PAUSE, _SHARE * (time.perf_counter() - begun))
    finally:
        os.close(ending)
    tree.reap(pid)
    return False


@contextmanager
def _adopting() -> Iterator[None]:
    """Let orphans among the descendants become children of this process."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    try:
        yield
    finally:
        prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    except psutil.Error:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0
