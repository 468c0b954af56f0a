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
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from mosaik.async_scenario import AsyncWorld

from palaestrai_mosaik.environment.mosaik_environment import WorldPlan
from palaestrai_mosaik.errors import ContractError, did_you_mean

from . import mosaik_internals as internals
from . import mosaik_merge as merging
from .body import Body
from .bridge import ordinary
from .director import AnyBody
from .ports import EnvironmentPort
from .starters import new_sid
from .wires import Link

FloatVector = npt.NDArray[np.float64]

#: ids of our own simulators beside those of environments
_OWN = re.compile("agents|director|agent-[0-9]+")


async def adopt(
    host: AsyncWorld, port: EnvironmentPort, plan: WorldPlan, taken: Collection[str], children: set[Any]
) -> tuple[merging.Guests, Mapping[str, Any]]:
    """Let ``plan`` build its world, and make it a part of ``host``.

    ``taken``: ids that are not free for its simulators. The processes that were started for it are added to
    ``children``. Returns its simulators, and mosaik's entities by the full ids that the function gave
    them under.

    Raises what the user's function raises, and :class:`ContractError` where it does not return
    what it should.
    """
    who = f"environment {port.uid!r}"
    before = internals.children_of_this_process()
    shown = warnings.showwarning
    try:
        found, threaded = await _built(plan, who)
    finally:
        # a world that is told to configure logging replaces it for good
        warnings.showwarning = shown
        children |= internals.children_of_this_process() - before
    if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[1], Mapping):
        raise ContractError(f"the instance function of {who} must return (world, entities), found {found!r}")
    guest, entities = merging.world_of(found[0]), found[1]
    if guest is None:
        raise ContractError(
            f"the instance function of {who} must return a mosaik.AsyncWorld, found {type(found[0]).__name__}"
        )
    try:
        if merging.has_run(guest):
            raise ContractError(
                f"the instance function of {who} has run its world; agents could not act any more"
            )
        distant = merging.remote_sids(guest)
        if threaded and distant:
            raise ContractError(
                f"simulator {distant[0]!r} of {who} is connected to an event loop of its own; make the instance "
                "function asynchronous, with a mosaik.AsyncWorld"
            )
        _check_entities(plan, entities, who)
        merging.check_resolution(host, guest, who)
    except ContractError:
        await guest.shutdown()
        raise
    return merging.merge(host, guest, partial(_name, port.uid, taken)), entities


async def _built(plan: WorldPlan, who: str) -> tuple[Any, bool]:
    """Return what the function returns, and whether it has built its world in a thread of its own."""
    try:
        if inspect.iscoroutinefunction(plan.build):
            return await plan.build(), False
        # mosaik.World drives an event loop, which the thread of a running one must not
        with ThreadPoolExecutor(1) as thread:
            found = thread.submit(plan.build).result()
        if inspect.isawaitable(found):
            return await found, False
        return found, True
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        mended = ordinary(error, f"the instance function of {who}")
        if mended is error:
            raise
        raise mended from error


def _name(uid: str, taken: Collection[str], sid: str) -> str:
    """Return the id that the simulator ``sid`` of environment ``uid`` shall have."""
    if sid not in taken and not _OWN.fullmatch(sid):
        return sid
    return new_sid(uid, sid, taken)


def _check_entities(plan: WorldPlan, entities: Mapping[str, Any], who: str) -> None:
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
