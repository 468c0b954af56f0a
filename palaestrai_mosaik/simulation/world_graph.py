"""A built world as a graph: as data, summarised, as text, and as a picture."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from palaestrai_mosaik.agent.muscle import BatchMuscle, BatchReadings
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ContractError, PalaestraiMosaikError, did_you_mean
from palaestrai_mosaik.core.printing import count, counted_by_pattern, escape_control_characters, shorten
from palaestrai_mosaik.environment.cosimulation import WorldPlan
from palaestrai_mosaik.environment.environment import World
from palaestrai_mosaik.experiment import AgentSpec, EnvironmentSpec, PhaseSpec, RunDocument, resolve

from .batch_body import BatchBody
from .body import AnyBody, Body
from .body_placement import place_bodies
from .bridge import CLOCK, COORDINATOR
from .connections import STATES
from .coordinator import EpisodeCoordinator
from .environment_handle import EnvironmentHandle, open_handle
from .episode import Episode
from .event_loop import complete
from .remote_environment import RemoteEnvironment
from .scheduler.versions import runners
from .world_builder import WorldBuilder
from .world_run import shut_down

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    # the number of floats of each attribute of an agent, by full id
    bodies = {body.name: body for body in builder.episode.coordinator.bodies}
    wired = {name: body.wired() for name, body in bodies.items()}
    sizes = {
        node: wired.get(node[len(data["sid"]) + 1 :], {})
        for node, data in builder.world.entity_graph.nodes(data=True)
        if data["type"] == "Agent"
    }
    for node in sizes:
        body = bodies.get(graph.nodes[node]["entity"])
        if body is not None:
            channels = (("reads", body.sensors), ("sets", body.actuators))
            graph.nodes[node]["channels"] = {verb: layout.uids for verb, layout in channels if layout.uids}
    for source, target, out, into, shifted in builder.connections:
        values = sizes.get(target, {}).get(into, sizes.get(source, {}).get(out))
        graph.add_edge(source, target, source=out, target=into, time_shifted=shifted, values=values)
    graph.graph["title"] = f"world of phase {spec.index} {spec.name!r} ({spec.simulation.controller})"
    graph.graph["simulators"] = _simulators(builder, spec)
    return graph


def _simulators(builder: WorldBuilder, spec: PhaseSpec) -> dict[str, str]:
    # in the order in which they were started: environments, the coordinator, agents
    started = [runner.sid for runner in runners(builder.world)]
    texts = [text for e, entry in enumerate(spec.environments) for text in _parts(builder, e, entry)]
    texts.append("the agents' coordinator")
    texts += [f"agent {agent.name!r}, {agent.muscle.name}" for agent in spec.agents]
    return dict(zip(started, texts, strict=True))


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
    owners = {
        row.key: {"simulator": box.simulator, "entity": row.name} for box in picture.boxes for row in box.rows
    }
    there = {box["simulator"] for box in boxes}
    flows = [
        {
            "source": owners[flow.source],
            "target": owners[flow.target],
            "data": flow.label,
            "time_shifted": flow.time_shifted,
            "values": None,
        }
        for flow in picture.flows
        if {owners[flow.source]["simulator"], owners[flow.target]["simulator"]} <= there
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


class _Still(BatchMuscle):
    """Replaces an agent's muscle in a world that is never run."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        return actuators_available, None

    def propose_batch(self, batch: BatchReadings) -> Any:
        return np.full((len(batch.bodies), batch.actuators.size), np.nan), None


def world_graph(document: RunDocument, phase: int | str = 0) -> nx.MultiDiGraph:
    """Build the world of a phase (its index or name) and return it as a graph.

    Nodes are mosaik's full entity ids, with ``simulator`` (id), ``entity`` (its uid in the
    document, or mosaik's id) and ``model``. Edges are connections, with ``source`` and ``target`` (attributes),
    ``time_shifted``, and ``values``: the number of floats of an attribute that an agent reads or
    sets (``None`` between other entities). ``graph.graph`` has ``title`` and
    ``simulators``, a description of each simulator.

    Simulators are started and ended. Exceptions of the construction are raised.
    """
    spec = _find_phase(document, phase)
    handles: list[EnvironmentHandle] = []
    try:
        for environment in spec.environments:
            handles.append(_handle(environment))
        bodies = [body for agent in spec.agents for body in _bodies(agent, handles)]
        coordinator = EpisodeCoordinator(
            handles, bodies, [], taking_turns=spec.simulation.controller == "taking_turns"
        )
        episode = Episode(coordinator, 0, 0, document.seed, (spec.streams,))
        with closing(asyncio.new_event_loop()) as loop:
            graph = complete(loop, _build(episode, spec))
    finally:
        for handle in handles:
            handle.domain.shutdown()
    return graph


