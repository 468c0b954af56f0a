"""Progress: a bar on a terminal, plain lines elsewhere (a log), or nothing. Every package may import it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TextIO, TypeVar

from palaestrai_mosaik.printing import Bar, write
from palaestrai_mosaik.text import one_line

T = TypeVar("T")
#: called with the number of things done, and the total
ProgressCallback = Callable[[int, int], object]

#: seconds between two lines, and between two updates of a count's bar
LINES, _BAR = 5.0, 0.1


def choose(
    silent: Callable[[], T],
    bar: Callable[[TextIO], T],
    lines: Callable[[TextIO], T],
    *,
    quiet: bool = False,
    stream: TextIO | None = None,
) -> T:
    """Choose the output for ``stream``: a bar on a terminal, else lines.

    Args:
        silent: makes the output if ``quiet``.
        bar: makes a bar on a stream.
        lines: makes lines on a stream.
        quiet: show nothing.
        stream: ``None``: standard error.

    Returns:
        The result of the chosen function.
    """
    stream = sys.stderr if stream is None else stream
    if quiet:
        return silent()
    return bar(stream) if stream.isatty() else lines(stream)


def print_line(stream: TextIO, text: str) -> None:
    """Print a line at once, with line ends in it escaped."""
    write(one_line(text), stream)


class Pace:
    """Decides when to show something again: after ``interval`` seconds."""

    def __init__(self, interval: float):
        self.interval = interval
        self.started = self.shown = time.perf_counter()

    def due(self) -> float | None:
        """Return the seconds since the last time, and restart the interval; ``None`` if it is too early."""
        now = time.perf_counter()
        if now - self.shown < self.interval:
            return None
        seconds, self.shown = now - self.shown, now
        return seconds

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started


class CountProgress:
    """A progress callback for things of one kind.

    The bar disappears once all are done; lines are printed only every few seconds, so that short work has none.
    ``name`` is the bar's, ``done`` the participle in lines, ``unit`` the noun.
    """

    def __init__(self, stream: TextIO, name: str, done: str, unit: str = "run"):
        self._stream, self._name, self._done, self._unit = stream, name, done, unit
        self._terminal = stream.isatty()
        self._bar: Bar | None = None
        self._pace: Pace | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._pace is None:
            # not before the first call, because each of several counts begins after the one before it
            self._pace = Pace(_BAR if self._terminal else LINES)
        if done >= total:
            self._close()
        elif self._pace.due() is None:
            return
        elif self._terminal:
            self._show(done, total)
        else:
            print_line(self._stream, f"{done:,} of {total:,} {self._unit}s {self._done}")

    def _show(self, done: int, total: int) -> None:
        if self._bar is None:
            # we decide when to show it, not tqdm
            options: dict[str, Any] = {"initial": done, "leave": False, "miniters": 1, "mininterval": 0}
            unit = f" {self._unit}s"
            self._bar = Bar(self._stream, total, self._name, unit, gives_way=True, **options)
            return
        self._bar.update(done - self._bar.count, total)

    def _close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()


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
