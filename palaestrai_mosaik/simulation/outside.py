"""Worlds in which somebody outside decides for some bodies; mosaik waits while he thinks.

The agents' simulator hands mosaik a future to wait for, and stops the event loop. Whoever drives
the loop finds out whose turn it is, decides, and lets it go on. So caller and world share a
thread, and an exception of either reaches the other as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import Any

from palaestrai_mosaik.errors import SimulationError

from .bridge import DIRECTOR, AgentsSimulator
from .director import AnyBody


class Outside:
    """The bodies for which somebody outside of the world decides."""

    def __init__(self, bodies: Collection[AnyBody]):
        self.bodies = frozenset(bodies)
        #: those of them that act now, in order; none, where he is only told that some have ended
        self.acting: Sequence[AnyBody] = ()
        self._ended: set[AnyBody] = set()
        self._decision: asyncio.Future[None] | None = None

    @property
    def asked(self) -> bool:
        """Whether the world waits for a decision."""
        return self._decision is not None

    def begin(self) -> None:
        """Forget the last episode."""
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

    def ask(self) -> asyncio.Future[None]:
        """Stop the loop; return what the world has to wait for."""
        loop = asyncio.get_running_loop()
        self._decision = loop.create_future()
        loop.stop()
        return self._decision

    def decided(self) -> None:
        """Let the world go on as soon as its loop does."""
        decision, self._decision = self._decision, None
        assert decision is not None
        decision.set_result(None)


class OutsideAgentsSimulator(AgentsSimulator):
    """The director and all agents of a world, of which some are decided for outside of it."""

    def step(  # type: ignore[override]  # mosaik runs generators, and waits for what they yield
        self, time: int, inputs: Mapping[str, Mapping[str, Mapping[str, Any]]], max_advance: int
    ) -> Generator[Any, Any, int | None]:
        director, outside = self.director, self.director.outside
        assert outside is not None
        try:
            acting = director.observe(time, inputs.get(DIRECTOR, {}))
        except BaseException as error:
            raise self.keep(error) from None
        if not director.over and outside.concerned(acting, director.some_done):
            yield outside.ask()
        try:
            for body in acting:
                body.act(time, inputs.get(body.name, {}))
            director.settle()
        except BaseException as error:
            raise self.keep(error) from None
        return self.answer(time)


def turns(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None], outside: Outside) -> Iterator[None]:
    """Run ``loop`` until ``task`` is done; stop wherever ``outside`` is asked.

    Who goes on has decided. Closing the iterator ends the task, with all that it has begun.
    """

    def stop(task: asyncio.Task[None]) -> None:
        loop.stop()

    outside.begin()
    task.add_done_callback(stop)
    try:
        while True:
            loop.run_forever()
            if task.done():
                break
            if outside.asked:
                yield
                outside.decided()
        task.result()
    except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        # asyncio lets the first two out at once, and leaves everything else standing
        task.remove_done_callback(stop)
        clean_up(loop, task)
        if isinstance(error, SystemExit):
            raise SimulationError(f"a simulator raised {error!r}") from error
        raise


def clean_up(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    """Let ``task`` end what it has begun, after an exception that went past it."""
    task.cancel()
    while not task.done():
        try:
            loop.run_until_complete(task)
        except (KeyboardInterrupt, SystemExit):
            continue  # the same one again, from a task that waited for the one that raised it
        except (Exception, asyncio.CancelledError):
            return  # the caller raises what came first