def _bodies(agent: AgentSpec, handles: Sequence[EnvironmentHandle]) -> Iterator[AnyBody]:
    groups, faults = place_bodies(agent, handles)
    if faults:
        raise ContractError(f"agent {agent.name!r}: {faults[0][0]}")
    for group in groups:
        if group.at_once:
            yield BatchBody(group.identity(), _Still(), None, group.batch_channels(), ())
        else:
            for index in range(group.count):
                yield Body(group.identity(index), _Still(), None, group.channels(index))


def graph_text(graph: nx.MultiDiGraph, *, whole: bool = False) -> str:
    """Return the graph as text: simulators, their entities, what agents read and set, and the data flows of each.

    Sensors and actuators are counted by pattern; ``whole`` lists them.
    """
    picture = summary(graph)
    lines = [
        graph.graph["title"],
        f"{count(len(picture.boxes), 'simulator')}, {count(graph.number_of_nodes(), 'entity', 'entities')}, "
        f"{count(graph.number_of_edges(), 'connection')}",
    ]
    for box in picture.boxes:
        lines += ["", f"{box.simulator}: {box.what}"]
        for row in box.rows:
            flows = [flow for flow in picture.flows if flow.source == row.key]
            lines.append(f"  {row.label}")
            channels = graph.nodes[row.key].get("channels", {}) if row.key in graph else {}
            for verb, uids in channels.items():
                lines.append(f"    {verb} {', '.join(uids) if whole else counted_by_pattern(uids)}")
            arrows = [("..>" if flow.time_shifted else "-->", picture.name(flow.target)) for flow in flows]
            width = max((len(target) for _, target in arrows), default=0)
            lines += [
                f"    {arrow} {target.ljust(width)}  {flow.label}"
                for (arrow, target), flow in zip(arrows, flows, strict=True)
            ]
    lines += ["", "--> arrives at the same time    ..> time-shifted: arrives at the next step"]
    return "\n".join(lines) + "\n"


def draw_graph(graph: nx.MultiDiGraph, path: str | Path) -> None:
    """Draw the graph to a file in the format of its suffix (svg, png, pdf).

    Simulators are ordered from left to right by their steps within one time;
    dashed arrows are time-shifted flows.

    Raises :class:`~palaestrai_mosaik.core.errors.PalaestraiMosaikError` for another format than
    :data:`FORMATS`, and if the file cannot be written.
    """
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        hint = did_you_mean(ending, FORMATS)
        raise PalaestraiMosaikError(f"cannot draw {path}{hint}: the name must end with {', '.join(FORMATS)}")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    picture = summary(graph)
    positions, width, height = _layout(picture)
    lanes = _lanes(picture, positions)
    below = len(lanes) * _LANE
    # names of users must not be parsed as formulas
    rc: Any = {"svg.hashsalt": "palaestrai-mosaik", "font.family": "DejaVu Sans", "text.parse_math": False}
    with mpl.rc_context(rc):
        figure = Figure(figsize=(width, height + below))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, width), ylim=(-below, height), aspect="equal")
        axes.axis("off")
        title = escape_control_characters(graph.graph["title"])
        axes.text(_MARGIN, height - 0.32, title, fontsize=_TITLE_SIZE, fontweight="bold", va="center")
        _legend(axes, height - 0.62)
        for box in picture.boxes:
            _draw_box(axes, box, positions)
        for index, flow in enumerate(picture.flows):
            ends = _ends(flow, positions)
            if flow in lanes:
                _draw_detour(axes, flow, ends, lanes[flow])
            else:
                _draw_arrow(axes, flow, ends, _at(flow, picture.flows[:index]))
        try:
            # no date, so that the same world gives the same file
            metadata: Any = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(ending, {})
            with files.writing(path) as stream:
                figure.savefig(stream, format=ending[1:], dpi=160, metadata=metadata)
        except OSError as error:
            raise PalaestraiMosaikError(f"cannot write {path}: {error.strerror}") from error


def _find_phase(document: RunDocument, phase: int | str) -> PhaseSpec:
    for spec in document.phases:
        if phase in (spec.index, spec.name):
            return spec
    phases = ", ".join(f"{spec.index} {spec.name!r}" for spec in document.phases)
    hint = did_you_mean(str(phase), [spec.name for spec in document.phases])
    raise PalaestraiMosaikError(f"{document.source} has no phase {phase!r}{hint}; it has: {phases}")


