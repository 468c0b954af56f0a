"""Whether the process that wrote something down still runs."""

from __future__ import annotations

import psutil


def still_runs(pid: int, started: float, tolerance: float) -> bool:
    """Whether the process ``pid`` of this host that began at ``started`` (Unix time) still runs.

    Numbers of processes are used again, so the start must agree within ``tolerance`` seconds:
    clocks are adjusted, and with them the start that the system reports for a process.
    """
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started) < tolerance
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:  # it exists; whose it is cannot be told
        return True
