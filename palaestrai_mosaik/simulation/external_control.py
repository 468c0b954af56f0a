"""Worlds in which somebody outside decides for some bodies; the world waits for the decision.

The coordinator's simulator asks the schedule a question, which stops there, and goes on with the answer. In an event
loop (with simulators in other processes, or mosaik's scheduler) it hands out a future to wait for, and
stops the loop. Whoever drives the world finds out whose turn it is, decides, and lets it go on. So caller and
world share a thread, and an exception of either reaches the other as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Coroutine, Iterator, Sequence
from typing import Any

from .body import AnyBody
from .event_loop import away, clean_up, complete
from .scheduler import Question


class ExternalControl:
    """The bodies for which somebody outside of the world decides."""

    def __init__(self, bodies: Collection[AnyBody]):
        self.bodies = frozenset(bodies)
        #: those of them that act now, in order; none, where he is only told that some have ended
        self.acting: Sequence[AnyBody] = ()
        self._ended: set[AnyBody] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._decision: asyncio.Future[None] | None = None

    @property
    def asked(self) -> bool:
        """Whether the world waits for a decision."""
        return self._decision is not None

    def begin(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Forget the last episode. ``loop``: the event loop in which the world runs, if it runs in one."""
        self._loop = loop
        self.acting = ()
        self._ended.clear()
        self._decision = None

    def concerned(self, acting: Sequence[AnyBody], some_done: bool) -> bool:
        """Return whether the world must wait; ``some_done``: some environment has ended before or now."""
        own = self.bodies
        self.acting = [body for body in acting if body in own]
        if not some_done:
            return bool(self.acting)
        ended = {body for body in own if body.out}
        news = not ended <= self._ended
        self._ended = ended
        return news or bool(self.acting)

    def ask(self) -> Awaitable[Any]:
        """Return what the world has to wait for."""
        if self._loop is None:
            return Question()
        self._decision = self._loop.create_future()
        self._loop.stop()
        return self._decision

    def decided(self) -> None:
        """Let the world go on as soon as its loop does."""
        decision, self._decision = self._decision, None
        assert decision is not None
        decision.set_result(None)


def turns(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None], outside: ExternalControl | None
) -> Iterator[None]:
    """Run ``coroutine`` in ``loop`` until it is done; stop wherever ``outside`` is asked.

    Who goes on has decided. Closing the iterator ends the coroutine, with all that it has begun.
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
        # asyncio lets the first two out at once, and leaves everything else standing
        task.remove_done_callback(stop)
        away(lambda: clean_up(loop, task), loop)
        raise
