"""Microseconds per step of mosaik's scheduler and of ours, on the same worlds.

Two families of worlds, all of simulators that do nothing but step:

* ``hub``: n time-based simulators round one hub, which reads all of them and is read by all of them one step
  later; per tick, which is one step of each;
* the shapes that mosaik itself measures: many entities to one, one to many, a cycle of two simulators, a loop
  within one instant, steps that are far apart, simulators that could step at the same time; per step of any
  simulator.

``parallel`` is a pair of simulators in this process, where no scheduler lets anything happen at the same time:
it measures what a step of the pair costs. ``parallel-remote`` has them in processes of their own, each with a
step that takes ``--sleep`` seconds; there the time is that of the clock on the wall, and the ideal is one sleep a
tick: without lazy stepping the first simulator goes on while the second takes what it gave.

Before anything is timed, each world runs with both schedulers and must give the same trace: for each simulator
the same sequence of times, inputs and limits. Then both run in turn, ``--repeat`` times; the figures are medians
of CPU time. What happens once (connecting, mosaik's analysis of the connections) is not timed; the numbers
of ticks are chosen such that a run takes about ``--seconds``.

    python tests/benchmarks/scheduler.py [--hub 2 5 10 20 50] [--shapes ...] [--repeat 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import mosaik
import mosaik_api_v3
from loguru import logger

from palaestrai_mosaik.simulation.scheduler import run_world

SCHEDULERS = ("mosaik", "direct")


class Part(mosaik_api_v3.Simulator):
    """Steps, and gives the same number for each entity.

    ``step_size``: the distance of its own steps, none if 0. ``loop``: how often it answers within an instant
    before it stays silent. ``sleep``: seconds of a step.
    """

    #: (sid, time, inputs, max_advance) of every step, in order; ``None``: steps are counted only
    trace: list[tuple[str, int, Any, int]] | None = None
    steps = 0

    def init(self, sid: str, time_resolution: float = 1.0, **params: Any) -> Any:
        self.sid = sid
        self.step_size: int = params.get("step_size", 1)
        self.loop: int = params.get("loop", 0)
        self.sleep: float = params.get("sleep", 0.0)
        self.answered, self.time, self.entities = 0, -1, 0
        self.meta["type"] = params.get("kind", "time-based")
        return self.meta

    def __init__(self) -> None:
        super().__init__({"models": {"E": {"public": True, "params": [], "attrs": ["in", "out"]}}})

    def create(self, num: int, model: str) -> list[dict[str, Any]]:
        first, self.entities = self.entities, self.entities + num
        return [{"eid": f"e{i}", "type": model} for i in range(first, self.entities)]

    def step(self, time: int, inputs: Any, max_advance: int) -> int | None:
        Part.steps += 1
        if Part.trace is not None:
            Part.trace.append((self.sid, time, inputs, max_advance))
        if self.sleep:
            sleep(self.sleep)
        self.answered = self.answered + 1 if time == self.time else 0
        self.time = time
        return time + self.step_size if self.step_size else None

    def get_data(self, outputs: Any) -> Any:
        if self.loop and self.answered >= self.loop:
            return {}
        return {eid: {"out": self.time} for eid in outputs}


@dataclass(frozen=True)
class Shape:
    """A world to measure."""

    #: called with a world, it starts and connects the simulators
    build: Callable[[mosaik.World], None]
    #: distance of the ticks
    step_size: int = 1
    #: what a figure is divided by: the ticks, or the steps of all simulators
    per_tick: bool = False
    remote: bool = False
    lazy_stepping: bool = True


def hub(n: int) -> Callable[[mosaik.World], None]:
    """n simulators, and one that reads them and is read by them one step later."""

    def build(world: mosaik.World) -> None:
        centre = world.start("Part", sim_id="hub").E()
        for i in range(n):
            part = world.start("Part", sim_id=f"part-{i}").E()
            connect(world, part, centre)
            connect(world, centre, part, time_shifted=1, initial_data=0)

    return build


def many_to_one(entities: int) -> Callable[[mosaik.World], None]:
    """Events of many entities go to one."""

    def build(world: mosaik.World) -> None:
        many = world.start("Part", sim_id="many", kind="event-based").E.create(entities)
        one = world.start("Part", sim_id="one", kind="event-based", step_size=0).E()
        for each in many:
            connect(world, each, one)
        world.set_initial_event("many")

    return build


def one_to_many(entities: int) -> Callable[[mosaik.World], None]:
    """Many entities read one."""

    def build(world: mosaik.World) -> None:
        one = world.start("Part", sim_id="one").E()
        for each in world.start("Part", sim_id="many").E.create(entities):
            connect(world, one, each)

    return build


def sequential_cycle(world: mosaik.World) -> None:
    """Two simulators that trigger each other, one of them with output for the next tick."""
    first = world.start("Part", sim_id="first", kind="event-based", step_size=0).E()
    second = world.start("Part", sim_id="second", kind="event-based", step_size=0).E()
    connect(world, first, second)
    connect(world, second, first, time_shifted=1)
    world.set_initial_event("first")


def same_time_loop(world: mosaik.World) -> None:
    """Two simulators that trigger each other five times within an instant."""
    with world.group():
        first = world.start("Part", sim_id="first", kind="event-based").E()
        second = world.start("Part", sim_id="second", kind="event-based", step_size=0, loop=4).E()
    connect(world, first, second)
    connect(world, second, first, weak=True)
    world.set_initial_event("first")


def pair(**params: Any) -> Callable[[mosaik.World], None]:
    """One simulator reads another."""

    def build(world: mosaik.World) -> None:
        first = world.start("Part", sim_id="first", **params).E()
        connect(world, first, world.start("Part", sim_id="second", **params).E())

    return build


def connect(world: mosaik.World, source: Any, target: Any, **how: Any) -> None:
    """Connect ``out`` to ``in``."""
    if "initial_data" in how:
        how["initial_data"] = {"out": how["initial_data"]}
    world.connect(source, target, ("out", "in"), **how)


def shapes(entities: int, seconds: float) -> dict[str, Shape]:
    """Return mosaik's shapes by their names."""
    return {
        "many-to-one": Shape(many_to_one(entities)),
        "one-to-many": Shape(one_to_many(entities)),
        "sequential-cycle": Shape(sequential_cycle),
        "same-time-loop": Shape(same_time_loop),
        "sparse-time": Shape(pair(step_size=10_000), step_size=10_000),
        "parallel": Shape(pair()),
        "parallel-remote": Shape(pair(sleep=seconds), per_tick=True, remote=True, lazy_stepping=False),
    }


