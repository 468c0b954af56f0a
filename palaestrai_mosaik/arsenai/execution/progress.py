"""Displays the progress of executing a folder."""

from __future__ import annotations

import os
from typing import TextIO

from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.core.progress import Display

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


class ShownProgress(FolderProgress):
    """Shows a bar with the rate, remaining time and failures, or a line every five seconds and one at the end."""

    def __init__(self, stream: TextIO | None = None):
        self.display = Display(stream)
        self.total = self.done = self.failed = 0

    def begin(self, total: int, processes: int) -> None:
        # called once per round if the design grows
        self.total, self.done, self.failed, self._last = total, 0, 0, -1
        self.display.restart()
        self.display.line(f"{count(total, 'run')}, up to {processes} at the same time")
        name = f"runs on {processes} cores" if processes > 1 else "runs"
        form = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
        self.display.begin(total, name, "run", bar_format=form)

    def ended(self, record: JobRecord) -> None:
        self.done += 1
        self.failed += record.status == "failed"
        if self.failed:
            self.display.say(f"{self.failed} failed", refresh=False)
        self.display.advance()
        if self.display.due() is not None:
            self._print_line()

    def wait(self) -> None:
        # not print(), because the signal may have interrupted a call to it
        os.write(2, b"\nwaiting for the current runs to end; press Ctrl-C again to kill them\n")

    def end(self) -> None:
        if self._last != self.done:
            self._print_line()
        self.display.close()

    def _print_line(self) -> None:
        self._last, seconds = self.done, self.display.seconds
        rate = self.done / seconds
        text = f"{self.done} of {count(self.total, 'run')}, {self.failed} failed, {seconds:.0f} s, {rate:.3g} runs/s"
        left = self.total - self.done
        if left and rate:
            text += f", {left / rate:.0f} s left"
        self.display.line(text)


def make_progress(*, quiet: bool = False, stream: TextIO | None = None) -> FolderProgress:
    """Return a progress bar for a terminal, or plain lines for another stream.

    Args:
        quiet: show nothing.
        stream: the output stream; ``None``: standard error.
    """
    return FolderProgress() if quiet else ShownProgress(stream)
