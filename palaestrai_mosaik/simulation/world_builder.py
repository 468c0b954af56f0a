"""Builds the mosaik world of an episode, and reuses it for the next one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from inspect import isgeneratorfunction
from typing import Any

import networkx
import numpy as np
from mosaik.async_scenario import AsyncWorld

from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.environment.batch import BatchEnvironment
from palaestrai_mosaik.environment.cosimulation import (
    CoSimulation,
    CoSimulationPlan,
    EntitySpec,
    SimulatorSpec,
    WorldPlan,
)
from palaestrai_mosaik.environment.described import seeded
from palaestrai_mosaik.environment.environment import Environment
from palaestrai_mosaik.types.arrays import FloatVector

from . import mosaik_internals as internals
from .body import AnyBody, Body
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
from .environment_handle import BatchHandle, EnvironmentHandle
from .instance_function import adopt
from .mosaik_internals import FOREVER, base_proxy, needs_no_shutdown, new_sid, starter
from .scheduler import GeneralSchedule, Runner, Schedule, schedule
from .world_run import StopRequested, answer, describe_start_failure, finalize_local

_OURS = "ours"


@dataclass
class EpisodeSettings:
    """The settings of an episode that its world depends on.

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

    def generator(self, *names: str | int) -> np.random.Generator:
        """Return the generator of a part of this episode."""
        return seeding.generator(self.seed, *self.seed_path, *names)


