"""Builds a mosaik world for one episode, runs it, and shuts it down.

The only owner of ``mosaik.AsyncWorld``. An episode is one run of a world: simulators
start afresh, the domain objects (environments, muscles, brains) live on.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx
import numpy as np
from mosaik.async_scenario import AsyncWorld

from palaestrai_mosaik import seeding
from palaestrai_mosaik.environment.cosimulation import CoSimulation, CoSimulationPlan, SimulatorSpec
from palaestrai_mosaik.environment.environment import Environment
from palaestrai_mosaik.errors import ContractError, SimulatorError, did_you_mean

from . import mosaik_internals as internals
from .bridge import (
    CLOCK,
    DIRECTOR,
    TURN,
    AgentSimulator,
    AgentsSimulator,
    DirectorSimulator,
    EnvironmentSimulator,
)
from .director import Director
from .ports import EnvironmentPort, InputWire, Link, plans_of, shared_actuators, wire_sensors

_OURS = "ours"


@dataclass
class Episode:
    """One episode of one worker, about to be run.

    ``seed_path`` is the way in the tree of seeds to this worker's episode; environments
    and agents hang below it by name.
    """

    director: Director
    worker: int
    number: int
    seed: int
    seed_path: tuple[str | int, ...]
    bridge: str = "agents"
    wants_end: Callable[[], bool] = lambda: False

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the episode to its end. The director then knows how it ended."""
        loop.run_until_complete(_run(self))

    def generator(self, *names: str) -> np.random.Generator:
        """Return the generator of a part of this episode."""
        return seeding.generator(self.seed, *self.seed_path, *names)


