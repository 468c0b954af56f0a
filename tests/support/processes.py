"""The processes that a test has started."""

from __future__ import annotations

import psutil


def children() -> set[psutil.Process]:
    """Return the processes that this one has started and that live.

    Compare with what lived before the test: the browser that tests share is among them. The processes that these have
    started come and go, and are left out.
    """
    return set(psutil.Process().children())
