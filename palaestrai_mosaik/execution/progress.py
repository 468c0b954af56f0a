"""Displays the progress of executing a folder."""

from __future__ import annotations

import os
from typing import TextIO

from palaestrai_mosaik.printing import Bar
from palaestrai_mosaik.progress import LINES, Pace, choose, print_line

from .job import JobRecord


class FolderProgress:
    """Callbacks for the progress of executing a folder. This base class shows nothing."""

    def begin(self, total: int, processes: int) -> None:
        """Begin the display.

        Args:
            total: the number of runs.
            processes: the maximum number of concurrent runs.
        """

    def ended(self, record: JobRecord) -> None:
        """Count a run that has ended.

        Args:
            record: the record of the run.
        """

    def wait(self) -> None:
        """Announce the wait for the current runs after an interrupt. A signal handler calls this."""

    def end(self) -> None:
        """End the display."""


class _Counting(FolderProgress):
    def __init__(self, stream: TextIO):
        self.stream = stream
        self.total = self.done = self.failed = 0

    def begin(self, total: int, processes: int) -> None:
        # called once per round if the design grows
        self.total, self.done, self.failed = total, 0, 0

    def ended(self, record: JobRecord) -> None:
        self.done += 1
        self.failed += record.status == "failed"

    def wait(self) -> None:
        # not print(), because the signal may have interrupted a call to it
        os.write(2, b"\nwaiting for the current runs to end; press Ctrl-C again to kill them\n")


class RunLines(_Counting):
    """Prints plain lines for a log: at most one every five seconds, and one at the end."""

    def begin(self, total: int, processes: int) -> None:
        super().begin(total, processes)
        self._pace = Pace(LINES)
        self._last = -1
        print_line(self.stream, f"{total} runs, up to {processes} at the same time")

    def ended(self, record: JobRecord) -> None:
        super().ended(record)
        if self._pace.due() is not None:
            self._show()

    def end(self) -> None:
        if self._last != self.done:
            self._show()

    def _show(self) -> None:
        self._last, seconds = self.done, self._pace.seconds
        rate = self.done / seconds
        text = f"{self.done} of {self.total} runs, {self.failed} failed, {seconds:.0f} s, {rate:.3g} runs/s"
        left = self.total - self.done
        if left and rate:
            text += f", {left / rate:.0f} s left"
        print_line(self.stream, text)


class RunBar(_Counting):
    """Shows a progress bar with the rate, remaining time and failures."""

    def begin(self, total: int, processes: int) -> None:
        super().begin(total, processes)
        name = f"runs on {processes} cores" if processes > 1 else "runs"
        form = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
        self.bar = Bar(self.stream, total, name, "run", bar_format=form)

    def ended(self, record: JobRecord) -> None:
        super().ended(record)
        if self.failed:
            self.bar.say(f"{self.failed} failed", refresh=False)
        self.bar.update()

    def end(self) -> None:
        self.bar.close()


def make_progress(*, quiet: bool = False, stream: TextIO | None = None) -> FolderProgress:
    """Return a progress bar for a terminal, or plain lines for another stream.

    Args:
        quiet: show nothing.
        stream: the output stream; ``None``: standard error.
    """
    return choose(FolderProgress, RunBar, RunLines, quiet=quiet, stream=stream)
