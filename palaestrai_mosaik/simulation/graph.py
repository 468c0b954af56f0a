"""Draws a world: simulators, entities, and which data flows between them.

The graph is taken from a real world, built for the first episode of a phase and shut
down without being run, so it shows what will run. Muscles and brains are left out:
nobody is asked to act.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from palaestrai_mosaik.agent.batch import BatchMuscle, BatchReadings
from palaestrai_mosaik.environment.environment import World
from palaestrai_mosaik.environment.mosaik_environment import WorldPlan
from palaestrai_mosaik.errors import ContractError, PalaestraiMosaikError, did_you_mean
from palaestrai_mosaik.experiment import AgentSpec, EnvironmentSpec, PhaseSpec, RunDocument, resolve

from . import mosaik_internals as internals
from .batch_body import BatchBody
from .batch_port import open_port
from .body import Body
from .director import AnyBody, Director
from .embody import embody
from .episode import Episode
from .loops import complete
from .ports import EnvironmentPort
from .wires import STATES
from .world import WorldBuilder

# Of one model in one simulator, more entities than this are shown as one group.
_SINGLE = 8
_NAMED_ATTRIBUTES = 3


class _Still(BatchMuscle):
    """Stands for an agent's muscle in a world that is never run."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        return actuators_available, None

    def propose_batch(self, batch: BatchReadings) -> Any:
        return np.full((len(batch.bodies), batch.actuators.size), np.nan), None


def world_graph(document: RunDocument, phase: int | str = 0) -> nx.MultiDiGraph:
    """Return the world of a phase (its index or name) as a graph.

    Nodes are mosaik's full entity ids, with ``simulator`` (id), ``entity`` (its uid in the
    document, or else mosaik's id) and ``model``. Edges are connections, with ``source`` and ``target`` (attributes),
    ``time_shifted``, and ``values``: how many floats of an attribute an agent reads or
    sets (``None`` between other entities). ``graph.graph`` has ``title`` and
    ``simulators``: what each simulator is.

    Simulators are started, and ended again. Raises what building the world raises.
    """
    spec = _find_phase(document, phase)
    ports: list[EnvironmentPort] = []
    try:
        for environment in spec.environments:
            ports.append(_port(environment))
        bodies = [body for agent in spec.agents for body in _bodies(agent, ports)]
        director = Director(ports, bodies, [], taking_turns=spec.simulation.controller == "taking_turns")
        episode = Episode(director, 0, 0, document.seed, (spec.name,))
        with closing(asyncio.new_event_loop()) as loop:
            graph = complete(loop, _build(episode, spec))
    finally:
        for port in ports:
            port.domain.shutdown()
    graph.graph["title"] = f"world of phase {spec.index} {spec.name!r} ({spec.simulation.controller})"
    return graph


def _bodies(agent: AgentSpec, ports: Sequence[EnvironmentPort]) -> Iterator[AnyBody]:
    groups, faults = embody(agent, ports)
    if faults:
        raise ContractError(f"agent {agent.name!r}: {faults[0][0]}")
    for group in groups:
        if group.at_once:
            yield BatchBody(group.identity(), _Still(), None, group.batch_channels(), ())
        else:
            for place in range(group.count):
                yield Body(group.identity(place), _Still(), None, group.channels(place))


def graph_text(graph: nx.MultiDiGraph) -> str:
    """Return the graph as text: simulators, their entities, and what each sends where."""
    picture = summary(graph)
    lines = [
        graph.graph["title"],
        f"{_count(len(picture.boxes), 'simulator')}, {_count(graph.number_of_nodes(), 'entity', 'entities')}, "
        f"{_count(graph.number_of_edges(), 'connection')}",
    ]
    for box in picture.boxes:
        lines += ["", f"{box.simulator}: {box.what}"]
        for row in box.rows:
            flows = [flow for flow in picture.flows if flow.source == row.key]
            lines.append(f"  {row.label}")
            arrows = [("..>" if flow.time_shifted else "-->", picture.name(flow.target)) for flow in flows]
            width = max((len(target) for _, target in arrows), default=0)
            lines += [
                f"    {arrow} {target.ljust(width)}  {flow.label}"
                for (arrow, target), flow in zip(arrows, flows, strict=True)
            ]
    lines += ["", "--> arrives at the same time    ..> time-shifted: arrives at the next step"]
    return "\n".join(lines) + "\n"


