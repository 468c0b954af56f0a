"""The process that records a run: whether it still exists, and its lock on a file of the run's folder."""

from __future__ import annotations

import os
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from palaestrai_mosaik.core import files

try:
    import fcntl
except ImportError:  # Windows: no process can be identified, so none is signalled
    fcntl = None  # type: ignore[assignment]

#: the file in the folder of a run; it exists while the run is recorded, and after its process was killed
LOCK = "recording.lock"
#: the format of the system's ``struct flock``, and the indices of the lock type and the process id
_LAYOUT, _KIND, _PROCESS = ("hhqqi4x", 0, 4) if sys.platform == "linux" else ("qqihh", 3, 2)


class RunLock:
    """The lock of the process that records the run in ``directory``.

    A file system without locks is no error, but the run cannot be cancelled by another process then. No other code in
    this process may open and close the file, which would release the lock.
    """

    def __init__(self, directory: Path):
        self._path = directory / LOCK
        self._handle: int | None = None
        if fcntl is None:
            return
        with suppress(OSError):
            self._handle = files.open_update(self._path)
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Remove the file, and release the lock."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(OSError):
                files.remove(self._path)
            os.close(handle)

    def __del__(self) -> None:
        # the recorder never finished: its file stays, like that of a killed process
        if self._handle is not None:
            with suppress(OSError):
                os.close(self._handle)


def recording_process(directory: Path) -> int | None:
    """Return the id of the process that records the run in ``directory``; ``None`` if none holds its lock.

    A symbolic or hard link instead of the file counts as no lock: its holder may be any process. The lock of this
    process itself is not seen.
    """
    path = directory / LOCK
    if fcntl is None or not os.path.lexists(path):
        return None
    try:
        handle = files.open_update(path)
    except OSError:
        return None
    question = [0] * 5
    question[_KIND] = fcntl.F_WRLCK
    try:
        answer = fcntl.fcntl(handle, fcntl.F_GETLK, struct.pack(_LAYOUT, *question))
    except OSError:
        return None
    finally:
        os.close(handle)
    held = struct.unpack(_LAYOUT, answer)
    return held[_PROCESS] if held[_KIND] != fcntl.F_UNLCK and held[_PROCESS] > 0 else None


#: the index of the start in ``/proc/<pid>/stat``, after the process's name in parentheses
_START = 19


def process_started(pid: int | None = None) -> float:
    """Return the start of the process ``pid`` of this host, or of this process, for :func:`still_runs`.

    In seconds since the boot on Linux, as Unix time elsewhere.
    """
    if sys.platform != "linux":
        return psutil.Process(pid).create_time()
    stat = Path(f"/proc/{os.getpid() if pid is None else pid}/stat").read_bytes()
    # the name may hold anything, parentheses too
    ticks = int(stat[stat.rindex(b")") + 1 :].split()[_START])
    return ticks / os.sysconf("SC_CLK_TCK")


def still_runs(pid: int, started: float, tolerance: float) -> bool:
    """Whether the process ``pid`` of this host that began at ``started`` still runs.

    Args:
        pid: its id.
        started: a result of :func:`process_started`.
        tolerance: seconds by which Unix times may differ: adjusting the clock changes the reported start.
    """
    if sys.platform == "linux":
        tolerance = 0.5 / os.sysconf("SC_CLK_TCK")
    try:
        is_same = abs(process_started(pid) - started) < tolerance
        return is_same and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return False
    except (psutil.AccessDenied, PermissionError):  # it exists, but its owner is hidden
        return True


def terminate(pid: int, started: float, tolerance: float, is_meant: Callable[[], bool]) -> bool:
    """Ask the process ``pid`` of this host that began at ``started`` to end (SIGTERM).

    No other process is signalled, even if it gets the id meanwhile, on systems with handles of processes (Linux since
    5.3).

    Args:
        pid: its id.
        started: a result of :func:`process_started`.
        tolerance: as in :func:`still_runs`.
        is_meant: called last, to confirm that this is the process to signal.

    Returns:
        Whether the process runs, and was signalled.

    Raises:
        PermissionError: the process belongs to another user.
    """
    try:
        handle = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except ProcessLookupError:
        return False
    try:
        if not (still_runs(pid, started, tolerance) and is_meant()):
            return False
        if handle is None:
            os.kill(pid, signal.SIGTERM)
        else:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
    except ProcessLookupError:
        return False
    finally:
        if handle is not None:
            os.close(handle)
    return True
