"""Worker processes, which exchange frames with the main process over standard input and output.

A frame is a pickle with its length in eight bytes before it. Both ends belong to one run on one machine, and no other
process can write to the pipes. A worker process exits as soon as its input is closed, so it never outlives the main
process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
from typing import IO, Any

from palaestrai_mosaik.core.collector import program
from palaestrai_mosaik.core.errors import SimulationError
from palaestrai_mosaik.simulation.remote_environment import describe_exit

logger = logging.getLogger(__name__)

_LENGTH = struct.Struct("<Q")
_PROGRAM = program("palaestrai_mosaik.runner.worker_main")
#: seconds that a process has to exit
_PATIENCE = 2.0


#: the variables that limit the threads of numeric libraries: with one thread per core in each process, workers and
#: runs that share the cores would slow each other down
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def child_environment() -> dict[str, str]:
    """Return environment variables for a child: this process's import path and one thread for numeric libraries."""
    environment = dict.fromkeys(THREADS, "1") | dict(os.environ)
    return {**environment, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def write_frame(stream: IO[bytes], data: bytes) -> None:
    """Write one frame and flush the stream."""
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Read one frame, or return ``None`` if the stream has ended."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    return data if len(data) == length else None


class WorkerDied(SimulationError):
    """A worker process ended without reporting an error."""


class WorkerProcess:
    """The main process's end of a worker process.

    Args:
        index: the number of the worker.
        inbox: receives pairs of index and frame; the frame is ``None`` if the process has ended.
    """

    def __init__(self, index: int, inbox: queue.SimpleQueue[tuple[int, bytes | None]]):
        self.index = index
        self._inbox = inbox
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
            # a group of its own: Ctrl-C reaches only the main process, which notifies the workers
            process_group=0 if os.name == "posix" else None,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        logger.debug("worker %d is process %d", index, self._process.pid)
        self._to, self._from = self._process.stdin, self._process.stdout
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def send(self, message: Any) -> None:
        """Send a message. Raises :class:`WorkerDied` if the process has ended."""
        try:
            write_frame(self._to, pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
        except OSError:
            raise self.died() from None

    def interrupt(self) -> None:
        """Ask the process to end its episode after the current step."""
        if not self.ended:
            self._process.terminate()

    def died(self) -> WorkerDied:
        """Create the error that describes how the process ended."""
        try:
            code = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return WorkerDied(f"worker {self.index} (process {self.pid}) closed its connection")
        return WorkerDied(f"worker {self.index} (process {self.pid}) was ended {describe_exit(code)}")

    def hang_up(self) -> None:
        """Close the connection, so that the process cleans up and exits."""
        with contextlib.suppress(OSError):
            self._to.close()

    def close(self) -> None:
        """End the process, by force if necessary, and close its streams."""
        self.hang_up()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # a process forked by user code may hold the other end of the stream
        self._reader.join(_PATIENCE)
        if not self._reader.is_alive():
            self._from.close()

    def _read(self) -> None:
        while True:
            try:
                frame = read_frame(self._from)
            except (OSError, ValueError):
                frame = None
            self._inbox.put((self.index, frame))
            if frame is None:
                return


class ProcessPool:
    """The worker processes of a run. They are reused in all phases because starting a process is slow."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[tuple[int, bytes | None]] = queue.SimpleQueue()
        self._processes: list[WorkerProcess] = []
        self._ended: set[int] = set()

    def take(self, count: int) -> list[WorkerProcess]:
        """Return the processes 0 to ``count - 1``, starting them if necessary."""
        while len(self._processes) < count:
            self._processes.append(WorkerProcess(len(self._processes), self._inbox))
        return self._processes[:count]

    def receive(self, timeout: float) -> tuple[int, bytes | None] | None:
        """Return a process's index and its next frame.

        The frame is ``None`` if the process has ended. The result is ``None`` if nothing arrived within ``timeout``
        seconds.
        """
        with contextlib.suppress(queue.Empty):
            return self._inbox.get(timeout=timeout)
        # the stream stays open if a process forked by user code holds it
        for process in self._processes:
            if process.index in self._ended:
                return process.index, None
            if process.ended:
                # report the end in the next call, because its last frame may still be in transit
                self._ended.add(process.index)
        return None

    def died(self, index: int) -> WorkerDied:
        """Create the error that describes how a process ended."""
        return self._processes[index].died()

    def close(self) -> None:
        """End all processes."""
        processes, self._processes = self._processes, []
        for process in processes:
            process.hang_up()
        for process in processes:
            process.close()
