"""The order in which the simulators of a world step: which of those that may step goes first.

mosaik lets a simulator step as soon as nobody can influence this step any more, and leaves it to asyncio who
of several goes first. Here everyone has a place: a step comes before another if its tiered time is earlier,
and among equal times if its simulator has the lower *rank*. The rank follows the connections along which data
arrive within the same time; simulators that these do not order keep the order in which they were started.

With this order, whoever is first may step: all conditions of mosaik's scheduler hold for him (see
``docs/scheduler.md`` for the argument). This is why an executor that follows it needs no event loop, no
progress and nobody who waits.

Weak connections make simulators of a group repeat their steps within one time; times have a second tier then
(and one more for each nested group). Simulators of a group that weak connections join form a *loop*: it has one
rank in the world, and its members have ranks among each other, within each repetition. A simulator's place is
therefore its rank, the number of the repetition, its rank in the loop, and so forth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import networkx


class NoOrder(Exception):
    """The simulators of a world wait for each other within one time, or may do so."""


@dataclass(frozen=True)
class _Edge:
    """Data, or a trigger, from one simulator (by its number) to another, and how long they take."""

    source: int
    target: int
    tiers: tuple[int, ...]
    #: so many tiers of the time at the source count at the target, too: their groups in common, and the world
    shared: int


def ranks(runners: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the ranks of mosaik's ``runners`` (``SimRunner``, in the order of their start), outermost first.

    One rank for a simulator that is in no loop; two for one that is; one more for every loop in a loop.

    Raises :class:`NoOrder` if simulators wait for each other within one time in a way that no loop resolves.
    """
    found: dict[int, tuple[int, ...]] = {}
    _rank(list(range(len(runners))), list(_edges(runners)), 0, (), found)
    return [found[i] for i in range(len(runners))]


def _edges(runners: Sequence[Any]) -> Iterator[_Edge]:
    number = {id(runner): i for i, runner in enumerate(runners)}
    for runner in runners:
        here = number[id(runner)]
        for source, delays in runner.input_delays.items():
            for delay in delays.durations:
                yield _Edge(number[id(source)], here, delay.tiers, delay.cutoff)
        # mosaik keeps the least delays of data only
        for target, delay in dict.fromkeys(chain.from_iterable(runner.triggers.values())):
            yield _Edge(here, number[id(target)], delay.tiers, delay.cutoff)


def _rank(
    members: Sequence[int],
    edges: Sequence[_Edge],
    tier: int,
    before: tuple[int, ...],
    found: dict[int, tuple[int, ...]],
) -> None:
    """Rank ``members``, which share the tiers of their times up to ``tier``; ``edges`` are all among them."""
    units = _units(members, edges, tier)
    unit_of = {member: u for u, (unit, _) in enumerate(units) for member in unit}
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(range(len(units)))
    for edge in edges:
        ends = unit_of[edge.source], unit_of[edge.target]
        if ends[0] != ends[1] and not any(edge.tiers[: tier + 1]):
            graph.add_edge(*ends)
    try:
        # a unit is as old as its first member
        ordered = list(networkx.lexicographical_topological_sort(graph, key=lambda u: units[u][0][0]))
    except networkx.NetworkXUnfeasible as error:
        raise NoOrder from error
    for rank, u in enumerate(ordered):
        unit, inner = units[u]
        if _repeat(inner, tier):
            _rank(unit, inner, tier + 1, (*before, rank), found)
        else:
            found[unit[0]] = (*before, rank)


def _units(members: Sequence[int], edges: Sequence[_Edge], tier: int) -> list[tuple[list[int], list[_Edge]]]:
    """Return the members by loops, each in the order of start, with the edges inside; who is in none is alone."""
    # who shares the next tier shares a group
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
    """Return whether a weak connection among ``edges`` counts up a tier after ``tier``."""
    return any(any(edge.tiers[tier + 1 : edge.shared]) for edge in edges)
