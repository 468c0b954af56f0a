"""Executes a :class:`~simulation.scheduler.worlds.Scenario` and returns what happened, in several orders of mosaik's too."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import random
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import mosaik
import mosaik.scheduler
from mosaik.adapters import Adapter
from mosaik.exceptions import NonSerializableOutputsError
from simulation.scheduler.worlds import Call, Scenario, build

from palaestrai_mosaik.simulation.scheduler import GeneralSchedule, run_world
from palaestrai_mosaik.simulation.scheduler.inputs import accumulate
from palaestrai_mosaik.simulation.scheduler.versions import runners

WAITING = "wait for each other"


class StuckError(Exception):
    """Nothing can happen any more: all simulators wait for each other."""


class WatchedLoop(asyncio.SelectorEventLoop):
    """Asks what to do where an event loop with nobody outside would wait forever.

    By default it raises :class:`StuckError`.
    """

    def idle(self) -> None:
        raise StuckError(f"all simulators {WAITING}")

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
    """Run the world with mosaik's own scheduler, in the order that asyncio happens to give, mended a little."""
    with _mended(world), _choosing_if_idle(world, scenario, lambda: False, ends=True):
        world.run(scenario.until, print_progress=False, lazy_stepping=scenario.lazy)


@contextlib.contextmanager
def _mended(world: mosaik.World) -> Iterator[None]:
    """Mend what of mosaik's memory of outputs ours does differently (shown in :mod:`scheduler.test_stories`).

    It never forgets one; those that are written last come last; and initial data do not hide each other.
    """

    def cache(sim: Any, data: Any, time: int) -> None:
        if sim.outputs is not None:
            sim.outputs.pop(time, None)
            sim.outputs[time] = data

    for runner in runners(world._async_world):
        accumulate(runner.outputs or {})
    with (
        patch("mosaik.scheduler.prune_dataflow_cache", lambda world: None),
        patch("mosaik.scheduler.cache_output_data", cache),
    ):
        yield


@contextlib.contextmanager
def _choosing_if_idle(
    world: mosaik.World, scenario: Scenario, go_on: Callable[[], bool], *, ends: bool
) -> Iterator[None]:
    """Where mosaik can do nothing else: let ``go_on`` wake somebody, or end what mosaik forgets to (``ends``).

    A simulator that is triggered for a time after the end of the world waits for it for ever.
    """

    def idle() -> None:
        if go_on():
            return
        there = runners(world._async_world)
        forgotten = [runner for runner in there if not runner.task.done()]
        if not ends or not forgotten or any(runner.progress.time.time < scenario.until for runner in there):
            raise StuckError(f"{[runner.sid for runner in forgotten]} {WAITING}")
        for runner in forgotten:
            runner.newer_step.set()

    world.loop.idle = idle
    try:
        yield
    finally:
        del world.loop.idle


def execute(
    scenario: Scenario, run: Runner = by_mosaik, loop: asyncio.AbstractEventLoop | None = None
) -> Trace:
    """Build the world, run it, shut it down; raises only what building it raises."""
    loop = loop or WatchedLoop()
    trace = Trace()
    caught: list[str] = []
    thread = threading.get_ident()

    def warn(message: Any, category: Any = UserWarning, *_: Any, **__: Any) -> None:
        """Record a warning of this thread: warnings.catch_warnings would lose some to those of other threads."""
        if threading.get_ident() == thread and category is UserWarning:
            caught.append(_text(message))

    with patch.object(warnings, "warn", warn):
        try:
            world = build(scenario, trace.calls, asyncio_loop=loop)
        except BaseException:
            loop.close()
            raise
        caught.clear()
        try:
            run(world, scenario)
        except Exception as error:
            if isinstance(error, NonSerializableOutputsError):
                # in this process nothing is serialized: mosaik hides the simulator's own TypeError behind it
                error = error.__context__
            trace.error = (type(error).__name__, str(error))
        trace.warnings = [*caught]
        trace.progress = world._async_world.sim_progress
        _shut_down(world, trace)
    if scenario.debug:
        graph = world.execution_graph
        trace.nodes = {_node(node): inputs for node, inputs in graph.nodes(data="inputs")}
        trace.edges = {(_node(one), _node(other)) for one, other in graph.edges}
    return trace


def _text(warning: Warning | str) -> str:
    """Return a warning's text. (mosaik has forgotten to put in who needs a missing value.)"""
    return re.sub(r"required by simulator \S+\. ", "required by simulator {sim.sid}. ", str(warning))


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


def by_mosaik_choosing(choose: Choice, *, mended: bool = True) -> Runner:
    """Return mosaik's scheduler where ``choose`` picks the next of all that may step, if mosaik can do nothing else.

    In one process, what follows from there to the simulator's next wait is not interrupted. So these are all
    orders that mosaik can take. ``mended``: as in :func:`by_mosaik`; else it is mosaik's as it is.
    """
    original = mosaik.scheduler.wait_for_dependencies

    def run(world: mosaik.World, scenario: Scenario) -> None:
        waiting: dict[Any, asyncio.Future[None]] = {}

        async def wait_for_dependencies(sim: Any, lazy_stepping: bool) -> None:
            await original(sim, lazy_stepping)
            waiting[sim] = world.loop.create_future()
            await waiting[sim]

        def go_on() -> bool:
            sim = choose(list(waiting))
            if sim is not None:
                waiting.pop(sim).set_result(None)
            elif waiting:
                raise StuckError(f"{[sim.sid for sim in waiting]} may step")
            return sim is not None

        with (
            patch("mosaik.scheduler.wait_for_dependencies", wait_for_dependencies),
            _mended(world) if mended else contextlib.nullcontext(),
            _choosing_if_idle(world, scenario, go_on, ends=mended),
        ):
            world.run(scenario.until, print_progress=False, lazy_stepping=scenario.lazy)

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


