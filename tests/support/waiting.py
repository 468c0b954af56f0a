"""Waiting for what other processes and threads do."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

_Value = TypeVar("_Value")

#: Seconds after which a test takes something for a hang: no matter how slow the machine is, it ends sooner.
#: pytest-timeout ends a whole test later than this.
HANG = 600.0


def until(condition: Callable[[], _Value], seconds: float = HANG) -> _Value:
    """Wait until ``condition()`` is true and return it; fail after ``seconds``, which only end a hang."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return value


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Let ``work`` go on in a thread while the block does.

    The block may wait for what the work does. So where the work fails, it interrupts the block as Ctrl-C does, and
    what it raised is raised at the end of the block.
    """
    errors: list[BaseException] = []
    over = threading.Event()

    def go() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
            # no matter of speed: by then the block has begun; if not, this fails in another way
            if not over.wait(0.5):
                # (a signal wakes it from what it waits for; _thread.interrupt_main does not)
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    try:
        yield
    except KeyboardInterrupt:
        if not errors:
            raise
    finally:
        over.set()
    thread.join(HANG)
    if errors:
        raise errors[0]
    assert not thread.is_alive(), "the work does not end"
