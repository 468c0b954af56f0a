"""Ctrl-C ends a run between two steps, and keeps what was recorded."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """While entered, SIGINT and SIGTERM request the end (``requested``).

    A second signal raises ``KeyboardInterrupt`` at once. Outside of the main thread,
    where Python allows no signal handlers, it only holds the request.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.requested = False
        #: why the run is to be stopped early, after an episode, as others are better; ``None``: it is not
        self.pruned: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def request(self) -> None:
        """Ask the run to end."""
        self.requested = True

    def prune(self, why: str) -> None:
        """Ask the run to stop before its next episode, because it is not worth going on."""
        self.pruned = why

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in self.SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
