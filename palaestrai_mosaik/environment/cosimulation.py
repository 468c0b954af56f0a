"""The contract of a co-simulation, a group of mosaik simulators, and the checks of its plan.

Agents connect directly to the entities of these simulators. A sensor is an attribute of
an entity or one element of a vector attribute, and so is an actuator.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestrai_mosaik.core.errors import Problem, did_you_mean
from palaestrai_mosaik.types import ActuatorInformation, SensorInformation
from palaestrai_mosaik.types.arrays import FloatVector

from .environment import EnvironmentState, World


@dataclass(frozen=True, slots=True)
class SimulatorSpec:
    """How to start a simulator, by exactly one of ``python``, ``cmd``, ``connect`` and ``factory``.

    Args:
        uid: the name by which entities refer to it.
        python: ``module:Class`` in this process.
        cmd: a command line with ``%(addr)s`` (and ``%(python)s``).
        connect: ``host:port`` of a running one.
        factory: a function that returns a ``mosaik_api_v3.Simulator`` (for simulators that share objects with
            the environment).
        params: keywords of the simulator's ``init``.
        cwd: with ``cmd``, the working directory of the command; ``None``: that of this process.
        env: with ``cmd``, environment variables of the command.
        timeout: seconds that a remote simulator (``cmd``, ``connect``) may take for one answer, and at least
            10 for its start and ``init``.
    """

    uid: str
    python: str | None = None
    cmd: str | None = None
    connect: str | None = None
    factory: Callable[[], Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class EntitySpec:
    """An entity, created from ``model`` of ``simulator``, or a child of ``parent``.

    A child is looked up among the parent's children by its mosaik id ``eid``.
    """

    uid: str
    simulator: str = ""
    model: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    parent: str | None = None
    eid: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectionSpec:
    """A data flow between two entities: ``attributes`` are (source, target) pairs."""

    source: str
    target: str
    attributes: Sequence[tuple[str, str]]
    time_shifted: int = 0
    initial: Mapping[str, Any] = field(default_factory=dict)
    weak: bool = False
    async_requests: bool = False


@dataclass(frozen=True, slots=True)
class SensorPort:
    """A sensor that reads ``attribute`` of ``entity``, or the element ``index`` of a vector attribute."""

    information: SensorInformation
    entity: str
    attribute: str
    index: int | None = None


@dataclass(frozen=True, slots=True)
class ActuatorPort:
    """An actuator that sets ``attribute`` of ``entity``.

    With ``index`` the attribute takes a vector of length ``size``: an agent sends NaN for the
    elements that it does not set, and the entity keeps their values. Without ``index``
    the attribute takes the plain value, and receives the information's value until an agent acts.

    Vectors and values of spaces that hold several numbers are numpy arrays. A remote
    simulator (``cmd``, ``connect``) receives them as JSON lists, with null for NaN.
    """

    information: ActuatorInformation
    entity: str
    attribute: str
    index: int | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class CoSimulationPlan:
    """Everything that is built in mosaik's world for one episode.

    ``clocks`` are (entity, attribute) pairs that receive the time of the agents' last step. A simulator
    without inputs would run ahead of the agents, unless mosaik makes every simulator wait for its
    successors, which costs a quarter of the speed. With the clock as an input it waits by itself.
    """

    simulators: Sequence[SimulatorSpec]
    entities: Sequence[EntitySpec]
    connections: Sequence[ConnectionSpec]
    sensors: Sequence[SensorPort]
    actuators: Sequence[ActuatorPort]
    clocks: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class WorldPlan(CoSimulationPlan):
    """A plan with the simulators, entities and connections of a world that a function has built.

    Sensors and actuators refer to entities by mosaik's full ids.
    """

    #: returns mosaik's world and the entities by full id, or an awaitable of both
    build: Callable[[], Any] = field(kw_only=True)
    #: seconds that a simulator in another process may take for one answer
    timeout: float = field(kw_only=True)
    #: conversion of an entity's value to an agent's reading, by (entity, attribute)
    readings: Mapping[tuple[str, str], Callable[[Any], Any]] = field(kw_only=True)
    #: conversion of a set-point to an entity's value
    setpoint: Callable[[Any], Any] = field(kw_only=True)
    #: receives a function that returns the set-points in force, (n_setpoints,), NaN for unset ones
    acting: Callable[[Callable[[], FloatVector]], None] = field(kw_only=True)


class CoSimulation(World):
    """An environment made of mosaik simulators. ``setup`` and ``plan`` are mandatory.

    Simulators are started anew for every episode; anything that outlasts an episode, such as a parsed
    grid, belongs to this object and reaches them through ``params`` or ``factory``.
    """

    def reset(self) -> None:
        """Prepare for a new episode, before its simulators are started."""
        return None

    @abstractmethod
    def plan(self) -> CoSimulationPlan:
        """Return the simulators, entities, connections, sensors and actuators. Called before every episode.

        Returns:
            The plan. Its sensors and actuators must be those of the baseline, in the same order.
        """

    def judge(self, time: int, readings: FloatVector) -> EnvironmentState:
        """Compute the rewards and the end of an episode. By default, it never ends and has no rewards.

        Args:
            time: the time of the readings, in ticks.
            readings: shape ``(n_readings,)``, all sensors in the baseline's order. May be kept, since it is
                never written to again.

        Returns:
            The state with these readings.
        """
        return EnvironmentState(readings)


@dataclass(slots=True)
class PlanPaths:
    """The document path of each part of a plan, in the plan's order."""

    simulators: list[str] = field(default_factory=list)
    entities: list[str] = field(default_factory=list)
    connections: list[str] = field(default_factory=list)
    sensors: list[str] = field(default_factory=list)
    actuators: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, plan: CoSimulationPlan) -> PlanPaths:
        """Make paths for a plan without a document: ``entities.3`` and so on."""
        lists = {
            name: [f"{name}.{i}" for i in range(len(getattr(plan, name)))]
            for name in ("entities", "connections", "sensors", "actuators")
        }
        return cls([f"simulators.{spec.uid}" for spec in plan.simulators], **lists)


