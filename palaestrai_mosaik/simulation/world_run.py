"""Runs a world until its end, explains failures, and ends its simulators and their processes."""

from __future__ import annotations

import asyncio
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import psutil
from mosaik import exceptions as mosaiks
from mosaik.async_scenario import AsyncWorld

from palaestrai_mosaik.core.errors import SimulationError, SimulatorError

from .mosaik_internals import FOREVER, cancel_idle, mend_progress, needs_no_shutdown, proxies, remote_proxies
from .scheduler import GeneralSchedule
from .scheduler.versions import runners

#: seconds to finalize all simulators, normally and after a failure or an interruption
_SHUTDOWN, _SHUTDOWN_HURRIED = 10.0, 2.0
#: seconds between two checks whether a process has ended
_LOOK = 0.01
#: seconds for a terminated or killed process to end, and for its parent to notice
_TERMINATION, _REAPED = 2.0, 0.05


async def shut_down(
    world: AsyncWorld,
    children: Iterable[psutil.Process],
    *,
    hurried: bool = False,
    limits: Mapping[str, float] = MappingProxyType({}),
    wants_end: Callable[[], bool] = lambda: False,
) -> None:
    """Finalize every simulator and end the processes that were started for them.

    Args:
        world: the world.
        children: the processes.
        hurried: the run has failed or was interrupted, so a simulator may hang; errors in here are not raised.
        limits: seconds for processes to end by themselves, by mosaik's id, unless ``hurried``.
        wants_end: whether the user wants the end, which skips the waiting.
    """
    failure: BaseException | None = None
    processes = {} if hurried else _take_processes(world)
    try:
        await finalize(world, hurried=hurried)
        await _ended(processes, limits, wants_end)
    except Exception as error:
        failure = error
    await _end_processes(children)
    leftovers = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
    for task in leftovers:
        task.cancel()
    await asyncio.gather(*leftovers, return_exceptions=True)
    if failure is not None and not hurried:
        raise failure


async def _end_processes(children: Iterable[psutil.Process]) -> None:
    """Terminate processes and their descendants; kill those that do not end."""
    alive = [child for child in children if child.is_running()]
    for child in alive:
        for process in (*_descendants(child), child):
            try:
                process.terminate()
            except psutil.NoSuchProcess:
                continue
    stubborn = await _ends(alive)
    for child in stubborn:
        child.kill()
    await _ends(stubborn)


async def finalize(world: AsyncWorld, *, hurried: bool = False) -> None:
    """Finalize every simulator of ``world``; see :func:`shut_down`.

    If simulators in this process fail to finalize, raises the first exception after all others have been
    finalized.
    """
    _expect_late_answers(world)
    failures: list[Exception] = []
    for sid, proxy in proxies(world):
        if not hasattr(proxy, "_channel"):
            proxy.stop = partial(_stop_here, proxy.stop, sid, failures)
    try:
        await asyncio.wait_for(world.shutdown(), timeout=_SHUTDOWN_HURRIED if hurried else _SHUTDOWN)
    except (TimeoutError, OSError, EOFError, RuntimeError, asyncio.IncompleteReadError):
        pass
    finally:
        # 3.6 would complain about a failed shutdown
        needs_no_shutdown(world)
    if failures:
        raise failures[0]


def finalize_local(simulators: Mapping[str, Any], *, hurried: bool = False) -> None:
    """Finalize simulators of this process, by mosaik's id, like :func:`finalize` those of a world."""
    failures: list[Exception] = []
    for sid, simulator in simulators.items():
        with _noted(sid, failures):
            simulator.finalize()
    if failures and not hurried:
        raise failures[0]


@contextmanager
def _noted(sid: str, failures: list[Exception]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"simulator {sid!r} raised this when it was finalized, after the episode")
        failures.append(error)


async def _stop_here(stop: Callable[[], Awaitable[None]], sid: str, failures: list[Exception]) -> None:
    """Finalize a simulator in this process; after an exception, mosaik would skip all others."""
    with _noted(sid, failures):
        await stop()


def _expect_late_answers(world: AsyncWorld) -> None:
    """Handle late answers to cancelled requests.

    The task that reads from a simulator ends at the answer to a cancelled request,
    and closing the connection would wait for it forever. A request that
    cannot be written as JSON would be reported when the connection is closed.
    """
    for _, proxy in remote_proxies(world):
        requests = proxy._channel._outgoing_request_futures
        for number, future in list(requests.items()):
            if future.cancelled():
                requests[number] = future = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda f: f.cancelled() or f.exception())


def _take_processes(world: AsyncWorld) -> dict[str, Any]:
    """Take over the processes that mosaik has started for simulators.

    mosaik would kill them 0.1 s after their finalize request, whether they have finished or not.
    """
    taken = {}
    for sid, proxy in remote_proxies(world):
        if proxy._process is not None:
            taken[sid], _ = proxy._process
            proxy._process = None
    return taken


def _exit_status(process: Any) -> int | None:
    """Return the exit status of a process that mosaik has started, or ``None`` while it runs."""
    # until 3.6 a process of subprocess, then one of asyncio, which notices the end only while its loop runs
    status: int | None = process.poll() if hasattr(process, "poll") else process.returncode
    return status


async def _ended(
    processes: Mapping[str, Any], limits: Mapping[str, float], wants_end: Callable[[], bool]
) -> None:
    """Wait until simulators have finalized and their ``processes`` have ended.

    mosaik does not require a process to end by itself, so a remaining one is not an error; it is ended later.
    """
    waited = 0.0
    for sid, process in processes.items():
        limit = limits.get(sid, _SHUTDOWN)
        while _exit_status(process) is None and waited < limit:
            if wants_end():
                return
            await asyncio.sleep(_LOOK)
            waited += _LOOK
        status = _exit_status(process)
        if status is None:
            warnings.warn(
                f"simulator {sid!r} has not ended by itself within {limit:g} s after the episode: its process is "
                "ended now, and what its finalize has not written by then is lost",
                UserWarning,
                stacklevel=2,
            )
        elif status and not wants_end():
            raise SimulatorError(
                f"simulator {sid!r} ended with exit status {status} after the episode; did its finalize fail?"
            )


async def _ends(children: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Wait until ``children`` have ended; return those that have not after some seconds.

    Each should be reaped by the code that started it: since 3.7 that is asyncio, while its loop runs, which complains
    if the process is gone. The remaining ones are reaped here.
    """
    waited, left = 0.0, list(children)
    while left and waited < _TERMINATION:
        await asyncio.sleep(_LOOK)
        waited += _LOOK
        left = [child for child in left if child.is_running()]
        if left and all(map(_is_zombie, left)):
            await asyncio.sleep(_REAPED)
            break
    return list(psutil.wait_procs(left, timeout=0)[1])


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


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