class WorldBuilder:
    """A mosaik world under construction for one episode.

    :func:`.world_graph.world_graph` also uses it, to draw a world without running it.
    """

    def __init__(self, episode: EpisodeSettings, plans: Sequence[CoSimulationPlan | None] | None = None):
        self.episode = episode
        self.handles = episode.coordinator.handles
        #: plans of this episode; ``None`` until the environments have started it
        self._plans = plans
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
        #: determines the simulators' steps; ``None`` with mosaik's scheduler
        self.schedule: Schedule | GeneralSchedule | None = None

    async def build(self) -> None:
        """Start all simulators, create all entities and connect them."""
        links, watching = guarded(self._prepare, "an environment or a muscle")
        self.world = self._new_world()
        for e, plan in enumerate(self.plans):
            if plan is None:
                await self._build_environment(e)
            elif isinstance(plan, WorldPlan):
                await self._adopt(e, plan)
            else:
                await self._build_cosimulation(e, plan)
        await self._build_agents(links, watching)
        self._make_schedule()

    def _new_world(self) -> AsyncWorld:
        """Make a world without simulators that knows how to start those of co-simulations."""
        config: dict[str, Any] = {_OURS: internals.HANDED_OVER}
        for e, plan in enumerate(self.plans):
            for spec in self._seeded(e, plan).simulators if plan else ():
                sid = self.sids[e, spec.uid]
                config[sid] = starter(sid, spec)
                if spec.cmd or spec.connect:
                    self.timeouts[sid] = spec.timeout
        return AsyncWorld(
            config,
            mosaik_config={"start_timeout": max([internals.LEAST_START, *self.timeouts.values()])},
            configure_logging=False,
            skip_greetings=True,
        )

    def _make_schedule(self) -> None:
        """Make our schedule of the built world, or prepare the world for mosaik's scheduler."""
        by_mosaik = self.episode.scheduler == "mosaik"
        if self.timeouts or by_mosaik:
            self.lazy = internals.keep_in_step(self.world, self.coordinator_sid, self.agents)
        if by_mosaik:
            internals.wait_for_agents(self.world, self.agents)
        else:
            internals.compile_world(self.world)
            self.schedule = schedule(self.world, internals.FOREVER, lazy_stepping=self.lazy)

    def _stop(self, time: int) -> None:
        """End the world after all steps at ``time``."""
        if self.schedule is None:
            internals.stop(self.world, time)
        else:
            self.schedule.until = time + 1

    def _prepare(self) -> tuple[list[list[MosaikConnection]], list[MosaikConnection]]:
        """Start the episode in all domain objects; return the links of the agents and of the coordinator."""
        coordinator = self.episode.coordinator
        if self._plans is None:
            self._begin_environments()
        self.plans = plans_of(self.handles) if self._plans is None else self._plans
        owned = [(repr(body.name), body.actuators.uids) for body in coordinator.bodies]
        for _, problem in shared_actuators(self.handles, owned):
            raise ContractError(problem)
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
        episode.coordinator.begin(episode.worker, episode.number)

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
            limit = max(internals.LEAST_START, spec.timeout)
            self.world.config["start_timeout"] = limit
            # a longer limit, because mosaik closes the connection if its own time-out expires first
            return await answer(
                request, sid, "while it started", limit=limit + 5.0, wants_end=self.episode.wants_end
            )
        except StopRequested:
            raise
        except (Exception, SystemExit) as error:
            raise describe_start_failure(sid, error) from error
        finally:
            if spec.cmd:
                self.children |= internals.children_of_this_process() - before

    async def _create(self, sid: str, entity: EntitySpec) -> Any:
        request = getattr(self.factories[sid], entity.model)(**entity.params)
        limit = self.timeouts.get(sid)
        if limit is None:
            return await request
        during = f"in create of entity {entity.uid!r}"
        return await answer(request, sid, during, limit=limit, wants_end=self.episode.wants_end)

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
            if entity.parent is None:
                self.entities[e, entity.uid] = await self._create(self.sids[e, entity.simulator], entity)
            else:
                self.entities[e, entity.uid] = self._child(e, entity.parent, str(entity.eid))
        for item in plan.connections:
            source, target = self.entities[e, item.source], self.entities[e, item.target]
            for names in item.attributes:
                initial = item.initial.get(names[0])
                self._connect(source, target, names, item.time_shifted, initial, weak=item.weak)
            if item.async_requests:
                internals.allow_requests(self.world, self.factories[source.sid], self.factories[target.sid])

    def _child(self, e: int, parent: str, eid: str) -> Any:
        """Return the child of an entity with mosaik's id ``eid``."""
        children = {child.eid: child for child in self.entities[e, parent].children}
        if eid not in children:
            raise ContractError(
                f"environment {self.handles[e].uid!r}: entity {parent!r} has no child {eid!r}; "
                f"it has {', '.join(sorted(children)) or 'none'}{did_you_mean(eid, children)}"
            )
        return children[eid]

    async def _adopt(self, e: int, plan: WorldPlan) -> None:
        """Call the user's function that builds the world of an environment."""
        handle = self.handles[e]
        plan.acting(setpoints_of(handle, self.episode.coordinator.bodies))
        others = zip(self.handles, self.plans, strict=True)
        beside = [other.uid for other, its_plan in others if its_plan and its_plan.simulators]
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
        """Start and connect the simulators of coordinator and agents.

        ``links``: for each body, those of its set-points; ``watching``: those of the coordinator.
        """
        coordinator = self.episode.coordinator
        kind = CoordinatorSimulator if coordinator.external_control is None else ExternalControlSimulator
        self.coordinator_sid = self._own_sid("coordinator")
        simulator = kind(coordinator, self._stop, self.coordinator_inputs)
        factory = await self._start_ours(self.coordinator_sid, simulator)
        coordinator_entity = await factory.EpisodeCoordinator(eid=COORDINATOR)
        agents = await self._start_agents(sorted({link.source for outward in links for link in outward}))
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

    async def _start_agents(self, attributes: Sequence[str]) -> list[tuple[AnyBody, Any]]:
        """Start the simulators of the agents; return their bodies with their entities, agent by agent."""
        coordinator = self.episode.coordinator
        entities: list[tuple[AnyBody, Any]] = []
        for i, (name, bodies) in enumerate(coordinator.agents.items()):
            sid = self._own_sid(f"agent-{i}")
            self.agents.append(sid)
            factory = await self._start_ours(sid, AgentSimulator(coordinator, name, attributes))
            entities += [(body, await factory.Agent(eid=body.name)) for body in bodies]
        return entities

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
        if target.sid in self.timeouts:
            # values for another process are written as JSON
            convert = chain(convert, internals.plain)
            initial = internals.plain(initial)
        missing = initial is None and attributes[1] in target.model_mock.measurement_inputs
        if (shift or weak) and missing:
            raise ContractError(
                f"the {'time-shifted' if shift else 'weak'} connection from {source.full_id}.{attributes[0]} to "
                f"{target.full_id}.{attributes[1]} needs an initial value"
            )
        options = {"weak": weak or None, "time_shifted": shift or None, "initial_data": initial}
        arguments = {name: value for name, value in options.items() if value is not None}
        if convert is not None:
            arguments["transform"] = convert
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


