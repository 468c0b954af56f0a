"""How far something is: a bar on a terminal, plain lines elsewhere (a log), or nothing. Every package may import it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar

if TYPE_CHECKING:
    from tqdm import tqdm

T = TypeVar("T")
#: called with how many things are done, and of how many
ProgressCallback = Callable[[int, int], object]

#: seconds between two lines, and between two updates of the bar of a count
LINES, _BAR = 5.0, 0.1
#: the bars of counts that are on the terminal
_shown: list[tqdm[Any]] = []


def choose(
    silent: Callable[[], T],
    bar: Callable[[TextIO], T],
    lines: Callable[[TextIO], T],
    *,
    quiet: bool = False,
    stream: TextIO | None = None,
) -> T:
    """Return what suits ``stream`` (standard error): a bar on a terminal, else lines; ``silent`` if ``quiet``."""
    stream = sys.stderr if stream is None else stream
    if quiet:
        return silent()
    return bar(stream) if stream.isatty() else lines(stream)


def new_bar(stream: TextIO, total: int | None, name: str, unit: str, **options: Any) -> tqdm[Any]:
    """Return a bar that follows the terminal's width; ``options`` are those of tqdm."""
    from tqdm import tqdm

    return tqdm(total=total, desc=name, unit=unit, file=stream, dynamic_ncols=True, **options)


def print_line(stream: TextIO, text: str) -> None:
    """Print a line, at once."""
    print(text, file=stream, flush=True)


class Pace:
    """Says when to show something again: after ``interval`` seconds."""

    def __init__(self, interval: float):
        self.interval = interval
        self.started = self.shown = time.perf_counter()

    def due(self) -> float | None:
        """Return the seconds since the last time, which is now then; ``None`` where it is too early."""
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
    """Called with how many things of one kind are done of how many.

    A bar is gone once all are done; lines come every few seconds only, so that short work has none. ``name`` is
    the bar's, ``done`` what lines say of them, ``unit`` one of them.
    """

    def __init__(self, stream: TextIO, name: str, done: str, unit: str = "run"):
        self._stream, self._name, self._done, self._unit = stream, name, done, unit
        self._terminal = stream.isatty()
        self._bar: tqdm[Any] | None = None
        self._pace: Pace | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._pace is None:
            # (not before the first call: of several counts, each begins where the one before ends)
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
            # (when to show it is decided here, not by tqdm)
            options = {"initial": done, "leave": False, "miniters": 1, "mininterval": 0}
            self._bar = new_bar(self._stream, total, self._name, f" {self._unit}s", **options)
            _shown.append(self._bar)
            return
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def _close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.close()
            _shown.remove(self._bar)
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()


class PartsProgress:
    """Adds up what is done of several parts, one after the other; ``progress`` is called with the sum.

    It is called itself with how much of the current part is done.
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
        """Say that so many more of the current part are done."""
        self(self._done + number)

    def end(self, size: int = 1) -> None:
        """Say that the current part is done, and how large it was."""
        self._before += size
        self(0)


@contextmanager
def bars_hidden() -> Iterator[None]:
    """Take the bars of counts off the terminal as long as something else is printed."""
    for bar in _shown:
        bar.clear()
    try:
        yield
    finally:
        for bar in _shown:
            bar.refresh()
