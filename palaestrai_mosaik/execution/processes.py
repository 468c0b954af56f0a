"""Starting processes of runs: forked from a warm process, or each with its own interpreter."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Literal

from palaestrai_mosaik.errors import ExecutionError
from palaestrai_mosaik.run.process import write_frame

from .executor import OwnClass
from .job import Job
from .task import GRACE

StartMethod = Literal["fork", "spawn"]
#: forking is not safe with the system libraries of macOS, and unknown to Windows
DEFAULT_METHOD: StartMethod = "fork" if hasattr(os, "fork") and sys.platform != "darwin" else "spawn"

_SERVER = "from palaestrai_mosaik.execution.server import main; main()"
_TASK = "from palaestrai_mosaik.execution.task import main; main()"
_POLL = 0.02


class Launcher(ABC):
    """Starts processes that execute jobs. Each has a key; ``close`` leaves none."""

    def __init__(self) -> None:
        self._numbers = count()

    @abstractmethod
    def start(self, jobs: Sequence[Job]) -> int:
        """Start a process for ``jobs``, one after the other; return its key."""

    @abstractmethod
    def ended(self, timeout: float) -> list[tuple[int, int]]:
        """Return key and exit code of those that have ended; wait up to ``timeout`` s for one.

        The exit code is negative where a signal killed it.
        """

    @abstractmethod
    def tell(self, key: int) -> None:
        """Ask a process to end (SIGTERM)."""

    @abstractmethod
    def kill(self, key: int) -> None:
        """Kill a process and all that it has started."""

    @abstractmethod
    def close(self) -> None:
        """End all processes that are left: told first, then killed."""


class ForkLauncher(Launcher):
    """Has processes forked by a server (:mod:`.server`) that has prepared ``preload``."""

    def __init__(self, preload: Sequence[OwnClass] = ()):
        super().__init__()
        self._connection, theirs = Pipe()
        lifeline, self._lifeline = os.pipe()
        try:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _SERVER, str(theirs.fileno()), str(lifeline)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_environment(),
                pass_fds=(theirs.fileno(), lifeline),
                # Ctrl-C is for this process, which tells the runs
                process_group=0,
            )
        finally:
            theirs.close()
            os.close(lifeline)
        self._send(list(preload))

    def start(self, jobs: Sequence[Job]) -> int:
        key = next(self._numbers)
        self._send(("start", key, tuple(jobs)))
        return key

    def ended(self, timeout: float) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while wait([self._connection], 0 if found else timeout):
            try:
                found.append(self._connection.recv())
            except (EOFError, OSError):
                raise self._gone() from None
        return found

    def tell(self, key: int) -> None:
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
        return ExecutionError(f"the process that starts the runs has ended ({how_it_ended(code)})")


class SpawnLauncher(Launcher):
    """Starts every process with an interpreter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, jobs: Sequence[Job]) -> int:
        key = next(self._numbers)
        process = subprocess.Popen(
            [sys.executable, "-c", _TASK],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=_environment(),
            process_group=0 if os.name == "posix" else None,
        )
        self._processes[key] = process
        assert process.stdin is not None
        # if it has ended already, its exit code will tell
        with contextlib.suppress(OSError):
            write_frame(process.stdin, pickle.dumps(tuple(jobs), pickle.HIGHEST_PROTOCOL))
        return key

    def ended(self, timeout: float) -> list[tuple[int, int]]:
        until = time.monotonic() + timeout
        while True:
            codes = [(key, process.poll()) for key, process in self._processes.items()]
            found = [(key, code) for key, code in codes if code is not None]
            for key, _ in found:
                process = self._processes.pop(key)
                self._kill_group(process)
                assert process.stdin is not None
                with contextlib.suppress(OSError):
                    process.stdin.close()
            if found or time.monotonic() >= until:
                return found
            time.sleep(_POLL)

    def tell(self, key: int) -> None:
        if key in self._processes:
            self._processes[key].terminate()

    def kill(self, key: int) -> None:
        if key in self._processes:
            self._kill_group(self._processes[key])
            self._processes[key].kill()

    def close(self) -> None:
        for key in self._processes:
            self.tell(key)
        until = time.monotonic() + GRACE
        while self._processes and time.monotonic() < until:
            self.ended(GRACE)
        for key in self._processes:
            self.kill(key)
        while self._processes:
            self.ended(GRACE)

    @staticmethod
    def _kill_group(process: subprocess.Popen[bytes]) -> None:
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def make_launcher(method: StartMethod, preload: Sequence[OwnClass]) -> Launcher:
    """Return what starts processes by ``method``."""
    return ForkLauncher(preload) if method == "fork" else SpawnLauncher()


def how_it_ended(code: int) -> str:
    """Return an exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by signal {-code}, {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    # runs share the cores: libraries that start a thread per core would only get in each other's way
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment.setdefault(name, "1")
    return {**environment, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