def draw_graph(graph: nx.MultiDiGraph, path: str | Path) -> None:
    """Draw the graph into a file; the format is that of the name's ending (svg, png, pdf).

    Simulators stand from left to right in the order in which they step within one time;
    dashed arrows are time-shifted flows.
    """
    from .graph_picture import draw

    draw(summary(graph), graph.graph["title"], path)


@dataclass(frozen=True, slots=True)
class Row:
    """One entity, or all entities of one model, of a simulator."""

    key: str
    name: str
    label: str


@dataclass(frozen=True, slots=True)
class Flow:
    """All data that one row sends to another, with or without a time shift."""

    source: str
    target: str
    time_shifted: bool
    label: str


@dataclass(slots=True)
class Box:
    """One simulator; ``rank`` is its place in the order of steps within one time."""

    simulator: str
    what: str
    rank: int
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Summary:
    """A world, small enough to be looked at."""

    boxes: list[Box]
    flows: list[Flow]

    def name(self, key: str) -> str:
        """Return how the row ``key`` is called where another simulator's box mentions it."""
        return next(f"{b.simulator}.{r.name}" for b in self.boxes for r in b.rows if r.key == key)


def summary(graph: nx.MultiDiGraph) -> Summary:
    """Group entities and connections, so that a world of thousands of them fits a page."""
    members: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node, data in graph.nodes(data=True):
        members[data["simulator"], data["model"]].append(node)
    key_of: dict[str, str] = {}
    rows: dict[str, list[Row]] = defaultdict(list)
    for (simulator, model), nodes in members.items():
        entities = [graph.nodes[node]["entity"] for node in nodes]
        if len(nodes) > _SINGLE:
            key, name = f"{simulator}/{model}", f"{model} x {len(nodes):,}"
            rows[simulator].append(Row(key, name, f"{name}  ({entities[0]}, ..., {entities[-1]})"))
            key_of |= dict.fromkeys(nodes, key)
        else:
            rows[simulator] += [
                Row(node, entity, f"{entity} [{model}]") for node, entity in zip(nodes, entities, strict=True)
            ]
            key_of |= {node: node for node in nodes}
    connections: dict[tuple[str, str, bool], list[dict[str, Any]]] = defaultdict(list)
    for source, target, data in graph.edges(data=True):
        connections[key_of[source], key_of[target], data["time_shifted"]].append(data)
    flows = [Flow(*ends, _label(found)) for ends, found in connections.items()]
    ranks = _ranks(graph)
    boxes = [
        Box(simulator, what, ranks[simulator], rows[simulator])
        for simulator, what in graph.graph["simulators"].items()
    ]
    return Summary(boxes, flows)


def _label(connections: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(_attribute(data) for data in connections))
    text = ", ".join(names) if len(names) <= _NAMED_ATTRIBUTES else f"{len(names)} attributes"
    values = [data["values"] for data in connections if data["values"] is not None]
    if sum(values) > len(names):
        return f"{text} ({_count(sum(values), 'value')})"
    if len(connections) > len(names):
        return f"{text} ({_count(len(connections), 'connection')})"
    return text


def _attribute(data: dict[str, Any]) -> str:
    # our side of a connection repeats the names of the other side, environment and entity included
    source, target = data["source"], data["target"]
    if target == STATES:
        return "newest states"
    if target.split("#")[0].endswith(source):
        return str(source)
    if source.endswith(target):
        return str(target)
    return f"{source} → {target}"


