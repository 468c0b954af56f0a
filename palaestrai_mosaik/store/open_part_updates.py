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
#: the maximum share of time that updates take (as CPU time): with many wide rows, they become rarer
SHARE = 1 / 200
#: seconds of CPU time allowed beyond that share: a single slow update does not delay the next ones
ALLOWANCE = 0.1


class Shown(Protocol):
    """A stream with an open part."""

    def show(self) -> None:
        """Write rows that are only in memory to the open part."""


Streams = Callable[[], Iterable[Shown]]


class OpenPartUpdates:
    """Calls ``show`` of all streams repeatedly, until it is stopped.

    Args:
        streams: a method that returns the current streams. Its object is not kept alive; without it, the
            updates end.
    """

    def __init__(self, streams: Streams):
        self._stopped = threading.Event()
        arguments = (weakref.WeakMethod(streams), self._stopped)
        self._thread = threading.Thread(target=_update, args=arguments, name="open parts", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        # Every part needs it. In the thread, the import would take longer than some hundred updates, and a process
        # that is forked meanwhile could never import it.
        import pyarrow  # noqa: F401

        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; nothing is written afterwards."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()


def _update(reference: weakref.WeakMethod[Streams], stopped: threading.Event) -> None:
    left, looked = ALLOWANCE, monotonic()
    pause = SECONDS
    while not stopped.wait(pause):
        streams = reference()
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
