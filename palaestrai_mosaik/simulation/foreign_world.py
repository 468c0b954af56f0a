"""Merges a mosaik world built by a function of the user into the world of an episode.

mosaik has no composite worlds, so this depends on its undocumented parts, like
:mod:`.mosaik_internals`; tested with 3.5, 3.6 and 3.7.

The simulators of such a world are then scheduled in the same mosaik run as agents and other environments, and agents
are connected directly to its entities. If two worlds have simulators of the same id (two environments of one module),
those of the later one are renamed: mosaik knows them by the new id, they themselves and each other by the original one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import networkx
from mosaik.adapters import Adapter
from mosaik.async_scenario import AsyncWorld
from mosaik.proxies import Proxy
from mosaik.scenario import World
from mosaik.simmanager import MosaikRemote

from palaestrai_mosaik.core.errors import ContractError

from .mosaik_internals import base_proxy


@dataclass
class ImportedSimulators:
    """The simulators of a merged world."""

    #: original id -> current id
    sids: dict[str, str] = field(default_factory=dict)
    #: mosaik's factories, by current id
    factories: dict[str, Any] = field(default_factory=dict)
    #: the current ids of those outside of this process
    remote: list[str] = field(default_factory=list)


def world_of(result: Any) -> AsyncWorld | None:
    """Return mosaik's asynchronous world behind ``result``, or ``None`` if it is not a world."""
    if isinstance(result, World):
        if not result.loop.is_running():
            # it was only needed to build the world
            result.loop.close()
        return result._async_world
    return result if isinstance(result, AsyncWorld) else None


def has_run(world: AsyncWorld) -> bool:
    """Return whether ``world`` has been run, which mosaik allows once."""
    return hasattr(world, "until")


def was_shut_down(world: AsyncWorld) -> bool:
    """Return whether ``world`` has been shut down, which only 3.6 and later record, or is a part of another one."""
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
    simulators = _simulators(foreign)
    sids = {sid: name(sid) for sid in simulators}
    imported = ImportedSimulators(
        sids,
        {sids[sid]: factory for sid, (_, factory) in simulators.items()},
        [sids[sid] for sid in remote_sids(foreign)],
    )
    names = _Names(host, sids)
    ids: dict[str, str] = {}
    for sid, (proxy, factory) in simulators.items():
        ids |= _rename(factory, sids[sid])
        _answer_requests(proxy, _ImportedRemote(foreign, sids[sid], names))
    host.entity_graph.update(networkx.relabel_nodes(foreign.entity_graph, ids))
    for full_id in ids.values():
        host.entity_graph.nodes[full_id]["sid"] = full_id.partition(".")[0]
    host.max_loop_iterations = max(host.max_loop_iterations, foreign.max_loop_iterations)
    if hasattr(foreign, "_proxies"):
        _move_pending(host, foreign, sids)
    else:
        _move_runners(host, foreign, sids, ids)
    if names.differ:
        for sid, new in sids.items():
            _set_proxy(host, new, _Renaming(simulators[sid][0], names))
    _make_part(host, foreign)
    return imported


def _rename(factory: Any, sid: str) -> dict[str, str]:
    """Give a simulator and its entities the id ``sid``; return the entities' new full ids by those that change."""
    ids = {}
    is_renamed = factory._sid != sid
    factory._sid = sid
    for entity in factory.entities.values():
        before, entity.sid = entity.full_id, sid
        if is_renamed:
            ids[before] = entity.full_id
    return ids


def _answer_requests(proxy: Any, remote: _ImportedRemote) -> None:
    """Let ``remote`` answer the simulator's requests to mosaik."""
    base = base_proxy(proxy)
    if hasattr(base, "sim"):
        base.sim.mosaik = remote
    else:
        base._mosaik_remote = remote


def _set_proxy(world: Any, sid: str, proxy: Proxy) -> None:
    """Call the simulator ``sid`` through ``proxy``."""
    if hasattr(world, "_proxies"):
        world._proxies[sid] = proxy
    else:
        world.sims[sid]._proxy = proxy


class _Names:
    """Maps a foreign world's original simulator ids to current ones (``sids``) and back, and its visible graph."""

    def __init__(self, host: AsyncWorld, sids: Mapping[str, str]):
        self._host, self._now = host, sids
        self._then = {new: sid for sid, new in sids.items()}
        #: whether any id has changed
        self.differ = any(sid != new for sid, new in sids.items())
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
    host_seconds = vars(host).setdefault("resolution_of_foreign_worlds", seconds)
    if host_seconds != seconds:
        raise ContractError(f"{description}, another environment one of {host_seconds:g} s; {shared}")
    host.time_resolution = seconds