def _handle(spec: EnvironmentSpec) -> EnvironmentHandle:
    # without reward and state transformer, which are not in the picture
    domain: World
    if spec.interpreter is not None:
        domain = RemoteEnvironment(spec.name, deepcopy(spec.params), spec.interpreter, spec.timeout)
    else:
        environment_class = resolve(spec.name, "environment")
        if not issubclass(environment_class, World):
            raise ContractError(f"{spec.name} is no World, so it cannot be an environment")
        domain = environment_class(**deepcopy(spec.params))
    domain.uid = spec.uid
    if spec.step_size is not None:
        domain.step_size = spec.step_size
    return open_handle(domain)


async def _build(episode: Episode, spec: PhaseSpec) -> nx.MultiDiGraph:
    builder = WorldBuilder(episode)
    try:
        await builder.build()
        return graph_of(builder, spec)
    finally:
        if hasattr(builder, "world"):
            await shut_down(builder.world, builder.children)


FORMATS = (".svg", ".png", ".pdf")

# All lengths and coordinates are in inches.
_ROW, _TITLE, _MARGIN = 0.5, 0.62, 0.3
_GAP_BETWEEN_BOXES = 0.45
_LANE = 0.26
_CHARACTER = 0.078
_TITLE_SIZE, _TEXT_SIZE, _LABEL_SIZE = 11.0, 9.0, 7.5
_LINE, _SHIFTED, _BOX, _EDGE, _GREY = "#0072B2", "#D55E00", "#F4F6F8", "#8A949E", "#5A6570"
_WIDEST = 48

_Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Position:
    """The position of a row: the box's left and right edge, and the row's height above the ground."""

    left: float
    right: float
    y: float
    rank: int


def _layout(picture: Summary) -> tuple[dict[str, _Position], float, float]:
    """Return the position of every row and box (by its simulator's id), the width and the height."""
    columns: dict[int, list[Box]] = {}
    for box in picture.boxes:
        columns.setdefault(box.rank, []).append(box)
    heights = {
        rank: sum(_height(box) for box in boxes) + _GAP_BETWEEN_BOXES * (len(boxes) - 1)
        for rank, boxes in columns.items()
    }
    ground = _MARGIN
    ceiling = ground + max(heights.values())
    labels = max((len(_cut(flow.label)) for flow in picture.flows), default=0)
    gap = max(2.2, labels * _CHARACTER * _LABEL_SIZE / _TEXT_SIZE + 1.2)
    positions: dict[str, _Position] = {}
    x = _MARGIN
    for rank in sorted(columns):
        width = max(map(_width, columns[rank]))
        y = (ground + ceiling + heights[rank]) / 2
        for box in _ordered(columns[rank], picture, positions):
            positions[box.simulator] = _Position(x, x + width, y, rank)
            for i, row in enumerate(box.rows):
                positions[row.key] = _Position(x, x + width, y - _TITLE - (i + 0.5) * _ROW, rank)
            y -= _height(box) + _GAP_BETWEEN_BOXES
        x += width + gap
    return positions, max(x - gap + _MARGIN, 6.0), ceiling + 0.95


def _ordered(boxes: list[Box], picture: Summary, positions: dict[str, _Position]) -> list[Box]:
    """Order the boxes of a column by the height of their sources, so that few flows cross."""

    def height(box: Box) -> float:
        keys = {row.key for row in box.rows}
        sources = [positions[f.source].y for f in picture.flows if f.target in keys and f.source in positions]
        return sum(sources) / len(sources) if sources else 0.0

    return sorted(boxes, key=height, reverse=True)


def _width(box: Box) -> float:
    texts = [*(row.label for row in box.rows), *_titles(box)]
    return max(len(_cut(text)) for text in texts) * _CHARACTER + 0.35


def _height(box: Box) -> float:
    return _TITLE + len(box.rows) * _ROW + 0.1


def _titles(box: Box) -> list[str]:
    who, _, what = box.what.partition(", ")
    return [box.simulator, what.rpartition(":")[2] or who]


def _cut(text: str) -> str:
    return shorten(escape_control_characters(text), _WIDEST)


def _draw_box(axes: Axes, box: Box, positions: dict[str, _Position]) -> None:
    from matplotlib.patches import FancyBboxPatch

    position, height = positions[box.simulator], _height(box)
    corner, width = (position.left, position.y - height), position.right - position.left
    style = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, fc=_BOX, ec=_EDGE, lw=1.0, zorder=2))
    name, what = _titles(box)
    left = position.left + 0.14
    axes.text(
        left, position.y - 0.2, _cut(name), fontsize=_TEXT_SIZE, fontweight="bold", va="center", zorder=3
    )
    axes.text(left, position.y - 0.42, _cut(what), fontsize=_LABEL_SIZE, color=_GREY, va="center", zorder=3)
    for row in box.rows:
        y = positions[row.key].y
        axes.plot([position.left, position.right], [y + _ROW / 2] * 2, color="#D8DDE2", lw=0.7, zorder=3)
        axes.text(left, y, _cut(row.label), fontsize=_TEXT_SIZE, va="center", zorder=3)


