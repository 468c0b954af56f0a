"""Shows how far a command is with many things of one kind: a bar on a terminal, else lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TextIO

#: seconds between two lines, and between two looks of the bar
_LINES, _BAR = 5.0, 0.1


class CountProgress:
    """Called with how many runs are done of how many; ``name`` is the bar's, ``done`` what lines say of them.

    ``unit``: one of what is counted.
    """

    def __init__(self, stream: TextIO, name: str, done: str, unit: str = "run"):
        self._stream, self._name, self._done, self._unit = stream, name, done, unit
        self._show: Callable[[int, int], None] = self._bar if stream.isatty() else self._line
        self._tqdm: Any = None
        self._interval = _BAR if stream.isatty() else _LINES
        self._shown = time.perf_counter()

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if now - self._shown >= self._interval:
            self._shown = now
            self._show(done, total)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        if self._tqdm is not None:
            self._tqdm.close()

    def _line(self, done: int, total: int) -> None:
        print(f"{done:,} of {total:,} {self._unit}s {self._done}", file=self._stream, flush=True)

    def _bar(self, done: int, total: int) -> None:
        if self._tqdm is None:
            from tqdm import tqdm

            self._tqdm = tqdm(
                total=total,
                desc=self._name,
                unit=self._unit,
                file=self._stream,
                leave=False,
                dynamic_ncols=True,
            )
        self._tqdm.update(done - self._tqdm.n)
