"""Coroutines that are run to their end, also where an event loop runs already (as it does in notebooks)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


def complete(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what ``coroutine`` returns, run in ``loop``; it ends what it has begun before Ctrl-C gets through."""
    task = loop.create_task(coroutine)
    try:
        return away(lambda: loop.run_until_complete(task), loop)
    except (KeyboardInterrupt, SystemExit):
        # asyncio lets these two out at once, and leaves everything else standing
        away(lambda: clean_up(loop, task), loop)
        raise


def away(call: Callable[[], T], loop: asyncio.AbstractEventLoop) -> T:
    """Call what runs ``loop``: here, or in another thread while this one waits, if it runs an event loop itself."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    thread, future = in_thread(call, "palaestrai-mosaik")
    try:
        return future.result()
    except KeyboardInterrupt:
        # it has reached this thread only
        if thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
        raise
    finally:
        thread.join()


def in_thread(call: Callable[[], T], name: str, *, daemon: bool = False) -> tuple[Thread, Future[T]]:
    """Call it in a thread of its own, with the variables of this context; return the thread and what comes of it."""
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
    """Let ``task`` end what it has begun, after an exception that went past it."""
    task.cancel()
    while not task.done():
        try:
            loop.run_until_complete(task)
        except (KeyboardInterrupt, SystemExit):
            continue  # the same one again, from a task that waited for the one that raised it
        except (Exception, asyncio.CancelledError):
            return  # the caller raises what came first
