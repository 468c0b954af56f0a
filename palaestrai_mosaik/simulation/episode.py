"""Runs one episode in its world, and shuts the world down.

By default the package's own schedule (:mod:`.scheduler`) decides when each simulator steps. Where all simulators
are in this process, it needs no event loop but for building the world; where some are not, it runs in one. With
``scheduler: mosaik``, it is mosaik's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from palaestrai_mosaik import seeding

from . import mosaik_internals as internals
from .bridge import ordinary
from .coordinator import EpisodeCoordinator
from .event_loop import complete
from .external_control import turns
from .scheduler import Schedule
from .sim_config import LEAST_START
from .world import WorldBuilder


@dataclass
class Episode:
    """One episode of one worker, about to be run.

    ``seed_path`` is the way in the tree of seeds to this worker's episode; environments
    and agents hang below it by name.
    """

    coordinator: EpisodeCoordinator
    worker: int
    number: int
    seed: int
    seed_path: tuple[str | int, ...]
    wants_end: Callable[[], bool] = lambda: False
    scheduler: str = "direct"
    #: the world of the episode before, if it can be used again; after :meth:`run`, that of this one
    world: WorldBuilder | None = None

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the episode to its end. The coordinator then knows how it ended.

        It does not if the user asked for the end while a remote simulator was busy.
        """
        for _ in self.turns(loop):
            raise AssertionError("somebody outside was asked, and there is nobody")

    def turns(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Run the episode, and stop wherever somebody outside is asked (:attr:`EpisodeCoordinator.outside`).

        Who goes on has decided. Closing the iterator ends the episode, with all that it has begun.
        """
        builder, self.world = self.world, None
        if builder is not None:
            builder.rewind(self)
        else:
            builder = WorldBuilder(self)
            try:
                complete(loop, builder.build())
            except BaseException as error:
                _shut_down(self, builder, loop)
                if isinstance(error, internals.StopRequested):
                    return
                if isinstance(error, SystemExit):
                    raise ordinary(error, "a simulator") from error
                raise
        try:
            if isinstance(builder.schedule, Schedule):
                yield from _directly(self, builder, builder.schedule)
            else:
                yield from turns(loop, _in_loop(self, builder), self.coordinator.outside)
        except GeneratorExit:
            # nobody has failed: the next episode may begin in the same world
            self.world = builder if builder.rewinds else None
            raise
        finally:
            if not builder.rewinds:
                _shut_down(self, builder, loop)
        if builder.rewinds:
            self.world = builder

    def generator(self, *names: str | int) -> np.random.Generator:
        """Return the generator of a part of this episode."""
        return seeding.generator(self.seed, *self.seed_path, *names)


def _directly(episode: Episode, builder: WorldBuilder, schedule: Schedule) -> Iterator[None]:
    """Run a world whose simulators are all in this process."""
    coordinator = episode.coordinator
    if coordinator.outside is not None:
        coordinator.outside.begin()
    try:
        while True:
            try:
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
        raise internals.standstill(builder.world)


def _cause(error: BaseException, builder: WorldBuilder, schedule: Schedule) -> BaseException:
    """Return what is to be raised for what came out of a simulator."""
    if builder.failures:
        return builder.failures[0]
    sid = next((one.origin.sid for one in schedule.runners if one.moment is not None), "?")
    return ordinary(internals.explain(sid, error, remote=False), "a simulator")


async def _in_loop(episode: Episode, builder: WorldBuilder) -> None:
    """Run a world in an event loop: simulators in other processes are awaited, or mosaik's scheduler runs."""
    coordinator, schedule = episode.coordinator, builder.schedule
    assert not isinstance(schedule, Schedule)
    # where the user wants the end, the coordinator's episode is not over, which tells the caller
    with suppress(internals.StopRequested):
        await internals.run(
            builder.world,
            schedule=schedule,
            lazy_stepping=builder.lazy,
            over=lambda: coordinator.over,
            wants_end=episode.wants_end,
            timeouts=builder.timeouts,
            failures=builder.failures,
        )


def _shut_down(episode: Episode, builder: WorldBuilder, loop: asyncio.AbstractEventLoop) -> None:
    """Finalize all simulators, and end what was started for them."""
    if not hasattr(builder, "world"):
        return
    hurried = bool(builder.failures) or not episode.coordinator.over or episode.wants_end()
    complete(
        loop,
        internals.shut_down(
            builder.world,
            builder.children,
            hurried=hurried,
            limits={sid: max(LEAST_START, limit) for sid, limit in builder.timeouts.items()},
            wants_end=episode.wants_end,
        ),
    )
