"""Worlds with external control of some bodies; the world waits for each decision.

The coordinator's simulator asks the schedule a question; the schedule stops there, and continues with the answer.
In an event loop (with simulators in other processes, or mosaik's scheduler) it returns a future to wait for, and
stops the loop. The caller that drives the world looks up the acting bodies, decides, and continues. Caller and
world thus share a thread, and exceptions pass between them unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Coroutine, Iterator, Sequence
from typing import Any

from .body import AnyBody
from .event_loop import away, clean_up, complete
from .scheduler import Question


class ExternalControl:
    """The bodies that are controlled from outside of the world."""

    def __init__(self, bodies: Collection[AnyBody]):
        self.bodies = frozenset(bodies)
        #: those of them that act now, in order; empty if the caller only learns that some have ended
        self.acting: Sequence[AnyBody] = ()
        self._ended: set[AnyBody] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._decision: asyncio.Future[None] | None = None

    @property
    def asked(self) -> bool:
        """Whether the world waits for a decision."""
        return self._decision is not None

    def begin(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Forget the last episode. ``loop``: the event loop that the world runs in, if any."""
        self._loop = loop
        self.acting = ()
        self._ended.clear()
        self._decision = None

    def concerned(self, acting: Sequence[AnyBody], some_done: bool) -> bool:
        """Return whether the world must wait; ``some_done``: whether any environment has ended so far."""
        controlled = self.bodies
        self.acting = [body for body in acting if body in controlled]
        if not some_done:
            return bool(self.acting)
        ended = {body for body in controlled if body.out}
        has_news = not ended <= self._ended
        self._ended = ended
        return has_news or bool(self.acting)

    def ask(self) -> Awaitable[Any]:
        """Return the awaitable that the world waits for."""
        if self._loop is None:
            return Question()
        self._decision = self._loop.create_future()
        self._loop.stop()
        return self._decision

    def decided(self) -> None:
        """Let the world continue as soon as its loop runs."""
        decision, self._decision = self._decision, None
        assert decision is not None
        decision.set_result(None)


def turns(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None], outside: ExternalControl | None
) -> Iterator[None]:
    """Run ``coroutine`` in ``loop`` to its end, and yield whenever ``outside`` must decide.

    The caller must decide before it continues. Closing the iterator ends the coroutine and all that it started.
    """
    if outside is None:
        complete(loop, coroutine)
        return
    outside.begin(loop)
    task = loop.create_task(coroutine)

    def stop(task: asyncio.Task[None]) -> None:
        loop.stop()

    task.add_done_callback(stop)
    try:
        while True:
            away(loop.run_forever, loop)
            if task.done():
                break
            if outside.asked:
                yield
                outside.decided()
        task.result()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        # asyncio lets the first two pass immediately, and leaves everything else unfinished
        task.remove_done_callback(stop)
        away(lambda: clean_up(loop, task), loop)
        raise
