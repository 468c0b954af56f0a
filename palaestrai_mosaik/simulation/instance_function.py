"""Calls the user's function that builds the mosaik world of an environment, and checks its result.

A :class:`~palaestrai_mosaik.environment.cosimulation.WorldPlan` names the function. It may be synchronous, and then
runs in a thread of its own, because ``mosaik.World`` drives an event loop. It is watched meanwhile: a simulator in
another process that does not answer is an error, and the worlds of a function that failed are shut down.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from mosaik.async_scenario import AsyncWorld, Entity

from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.environment.cosimulation import WorldPlan

from .bridge import ordinary
from .environment_handle import EnvironmentHandle
from .event_loop import in_thread
from .foreign_world import (
    ImportedSimulators,
    check_resolution,
    has_run,
    merge,
    remote_sids,
    was_shut_down,
    world_of,
)
from .mosaik_internals import children_of_this_process, new_sid
from .world_run import Request, disconnected, explain, finalize, unanswered, watch


async def adopt(
    host: AsyncWorld,
    handle: EnvironmentHandle,
    plan: WorldPlan,
    taken: Collection[str],
    children: set[Any],
    beside: Collection[str],
    wants_end: Callable[[], bool],
) -> tuple[ImportedSimulators, Mapping[str, Any]]:
    """Call ``plan`` to build its world, and merge it into ``host``.

    Args:
        host: the world of the episode.
        handle: the environment.
        plan: builds the foreign world.
        taken: ids that its simulators cannot have.
        children: receives the processes that were started for it.
        beside: other environments with simulators.
        wants_end: whether the user wants the end.

    Returns:
        Its simulators, and mosaik's entities by the full ids that the function returned.

    Raises:
        Exception: that of the user's function.
        ContractError: the function returned something invalid.
        SimulatorError: a simulator in another process does not answer in time.
        StopRequested: the user wants the end.

    After an exception, all worlds created by the function are shut down.
    """
    who = f"environment {handle.uid!r}"
    before = children_of_this_process()
    show_warning = warnings.showwarning
    worlds: list[AsyncWorld] = []
    try:
        with noting_worlds() as worlds:
            result, threaded = await _watched(plan, who, worlds, wants_end)
        foreign, entities = _read(result, who)
        if foreign not in worlds:
            worlds.append(foreign)
        distant = remote_sids(foreign)
        if threaded and distant:
            raise ContractError(
                f"simulator {distant[0]!r} of {who} is connected to an event loop of its own; make the instance "
                "function asynchronous, with a mosaik.AsyncWorld"
            )
        _check_entities(plan, foreign, entities, who)
        check_resolution(host, foreign, who, beside)
    except BaseException as error:
        await _discard(worlds, error)
        raise
    finally:
        # a world that configures logging replaces it permanently
        warnings.showwarning = show_warning
        children |= children_of_this_process() - before
    return merge(host, foreign, partial(_name, handle.uid, taken)), entities


def _read(result: Any, who: str) -> tuple[AsyncWorld, Mapping[str, Any]]:
    """Check the result of the instance function, and return its world and entities."""
    if not isinstance(result, tuple | list) or len(result) != 2 or not isinstance(result[1], Mapping):
        raise ContractError(f"the instance function of {who} must return (world, entities), found {result!r}")
    foreign = world_of(result[0])
    if foreign is None:
        raise ContractError(
            f"the instance function of {who} must return a mosaik.AsyncWorld, found {type(result[0]).__name__}"
        )
    if has_run(foreign):
        raise ContractError(
            f"the instance function of {who} has run its world; agents could not act any more"
        )
    if was_shut_down(foreign):
        raise ContractError(f"the instance function of {who} has returned a world that was shut down")
    return foreign, result[1]


async def _discard(worlds: Iterable[AsyncWorld], error: BaseException) -> None:
    """Shut down the worlds that will not run because of ``error``."""
    for world in worlds:
        if not was_shut_down(world):
            try:
                await finalize(world, hurried=True)
            except Exception as another:
                error.add_note(f"When its world was shut down, there was {another!r}")


async def _watched(
    plan: WorldPlan, who: str, made: Sequence[AsyncWorld], wants_end: Callable[[], bool]
) -> tuple[Any, bool]:
    """Return the function's result, and whether it has built its world in a separate thread.

    ``made``: the worlds that it has created so far.
    """
    task = asyncio.ensure_future(_built(plan, who, made))
    during = f"while the instance function of {who} built its world"

    def oldest_requests() -> Iterator[Request]:
        for index, world in enumerate(list(made)):
            for sid, number in unanswered(world).items():
                yield Request(sid, (index, number), plan.timeout, during)

    try:
        await watch(task, oldest_requests, wants_end)
        return task.result()
    except Exception as error:
        error_to_raise = _explained(error, made)
        if error_to_raise is error:
            raise
        raise error_to_raise from error
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _explained(error: Exception, made: Iterable[AsyncWorld]) -> BaseException:
    """Return the exception to raise for ``error``, with more details than mosaik's of a remote simulator."""
    if type(error).__name__ not in ("RemoteException", "ConnectionClosedError", "IncompleteReadError"):
        return error
    gone = [sid for world in made for sid in disconnected(world)]
    reported = getattr(error, "source", None) or getattr(error, "simulator", None)
    return explain(gone[0] if gone else reported or "?", error, remote=True)


