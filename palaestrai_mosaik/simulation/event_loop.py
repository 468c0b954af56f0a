"""Running coroutines to their end, even if an event loop is already running, as in notebooks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


def complete(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run ``coroutine`` in ``loop`` and return its result; on Ctrl-C, let it clean up first."""
    task = loop.create_task(coroutine)
    try:
        return away(lambda: loop.run_until_complete(task), loop)
    except (KeyboardInterrupt, SystemExit):
        # asyncio lets these two pass immediately, and leaves everything else unfinished
        away(lambda: clean_up(loop, task), loop)
        raise


def away(call: Callable[[], T], loop: asyncio.AbstractEventLoop) -> T:
    """Call a function that runs ``loop``, in another thread if this one already runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    thread, future = in_thread(call, "palaestrai-mosaik")
    try:
        return future.result()
    except KeyboardInterrupt:
        # it has only reached this thread
        if thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
        raise
    finally:
        thread.join()


def in_thread(call: Callable[[], T], name: str, *, daemon: bool = False) -> tuple[Thread, Future[T]]:
    """Call ``call`` in a new thread, with this context's variables; return the thread and the future result."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    context = copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:
            future.set_exception(error)

    thread = Thread(target=work, name=name, daemon=daemon)
    thread.start()
    return thread, future


def clean_up(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    """Cancel ``task`` and let it clean up, after an exception has bypassed it."""
    task.cancel()
    while not task.done():
        try:
            loop.run_until_complete(task)
        except (KeyboardInterrupt, SystemExit):
            continue  # the same exception again, from a task that waited for the one that raised it
        except (Exception, asyncio.CancelledError):
            return  # the caller raises the first exception