def first_name(waiting: list[Any]) -> Any:
    """Choose by the alphabet."""
    return min(waiting, key=lambda sim: sim.sid, default=None)


def by_mosaik_at_random(seed: int) -> Runner:
    """Return mosaik's scheduler where chance decides who of all that may step does."""
    chance = random.Random(seed)
    return by_mosaik_choosing(lambda waiting: chance.choice(waiting) if waiting else None)


# -- ours beside mosaik's


#: what ours forgets as soon as possible in these tests, while it keeps more by itself
SOON = 1
OURS = "palaestrai_mosaik.simulation.scheduler"


def by_direct(world: mosaik.World, scenario: Scenario) -> None:
    """Run the world with our schedule."""
    with patch(f"{OURS}.inputs.KEPT", SOON):
        run_world(world, scenario.until, print_progress=False, lazy_stepping=scenario.lazy)


def by_general(world: mosaik.World, scenario: Scenario) -> None:
    """Run the world with what runs worlds of which some simulators are in other processes."""

    def schedule(world: Any, until: int, *, lazy_stepping: bool = True) -> GeneralSchedule:
        return GeneralSchedule(world, until, lazy_stepping=lazy_stepping)

    # (the package has a function named as its module ``run``)
    module = importlib.import_module(f"{OURS}.run")
    with patch.object(module, "schedule", schedule), patch(f"{OURS}.general.KEPT", SOON):
        run_world(world, scenario.until, print_progress=False, lazy_stepping=scenario.lazy)


class Apart(Adapter):
    """Stands for a simulator in another process: it takes its time to answer."""

    def __init__(self, out: Any, turns: Callable[[], int]):
        super().__init__(out)
        self.turns = turns

    async def send(self, request: Any) -> Any:
        for _ in range(self.turns()):
            await asyncio.sleep(0)
        return await self._out.send(request)


def apart(run: Runner, seed: int) -> Runner:
    """Return a runner that runs worlds as ``run``, with some of the simulators in other processes, as it were."""
    chance = random.Random(seed)

    def run_apart(world: mosaik.World, scenario: Scenario) -> None:
        for runner in runners(world._async_world):
            if chance.random() < 0.6:
                runner._proxy = Apart(runner._proxy, lambda: chance.randrange(6))
        run(world, scenario)

    return run_apart


def slow(run: Runner, turns: dict[str, int]) -> Runner:
    """Return a runner that runs worlds as ``run``, where some simulators take so many turns of the event loop."""

    def run_slow(world: mosaik.World, scenario: Scenario) -> None:
        for runner in runners(world._async_world):
            if runner.sid in turns:
                runner._proxy = Apart(runner._proxy, lambda sid=runner.sid: turns[sid])
        run(world, scenario)

    return run_slow


#: what both end with where all simulators wait for each other, which mosaik does for ever
STANDSTILL = ("SimulationError", "the world came to a standstill")


def _ended_with(trace: Trace) -> tuple[str, str] | None:
    if trace.error is None:
        return None
    kind, message = trace.error
    if message.startswith(STANDSTILL[1]) or (kind == StuckError.__name__ and message.endswith(WAITING)):
        return STANDSTILL
    return kind, message


def in_the_order_of(ours: Trace, scenario: Scenario) -> Trace:
    """Return what mosaik does if its simulators step in the order of ours.

    Where ours ended with an error before a step was made, somebody is next whom the order does not name; mosaik
    may choose any.
    """
    found = execute(scenario, by_mosaik_in(ours.order))
    if ours.error is not None and _ended_with(found) != _ended_with(ours):
        for sim in scenario.sims:
            other = execute(scenario, by_mosaik_in([*ours.order, sim.name]))
            if other.error == ours.error:
                return other
    return found


def differences(ours: Trace, other: Trace, scenario: Scenario) -> list[str]:
    """Return in what two executions differ that made their steps in one order."""
    if ours.error != other.error:
        return [
            f"ours ended with {ours.error}",
            f"mosaik's with {other.error}",
            *_first_difference(ours, other),
        ]
    found = _first_difference(ours, other)
    if found or ours.error:
        return found
    if ours.warnings != other.warnings:
        found += [f"ours warned of {ours.warnings}", f"mosaik's of {other.warnings}"]
    if ours.order and ours.progress != other.progress:
        found.append(f"our progress is {ours.progress}, mosaik's {other.progress}")
    if (ours.nodes, ours.edges) != (other.nodes, other.edges):
        found += [f"our graph is {ours.nodes} {ours.edges}", f"mosaik's {other.nodes} {other.edges}"]
    return found


def _first_difference(ours: Trace, other: Trace) -> list[str]:
    """Return the first call that differs, the order of keys and what mosaik answered included.

    How many simulators are set up beside one that fails, and are finalized after an error, is left open.
    """
    loose = ("setup_done", "finalize") if ours.error or other.error else ()
    one, two = ([repr(call) for call in trace.calls if call.method not in loose] for trace in (ours, other))
    for number, (mine, its) in enumerate(itertools.zip_longest(one, two)):
        if mine != its:
            return [f"call {number}: ours {mine}", f"call {number}: mosaik's {its}"]
    return []
