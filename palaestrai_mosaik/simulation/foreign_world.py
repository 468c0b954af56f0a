"""Merges a mosaik world built by a function of the user into the world of an episode.

mosaik has no composite worlds, so this depends on its undocumented parts, like
:mod:`.mosaik_internals`; tested with 3.5, 3.6 and 3.7.

A :class:`~palaestrai_mosaik.environment.cosimulation.WorldPlan` describes the construction of such a world.
Its simulators are then scheduled in the same mosaik run as agents and other environments, and agents are
connected directly to its entities. If two worlds have simulators of the same id (two
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
    """The simulators of a merged world."""

    #: original id -> current id
    sids: dict[str, str] = field(default_factory=dict)
    #: mosaik's factories, by current id
    factories: dict[str, Any] = field(default_factory=dict)
    #: the current ids of those outside of this process
    remote: list[str] = field(default_factory=list)


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


def world_of(found: Any) -> AsyncWorld | None:
    """Return mosaik's world behind ``found``, or ``None`` if it is not a world."""
    if isinstance(found, World):
        if not found.loop.is_running():
            # it was only needed to build the world
            found.loop.close()
        return found._async_world
    return found if isinstance(found, AsyncWorld) else None


def has_run(world: AsyncWorld) -> bool:
    """Return whether ``world`` has been run, which mosaik allows once."""
    return hasattr(world, "until")


def was_shut_down(world: AsyncWorld) -> bool:
    """Return whether ``world`` has been shut down (known since 3.6), or is a part of another one."""
    return bool(getattr(world, "_shutdown_performed", False))


def remote_sids(world: AsyncWorld) -> list[str]:
    """Return the ids of simulators of ``world`` outside of this process."""
    return [sid for sid, (proxy, _) in _simulators(world).items() if hasattr(base_proxy(proxy), "_channel")]


def merge(host: AsyncWorld, foreign: AsyncWorld, name: Callable[[str], str]) -> ImportedSimulators:
    """Make ``foreign`` a part of ``host``, which has not been run yet.

    ``name`` returns the id of a simulator in ``host``. Entities and factories remain the
    same objects. Simulators use their original ids for themselves and each other, and only see the
    entities of ``foreign`` and their neighbours. ``foreign`` keeps the attributes
    unknown to mosaik; all others are those of ``host`` from now on.
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
        # the object for the simulator's requests to mosaik
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
    """Maps a foreign world's original simulator ids to current ones (``sids``) and back, and its visible graph."""

    def __init__(self, host: AsyncWorld, sids: Mapping[str, str]):
        self._host, self._now = host, sids
        self._then = {new: sid for sid, new in sids.items()}
        self._size: tuple[int, int] | None = None

    def inward(self, full_id: str) -> str:
        """Return the current id of an entity that a simulator of the foreign world refers to."""
        sid, dot, eid = full_id.partition(".")
        return self._now.get(sid, sid) + dot + eid

    def outward(self, full_id: str) -> str:
        """Return the id that the simulators of the foreign world use for an entity."""
        sid, dot, eid = full_id.partition(".")
        return self._then.get(sid, sid) + dot + eid

    def graph(self) -> networkx.Graph[str]:
        """Return the entities of the foreign world, and their neighbours in others."""
        whole = self._host.entity_graph
        size = (whole.number_of_nodes(), whole.number_of_edges())
        if size != self._size:
            self._size = size
            members = {node for node in whole if node.partition(".")[0] in self._then}
            near = {
                node
                for entity in members
                for node in whole[entity]
                if node.partition(".")[0] not in self._now
            }
            self._graph = networkx.relabel_nodes(
                whole.subgraph(members | near), {node: self.outward(node) for node in members}
            )
            for node in map(self.outward, members):
                self._graph.nodes[node]["sid"] = node.partition(".")[0]
        return self._graph


class _ImportedRemote(MosaikRemote):
    """Answers the requests of a foreign world's simulator with its original ids."""

    def __init__(self, foreign: AsyncWorld, sid: str, names: _Names):
        super().__init__(foreign, sid)
        self._names = names

    async def get_related_entities(self, entities: Any = None) -> Any:
        seen: Any = SimpleNamespace(entity_graph=self._names.graph())
        return await MosaikRemote(seen, self.sid).get_related_entities(entities)

    async def get_data(self, attrs: Mapping[str, list[str]]) -> dict[str, Any]:  # type: ignore[override]
        data = await super().get_data({self._names.inward(uid): names for uid, names in attrs.items()})
        return {self._names.outward(uid): values for uid, values in data.items()}

    async def set_data(self, data: Mapping[str, Mapping[str, dict[str, Any]]]) -> None:
        inward = self._names.inward
        await super().set_data(
            {
                inward(uid): {inward(to): values for to, values in targets.items()}
                for uid, targets in data.items()
            }
        )


class _Renaming(Adapter):
    """Passes a simulator its inputs with the original ids of their sources."""

    def __init__(self, out: Proxy, names: _Names):
        super().__init__(out)
        self._names = names

    async def send(self, request: Any) -> Any:
        if request[0] == "step":
            time, inputs, *more = request[1]
            outward = self._names.outward
            renamed = {
                eid: {
                    attribute: {outward(source): value for source, value in sources.items()}
                    for attribute, sources in attributes.items()
                }
                for eid, attributes in inputs.items()
            }
            request = ["step", (time, renamed, *more), request[2]]
        return await self._out.send(request)


