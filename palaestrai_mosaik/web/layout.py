"""Positions of a topology's nodes in a drawing: its own coordinates, or a computed layout.

The same topology always has the same layout. A small topology without coordinates is drawn by the algorithm of Kamada
and Kawai; a larger one as a tree around its centre, which springs then relax.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types import Topology
from palaestrai_mosaik.types.arrays import FloatMatrix

#: the longer side of a drawing; both coordinates start at 0
SIZE = 1000.0
#: the algorithm of Kamada and Kawai takes seconds for more nodes
_SMALL = 60
#: rounds of relaxation by springs, and number of neighbours that repel each other
_ROUNDS, _NEAREST = 80, 8
#: nodes with equal positions are moved to a circle with this share of the median neighbour distance as radius
_APART = 0.35


@lru_cache(maxsize=32)
def positions(topology: Topology) -> FloatMatrix:
    """Return the positions of a topology's nodes in the drawing.

    Args:
        topology: nodes and edges. Coordinates are used if at least half of the nodes have them, and they differ; nodes
            without coordinates are drawn near their neighbours.

    Returns:
        x (to the right) and y (downwards) of each node, shape ``(nodes, 2)``, between 0 and :data:`SIZE`.
    """
    count = len(topology.nodes)
    if not count:
        return np.zeros((0, 2))
    points = np.array([(_number(node.x), _number(node.y)) for node in topology.nodes])
    has_point = np.isfinite(points).all(axis=1)
    graph = _graph(topology)
    if has_point.sum() * 2 >= count and len(np.unique(points[has_point], axis=0)) > 1:
        points[:, 1] *= -1  # north is up, but the y axis of a drawing points down
        points = _spread(_completed(points, has_point, graph))
    else:
        points = _layout(graph)
    points = _fitted(points)
    points.flags.writeable = False
    return points


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _graph(topology: Topology) -> nx.Graph:
    index = {node.id: i for i, node in enumerate(topology.nodes)}
    graph = nx.Graph()
    graph.add_nodes_from(range(len(index)))
    graph.add_edges_from((index[edge.source], index[edge.target]) for edge in topology.edges)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return graph


def _completed(places: FloatMatrix, placed: npt.NDArray[np.bool_], graph: nx.Graph) -> FloatMatrix:
    """Place nodes without coordinates at the mean of their neighbours, repeatedly; unreachable ones in the middle."""
    places, placed = places.copy(), placed.copy()
    while not placed.all():
        neighbours = {int(i): [j for j in graph[int(i)] if placed[j]] for i in np.flatnonzero(~placed)}
        reachable = [i for i, near in neighbours.items() if near]
        if not reachable:
            places[~placed] = places[placed].mean(axis=0)
            break
        for i in reachable:
            places[i] = places[neighbours[i]].mean(axis=0)
        placed[reachable] = True
    return places


def _spread(places: FloatMatrix) -> FloatMatrix:
    """Move nodes that share a position, such as the buses of a substation, to a circle around the first of them."""
    from scipy.spatial import cKDTree

    unique, members = np.unique(places, axis=0, return_inverse=True)
    if len(unique) == len(places):
        return places
    distances, _ = cKDTree(unique).query(unique, k=2)
    radius = _APART * float(np.median(distances[:, 1]))
    places = places.copy()
    for group in np.flatnonzero(np.bincount(members) > 1):
        moved = np.flatnonzero(members == group)[1:]
        angles = np.arange(len(moved)) * 2 * np.pi / len(moved)
        places[moved] += radius * np.column_stack((np.cos(angles), np.sin(angles)))
    return places


def _layout(graph: nx.Graph) -> FloatMatrix:
    """Return a layout of each connected component; components are drawn side by side, largest first."""
    result = np.zeros((len(graph), 2))
    left, height = 0.0, 0.0
    for part in sorted(nx.connected_components(graph), key=lambda nodes: (-len(nodes), min(nodes))):
        nodes = sorted(part)
        points = _layout_of_part(nx.relabel_nodes(graph.subgraph(nodes), {n: i for i, n in enumerate(nodes)}))
        points = points - points.min(axis=0) if len(points) else points
        height = max(height, float(points[:, 1].max()))
        result[nodes] = points + np.array([left, 0.0])
        left += float(points[:, 0].max()) + max(1.0, 0.1 * height)
    return result


def _layout_of_part(graph: nx.Graph) -> FloatMatrix:
    """Return a layout of a connected graph with nodes 0, 1, 2, ... and a median edge length of 1."""
    tree = _tree_layout(graph)
    if len(graph) < 3:
        return tree
    # the result depends on the order of nodes and edges
    ordered = nx.Graph()
    ordered.add_nodes_from(sorted(graph))
    ordered.add_edges_from(sorted(tuple(sorted(edge)) for edge in graph.edges))
    if len(graph) <= _SMALL:
        drawn: dict[int, Any] = nx.kamada_kawai_layout(ordered, pos=dict(enumerate(tree)))
        places = np.array([drawn[i] for i in range(len(drawn))])
    else:
        places = _relaxed(tree, np.array(ordered.edges))
    ends = np.array(ordered.edges)
    lengths = np.linalg.norm(places[ends[:, 0]] - places[ends[:, 1]], axis=1)
    return np.asarray(places / max(float(np.median(lengths)), 1e-9))


def _tree_layout(graph: nx.Graph) -> FloatMatrix:
    """Return positions on circles around the centre: the depth in the tree is the radius, leaves share the angle."""
    root = _centre(graph)
    children: dict[int, list[int]] = {root: []}
    order = [root]
    for node in order:
        for other in sorted(graph[node]):
            if other not in children:
                children[other] = []
                children[node].append(other)
                order.append(other)
    leaves = dict.fromkeys(order, 1)
    for node in reversed(order):
        leaves[node] = max(1, sum(leaves[child] for child in children[node]))
    start, depth = {root: 0.0}, {root: 0}
    places = np.zeros((len(order), 2))
    turn = 2 * np.pi / leaves[root]
    for node in order:
        angle = (start[node] + leaves[node] / 2) * turn
        places[node] = depth[node] * np.cos(angle), depth[node] * np.sin(angle)
        first = start[node]
        for child in children[node]:
            start[child], depth[child] = first, depth[node] + 1
            first += leaves[child]
    return places


def _centre(graph: nx.Graph) -> int:
    """Return a central node: the middle of a path between two nodes that are far apart."""
    end = _last(nx.single_source_shortest_path(graph, min(graph)))
    path = nx.single_source_shortest_path(graph, end)
    return int(path[_last(path)][len(path[_last(path)]) // 2])


def _last(paths: dict[int, list[int]]) -> int:
    return min(paths, key=lambda node: (-len(paths[node]), node))


def _relaxed(places: FloatMatrix, ends: npt.NDArray[np.int64]) -> FloatMatrix:
    """Relax a layout: edges pull their ends together, and near nodes repel each other."""
    from scipy.spatial import cKDTree

    places = places.copy()
    count = len(places)
    nearest = min(_NEAREST + 1, count)
    for turn in range(_ROUNDS):
        edges = places[ends[:, 1]] - places[ends[:, 0]]
        force = np.zeros_like(places)
        np.add.at(force, ends[:, 0], 0.25 * edges)
        np.add.at(force, ends[:, 1], -0.25 * edges)
        distances, neighbours = cKDTree(places).query(places, k=nearest)
        repulsion = places[:, None, :] - places[neighbours[:, 1:]]
        weight = 1.0 / np.maximum(distances[:, 1:], 0.05) ** 2
        force += 0.15 * (repulsion * weight[:, :, None]).sum(axis=1)
        length = np.linalg.norm(force, axis=1, keepdims=True)
        most = 1.0 * (1 - turn / _ROUNDS) + 0.02
        places += force * np.minimum(1.0, most / np.maximum(length, 1e-9))
    return places


def _fitted(places: FloatMatrix) -> FloatMatrix:
    places = places - places.min(axis=0)
    largest = float(places.max())
    return np.round(places * (SIZE / largest), 1) if largest > 0 else places
