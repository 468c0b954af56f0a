"""Runs a world of mosaik: the entry for scenario scripts, and the stand-in for mosaik's own scheduler."""

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
from .direct import Schedule, local_simulator
from .general import GeneralSchedule
from .order import NoOrder

#: who decides when each simulator steps: this package, or mosaik's ``mosaik.scheduler``
SCHEDULERS = ("direct", "mosaik")

_mosaik_run = mosaik_scheduler.run

#: what mosaik says, too
_RUN_BEFORE = "Simulation has already been run and can only be run once for a World instance."

_LIVES_IN_A_LOOP = (
    "this AsyncWorld has simulators in other processes, or such as ask mosaik for something, or agents, and lives "
    "in an event loop: await run_async_world(world, until=...) there"
)

#: the schedulers that were asked for, of worlds that somebody else runs
_chosen: WeakKeyDictionary[AsyncWorld, str] = WeakKeyDictionary()
#: the schedules of the worlds that run
_running: WeakKeyDictionary[AsyncWorld, Schedule | GeneralSchedule] = WeakKeyDictionary()


def schedule(world: AsyncWorld, until: int, *, lazy_stepping: bool = True) -> Schedule | GeneralSchedule:
    """Return the schedule of a built world, compiled by mosaik (``AsyncWorld.compile``).

    Args:
        world: the world.
        until: the end, exclusive, in steps of mosaik's time.
        lazy_stepping: whether a simulator waits for those that it feeds.

    Returns:
        A :class:`.Schedule` if all simulators are in this process, else a :class:`.GeneralSchedule`.
    """
    local = all(local_simulator(runner._proxy) is not None for runner in versions.runners(world))
    if local and not world._debug:
        try:
            return Schedule(world, until)
        except NoOrder:
            pass
    return GeneralSchedule(world, until, lazy_stepping=lazy_stepping)


def stepwise(world: World | AsyncWorld, until: int) -> Schedule:
    """Return the schedule of a built world, to be driven by :meth:`.Schedule.advance` up to ``until``, exclusive.

    All simulators must be in this process. Raises ``RuntimeError`` where they are not, for a world with ``debug`` or
    attached agents, and for one that has been run before; mosaik's ``ScenarioError`` where data flow in a circle
    within one time, :class:`.NoOrder` where simulators wait for each other.
    """
    inner = world._async_world if isinstance(world, World) else world
    if hasattr(inner, "until"):
        raise RuntimeError(_RUN_BEFORE)
    if inner._debug or "run" in vars(inner):
        what = "debug=True" if inner._debug else "attached agents"
        raise RuntimeError(f"a world with {what} cannot be stepped from outside; run it with run_world")
    versions.compile_world(inner)
    remote = [one.sid for one in versions.runners(inner) if local_simulator(one._proxy) is None]
    if remote:
        raise RuntimeError(
            f"{', '.join(remote)}: in another process; only a world whose simulators are all in this process can be "
            "stepped from outside"
        )
    versions.show_progress_bars(inner, until, False)
    inner.until, inner.rt_factor = until, None
    return Schedule(inner, until)


def end_after(world: AsyncWorld, time: int) -> bool:
    """Let a running world end once all that is due at ``time`` is done, and nothing later.

    Returns whether this was possible: not where mosaik's own scheduler runs.
    """
    found = _running.get(world)
    if found is not None:
        found.until = min(found.until, time + 1)
    return found is not None


async def run(
    world: AsyncWorld,
    until: int,
    rt_factor: float | None = None,
    rt_strict: bool = False,
    lazy_stepping: bool = True,
) -> None:
    """Run a world that mosaik has compiled: stands in for ``mosaik.scheduler.run``.

    In real time (``rt_factor``), where waiting is the point, it is mosaik's own that runs.
    """
    if rt_factor is not None:
        await _mosaik_run(world, until, rt_factor, rt_strict, lazy_stepping)
        return
    world.until = until
    world.rt_factor = None
    found = _running[world] = schedule(world, until, lazy_stepping=lazy_stepping)
    if isinstance(found, Schedule):
        await found.run(among_others=True)
    else:
        await found.run()


@contextmanager
def _prepared(world: AsyncWorld, until: int, print_progress: bool | Literal["individual"]) -> Iterator[None]:
    """Do before and after a run what ``AsyncWorld.run`` does, but let every exception pass."""
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
    """Run a world of mosaik to its end, as ``world.run(until)`` does, but many times faster.

    The same simulators step at the same times, with the same inputs. Where all of them are in this process,
    no event loop is involved; simulators in other processes are awaited, several at once. See
    ``docs/scheduler.md`` for what is the same, what differs, and when it is mosaik's own scheduler that runs.

    Args:
        world: a world with its simulators started, and their entities connected. An ``AsyncWorld`` is not
            shut down here; one with simulators in other processes is for :func:`run_async_world`.
        until: the end, exclusive, in steps of mosaik's time.
        rt_factor: seconds for each second of simulated time, if the world runs in real time; ``None``: as
            fast as possible.
        rt_strict: with ``rt_factor``, a world that is too slow is an error.
        print_progress: whether to show a progress bar; ``"individual"``: one for each simulator, too.
        lazy_stepping: whether a simulator waits for those that it feeds (matters where simulators are in
            other processes).
        shutdown: whether to finalize the simulators of a ``World`` that is not used in a ``with`` block.
        scheduler: ``"direct"``, or ``"mosaik"`` for mosaik's own.

    Raises:
        Exception: what a simulator raises (also one in another process, which mosaik would only log), and
            mosaik's exceptions for whatever is wrong with the world.
    """
    _check(scheduler)
    inner = world._async_world if isinstance(world, World) else world
    if isinstance(world, World) and world.loop.is_closed():
        raise RuntimeError(_RUN_BEFORE)
    if "run" in vars(inner):
        # agents are attached, who join the world when its run is called
        if not isinstance(world, World):
            raise RuntimeError(_LIVES_IN_A_LOOP)
        _chosen[inner] = scheduler
        world.run(until, rt_factor, rt_strict, print_progress, lazy_stepping, shutdown=shutdown)
        return
    with _prepared(inner, until, print_progress):
        if scheduler == "direct" and rt_factor is None:
            inner.until, inner.rt_factor = until, None
            found = schedule(inner, until, lazy_stepping=lazy_stepping)
            if isinstance(found, Schedule) and not found.asks:
                _drive(found.run())
            else:
                _run_in(_loop_of(world), found.run())
        else:
            _run_in(_loop_of(world), _mosaik_run(inner, until, rt_factor, rt_strict, lazy_stepping))
    if isinstance(world, World) and shutdown and not world._no_shutdown_in_run:
        world.shutdown()


def _drive(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that awaits nothing."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AssertionError("a schedule without requests awaits something")


def _run_in(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, or until Ctrl-C, which leaves nothing behind that still runs."""
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
    """Run an ``AsyncWorld`` to its end, as ``await world.run(until)`` does; see :func:`run_world`."""
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
    """Return what runs ``world``, with the arguments of ``AsyncWorld.run``: for whoever has replaced that method.

    mosaik's method, or that of the scheduler for which :func:`run_world` was called.
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
