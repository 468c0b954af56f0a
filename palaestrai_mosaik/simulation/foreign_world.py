"""Imports a mosaik world that a function of the user has built into the world of an episode.

mosaik has no worlds of several parts, so this relies on undocumented parts of it, like
:mod:`.mosaik_internals`; tested with 3.5, 3.6 and 3.7.

A :class:`~palaestrai_mosaik.environment.cosimulation.WorldPlan` says how such a world is made.
Its simulators are then scheduled by the same run of mosaik as agents and other environments, and agents are
connected straight to its entities. Where two worlds have simulators of the same id (two
environments of one module), those of the later one are renamed.
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
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import networkx
import numpy as np
from mosaik.adapters import Adapter
from mosaik.async_scenario import AsyncWorld, Entity
from mosaik.proxies import Proxy
from mosaik.scenario import World
from mosaik.simmanager import MosaikRemote

from palaestrai_mosaik.environment.cosimulation import WorldPlan
from palaestrai_mosaik.errors import ContractError, SimulatorError, did_you_mean
from palaestrai_mosaik.types.arrays import FloatVector

from . import mosaik_internals as internals
from .body import AnyBody, Body
from .bridge import ordinary
from .connections import MosaikConnection
from .environment_handle import EnvironmentHandle
from .event_loop import in_thread
from .mosaik_internals import base_proxy, new_sid


@dataclass
class ImportedSimulators:
    """The simulators of a world that was taken in."""

    #: the id that each was started with -> its id now
    sids: dict[str, str] = field(default_factory=dict)
    #: mosaik's factories, by the id now
    factories: dict[str, Any] = field(default_factory=dict)
    #: those that run outside of this process (ids now)
    remote: list[str] = field(default_factory=list)


#: where worlds are noted that are made by what runs in this context
_made: ContextVar[list[AsyncWorld] | None] = ContextVar("_made", default=None)


@contextmanager
def noting_worlds() -> Iterator[list[AsyncWorld]]:
    """Note every world that is made in this context (and in what is started with a copy of it).

    Nothing else tells of a world whose maker has failed.
    """
    made: list[AsyncWorld] = []
    if not hasattr(AsyncWorld.__init__, "__wrapped__"):
        AsyncWorld.__init__ = _noted(AsyncWorld.__init__)  # type: ignore[method-assign]
    token = _made.set(made)
    try:
        yield made
    finally:
        _made.reset(token)


def _noted(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def noted(world: AsyncWorld, *args: Any, **kwargs: Any) -> None:
        init(world, *args, **kwargs)
        made = _made.get()
        if made is not None:
            made.append(world)

    return noted


def world_of(found: Any) -> AsyncWorld | None:
    """Return mosaik's world behind ``found``, ``None`` if it is none."""
    if isinstance(found, World):
        if not found.loop.is_running():
            # it was only there for building
            found.loop.close()
        return found._async_world
    return found if isinstance(found, AsyncWorld) else None


def has_run(world: AsyncWorld) -> bool:
    """Whether ``world`` has been run, which mosaik allows once."""
    return hasattr(world, "until")


def was_shut_down(world: AsyncWorld) -> bool:
    """Whether ``world`` has ended already (told since 3.6), or is a part of another one."""
    return bool(getattr(world, "_shutdown_performed", False))


def remote_sids(world: AsyncWorld) -> list[str]:
    """Return the ids of simulators of ``world`` that run outside of this process."""
    return [sid for sid, (proxy, _) in _simulators(world).items() if hasattr(base_proxy(proxy), "_channel")]


