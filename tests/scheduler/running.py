"""Executes a :class:`~scheduler.worlds.Scenario` and returns what happened, in several orders of mosaik's too."""

from __future__ import annotations

import asyncio
import contextlib
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import mosaik
from scheduler.worlds import Call, Scenario, build


class StuckError(Exception):
    """Nothing can happen any more: all simulators wait for each other."""


class WatchedLoop(asyncio.SelectorEventLoop):
    """Asks what to do where an event loop with nobody outside would wait for ever.

    By default it raises :class:`StuckError`.
    """

    def idle(self) -> None:
        raise StuckError("all simulators wait for each other")

    def _run_once(self) -> None:
        if not self._ready and not self._scheduled:  # type: ignore[attr-defined]
            self.idle()
        super()._run_once()  # type: ignore[misc]


@dataclass
class Trace:
    """What happened in one execution."""

    calls: list[Call] = field(default_factory=list)
    #: type and message
    error: tuple[str, str] | None = None
    warnings: list[str] = field(default_factory=list)
    #: of a world with ``debug``: the steps with their inputs, and what led to what
    nodes: dict[str, Any] = field(default_factory=dict)
    edges: set[tuple[str, str]] = field(default_factory=set)
    progress: float = 0.0

    def of(self, sid: str) -> list[Call]:
        return [call for call in self.calls if call.sid == sid]

    @property
    def order(self) -> list[str]:
        """Who stepped, one after the other."""
        return [call.sid for call in self.calls if call.method == "step"]

    def lines(self) -> list[str]:
        return [
            f"{call.sid}.{call.method}{call.arguments!r} -> {call.result!r} {call.answers or ''}".rstrip()
            for call in self.calls
        ] + ([f"{self.error[0]}: {self.error[1]}"] if self.error else [])


Runner = Callable[[mosaik.World, Scenario], None]


def by_mosaik(world: mosaik.World, scenario: Scenario) -> None:
    world.run(scenario.until, print_progress=False, lazy_stepping=scenario.lazy)


def execute(scenario: Scenario, run: Runner = by_mosaik, loop: asyncio.AbstractEventLoop | None = None) -> Trace:
    """Build the world, run it, shut it down; raises only what building it raises."""
    loop = loop or WatchedLoop()
    trace = Trace()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            world = build(scenario, trace.calls, asyncio_loop=loop)
        except BaseException:
            loop.close()
            raise
        caught.clear()
        try:
            run(world, scenario)
        except Exception as error:
            trace.error = (type(error).__name__, str(error))
        trace.warnings = [str(one.message) for one in caught if one.category is UserWarning]
        trace.progress = world._async_world.sim_progress
        _shut_down(world, trace)
    if scenario.debug:
        graph = world.execution_graph
        trace.nodes = {_node(node): inputs for node, inputs in graph.nodes(data="inputs")}
        trace.edges = {(_node(one), _node(other)) for one, other in graph.edges}
    return trace


def _node(node: tuple[str, Any]) -> str:
    return f"{node[0]}@{node[1]}"


def _shut_down(world: mosaik.World, trace: Trace) -> None:
    """Shut down what :meth:`World.run` leaves after an error, first the tasks that still wait."""
    loop = world.loop
    if loop.is_closed():
        return
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
        for task in tasks:
            if not task.cancelled():
                task.exception()
    with contextlib.suppress(Exception):
        world.shutdown()
    world._async_world._shutdown_performed = True  # also where a simulator fails in its finalize
    loop.close()


#: chooses one of the simulators that may step now, or none
Choice = Callable[[list[Any]], Any]


@contextlib.contextmanager
def _choosing(loop: WatchedLoop, choose: Choice) -> Iterator[None]:
    """Let one of the simulators step that may, whenever mosaik can do nothing else."""
    import mosaik.scheduler as module

    waiting: dict[Any, asyncio.Future[None]] = {}
    original = module.wait_for_dependencies

    async def wait_for_dependencies(sim: Any, lazy_stepping: bool) -> None:
        await original(sim, lazy_stepping)
        waiting[sim] = loop.create_future()
        # what follows, until the simulator waits again, is not interrupted
        await waiting[sim]

    def idle() -> None:
        sim = choose(list(waiting))
        if sim is None:
            raise StuckError(f"{[sim.sid for sim in waiting]} may step")
        waiting.pop(sim).set_result(None)

    module.wait_for_dependencies, loop.idle = wait_for_dependencies, idle  # type: ignore[method-assign]
    try:
        yield
    finally:
        module.wait_for_dependencies = original
        del loop.idle


def by_mosaik_choosing(choose: Choice) -> Runner:
    """Return mosaik's scheduler where ``choose`` picks the next of all that may step."""

    def run(world: mosaik.World, scenario: Scenario) -> None:
        with _choosing(world.loop, choose):
            by_mosaik(world, scenario)

    return run


def by_mosaik_in(order: list[str]) -> Runner:
    """Return mosaik's scheduler where simulators step in this order.

    It gets stuck (:class:`StuckError`) where mosaik would not let the next one step, and where it would go on at
    the end.
    """
    turns = iter(order)

    def choose(waiting: list[Any]) -> Any:
        sid = next(turns, None)
        return next((sim for sim in waiting if sim.sid == sid), None)

    return by_mosaik_choosing(choose)


def by_mosaik_at_random(seed: int) -> Runner:
    """Return mosaik's scheduler where chance decides who of all that may step does."""
    chance = random.Random(seed)
    return by_mosaik_choosing(lambda waiting: chance.choice(waiting) if waiting else None)
