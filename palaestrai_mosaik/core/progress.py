"""Progress: a bar on a terminal, plain lines elsewhere (a log), or nothing. Every package may import it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TextIO

from palaestrai_mosaik.core.printing import Bar, count, one_line, write

#: called with the number of things done, and the total
ProgressCallback = Callable[[int, int], object]

#: seconds between two lines, and between two updates of a count's bar
LINES, _BAR = 5.0, 0.1


class Display:
    """A bar on a terminal, or else lines in a log.

    :meth:`line` prints only without a bar, and the other methods change only a bar.

    Args:
        stream: the output; ``None``: standard error.
        refresh: seconds between two updates of a bar, for :meth:`due`.
    """

    def __init__(self, stream: TextIO | None = None, refresh: float = 0.0):
        self.stream = sys.stderr if stream is None else stream
        self._terminal = self.stream.isatty()
        self._interval = refresh if self._terminal else LINES
        self._bar: Bar | None = None
        self.restart()

    def restart(self) -> None:
        """Restart the clock."""
        self._started = self._shown = time.perf_counter()

    def due(self) -> float | None:
        """Return the seconds since the last time, and restart the interval; ``None`` if it is too early."""
        now = time.perf_counter()
        if now - self._shown < self._interval:
            return None
        seconds, self._shown = now - self._shown, now
        return seconds

    @property
    def seconds(self) -> float:
        """Seconds since the start of the clock."""
        return time.perf_counter() - self._started

    def line(self, text: str) -> None:
        """Print a line at once, with line ends in it escaped."""
        if not self._terminal:
            write(one_line(text), self.stream)

    def begin(self, total: int | None, name: str, unit: str, **options: Any) -> None:
        """Show a bar; see :class:`~palaestrai_mosaik.core.printing.Bar`."""
        if self._terminal:
            self._bar = Bar(self.stream, total, name, unit, **options)

    def advance(self, number: int | bool = 1) -> None:
        """Count ``number`` more units."""
        if self._bar is not None:
            self._bar.update(number)

    def move(self, done: int, total: int) -> bool:
        """Set the number of units; return whether there is a bar."""
        if self._bar is not None:
            self._bar.update(done - self._bar.count, total)
        return self._bar is not None

    def say(self, *texts: str, needed: int = 1, refresh: bool = True) -> None:
        """Show ``texts`` behind the bar; see :meth:`~palaestrai_mosaik.core.printing.Bar.say`."""
        if self._bar is not None:
            self._bar.say(*texts, needed=needed, refresh=refresh)

    def close(self) -> None:
        """End the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class CountProgress:
    """A progress callback for things of one kind.

    The bar disappears once all are done; lines are printed only every few seconds, so that short work has none.
    ``name`` is the bar's, ``done`` the participle in lines, ``unit`` the noun.
    """

    def __init__(self, stream: TextIO, name: str, done: str, unit: str = "run"):
        self._stream, self._name, self._done, self._unit = stream, name, done, unit
        self._display: Display | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._display is None:
            # not before the first call, because each of several counts begins after the one before it
            self._display = Display(self._stream, _BAR)
        if done >= total:
            self._display.close()
        elif self._display.due() is not None:
            self._display.line(f"{done:,} of {count(total, self._unit)} {self._done}")
            if not self._display.move(done, total):
                # we decide when to show it, not tqdm
                options: dict[str, Any] = {"initial": done, "leave": False, "miniters": 1, "mininterval": 0}
                self._display.begin(total, self._name, f" {self._unit}s", gives_way=True, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display is not None:
            self._display.close()


class PartsProgress:
    """Adds up the progress of consecutive parts; ``progress`` is called with the sum.

    Call it with the progress within the current part.
    """

    def __init__(self, progress: ProgressCallback | None, total: int):
        self._progress, self._total = progress, total
        self._before = self._done = 0
        self(0)

    def __call__(self, done: int, total: int | None = None) -> None:
        self._done = done
        if self._progress is not None:
            self._progress(self._before + done, self._total)

    def add(self, number: int) -> None:
        """Add ``number`` to the progress within the current part."""
        self(self._done + number)

    def end(self, size: int = 1) -> None:
        """Finish the current part, of this size."""
        self._before += size
        self(0)