def plan_problems(plan: CoSimulationPlan, paths: PlanPaths | None = None) -> list[Problem]:
    """Return all inconsistencies between the parts of ``plan``.

    The checks find duplicate names, unknown simulators and entities, children listed before their
    parents, simulators that wait for each other within one time, initial values that mosaik would
    refuse, and actuators with the same target. Whether a simulator has a model or an attribute is
    only known once it runs.
    """
    paths = paths or PlanPaths.of(plan)
    simulator_of, problems = _check_entities(plan, paths)
    problems += _check_simulators(plan.simulators, paths.simulators)
    problems += _check_connections(plan.connections, paths.connections, simulator_of)
    problems += _check_cycles(plan.connections, paths.connections, simulator_of)
    problems += _check_ports("sensor", plan.sensors, paths.sensors, simulator_of)
    problems += _check_ports("actuator", plan.actuators, paths.actuators, simulator_of)
    problems += _check_targets(plan.actuators, paths.actuators)
    return problems


def _unknown(kind: str, name: str, candidates: Iterable[str], path: str) -> Problem:
    names = list(candidates)
    hint = did_you_mean(name, names) or f"; there are: {', '.join(names[:10]) or 'none'}"
    return Problem(f"unknown {kind} {name!r}{hint}", path)


def _check_simulators(simulators: Sequence[SimulatorSpec], paths: list[str]) -> list[Problem]:
    problems: list[Problem] = []
    seen: set[str] = set()
    for spec, path in zip(simulators, paths, strict=True):
        if spec.uid in seen:
            problems.append(Problem(f"simulator {spec.uid!r} is defined twice", path))
        seen.add(spec.uid)
        ways = [way for way in ("python", "cmd", "connect", "factory") if getattr(spec, way) is not None]
        if len(ways) != 1:
            listed = " and ".join(ways) or "none of them"
            message = f"a simulator has exactly one of python, cmd, connect; found {listed}"
            problems.append(Problem(message, path))
    return problems


def _check_entities(plan: CoSimulationPlan, paths: PlanPaths) -> tuple[dict[str, str], list[Problem]]:
    """Return the simulator of every entity, and the problems."""
    problems: list[Problem] = []
    simulators = [s.uid for s in plan.simulators]
    simulator_of: dict[str, str] = {}
    names = {e.uid for e in plan.entities}
    for entity, path in zip(plan.entities, paths.entities, strict=True):
        simulator = entity.simulator
        if entity.parent is not None:
            if entity.parent in simulator_of:
                simulator = simulator_of[entity.parent]
            elif entity.parent in names:
                message = f"the parent {entity.parent!r} must be listed before its child {entity.uid!r}"
                problems.append(Problem(message, f"{path}.parent"))
            else:
                problems.append(_unknown("parent", entity.parent, simulator_of, f"{path}.parent"))
        elif simulator not in simulators:
            problems.append(_unknown("simulator", simulator, simulators, f"{path}.simulator"))
        problems += [Problem(message, f"{path}.{key}") for key, message in _entity_faults(entity)]
        if entity.uid in simulator_of:
            problems.append(Problem(f"entity {entity.uid!r} is defined twice", f"{path}.uid"))
        simulator_of[entity.uid] = simulator
    return simulator_of, problems


def _entity_faults(entity: EntitySpec) -> list[tuple[str, str]]:
    """Return (key, message) for keys of one entity that contradict each other."""
    faults: list[tuple[str, str]] = []
    if entity.parent is None:
        if not entity.model:
            faults.append(("model", "an entity needs a model (or, as a child, parent and eid)"))
        if entity.eid is not None:
            faults.append(("eid", "an eid finds a child; parent is missing"))
        return faults
    if entity.eid is None:
        faults.append(("eid", "a child is found by its mosaik id; eid is missing"))
    for key in ("simulator", "model", "params"):
        if getattr(entity, key):
            faults.append((key, f"a child is made by its parent; {key} has no place here"))
    return faults


