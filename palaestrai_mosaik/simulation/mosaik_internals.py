"""All that relies on undocumented parts of mosaik, except the schedule (:mod:`.scheduler`); tested with 3.5 to 3.7.

mosaik cannot end a run early, swallows the exception of a remote simulator, has
no time-out for a simulator that hangs, may leave child processes behind, and accepts any
process that connects as the simulator that it has started. The functions here correct that.
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

#: end of a world's time that no episode reaches
FOREVER = 2**53
#: seconds from one look at who has not answered to the next
POLL = 0.25
#: seconds for a remote simulator to end its step, once the user wants the end
_GRACE = 2.0
#: seconds for all simulators to be finalized, and after a failure or an interruption
_SHUTDOWN, _SHUTDOWN_HURRIED = 10.0, 2.0
#: seconds from one look at whether a process has ended to the next
_LOOK = 0.01
#: seconds for a process to end that was told or forced to, and for who has started it to notice
_TERMINATION, _REAPED = 2.0, 0.05


class StopRequested(Exception):
    """The user asked for the end while a remote simulator was busy."""


def _same(value: Any) -> Any:
    return value


#: arguments for every connect_one: the default transform of 3.5 cannot be called
_CONNECT: dict[str, Any] = (
    {}
    if isfunction(signature(AsyncWorld.connect_one).parameters["transform"].default)
    else {"transform": _same}
)


def connect(
    world: AsyncWorld, source: Any, target: Any, attributes: tuple[str, str], arguments: Mapping[str, Any]
) -> None:
    """Connect one attribute of ``source`` with one of ``target`` (mosaik's entities).

    With ``initial_data``, also where it is not needed, the value of an attribute that comes with events
    stays until the next one; an input that triggers has it whenever its simulator steps of its own accord.
    """
    with warnings.catch_warnings():
        if "initial_data" in arguments:
            # that it is not needed, and for values that stay, that such connections are not recommended
            message = "Gave initial data" if arguments.keys() & {"time_shifted", "weak"} else ""
            warnings.filterwarnings("ignore", message, UserWarning)
        world.connect_one(source, target, *attributes, **{**_CONNECT, **arguments})


def allow_requests(world: AsyncWorld, source: Any, target: Any) -> None:
    """Let the simulator ``target`` ask for data of ``source``, and set some, while it steps (mosaik's factories)."""
    with warnings.catch_warnings():
        # that they will go; whoever has simulators that need them has them now
        warnings.simplefilter("ignore", DeprecationWarning)
        world.connect_async_requests(source, target)


def plain(value: Any) -> Any:
    """Return ``value`` as what JSON knows: arrays as lists in which NaN is ``None``."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and np.isnan(value).any():
            known = value.astype(object)
            known[np.isnan(value)] = None
            return known.tolist()
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
    """Stands in ``sim_config`` for a simulator object that exists already."""

    def __new__(cls) -> Any:
        return _handed_over.pop()


HANDED_OVER = {"python": f"{__name__}:ExistingSimulator"}


def hand_over(simulator: mosaik_api_v3.Simulator) -> None:
    """Make ``simulator`` the one that the next start of :data:`HANDED_OVER` yields."""
    _handed_over.append(simulator)


def base_proxy(proxy: Any) -> Any:
    """Return mosaik's proxy of a simulator below the adapters for older versions of the API."""
    while hasattr(proxy, "_out"):
        proxy = proxy._out
    return proxy


def compile_world(world: AsyncWorld) -> None:
    """Let mosaik work out what the connections mean, for a schedule of our own."""
    versions.compile_world(world)
    versions.show_progress_bars(world, FOREVER, False)
    world.until, world.rt_factor = FOREVER, None


def needs_no_shutdown(world: AsyncWorld) -> None:
    """Keep mosaik from complaining that ``world`` was not shut down: it is used as long as its worker is there."""
    world._shutdown_performed = True


def stop(world: AsyncWorld, time: int) -> None:
    """End a running world from within a step of the coordinator, at ``time``.

    Nobody else makes another step. With :func:`keep_in_step`, each has made all that were due by then.
    """
    if end_after(world, time):
        return
    cancel_idle(world)
    # the coordinator itself, once its step has ended
    asyncio.get_running_loop().call_soon(cancel_idle, world)


def cancel_idle(world: AsyncWorld) -> None:
    """End the tasks of mosaik's scheduler for simulators that are not in a step."""
    for runner in runners(world):
        if runner.current_step is None and runner.task is not None:
            runner.task.cancel()


def keep_in_step(world: AsyncWorld, coordinator_sid: str, agents: Collection[str] = ()) -> bool:
    """Let no simulator be ahead of the coordinator (``coordinator_sid``, mosaik's id) or behind it.

    When the coordinator steps at some time, which may turn out to be the end, every other simulator has made
    all its steps up to this time, with all their inputs, and none beyond it: what mosaik does where ``until``
    is this time plus one. ``agents``: ids of the simulators of agents, which act after the coordinator.

    Where a simulator feeds the coordinator, and is fed by it or by agents (one tick later), this is so
    anyway. Returns whether there are others.
    """
    known = {runner.sid: runner for runner in runners(world)}
    acting = {coordinator_sid, *agents}
    free = []
    for sid, runner in known.items():
        told = any(source.sid in acting for source in runner.input_delays)
        if sid not in acting and not (told and runner in known[coordinator_sid].input_delays):
            free.append(sid)
    for sid in free:
        _hold_back(world, known[sid], known[coordinator_sid])
    return bool(free)


def wait_for_agents(world: AsyncWorld, coordinator_sid: str, agents: Collection[str]) -> None:
    """Let no simulator step before all agents have acted that act at an earlier time.

    mosaik makes each simulator wait for those that feed it. One agent may still have to act while what the others
    feed goes on, and with it the coordinator (``coordinator_sid``), which records what was there when all had acted.
    """
    known = {runner.sid: runner for runner in runners(world)}
    for sid, runner in known.items():
        if sid != coordinator_sid and sid not in agents:
            for agent in agents:
                if known[agent] not in runner.input_delays:
                    _hold_back(world, runner, known[agent])


def _hold_back(world: AsyncWorld, runner: Any, until: Any) -> None:
    """Let ``runner`` step at no time that ``until`` has not reached."""
    with warnings.catch_warnings():
        # mosaik prefers connections; here is no attribute that could be connected
        warnings.simplefilter("ignore", DeprecationWarning)
        # mosaik's factories, which it keeps elsewhere in 3.5 than in 3.6
        world.connect_async_requests(runner.check_outputs.__self__, until.check_outputs.__self__)


def mend_progress(world: AsyncWorld) -> None:
    """Let no simulator go past a time for which a step in progress may still trigger it.

    Until 3.6, mosaik looks at the steps that are planned, not at one that another process is just making. It then
    takes a simulator that waits for the outcome to be done: it loses events, or fails ("cannot progress
    backwards").

    Also, until 3.6, forget who does not wait any more: mosaik goes through them at every step, and there is one
    more for each step of a simulator that does not step of its own accord.
    """
    triggers = [found for runner in runners(world) for found in runner.triggers.values()]
    # 3.5 works out the ancestors of each when the world runs
    for runner in {target for found in triggers for target, _ in found}:
        runner.progress.set = partial(_set_progress, runner, runner.progress.set)


def _set_progress(runner: Any, set_progress: Callable[[Any], None], time: Any) -> None:
    versions.forget_waits(runner.progress)
    ancestors = runner.triggering_ancestors.items()
    coming = [delay.earliest_sum(a.current_step) for a, delay in ancestors if a.current_step is not None]
    set_progress(min([time, *coming]))


async def answer(
    request: Awaitable[Any], sid: str, during: str, *, limit: float, wants_end: Callable[[], bool]
) -> Any:
    """Return what a remote simulator answers to ``request``.

    ``during``: what it was asked, for the message. Raises :class:`SimulatorError` if it
    has not answered after ``limit`` seconds, raised or died, and :class:`StopRequested` if
    the user wants the end.
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
    """Run ``world`` until its end is drawn nearer, or :func:`stop` ends it.

    ``schedule``: who decides when each simulator steps; ``None``: mosaik's own scheduler.
    ``over``: whether the episode has ended as it should; ``wants_end``: whether the user
    asked for the end; ``timeouts``: seconds that an answer may take, for each remote
    simulator (by mosaik's id); ``failures``: where our own simulators keep what users'
    code raised.

    Raises what a simulator in this process raised, and :class:`SimulatorError` for a
    remote simulator that raised, died, or did not answer in time. When it returns or
    raises, no task of the world is left.
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
    for sid, found in _failures(main, world):
        mended = explain(sid, found, remote=sid in timeouts)
        # Ctrl-C in a terminal reaches the processes of simulators, too
        if not (wants_end() and isinstance(mended, SimulatorError)):
            raise mended
    if not over() and not wants_end():
        raise standstill(world)


def standstill(world: AsyncWorld) -> SimulationError:
    """Return the error for a world in which nobody steps any more."""
    return SimulationError(
        f"the world came to a standstill before the episode ended (simulators: "
        f"{', '.join(r.sid for r in runners(world))}); is every environment still stepping?"
    )


def _limit_setup(world: AsyncWorld, timeouts: Mapping[str, float]) -> None:
    """Make ``setup_done`` of remote simulators obey their time-outs, and name them."""

    async def setup_done(ask: Callable[[], Awaitable[Any]], sid: str) -> Any:
        # the wish to end is looked after by those who watch the whole world
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
    # Counts polls, not seconds: a simulator in this process that computes for long keeps
    # the loop busy, and must not look like a remote one that hangs.
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
        # a remote simulator may still be computing; it ends its step, and no more
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
    """Return what is to be raised for an exception that came through mosaik.

    mosaik's words for a broken ``remote`` simulator are turned into ours. What a simulator
    in this process raised is taken out of them.
    """
    name, context = type(error).__name__, error.__context__
    if not remote:
        # mosaik takes a TypeError for one of JSON, a ConnectionError for one of its sockets
        if isinstance(error, mosaiks.NonSerializableOutputsError) and isinstance(context, TypeError):
            return context
        if isinstance(error, mosaiks.SimulationError) and isinstance(context, ConnectionError):
            return context
    if name == "RemoteException":
        said = getattr(error, "remote_msg", error)
        kind = getattr(error, "remote_type", "an error")
        details = "".join(f"\n{a}" for a in getattr(error, "further_args", ()))
        mended = SimulatorError(f"simulator {sid!r} raised {kind}: {said}{details}")
    elif name == "ConnectionClosedError" or (remote and isinstance(error, ConnectionError | EOFError)):
        mended = SimulatorError(f"simulator {sid!r} closed its connection: {error}")
    elif isinstance(error, mosaiks.SimulationError):
        # since 3.7 by classes of their own, all below this one
        mended = SimulatorError(str(error))
    else:
        return error
    mended.__cause__ = error
    return mended


def _proxies(world: AsyncWorld) -> Iterator[tuple[str, Any]]:
    """Yield id and mosaik's proxy of every simulator."""
    proxies = getattr(world, "_proxies", None)  # since 3.6; empty runners would be made of them
    found = proxies if proxies is not None else {r.sid: r._proxy for r in runners(world)}
    for sid, proxy in list(found.items()):
        yield sid, base_proxy(proxy)


def _remote(world: AsyncWorld) -> Iterator[tuple[str, Any]]:
    """Yield id and mosaik's proxy of every simulator in another process."""
    return ((sid, proxy) for sid, proxy in _proxies(world) if hasattr(proxy, "_channel"))


def unanswered(world: AsyncWorld) -> dict[str, int]:
    """Return the oldest request (its number) that each simulator in another process has not answered yet."""
    waiting = ((sid, list(proxy._channel._outgoing_request_futures)) for sid, proxy in _remote(world))
    return {sid: min(numbers) for sid, numbers in waiting if numbers}


def disconnected(world: AsyncWorld) -> list[str]:
    """Return the ids of simulators in other processes whose connections have been closed."""
    return [sid for sid, proxy in _remote(world) if proxy._channel._receiver_task.done()]


def _expect_late_answers(world: AsyncWorld) -> None:
    """Let the answers to requests that nobody waits for any more arrive without harm.

    The task that reads from a simulator ends at the answer to a request that was
    cancelled, and closing the connection would wait for it without end. A request that
    could not be written as JSON would be reported when the connection is closed.
    """
    for _, proxy in _remote(world):
        requests = proxy._channel._outgoing_request_futures
        for number, future in list(requests.items()):
            if future.cancelled():
                requests[number] = future = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda f: f.cancelled() or f.exception())


async def finalize(world: AsyncWorld, *, hurried: bool = False) -> None:
    """Finalize every simulator of ``world``; see :func:`shut_down`.

    Raises what the first one in this process raises that cannot finalize, after all others have.
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
        # silences the complaint of 3.6 that a world whose shutdown failed was not shut down
        needs_no_shutdown(world)
    if failures:
        raise failures[0]


async def _stop_here(stop: Callable[[], Awaitable[None]], sid: str, failures: list[Exception]) -> None:
    """Finalize a simulator in this process; mosaik would leave the others out after an exception."""
    with _noted(sid, failures):
        await stop()


def finalize_local(simulators: Mapping[str, Any], *, hurried: bool = False) -> None:
    """Finalize simulators of this process (by mosaik's id), as :func:`finalize` does those of a world."""
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
    """Return the processes that mosaik has started for simulators, and keep it from ending them.

    It would 0.1 s after it has told them to finalize, whether they have done so or not.
    """
    taken = {}
    for sid, proxy in _remote(world):
        if proxy._process is not None:
            taken[sid], _ = proxy._process
            proxy._process = None
    return taken


def _exit_status(process: Any) -> int | None:
    """Return the exit status of a process that mosaik has started, ``None`` while it runs."""
    # until 3.6 it is one of subprocess, then one of asyncio, which notices the end while its loop runs
    status: int | None = process.poll() if hasattr(process, "poll") else process.returncode
    return status


async def _ended(
    processes: Mapping[str, Any], limits: Mapping[str, float], wants_end: Callable[[], bool]
) -> None:
    """Wait until simulators have finalized, and their ``processes`` have ended.

    mosaik demands of nobody to end by itself, so that one that does not is no error; it is ended later.
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

    ``hurried``: the run has failed or was interrupted, so that a simulator may hang; that is what is reported
    then, not what comes of it here. Without it, processes have the seconds of ``limits`` (by mosaik's id) to
    end by themselves, unless the user wants the end (``wants_end``).
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

    Each is waited for by who has started it: since 3.7 that is asyncio, while its loop runs. It complains where somebody
    else was first. For whom nobody waits, this does.
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
    """Return the processes that this one has started and that are still there."""
    return set(psutil.Process().children(recursive=False))


def describe_start_failure(sid: str, error: BaseException) -> SimulatorError:
    """Return an error for a simulator that could not be started."""
    text = str(error) or "".join(traceback.format_exception_only(error)).strip()
    mended = SimulatorError(f"simulator {sid!r} could not be started: {text}")
    mended.__cause__ = error
    return mended


#: seconds that a process may take to start, however short the time-out of its answers is
LEAST_START = 10.0


def starter(sid: str, spec: SimulatorSpec) -> dict[str, Any]:
    """Return the entry of mosaik's ``sim_config`` for the simulator ``sid``."""
    if spec.factory is not None:
        return dict(HANDED_OVER)
    if spec.python is not None:
        return {"python": spec.python}
    if spec.connect is not None:
        return {"connect": spec.connect}
    if spec.cmd is None:
        raise SimulatorError(f"simulator {sid!r}: none of python, cmd, connect and factory is given")
    # said out loud, because the default of 3.6 is the wrong way round
    starter: dict[str, Any] = {"cmd": spec.cmd, "posix": os.name != "nt"}
    if spec.cwd is not None:
        starter["cwd"] = spec.cwd
    if spec.env:
        starter["env"] = dict(spec.env)
    return starter


def new_sid(environment: str, simulator: str, taken: Collection[str]) -> str:
    """Return mosaik's id for a simulator of an environment (``""``: its only one) that is not ``taken``."""
    # mosaik separates simulator and entity by the first dot
    parts = [environment, *([simulator] if simulator else [])]
    name = "-".join(re.sub(r"[.\s]", "_", part) for part in parts)
    numbered = (f"{name}-{i}" for i in itertools.count(2))
    return next(sid for sid in itertools.chain([name], numbered) if sid not in taken)
