"""Starts processes of runs, either forked from a warm process or with a new interpreter each."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Literal, NamedTuple

from palaestrai_mosaik.core.collector import program
from palaestrai_mosaik.core.errors import ExecutionError, format_traceback
from palaestrai_mosaik.core.printing import use_null_device, write
from palaestrai_mosaik.runner.worker_process import child_environment, write_frame

from .executor import PreloadedClass
from .job import Job
from .task import GRACE

#: ``fork here`` forks from this process, which must have no other threads; see :class:`ForkLauncher`
StartMethod = Literal["fork", "fork here", "spawn"]
#: forking is unsafe with the system libraries of macOS, and not available on Windows
DEFAULT_METHOD: StartMethod = "fork" if hasattr(os, "fork") and sys.platform != "darwin" else "spawn"

_SERVER = program("palaestrai_mosaik.arsenai.execution.fork_server")
_TASK = program("palaestrai_mosaik.arsenai.execution.task")
_POLL = 0.02


class Ended(NamedTuple):
    """A process that has ended: its key, its exit code (negative: the signal that killed it), and its process id."""

    key: int
    code: int
    pid: int


class Launcher(ABC):
    """Starts processes that execute jobs, and identifies each by a key. ``close`` ends all of them."""

    def __init__(self) -> None:
        self._numbers = count()

    @abstractmethod
    def start(self, jobs: Sequence[Job]) -> int:
        """Start a process that executes ``jobs`` one after the other; return its key."""

    @abstractmethod
    def ended(self, timeout: float) -> list[Ended]:
        """Return the processes that have ended since the last call; wait up to ``timeout`` seconds for the first."""

    @abstractmethod
    def terminate(self, key: int) -> None:
        """Send SIGTERM to a process."""

    @abstractmethod
    def kill(self, key: int) -> None:
        """Kill a process and its child processes."""

    def end(self, keys: Iterable[int]) -> None:
        """End these processes with SIGTERM, then SIGKILL, and wait until they have ended."""
        left = set(keys)
        for key in left:
            self.terminate(key)
        until, killed = time.monotonic() + GRACE, False
        while left:
            left -= {process.key for process in self.ended(_POLL)}
            if not killed and time.monotonic() > until:
                killed = True
                for key in left:
                    self.kill(key)

    @abstractmethod
    def close(self) -> None:
        """End all remaining processes with SIGTERM, then SIGKILL."""


class ForkLauncher(Launcher):
    """Forks processes from a server (:mod:`.fork_server`).

    Args:
        preload: the classes that the server prepares.
        here: fork the server from this process, which saves the start of an interpreter. This process must then have no
            other threads.
    """

    def __init__(self, preload: Sequence[PreloadedClass] = (), *, here: bool = False):
        super().__init__()
        self._connection, server_end = Pipe()
        lifeline, self._lifeline = os.pipe()
        try:
            self._server = self._fork(server_end, lifeline) if here else self._spawn(server_end, lifeline)
        finally:
            server_end.close()
            os.close(lifeline)
        self._send(list(preload))

    @staticmethod
    def _spawn(server_end: Connection, lifeline: int) -> subprocess.Popen[bytes] | _Forked:
        return subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(server_end.fileno()), str(lifeline)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=child_environment(),
            pass_fds=(server_end.fileno(), lifeline),
            # only this process gets the signal of Ctrl-C; it stops the runs
            process_group=0,
        )

    def _fork(self, server_end: Connection, lifeline: int) -> _Forked:
        from .fork_server import serve

        def run() -> None:
            # close the server's copies of this process's ends, else it would not notice when this process is gone
            os.close(self._lifeline)
            self._connection.close()
            serve(server_end, lifeline)

        return _Forked(run)

    def start(self, jobs: Sequence[Job]) -> int:
        key = next(self._numbers)
        self._send(("start", key, tuple(jobs)))
        return key

    def ended(self, timeout: float) -> list[Ended]:
        processes: list[Ended] = []
        while wait([self._connection], 0 if processes else timeout):
            try:
                processes.append(Ended(*self._connection.recv()))
            except (EOFError, OSError):
                raise self._gone() from None
        return processes

    def terminate(self, key: int) -> None:
        self._send(("signal", key, (signal.SIGTERM, False)))

    def kill(self, key: int) -> None:
        self._send(("signal", key, (signal.SIGKILL, True)))

    def close(self) -> None:
        os.close(self._lifeline)
        self._connection.close()
        try:
            self._server.wait(2 * GRACE)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except OSError:
            raise self._gone() from None

    def _gone(self) -> ExecutionError:
        code = self._server.wait(GRACE)
        return ExecutionError(f"the process that starts the runs has ended ({describe_exit(code)})")


class _Forked:
    """A process forked from this one, with the interface of :class:`subprocess.Popen`.

    It leads its own process group, and prints only errors.
    """

    def __init__(self, run: Callable[[], None]):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with warnings.catch_warnings():
            # Python warns of a thread of pyarrow's allocator, which is safe to fork
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        self._code: int | None = None
        if self.pid:
            return
        try:
            os.setpgid(0, 0)
            use_null_device(0)
            use_null_device(1)
            run()
            os._exit(0)
        except BaseException as error:
            write(format_traceback(error), sys.stderr, end="")
        finally:
            os._exit(1)

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while self._code is None:
            pid, status = os.waitpid(self.pid, 0 if until is None else os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
            elif until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("the fork server", timeout or 0.0)
            else:
                time.sleep(_POLL)
        return self._code

    def kill(self) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)


class SpawnLauncher(Launcher):
    """Starts each process with a new interpreter."""

    def __init__(self) -> None:
        super().__init__()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, jobs: Sequence[Job]) -> int:
        key = next(self._numbers)
        process = subprocess.Popen(
            [sys.executable, "-c", _TASK],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=child_environment(),
            process_group=0 if os.name == "posix" else None,
        )
        self._processes[key] = process
        assert process.stdin is not None
        # the exit code of a process that has already ended is reported later
        with contextlib.suppress(OSError):
            write_frame(process.stdin, pickle.dumps(tuple(jobs), pickle.HIGHEST_PROTOCOL))
        return key

    def ended(self, timeout: float) -> list[Ended]:
        until = time.monotonic() + timeout
        while True:
            codes = [(key, process.poll(), process.pid) for key, process in self._processes.items()]
            processes = [Ended(key, code, pid) for key, code, pid in codes if code is not None]
            for key, _, _ in processes:
                process = self._processes.pop(key)
                self._kill_group(process)
                assert process.stdin is not None
                with contextlib.suppress(OSError):
                    process.stdin.close()
            if processes or time.monotonic() >= until:
                return processes
            time.sleep(_POLL)

    def terminate(self, key: int) -> None:
        if key in self._processes:
            self._processes[key].terminate()

    def kill(self, key: int) -> None:
        if key in self._processes:
            self._kill_group(self._processes[key])
            self._processes[key].kill()

    def close(self) -> None:
        self.end(self._processes)

    @staticmethod
    def _kill_group(process: subprocess.Popen[bytes]) -> None:
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def make_launcher(method: StartMethod, preload: Sequence[PreloadedClass]) -> Launcher:
    """Return a launcher that starts processes by ``method``; ``preload`` is only used for forking."""
    return SpawnLauncher() if method == "spawn" else ForkLauncher(preload, here=method == "fork here")


def describe_exit(code: int) -> str:
    """Describe an exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by signal {-code}, {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
