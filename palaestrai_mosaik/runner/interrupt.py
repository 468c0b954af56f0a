"""Signals that end a run between two steps, with its record intact."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

from palaestrai_mosaik.core.printing import use_null_device

#: the signal of a lost terminal or connection, which Windows lacks
HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
_STANDARD_OUTPUTS = (1, 2)


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that ask this process to end; includes SIGHUP unless ``nohup`` ignores it."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if HANGUP is not None and signal.getsignal(HANGUP) is not signal.SIG_IGN:
        numbers.append(HANGUP)
    return tuple(numbers)


def leave_terminal() -> None:
    """Redirect output to a lost terminal to the null device, because each write would raise ``OSError``."""
    for descriptor in _STANDARD_OUTPUTS:
        try:
            os.write(descriptor, b"")
        except OSError:
            with suppress(OSError):
                use_null_device(descriptor)


class Interrupt:
    """Sets ``requested`` on SIGINT, SIGTERM and SIGHUP, while its block is executed.

    A second SIGINT or SIGTERM raises ``KeyboardInterrupt``. A second SIGHUP does not, because a shell may send two when
    a connection is lost. Outside of the main thread, where Python allows no signal handlers, only :meth:`request` sets
    it.
    """

    def __init__(self) -> None:
        self.requested = False
        #: why to stop the run after its current episode in favour of better runs; ``None`` to continue
        self.pruned: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def request(self) -> None:
        """Ask the run to end."""
        self.requested = True

    def prune(self, why: str) -> None:
        """Ask the run to stop before its next episode, because other runs are more promising.

        Args:
            why: the reason, for the run's log.
        """
        self.pruned = why

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == HANGUP:
            leave_terminal()
        elif self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in ending_signals():
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