def _check_connections(
    connections: Sequence[ConnectionSpec], paths: list[str], simulator_of: dict[str, str]
) -> list[Problem]:
    problems: list[Problem] = []
    for spec, path in zip(connections, paths, strict=True):
        for key, name in (("from", spec.source), ("to", spec.target)):
            if name not in simulator_of:
                problems.append(_unknown("entity", name, simulator_of, f"{path}.{key}"))
        if not spec.attributes and not spec.async_requests:
            problems.append(Problem("a connection needs at least one attribute", f"{path}.attributes"))
        if spec.weak and simulator_of.get(spec.source) == simulator_of.get(spec.target):
            message = "a weak connection is one between two simulators"
            problems.append(Problem(message, f"{path}.weak"))
        problems += _check_initial(spec, f"{path}.initial")
    return problems


def _check_initial(spec: ConnectionSpec, path: str) -> list[Problem]:
    """Check the initial values of a connection."""
    problems: list[Problem] = []
    sources = [source for source, _ in spec.attributes]
    if spec.initial and not (spec.time_shifted or spec.weak):
        problems.append(Problem("initial values only make sense in a time-shifted or weak connection", path))
    for name, value in spec.initial.items():
        if name not in sources:
            problems.append(_unknown("source attribute", name, sources, f"{path}.{name}"))
        elif value is None:
            problems.append(Problem("an initial value cannot be null", f"{path}.{name}"))
    return problems


def _check_cycles(
    connections: Sequence[ConnectionSpec], paths: list[str], simulator_of: dict[str, str]
) -> list[Problem]:
    """Find simulators that would wait for each other within one time."""
    # imported here, so that an environment in another interpreter works without networkx
    import networkx as nx

    graph = nx.DiGraph()
    for spec, path in zip(connections, paths, strict=True):
        ends = simulator_of.get(spec.source), simulator_of.get(spec.target)
        # an asynchronous request is answered within one time, even if the attributes are time-shifted
        if (spec.async_requests or not (spec.time_shifted or spec.weak)) and all(ends):
            graph.add_edge(*ends, path=path)
    problems: list[Problem] = []
    while True:
        try:
            cycle = nx.find_cycle(graph)
        except nx.NetworkXNoCycle:
            return problems
        ring = " -> ".join([edge[0] for edge in cycle] + [cycle[0][0]])
        message = f"simulators wait for each other within one time: {ring}; make one connection time_shifted or weak"
        problems.append(Problem(message, graph.edges[cycle[-1]]["path"]))
        graph.remove_edge(*cycle[-1])


def _check_ports(
    kind: str,
    ports: Sequence[SensorPort | ActuatorPort],
    paths: list[str],
    simulator_of: dict[str, str],
) -> list[Problem]:
    problems: list[Problem] = []
    seen: set[str] = set()
    for port, path in zip(ports, paths, strict=True):
        uid, space = port.information.uid, port.information.space
        if uid in seen:
            problems.append(Problem(f"{kind} {uid!r} is defined twice", f"{path}.uid"))
        seen.add(uid)
        if port.entity not in simulator_of:
            problems.append(_unknown("entity", port.entity, simulator_of, f"{path}.entity"))
        if port.index is not None and space.size != 1:
            message = f"with an index the space holds one number, not {space.size}: {space}"
            problems.append(Problem(message, f"{path}.space"))
        if port.index is not None and port.index < 0:
            problems.append(Problem(f"an index is 0 or more, found {port.index}", f"{path}.index"))
    return problems


def _check_targets(actuators: Sequence[ActuatorPort], paths: list[str]) -> list[Problem]:
    """Find actuators that would overwrite each other, and vectors of inconsistent length."""
    problems: list[Problem] = []
    users: dict[tuple[str, str], list[tuple[ActuatorPort, str]]] = {}
    for port, path in zip(actuators, paths, strict=True):
        users.setdefault((port.entity, port.attribute), []).append((port, path))
        if port.index is None and port.information.value is None:
            message = "value is missing: without an index, it is what the entity gets until an agent acts"
            problems.append(Problem(message, f"{path}.value"))
        if port.index is not None and port.index >= port.size:
            problems.append(Problem(f"index {port.index} does not fit size {port.size}", f"{path}.index"))
    for (entity, attribute), ports in users.items():
        places: dict[Any, str] = {}
        first = ports[0][0]
        for port, path in ports:
            if port.index in places or (port.index is None) != (first.index is None):
                other = places.get(port.index, first.information.uid)
                message = f"actuators {other!r} and {port.information.uid!r} both set {entity}.{attribute}"
                problems.append(Problem(message, f"{path}.{'attribute' if port.index is None else 'index'}"))
            elif port.size != first.size:
                message = f"{entity}.{attribute} has size {first.size} for one actuator and {port.size} here"
                problems.append(Problem(message, f"{path}.size"))
            places[port.index] = port.information.uid
    return problems
