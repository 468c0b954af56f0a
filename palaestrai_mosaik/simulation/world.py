"""Builds a mosaik world for one episode, runs it, and shuts it down.

The only owner of ``mosaik.AsyncWorld``. An episode is one run of a world: simulators
start afresh, the domain objects (environments, muscles, brains) live on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import networkx
import numpy as np
from mosaik.async_scenario import AsyncWorld

from palaestrai_mosaik import seeding
from palaestrai_mosaik.environment.batch import BatchEnvironment
from palaestrai_mosaik.environment.cosimulation import (
    CoSimulation,
    CoSimulationPlan,
    EntitySpec,
    SimulatorSpec,
)
from palaestrai_mosaik.environment.environment import Environment
from palaestrai_mosaik.environment.mosaik_environment import WorldPlan
from palaestrai_mosaik.errors import ContractError, SimulationError, did_you_mean

from . import mosaik_internals as internals
from .adopted import adopt, chain, conversion, setpoints_of
from .batch_port import BatchPort
from .bridge import (
    CLOCK,
    DIRECTOR,
    TURN,
    AgentSimulator,
    AgentsSimulator,
    BatchSimulator,
    DirectorSimulator,
    EnvironmentSimulator,
    Shell,
    guarded,
)
from .director import Director
from .outside import OutsideAgentsSimulator, clean_up, turns
from .starters import LEAST_START, new_sid, starter
from .wires import InputWire, Link, Sockets, plans_of, shared_actuators, wire_sensors

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
        """Run the episode to its end. The director then knows how it ended.

        It does not if the user asked for the end while a remote simulator was busy.
        """
        task = loop.create_task(_run(self))
        try:
            loop.run_until_complete(task)
        except (KeyboardInterrupt, SystemExit) as error:
            # asyncio lets these two out at once, and leaves everything else standing
            clean_up(loop, task)
            if isinstance(error, SystemExit):
                raise SimulationError(f"a simulator raised {error!r}") from error
            raise

    def turns(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Run the episode, and stop wherever somebody outside is asked (:attr:`Director.outside`)."""
        outside = self.director.outside
        assert outside is not None
        return turns(loop, loop.create_task(_run(self)), outside)

    def generator(self, *names: str | int) -> np.random.Generator:
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
        #: the processes that were started for simulators
        self.children: set[Any] = set()
        #: seconds that an answer may take, for mosaik's ids of remote simulators
        self.timeouts: dict[str, float] = {}
        #: what users' code raised in our own simulators
        self.failures: list[BaseException] = []
        #: (environment index, simulator uid) -> mosaik's id; "" is the environment itself
        self.sids: dict[tuple[int, str], str] = {}
        #: (environment index, entity uid) -> mosaik entity; "" is the environment itself
        self.entities: dict[tuple[int, str], Any] = {}
        self.connections: list[tuple[str, str, str, str, bool]] = []
        #: mosaik's factories of all simulators by id, the id of the director's, and those of agents of their own
        self.factories: dict[str, Any] = {}
        self.lead = ""
        self.agents: list[str] = []
        #: whether some simulator has to be kept from running ahead
        self.lazy = False

    async def build(self) -> None:
        """Start all simulators, create all entities and connect them."""
        links, watching = guarded(self._prepare, "an environment or a muscle")
        config: dict[str, Any] = {_OURS: internals.HANDED_OVER}
        for e, plan in enumerate(self.plans):
            for spec in plan.simulators if plan else ():
                sid = self.sids[e, spec.uid]
                config[sid] = starter(sid, spec)
                if spec.cmd or spec.connect:
                    self.timeouts[sid] = spec.timeout
        self.world = AsyncWorld(
            config,
            mosaik_config={"start_timeout": max([LEAST_START, *self.timeouts.values()])},
            configure_logging=False,
            skip_greetings=True,
        )
        for e, plan in enumerate(self.plans):
            if plan is None:
                await self._build_environment(e)
            elif isinstance(plan, WorldPlan):
                await self._adopt(e, plan)
            else:
                await self._build_cosimulation(e, plan)
        await self._build_agents(links, watching)
        self.lazy = internals.keep_in_step(self.world, self.lead, self.agents)

    def _prepare(self) -> tuple[list[Any], list[Link]]:
        """Begin the episode in all objects of ours; return the agents' and director's links."""
        episode, director = self.episode, self.episode.director
        for port in self.ports:
            port.begin()
            port.domain.worker, port.domain.episode = episode.worker, episode.number
            port.domain.rng = episode.generator("environment", port.uid)
            if isinstance(port.domain, CoSimulation):
                port.domain.reset()
            elif isinstance(port.domain, BatchEnvironment):
                first = port.domain.first
                port.domain.rngs = [
                    episode.generator("environment", port.uid, first + k) for k in range(port.domain.batch)
                ]
        self.plans = plans_of(self.ports)
        for problem in shared_actuators(
            self.ports, [(repr(b.name), b.actuators.uids) for b in director.bodies]
        ):
            raise ContractError(problem[1])
        links = []
        sockets = Sockets(self.ports, self.plans)
        for body in director.bodies:
            links.append(body.wire(sockets))
            rng = partial(episode.generator, "agent", body.agent)
            body.begin(episode.worker, episode.number, rng)
        wires, watching = self._director_wires()
        director.begin(episode.worker, episode.number, wires)
        for e, plan in enumerate(self.plans):
            for uid in [""] if plan is None else [spec.uid for spec in plan.simulators]:
                self.sids[e, uid] = new_sid(f"{e}-{self.ports[e].uid}", uid, self.sids.values())
        return links, watching

    def _director_wires(self) -> tuple[list[Sequence[InputWire]], list[Link]]:
        wires: list[Sequence[InputWire]] = []
        links: list[Link] = []
        for e, port in enumerate(self.ports):
            if self.plans[e] is None:
                everything = slice(0, len(port.vector))
                source = "states" if isinstance(port.domain, BatchEnvironment) else "state"
                wires.append([InputWire(f"{port.uid}.{source}", everything, everything, True)])
                links.append(Link(e, "", source, f"{port.uid}.{source}"))
            else:
                laid, wanted = wire_sensors(Sockets(self.ports, self.plans), [port], port.sensors.uids)
                wires.append(laid)
                links += wanted
        return wires, links

    async def _start_ours(self, sid: str, shell: Shell) -> Any:
        """Start one of our own simulators; return mosaik's factory."""
        shell.failures = self.failures
        internals.hand_over(shell)
        factory = self.factories[sid] = await self.world.start(_OURS, sim_id=sid)
        return factory

    async def _start_theirs(self, sid: str, spec: SimulatorSpec) -> Any:
        """Start a simulator of a co-simulation; return mosaik's factory."""
        if spec.factory is not None:
            internals.hand_over(guarded(spec.factory, f"the factory of simulator {sid!r}"))
            return await self.world.start(_OURS, sim_id=sid, **spec.params)
        # only these are ended with the world, not what environments start for themselves
        before = internals.children_of_this_process() if spec.cmd else set()
        request = self.world.start(sid, sim_id=sid, **spec.params)
        try:
            if sid not in self.timeouts:
                return await request
            limit = max(LEAST_START, spec.timeout)
            self.world.config["start_timeout"] = limit
            # a little more, because mosaik closes the connection where it finds out itself
            return await internals.answer(
                request, sid, "while it started", limit=limit + 5.0, wants_end=self.episode.wants_end
            )
        except internals.EndWanted:
            raise
        except (Exception, SystemExit) as error:
            raise internals.describe_start_failure(sid, error) from error
        finally:
            if spec.cmd:
                self.children |= internals.children_of_this_process() - before

    async def _create(self, sid: str, entity: EntitySpec) -> Any:
        request = getattr(self.factories[sid], entity.model)(**entity.params)
        limit = self.timeouts.get(sid)
        if limit is None:
            return await request
        during = f"in create of entity {entity.uid!r}"
        return await internals.answer(request, sid, during, limit=limit, wants_end=self.episode.wants_end)

    async def _build_environment(self, e: int) -> None:
        port = self.ports[e]
        director = self.episode.director
        if isinstance(port, BatchPort):
            factory = await self._start_ours(self.sids[e, ""], BatchSimulator(port, director))
            whole = self.entities[e, ""] = await factory.Batch(eid=port.uid)
            for seat, child in zip(port.parts, whole.children, strict=True):
                self.entities[e, seat.entity] = child
            return
        assert isinstance(port.domain, Environment)
        shell = EnvironmentSimulator(port, port.domain, director)
        factory = await self._start_ours(self.sids[e, ""], shell)
        self.entities[e, ""] = await factory.Environment(eid=port.uid)

    async def _build_cosimulation(self, e: int, plan: CoSimulationPlan) -> None:
        for loop in loops_of(plan):
            # mosaik wants those that repeat within one time in a group
            with self.world.group() if len(loop) > 1 else nullcontext():
                for spec in loop:
                    sid = self.sids[e, spec.uid]
                    self.factories[sid] = await self._start_theirs(sid, spec)
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
                self.entities[e, entity.uid] = await self._create(self.sids[e, entity.simulator], entity)
        for connection in plan.connections:
            for source, target in connection.attributes:
                self._connect(
                    self.entities[e, connection.source],
                    self.entities[e, connection.target],
                    (source, target),
                    connection.time_shifted,
                    connection.initial.get(source),
                    weak=connection.weak,
                )
            if connection.async_requests:
                ends = (self.entities[e, name].sid for name in (connection.source, connection.target))
                internals.allow_requests(self.world, *(self.factories[sid] for sid in ends))

    async def _adopt(self, e: int, plan: WorldPlan) -> None:
        """Let a function of the user build the world of an environment."""
        port = self.ports[e]
        plan.acting(setpoints_of(port, self.episode.director.bodies))
        beside = [other.uid for other, p in zip(self.ports, self.plans, strict=True) if p and p.simulators]
        taken = self.sids.values()
        wants_end = self.episode.wants_end
        guests, entities = await adopt(self.world, port, plan, taken, self.children, beside, wants_end)
        self.sids |= {(e, uid): sid for uid, sid in guests.sids.items()}
        self.factories |= guests.factories
        self.timeouts |= dict.fromkeys(guests.remote, plan.timeout)
        self.entities |= {(e, uid): entity for uid, entity in entities.items()}

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
            kind = AgentsSimulator if director.outside is None else OutsideAgentsSimulator
            simulator = kind(director, stop, sorted({*targets, *sources}))
            factory = await self._start_ours("agents", simulator)
            lead = await factory.Director(eid=DIRECTOR)
            for body in director.bodies:
                agents.append((body, await factory.Agent(eid=body.name)))
        else:
            factory = await self._start_ours("director", DirectorSimulator(director, stop, targets))
            lead = await factory.Director(eid=DIRECTOR)
            for i, (name, bodies) in enumerate(director.agents.items()):
                shell = AgentSimulator(name, bodies, sorted({*targets, *sources}))
                factory = await self._start_ours(f"agent-{i}", shell)
                self.agents.append(f"agent-{i}")
                for body in bodies:
                    agents.append((body, await factory.Agent(eid=body.name)))
        for link in watching:
            self._plug(link, lead)
        for clocked in self._clocked(links):
            self._connect(lead, clocked[0], (CLOCK, clocked[1]), 1, -1)
        for (body, entity), (inward, outward) in zip(agents, links, strict=True):
            if self.episode.bridge != "agents":
                self._connect(lead, entity, (body.name, TURN), 0)
            for link in inward:
                self._plug(link, entity)
            for link in outward:
                self._plug(link, entity, outward=True)

    def _plug(self, link: Link, agent: Any, outward: bool = False) -> None:
        """Connect an agent, or the director, with what it sees or sets."""
        there, plan = self.entities[link.environment, link.entity], self.plans[link.environment]
        initial, convert = link.initial, None
        if isinstance(plan, WorldPlan):
            initial, convert = conversion(plan, link, there, outward)
        ends = (agent, there) if outward else (there, agent)
        self._connect(*ends, (link.source, link.target), int(outward), initial, convert)

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
        self,
        source: Any,
        target: Any,
        attributes: tuple[str, str],
        shift: int,
        initial: Any = None,
        convert: Callable[[Any], Any] | None = None,
        *,
        weak: bool = False,
    ) -> None:
        # attribute by attribute: mosaik puts several into a set, whose order depends on
        # the hash seed
        arguments: dict[str, Any] = {}
        if target.sid in self.timeouts:
            # what goes to another process is written as JSON
            convert = chain(convert, internals.plain)
            initial = internals.plain(initial)
        if convert is not None:
            arguments["transform"] = convert
        if weak:
            arguments["weak"] = True
        if shift:
            arguments["time_shifted"] = shift
        missing = initial is None and attributes[1] in target.model_mock.measurement_inputs
        if (shift or weak) and missing:
            raise ContractError(
                f"the {'time-shifted' if shift else 'weak'} connection from {source.full_id}.{attributes[0]} to "
                f"{target.full_id}.{attributes[1]} needs an initial value"
            )
        if initial is not None:
            arguments["initial_data"] = initial
        internals.connect(self.world, source, target, attributes, arguments)
        self.connections.append((source.full_id, target.full_id, *attributes, bool(shift)))


