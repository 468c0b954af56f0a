"""All code that depends on undocumented parts of mosaik, except :mod:`.scheduler`; tested with 3.5 to 3.7.

mosaik cannot end a run early, swallows the exception of a remote simulator, has
no time-out for a simulator that hangs, may leave child processes behind, and accepts any
process that connects in place of the simulator that it has started. The functions here correct that.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import traceback
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import isfunction, signature
from types import MappingProxyType
from typing import Any

import mosaik_api_v3
import numpy as np
import psutil
from mosaik import exceptions as mosaiks
from mosaik.async_scenario import AsyncWorld

from palaestrai_mosaik.environment.cosimulation import SimulatorSpec
from palaestrai_mosaik.errors import SimulationError, SimulatorError

from . import peer_check
from .scheduler import GeneralSchedule, end_after, versions
from .scheduler.versions import runners

peer_check.guard()

#: an end of a world's time that no episode reaches
FOREVER = 2**53
#: seconds between two checks for unanswered requests
POLL = 0.25
#: seconds for a remote simulator to end its step after the user has requested the end
_GRACE = 2.0
#: seconds to finalize all simulators, normally and after a failure or an interruption
_SHUTDOWN, _SHUTDOWN_HURRIED = 10.0, 2.0
#: seconds between two checks whether a process has ended
_LOOK = 0.01
#: seconds for a terminated or killed process to end, and for its parent to notice
_TERMINATION, _REAPED = 2.0, 0.05


class StopRequested(Exception):
    """The user requested the end while a remote simulator was busy."""


def _same(value: Any) -> Any:
    return value


#: arguments for every connect_one: the default transform of 3.5 is not callable
_CONNECT: dict[str, Any] = (
    {}
    if isfunction(signature(AsyncWorld.connect_one).parameters["transform"].default)
    else {"transform": _same}
)


def connect(
    world: AsyncWorld, source: Any, target: Any, attributes: tuple[str, str], arguments: Mapping[str, Any]
) -> None:
    """Connect one attribute of ``source`` with one of ``target`` (mosaik's entities).

    With ``initial_data``, even if mosaik does not need it, the value of an event attribute persists until the
    next event; a triggering input then also has it in steps that its simulator makes by itself.
    """
    with warnings.catch_warnings():
        if "initial_data" in arguments:
            # mosaik warns that it is not needed, and discourages such connections for persistent values
            message = "Gave initial data" if arguments.keys() & {"time_shifted", "weak"} else ""
            warnings.filterwarnings("ignore", message, UserWarning)
        world.connect_one(source, target, *attributes, **{**_CONNECT, **arguments})


def allow_requests(world: AsyncWorld, source: Any, target: Any) -> None:
    """Allow the simulator ``target`` to get and set data of ``source`` while it steps (mosaik's factories)."""
    with warnings.catch_warnings():
        # the feature is deprecated, but there are simulators that need it
        warnings.simplefilter("ignore", DeprecationWarning)
        world.connect_async_requests(source, target)


def plain(value: Any) -> Any:
    """Convert ``value`` to JSON types: arrays become lists, NaN in them becomes ``None``."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and np.isnan(value).any():
            with_none = value.astype(object)
            with_none[np.isnan(value)] = None
            return with_none.tolist()
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return value


_handed_over: list[mosaik_api_v3.Simulator] = []


class ExistingSimulator:
    """A class for ``sim_config`` that yields an existing simulator object."""

    def __new__(cls) -> Any:
        return _handed_over.pop()


HANDED_OVER = {"python": f"{__name__}:ExistingSimulator"}


def hand_over(simulator: mosaik_api_v3.Simulator) -> None:
    """Make the next start of :data:`HANDED_OVER` yield ``simulator``."""
    _handed_over.append(simulator)


def base_proxy(proxy: Any) -> Any:
    """Return mosaik's proxy of a simulator below the adapters for older versions of the API."""
    while hasattr(proxy, "_out"):
        proxy = proxy._out
    return proxy


def compile_world(world: AsyncWorld) -> None:
    """Make mosaik analyse the connections, for a schedule of our own."""
    versions.compile_world(world)
    versions.show_progress_bars(world, FOREVER, False)
    world.until, world.rt_factor = FOREVER, None


def needs_no_shutdown(world: AsyncWorld) -> None:
    """Suppress mosaik's complaint about a missing shutdown: ``world`` is used as long as its worker exists."""
    world._shutdown_performed = True


def stop(world: AsyncWorld, time: int) -> None:
    """End a running world from within a step of the coordinator, at ``time``.

    No simulator makes another step. With :func:`keep_in_step`, each has made all steps that were due by then.
    """
    if end_after(world, time):
        return
    cancel_idle(world)
    # the coordinator itself, once its step has ended
    asyncio.get_running_loop().call_soon(cancel_idle, world)


def cancel_idle(world: AsyncWorld) -> None:
    """Cancel the tasks of mosaik's scheduler for simulators that are not in a step."""
    for runner in runners(world):
        if runner.current_step is None and runner.task is not None:
            runner.task.cancel()


def keep_in_step(world: AsyncWorld, coordinator_sid: str, agents: Collection[str] = ()) -> bool:
    """Keep every simulator level with the coordinator (``coordinator_sid``, mosaik's id).

    When the coordinator steps at a time, which may turn out to be the end, every other simulator has made
    all its steps up to this time, with all their inputs, and none beyond it, as in a mosaik run with ``until``
    at this time plus one. ``agents``: ids of the agents' simulators, which act after the coordinator.

    This holds without constraints for a simulator that feeds the coordinator, and is fed by it or by agents (one
    tick later). Returns whether there are other simulators.
    """
    runner_of = {runner.sid: runner for runner in runners(world)}
    acting = {coordinator_sid, *agents}
    free = []
    for sid, runner in runner_of.items():
        is_fed = any(source.sid in acting for source in runner.input_delays)
        if sid not in acting and not (is_fed and runner in runner_of[coordinator_sid].input_delays):
            free.append(sid)
    for sid in free:
        _hold_back(world, runner_of[sid], runner_of[coordinator_sid])
    return bool(free)


def wait_for_agents(world: AsyncWorld, agents: Collection[str]) -> None:
    """Let no simulator step before all agents have acted at earlier times.

    mosaik makes each simulator wait for its sources. The coordinator, which records the results
    after all have acted, has no agent as a source, and neither has a simulator without actuators of agents.
    """
    runner_of = {runner.sid: runner for runner in runners(world)}
    for sid, runner in runner_of.items():
        if sid not in agents:
            for agent in agents:
                if runner_of[agent] not in runner.input_delays:
                    _hold_back(world, runner, runner_of[agent])


def _hold_back(world: AsyncWorld, runner: Any, until: Any) -> None:
    """Let ``runner`` step at no time that ``until`` has not reached."""
    with warnings.catch_warnings():
        # mosaik prefers connections, but there is no attribute to connect
        warnings.simplefilter("ignore", DeprecationWarning)
        # mosaik's factories; 3.5 and 3.6 store them in different places
        world.connect_async_requests(runner.check_outputs.__self__, until.check_outputs.__self__)


def mend_progress(world: AsyncWorld) -> None:
    """Let no simulator pass a time for which a running step may still trigger it.

    Until 3.6, mosaik considers planned steps, but not one that another process is just making. It then
    assumes that a simulator waiting for the result is done, so that it loses events or fails ("cannot progress
    backwards").

    Also, until 3.6, drop cancelled waits: mosaik iterates over them at every step, and each step of a simulator
    that does not step by itself adds one.
    """
    triggers = [targets for runner in runners(world) for targets in runner.triggers.values()]
    # 3.5 computes the ancestors of each when the world runs
    for runner in {target for targets in triggers for target, _ in targets}:
        runner.progress.set = partial(_set_progress, runner, runner.progress.set)


def _set_progress(runner: Any, set_progress: Callable[[Any], None], time: Any) -> None:
    versions.forget_waits(runner.progress)
    ancestors = runner.triggering_ancestors.items()
    coming = [delay.earliest_sum(a.current_step) for a, delay in ancestors if a.current_step is not None]
    set_progress(min([time, *coming]))


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
    waited = 0.0
    try:
        while not task.done():
            await asyncio.wait([task], timeout=POLL)
            waited += POLL
            if wants_end():
                raise StopRequested
            if waited >= limit and not task.done():
                raise SimulatorError(f"simulator {sid!r} has not answered for {limit:g} s, {during}")
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
    """Run ``world`` until its end is moved forward, or :func:`stop` ends it.

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
            await _watch(main, world, wants_end, timeouts)
        else:
            await asyncio.wait([main])
    except BaseException as error:
        failure = error
    await _end_tasks(main, world, _GRACE if failure is None and not failures and wants_end() else 0.0)
    if failure is not None:
        raise failure
    if failures:
        raise failures[0]
    for sid, exception in _failures(main, world):
        error_to_raise = explain(sid, exception, remote=sid in timeouts)
        # Ctrl-C in a terminal reaches the processes of simulators, too
        if not (wants_end() and isinstance(error_to_raise, SimulatorError)):
            raise error_to_raise
    if not over() and not wants_end():
        raise standstill(world)


def standstill(world: AsyncWorld) -> SimulationError:
    """Build the error for a world in which no simulator steps any more."""
    return SimulationError(
        f"the world came to a standstill before the episode ended (simulators: "
        f"{', '.join(r.sid for r in runners(world))}); is every environment still stepping?"
    )


def _limit_setup(world: AsyncWorld, timeouts: Mapping[str, float]) -> None:
    """Apply the time-outs to ``setup_done`` of remote simulators, and name them in errors."""

    async def setup_done(ask: Callable[[], Awaitable[Any]], sid: str) -> Any:
        # the caller watches for the user's wish to end
        return await answer(ask(), sid, "in setup_done", limit=timeouts[sid], wants_end=lambda: False)

    for runner in runners(world):
        if runner.sid in timeouts:
            runner.setup_done = partial(setup_done, runner.setup_done, runner.sid)


async def _watch(
    main: asyncio.Future[Any],
    world: AsyncWorld,
    wants_end: Callable[[], bool],
    timeouts: Mapping[str, float],
) -> None:
    # Counts polls, not seconds: a simulator in this process with a long computation blocks
    # the loop, and must not make a remote one look as if it hung.
    still: dict[str, tuple[Any, float]] = {}
    while not main.done():
        await asyncio.wait([main], timeout=POLL)
        if wants_end():
            return
        for runner in runners(world):
            limit = timeouts.get(runner.sid)
            if limit is None or runner.current_step is None:
                still.pop(runner.sid, None)
                continue
            step, waited = still.get(runner.sid, (None, 0.0))
            waited = waited + POLL if step == runner.current_step else 0.0
            still[runner.sid] = (runner.current_step, waited)
            if waited >= limit and not main.done():
                raise SimulatorError(
                    f"simulator {runner.sid!r} has not answered for {limit:g} s, "
                    f"in its step at time {runner.current_step.time}"
                )


async def _end_tasks(main: asyncio.Future[Any], world: AsyncWorld, patience: float) -> None:
    tasks = [r.task for r in runners(world) if r.task is not None]
    while patience > 0 and not all(t.done() for t in tasks):
        # a remote simulator may still be computing; let it end its step, but start no other
        await asyncio.wait(tasks, timeout=POLL)
        cancel_idle(world)
        patience -= POLL
    for task in (*tasks, main):
        task.cancel()
    await asyncio.gather(*tasks, main, return_exceptions=True)


def _failures(main: asyncio.Future[Any], world: AsyncWorld) -> Iterator[tuple[str, BaseException]]:
    tasks = [(r.sid, r.task) for r in runners(world) if r.task is not None]
    seen: list[BaseException] = []
    for sid, task in (*tasks, ("?", main)):
        error = task.exception() if task.done() and not task.cancelled() else None
        if error is not None and error not in seen:
            seen.append(error)
            yield sid, error


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


def _proxies(world: AsyncWorld) -> Iterator[tuple[str, Any]]:
    """Yield id and mosaik's proxy of every simulator."""
    proxies = getattr(world, "_proxies", None)  # since 3.6, where runners would compile the world
    by_sid = proxies if proxies is not None else {r.sid: r._proxy for r in runners(world)}
    for sid, proxy in list(by_sid.items()):
        yield sid, base_proxy(proxy)


def _remote(world: AsyncWorld) -> Iterator[tuple[str, Any]]:
    """Yield id and mosaik's proxy of every simulator in another process."""
    return ((sid, proxy) for sid, proxy in _proxies(world) if hasattr(proxy, "_channel"))


def unanswered(world: AsyncWorld) -> dict[str, int]:
    """Return the number of the oldest unanswered request to each simulator in another process."""
    waiting = ((sid, list(proxy._channel._outgoing_request_futures)) for sid, proxy in _remote(world))
    return {sid: min(numbers) for sid, numbers in waiting if numbers}


def disconnected(world: AsyncWorld) -> list[str]:
    """Return the ids of simulators in other processes whose connections have been closed."""
    return [sid for sid, proxy in _remote(world) if proxy._channel._receiver_task.done()]


def _expect_late_answers(world: AsyncWorld) -> None:
    """Handle late answers to cancelled requests.

    The task that reads from a simulator ends at the answer to a cancelled request,
    and closing the connection would wait for it forever. A request that
    cannot be written as JSON would be reported when the connection is closed.
    """
    for _, proxy in _remote(world):
        requests = proxy._channel._outgoing_request_futures
        for number, future in list(requests.items()):
            if future.cancelled():
                requests[number] = future = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda f: f.cancelled() or f.exception())


async def finalize(world: AsyncWorld, *, hurried: bool = False) -> None:
    """Finalize every simulator of ``world``; see :func:`shut_down`.

    If simulators in this process fail to finalize, raises the first exception after all others have been
    finalized.
    """
    _expect_late_answers(world)
    failures: list[Exception] = []
    for sid, proxy in _proxies(world):
        if not hasattr(proxy, "_channel"):
            proxy.stop = partial(_stop_here, proxy.stop, sid, failures)
    try:
        await asyncio.wait_for(world.shutdown(), timeout=_SHUTDOWN_HURRIED if hurried else _SHUTDOWN)
    except (TimeoutError, OSError, EOFError, RuntimeError, asyncio.IncompleteReadError):
        pass
    finally:
        # 3.6 would complain about a world whose shutdown failed
        needs_no_shutdown(world)
    if failures:
        raise failures[0]


async def _stop_here(stop: Callable[[], Awaitable[None]], sid: str, failures: list[Exception]) -> None:
    """Finalize a simulator in this process; after an exception, mosaik would skip all others."""
    with _noted(sid, failures):
        await stop()


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


def _take_processes(world: AsyncWorld) -> dict[str, Any]:
    """Take over the processes that mosaik has started for simulators.

    mosaik would kill them 0.1 s after their finalize request, whether they have finished or not.
    """
    taken = {}
    for sid, proxy in _remote(world):
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
    leftovers = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
    for task in leftovers:
        task.cancel()
    await asyncio.gather(*leftovers, return_exceptions=True)
    if failure is not None and not hurried:
        raise failure


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


def children_of_this_process() -> set[psutil.Process]:
    """Return the running processes that this one has started."""
    return set(psutil.Process().children(recursive=False))


def describe_start_failure(sid: str, error: BaseException) -> SimulatorError:
    """Build the error for a simulator that could not be started."""
    text = str(error) or "".join(traceback.format_exception_only(error)).strip()
    simulator_error = SimulatorError(f"simulator {sid!r} could not be started: {text}")
    simulator_error.__cause__ = error
    return simulator_error


#: least time in seconds for a process to start, however short the time-out of its answers
LEAST_START = 10.0


def starter(sid: str, spec: SimulatorSpec) -> dict[str, Any]:
    """Build the entry of mosaik's ``sim_config`` for the simulator ``sid``."""
    if spec.factory is not None:
        return dict(HANDED_OVER)
    if spec.python is not None:
        return {"python": spec.python}
    if spec.connect is not None:
        return {"connect": spec.connect}
    if spec.cmd is None:
        raise SimulatorError(f"simulator {sid!r}: none of python, cmd, connect and factory is given")
    # explicit, because the default of 3.6 is inverted
    starter: dict[str, Any] = {"cmd": spec.cmd, "posix": os.name != "nt"}
    if spec.cwd is not None:
        starter["cwd"] = spec.cwd
    if spec.env:
        starter["env"] = dict(spec.env)
    return starter


def new_sid(environment: str, simulator: str, taken: Collection[str]) -> str:
    """Return an unused id for a simulator of an environment; ``simulator`` is ``""`` if it has only one."""
    # mosaik separates simulator and entity by the first dot
    parts = [environment, *([simulator] if simulator else [])]
    name = "-".join(re.sub(r"[.\s]", "_", part) for part in parts)
    numbered = (f"{name}-{i}" for i in itertools.count(2))
    return next(sid for sid in itertools.chain([name], numbered) if sid not in taken)