class RewindingBuilder(WorldBuilder):
    """Builds the world of an episode, and rewinds it for the next one if all its simulators are in this process."""

    def __init__(
        self,
        episode: EpisodeSettings,
        plans: Sequence[CoSimulationPlan | None] | None = None,
        *,
        differs: bool = False,
    ):
        super().__init__(episode, plans)
        #: whether the replaced simulators of the last world had other descriptions
        self._differs = differs
        #: simulators of co-simulations that can be replaced for another episode, by mosaik's id
        self.replaceable: dict[str, Runner] = {}
        #: simulators of this episode, until they are finalized
        self.started: dict[str, Any] = {}

    async def build(self) -> None:
        await super().build()
        self.replaceable = {} if self._differs else self._find_replaceable()
        self.started = {sid: runner.simulator for sid, runner in self.replaceable.items()}
        if self.rewinds:
            needs_no_shutdown(self.world)

    @property
    def rewinds(self) -> bool:
        """Whether the world can be used for another episode: all its simulators are ours or can be replaced."""
        if not isinstance(self.schedule, Schedule):
            return False
        return len(self.own_simulators) + len(self.replaceable) == len(self.schedule.runners)

    def _find_replaceable(self) -> dict[str, Runner]:
        if not isinstance(self.schedule, Schedule) or self.schedule.asks:
            return {}
        ids = {
            self.sids[e, spec.uid]
            for e, plan in enumerate(self.plans)
            if type(plan) is CoSimulationPlan
            for spec in plan.simulators
        }
        runners = [runner for runner in self.schedule.runners if runner.origin.sid in ids]
        return {runner.origin.sid: runner for runner in filter(_can_be_replaced, runners)}

    def rewind(self, episode: EpisodeSettings) -> RewindingBuilder:
        """Start another episode in the same world, and return this builder.

        If a co-simulation has changed, return a new builder of the world that must be built for it.
        """
        assert isinstance(self.schedule, Schedule)
        self.episode = episode
        guarded(self._begin_environments, "an environment or a muscle")
        plans = self.plans
        if self.replaceable:
            plans = guarded(lambda: plans_of(self.handles), "an environment or a muscle")
        if not all(map(_is_same_plan, plans, self.plans)):
            return RewindingBuilder(episode, plans)
        is_started = False
        try:
            if all(self._replace(e, plan) for e, plan in enumerate(plans) if plan is not None):
                guarded(self._begin_agents, "an environment or a muscle")
                is_started = True
        finally:
            if not is_started:
                self.finalize(hurried=True)
        if not is_started:
            return RewindingBuilder(episode, plans, differs=True)
        for simulator in self.own_simulators:
            simulator.begin()
        self.schedule.until = FOREVER
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
                raise describe_start_failure(sid, error) from error
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
        """Finalize the simulators of this episode that will be replaced; see :func:`.world_run.shut_down`."""
        started, self.started = self.started, {}
        finalize_local(started, hurried=hurried)


def _can_be_replaced(runner: Runner) -> bool:
    """Return whether mosaik calls the simulator without an adapter, and the simulator asks mosaik for nothing."""
    simulator, proxy = runner.simulator, runner.origin._proxy
    return base_proxy(proxy) is proxy and not any(
        map(isgeneratorfunction, (simulator.init, simulator.create))
    )


def _make_simulator(sid: str, spec: SimulatorSpec) -> Any:
    """Make a simulator of this process, like :meth:`.WorldBuilder.build` and mosaik."""
    if spec.factory is not None:
        return guarded(spec.factory, f"the factory of simulator {sid!r}")
    assert spec.python is not None
    module, _, name = spec.python.partition(":")
    try:
        return getattr(sys.modules[module], name)()
    except (Exception, SystemExit) as error:
        raise describe_start_failure(sid, error) from error


def _is_described(entity: Any, described: Mapping[str, Any]) -> bool:
    """Return whether ``described``, a result of a simulator's ``create``, matches mosaik's ``entity``."""
    children = described.get("children", ())
    return (
        (described["eid"], described["type"]) == (entity.eid, entity.type)
        and len(children) == len(entity.children)
        and all(map(_is_described, entity.children, children))
    )


def _is_same_plan(plan: CoSimulationPlan | None, before: CoSimulationPlan | None) -> bool:
    """Return whether two plans are equal, apart from simulators made by factories."""
    if plan is before or plan is None or before is None:
        return plan is before
    try:
        return _without_factories(plan) == _without_factories(before)
    except ValueError:  # arrays cannot be compared
        return False


def _without_factories(plan: CoSimulationPlan) -> CoSimulationPlan:
    return replace(plan, simulators=[replace(spec, factory=None) for spec in plan.simulators])