def merge(host: AsyncWorld, foreign: AsyncWorld, name: Callable[[str], str]) -> ImportedSimulators:
    """Make all of ``foreign`` a part of ``host``, which has not been run yet.

    ``name`` gives the id that a simulator shall have in ``host``. Entities and factories stay the
    same objects. Simulators know themselves and each other by the ids that they were started with, and see of
    the entities those of ``foreign`` and who is connected to them. ``foreign`` keeps the attributes
    that mosaik does not know; all others are those of ``host`` from now on.
    """
    imported = ImportedSimulators(remote=remote_sids(foreign))
    simulators = _simulators(foreign)
    imported.sids = {sid: name(sid) for sid in simulators}
    imported.remote = [imported.sids[sid] for sid in imported.remote]
    renamed = {sid: new for sid, new in imported.sids.items() if sid != new}
    ids = {
        entity.full_id: f"{renamed[sid]}.{entity.eid}"
        for sid in renamed
        for entity in simulators[sid][1].entities.values()
    }
    names = _Names(host, imported.sids)
    for sid, (proxy, factory) in simulators.items():
        new = imported.sids[sid]
        imported.factories[new] = factory
        factory._sid = new
        for entity in factory.entities.values():
            entity.sid = new
        base = base_proxy(proxy)
        # what the simulator asks mosaik through
        remote = _ImportedRemote(foreign, new, names)
        if hasattr(base, "sim"):
            base.sim.mosaik = remote
        else:
            base._mosaik_remote = remote
    graph = networkx.relabel_nodes(foreign.entity_graph, ids)
    for new in renamed.values():
        for entity in imported.factories[new].entities.values():
            graph.nodes[entity.full_id]["sid"] = new
    host.entity_graph.update(graph)
    host.max_loop_iterations = max(host.max_loop_iterations, foreign.max_loop_iterations)
    if hasattr(foreign, "_proxies"):
        _move_pending(host, foreign, imported.sids)
        for sid, new in imported.sids.items() if renamed else ():
            host._proxies[new] = _Renaming(simulators[sid][0], names)
    else:
        _move_runners(host, foreign, imported.sids, ids)
        for sid, new in imported.sids.items() if renamed else ():
            host.sims[new]._proxy = _Renaming(simulators[sid][0], names)
    _make_part(host, foreign)
    return imported


class _Names:
    """The names that the simulators of a foreign world use for each other (``sids``: old id -> id now), and the entities that they see."""

    def __init__(self, host: AsyncWorld, sids: Mapping[str, str]):
        self._host, self._now = host, sids
        self._then = {new: sid for sid, new in sids.items()}
        self._size: tuple[int, int] | None = None

    def inward(self, full_id: str) -> str:
        """Return the id in the world of an entity that a simulator of the foreign world has named."""
        sid, dot, eid = full_id.partition(".")
        return self._now.get(sid, sid) + dot + eid

    def outward(self, full_id: str) -> str:
        """Return the name that the simulators of the foreign world use for an entity."""
        sid, dot, eid = full_id.partition(".")
        return self._then.get(sid, sid) + dot + eid

    def graph(self) -> networkx.Graph[str]:
        """Return the entities of the foreign world, and those of others that are connected to them."""
        whole = self._host.entity_graph
        size = (whole.number_of_nodes(), whole.number_of_edges())
        if size != self._size:
            self._size = size
            own = {node for node in whole if node.partition(".")[0] in self._then}
            near = {
                node for entity in own for node in whole[entity] if node.partition(".")[0] not in self._now
            }
            self._graph = networkx.relabel_nodes(
                whole.subgraph(own | near), {node: self.outward(node) for node in own}
            )
            for node in map(self.outward, own):
                self._graph.nodes[node]["sid"] = node.partition(".")[0]
        return self._graph


class _ImportedRemote(MosaikRemote):
    """Answers the requests of a foreign world's simulator, in the names that it knows."""

    def __init__(self, foreign: AsyncWorld, sid: str, names: _Names):
        super().__init__(foreign, sid)
        self._names = names

    async def get_related_entities(self, entities: Any = None) -> Any:
        seen: Any = SimpleNamespace(entity_graph=self._names.graph())
        return await MosaikRemote(seen, self.sid).get_related_entities(entities)

    async def get_data(self, attrs: Mapping[str, list[str]]) -> dict[str, Any]:  # type: ignore[override]
        found = await super().get_data({self._names.inward(uid): wanted for uid, wanted in attrs.items()})
        return {self._names.outward(uid): values for uid, values in found.items()}

    async def set_data(self, data: Mapping[str, Mapping[str, dict[str, Any]]]) -> None:
        inward = self._names.inward
        await super().set_data(
            {inward(uid): {inward(to): values for to, values in told.items()} for uid, told in data.items()}
        )


