"""A pseudo-terminal in the place of standard output and error."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 100) -> Iterator[Callable[[], str]]:
    """Let standard output and error be a terminal; what is yielded returns what it got, once the block is over."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    got: list[bytes] = []

    def read() -> None:
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # its other end is closed
                return
            if not data:
                return
            got.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with monkeypatch.context() as patched, os.fdopen(theirs, "w", buffering=1) as stream:
            patched.setattr(sys, "stdout", stream)
            patched.setattr(sys, "stderr", stream)
            yield lambda: b"".join(got).decode()
    finally:
        reader.join()
        os.close(ours)
