"""``python -m palaestrai_mosaik.cli.pilot ALIVE SECONDS ...``: a pilot of Parsl that does not outlive its driver.

The rest of the command line is that of Parsl's worker pool, which this process is. That waits for ever for an
interchange which dies while the two get to know each other. So the driver's side touches the file ``ALIVE``
all the time; if it has not for ``SECONDS``, this process ends, and all that it has started.
"""

import os
import runpy
import sys
import threading
import time

import psutil

#: looks at the file within the time that is given
_LOOKS = 15


def _end_without(alive: str, seconds: float) -> None:
    # looks are counted, not seconds: each may take long where a file system does not answer for a while
    silent, before = 0, _touched(alive)
    while silent < _LOOKS:
        time.sleep(seconds / _LOOKS)
        now = _touched(alive)
        silent, before = (silent + 1 if now == before else 0), now
    print(f"nobody has touched {alive} for {seconds:g} s: the driver is gone", file=sys.stderr, flush=True)
    for process in psutil.Process().children(recursive=True):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    os._exit(1)


def _touched(path: str) -> int | None:
    try:
        # opening makes a network file system ask the server
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None


def main() -> None:
    """Watch the driver, and be the worker pool."""
    alive, seconds = sys.argv.pop(1), float(sys.argv.pop(1))
    threading.Thread(target=_end_without, args=(alive, seconds), daemon=True).start()
    runpy.run_module(
        "parsl.executors.high_throughput.process_worker_pool", run_name="__main__", alter_sys=True
    )


if __name__ == "__main__":
    main()
