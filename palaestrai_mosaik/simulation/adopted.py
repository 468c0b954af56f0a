"""Takes worlds that users' functions have built into the world of an episode.

A :class:`~palaestrai_mosaik.environment.mosaik_environment.WorldPlan` says how such a world is made.
Its simulators are then scheduled by the same run of mosaik as agents and other environments, and agents are
connected straight to its entities. Where two worlds have simulators of the same id (two
environments of one module), those of the later one are renamed.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from mosaik.async_scenario import AsyncWorld, Entity

from palaestrai_mosaik.environment.mosaik_environment import WorldPlan
from palaestrai_mosaik.errors import ContractError, SimulatorError, did_you_mean

from . import mosaik_internals as internals
from . import mosaik_merge as merging
from .body import Body
from .bridge import ordinary
from .director import AnyBody
from .loops import in_thread
from .ports import EnvironmentPort
from .starters import new_sid
from .wires import Link

FloatVector = npt.NDArray[np.float64]

#: ids of our own simulators beside those of environments
_OWN = re.compile("agents|director|agent-[0-9]+")


async def adopt(
    host: AsyncWorld,
    port: EnvironmentPort,
    plan: WorldPlan,
    taken: Collection[str],
    children: set[Any],
    beside: Collection[str],
    wants_end: Callable[[], bool],
) -> tuple[merging.Guests, Mapping[str, Any]]:
    """Let ``plan`` build its world, and make it a part of ``host``.

    ``taken``: ids that are not free for its simulators. The processes that were started for it are added to
    ``children``. ``beside``: other environments with simulators. ``wants_end``: whether the user asked for
    the end. Returns its simulators, and mosaik's entities by the full ids that the function gave them
    under.

    Raises what the user's function raises, :class:`ContractError` where it does not return what it
    should, :class:`SimulatorError` where a simulator in another process does not answer in time, and
    ``EndWanted``. All worlds that the function has made are then shut down.
    """
    who = f"environment {port.uid!r}"
    before = internals.children_of_this_process()
    shown = warnings.showwarning
    made: list[AsyncWorld] = []
    try:
        with merging.noting_worlds() as made:
            found, threaded = await _watched(plan, who, made, wants_end)
        guest, entities = _read(found, who)
        if guest not in made:
            made.append(guest)
        distant = merging.remote_sids(guest)
        if threaded and distant:
            raise ContractError(
                f"simulator {distant[0]!r} of {who} is connected to an event loop of its own; make the instance "
                "function asynchronous, with a mosaik.AsyncWorld"
            )
        _check_entities(plan, guest, entities, who)
        merging.check_resolution(host, guest, who, beside)
    except BaseException as error:
        await _discard(made, error)
        raise
    finally:
        # a world that is told to configure logging replaces it for good
        warnings.showwarning = shown
        children |= internals.children_of_this_process() - before
    return merging.merge(host, guest, partial(_name, port.uid, taken)), entities


def _read(found: Any, who: str) -> tuple[AsyncWorld, Mapping[str, Any]]:
    """Return world and entities of what the instance function has returned."""
    if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[1], Mapping):
        raise ContractError(f"the instance function of {who} must return (world, entities), found {found!r}")
    guest = merging.world_of(found[0])
    if guest is None:
        raise ContractError(
            f"the instance function of {who} must return a mosaik.AsyncWorld, found {type(found[0]).__name__}"
        )
    if merging.has_run(guest):
        raise ContractError(
            f"the instance function of {who} has run its world; agents could not act any more"
        )
    if merging.was_shut_down(guest):
        raise ContractError(f"the instance function of {who} has returned a world that was shut down")
    return guest, found[1]


async def _discard(made: Iterable[AsyncWorld], error: BaseException) -> None:
    """Shut down the worlds that nobody runs because of ``error``."""
    for world in made:
        if not merging.was_shut_down(world):
            try:
                await internals.finalize(world, hurried=True)
            except Exception as another:
                error.add_note(f"When its world was shut down, there was {another!r}")


async def _watched(
    plan: WorldPlan, who: str, made: Sequence[AsyncWorld], wants_end: Callable[[], bool]
) -> tuple[Any, bool]:
    """Return what the function returns, and whether it has built its world in a thread of its own.

    ``made``: the worlds that it has made until now.
    """
    task = asyncio.ensure_future(_built(plan, who, made))
    #: the oldest request of each simulator, and for how long it is waiting
    still: dict[tuple[int, str], tuple[int, float]] = {}
    try:
        while not task.done():
            await asyncio.wait([task], timeout=internals.POLL)
            if wants_end():
                raise internals.EndWanted
            waiting = {
                (place, sid): number
                for place, world in enumerate(list(made))
                for sid, number in internals.unanswered(world).items()
            }
            for key, number in waiting.items():
                before, waited = still.get(key, (None, 0.0))
                still[key] = (number, waited + internals.POLL if number == before else 0.0)
                if still[key][1] >= plan.timeout and not task.done():
                    raise SimulatorError(
                        f"simulator {key[1]!r} has not answered for {plan.timeout:g} s, while the instance function "
                        f"of {who} built its world"
                    )
        return task.result()
    except Exception as error:
        mended = _explained(error, made)
        if mended is error:
            raise
        raise mended from error
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _explained(error: Exception, made: Iterable[AsyncWorld]) -> BaseException:
    """Return what is to be raised for ``error``: mosaik does not say much of a simulator in another process."""
    if type(error).__name__ not in ("RemoteException", "ConnectionClosedError", "IncompleteReadError"):
        return error
    gone = [sid for world in made for sid in internals.disconnected(world)]
    named = getattr(error, "source", None) or getattr(error, "simulator", None)
    return internals.explain(gone[0] if gone else named or "?", error, remote=True)


async def _built(plan: WorldPlan, who: str, made: Sequence[AsyncWorld]) -> tuple[Any, bool]:
    try:
        if inspect.iscoroutinefunction(plan.build):
            return await plan.build(), False
        found = await _in_thread(plan.build, made)
        if inspect.isawaitable(found):
            return await found, False
        return found, True
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and asyncio.current_task().cancelling():  # type: ignore[union-attr]
            raise
        mended = ordinary(error, f"the instance function of {who}")
        if mended is error:
            raise
        raise mended from error


async def _in_thread(call: Callable[[], Any], made: Iterable[AsyncWorld]) -> Any:
    """Return what ``call`` returns in a thread of its own, with the variables of this context.

    mosaik.World drives an event loop, which the thread of a running one must not. Nobody waits for
    a thread that hangs, with the worlds that it has ``made``: it ends with the process.
    """
    _, future = in_thread(call, "instance function", daemon=True)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        for world in made if not future.done() else ():
            # the thread still works with its simulators
            world._shutdown_performed = True
        raise


def _name(uid: str, taken: Collection[str], sid: str) -> str:
    """Return the id that the simulator ``sid`` of environment ``uid`` shall have."""
    if sid not in taken and not _OWN.fullmatch(sid):
        return sid
    return new_sid(uid, sid, taken)


def _check_entities(plan: WorldPlan, guest: AsyncWorld, entities: Mapping[str, Any], who: str) -> None:
    """Look whether what agents shall see and set is there."""
    for kind, ports, names in (
        ("sensor", plan.sensors, "output_attrs"),
        ("actuator", plan.actuators, "input_attrs"),
    ):
        for one in ports:
            uid = one.information.uid
            entity = entities.get(one.entity)
            if entity is None:
                known = [key for key in entities if "." in str(key)]
                raise ContractError(
                    f"{kind} {uid!r} of {who}: the instance function has given no entity {one.entity!r}"
                    f"{did_you_mean(one.entity, known)}"
                )
            if not isinstance(entity, Entity) or entity.model_mock._world is not guest:
                raise ContractError(
                    f"{kind} {uid!r} of {who}: what the instance function has given as {one.entity!r} is no entity "
                    f"of its world: {entity!r}"
                )
            attributes = getattr(entity.model_mock, names)
            if one.attribute not in attributes:
                known = entity.model_mock._factory.meta["models"][entity.type].get("attrs", ())
                raise ContractError(
                    f"{kind} {uid!r} of {who}: {entity.type} has no attribute {one.attribute!r}"
                    f"{did_you_mean(one.attribute, known)}; it has {', '.join(known)}"
                )


def conversion(plan: WorldPlan, link: Link, there: Any, outward: bool) -> tuple[Any, Callable[[Any], Any]]:
    """Return the initial value of a connection between an agent and the entity ``there``, and what converts values.

    An agent always has a reading: that of an attribute which only comes with events stays until
    the next one, and is missing before the first.
    """
    if outward:
        return (np.nan if link.initial is None else link.initial), plan.setpoint
    convert = plan.readings[link.entity, link.source]
    return (None if there.is_persistent(link.source) else convert(None)), convert


def chain(first: Callable[[Any], Any] | None, second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what converts by ``first``, if there is such a thing, then by ``second``."""
    return second if first is None else lambda value: second(first(value))


def setpoints_of(port: EnvironmentPort, bodies: Sequence[AnyBody]) -> Callable[[], FloatVector]:
    """Return what gives the set-points in force in a co-simulation (NaN: none), all actuators in order."""
    held = port.initial_setpoints()
    places = []
    for body in bodies:
        if not isinstance(body, Body):
            continue  # those of a batch have their actuators in batched environments only
        own = body.actuators
        for i, uid in enumerate(own.uids):
            at = port.actuators.index.get(uid)
            if at is not None:
                places.append((body, own.slices[i], port.actuators.slices[at]))

    def now() -> FloatVector:
        for body, take, put in places:
            # what was done in the step that has led to the newest state
            if body.open and not np.isnan(body.setpoints[take]).any():
                held[put] = body.setpoints[take]
        return held.copy()

    return now
