"""Taking a mosaik world that somebody else has built into another one; tested on 3.5 and 3.6.

mosaik knows no worlds of several parts. What this does leans on undocumented parts of it, as
:mod:`.mosaik_internals` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import networkx
from mosaik.async_scenario import AsyncWorld
from mosaik.scenario import World

from palaestrai_mosaik.errors import ContractError

from .mosaik_internals import base_proxy


@dataclass
class Guests:
    """The simulators of a world that was taken in."""

    #: the id that each was started with -> its id now
    sids: dict[str, str] = field(default_factory=dict)
    #: mosaik's factories, by the id now
    factories: dict[str, Any] = field(default_factory=dict)
    #: who feeds whom (ids now)
    flows: list[tuple[str, str]] = field(default_factory=list)
    #: those that run outside of this process (ids now)
    remote: list[str] = field(default_factory=list)


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


def remote_sids(world: AsyncWorld) -> list[str]:
    """Return the ids of simulators of ``world`` that run outside of this process."""
    return [sid for sid, (proxy, _) in _simulators(world).items() if hasattr(base_proxy(proxy), "_channel")]


def merge(host: AsyncWorld, guest: AsyncWorld, name: Callable[[str], str]) -> Guests:
    """Make all of ``guest`` a part of ``host``, which has not been run yet.

    ``name`` gives the id that a simulator shall have in ``host``. Entities and factories stay the
    same objects, and what still holds ``guest`` (a simulator that asks for related entities, say)
    sees all of ``host`` from now on.
    """
    guests = Guests(remote=remote_sids(guest))
    simulators = _simulators(guest)
    guests.sids = {sid: name(sid) for sid in simulators}
    guests.remote = [guests.sids[sid] for sid in guests.remote]
    renamed = {sid: new for sid, new in guests.sids.items() if sid != new}
    ids = {
        entity.full_id: f"{renamed[sid]}.{entity.eid}"
        for sid in renamed
        for entity in simulators[sid][1].entities.values()
    }
    for sid, (proxy, factory) in simulators.items():
        new = guests.sids[sid]
        guests.factories[new] = factory
        factory._sid = new
        for entity in factory.entities.values():
            entity.sid = new
        base = base_proxy(proxy)
        # what the simulator asks mosaik through
        remote = base.sim.mosaik if hasattr(base, "sim") else base._mosaik_remote
        remote.sid = new
    graph = networkx.relabel_nodes(guest.entity_graph, ids)
    for new in renamed.values():
        for entity in guests.factories[new].entities.values():
            graph.nodes[entity.full_id]["sid"] = new
    host.entity_graph.update(graph)
    host.max_loop_iterations = max(host.max_loop_iterations, guest.max_loop_iterations)
    if hasattr(guest, "_proxies"):
        guests.flows = _move_pending(host, guest, guests.sids)
    else:
        guests.flows = _move_runners(host, guest, guests.sids, ids)
    guest.__dict__ = host.__dict__
    return guests


def _simulators(world: AsyncWorld) -> dict[str, tuple[Any, Any]]:
    """Return proxy and factory of every simulator, by id."""
    if hasattr(world, "_proxies"):
        return {sid: (proxy, world._factories[sid]) for sid, proxy in world._proxies.items()}
    # 3.5 keeps the factory only as what checks the outputs
    return {sid: (r._proxy, r.check_outputs.__self__) for sid, r in world.sims.items()}  # type: ignore[attr-defined]


def _move_pending(host: Any, guest: Any, sids: dict[str, str]) -> list[tuple[str, str]]:
    """Move what 3.6 keeps until it makes the runners; return the flows."""
    for sid, new in sids.items():
        host._proxies[new] = guest._proxies[sid]
        host._factories[new] = guest._factories[sid]
    for connection in guest._pending_connections:
        # the cache is that of the whole world
        connection.is_pulled = host.use_cache and connection.src_entity.is_persistent(connection.src_attr)
    asynchronous = [(sids[source], sids[target]) for source, target in guest._pending_async_requests]
    host._pending_connections += guest._pending_connections
    host._pending_async_requests += asynchronous
    for sid, time in guest._pending_initial_events.items():
        host._pending_initial_events[sids[sid]] = time
    host._sims_cache = None
    flows = [(c.src_entity.sid, c.dest_entity.sid) for c in guest._pending_connections]
    return list(dict.fromkeys([*flows, *asynchronous]))


def _move_runners(host: Any, guest: Any, sids: dict[str, str], ids: dict[str, str]) -> list[tuple[str, str]]:
    """Move the runners, which 3.5 makes at once; return the flows."""
    for sid, new in sids.items():
        runner = host.sims[new] = guest.sims[sid]
        runner.sid = new
        if runner.outputs is None and host.use_cache:
            runner.outputs = {}
        for attributes in runner.persistent_inputs.values():
            for attribute, sources in attributes.items():
                attributes[attribute] = {ids.get(source, source): value for source, value in sources.items()}
    return [
        (host.sims[new].sid, follower.sid) for new in sids.values() for follower in host.sims[new].successors
    ]


def check_resolution(host: AsyncWorld, guest: AsyncWorld, who: str) -> None:
    """Let ``host`` have the resolution of its first guest; raise :class:`ContractError` if another differs.

    ``who``: the guest, for the message.
    """
    known = vars(host).setdefault("resolution_of_guests", guest.time_resolution)
    if known != guest.time_resolution:
        raise ContractError(
            f"{who} has a world with a time_resolution of {guest.time_resolution:g} s, another environment one of "
            f"{known:g} s; the environments of a phase share their ticks"
        )
    host.time_resolution = guest.time_resolution
