"""``python -m palaestrai_mosaik.cli.pilot ALIVE SECONDS ...``: a Parsl pilot that does not outlive its driver.

This process runs Parsl's worker pool with the remaining arguments. A worker pool waits forever if its interchange dies
during registration. Therefore, the driver touches the file ``ALIVE`` continually. If it has not been touched for
``SECONDS``, this process kills its children and exits.
"""

import os
import runpy
import sys
import threading
import time

import psutil

from palaestrai_mosaik.core.printing import write

#: number of checks of the file in the given time
_LOOKS = 15


def _end_without(alive: str, seconds: float) -> None:
    # count checks instead of seconds, because each may take long if a file system hangs
    silent, before = 0, _touched(alive)
    while silent < _LOOKS:
        time.sleep(seconds / _LOOKS)
        now = _touched(alive)
        silent, before = (silent + 1 if now == before else 0), now
    write(f"nobody has touched {alive} for {seconds:g} s: the driver is gone", sys.stderr)
    for process in psutil.Process().children(recursive=True):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    os._exit(1)


def _touched(path: str) -> int | None:
    try:
        # opening the file forces a network file system to query the server
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None


def main() -> None:
    """Watch the driver, and run the worker pool."""
    alive, seconds = sys.argv.pop(1), float(sys.argv.pop(1))
    threading.Thread(target=_end_without, args=(alive, seconds), daemon=True).start()
    runpy.run_module(
        "parsl.executors.high_throughput.process_worker_pool", run_name="__main__", alter_sys=True
    )


if __name__ == "__main__":
    main()
