"""Whether the process that recorded a run still exists.

Process ids are reused, so a process is identified by its id and its start. On Linux,
the start is given in seconds since the system's boot, to the tick: the system computes the Unix time of a start
from the boot time, so it changes when the clock is set. Elsewhere the Unix time is
noted once, at the start.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

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
