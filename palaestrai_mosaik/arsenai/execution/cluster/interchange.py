"""A script that runs Parsl's interchange, the process between driver and pilots, so that it ends with the driver.

    python -P interchange.py STOP

Parsl's own interchange would outlive a killed driver, and keep the pilots running. This script then writes the file
``STOP``, which asks the runs to stop. The pilots end when they lose the interchange or, if they do not know it yet,
when ``STOP`` is no longer touched. It is a script without imports of the package, because it must start fast.
"""

import os
import runpy
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

#: seconds between two checks of the driver, and two touches of the file
_POLL = 0.5


def _end_with(driver: int, stop: Path) -> None:
    while os.getppid() == driver:
        # a few failed touches do not matter
        with suppress(OSError):
            os.utime(stop, follow_symlinks=False)
        time.sleep(_POLL)
    try:
        # open only the driver's regular file, not a link or pipe that has replaced it
        handle = os.open(stop, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "w") as file:
            file.write("the driver is gone\n")
    finally:
        os._exit(1)


def main() -> None:
    """Run the interchange, and watch the parent process."""
    # only the driver gets signals to its group, such as Ctrl-C; it stops the runs
    os.setsid()
    stop = Path(sys.argv.pop(1))
    threading.Thread(target=_end_with, args=(os.getppid(), stop), daemon=True).start()
    runpy.run_module("parsl.executors.high_throughput.interchange", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
