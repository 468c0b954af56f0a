"""The order in which the simulators of a world step.

mosaik lets a simulator step as soon as no other can influence this step any more, and leaves the choice between
several to asyncio. Here every step has a position: it precedes another if its tiered time is earlier,
and among equal times if its simulator has the lower *rank*. The rank follows the connections along which data
arrive within the same time; simulators that these do not order keep the order in which they were started.

With this order, the first simulator may always step: it fulfils all conditions of mosaik's scheduler (see
``docs/scheduler.md`` for the argument). An executor that follows it therefore needs no event loop, no
progress and no waiting.

Weak connections make simulators of a group repeat their steps within one time; times have a second tier then
(and one more for each nested group). Simulators of a group that are joined by weak connections form a *loop*: it
has one rank in the world, and its members have ranks among each other, within each repetition. The position of a
step therefore consists of the simulator's rank, the number of the repetition, its rank in the loop, and so forth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import networkx


class NoOrder(Exception):
    """The simulators of a world wait for each other within one time, or might do so."""


@dataclass(frozen=True)
class _Edge:
    """A flow of data or a trigger from one simulator (by number) to another, with its delay."""

    source: int
    target: int
    tiers: tuple[int, ...]
    #: number of leading tiers that source and target share: the world, and their common groups
    shared: int


def ranks(runners: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the ranks of mosaik's ``runners`` (``SimRunner``, in the order of their start), outermost first.

    A simulator outside all loops has one rank; one in a loop has two; and one more for every loop in a loop.

    Raises :class:`NoOrder` if simulators wait for each other within one time in a way that no loop resolves.
    """
    ranks_of: dict[int, tuple[int, ...]] = {}
    _rank(list(range(len(runners))), list(_edges(runners)), 0, (), ranks_of)
    return [ranks_of[i] for i in range(len(runners))]


def _edges(runners: Sequence[Any]) -> Iterator[_Edge]:
    number = {id(runner): i for i, runner in enumerate(runners)}
    for runner in runners:
        here = number[id(runner)]
        for source, delays in runner.input_delays.items():
            for delay in delays.durations:
                yield _Edge(number[id(source)], here, delay.tiers, delay.cutoff)
        # mosaik keeps only the shortest delays of data
        for target, delay in dict.fromkeys(chain.from_iterable(runner.triggers.values())):
            yield _Edge(here, number[id(target)], delay.tiers, delay.cutoff)


def _rank(
    members: Sequence[int],
    edges: Sequence[_Edge],
    tier: int,
    before: tuple[int, ...],
    ranks_of: dict[int, tuple[int, ...]],
) -> None:
    """Rank ``members``, which share the tiers of their times up to ``tier``, by the ``edges`` between them."""
    units = _units(members, edges, tier)
    unit_of = {member: u for u, (unit, _) in enumerate(units) for member in unit}
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(range(len(units)))
    for edge in edges:
        ends = unit_of[edge.source], unit_of[edge.target]
        if ends[0] != ends[1] and not any(edge.tiers[: tier + 1]):
            graph.add_edge(*ends)
    try:
        # the position of a unit is that of its first member
        ordered = list(networkx.lexicographical_topological_sort(graph, key=lambda u: units[u][0][0]))
    except networkx.NetworkXUnfeasible as error:
        raise NoOrder from error
    for rank, u in enumerate(ordered):
        unit, inner = units[u]
        if _repeat(inner, tier):
            _rank(unit, inner, tier + 1, (*before, rank), ranks_of)
        else:
            ranks_of[unit[0]] = (*before, rank)


def _units(members: Sequence[int], edges: Sequence[_Edge], tier: int) -> list[tuple[list[int], list[_Edge]]]:
    """Group members by loops, each in the order of start and with its inner edges; others form units of one."""
    # simulators that share the next tier are in one group
    close = [edge for edge in edges if edge.shared > tier + 1]
    joined: networkx.Graph[int] = networkx.Graph()
    joined.add_nodes_from(members)
    joined.add_edges_from((edge.source, edge.target) for edge in close)
    units = []
    for component in networkx.connected_components(joined):
        inside = [edge for edge in close if edge.source in component]
        if _repeat(inside, tier):
            units.append((sorted(component), inside))
        else:
            units += [([member], []) for member in component]
    return sorted(units, key=lambda unit: unit[0])


def _repeat(edges: Iterable[_Edge], tier: int) -> bool:
    """Return whether a weak connection among ``edges`` increments a tier after ``tier``."""
    return any(any(edge.tiers[tier + 1 : edge.shared]) for edge in edges)
