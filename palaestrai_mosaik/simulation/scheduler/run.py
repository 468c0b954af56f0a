"""Runs a mosaik world: the entry point for scenario scripts, and the replacement of mosaik's own scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Literal
from weakref import WeakKeyDictionary

from mosaik import scheduler as mosaik_scheduler
from mosaik.async_scenario import AsyncWorld
from mosaik.scenario import World

from . import versions
from .direct import Schedule
from .general import GeneralSchedule
from .runner import NoOrder, remote_simulators

#: the available schedulers: that of this package, and mosaik's ``mosaik.scheduler``
SCHEDULERS = ("direct", "mosaik")

_mosaik_run = mosaik_scheduler.run

#: same text as mosaik's
_RUN_BEFORE = "Simulation has already been run and can only be run once for a World instance."

_LIVES_IN_A_LOOP = (
    "this AsyncWorld has simulators in other processes, or such as ask mosaik for something, or agents, and lives "
    "in an event loop: await run_async_world(world, until=...) there"
)

#: the requested schedulers of worlds that run through their own method
_chosen: WeakKeyDictionary[AsyncWorld, str] = WeakKeyDictionary()
#: the schedules of running worlds
_running: WeakKeyDictionary[AsyncWorld, Schedule | GeneralSchedule] = WeakKeyDictionary()


def schedule(world: AsyncWorld, until: int, *, lazy_stepping: bool = True) -> Schedule | GeneralSchedule:
    """Make the schedule of a built world, compiled by mosaik (``AsyncWorld.compile``).

    Args:
        world: the world.
        until: the end, exclusive, in steps of mosaik's time.
        lazy_stepping: whether a simulator waits for its successors.

    Returns:
        A :class:`.Schedule` if all simulators are in this process, otherwise a :class:`.GeneralSchedule`.
    """
    if not world._debug and not remote_simulators(versions.runners(world)):
        try:
            return Schedule(world, until)
        except NoOrder:
            pass
    return GeneralSchedule(world, until, lazy_stepping=lazy_stepping)


def stepwise(world: World | AsyncWorld, until: int) -> Schedule:
    """Make the schedule of a built world, to be driven by :meth:`.Schedule.advance` up to ``until``, exclusive.

    Raises:
        RuntimeError: a simulator is in another process, or the world has ``debug`` or attached agents, or has
            been run before.
        ScenarioError: (mosaik's) data flow in a circle within one time.
        NoOrder: simulators wait for each other.
    """
    async_world = world._async_world if isinstance(world, World) else world
    if hasattr(async_world, "until"):
        raise RuntimeError(_RUN_BEFORE)
    if async_world._debug or "run" in vars(async_world):
        what = "debug=True" if async_world._debug else "attached agents"
        raise RuntimeError(f"a world with {what} cannot be stepped from outside; run it with run_world")
    versions.compile_world(async_world)
    remote = remote_simulators(versions.runners(async_world))
    if remote:
        raise RuntimeError(
            f"{', '.join(remote)}: in another process; only a world whose simulators are all in this process can be "
            "stepped from outside"
        )
    versions.show_progress_bars(async_world, until, False)
    async_world.until, async_world.rt_factor = until, None
    return Schedule(async_world, until)


def end_after(world: AsyncWorld, time: int) -> bool:
    """End a running world after everything due at ``time`` is done.

    Returns whether this was possible; it is not with mosaik's own scheduler.
    """
    running = _running.get(world)
    if running is not None:
        running.until = min(running.until, time + 1)
    return running is not None


async def run(
    world: AsyncWorld,
    until: int,
    rt_factor: float | None = None,
    rt_strict: bool = False,
    lazy_stepping: bool = True,
) -> None:
    """Run a world that mosaik has compiled; replaces ``mosaik.scheduler.run``.

    In real time (``rt_factor``), which is all about waiting, mosaik's own scheduler runs.

    Args:
        world, until, rt_factor, rt_strict, lazy_stepping: see :func:`run_world`.

    Raises:
        Exception: that of a simulator, or mosaik's for an invalid world.
    """
    if rt_factor is not None:
        await _mosaik_run(world, until, rt_factor, rt_strict, lazy_stepping)
        return
    world.until = until
    world.rt_factor = None
    world_schedule = _running[world] = schedule(world, until, lazy_stepping=lazy_stepping)
    if isinstance(world_schedule, Schedule):
        await world_schedule.run(among_others=True)
    else:
        await world_schedule.run()


@contextmanager
def _prepared(world: AsyncWorld, until: int, print_progress: bool | Literal["individual"]) -> Iterator[None]:
    """Prepare and clean up like ``AsyncWorld.run``, but let every exception pass."""
    if hasattr(world, "until"):
        raise RuntimeError(_RUN_BEFORE)
    versions.compile_world(world)
    bars = versions.show_progress_bars(world, until, print_progress)
    from mosaik import _debug

    if world._debug:
        _debug.enable()
    try:
        yield
    finally:
        for bar in bars:
            bar.close()
        if world._debug:
            _debug.disable()


def run_world(  # noqa: PLR0913 (mosaik's own arguments)
    world: World | AsyncWorld,
    until: int,
    rt_factor: float | None = None,
    rt_strict: bool = False,
    print_progress: bool | Literal["individual"] = True,
    lazy_stepping: bool = True,
    *,
    shutdown: bool = True,
    scheduler: str = "direct",
) -> None:
    """Run a mosaik world to its end, like ``world.run(until)`` but many times faster.

    The same simulators step at the same times, with the same inputs. If all of them are in this process,
    no event loop is involved; simulators in other processes are awaited, several at once. See
    ``docs/scheduler.md`` for equal and different behaviour, and for the cases in which mosaik's own scheduler
    runs.

    Args:
        world: a world with its simulators started, and their entities connected. An ``AsyncWorld`` is not
            shut down here; use :func:`run_async_world` for one with simulators in other processes.
        until: the end, exclusive, in steps of mosaik's time.
        rt_factor: seconds for each second of simulated time, if the world runs in real time; ``None``: as
            fast as possible.
        rt_strict: with ``rt_factor``, a world that is too slow is an error.
        print_progress: whether to show a progress bar; ``"individual"``: one for each simulator, too.
        lazy_stepping: whether a simulator waits for its successors; only matters with simulators in other
            processes.
        shutdown: whether to finalize the simulators of a ``World`` outside a ``with`` block.
        scheduler: ``"direct"``, or ``"mosaik"`` for mosaik's own.

    Raises:
        Exception: that of a simulator (even in another process, where mosaik would only log it), and
            mosaik's exceptions for an invalid world.
    """
    _check(scheduler)
    async_world = world._async_world if isinstance(world, World) else world
    if isinstance(world, World) and world.loop.is_closed():
        raise RuntimeError(_RUN_BEFORE)
    if "run" in vars(async_world):
        # attached agents join the world when its own run method is called
        if not isinstance(world, World):
            raise RuntimeError(_LIVES_IN_A_LOOP)
        _chosen[async_world] = scheduler
        world.run(until, rt_factor, rt_strict, print_progress, lazy_stepping, shutdown=shutdown)
        return
    with _prepared(async_world, until, print_progress):
        if scheduler == "direct" and rt_factor is None:
            async_world.until, async_world.rt_factor = until, None
            world_schedule = schedule(async_world, until, lazy_stepping=lazy_stepping)
            if isinstance(world_schedule, Schedule) and not world_schedule.asks:
                _drive(world_schedule.run())
            else:
                _run_in(_loop_of(world), world_schedule.run())
        else:
            _run_in(_loop_of(world), _mosaik_run(async_world, until, rt_factor, rt_strict, lazy_stepping))
    if isinstance(world, World) and shutdown and not world._no_shutdown_in_run:
        world.shutdown()


def _drive(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never awaits."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AssertionError("a schedule without requests awaits something")


def _run_in(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end; on Ctrl-C, cancel it completely."""
    task = loop.create_task(coroutine)
    try:
        loop.run_until_complete(task)
    except BaseException:
        if task.cancel():
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        raise


def _loop_of(world: World | AsyncWorld) -> asyncio.AbstractEventLoop:
    """Return the event loop in which the simulators of a world were started."""
    if isinstance(world, World):
        loop: asyncio.AbstractEventLoop = world.loop
        return loop
    raise RuntimeError(_LIVES_IN_A_LOOP)


async def run_async_world(
    world: AsyncWorld,
    until: int,
    rt_factor: float | None = None,
    rt_strict: bool = False,
    print_progress: bool | Literal["individual"] = False,
    lazy_stepping: bool = True,
    *,
    scheduler: str = "direct",
) -> None:
    """Run an ``AsyncWorld`` to its end, like ``await world.run(until)``, in the event loop of its simulators.

    Args:
        world: a world with its simulators started, and their entities connected. It is not shut down here.
        until, rt_factor, rt_strict, print_progress, lazy_stepping, scheduler: see :func:`run_world`.

    Raises:
        Exception: see :func:`run_world`.
    """
    _check(scheduler)
    if "run" in vars(world):
        _chosen[world] = scheduler
        await world.run(until, rt_factor, rt_strict, print_progress, lazy_stepping)
        return
    with _prepared(world, until, print_progress):
        await (run if scheduler == "direct" else _mosaik_run)(
            world, until, rt_factor, rt_strict, lazy_stepping
        )


def run_method(world: AsyncWorld) -> Callable[..., Awaitable[None]]:
    """Return the method to run ``world``, with the arguments of ``AsyncWorld.run``, for code that has replaced it.

    That is mosaik's method, or the scheduler requested from :func:`run_world`.
    """
    chosen = _chosen.get(world)
    if chosen is None:
        method: Callable[..., Awaitable[None]] = AsyncWorld.run.__get__(world)
        return method
    return partial(run_async_world, world, scheduler=chosen)


def _check(scheduler: str) -> None:
    """Raise ``ValueError`` unless ``scheduler`` is one of :data:`SCHEDULERS`."""
    if scheduler not in SCHEDULERS:
        raise ValueError(f"scheduler is {scheduler!r}, expected {' or '.join(map(repr, SCHEDULERS))}")
