"""The processes that a test has started."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import Any

import psutil


def children() -> set[psutil.Process]:
    """Return the processes that this one has started and that live.

    Compare with what lived before the test: the browser that tests share is among them. The processes that these have
    started come and go, and are left out.
    """
    return set(psutil.Process().children())


class Program(subprocess.Popen[Any]):
    """A program that is killed, with what it has started, when its ``with`` block is left by an exception.

    The block of a plain ``Popen`` would wait for its end: a test that fails would hang.
    """

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.kill_all()
        super().__exit__(kind, error, trace)

    def kill_all(self) -> None:
        """Kill the program and all processes below it."""
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self.kill()