def loops_of(plan: CoSimulationPlan) -> Iterator[list[SimulatorSpec]]:
    """Yield the simulators of a plan in its order, those together that weak connections join."""
    simulator_of = {entity.uid: entity.simulator for entity in plan.entities}
    for entity in plan.entities:
        if entity.parent is not None:
            simulator_of[entity.uid] = simulator_of[entity.parent]
    joined: networkx.Graph[str] = networkx.Graph()
    joined.add_nodes_from(spec.uid for spec in plan.simulators)
    joined.add_edges_from(
        (simulator_of[one.source], simulator_of[one.target]) for one in plan.connections if one.weak
    )
    started: set[str] = set()
    for spec in plan.simulators:
        if spec.uid not in started:
            loop = networkx.node_connected_component(joined, spec.uid)
            started |= loop
            yield [one for one in plan.simulators if one.uid in loop]


async def _run(episode: Episode) -> None:
    builder = WorldBuilder(episode)
    director = episode.director
    try:
        await builder.build()
        await internals.run(
            builder.world,
            lazy_stepping=builder.lazy,
            over=lambda: director.over,
            wants_end=episode.wants_end,
            timeouts=builder.timeouts,
            failures=builder.failures,
        )
    except internals.EndWanted:
        pass  # the director's episode is not over, which tells the caller
    finally:
        if hasattr(builder, "world"):
            hurried = bool(builder.failures) or not director.over or episode.wants_end()
            await internals.shut_down(
                builder.world,
                builder.children,
                hurried=hurried,
                limits={sid: max(LEAST_START, limit) for sid, limit in builder.timeouts.items()},
                wants_end=episode.wants_end,
            )
