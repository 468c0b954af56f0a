"""A built world as data: its simulators, entities and connections, in full or summarised."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from palaestrai_mosaik.core.text import count
from palaestrai_mosaik.environment.cosimulation import WorldPlan
from palaestrai_mosaik.experiment import EnvironmentSpec, PhaseSpec

from .bridge import CLOCK, COORDINATOR
from .connections import STATES
from .scheduler.versions import runners
from .world_builder import WorldBuilder

# more entities than this of one model in one simulator are shown as a group
_SINGLE = 8
_NAMED_ATTRIBUTES = 3
#: largest size of :func:`world_data` in characters of JSON
MOST = 10_000


def graph_of(builder: WorldBuilder, spec: PhaseSpec) -> nx.MultiDiGraph:
    """Return a built world as a graph; see :func:`.world_graph.world_graph`."""
    graph = nx.MultiDiGraph()
    # a foreign world may also list a whole simulator, which is not an entity
    named = [(getattr(entity, "full_id", None), uid) for (_, uid), entity in builder.entities.items() if uid]
    written = {full_id: uid for full_id, uid in named if full_id is not None}
    # mosaik's graph has all entities, even unconnected children
    for node, data in builder.world.entity_graph.nodes(data=True):
        entity = written.get(node, node[len(data["sid"]) + 1 :])
        if entity == COORDINATOR:
            # its mosaik name contains a @, so that no user's entity can have it
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
    """Return the number of floats of each attribute of an agent, by (full id, attribute)."""
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
    started = [runner.sid for runner in runners(builder.world)]
    descriptions = [
        *(
            text
            for e, environment in enumerate(spec.environments)
            for text in _parts(builder, e, environment)
        ),
        "the agents' coordinator",
        *(f"agent {agent.name!r}, {agent.muscle.name}" for agent in spec.agents),
    ]
    return dict(zip(started, descriptions, strict=True))


def _parts(builder: WorldBuilder, e: int, environment: EnvironmentSpec) -> Iterator[str]:
    """Yield a description of each simulator of an environment."""
    plan = builder.plans[e]
    if plan is None:
        where = "" if environment.interpreter is None else f" in {environment.interpreter}"
        yield f"environment {environment.uid!r}, {environment.name}{where}"
        return
    if isinstance(plan, WorldPlan):
        # its simulators are only known once it is built
        source = environment.params.get("module", environment.name)
        simulators = [(uid, source) for index, uid in builder.sids if index == e]
    else:
        simulators = [(s.uid, s.python or s.cmd or s.connect or environment.name) for s in plan.simulators]
    for uid, source in simulators:
        yield f"simulator {uid!r} of environment {environment.uid!r}, {source}"


def graph_data(graph: nx.MultiDiGraph) -> dict[str, Any]:
    """Return the graph as plain data: its simulators with their entities, and all connections."""
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
    """Return the data of :func:`graph_data` in at most :data:`MOST` characters of JSON.

    ``summarised`` is true if it is grouped by :func:`summary`: an entity may then stand for many of
    its model (``count``), and a connection for all data between two entities, with its label as
    ``data``. ``left_out`` counts simulators and connections that do not fit even then.
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
    entities = []
    for row in box.rows:
        model = nodes[row.key]["model"] if row.key in nodes else row.key.removeprefix(f"{box.simulator}/")
        entities.append({"entity": row.name, "model": model, "count": row.count})
    return {"simulator": box.simulator, "what": box.what, "entities": entities}


def _connection(flow: Flow, owners: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    source, target = (
        dict(zip(("simulator", "entity"), owners[key], strict=True)) for key in (flow.source, flow.target)
    )
    shifted = flow.time_shifted
    return {"source": source, "target": target, "data": flow.label, "time_shifted": shifted, "values": None}


def _fitting(items: Sequence[Any], room: int) -> list[Any]:
    """Return the first ``items`` that fit into ``room``."""
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
    """One entity of a simulator, or ``count`` entities of one model."""

    key: str
    name: str
    label: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Flow:
    """All data that one row sends to another, with or without a time shift."""

    source: str
    target: str
    time_shifted: bool
    label: str


@dataclass(slots=True)
class Box:
    """One simulator; ``rank`` is its position in the order of steps within one time."""

    simulator: str
    what: str
    rank: int
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Summary:
    """A world in a form small enough for a page."""

    boxes: list[Box]
    flows: list[Flow]

    def name(self, key: str) -> str:
        """Return the name of the row ``key`` in another simulator's box."""
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
        group = _group(graph, nodes)
        key = f"{simulator}/{model}"
        key_of |= {node: node for node in nodes} | dict.fromkeys(group, key)
        for node in nodes:
            if key_of[node] == node:
                entity = graph.nodes[node]["entity"]
                rows[simulator].append(Row(node, entity, f"{entity} [{model}]"))
        if group:
            first, last = (graph.nodes[node]["entity"] for node in (group[0], group[-1]))
            name = f"{len(group):,} other {model}" if len(group) < len(nodes) else f"{model} x {len(group):,}"
            rows[simulator].append(Row(key, name, f"{name}  ({first}, ..., {last})", len(group)))
    ranks = _ranks(graph)
    boxes = [
        Box(simulator, what, ranks[simulator], rows[simulator])
        for simulator, what in graph.graph["simulators"].items()
    ]
    return Summary(boxes, _flows(graph, key_of))


def _flows(graph: nx.MultiDiGraph, key_of: Mapping[str, str]) -> list[Flow]:
    """Group the connections by the rows of their ends, which ``key_of`` has by node."""
    connections: dict[tuple[str, str, bool], list[tuple[str, str, dict[str, Any]]]] = defaultdict(list)
    for source, target, data in graph.edges(data=True):
        connections[key_of[source], key_of[target], data["time_shifted"]].append((source, target, data))
    sizes = Counter(key_of.values())
    flows = []
    for (source, target, shifted), edges in connections.items():
        label = _label([data for *_, data in edges])
        for word, key, ends in (
            ("from", source, {start for start, _, _ in edges}),
            ("to", target, {end for _, end, _ in edges}),
        ):
            if len(ends) < sizes[key]:
                label += f" {word} {len(ends):,} of {sizes[key]:,}"
        flows.append(Flow(source, target, shifted, label))
    return flows


def _group(graph: nx.MultiDiGraph, nodes: Sequence[str]) -> Sequence[str]:
    """Return the entities of one model that share a row: of many, all but the connected ones if these are few."""
    if len(nodes) <= _SINGLE:
        return ()
    idle = [node for node in nodes if not graph.degree(node)]
    group = idle if len(nodes) - len(idle) < _SINGLE else nodes
    return group if len(group) > 1 else ()


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
    # our side of a connection repeats the other side's names, including environment and entity
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
