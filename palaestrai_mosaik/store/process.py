"""Whether the process that wrote something down still runs.

Numbers of processes are used again, so a process is known by its number and its start. On Linux
the start is given in seconds since the system's boot, to the tick: the system reports the Unix time of a start
as boot plus that, and so another one after its clock was set. Elsewhere the Unix time is
noted once, at the start.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil

#: what is greater is a Unix time: no system has been up for thirty years
_UNIX = 1e9
#: where the start stands in ``/proc/<pid>/stat``, behind the process's name in parentheses
_START = 19


def process_started() -> float:
    """Return when this process began, to be asked about by :func:`still_runs`.

    In seconds since the boot on Linux, as Unix time elsewhere.
    """
    if sys.platform == "linux":
        return _since_boot(os.getpid())
    return psutil.Process().create_time()


def still_runs(pid: int, started: float, tolerance: float) -> bool:
    """Whether the process ``pid`` of this host that began at ``started`` still runs.

    ``started``: as :func:`process_started` gave it, or Unix time (older releases wrote that), which
    must agree within ``tolerance`` seconds: clocks are adjusted, and with them what is reported.
    """
    try:
        process = psutil.Process(pid)
        if started < _UNIX and sys.platform == "linux":
            same = abs(_since_boot(pid) - started) < 0.5 / os.sysconf("SC_CLK_TCK")
        else:
            same = abs(process.create_time() - started) < tolerance
        return same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return False
    except (psutil.AccessDenied, PermissionError):  # it exists, but its owner is hidden
        return True


def terminate(pid: int, started: float, tolerance: float) -> bool:
    """Ask the process ``pid`` of this host that began at ``started`` to end (SIGTERM); return whether it runs.

    No other process is signalled, also if it gets the number meanwhile (where the system has handles of processes:
    Linux since 5.3). Raises ``PermissionError`` for a process of another user.
    """
    try:
        handle = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except ProcessLookupError:
        return False
    try:
        if not still_runs(pid, started, tolerance):
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


def _since_boot(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    # the name may hold anything, parentheses too
    ticks = int(stat[stat.rindex(b")") + 1 :].split()[_START])
    return ticks / os.sysconf("SC_CLK_TCK")