class _Renaming(Adapter):
    """Passes a simulator its inputs under the names of their sources that it knows."""

    def __init__(self, out: Proxy, names: _Names):
        super().__init__(out)
        self._names = names

    async def send(self, request: Any) -> Any:
        if request[0] == "step":
            time, inputs, *more = request[1]
            outward = self._names.outward
            known = {
                eid: {
                    attribute: {outward(source): value for source, value in sources.items()}
                    for attribute, sources in attributes.items()
                }
                for eid, attributes in inputs.items()
            }
            request = ["step", (time, known, *more), request[2]]
        return await self._out.send(request)


class _Part:
    """A world that is a part of another one: what mosaik has made of it is that of the latter."""

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self).get("_whole"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        whole = vars(self)["_whole"]
        if name in vars(whole):
            setattr(whole, name, value)
        else:
            super().__setattr__(name, value)


def _make_part(host: AsyncWorld, foreign: AsyncWorld) -> None:
    for name in vars(host).keys() & vars(foreign).keys():
        delattr(foreign, name)
    # it ends with the whole
    vars(foreign).update(_whole=host, _shutdown_performed=True)
    foreign.__class__ = type(type(foreign).__name__, (_Part, type(foreign)), {})


def _simulators(world: AsyncWorld) -> dict[str, tuple[Any, Any]]:
    """Return proxy and factory of every simulator, by id."""
    if hasattr(world, "_proxies"):
        return {sid: (proxy, world._factories[sid]) for sid, proxy in world._proxies.items()}
    # 3.5 keeps the factory only as what checks the outputs
    return {sid: (r._proxy, r.check_outputs.__self__) for sid, r in world.sims.items()}  # type: ignore[attr-defined]


def _move_pending(host: Any, foreign: Any, sids: dict[str, str]) -> None:
    """Move what 3.6 keeps until it makes the runners."""
    for sid, new in sids.items():
        host._proxies[new] = foreign._proxies[sid]
        host._factories[new] = foreign._factories[sid]
    for connection in foreign._pending_connections:
        # the cache is that of the whole world
        connection.is_pulled = host.use_cache and connection.src_entity.is_persistent(connection.src_attr)
    asynchronous = [(sids[source], sids[target]) for source, target in foreign._pending_async_requests]
    host._pending_connections += foreign._pending_connections
    host._pending_async_requests += asynchronous
    for sid, time in foreign._pending_initial_events.items():
        host._pending_initial_events[sids[sid]] = time
    host._sims_cache = None


def _move_runners(host: Any, foreign: Any, sids: dict[str, str], ids: dict[str, str]) -> None:
    """Move the runners, which 3.5 makes at once."""
    for sid, new in sids.items():
        runner = host.sims[new] = foreign.sims[sid]
        runner.sid = new
        if runner.outputs is None and host.use_cache:
            runner.outputs = {}
        for attributes in runner.persistent_inputs.values():
            for attribute, sources in attributes.items():
                attributes[attribute] = {ids.get(source, source): value for source, value in sources.items()}


def check_resolution(host: AsyncWorld, foreign: AsyncWorld, who: str, beside: Collection[str]) -> None:
    """Let ``host`` have the resolution of its first foreign world; raise :class:`ContractError` if another differs.

    ``who``: the foreign world, for the message; ``beside``: environments with simulators of their own, for which
    one tick is one second.
    """
    seconds = foreign.time_resolution
    found = f"{who} has a world with a time_resolution of {seconds:g} s"
    shared = "the environments of a phase share their ticks"
    if beside and seconds != 1:
        raise ContractError(f"{found}, environment {min(beside)!r} one of 1 s; {shared}")
    known = vars(host).setdefault("resolution_of_guests", seconds)
    if known != seconds:
        raise ContractError(f"{found}, another environment one of {known:g} s; {shared}")
    host.time_resolution = seconds


#: ids of our own simulators beside those of environments
_OWN = re.compile("agents|coordinator|agent-[0-9]+")


async def adopt(
    host: AsyncWorld,
    handle: EnvironmentHandle,
    plan: WorldPlan,
    taken: Collection[str],
    children: set[Any],
    beside: Collection[str],
    wants_end: Callable[[], bool],
) -> tuple[ImportedSimulators, Mapping[str, Any]]:
    """Let ``plan`` build its world, and make it a part of ``host``.

    ``taken``: ids that are not free for its simulators. The processes that were started for it are added to
    ``children``. ``beside``: other environments with simulators. ``wants_end``: whether the user asked for
    the end. Returns its simulators, and mosaik's entities by the full ids that the function gave them
    under.

    Raises what the user's function raises, :class:`ContractError` where it does not return what it
    should, :class:`SimulatorError` where a simulator in another process does not answer in time, and
    ``StopRequested``. All worlds that the function has made are then shut down.
    """
    who = f"environment {handle.uid!r}"
    before = internals.children_of_this_process()
    shown = warnings.showwarning
    made: list[AsyncWorld] = []
    try:
        with noting_worlds() as made:
            found, threaded = await _watched(plan, who, made, wants_end)
        foreign, entities = _read(found, who)
        if foreign not in made:
            made.append(foreign)
        distant = remote_sids(foreign)
        if threaded and distant:
            raise ContractError(
                f"simulator {distant[0]!r} of {who} is connected to an event loop of its own; make the instance "
                "function asynchronous, with a mosaik.AsyncWorld"
            )
        _check_entities(plan, foreign, entities, who)
        check_resolution(host, foreign, who, beside)
    except BaseException as error:
        await _discard(made, error)
        raise
    finally:
        # a world that is told to configure logging replaces it for good
        warnings.showwarning = shown
        children |= internals.children_of_this_process() - before
    return merge(host, foreign, partial(_name, handle.uid, taken)), entities


def _read(found: Any, who: str) -> tuple[AsyncWorld, Mapping[str, Any]]:
    """Return world and entities of what the instance function has returned."""
    if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[1], Mapping):
        raise ContractError(f"the instance function of {who} must return (world, entities), found {found!r}")
    foreign = world_of(found[0])
    if foreign is None:
        raise ContractError(
            f"the instance function of {who} must return a mosaik.AsyncWorld, found {type(found[0]).__name__}"
        )
    if has_run(foreign):
        raise ContractError(
            f"the instance function of {who} has run its world; agents could not act any more"
        )
    if was_shut_down(foreign):
        raise ContractError(f"the instance function of {who} has returned a world that was shut down")
    return foreign, found[1]


