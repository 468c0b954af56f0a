"""Everything that leans on undocumented parts of mosaik; tested on 3.5 and 3.6.

mosaik has no way to end a run early, swallows the exception of a remote simulator, has
no time-out for a simulator that hangs, and may leave child processes behind. The
functions here mend that.
"""

from __future__ import annotations

import asyncio
import traceback
import warnings
from collections.abc import Callable, Iterable
from inspect import isfunction, signature
from typing import Any

import mosaik_api_v3
import psutil
from mosaik.async_scenario import AsyncWorld

from palaestrai_mosaik.errors import SimulationError, SimulatorError

#: end of a world's time that no episode reaches
FOREVER = 2**53
_POLL = 0.25


def _same(value: Any) -> Any:
    return value


#: arguments for every connect_one: the default transform of 3.5 cannot be called
CONNECT: dict[str, Any] = (
    {}
    if isfunction(signature(AsyncWorld.connect_one).parameters["transform"].default)
    else {"transform": _same}
)

_handed_over: list[mosaik_api_v3.Simulator] = []


class HandedOver:
    """Stands in ``sim_config`` for a simulator object that exists already."""

    def __new__(cls) -> Any:
        return _handed_over.pop()


HANDED_OVER = {"python": f"{__name__}:HandedOver"}


def hand_over(simulator: mosaik_api_v3.Simulator) -> None:
    """Make ``simulator`` the one that the next start of :data:`HANDED_OVER` yields."""
    _handed_over.append(simulator)


def runners(world: AsyncWorld) -> list[Any]:
    """Return mosaik's runners (``SimRunner``), in the order in which they were started."""
    with warnings.catch_warnings():
        # 3.6 keeps them in a cache and deprecates the attribute of 3.5
        warnings.simplefilter("ignore", DeprecationWarning)
        return list(world.sims.values())


def stop(world: AsyncWorld) -> None:
    """End a running world: cancel every runner that is not in the middle of a request."""
    loop = asyncio.get_running_loop()
    loop.call_soon(_cancel_idle, world)


def _cancel_idle(world: AsyncWorld) -> None:
    for runner in runners(world):
        if runner.current_step is None and runner.task is not None:
            runner.task.cancel()


async def run(
    world: AsyncWorld,
    *,
    lazy_stepping: bool,
    over: Callable[[], bool],
    wants_end: Callable[[], bool],
    timeouts: dict[str, float],
) -> None:
    """Run ``world`` until :func:`stop` ends it.

    ``over``: whether the episode has ended as it should; ``wants_end``: whether the user
    asked for the end; ``timeouts``: seconds that an answer may take, for each remote
    simulator (by mosaik's id).

    Raises what a simulator in this process raised, and :class:`SimulatorError` for a
    remote simulator that raised, died, or did not answer in time. When it returns or
    raises, no task of the world is left.
    """
    main = asyncio.ensure_future(world.run(until=FOREVER, lazy_stepping=lazy_stepping))
    failure: BaseException | None = None
    try:
        if timeouts:
            await _watch(main, world, wants_end, timeouts)
        else:
            await asyncio.wait([main])
    except BaseException as error:
        failure = error
    await _settle(main, world, timeouts, patient=over() and failure is None)
    if failure is not None:
        raise failure
    failed = next(iter(_failures(main, world)), None)
    if failed is not None:
        raise _explain(*failed)
    if not over() and not wants_end():
        raise SimulationError(
            f"the world came to a standstill before the episode ended (simulators: "
            f"{', '.join(r.sid for r in runners(world))}); is every environment still stepping?"
        )


async def _watch(
    main: asyncio.Future[Any], world: AsyncWorld, wants_end: Callable[[], bool], timeouts: dict[str, float]
) -> None:
    # Counts polls, not seconds: a simulator in this process that computes for long keeps
    # the loop busy, and must not look like a remote one that hangs.
    still: dict[str, tuple[Any, float]] = {}
    while not main.done():
        await asyncio.wait([main], timeout=_POLL)
        if wants_end():
            return
        for runner in runners(world):
            limit = timeouts.get(runner.sid)
            if limit is None or runner.current_step is None:
                still.pop(runner.sid, None)
                continue
            step, waited = still.get(runner.sid, (None, 0.0))
            waited = waited + _POLL if step == runner.current_step else 0.0
            still[runner.sid] = (runner.current_step, waited)
            if waited >= limit and not main.done():
                raise SimulatorError(
                    f"simulator {runner.sid!r} has not answered for {limit:g} s, "
                    f"in its step at time {runner.current_step.time}"
                )


