"""A thread that keeps the open parts of a phase up to date, so that readers are about a second behind the run.

The run itself need not look at a clock for that: rows also appear while it waits for a slow environment, or trains a
brain for minutes.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from time import monotonic, thread_time
from typing import Protocol

#: seconds between two updates, if they are cheap
SECONDS = 0.5
#: updates take this share of the time at most (as CPU time): where rows are wide and many, they get rarer
SHARE = 1 / 200
#: seconds of CPU time that may be used ahead of that: a single update that takes long does not delay the next ones
ALLOWANCE = 0.1


class Shown(Protocol):
    """What has an open part."""

    def show(self) -> None:
        """Write to the open part what is only in memory."""


Streams = Callable[[], Iterable[Shown]]


class OpenPartUpdates:
    """Calls ``show`` of all streams again and again, until it is stopped.

    Args:
        streams: a method that returns the streams as they are now. Its object is not kept alive: without it, the
            updates end.
    """

    def __init__(self, streams: Streams):
        self._stopped = threading.Event()
        arguments = (weakref.WeakMethod(streams), self._stopped)
        self._thread = threading.Thread(target=_update, args=arguments, name="open parts", daemon=True)

    def start(self) -> None:
        """Begin."""
        # Every part needs it. Imported in the thread, it would take longer than some hundred updates, and a process
        # that is forked meanwhile could never import it.
        import pyarrow  # noqa: F401

        self._thread.start()

    def stop(self) -> None:
        """End; afterwards nothing is written any more."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()


def _update(of: weakref.WeakMethod[Streams], stopped: threading.Event) -> None:
    left, looked = ALLOWANCE, monotonic()
    pause = SECONDS
    while not stopped.wait(pause):
        streams = of()
        if streams is None:
            return
        before = thread_time()
        for stream in streams():
            stream.show()
        del streams
        now = monotonic()
        left = min(ALLOWANCE, left + SHARE * (now - looked)) - (thread_time() - before)
        looked = now
        pause = max(SECONDS, -left / SHARE)