async def _discard(made: Iterable[AsyncWorld], error: BaseException) -> None:
    """Shut down the worlds that nobody runs because of ``error``."""
    for world in made:
        if not was_shut_down(world):
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
                raise internals.StopRequested
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


def _check_entities(plan: WorldPlan, foreign: AsyncWorld, entities: Mapping[str, Any], who: str) -> None:
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
            if not isinstance(entity, Entity) or entity.model_mock._world is not foreign:
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


def conversion(
    plan: WorldPlan, link: MosaikConnection, there: Any, outward: bool
) -> tuple[Any, Callable[[Any], Any]]:
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


def setpoints_of(handle: EnvironmentHandle, bodies: Sequence[AnyBody]) -> Callable[[], FloatVector]:
    """Return what gives the set-points in force in a co-simulation (NaN: none), all actuators in order."""
    held = handle.initial_setpoints()
    places = []
    for body in bodies:
        if not isinstance(body, Body):
            continue  # those of a batch have their actuators in batched environments only
        own = body.actuators
        for i, uid in enumerate(own.uids):
            at = handle.actuators.index.get(uid)
            if at is not None:
                places.append((body, own.slices[i], handle.actuators.slices[at]))

    def now() -> FloatVector:
        for body, take, put in places:
            # what was done in the step that has led to the newest state
            if body.open is not None and not np.isnan(body.open.setpoints[take]).any():
                held[put] = body.open.setpoints[take]
        return held.copy()

    return now