async def _built(plan: WorldPlan, who: str, made: Sequence[AsyncWorld]) -> tuple[Any, bool]:
    try:
        if inspect.iscoroutinefunction(plan.build):
            return await plan.build(), False
        result = await _in_thread(plan.build, made)
        if inspect.isawaitable(result):
            return await result, False
        return result, True
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and asyncio.current_task().cancelling():  # type: ignore[union-attr]
            raise
        error_to_raise = ordinary(error, f"the instance function of {who}")
        if error_to_raise is error:
            raise
        raise error_to_raise from error


async def _in_thread(call: Callable[[], Any], worlds: Iterable[AsyncWorld]) -> Any:
    """Return the result of ``call`` in a new thread, with this context's variables.

    mosaik.World drives an event loop, which is impossible in the thread of a running one. A
    hanging thread is abandoned with the worlds that it has created: it ends with the process.
    """
    _, future = in_thread(call, "instance function", daemon=True)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        for world in worlds if not future.done() else ():
            # the thread still works with its simulators
            world._shutdown_performed = True
        raise


#: ids of our own simulators besides those of environments
_OWN = re.compile("agents|coordinator|agent-[0-9]+")


def _name(uid: str, taken: Collection[str], sid: str) -> str:
    """Return the id for the simulator ``sid`` of environment ``uid``."""
    if sid not in taken and not _OWN.fullmatch(sid):
        return sid
    return new_sid(uid, sid, taken)


def _check_entities(plan: WorldPlan, foreign: AsyncWorld, entities: Mapping[str, Any], who: str) -> None:
    """Check that the agents' sensors and actuators exist."""
    for kind, ports, names in (
        ("sensor", plan.sensors, "output_attrs"),
        ("actuator", plan.actuators, "input_attrs"),
    ):
        for port in ports:
            uid = port.information.uid
            entity = entities.get(port.entity)
            if entity is None:
                candidates = [key for key in entities if "." in str(key)]
                raise ContractError(
                    f"{kind} {uid!r} of {who}: the instance function has given no entity {port.entity!r}"
                    f"{did_you_mean(port.entity, candidates)}"
                )
            if not isinstance(entity, Entity) or entity.model_mock._world is not foreign:
                raise ContractError(
                    f"{kind} {uid!r} of {who}: what the instance function has given as {port.entity!r} is no entity "
                    f"of its world: {entity!r}"
                )
            attributes = getattr(entity.model_mock, names)
            if port.attribute not in attributes:
                candidates = entity.model_mock._factory.meta["models"][entity.type].get("attrs", ())
                raise ContractError(
                    f"{kind} {uid!r} of {who}: {entity.type} has no attribute {port.attribute!r}"
                    f"{did_you_mean(port.attribute, candidates)}; it has {', '.join(candidates)}"
                )


#: collects the worlds that are created in this context
_made: ContextVar[list[AsyncWorld] | None] = ContextVar("_made", default=None)


@contextmanager
def noting_worlds() -> Iterator[list[AsyncWorld]]:
    """Collect every world that is created in this context, or in a copy of it.

    There is no other way to find a world if the function that created it has failed.
    """
    worlds: list[AsyncWorld] = []
    if not hasattr(AsyncWorld.__init__, "__wrapped__"):
        AsyncWorld.__init__ = _noted(AsyncWorld.__init__)  # type: ignore[method-assign]
    token = _made.set(worlds)
    try:
        yield worlds
    finally:
        _made.reset(token)


def _noted(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def noted(world: AsyncWorld, *args: Any, **kwargs: Any) -> None:
        init(world, *args, **kwargs)
        worlds = _made.get()
        if worlds is not None:
            worlds.append(world)

    return noted
