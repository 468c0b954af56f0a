"""How the execution of a folder tells what it is doing: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO

from tqdm import tqdm

from .job import JobRecord


class FolderProgress:
    """Told about the execution of a folder. This one is silent."""

    def begin(self, total: int, processes: int) -> None:
        """``total`` runs are to be executed, up to ``processes`` at the same time."""

    def ended(self, record: JobRecord) -> None:
        """A run has ended."""

    def wait(self) -> None:
        """The user wants the end, runs that go on are waited for. Called by a signal handler."""

    def end(self) -> None:
        """No run goes on any more."""


class _Counting(FolderProgress):
    def __init__(self, stream: TextIO):
        self.stream = stream
        self.total = self.done = self.failed = 0

    def begin(self, total: int, processes: int) -> None:
        self.total = total

    def ended(self, record: JobRecord) -> None:
        self.done += 1
        self.failed += record.status == "failed"

    def wait(self) -> None:
        # not by print: the signal may have come in the middle of one
        os.write(2, b"\nwaiting for the runs that go on to end; Ctrl-C again kills them\n")


class RunLines(_Counting):
    """Plain lines, for a log: at most one every five seconds, and one at the end."""

    interval = 5.0

    def begin(self, total: int, processes: int) -> None:
        super().begin(total, processes)
        self._started = self._shown = time.perf_counter()
        self._told = -1
        self._print(f"{total} runs, up to {processes} at the same time")

    def ended(self, record: JobRecord) -> None:
        super().ended(record)
        if time.perf_counter() - self._shown >= self.interval:
            self._show()

    def end(self) -> None:
        if self._told != self.done:
            self._show()

    def _show(self) -> None:
        self._shown, self._told = time.perf_counter(), self.done
        seconds = self._shown - self._started
        rate = self.done / seconds
        text = f"{self.done} of {self.total} runs, {self.failed} failed, {seconds:.0f} s, {rate:.3g} runs/s"
        left = self.total - self.done
        if left and rate:
            text += f", {left / rate:.0f} s left"
        self._print(text)

    def _print(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


class RunBar(_Counting):
    """A bar over the runs, with rate, time left and failures."""

    def begin(self, total: int, processes: int) -> None:
        super().begin(total, processes)
        self.bar = tqdm(
            total=total,
            desc=f"runs on {processes} cores" if processes > 1 else "runs",
            unit="run",
            file=self.stream,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]",
            dynamic_ncols=True,
        )

    def ended(self, record: JobRecord) -> None:
        super().ended(record)
        if self.failed:
            self.bar.set_postfix_str(f"{self.failed} failed", refresh=False)
        self.bar.update()

    def end(self) -> None:
        self.bar.close()


def make_progress(*, quiet: bool = False, stream: TextIO | None = None) -> FolderProgress:
    """Return what suits ``stream`` (standard error): a bar on a terminal, else plain lines."""
    stream = sys.stderr if stream is None else stream
    if quiet:
        return FolderProgress()
    return RunBar(stream) if stream.isatty() else RunLines(stream)
