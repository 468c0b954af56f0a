"""Access to undocumented parts of mosaik, except for :mod:`.scheduler`; tested with 3.5 to 3.7.

This module builds worlds and holds simulators back, :mod:`.world_run` runs and ends them,
and :mod:`.foreign_world` merges two. They correct what mosaik does in some releases or in all:

====== ===================================================== ========================================================
until  in mosaik                                             here
====== ===================================================== ========================================================
3.5    the default transform is not callable                 :func:`connect`
3.5    runners exist at once, without factories and proxies  :func:`proxies`, :func:`.foreign_world.merge`
3.5    output times stay in the outputs                      :func:`.scheduler.versions.take_time`
3.6    the default of ``posix`` is inverted                  :func:`starter`
3.6    a simulator may pass a step that is just being made   :func:`mend_progress`
3.6    cancelled waits for a progress are kept               :func:`mend_progress`
3.6    a process is one of ``subprocess``, not of asyncio    :mod:`.world_run`
3.6    errors are all ``SimulationError``                    :func:`.world_run.explain`, :mod:`.scheduler.versions`
------ ----------------------------------------------------- --------------------------------------------------------
always a run cannot end early                                :func:`stop`, :func:`keep_in_step`
always any process may connect as a simulator                :mod:`.peer_check`
always simulators have no time-out                           :func:`.world_run.answer`, :func:`.world_run.run`
always a remote simulator's exception is only logged         :func:`.world_run.run`
always a late answer stops the reading from a simulator      :func:`.world_run.finalize`
always after a failed ``finalize``, others are not called    :func:`.world_run.finalize`
always a process is killed 0.1 s after ``finalize``          :func:`.world_run.shut_down`
always processes may be left behind                          :func:`.world_run.shut_down`
====== ===================================================== ========================================================

Since 3.6, a world without a shutdown is reported: :func:`needs_no_shutdown` suppresses that.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from inspect import isfunction, signature
from typing import Any

import mosaik_api_v3
import numpy as np
import psutil
from mosaik.async_scenario import AsyncWorld

from palaestrai_mosaik.core.errors import SimulatorError
from palaestrai_mosaik.environment.cosimulation import SimulatorSpec

from . import peer_check
from .scheduler import end_after, versions
from .scheduler.versions import runners

peer_check.guard()

#: an end of a world's time that no episode reaches
FOREVER = 2**53
#: least time in seconds for a process to start, however short the time-out of its answers
LEAST_START = 10.0


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
    """A class for ``sim_config`` that yields an existing simulator object.

    mosaik imports this class by its name and calls it. The object is the last that :func:`hand_over` was called with.
    """

    def __new__(cls) -> Any:
        return _handed_over.pop()


HANDED_OVER = {"python": f"{__name__}:ExistingSimulator"}


def hand_over(simulator: mosaik_api_v3.Simulator) -> None:
    """Make the next start of :data:`HANDED_OVER` yield ``simulator``."""
    _handed_over.append(simulator)


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
    starter = {"cmd": spec.cmd, "posix": os.name != "nt", "cwd": spec.cwd, "env": dict(spec.env) or None}
    return {key: value for key, value in starter.items() if value is not None}


def new_sid(environment: str, simulator: str, taken: Collection[str]) -> str:
    """Return an unused id for a simulator of an environment; ``simulator`` is ``""`` if it has only one."""
    # mosaik separates simulator and entity by the first dot
    parts = [environment, *([simulator] if simulator else [])]
    name = "-".join(re.sub(r"[.\s]", "_", part) for part in parts)
    numbered = (f"{name}-{i}" for i in itertools.count(2))
    return next(sid for sid in itertools.chain([name], numbered) if sid not in taken)


def base_proxy(proxy: Any) -> Any:
    """Return mosaik's proxy of a simulator below the adapters for older versions of the API."""
    while hasattr(proxy, "_out"):
        proxy = proxy._out
    return proxy


def proxies(world: AsyncWorld) -> Iterator[tuple[str, Any]]:
    """Yield id and mosaik's proxy of every simulator."""
    proxies = getattr(world, "_proxies", None)  # since 3.6, where runners would compile the world
    by_sid = proxies if proxies is not None else {r.sid: r._proxy for r in runners(world)}
    for sid, proxy in list(by_sid.items()):
        yield sid, base_proxy(proxy)


def remote_proxies(world: AsyncWorld) -> Iterator[tuple[str, Any]]:
    """Yield id and mosaik's proxy of every simulator in another process."""
    return ((sid, proxy) for sid, proxy in proxies(world) if hasattr(proxy, "_channel"))


def compile_world(world: AsyncWorld) -> None:
    """Make mosaik analyse the connections, for a schedule of our own."""
    versions.compile_world(world)
    versions.show_progress_bars(world, FOREVER, False)
    world.until, world.rt_factor = FOREVER, None


def needs_no_shutdown(world: AsyncWorld) -> None:
    """Suppress mosaik's complaint about a missing shutdown: ``world`` is used as long as its worker exists."""
    world._shutdown_performed = True


def children_of_this_process() -> set[psutil.Process]:
    """Return the running processes that this one has started."""
    return set(psutil.Process().children(recursive=False))


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
    coordinator = runner_of[coordinator_sid]
    free = []
    for sid, runner in runner_of.items():
        is_fed = any(source.sid in acting for source in runner.input_delays)
        if sid not in acting and not (is_fed and runner in coordinator.input_delays):
            free.append(runner)
    for runner in free:
        _hold_back(world, runner, coordinator)
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
