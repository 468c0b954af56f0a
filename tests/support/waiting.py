"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_Found = TypeVar("_Found")


def until(condition: Callable[[], _Found], seconds: float = 600) -> _Found:
    """Wait until ``condition()`` is true and return it; fail after ``seconds``, which only end a hang."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found
