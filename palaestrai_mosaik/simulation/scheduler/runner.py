"""One simulator as the schedule sees it, and its rank in the order of steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import isgeneratorfunction
from itertools import chain
from typing import Any, ParamSpec, TypeVar

import networkx
from mosaik.adapters import V2ToV1Adapter, V3ToV2Adapter
from mosaik.proxies import LocalProxy

from .inputs import Inputs, OutputCache, effective


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


#: mark of a generator function that requests nothing from mosaik
_ONLY_QUESTIONS = "only_questions"

_P = ParamSpec("_P")
_R = TypeVar("_R")


def remote_simulators(runners: Sequence[Any]) -> list[str]:
    """Return the ids of the simulators in other processes, of mosaik's ``runners`` (``SimRunner``)."""
    return [runner.sid for runner in runners if local_simulator(runner._proxy) is None]


def local_simulator(proxy: Any) -> tuple[Any, bool, bool] | None:
    """Return the simulator behind mosaik's ``proxy``, if it is in this process and can be called directly.

    The other two results are whether its ``step`` takes ``max_advance``, and whether it has ``setup_done``:
    mosaik's adapters for older versions of its API lack them. ``None`` for any other proxy.
    """
    advance = setup = True
    while type(proxy) in (V3ToV2Adapter, V2ToV1Adapter):
        advance = advance and type(proxy) is not V3ToV2Adapter
        setup = setup and type(proxy) is not V2ToV1Adapter
        proxy = proxy._out
    return (proxy.sim, advance, setup) if type(proxy) is LocalProxy else None


class Runner:
    """The schedule's data about one simulator, derived from mosaik's ``SimRunner`` (``origin``).

    In four parts: the calls of the simulator, the times of its steps, its inputs, and its outputs.
    """

    def __init__(self, origin: Any, ranks: tuple[int, ...]):
        local = local_simulator(origin._proxy)
        if local is None:
            raise ValueError("a simulator of this world is in another process")
        self.origin = origin
        self.simulator, self.takes_max_advance, self.has_setup_done = local
        #: generators may request something from mosaik
        self.step_is_generator = isgeneratorfunction(self.simulator.step)
        self.get_data_is_generator = bool(origin.output_request) and isgeneratorfunction(
            self.simulator.get_data
        )

        self.ranks = ranks
        #: zeros, one for each tier of its times after the first
        self.tiers = (0,) * (len(origin.last_step) - 1)
        #: a heap of the times (tuples of tiers) at which it will step
        self.pending: list[tuple[int, ...]] = []
        #: the tiered time of its current step, if any, and the first tier of its last one
        self.moment: tuple[int, ...] | None = None
        self.last = -1
        self.is_time_based = origin.type == "time-based"
        #: the simulators that can trigger it, and the shortest time until then
        self.ancestors: list[tuple[Runner, int]] = []

        #: collects its inputs for a time
        self.inputs: Callable[[int], Inputs]

        self.request = origin.output_request
        #: the requested attributes of each entity
        self.requested = {eid: frozenset(attrs) for eid, attrs in self.request.items()}
        #: processes its outputs
        self.pass_on: Callable[[Runner, Any], None]
        #: its outputs, and whether others fetch them
        self.cached = origin.outputs is not None
        self.outputs = OutputCache(origin.outputs if self.cached else {})
        #: for each target queue and delay, the outputs to send: entity, attribute, name of the source, entity and
        #: attribute of the target, transform
        self.pushes: list[tuple[list[Any], int, list[tuple[str, str, str, str, str, Any]]]] = []
        #: for each triggered simulator and delay (in ticks, if neither is in a group), the entities and
        #: attributes that trigger it
        self.triggers: list[tuple[Runner, Any, list[tuple[str, str]]]] = []

    @property
    def asks(self) -> bool:
        """Whether it may request something from mosaik: the objects of mosaik must be up to date then."""
        step_asks = self.step_is_generator and not getattr(self.simulator.step, _ONLY_QUESTIONS, False)
        return self.get_data_is_generator or step_asks

    @property
    def queue(self) -> list[Any]:
        """The inputs that were sent to it, in order: (time, number, source, entity, attribute, value).

        It is mosaik's heap; a sorted list is a heap, too.
        """
        queue: list[Any] = self.origin.timed_input_buffer.input_queue
        return queue

    def connect(self, runner_of: Mapping[str, Runner]) -> None:
        """Set what depends on other simulators, which ``runner_of`` has by mosaik's id."""
        origin = self.origin
        self.ancestors = [
            (runner_of[ancestor.sid], min(delay.tiers[0] for delay in delays.durations))
            for ancestor, delays in origin.triggering_ancestors.items()
        ]
        pushes: dict[tuple[Runner, int], list[Any]] = {}
        for (eid, attr), descriptions in origin.output_to_push.items():
            for connection in descriptions:
                wire = (
                    eid,
                    attr,
                    f"{origin.sid}.{eid}",
                    *connection.dest_port,
                    effective(connection.transform),
                )
                target = runner_of[connection.dest_sim.sid], connection.delay.tiers[0]
                pushes.setdefault(target, []).append(wire)
        self.pushes = [(target.queue, delay, wires) for (target, delay), wires in pushes.items()]
        triggers: dict[tuple[Runner, Any], list[tuple[str, str]]] = {}
        for port, triggered in origin.triggers.items():
            for target, delay in triggered:
                triggers.setdefault((runner_of[target.sid], delay), []).append(port)
        self.triggers = [
            (target, delay.tiers[0] if self.tiers == target.tiers == () else delay, ports)
            for (target, delay), ports in triggers.items()
        ]


async def answered(asking: Generator[Any, Any, Any]) -> Any:
    """Run a simulator's generator that requests something, and return its result."""
    try:
        request: Awaitable[Any] = next(asking)
        while True:
            request = asking.send(await request)
    except StopIteration as stop:
        return stop.value


def only_questions(step: Callable[_P, _R]) -> Callable[_P, _R]:
    """Mark a simulator's generator function that awaits only :class:`Question`."""
    setattr(step, _ONLY_QUESTIONS, True)
    return step


class Question:
    """A request to the code that drives the schedule, awaited by a simulator's generator function.

    :meth:`.Schedule.advance` returns it, and its next call passes the answer.
    """

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)
