"""One episode: builds its mosaik world, runs the episode in it, and shuts the world down.

The only owner of ``mosaik.AsyncWorld``. An episode is one run of a world: simulators
are started anew, the domain objects (environments, muscles, brains) are kept. A world whose simulators are all in
this process is built once and rewound for the next episode; simulators of co-simulations are then replaced.

By default the package's own schedule (:mod:`.scheduler`) determines the simulators' steps. If all simulators
are in this process, it needs an event loop only to build the world; otherwise it runs in one. With
``scheduler: mosaik``, mosaik's own scheduler runs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from inspect import isgeneratorfunction
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
    WorldPlan,
)
from palaestrai_mosaik.environment.environment import Environment
from palaestrai_mosaik.environment.seed_placeholder import seeded
from palaestrai_mosaik.errors import ContractError, did_you_mean

from . import mosaik_internals as internals
from .batch_handle import BatchHandle
from .bridge import (
    CLOCK,
    COORDINATOR,
    AgentSimulator,
    BatchSimulator,
    BridgeSimulator,
    CoordinatorSimulator,
    EnvironmentSimulator,
    ExternalControlSimulator,
    guarded,
    ordinary,
)
from .connections import (
    STATES,
    EnvironmentPlans,
    InputWire,
    MosaikConnection,
    plans_of,
    shared_actuators,
    wire_sensors,
)
from .coordinator import EpisodeCoordinator
from .event_loop import complete
from .external_control import turns
from .foreign_world import adopt, chain, conversion, setpoints_of
from .mosaik_internals import LEAST_START, new_sid, starter
from .scheduler import GeneralSchedule, Runner, Schedule, schedule

_OURS = "ours"


class WorldBuilder:
    """A mosaik world under construction for one episode.

    :func:`palaestrai_mosaik.simulation.world_graph.world_graph` also uses it, to draw a
    world without running it.
    """

    def __init__(self, episode: Episode, plans: Sequence[CoSimulationPlan | None] | None = None):
        self.episode = episode
        self.handles = episode.coordinator.handles
        #: plans of this episode, if the environments have started it already
        self._given_plans = plans
        self.plans: Sequence[CoSimulationPlan | None] = ()
        self.world: AsyncWorld
        #: processes that were started for simulators
        self.children: set[Any] = set()
        #: seconds for an answer of each remote simulator, by mosaik's id
        self.timeouts: dict[str, float] = {}
        #: exceptions of users' code in our own simulators
        self.failures: list[BaseException] = []
        #: environment index and simulator uid -> mosaik's id; the uid is "" for the environment itself
        self.sids: dict[tuple[int, str], str] = {}
        #: environment index and entity uid -> mosaik entity; the uid is "" for the environment itself
        self.entities: dict[tuple[int, str], Any] = {}
        self.connections: list[tuple[str, str, str, str, bool]] = []
        #: mosaik's factories of all simulators by id; the ids of the coordinator and of the agents
        self.factories: dict[str, Any] = {}
        self.coordinator_sid = ""
        self.agents: list[str] = []
        #: whether any simulator must be kept from running ahead
        self.lazy = False
        #: for each environment, the inputs of the coordinator
        self.coordinator_inputs: list[Sequence[InputWire]] = []
        #: our own simulators
        self.own_simulators: list[BridgeSimulator] = []
        #: simulators of co-simulations that can be replaced for another episode, by mosaik's id
        self.replaceable: dict[str, Runner] = {}
        #: whether a replacement has failed
        self.differs = False
        #: simulators of this episode, until they are finalized
        self.started: dict[str, Any] = {}
        #: determines the simulators' steps; ``None`` with mosaik's scheduler
        self.schedule: Schedule | GeneralSchedule | None = None

    async def build(self) -> None:
        """Start all simulators, create all entities and connect them."""
        links, watching = guarded(self._prepare, "an environment or a muscle")
        config: dict[str, Any] = {_OURS: internals.HANDED_OVER}
        for e, plan in enumerate(self.plans):
            for spec in self._seeded(e, plan).simulators if plan else ():
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
        distant = bool(self.timeouts)
        if distant or self.episode.scheduler == "mosaik":
            self.lazy = internals.keep_in_step(self.world, self.coordinator_sid, self.agents)
        if self.episode.scheduler == "mosaik":
            internals.wait_for_agents(self.world, self.agents)
        else:
            internals.compile_world(self.world)
            self.schedule = schedule(self.world, internals.FOREVER, lazy_stepping=self.lazy)
        self.replaceable = self._find_replaceable()
        self.started = {sid: runner.simulator for sid, runner in self.replaceable.items()}
        if self.rewinds:
            internals.needs_no_shutdown(self.world)

    @property
    def rewinds(self) -> bool:
        """Whether the world can be used for another episode: all its simulators are ours or can be replaced."""
        if not isinstance(self.schedule, Schedule):
            return False
        return len(self.own_simulators) + len(self.replaceable) == len(self.schedule.runners)

    def _find_replaceable(self) -> dict[str, Runner]:
        if not isinstance(self.schedule, Schedule) or self.schedule.asks or self.differs:
            return {}
        ids = {
            self.sids[e, spec.uid]
            for e, plan in enumerate(self.plans)
            for spec in (plan.simulators if type(plan) is CoSimulationPlan else ())
            if spec.factory is not None or spec.python is not None
        }
        runner_of = {
            runner.origin.sid: runner for runner in self.schedule.runners if runner.origin.sid in ids
        }
        return {
            sid: runner
            for sid, runner in runner_of.items()
            if internals.base_proxy(runner.origin._proxy) is runner.origin._proxy
            and not any(map(isgeneratorfunction, (runner.simulator.init, runner.simulator.create)))
        }

    def rewind(self, episode: Episode) -> WorldBuilder:
        """Start another episode in the same world, and return this builder.

        If a co-simulation has changed, return a new builder of the world that must be built for it.
        """
        assert isinstance(self.schedule, Schedule)
        self.episode = episode
        guarded(self._begin_environments, "an environment or a muscle")
        plans = (
            guarded(lambda: plans_of(self.handles), "an environment or a muscle")
            if self.replaceable
            else self.plans
        )
        if not all(map(_is_same, plans, self.plans)):
            return WorldBuilder(episode, plans)
        is_started = False
        try:
            if all(self._replace(e, plan) for e, plan in enumerate(plans) if plan is not None):
                guarded(self._begin_agents, "an environment or a muscle")
                is_started = True
        finally:
            if not is_started:
                self.finalize(hurried=True)
        if not is_started:
            builder = WorldBuilder(episode, plans)
            builder.differs = True
            return builder
        for simulator in self.own_simulators:
            simulator.begin()
        self.schedule.until = internals.FOREVER
        self.schedule.rewind()
        return self

    def _replace(self, e: int, plan: CoSimulationPlan) -> bool:
        """Replace the simulators of a co-simulation; return whether the new ones have the same descriptions."""
        plan = self._seeded(e, plan)
        for spec in plan.simulators:
            sid = self.sids[e, spec.uid]
            runner, simulator = self.replaceable[sid], _make_simulator(sid, spec)
            if type(simulator) is not type(runner.simulator):
                return False
            simulator.mosaik = runner.simulator.mosaik
            try:
                meta = simulator.init(sid, time_resolution=self.world.time_resolution, **spec.params)
            except (Exception, SystemExit) as error:
                raise internals.describe_start_failure(sid, error) from error
            self.started[sid] = runner.simulator = runner.origin._proxy.sim = simulator
            if meta != runner.origin._proxy.meta:
                return False
        for entity in plan.entities:
            if entity.parent is None:
                simulator = self.replaceable[self.sids[e, entity.simulator]].simulator
                (created,) = simulator.create(1, entity.model, **entity.params)
                if not _is_described(self.entities[e, entity.uid], created):
                    return False
        return True

    def finalize(self, *, hurried: bool) -> None:
        """Finalize the simulators of this episode that will be replaced; see :func:`.mosaik_internals.shut_down`."""
        started, self.started = self.started, {}
        internals.finalize_local(started, hurried=hurried)

    def _stop(self, time: int) -> None:
        """End the world after all steps at ``time``."""
        if self.schedule is None:
            internals.stop(self.world, time)
        else:
            self.schedule.until = time + 1

    def _prepare(self) -> tuple[list[list[MosaikConnection]], list[MosaikConnection]]:
        """Start the episode in all domain objects; return the links of the agents and of the coordinator."""
        coordinator = self.episode.coordinator
        if self._given_plans is None:
            self._begin_environments()
            self.plans = plans_of(self.handles)
        else:
            self.plans = self._given_plans
        for problem in shared_actuators(
            self.handles, [(repr(b.name), b.actuators.uids) for b in coordinator.bodies]
        ):
            raise ContractError(problem[1])
        sockets = EnvironmentPlans(self.handles, self.plans)
        links = [body.wire(sockets) for body in coordinator.bodies]
        self.coordinator_inputs, watching = self._coordinator_wires()
        self._begin_agents()
        for e, plan in enumerate(self.plans):
            for uid in [""] if plan is None else [spec.uid for spec in plan.simulators]:
                self.sids[e, uid] = new_sid(f"{e}-{self.handles[e].uid}", uid, self.sids.values())
        return links, watching

    def _begin_environments(self) -> None:
        episode = self.episode
        for handle in self.handles:
            handle.begin()
            handle.domain.worker, handle.domain.episode = episode.worker, episode.number
            handle.domain.rng = episode.generator("environment", handle.uid)
            if isinstance(handle.domain, CoSimulation):
                handle.domain.reset()
            elif isinstance(handle.domain, BatchEnvironment):
                first = handle.domain.first
                handle.domain.rngs = [
                    episode.generator("environment", handle.uid, first + k)
                    for k in range(handle.domain.batch)
                ]

    def _begin_agents(self) -> None:
        episode = self.episode
        for body in episode.coordinator.bodies:
            rng = partial(episode.generator, "agent", body.agent)
            body.begin(episode.worker, episode.number, rng)
        episode.coordinator.begin(episode.worker, episode.number, self.coordinator_inputs)

    def _coordinator_wires(self) -> tuple[list[Sequence[InputWire]], list[MosaikConnection]]:
        wires: list[Sequence[InputWire]] = []
        links: list[MosaikConnection] = []
        for e, handle in enumerate(self.handles):
            if self.plans[e] is None:
                everything = slice(0, len(handle.vector))
                source = "states" if isinstance(handle.domain, BatchEnvironment) else "state"
                wires.append([InputWire(f"{handle.uid}.{source}", everything, everything)])
                links.append(MosaikConnection(e, "", source, f"{handle.uid}.{source}"))
            else:
                sensor_wires, sensor_links = wire_sensors(
                    EnvironmentPlans(self.handles, self.plans), [handle], handle.sensors.uids
                )
                wires.append(sensor_wires)
                links += sensor_links
        return wires, links

    def _own_sid(self, name: str) -> str:
        """Return mosaik's id for a simulator of an agent or the coordinator."""
        return name

    async def _start_ours(self, sid: str, simulator: BridgeSimulator) -> Any:
        """Start one of our own simulators; return mosaik's factory."""
        simulator.failures = self.failures
        self.own_simulators.append(simulator)
        internals.hand_over(simulator)
        factory = self.factories[sid] = await self.world.start(_OURS, sim_id=sid)
        return factory

    async def _start_simulator(self, sid: str, spec: SimulatorSpec) -> Any:
        """Start a simulator of a co-simulation; return mosaik's factory."""
        if spec.factory is not None:
            internals.hand_over(guarded(spec.factory, f"the factory of simulator {sid!r}"))
            return await self.world.start(_OURS, sim_id=sid, **spec.params)
        # only these processes are ended with the world, not those that environments start themselves
        before = internals.children_of_this_process() if spec.cmd else set()
        request = self.world.start(sid, sim_id=sid, **spec.params)
        try:
            if sid not in self.timeouts:
                return await request
            limit = max(LEAST_START, spec.timeout)
            self.world.config["start_timeout"] = limit
            # a longer limit, because mosaik closes the connection if its own time-out expires first
            return await internals.answer(
                request, sid, "while it started", limit=limit + 5.0, wants_end=self.episode.wants_end
            )
        except internals.StopRequested:
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
        handle = self.handles[e]
        coordinator = self.episode.coordinator
        if isinstance(handle, BatchHandle):
            factory = await self._start_ours(self.sids[e, ""], BatchSimulator(handle, coordinator))
            whole = self.entities[e, ""] = await factory.Batch(eid=handle.uid)
            for sub, child in zip(handle.sub_environments, whole.children, strict=True):
                self.entities[e, sub.entity] = child
            return
        assert isinstance(handle.domain, Environment)
        simulator = EnvironmentSimulator(handle, handle.domain, coordinator)
        factory = await self._start_ours(self.sids[e, ""], simulator)
        self.entities[e, ""] = await factory.Environment(eid=handle.uid)

    def _seeded(self, e: int, plan: CoSimulationPlan) -> CoSimulationPlan:
        """Insert the seeds of this episode into the plan of an environment."""
        episode = self.episode
        path = (*episode.seed_path, "environment", self.handles[e].uid)
        return seeded(plan, partial(seeding.integer_seed, episode.seed, *path))

    async def _build_cosimulation(self, e: int, plan: CoSimulationPlan) -> None:
        plan = self._seeded(e, plan)
        for loop in loops_of(plan):
            # mosaik requires simulators that repeat within one time to be in a group
            with self.world.group() if len(loop) > 1 else nullcontext():
                for spec in loop:
                    sid = self.sids[e, spec.uid]
                    self.factories[sid] = await self._start_simulator(sid, spec)
        for entity in plan.entities:
            if entity.parent is not None:
                children = {child.eid: child for child in self.entities[e, entity.parent].children}
                if entity.eid not in children:
                    raise ContractError(
                        f"environment {self.handles[e].uid!r}: entity {entity.parent!r} has no child {entity.eid!r}; "
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
        """Call the user's function that builds the world of an environment."""
        handle = self.handles[e]
        plan.acting(setpoints_of(handle, self.episode.coordinator.bodies))
        beside = [other.uid for other, p in zip(self.handles, self.plans, strict=True) if p and p.simulators]
        taken = self.sids.values()
        wants_end = self.episode.wants_end
        imported, entities = await adopt(self.world, handle, plan, taken, self.children, beside, wants_end)
        self.sids |= {(e, uid): sid for uid, sid in imported.sids.items()}
        self.factories |= imported.factories
        self.timeouts |= dict.fromkeys(imported.remote, plan.timeout)
        self.entities |= {(e, uid): entity for uid, entity in entities.items()}

    async def _build_agents(
        self, links: Sequence[Sequence[MosaikConnection]], watching: Sequence[MosaikConnection]
    ) -> None:
        """Start the simulators of coordinator and agents; ``links``: for each body, those of its set-points."""
        coordinator = self.episode.coordinator
        agents: list[tuple[Any, Any]] = []
        targets = sorted({link.target for link in watching})
        sources = sorted({link.source for outward in links for link in outward})

        kind = CoordinatorSimulator if coordinator.external_control is None else ExternalControlSimulator
        self.coordinator_sid = self._own_sid("coordinator")
        simulator = kind(coordinator, self._stop, targets)
        factory = await self._start_ours(self.coordinator_sid, simulator)
        coordinator_entity = await factory.EpisodeCoordinator(eid=COORDINATOR)
        for i, (name, bodies) in enumerate(coordinator.agents.items()):
            sid = self._own_sid(f"agent-{i}")
            self.agents.append(sid)
            agent = AgentSimulator(coordinator, name, sources)
            factory = await self._start_ours(sid, agent)
            for body in bodies:
                agents.append((body, await factory.Agent(eid=body.name)))
        for link in watching:
            self._plug(link, coordinator_entity)
        for e, plan in enumerate(self.plans):
            for name, attribute in plan.clocks if plan is not None else ():
                simulator.clocked = True
                self._connect(coordinator_entity, self.entities[e, name], (CLOCK, attribute), 1, -1)
        for (body, entity), outward in zip(agents, links, strict=True):
            self._connect(coordinator_entity, entity, (body.name, STATES), 0)
            for link in outward:
                self._plug(link, entity, outward=True)

    def _plug(self, link: MosaikConnection, agent: Any, outward: bool = False) -> None:
        """Connect an agent or the coordinator with one of its sensors or actuators."""
        entity, plan = self.entities[link.environment, link.entity], self.plans[link.environment]
        initial, convert = link.initial, None
        if isinstance(plan, WorldPlan):
            initial, convert = conversion(plan, link, entity, outward)
        ends = (agent, entity) if outward else (entity, agent)
        self._connect(*ends, (link.source, link.target), int(outward), initial, convert)

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
        # attribute by attribute, because mosaik puts several into a set, and its order depends on
        # the hash seed
        arguments: dict[str, Any] = {}
        if target.sid in self.timeouts:
            # values for another process are written as JSON
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
    """Yield the simulators of a plan in order; those joined by weak connections together."""
    simulator_of = {entity.uid: entity.simulator for entity in plan.entities}
    for entity in plan.entities:
        if entity.parent is not None:
            simulator_of[entity.uid] = simulator_of[entity.parent]
    joined: networkx.Graph[str] = networkx.Graph()
    joined.add_nodes_from(spec.uid for spec in plan.simulators)
    joined.add_edges_from(
        (simulator_of[item.source], simulator_of[item.target]) for item in plan.connections if item.weak
    )
    started: set[str] = set()
    for spec in plan.simulators:
        if spec.uid not in started:
            loop = networkx.node_connected_component(joined, spec.uid)
            started |= loop
            yield [item for item in plan.simulators if item.uid in loop]


@dataclass
class Episode:
    """One episode of one worker, about to be run.

    ``seed_path`` is the path of this worker's episode in the tree of seeds; environments
    and agents are below it, by name.
    """

    coordinator: EpisodeCoordinator
    worker: int
    number: int
    seed: int
    seed_path: tuple[str | int, ...]
    wants_end: Callable[[], bool] = lambda: False
    scheduler: str = "direct"
    #: the world of the previous episode, if reusable; after :meth:`run`, that of this one
    world: WorldBuilder | None = None
    #: called with a newly built world, before its first step
    on_built: Callable[[WorldBuilder], None] | None = None

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the episode to its end. The coordinator then has the reason.

        It has none if the user requested the end while a remote simulator was busy.
        """
        for _ in self.turns(loop):
            raise AssertionError("somebody outside was asked, and there is nobody")

    def turns(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Run the episode, and yield at each external decision (:attr:`EpisodeCoordinator.external_control`).

        The caller must decide before it continues. Closing the iterator ends the episode and all that it started.
        """
        before, self.world = self.world, None
        builder = WorldBuilder(self) if before is None else before.rewind(self)
        if builder is not before:
            try:
                complete(loop, builder.build())
                if self.on_built is not None:
                    self.on_built(builder)
            except BaseException as error:
                _shut_down(self, builder, loop)
                if isinstance(error, internals.StopRequested):
                    return
                if isinstance(error, SystemExit):
                    raise ordinary(error, "a simulator") from error
                raise
        try:
            if isinstance(builder.schedule, Schedule):
                yield from _directly(self, builder, builder.schedule)
            else:
                yield from turns(loop, _in_loop(self, builder), self.coordinator.external_control)
        except GeneratorExit:
            # this is no failure, so the next episode may use the same world
            self.world = builder if builder.rewinds else None
            raise
        finally:
            if not builder.rewinds:
                _shut_down(self, builder, loop)
            else:
                builder.finalize(hurried=_is_hurried(self, builder))
        if builder.rewinds:
            self.world = builder

    def generator(self, *names: str | int) -> np.random.Generator:
        """Return the generator of a part of this episode."""
        return seeding.generator(self.seed, *self.seed_path, *names)


def _directly(episode: Episode, builder: WorldBuilder, schedule: Schedule) -> Iterator[None]:
    """Run a world with all simulators in this process."""
    coordinator = episode.coordinator
    if coordinator.external_control is not None:
        coordinator.external_control.begin()
    try:
        while True:
            try:
                asked = schedule.advance()
            except BaseException as error:
                cause = _cause(error, builder, schedule)
                if cause is error:
                    raise
                raise cause from cause.__cause__
            if asked is None:
                break
            yield
    finally:
        schedule.close()
    if not coordinator.over and not episode.wants_end():
        raise internals.standstill(builder.world)


def _cause(error: BaseException, builder: WorldBuilder, schedule: Schedule) -> BaseException:
    """Return the exception to raise for one that came from a simulator."""
    if builder.failures:
        return builder.failures[0]
    sid = next((runner.origin.sid for runner in schedule.runners if runner.moment is not None), "?")
    return ordinary(internals.explain(sid, error, remote=False), "a simulator")


async def _in_loop(episode: Episode, builder: WorldBuilder) -> None:
    """Run a world in an event loop, for simulators in other processes or mosaik's scheduler."""
    coordinator, schedule = episode.coordinator, builder.schedule
    assert not isinstance(schedule, Schedule)
    # if the user wants the end, the coordinator's episode is not over, and the caller notices that
    with suppress(internals.StopRequested):
        await internals.run(
            builder.world,
            schedule=schedule,
            lazy_stepping=builder.lazy,
            over=lambda: coordinator.over,
            wants_end=episode.wants_end,
            timeouts=builder.timeouts,
            failures=builder.failures,
        )


def _is_same(plan: CoSimulationPlan | None, before: CoSimulationPlan | None) -> bool:
    """Return whether two plans have the same world, apart from simulators made by factories."""
    if plan is before:
        return True
    if plan is None or before is None:
        return False
    try:
        return replace(plan, simulators=_without_factories(plan)) == replace(
            before, simulators=_without_factories(before)
        )
    except ValueError:  # arrays cannot be compared
        return False


def _make_simulator(sid: str, spec: SimulatorSpec) -> Any:
    """Make a simulator of this process, like :meth:`WorldBuilder.build` and mosaik."""
    if spec.factory is not None:
        return guarded(spec.factory, f"the factory of simulator {sid!r}")
    assert spec.python is not None
    module, _, name = spec.python.partition(":")
    try:
        return getattr(sys.modules[module], name)()
    except (Exception, SystemExit) as error:
        raise internals.describe_start_failure(sid, error) from error


def _without_factories(plan: CoSimulationPlan) -> list[SimulatorSpec]:
    return [replace(spec, factory=None) if spec.factory is not None else spec for spec in plan.simulators]


def _is_described(entity: Any, described: Mapping[str, Any]) -> bool:
    """Return whether ``described``, a result of a simulator's ``create``, matches mosaik's ``entity``."""
    children = described.get("children", ())
    return (
        (described["eid"], described["type"]) == (entity.eid, entity.type)
        and len(children) == len(entity.children)
        and all(map(_is_described, entity.children, children))
    )


def _is_hurried(episode: Episode, builder: WorldBuilder) -> bool:
    return bool(builder.failures) or not episode.coordinator.over or episode.wants_end()


def _shut_down(episode: Episode, builder: WorldBuilder, loop: asyncio.AbstractEventLoop) -> None:
    """Finalize all simulators, and end the processes started for them."""
    if not hasattr(builder, "world"):
        return
    hurried = _is_hurried(episode, builder)
    complete(
        loop,
        internals.shut_down(
            builder.world,
            builder.children,
            hurried=hurried,
            limits={sid: max(LEAST_START, limit) for sid, limit in builder.timeouts.items()},
            wants_end=episode.wants_end,
        ),
    )
