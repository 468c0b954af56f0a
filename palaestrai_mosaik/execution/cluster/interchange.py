"""A script that runs Parsl's interchange, the process between driver and pilots, so that it ends with the driver.

    python -P interchange.py STOP

Parsl's own one would outlive a driver that is killed, and keep the pilots at work. Here the file
``STOP`` is written then, which asks the runs to stop; the pilots end when they miss
the interchange, or, before they know it, when ``STOP`` is not touched any more. It is a script, no module of the package: it needs nothing of that, and must start at once.
"""

import os
import runpy
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

#: seconds between two looks whether the driver is there, and two touches
_POLL = 0.5


def _end_with(driver: int, stop: Path) -> None:
    while os.getppid() == driver:
        # (a few that fail do not matter)
        with suppress(OSError):
            os.utime(stop, follow_symlinks=False)
        time.sleep(_POLL)
    try:
        # the driver has made it: what else is there by now is none of ours
        handle = os.open(stop, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "w") as file:
            file.write("the driver is gone\n")
    finally:
        os._exit(1)


def main() -> None:
    """Watch the parent process, and be the interchange."""
    # signals to its group, such as Ctrl-C, are for the driver, which tells the runs
    os.setsid()
    stop = Path(sys.argv.pop(1))
    threading.Thread(target=_end_with, args=(os.getppid(), stop), daemon=True).start()
    runpy.run_module("parsl.executors.high_throughput.interchange", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
