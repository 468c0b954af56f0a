"""A world as data: simulators, entities and connections of a world that is built, all of them or summarised."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from palaestrai_mosaik.environment.cosimulation import WorldPlan
from palaestrai_mosaik.experiment import PhaseSpec
from palaestrai_mosaik.text import count

from .bridge import CLOCK, COORDINATOR
from .connections import STATES
from .episode import WorldBuilder
from .scheduler.versions import runners

# Of one model in one simulator, more entities than this are shown as one group.
_SINGLE = 8
_NAMED_ATTRIBUTES = 3
#: characters of the JSON of :func:`world_data`
MOST = 10_000


def graph_of(builder: WorldBuilder, spec: PhaseSpec) -> nx.MultiDiGraph:
    """Return a world that is built as a graph; see :func:`.world_graph.world_graph`."""
    graph = nx.MultiDiGraph()
    # (what a world made for palaestrai-mosaik names may also be a simulator as a whole, which is no entity)
    named = [(getattr(entity, "full_id", None), uid) for (_, uid), entity in builder.entities.items() if uid]
    written = {full_id: uid for full_id, uid in named if full_id is not None}
    # mosaik's graph has all entities, also children that nothing is connected to
    for node, data in builder.world.entity_graph.nodes(data=True):
        entity = written.get(node, node[len(data["sid"]) + 1 :])
        if entity == COORDINATOR:
            # (the name in mosaik is one that no entity of a user has)
            entity = data["sid"]
        graph.add_node(node, simulator=data["sid"], entity=entity, model=data["type"])
    values = _values(builder)
    for source, target, out, into, shifted in builder.connections:
        wired = values.get((target, into), values.get((source, out)))
        graph.add_edge(source, target, source=out, target=into, time_shifted=shifted, values=wired)
    graph.graph["title"] = f"world of phase {spec.index} {spec.name!r} ({spec.simulation.controller})"
    graph.graph["simulators"] = _simulators(builder, spec)
    return graph


def _values(builder: WorldBuilder) -> dict[tuple[str, str], int]:
    """Return the number of floats behind each attribute of an agent, by (full id, attribute)."""
    wired: dict[str, dict[str, int]] = {}
    for body in builder.episode.coordinator.bodies:
        wired[body.name] = body.wired()
    return {
        (node, attribute): size
        for node, data in builder.world.entity_graph.nodes(data=True)
        if data["type"] == "Agent"
        for attribute, size in wired.get(node[len(data["sid"]) + 1 :], {}).items()
    }


def _simulators(builder: WorldBuilder, spec: PhaseSpec) -> dict[str, str]:
    # in the order in which they were started: environments, the coordinator, agents
    started = iter([runner.sid for runner in runners(builder.world)])
    what: dict[str, str] = {}
    for e, (environment, plan) in enumerate(zip(spec.environments, builder.plans, strict=True)):
        if plan is None:
            where = "" if environment.interpreter is None else f" in {environment.interpreter}"
            what[next(started)] = f"environment {environment.uid!r}, {environment.name}{where}"
            continue
        if isinstance(plan, WorldPlan):
            # what it starts is known when it has been built only
            for uid in [uid for place, uid in builder.sids if place == e]:
                made = f"simulator {uid!r} of environment {environment.uid!r}"
                what[next(started)] = f"{made}, {environment.params.get('module', environment.name)}"
            continue
        for simulator in plan.simulators:
            how = simulator.python or simulator.cmd or simulator.connect or environment.name
            what[next(started)] = f"simulator {simulator.uid!r} of environment {environment.uid!r}, {how}"
    what[next(started)] = "the agents' coordinator"
    return what | {
        sid: f"agent {agent.name!r}, {agent.muscle.name}"
        for sid, agent in zip(started, spec.agents, strict=True)
    }


def graph_data(graph: nx.MultiDiGraph) -> dict[str, Any]:
    """Return the graph as plain data: its simulators with their entities, and all connections, none left out."""
    nodes = graph.nodes(data=True)
    return {
        "title": graph.graph["title"],
        "simulators": [
            {
                "simulator": simulator,
                "what": what,
                "entities": [
                    {"entity": data["entity"], "model": data["model"]}
                    for _, data in nodes
                    if data["simulator"] == simulator
                ],
            }
            for simulator, what in graph.graph["simulators"].items()
        ],
        "connections": [
            {
                "source": {name: graph.nodes[source][name] for name in ("simulator", "entity")},
                "target": {name: graph.nodes[target][name] for name in ("simulator", "entity")},
                "data": _attribute(data),
                "time_shifted": data["time_shifted"],
                "values": data["values"],
            }
            for source, target, data in graph.edges(data=True)
        ],
    }


def world_data(graph: nx.MultiDiGraph) -> dict[str, Any]:
    """Return the graph as :func:`graph_data` does, in at most :data:`MOST` characters of JSON.

    ``summarised`` says whether it is as :func:`summary` groups it: an entity may then stand for many of
    its model (``count``), and a connection for all that flows between two entities, with its label as
    ``data``. ``left_out`` counts simulators and connections that have no room even so.
    """
    data = graph_data(graph) | {"summarised": False, "left_out": {"simulators": 0, "connections": 0}}
    for simulator in data["simulators"]:
        for entity in simulator["entities"]:
            entity["count"] = 1
    if _size(data) <= MOST:
        return data
    picture = summary(graph)
    boxes = _fitting([_simulator(graph, box) for box in picture.boxes], MOST // 2)
    owners = {row.key: (box.simulator, row.name) for box in picture.boxes for row in box.rows}
    there = {box["simulator"] for box in boxes}
    flows = [
        _connection(flow, owners)
        for flow in picture.flows
        if {owners[flow.source][0], owners[flow.target][0]} <= there
    ]
    data |= {"summarised": True, "simulators": boxes, "connections": []}
    data["connections"] = _fitting(flows, MOST - _size(data))
    data["left_out"]["simulators"] = len(picture.boxes) - len(boxes)
    data["left_out"]["connections"] = len(picture.flows) - len(data["connections"])
    return data


def _simulator(graph: nx.MultiDiGraph, box: Box) -> dict[str, Any]:
    nodes = graph.nodes
    members = [data["model"] for _, data in nodes(data=True) if data["simulator"] == box.simulator]
    entities = []
    for row in box.rows:
        one = row.key in nodes
        model = nodes[row.key]["model"] if one else row.key.removeprefix(f"{box.simulator}/")
        entities.append({"entity": row.name, "model": model, "count": 1 if one else members.count(model)})
    return {"simulator": box.simulator, "what": box.what, "entities": entities}


def _connection(flow: Flow, owners: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    source, target = (
        dict(zip(("simulator", "entity"), owners[key], strict=True)) for key in (flow.source, flow.target)
    )
    shifted = flow.time_shifted
    return {"source": source, "target": target, "data": flow.label, "time_shifted": shifted, "values": None}


def _fitting(items: Sequence[Any], room: int) -> list[Any]:
    """Return the first of ``items``, as many as have room."""
    used = 2
    for number, item in enumerate(items):
        used += _size(item) + 1
        if used > room:
            return list(items[:number])
    return list(items)


def _size(data: Any) -> int:
    return len(json.dumps(data, separators=(",", ":")))


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
        simulator, name = next((b.simulator, r.name) for b in self.boxes for r in b.rows if r.key == key)
        return name if name == simulator else f"{simulator}.{name}"


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
        return f"{text} ({count(sum(values), 'value')})"
    if len(connections) > len(names):
        return f"{text} ({count(len(connections), 'connection')})"
    return text


def _attribute(data: dict[str, Any]) -> str:
    # our side of a connection repeats the names of the other side, environment and entity included
    source, target = data["source"], data["target"]
    if target == STATES:
        return "newest states"
    if source == CLOCK:
        return f"time → {target}"
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
