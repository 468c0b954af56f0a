"""Draws a world: simulators, entities, and the data flows between them.

The graph is taken from a real world, built for the first episode of a phase and shut
down without being run, so it shows the actual world of a run. Muscles and brains are left out:
no agent acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from palaestrai_mosaik.agent.batch import BatchMuscle, BatchReadings
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ContractError, PalaestraiMosaikError, did_you_mean
from palaestrai_mosaik.core.text import count, escape_control_characters, shorten
from palaestrai_mosaik.environment.environment import World
from palaestrai_mosaik.experiment import AgentSpec, EnvironmentSpec, PhaseSpec, RunDocument, resolve

from .batch_body import BatchBody
from .batch_handle import open_handle
from .body import AnyBody, Body
from .body_placement import place_bodies
from .coordinator import EpisodeCoordinator
from .environment_handle import EnvironmentHandle
from .episode import Episode
from .event_loop import complete
from .remote_environment import RemoteEnvironment
from .world_builder import WorldBuilder
from .world_data import Box, Flow, Summary, graph_of, summary
from .world_shutdown import shut_down

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


def graph_text(graph: nx.MultiDiGraph) -> str:
    """Return the graph as text: simulators, their entities, and the data flows of each."""
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
    """

    draw(summary(graph), graph.graph["title"], path)


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


def draw(picture: Summary, title: str, path: str | Path) -> None:
    """Draw ``picture`` to the file ``path``.

    Raises :class:`~palaestrai_mosaik.core.errors.PalaestraiMosaikError` for another format than
    :data:`FORMATS`, and if the file cannot be written.
    """
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        hint = did_you_mean(ending, FORMATS)
        raise PalaestraiMosaikError(f"cannot draw {path}{hint}: the name must end with {', '.join(FORMATS)}")
    import matplotlib as mpl
    from matplotlib.figure import Figure

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
        axes.text(
            _MARGIN,
            height - 0.32,
            escape_control_characters(title),
            fontsize=_TITLE_SIZE,
            fontweight="bold",
            va="center",
        )
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
            metadata: dict[str, Any] = (
                {} if ending == ".png" else {"Date" if ending == ".svg" else "CreationDate": None}
            )
            with files.writing(path) as stream:
                figure.savefig(stream, format=ending[1:], dpi=160, metadata=metadata)
        except OSError as error:
            raise PalaestraiMosaikError(f"cannot write {path}: {error.strerror}") from error


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
    style = f"arc3,rad={bend}"
    axes.add_patch(FancyArrowPatch(start, end, connectionstyle=style, **_arrow_style(flow)))
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
    control = (
        (start[0] + end[0]) / 2 + bend * across[1],
        (start[1] + end[1]) / 2 - bend * across[0],
    )
    first, middle, last = (1 - at) ** 2, 2 * at * (1 - at), at**2
    return (
        first * start[0] + middle * control[0] + last * end[0],
        first * start[1] + middle * control[1] + last * end[1],
    )


def _legend(axes: Axes, y: float) -> None:
    x = _MARGIN
    for color, style, text in (
        (_LINE, "solid", "arrives at the same time"),
        (_SHIFTED, (0, (4, 2.5)), "time-shifted: arrives at the next step"),
    ):
        axes.plot([x, x + 0.45], [y, y], color=color, linestyle=style, lw=1.4)
        axes.text(x + 0.55, y, text, fontsize=_LABEL_SIZE, color=_GREY, va="center")
        x += 0.95 + len(text) * 0.055
