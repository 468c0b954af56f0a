"""How far something is: a bar on a terminal, plain lines elsewhere (a log), or nothing. Every package may import it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar

if TYPE_CHECKING:
    from tqdm import tqdm

T = TypeVar("T")

#: seconds between two lines, and between two updates of the bar of a count
LINES, _BAR = 5.0, 0.1


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

    ``name`` is the bar's, ``done`` what lines say of them, ``unit`` one of them.
    """

    def __init__(self, stream: TextIO, name: str, done: str, unit: str = "run"):
        self._stream, self._name, self._done, self._unit = stream, name, done, unit
        self._bar: tqdm[Any] | None = None
        self._pace = Pace(_BAR if stream.isatty() else LINES)

    def __call__(self, done: int, total: int) -> None:
        if self._pace.due() is None:
            return
        if not self._stream.isatty():
            print_line(self._stream, f"{done:,} of {total:,} {self._unit}s {self._done}")
            return
        if self._bar is None:
            self._bar = new_bar(self._stream, total, self._name, self._unit, leave=False)
        self._bar.update(done - self._bar.n)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.close()