def _ranks(graph: nx.MultiDiGraph) -> dict[str, int]:
    order = nx.DiGraph()
    order.add_nodes_from(graph.graph["simulators"])
    for source, target, shifted in graph.edges(data="time_shifted"):
        ends = (graph.nodes[source]["simulator"], graph.nodes[target]["simulator"])
        if not shifted and ends[0] != ends[1]:
            order.add_edge(*ends)
    # mosaik refuses cycles of flows within one time, so there is an order
    return {sid: rank for rank, sids in enumerate(nx.topological_generations(order)) for sid in sids}


def _find_phase(document: RunDocument, phase: int | str) -> PhaseSpec:
    for spec in document.phases:
        if phase in (spec.index, spec.name):
            return spec
    known = ", ".join(f"{spec.index} {spec.name!r}" for spec in document.phases)
    hint = did_you_mean(str(phase), [spec.name for spec in document.phases])
    raise PalaestraiMosaikError(f"{document.source} has no phase {phase!r}{hint}; it has: {known}")


def _port(spec: EnvironmentSpec) -> EnvironmentPort:
    # without reward and state transformer, which are no part of the picture
    found = resolve(spec.name, "environment")
    if not issubclass(found, World):
        raise ContractError(f"{spec.name} is no World, so it cannot be an environment")
    domain = found(**deepcopy(spec.params))
    domain.uid = spec.uid
    if spec.step_size is not None:
        domain.step_size = spec.step_size
    return open_port(domain)


async def _build(episode: Episode, spec: PhaseSpec) -> nx.MultiDiGraph:
    builder = WorldBuilder(episode)
    try:
        await builder.build()
        return _graph(builder, spec)
    finally:
        if hasattr(builder, "world"):
            await internals.shut_down(builder.world, builder.children)


def _graph(builder: WorldBuilder, spec: PhaseSpec) -> nx.MultiDiGraph:
    graph = nx.MultiDiGraph()
    written = {entity.full_id: uid for (_, uid), entity in builder.entities.items() if uid}
    # mosaik's graph has all entities, also children that nothing is connected to
    for node, data in builder.world.entity_graph.nodes(data=True):
        entity = written.get(node, node[len(data["sid"]) + 1 :])
        graph.add_node(node, simulator=data["sid"], entity=entity, model=data["type"])
    values = _values(builder)
    for source, target, out, into, shifted in builder.connections:
        wired = values.get((target, into), values.get((source, out)))
        graph.add_edge(source, target, source=out, target=into, time_shifted=shifted, values=wired)
    graph.graph["simulators"] = _simulators(builder, spec)
    return graph


def _values(builder: WorldBuilder) -> dict[tuple[str, str], int]:
    """Return the number of floats behind each attribute of an agent, by (full id, attribute)."""
    wired: dict[str, dict[str, int]] = {}
    for body in builder.episode.director.bodies:
        wired[body.name] = body.wired()
    return {
        (node, attribute): size
        for node, data in builder.world.entity_graph.nodes(data=True)
        if data["type"] == "Agent"
        for attribute, size in wired.get(node[len(data["sid"]) + 1 :], {}).items()
    }


def _simulators(builder: WorldBuilder, spec: PhaseSpec) -> dict[str, str]:
    # in the order in which they were started: environments, the director, agents
    started = iter([runner.sid for runner in internals.runners(builder.world)])
    what: dict[str, str] = {}
    for e, (environment, plan) in enumerate(zip(spec.environments, builder.plans, strict=True)):
        if plan is None:
            what[next(started)] = f"environment {environment.uid!r}, {environment.name}"
            continue
        if isinstance(plan, WorldPlan):
            # what it starts is known when it has been built only
            for uid in [uid for place, uid in builder.sids if place == e]:
                made = f"simulator {uid!r} of environment {environment.uid!r}"
                what[next(started)] = f"{made}, {environment.params['module']}"
            continue
        for simulator in plan.simulators:
            how = simulator.python or simulator.cmd or simulator.connect or environment.name
            what[next(started)] = f"simulator {simulator.uid!r} of environment {environment.uid!r}, {how}"
    what[next(started)] = "the agents' director"
    return what | {
        sid: f"agent {agent.name!r}, {agent.muscle.name}"
        for sid, agent in zip(started, spec.agents, strict=True)
    }


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