async def _settle(
    main: asyncio.Future[Any], world: AsyncWorld, timeouts: dict[str, float], *, patient: bool
) -> None:
    tasks = [r.task for r in runners(world) if r.task is not None]
    rounds = max(timeouts.values(), default=1.0) / _POLL if patient else 0
    while patient and rounds > 0 and not all(t.done() for t in tasks):
        # a remote simulator may still be computing; it ends its step, and no more
        await asyncio.wait(tasks, timeout=_POLL)
        _cancel_idle(world)
        rounds -= 1
    for task in (*tasks, main):
        task.cancel()
    await asyncio.gather(*tasks, main, return_exceptions=True)


def _failures(main: asyncio.Future[Any], world: AsyncWorld) -> Iterable[tuple[str, BaseException]]:
    tasks = [(r.sid, r.task) for r in runners(world) if r.task is not None]
    for sid, task in (*tasks, ("?", main)):
        error = task.exception() if task.done() and not task.cancelled() else None
        if error is not None:
            yield sid, error


def _explain(sid: str, error: BaseException) -> BaseException:
    """Turn mosaik's words for a broken remote simulator into ours; leave others alone."""
    name = type(error).__name__
    if name == "RemoteException":
        said = getattr(error, "remote_msg", error)
        kind = getattr(error, "remote_type", "an error")
        details = "".join(f"\n{a}" for a in getattr(error, "further_args", ()))
        mended = SimulatorError(f"simulator {sid!r} raised {kind}: {said}{details}")
    elif name == "ConnectionClosedError" or isinstance(error, ConnectionError | EOFError):
        mended = SimulatorError(f"simulator {sid!r} closed its connection: {error}")
    elif name == "SimulationError" and type(error).__module__.startswith("mosaik."):
        cause = error.args[1] if len(error.args) > 1 else None
        mended = SimulatorError(str(error.args[0]) if cause is None else f"{error.args[0]} ({cause!r})")
    else:
        return error
    mended.__cause__ = error
    return mended


async def shut_down(world: AsyncWorld, children: Iterable[psutil.Process]) -> None:
    """Finalize every simulator and end the processes that were started for them.

    Problems of simulators that are gone already are not reported again.
    """
    failure: BaseException | None = None
    try:
        await asyncio.wait_for(world.shutdown(), timeout=10.0)
    except (TimeoutError, OSError, EOFError, RuntimeError, asyncio.IncompleteReadError):
        pass
    except Exception as error:
        failure = error
    # silences the complaint of 3.6 that a world whose shutdown failed was not shut down
    world._shutdown_performed = True
    alive = [child for child in children if child.is_running()]
    for child in alive:
        for process in (*_descendants(child), child):
            try:
                process.terminate()
            except psutil.NoSuchProcess:
                continue
    _, stubborn = psutil.wait_procs(alive, timeout=2.0)
    for child in stubborn:
        child.kill()
    psutil.wait_procs(stubborn, timeout=2.0)
    leftovers = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
    for task in leftovers:
        task.cancel()
    await asyncio.gather(*leftovers, return_exceptions=True)
    if failure is not None:
        raise failure


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def children_of_this_process() -> set[psutil.Process]:
    """Return the processes that this one has started and that are still there."""
    return set(psutil.Process().children(recursive=False))


def describe_start_failure(sid: str, error: BaseException) -> SimulatorError:
    """Return an error for a simulator that could not be started."""
    text = str(error) or "".join(traceback.format_exception_only(error)).strip()
    mended = SimulatorError(f"simulator {sid!r} could not be started: {text}")
    mended.__cause__ = error
    return mended