class WorldBuilder:
    """A mosaik world under construction for one episode.

    Also draws itself: :func:`palaestrai_mosaik.simulation.graph.world_graph` builds a
    world without running it.
    """

    def __init__(self, episode: Episode):
        self.episode = episode
        self.ports = episode.director.ports
        self.plans: Sequence[CoSimulationPlan | None] = ()
        self.world: AsyncWorld
        self.before: set[Any] = set()
        self.timeouts: dict[str, float] = {}
        #: (environment index, entity uid) -> mosaik entity; "" is the environment itself
        self.entities: dict[tuple[int, str], Any] = {}
        self.connections: list[tuple[str, str, str, str, bool]] = []
        #: mosaik's ids of all simulators, and of the one that holds the director
        self.simulators: list[str] = []
        self.lead = ""

    async def build(self) -> None:
        """Start all simulators, create all entities and connect them."""
        episode, director = self.episode, self.episode.director
        for port in self.ports:
            port.begin()
            port.domain.worker, port.domain.episode = episode.worker, episode.number
            port.domain.rng = episode.generator("environment", port.uid)
            if isinstance(port.domain, CoSimulation):
                port.domain.reset()
        self.plans = plans_of(self.ports)
        for problem in shared_actuators(self.ports, [(b.name, b.actuator_uids) for b in director.bodies]):
            raise ContractError(problem[1])
        links = []
        for body in director.bodies:
            links.append(body.wire(self.ports, self.plans))
            body.begin(episode.worker, episode.number, episode.generator("agent", body.name))
        wires, watching = self._director_wires()
        director.begin(episode.worker, episode.number, wires)
        self.before = internals.children_of_this_process()
        config: dict[str, Any] = {_OURS: internals.HANDED_OVER}
        specs: dict[str, SimulatorSpec] = {}
        for e, plan in enumerate(self.plans):
            for spec in plan.simulators if plan else ():
                sid = self._sid(e, spec.uid)
                specs[sid] = spec
                config[sid] = _starter(sid, spec)
        start_timeout = max([10.0, *(s.timeout for s in specs.values())])
        self.world = AsyncWorld(
            config,
            mosaik_config={"start_timeout": start_timeout},
            configure_logging=False,
            skip_greetings=True,
        )
        for e, plan in enumerate(self.plans):
            if plan is None:
                await self._build_environment(e)
            else:
                await self._build_cosimulation(e, plan)
        await self._build_agents(links, watching)

    def lazy(self) -> bool:
        """Whether simulators must wait for those that they feed.

        They need not where every one of them waits for the agents anyway, because it is
        fed by them, directly or through others.
        """
        graph = networkx.DiGraph()
        for source, target, *_ in self.connections:
            graph.add_edge(source.split(".", 1)[0], target.split(".", 1)[0])
        fed = {self.lead} | networkx.descendants(graph, self.lead) if self.lead in graph else set()
        return not fed.issuperset(self.simulators)

    def _director_wires(self) -> tuple[list[Sequence[InputWire]], list[Link]]:
        wires: list[Sequence[InputWire]] = []
        links: list[Link] = []
        for e, port in enumerate(self.ports):
            if self.plans[e] is None:
                everything = slice(0, len(port.vector))
                wires.append([InputWire(f"{port.uid}.state", everything, everything, True)])
                links.append(Link(e, "", "state", f"{port.uid}.state"))
            else:
                laid, wanted = wire_sensors(self.ports, self.plans, port.sensors.uids)
                wires.append(laid)
                links += wanted
        return wires, links

    def _sid(self, environment: int, simulator: str = "") -> str:
        # mosaik separates simulator and entity by the first dot
        parts = [self.ports[environment].uid, *([simulator] if simulator else [])]
        return f"{environment}-" + "-".join(re.sub(r"[.\s]", "_", part) for part in parts)

    async def _start(
        self, sid: str, starter: str, simulator: Any, params: Mapping[str, Any], limit: float
    ) -> Any:
        self.simulators.append(sid)
        if simulator is not None:
            internals.hand_over(simulator)
        try:
            return await asyncio.wait_for(
                self.world.start(starter, sim_id=sid, **params), timeout=limit + 5.0
            )
        except (Exception, SystemExit) as error:
            if simulator is not None:
                raise
            raise internals.describe_start_failure(sid, error) from error

    async def _build_environment(self, e: int) -> None:
        port = self.ports[e]
        assert isinstance(port.domain, Environment)
        shell = EnvironmentSimulator(port, port.domain, self.episode.director)
        factory = await self._start(self._sid(e), _OURS, shell, {}, 60.0)
        self.entities[e, ""] = await factory.Environment(eid=port.uid)

    async def _build_cosimulation(self, e: int, plan: CoSimulationPlan) -> None:
        factories: dict[str, Any] = {}
        for spec in plan.simulators:
            sid = self._sid(e, spec.uid)
            simulator = spec.factory() if spec.factory is not None else None
            factories[spec.uid] = await self._start(
                sid, _OURS if simulator is not None else sid, simulator, spec.params, spec.timeout
            )
            if spec.cmd or spec.connect:
                self.timeouts[sid] = spec.timeout
        for entity in plan.entities:
            if entity.parent is not None:
                children = {child.eid: child for child in self.entities[e, entity.parent].children}
                if entity.eid not in children:
                    raise ContractError(
                        f"environment {self.ports[e].uid!r}: entity {entity.parent!r} has no child {entity.eid!r}; "
                        f"it has {', '.join(sorted(children)) or 'none'}"
                        + did_you_mean(str(entity.eid), children)
                    )
                self.entities[e, entity.uid] = children[entity.eid]
            else:
                model = getattr(factories[entity.simulator], entity.model)
                self.entities[e, entity.uid] = await model(**entity.params)
        for connection in plan.connections:
            for source, target in connection.attributes:
                self._connect(
                    self.entities[e, connection.source],
                    self.entities[e, connection.target],
                    (source, target),
                    connection.time_shifted,
                    connection.initial.get(source),
                )

    async def _build_agents(self, links: Sequence[Any], watching: Sequence[Link]) -> None:
        director = self.episode.director
        agents: list[tuple[Any, Any]] = []
        targets = sorted(
            {link.target for inward, _ in links for link in inward} | {w.target for w in watching}
        )
        sources = sorted({link.source for _, outward in links for link in outward})

        def stop(time: int) -> None:
            internals.stop(self.world)

        self.lead = "agents" if self.episode.bridge == "agents" else "director"
        if self.episode.bridge == "agents":
            simulator = AgentsSimulator(director, stop, sorted({*targets, *sources}))
            factory = await self._start("agents", _OURS, simulator, {}, 60.0)
            lead = await factory.Director(eid=DIRECTOR)
            for body in director.bodies:
                agents.append((body, await factory.Agent(eid=body.name)))
        else:
            factory = await self._start(
                "director", _OURS, DirectorSimulator(director, stop, targets), {}, 60.0
            )
            lead = await factory.Director(eid=DIRECTOR)
            for i, body in enumerate(director.bodies):
                shell = AgentSimulator(body, sorted({*targets, *sources}))
                factory = await self._start(f"agent-{i}", _OURS, shell, {}, 60.0)
                agents.append((body, await factory.Agent(eid=body.name)))
        for link in watching:
            self._connect(self.entities[link.environment, link.entity], lead, (link.source, link.target), 0)
        for clocked in self._clocked(links):
            self._connect(lead, clocked[0], (CLOCK, clocked[1]), 1, -1)
        for (body, entity), (inward, outward) in zip(agents, links, strict=True):
            if self.episode.bridge != "agents":
                self._connect(lead, entity, (body.name, TURN), 0)
            for link in inward:
                self._connect(
                    self.entities[link.environment, link.entity], entity, (link.source, link.target), 0
                )
            for link in outward:
                target = self.entities[link.environment, link.entity]
                self._connect(entity, target, (link.source, link.target), 1, link.initial)

    def _clocked(self, links: Sequence[Any]) -> Iterator[tuple[Any, str]]:
        """Yield what takes the clock: environments in which nobody acts, and who asks for it."""
        acted = {link.environment for _, outward in links for link in outward}
        for e, plan in enumerate(self.plans):
            if plan is not None:
                for entity, attribute in plan.clocks:
                    yield self.entities[e, entity], attribute
            elif e not in acted:
                yield self.entities[e, ""], CLOCK

    def _connect(
        self, source: Any, target: Any, attributes: tuple[str, str], shift: int, initial: Any = None
    ) -> None:
        # attribute by attribute: mosaik puts several into a set, whose order depends on
        # the hash seed. Initial data is for attributes that do not trigger only.
        arguments: dict[str, Any] = dict(internals.CONNECT)
        if shift:
            arguments["time_shifted"] = shift
            if attributes[1] in target.model_mock.measurement_inputs:
                if initial is None:
                    raise ContractError(
                        f"the time-shifted connection from {source.full_id}.{attributes[0]} to "
                        f"{target.full_id}.{attributes[1]} needs an initial value"
                    )
                arguments["initial_data"] = initial
        self.world.connect_one(source, target, *attributes, **arguments)
        self.connections.append((source.full_id, target.full_id, *attributes, bool(shift)))


def _starter(sid: str, spec: SimulatorSpec) -> dict[str, Any]:
    if spec.factory is not None:
        return dict(internals.HANDED_OVER)
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


async def _run(episode: Episode) -> None:
    builder = WorldBuilder(episode)
    director = episode.director
    try:
        await builder.build()
        await internals.run(
            builder.world,
            lazy_stepping=builder.lazy(),
            over=lambda: director.over,
            wants_end=episode.wants_end,
            timeouts=builder.timeouts,
        )
    finally:
        if hasattr(builder, "world"):
            children = (
                internals.children_of_this_process() - builder.before
                if builder.timeouts or _has_cmd(builder.plans)
                else set()
            )
            await internals.shut_down(builder.world, children)


def _has_cmd(plans: Sequence[CoSimulationPlan | None]) -> bool:
    return any(spec.cmd for plan in plans if plan is not None for spec in plan.simulators)


__all__ = ["EnvironmentPort", "Episode", "WorldBuilder"]
