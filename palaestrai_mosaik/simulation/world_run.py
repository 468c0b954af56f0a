"""Runs a world until its end, the user's wish to end, or the first failure of a simulator, and explains failures."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from mosaik import exceptions as mosaiks
from mosaik.async_scenario import AsyncWorld

from palaestrai_mosaik.core.errors import SimulationError, SimulatorError

from .mosaik_internals import FOREVER, cancel_idle, mend_progress, remote_proxies
from .scheduler import GeneralSchedule
from .scheduler.versions import runners

#: seconds between two checks for unanswered requests
POLL = 0.25
#: seconds for a remote simulator to end its step after the user has requested the end
_GRACE = 2.0


class StopRequested(Exception):
    """The user requested the end while a remote simulator was busy."""


async def run(
    world: AsyncWorld,
    *,
    schedule: GeneralSchedule | None,
    lazy_stepping: bool,
    over: Callable[[], bool],
    wants_end: Callable[[], bool],
    timeouts: Mapping[str, float],
    failures: Sequence[BaseException] = (),
) -> None:
    """Run ``world`` until the coordinator ends the episode (:func:`.mosaik_internals.stop`).

    When it returns or raises, no task of the world is left.

    Args:
        world: the built world.
        schedule: determines the simulators' steps; ``None``: mosaik's own scheduler.
        lazy_stepping: whether a simulator waits for its successors.
        over: whether the episode has ended properly.
        wants_end: whether the user wants the end.
        timeouts: seconds for an answer of each remote simulator, by mosaik's id.
        failures: exceptions of users' code in our own simulators.

    Raises:
        Exception: that of a simulator in this process.
        SimulatorError: a remote simulator raised, died, or did not answer in time.
    """
    if timeouts:
        _limit_setup(world, timeouts)
    if schedule is None:
        mend_progress(world)
        main = asyncio.ensure_future(world.run(until=FOREVER, lazy_stepping=lazy_stepping))
    else:
        main = asyncio.ensure_future(schedule.run())
    failure: BaseException | None = None
    try:
        if timeouts:
            await watch(main, lambda: _running_steps(world, timeouts), wants_end)
        else:
            await asyncio.wait([main])
    except StopRequested:
        pass
    except BaseException as error:
        failure = error
    await _end_tasks(main, world, _GRACE if failure is None and not failures and wants_end() else 0.0)
    if failure is not None or failures:
        raise failure or failures[0]
    _raise_failures(main, world, wants_end, timeouts)
    if not over() and not wants_end():
        raise standstill(world)


def standstill(world: AsyncWorld) -> SimulationError:
    """Build the error for a world in which no simulator steps any more."""
    return SimulationError(
        f"the world came to a standstill before the episode ended (simulators: "
        f"{', '.join(runner.sid for runner in runners(world))}); is every environment still stepping?"
    )


def _limit_setup(world: AsyncWorld, timeouts: Mapping[str, float]) -> None:
    """Apply the time-outs to ``setup_done`` of remote simulators, and name them in errors."""

    async def setup_done(ask: Callable[[], Awaitable[Any]], sid: str) -> Any:
        # the caller watches for the user's wish to end
        return await answer(ask(), sid, "in setup_done", limit=timeouts[sid], wants_end=lambda: False)

    for runner in runners(world):
        if runner.sid in timeouts:
            runner.setup_done = partial(setup_done, runner.setup_done, runner.sid)


class Request(NamedTuple):
    """An unanswered request to a simulator in another process."""

    sid: str
    #: distinguishes it from other requests to this simulator
    number: Any
    #: seconds to wait for the answer
    limit: float
    #: the request in words, for the message
    during: str


async def watch(
    task: asyncio.Future[Any], requests: Callable[[], Iterable[Request]], wants_end: Callable[[], bool]
) -> None:
    """Wait for ``task`` while the simulators that it waits for answer in time.

    Args:
        task: the task.
        requests: returns the unanswered requests.
        wants_end: whether the user wants the end.

    Raises:
        SimulatorError: a simulator has not answered in time.
        StopRequested: the user wants the end.
    """
    # Counts polls, not seconds: a simulator in this process with a long computation blocks
    # the loop, and must not make a remote one look as if it hung.
    waited = dict.fromkeys(requests(), 0.0)
    while not task.done():
        await asyncio.wait([task], timeout=POLL)
        if wants_end():
            raise StopRequested
        waited = {request: waited.get(request, -POLL) + POLL for request in requests()}
        for request, seconds in waited.items():
            if seconds >= request.limit and not task.done():
                raise SimulatorError(
                    f"simulator {request.sid!r} has not answered for {request.limit:g} s, {request.during}"
                )


def _running_steps(world: AsyncWorld, timeouts: Mapping[str, float]) -> Iterator[Request]:
    for runner in runners(world):
        step = runner.current_step
        if runner.sid in timeouts and step is not None:
            yield Request(runner.sid, step.tiers, timeouts[runner.sid], f"in its step at time {step.time}")


async def _end_tasks(main: asyncio.Future[Any], world: AsyncWorld, patience: float) -> None:
    tasks = [runner.task for runner in runners(world) if runner.task is not None]
    while patience > 0 and not all(task.done() for task in tasks):
        # a remote simulator may still be computing; let it end its step, but start no other
        await asyncio.wait(tasks, timeout=POLL)
        cancel_idle(world)
        patience -= POLL
    for task in (*tasks, main):
        task.cancel()
    await asyncio.gather(*tasks, main, return_exceptions=True)


def _raise_failures(
    main: asyncio.Future[Any],
    world: AsyncWorld,
    wants_end: Callable[[], bool],
    timeouts: Mapping[str, float],
) -> None:
    """Raise the first exception of a simulator, if there is any."""
    tasks = [(runner.sid, runner.task) for runner in runners(world) if runner.task is not None]
    seen: list[BaseException] = []
    for sid, task in (*tasks, ("?", main)):
        exception = task.exception() if task.done() and not task.cancelled() else None
        if exception is None or exception in seen:
            continue
        seen.append(exception)
        error = explain(sid, exception, remote=sid in timeouts)
        # Ctrl-C in a terminal reaches the processes of simulators, too
        if not (wants_end() and isinstance(error, SimulatorError)):
            raise error


async def answer(
    request: Awaitable[Any], sid: str, during: str, *, limit: float, wants_end: Callable[[], bool]
) -> Any:
    """Await a remote simulator's answer to ``request``.

    Args:
        request: the request.
        sid: the simulator's id.
        during: the request in words, for the message.
        limit: seconds to wait.
        wants_end: whether the user wants the end.

    Raises:
        SimulatorError: no answer within ``limit``, or the simulator raised or died.
        StopRequested: the user wants the end.
    """
    task = asyncio.ensure_future(_without_exit(request))
    try:
        await watch(task, lambda: [Request(sid, 0, limit, during)], wants_end)
        try:
            return task.result()
        except Exception as error:
            raise explain(sid, error, remote=True) from error
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _without_exit(request: Awaitable[Any]) -> Any:
    # a task that raises SystemExit, as mosaik does, would end the loop
    try:
        return await request
    except SystemExit as error:
        raise SimulatorError(str(error)) from error


def unanswered(world: AsyncWorld) -> dict[str, int]:
    """Return the number of the oldest unanswered request to each simulator in another process."""
    waiting = ((sid, list(proxy._channel._outgoing_request_futures)) for sid, proxy in remote_proxies(world))
    return {sid: min(numbers) for sid, numbers in waiting if numbers}


def disconnected(world: AsyncWorld) -> list[str]:
    """Return the ids of simulators in other processes with a closed connection."""
    return [sid for sid, proxy in remote_proxies(world) if proxy._channel._receiver_task.done()]


def explain(sid: str, error: BaseException, *, remote: bool) -> BaseException:
    """Return the exception to raise for one that came through mosaik.

    mosaik's errors of a broken ``remote`` simulator become ours. The exception of a simulator
    in this process is unwrapped.
    """
    name, context = type(error).__name__, error.__context__
    if not remote:
        # mosaik mistakes a TypeError for one of JSON, a ConnectionError for one of its sockets
        if isinstance(error, mosaiks.NonSerializableOutputsError) and isinstance(context, TypeError):
            return context
        if isinstance(error, mosaiks.SimulationError) and isinstance(context, ConnectionError):
            return context
    if name == "RemoteException":
        text = getattr(error, "remote_msg", error)
        kind = getattr(error, "remote_type", "an error")
        details = "".join(f"\n{a}" for a in getattr(error, "further_args", ()))
        simulator_error = SimulatorError(f"simulator {sid!r} raised {kind}: {text}{details}")
    elif name == "ConnectionClosedError" or (remote and isinstance(error, ConnectionError | EOFError)):
        simulator_error = SimulatorError(f"simulator {sid!r} closed its connection: {error}")
    elif isinstance(error, mosaiks.SimulationError):
        # since 3.7 with subclasses
        simulator_error = SimulatorError(str(error))
    else:
        return error
    simulator_error.__cause__ = error
    return simulator_error


def describe_start_failure(sid: str, error: BaseException) -> SimulatorError:
    """Build the error for a simulator that could not be started."""
    text = str(error) or "".join(traceback.format_exception_only(error)).strip()
    simulator_error = SimulatorError(f"simulator {sid!r} could not be started: {text}")
    simulator_error.__cause__ = error
    return simulator_error