@contextlib.contextmanager
def built(shape: Shape) -> Iterator[mosaik.World]:
    """Yield a world that is ready to run."""
    start: dict[str, Any] = (
        {"cmd": f"%(python)s {Path(__file__).resolve()} --serve %(addr)s", "posix": True}
        if shape.remote
        else {"python": f"{__name__}:Part"}
    )
    world = mosaik.World({"Part": start}, skip_greetings=True, configure_logging=False)
    try:
        shape.build(world)
        # (mosaik 3.5 does this while it connects)
        if hasattr(world, "compile"):
            world.compile(use_cache=True)
        yield world
    finally:
        if not world.loop.is_closed():
            world.shutdown()


def run(shape: Shape, scheduler: str, ticks: int) -> float:
    """Run a number of ticks; return the seconds that they took."""
    clock = perf_counter if shape.remote else process_time
    with built(shape) as world:
        Part.steps = 0
        started = clock()
        run_world(
            world,
            until=ticks * shape.step_size,
            scheduler=scheduler,
            print_progress=False,
            lazy_stepping=shape.lazy_stepping,
        )
        return clock() - started


def traced(shape: Shape, scheduler: str, ticks: int) -> dict[str, list[Any]]:
    """Return what each simulator was called with."""
    Part.trace = []
    try:
        run(shape, scheduler, ticks)
        found: dict[str, list[Any]] = {}
        for sid, *call in Part.trace:
            found.setdefault(sid, []).append(call)
        return found
    finally:
        Part.trace = None


def enough(shape: Shape, scheduler: str, seconds: float) -> int:
    """Return a number of ticks that takes about this long, beside what happens once."""
    few, ticks = 3, 6
    once = run(shape, scheduler, few)
    while (more := run(shape, scheduler, ticks) - once) < seconds / 4:
        ticks *= 4
    return max(few, int((ticks - few) * seconds / more)) if more > 0 else few


def measure(shape: Shape, seconds: float, repeat: int) -> dict[str, list[float]]:
    """Return microseconds per step (or tick) of each scheduler, one per round."""
    if not shape.remote:
        theirs, ours = (traced(shape, scheduler, 4) for scheduler in SCHEDULERS)
        assert theirs == ours, "the schedulers do not give the same trace"
        assert theirs
    ticks = {scheduler: enough(shape, scheduler, seconds) for scheduler in SCHEDULERS}
    found: dict[str, list[float]] = {scheduler: [] for scheduler in SCHEDULERS}
    for _ in range(repeat):
        for scheduler in SCHEDULERS:
            taken = run(shape, scheduler, ticks[scheduler])
            found[scheduler].append(taken * 1e6 / (ticks[scheduler] if shape.per_tick else Part.steps))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--hub", type=int, nargs="*", default=[2, 5, 10, 20, 50], metavar="N")
    parser.add_argument("--shapes", nargs="*", metavar="SHAPE", help="some of mosaik's shapes (all)")
    parser.add_argument("--entities", type=int, default=10_000, help="of many-to-one and one-to-many (10000)")
    parser.add_argument(
        "--sleep", type=float, default=0.05, help="seconds of a step of parallel-remote (0.05)"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long a run takes (1)")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds to this file")
    arguments = parser.parse_args()
    known = shapes(arguments.entities, arguments.sleep)
    chosen = list(known) if arguments.shapes is None else arguments.shapes
    if unknown := [name for name in chosen if name not in known]:
        parser.error(f"there is no shape {unknown[0]!r}; there are {', '.join(known)}")
    cases = {f"hub, n = {n}": Shape(hub(n), per_tick=True) for n in arguments.hub}
    cases |= {name: known[name] for name in chosen}

    logger.disable("mosaik")
    warnings.simplefilter("ignore")
    rounds: dict[str, dict[str, list[float]]] = {}
    print("| world | unit | mosaik | ours | ratio |\n|---|---|---|---|---|")
    for name, shape in cases.items():
        rounds[name] = measure(shape, arguments.seconds, arguments.repeat)
        theirs, ours = (statistics.median(rounds[name][scheduler]) for scheduler in SCHEDULERS)
        ratio = statistics.median(
            t / o for t, o in zip(rounds[name]["mosaik"], rounds[name]["direct"], strict=True)
        )
        unit = "us/tick" if shape.per_tick else "us/step"
        print(f"| {name} | {unit} | {theirs:,.1f} | {ours:,.1f} | {ratio:.1f} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rounds, indent=1), encoding="utf-8")


if __name__ == "__main__":
    if "--serve" in sys.argv:
        sys.argv.remove("--serve")
        sys.exit(mosaik_api_v3.start_simulation(Part(), configure_logging=False))
    else:
        main()
