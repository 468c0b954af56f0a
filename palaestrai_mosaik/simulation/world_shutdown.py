"""Finalizes the simulators of a world, and ends the processes that were started for them."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

import psutil
from mosaik.async_scenario import AsyncWorld

from palaestrai_mosaik.core.errors import SimulatorError

from .mosaik_internals import needs_no_shutdown, proxies, remote_proxies

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