def _lanes(picture: Summary, positions: dict[str, _Position]) -> dict[Flow, int]:
    """Assign a lane below all boxes to each flow that passes other columns of boxes."""
    far = [f for f in picture.flows if abs(positions[f.source].rank - positions[f.target].rank) > 1]
    return {flow: lane for lane, flow in enumerate(far)}


def _ends(flow: Flow, positions: dict[str, _Position]) -> tuple[_Point, _Point, int]:
    """Return start and end of the arrow, and its direction: forward (1), back (-1) or neither (0)."""
    source, target = positions[flow.source], positions[flow.target]
    # backward arrows run a little lower, so that both directions are visible
    shift = -0.09 if flow.time_shifted else 0.09
    direction = (target.rank > source.rank) - (target.rank < source.rank)
    start = source.left if direction < 0 else source.right
    end = target.left if direction > 0 else target.right
    return (start, source.y + shift), (end, target.y + shift), direction


def _at(flow: Flow, earlier: list[Flow]) -> float:
    """Return the position of the label, near the end with fewer arrows, so that labels do not overlap."""
    busy_source = sum(flow.source in (f.source, f.target) for f in earlier)
    busy_target = sum(flow.target in (f.source, f.target) for f in earlier)
    return 0.3 if busy_source < busy_target else 0.7


def _draw_arrow(axes: Axes, flow: Flow, ends: tuple[_Point, _Point, int], at: float) -> None:
    from matplotlib.patches import FancyArrowPatch

    start, end, direction = ends
    bend = 0.0 if direction else -0.5
    axes.add_patch(FancyArrowPatch(start, end, connectionstyle=f"arc3,rad={bend}", **_arrow_style(flow)))
    _draw_label(axes, flow, _on_arc(start, end, bend, at))


def _draw_detour(axes: Axes, flow: Flow, ends: tuple[_Point, _Point, int], lane: int) -> None:
    """Draw an arrow that passes below the boxes."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Line

    start, end, direction = ends
    y = -(lane + 0.3) * _LANE
    aside = direction * (0.15 + 0.06 * (lane % 10))
    down, up = start[0] + aside, end[0] - aside
    points = [start, (down, start[1]), (down, y), (up, y), (up, end[1]), end]
    axes.add_patch(FancyArrowPatch(path=Line(points), **_arrow_style(flow)))
    _draw_label(axes, flow, ((down + up) / 2, y))


def _arrow_style(flow: Flow) -> dict[str, Any]:
    return {
        "arrowstyle": "-|>,head_width=2.5,head_length=5",
        "linestyle": (0, (4, 2.5)) if flow.time_shifted else "solid",
        "color": _SHIFTED if flow.time_shifted else _LINE,
        "joinstyle": "round",
        "lw": 1.2,
        "zorder": 1.5,
    }


def _draw_label(axes: Axes, flow: Flow, where: _Point) -> None:
    axes.text(
        *where,
        _cut(flow.label),
        fontsize=_LABEL_SIZE,
        color=_SHIFTED if flow.time_shifted else _LINE,
        ha="center",
        va="center",
        zorder=4,
        bbox={"fc": "white", "ec": "none", "pad": 0.8, "alpha": 0.85},
    )


def _on_arc(start: _Point, end: _Point, bend: float, at: float) -> _Point:
    """Return the point at the share ``at`` of matplotlib's ``arc3``, a quadratic Bézier curve."""
    across = (end[0] - start[0], end[1] - start[1])
    control = (start[0] + end[0]) / 2 + bend * across[1], (start[1] + end[1]) / 2 - bend * across[0]
    weights = (1 - at) ** 2, 2 * at * (1 - at), at**2
    x, y = (sum(map(mul, weights, axis)) for axis in zip(start, control, end, strict=True))
    return x, y


def _legend(axes: Axes, y: float) -> None:
    x = _MARGIN
    for color, style, text in (
        (_LINE, "solid", "arrives at the same time"),
        (_SHIFTED, (0, (4, 2.5)), "time-shifted: arrives at the next step"),
    ):
        axes.plot([x, x + 0.45], [y, y], color=color, linestyle=style, lw=1.4)
        axes.text(x + 0.55, y, text, fontsize=_LABEL_SIZE, color=_GREY, va="center")
        x += 0.95 + len(text) * 0.055