class _Part:
    """A world that is a part of another one, with which it shares all of mosaik's attributes."""

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
    # it is shut down with the whole
    vars(foreign).update(_whole=host, _shutdown_performed=True)
    foreign.__class__ = type(type(foreign).__name__, (_Part, type(foreign)), {})


def _simulators(world: AsyncWorld) -> dict[str, tuple[Any, Any]]:
    """Return proxy and factory of every simulator, by id."""
    if hasattr(world, "_proxies"):
        return {sid: (proxy, world._factories[sid]) for sid, proxy in world._proxies.items()}
    # in 3.5 the factory is only found as the owner of check_outputs
    return {sid: (r._proxy, r.check_outputs.__self__) for sid, r in world.sims.items()}  # type: ignore[attr-defined]


def _move_pending(host: Any, foreign: Any, sids: dict[str, str]) -> None:
    """Move the data that 3.6 stores until it creates the runners."""
    for sid, new in sids.items():
        host._proxies[new] = foreign._proxies[sid]
        host._factories[new] = foreign._factories[sid]
    for connection in foreign._pending_connections:
        # the whole world has one cache
        connection.is_pulled = host.use_cache and connection.src_entity.is_persistent(connection.src_attr)
    asynchronous = [(sids[source], sids[target]) for source, target in foreign._pending_async_requests]
    host._pending_connections += foreign._pending_connections
    host._pending_async_requests += asynchronous
    for sid, time in foreign._pending_initial_events.items():
        host._pending_initial_events[sids[sid]] = time
    host._sims_cache = None


def _move_runners(host: Any, foreign: Any, sids: dict[str, str], ids: dict[str, str]) -> None:
    """Move the runners, which 3.5 creates immediately."""
    for sid, new in sids.items():
        runner = host.sims[new] = foreign.sims[sid]
        runner.sid = new
        if runner.outputs is None and host.use_cache:
            runner.outputs = {}
        for attributes in runner.persistent_inputs.values():
            for attribute, sources in attributes.items():
                attributes[attribute] = {ids.get(source, source): value for source, value in sources.items()}


def check_resolution(host: AsyncWorld, foreign: AsyncWorld, who: str, beside: Collection[str]) -> None:
    """Give ``host`` the resolution of its first foreign world; raise :class:`ContractError` if another differs.

    ``who``: the foreign world, for the message; ``beside``: environments with their own simulators and a tick of
    one second.
    """
    seconds = foreign.time_resolution
    description = f"{who} has a world with a time_resolution of {seconds:g} s"
    shared = "the environments of a phase share their ticks"
    if beside and seconds != 1:
        raise ContractError(f"{description}, environment {min(beside)!r} one of 1 s; {shared}")
    host_seconds = vars(host).setdefault("resolution_of_guests", seconds)
    if host_seconds != seconds:
        raise ContractError(f"{description}, another environment one of {host_seconds:g} s; {shared}")
    host.time_resolution = seconds


#: ids of our own simulators besides those of environments
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
    before = internals.children_of_this_process()
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
        children |= internals.children_of_this_process() - before
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
                await internals.finalize(world, hurried=True)
            except Exception as another:
                error.add_note(f"When its world was shut down, there was {another!r}")


async def _watched(
    plan: WorldPlan, who: str, made: Sequence[AsyncWorld], wants_end: Callable[[], bool]
) -> tuple[Any, bool]:
    """Return the function's result, and whether it has built its world in a separate thread.

    ``made``: the worlds that it has created so far.
    """
    task = asyncio.ensure_future(_built(plan, who, made))
    #: the oldest request of each simulator, and its waiting time
    still: dict[tuple[int, str], tuple[int, float]] = {}
    try:
        while not task.done():
            await asyncio.wait([task], timeout=internals.POLL)
            if wants_end():
                raise internals.StopRequested
            waiting = {
                (index, sid): number
                for index, world in enumerate(list(made))
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
    gone = [sid for world in made for sid in internals.disconnected(world)]
    reported = getattr(error, "source", None) or getattr(error, "simulator", None)
    return internals.explain(gone[0] if gone else reported or "?", error, remote=True)


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


def conversion(
    plan: WorldPlan, link: MosaikConnection, there: Any, outward: bool
) -> tuple[Any, Callable[[Any], Any]]:
    """Return the initial value and the converter of a connection between an agent and the entity ``there``.

    An agent always has a reading: the value of an event attribute persists until
    the next event, and is missing before the first.
    """
    if outward:
        return (np.nan if link.initial is None else link.initial), plan.setpoint
    convert = plan.readings[link.entity, link.source]
    return (None if there.is_persistent(link.source) else convert(None)), convert


def chain(first: Callable[[Any], Any] | None, second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Compose two converters; ``first`` may be missing."""
    return second if first is None else lambda value: second(first(value))


def setpoints_of(handle: EnvironmentHandle, bodies: Sequence[AnyBody]) -> Callable[[], FloatVector]:
    """Return a function for the set-points in force in a co-simulation, in order, NaN for unset ones."""
    held = handle.initial_setpoints()
    sources = []
    for body in bodies:
        if not isinstance(body, Body):
            continue  # batched bodies have actuators in batched environments only
        layout = body.actuators
        for i, uid in enumerate(layout.uids):
            channel = handle.actuators.index.get(uid)
            if channel is not None:
                sources.append((body, layout.slices[i], handle.actuators.slices[channel]))

    def now() -> FloatVector:
        for body, take, put in sources:
            # the set-points of the step that led to the newest state
            if body.open is not None and not np.isnan(body.open.setpoints[take]).any():
                held[put] = body.open.setpoints[take]
        return held.copy()

    return now
