"""One episode: runs it in its mosaik world, and shuts the world down.

An episode is one run of a world; the domain objects (environments, muscles, brains) outlive it. :mod:`.world_builder`
builds the world for each episode. If all simulators are in this process, the world is built once and rewound for the
next episode, and only simulators of co-simulations are replaced.

By default the package's own schedule (:mod:`.scheduler`) determines the simulators' steps. If all simulators
are in this process, it needs an event loop only to build the world; otherwise it runs in one. With
``scheduler: mosaik``, mosaik's own scheduler runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from . import mosaik_internals as internals
from .bridge import ordinary
from .event_loop import complete
from .external_control import turns
from .scheduler import Schedule
from .world_builder import EpisodeSettings, RewindingBuilder, WorldBuilder
from .world_run import StopRequested, explain, run, shut_down, standstill


@dataclass
class Episode(EpisodeSettings):
    """One episode of one worker, about to be run."""

    #: the builder of the previous episode's world, if reusable; after :meth:`run`, that of this one
    builder: RewindingBuilder | None = None
    #: called with a newly built world, before its first step
    on_built: Callable[[WorldBuilder], None] | None = None

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the episode to its end. The coordinator then has the reason.

        It has none if the user requested the end while a remote simulator was busy.
        """
        for _ in self.turns(loop):
            raise AssertionError("somebody outside was asked, and there is nobody")

    def turns(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Run the episode, and yield at each external decision (:attr:`EpisodeCoordinator.external_control`).

        The caller must decide before it continues. Closing the iterator ends the episode and all that it started.
        """
        before, self.builder = self.builder, None
        builder = RewindingBuilder(self) if before is None else before.rewind(self)
        if builder is not before:
            try:
                self._build(builder, loop)
            except StopRequested:
                return
        try:
            if isinstance(builder.schedule, Schedule):
                yield from _directly(self, builder, builder.schedule)
            else:
                yield from turns(loop, _in_loop(self, builder), self.coordinator.external_control)
        except GeneratorExit:
            # this is no failure, so the next episode may use the same world
            self.builder = builder if builder.rewinds else None
            raise
        finally:
            if not builder.rewinds:
                _shut_down(self, builder, loop)
            else:
                builder.finalize(hurried=_is_hurried(self, builder))
        if builder.rewinds:
            self.builder = builder

    def _build(self, builder: WorldBuilder, loop: asyncio.AbstractEventLoop) -> None:
        try:
            complete(loop, builder.build())
            if self.on_built is not None:
                self.on_built(builder)
        except BaseException as error:
            _shut_down(self, builder, loop)
            if isinstance(error, SystemExit):
                raise ordinary(error, "a simulator") from error
            raise


def _directly(episode: Episode, builder: WorldBuilder, schedule: Schedule) -> Iterator[None]:
    """Run a world with all simulators in this process."""
    coordinator = episode.coordinator
    if coordinator.external_control is not None:
        coordinator.external_control.begin()
    try:
        while True:
            try:
                # sends the answer into the coroutine of mosaik's run, which goes on to the next request
                asked = schedule.advance()
            except BaseException as error:
                cause = _cause(error, builder, schedule)
                if cause is error:
                    raise
                raise cause from cause.__cause__
            if asked is None:
                break
            yield
    finally:
        schedule.close()
    if not coordinator.over and not episode.wants_end():
        raise standstill(builder.world)


def _cause(error: BaseException, builder: WorldBuilder, schedule: Schedule) -> BaseException:
    """Return the exception to raise for one that came from a simulator."""
    if builder.failures:
        return builder.failures[0]
    sid = next((runner.origin.sid for runner in schedule.runners if runner.moment is not None), "?")
    return ordinary(explain(sid, error, remote=False), "a simulator")


async def _in_loop(episode: Episode, builder: WorldBuilder) -> None:
    """Run a world in an event loop, for simulators in other processes or mosaik's scheduler."""
    coordinator, schedule = episode.coordinator, builder.schedule
    assert not isinstance(schedule, Schedule)
    # if the user wants the end, the coordinator's episode is not over, and the caller notices that
    with suppress(StopRequested):
        await run(
            builder.world,
            schedule=schedule,
            lazy_stepping=builder.lazy,
            over=lambda: coordinator.over,
            wants_end=episode.wants_end,
            timeouts=builder.timeouts,
            failures=builder.failures,
        )


def _is_hurried(episode: Episode, builder: WorldBuilder) -> bool:
    return bool(builder.failures) or not episode.coordinator.over or episode.wants_end()


def _shut_down(episode: Episode, builder: WorldBuilder, loop: asyncio.AbstractEventLoop) -> None:
    """Finalize all simulators, and end the processes started for them."""
    if not hasattr(builder, "world"):
        return
    hurried = _is_hurried(episode, builder)
    limits = {sid: max(internals.LEAST_START, limit) for sid, limit in builder.timeouts.items()}
    ending = shut_down(
        builder.world, builder.children, hurried=hurried, limits=limits, wants_end=episode.wants_end
    )
    complete(loop, ending)
