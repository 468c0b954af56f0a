"""The flagship: a year of voltage control under attack on 1-MV-rural--2-sw, two agents.

Phase ``both`` of scenarios/rural_year.yml: the defender integrates the voltage error with
70 % of the inverters, the attacker drives it away, greedily, with the others; 99 buses,
102 inverters and 90 storages, 15-minute steps. In one process, in turn, ``--repeat``
times:

* ``document``: the run document through the whole package, with and without the store;
* ``bare mosaik``: the same simulators, entities and connections, but empty: ``step`` and
  ``get_data`` do nothing. No world on mosaik can be faster;
* ``bare loop``: the same environment, reward, muscles and objectives in a Python loop;
* ``bare solver``: the power flows alone, on the injections of that loop.

Time is CPU time. ``start`` is what is spent before the first step (reading the document,
loading the grid, checking the solver against pandapower, opening the store), ``steps``
is the rest, to the end of the run and the last byte of the store, and ``ms/step`` is
that per step: the median and the least of the repetitions. Before anything is timed, the
loop's sum of both agents' objectives must be that of the document.

The second table says where the time of a document's steps goes. It is measured: at every
entry into a part, and at every return, the clock is read and the time since the last
reading is booked to the part that was running. Reading takes time, too, a dozen times a
step, so that the sum is some hundredths of a millisecond too high. The parts:

* ``mosaik``: the scheduler, asyncio, building and ending the world;
* ``power flow``: writing the injections, solving, reading voltages and loadings;
* ``environment``: profiles, inverters, storages, their mosaik shells, and the reward;
* ``agents``: coordinator, muscles, objectives, memories, the vectors between them;
* ``store``: recording, compressing and writing every step of agents and environment.

    OMP_NUM_THREADS=1 python tests/benchmarks/flagship.py [--steps 2000 | --year] [--repeat 3]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import wraps
from pathlib import Path
from time import process_time
from typing import Any

import mosaik_api_v3
import networkx as nx
import numpy as np
import yaml
from mosaik.async_scenario import AsyncWorld

from palaestrai_mosaik.environment.grid import GridReward
from palaestrai_mosaik.environment.grid.environment import GridEnvironment
from palaestrai_mosaik.environment.grid.fast_power_flow import FastPowerFlow
from palaestrai_mosaik.environment.grid.simulators import GridSimulator, PowerGridSimulator
from palaestrai_mosaik.experiment import RunDocument, from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.brains import BrainKeeper
from palaestrai_mosaik.runner.factory import WorkerPlan, make_bodies
from palaestrai_mosaik.runner.preflight import Inspection
from palaestrai_mosaik.simulation import mosaik_internals as internals
from palaestrai_mosaik.simulation.bridge import AgentSimulator, CoordinatorSimulator
from palaestrai_mosaik.simulation.episode import Episode
from palaestrai_mosaik.simulation.world_graph import world_graph
from palaestrai_mosaik.simulation.world_run import run as run_world
from palaestrai_mosaik.simulation.world_run import shut_down
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.recorder import InstanceRecorder, PhaseRecorder
from palaestrai_mosaik.store.streams import AgentStream, EnvironmentStream
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, SensorReadings, collect_setpoints

SCENARIO = Path(__file__).parents[2] / "scenarios" / "rural_year.yml"
YEAR = 35136
Injections = list[tuple[np.ndarray, ...]]


def document(steps: int) -> RunDocument:
    """Return the scenario with phase ``both`` alone, cut to ``steps`` steps."""
    content = yaml.safe_load(SCENARIO.read_text(encoding="utf-8"))
    phases = {name: phase for entry in content["schedule"] for name, phase in entry.items()}
    both = deepcopy(phases["passive"])
    both["environments"][0]["environment"]["params"]["steps"] = steps
    agents = {agent["name"]: agent for agent in both["agents"]}
    for name in ("attacker", "both"):
        for change in phases[name]["agents"]:
            agents[change["name"]] |= change
    return from_mapping(content | {"schedule": [{"both": both}]})


class Timer:
    """CPU time of one run, parted into start and steps: :attr:`steps_began` parts them."""

    steps_began = 0.0

    def __call__(self, run: Callable[[], Any]) -> tuple[float, float]:
        started = self.steps_began = process_time()
        run()
        return self.steps_began - started, process_time() - self.steps_began


TIMER = Timer()


def run_document(steps: int, stored: bool) -> None:
    """Run the document, with a store of its own or without."""
    if not stored:
        execute(document(steps))
        return
    with tempfile.TemporaryDirectory() as folder, Store(folder, create=True) as store:
        execute(document(steps), store=store)


def objectives(steps: int) -> float:
    """Run the document; return the sum of both agents' objectives."""
    with tempfile.TemporaryDirectory() as folder, Store(folder, create=True) as store:
        result = execute(document(steps), store=store)
        return float(store.episodes(result.instance)["objective_sum"].sum())


class Loop:
    """The document's environment, reward, muscles and objectives, made to be run in a plain loop."""

    def __init__(self, steps: int):
        inspection = Inspection(document(steps))
        inspection.raise_problems()
        (phase,) = inspection.phases
        self.port = inspection.environments.take(phase.environments[0])
        environment = self.environment = self.port.domain
        environment.worker, environment.episode = 0, 0
        environment.rng = np.random.default_rng(0)
        environment.reset()
        plan = environment.plan()
        self.shells = {shell.MODEL: shell for shell in (spec.factory() for spec in plan.simulators)}
        self.setpoints: dict[str, np.ndarray] = {}
        #: attribute -> (places among the readings, places in the attribute)
        self.wiring: dict[str, Any] = defaultdict(lambda: ([], []))
        for i, sensor in enumerate(plan.sensors):
            # of the grid, by the names of its result
            known_as = PowerGridSimulator.RESULTS.get(sensor.attribute, sensor.attribute)
            put, take = self.wiring[known_as]
            put.append(i)
            take.append(sensor.index or 0)
        self.wiring = {name: (np.array(put), np.array(take)) for name, (put, take) in self.wiring.items()}
        self.n_readings = len(plan.sensors)
        self.agents = []
        keepers = {spec.name: BrainKeeper([], []) for spec in phase.agents}
        plan_of_worker = WorkerPlan(phase, (), 0, 0, keepers)
        for spec in phase.agents:
            (body,) = make_bodies(spec, plan_of_worker, [self.port], None)
            seen = np.array([self.port.sensors.index[uid] for uid in spec.sensors])
            owned = np.array([plan.actuators[self.port.actuators.index[uid]].index for uid in spec.actuators])
            self.agents.append((body, body.actuators.bound(np.random.default_rng(0)), seen, owned))

    def powers(self, t: int) -> tuple[np.ndarray, ...]:
        """Return the injections of step ``t``."""
        profiles = self.shells["Profiles"]
        load_p, load_q, sgen_p, storage_p, gen_p = profiles.profiles.at(profiles.start + t)
        inverters = self.shells["Inverters"].inverters
        inverters.q_set.accept(self.setpoints)
        exchanged = self.shells["Storages"].storages.step(storage_p)[0]
        return load_p, load_q, *inverters.step(sgen_p), exchanged, gen_p

    def read(self) -> np.ndarray:
        """Return all sensors' values after the power flow."""
        grid = self.shells["PowerGrid"].power_grid
        readings = np.empty(self.n_readings)
        for name, (put, take) in self.wiring.items():
            readings[put] = grid.converged if name == "converged" else getattr(grid.result, name)[take]
        return readings

    def act(self, readings: np.ndarray) -> list[tuple[Any, ...]]:
        """Let every agent set its inverters; return what goes into its memory."""
        rows = []
        self.setpoints = {}
        for body, layout, seen, owned in self.agents:
            mine = readings[seen]
            sensors = SensorReadings(body.sensors, mine)
            actions, data = body.muscle.propose_actions(sensors, ActuatorSetpoints(layout))
            chosen = collect_setpoints(layout, actions)
            self.setpoints[body.name] = vector = np.full(len(self.environment.grid.net.sgen), np.nan)
            vector[owned] = chosen
            rows.append((body, mine, chosen, data))
        return rows


def bare_loop(steps: int, injections: Injections | None = None) -> float:
    """Run the same objects in a loop: no mosaik, no store.

    Returns the sum of both agents' objectives. Appends the powers of every state to
    ``injections``.
    """
    loop = Loop(steps)
    grid, port = loop.shells["PowerGrid"].power_grid, loop.port
    total = 0.0
    rows: list[tuple[Any, ...]] = []
    TIMER.steps_began = process_time()
    for t in range(steps):
        powers = loop.powers(t)
        if injections is not None:
            injections.append(powers)
        grid.step(*powers)
        state = loop.environment.judge(t, loop.read())
        rewards = port.reward(state)
        for body, mine, chosen, data in rows:
            body.memory.append(mine, chosen, rewards, data)
            value = body.objective.internal_reward(body.memory)
            body.memory.close(value)
            total += value
        if state.terminated or state.truncated:
            break
        rows = loop.act(state.readings)
    return total


def bare_solver(injections: Injections) -> None:
    """Solve every state of the loop, and nothing else."""
    environment = GridEnvironment("simbench:1-MV-rural--2-sw")
    environment.setup()
    flow = environment.power_flow
    flow.reset()
    TIMER.steps_began = process_time()
    for powers in injections:
        flow.solve(*powers)


class Empty(mosaik_api_v3.Simulator):
    """A simulator with the entities and attributes of another one, and nothing in it."""

    def __init__(self, entities: list[str], attributes: set[str]):
        model = {"public": True, "params": ["eid"], "attrs": sorted(attributes)}
        super().__init__({"api_version": "3.0", "type": "hybrid", "models": {"E": model}})
        self.data = {eid: dict.fromkeys(attributes, 0.0) for eid in entities}

    def init(self, sid, time_resolution=1.0):
        return self.meta

    def create(self, num, model, eid):
        return [{"eid": eid, "type": model}]

    def step(self, time, inputs, max_advance):
        return time + 1

    def get_data(self, outputs):
        return {eid: {name: self.data[eid][name] for name in names} for eid, names in outputs.items()}


class Last(Empty):
    """Ends the world, as the agents of a document do."""

    world: AsyncWorld
    steps: int

    def step(self, time, inputs, max_advance):
        if time + 1 < self.steps:
            return time + 1
        internals.stop(self.world, time)
        return None


def bare_mosaik(steps: int, graph: nx.MultiDiGraph) -> None:
    """Run the world of ``graph`` (see ``world_graph``) with empty simulators."""

    async def run() -> None:
        world = AsyncWorld({"ours": internals.HANDED_OVER}, configure_logging=False, skip_greetings=True)
        simulators: dict[str, list[str]] = defaultdict(list)
        attributes: dict[str, set[str]] = defaultdict(set)
        for node, data in graph.nodes(data=True):
            simulators[data["simulator"]].append(node)
        for source, target, data in graph.edges(data=True):
            attributes[graph.nodes[source]["simulator"]].add(data["source"])
            attributes[graph.nodes[target]["simulator"]].add(data["target"])
        entities = {}
        for sid, nodes in simulators.items():
            names = [node[len(sid) + 1 :] for node in nodes]
            kind = Last if sid == "coordinator" else Empty
            simulator = kind(names, attributes[sid])
            simulator.world, simulator.steps = world, steps
            internals.hand_over(simulator)
            factory = await world.start("ours", sim_id=sid)
            for node, name in zip(nodes, names, strict=True):
                entities[node] = await factory.E(eid=name)
        for source, target, data in graph.edges(data=True):
            shifted = {"time_shifted": 1, "initial_data": 0.0} if data["time_shifted"] else {}
            ends = entities[source], entities[target], data["source"], data["target"]
            world.connect_one(*ends, transform=lambda value: value, **shifted)
        await run_world(
            world, schedule=None, lazy_stepping=False, over=lambda: True, wants_end=lambda: False, timeouts={}
        )
        await shut_down(world, ())

    asyncio.run(run())


class Account:
    """Books CPU time to the part of the program that is running (parts within parts too)."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self.part = "start"
        self.last = process_time()

    def turn_to(self, part: str) -> str:
        """Say that from now on ``part`` is running; return which one was until now."""
        now = process_time()
        self.spent[self.part] += now - self.last
        self.last = now
        before, self.part = self.part, part
        return before

    @contextmanager
    def watching(self, parts: dict[str, list[tuple[type, str]]]) -> Iterator[None]:
        """Book what these methods take to their parts, while the ``with`` block runs."""
        originals = []
        try:
            for part, methods in parts.items():
                for owner, name in methods:
                    original = getattr(owner, name)
                    originals.append((owner, name, original))
                    setattr(owner, name, self._booked(original, part))
            yield
        finally:
            for owner, name, original in reversed(originals):
                setattr(owner, name, original)

    def _booked(self, original: Callable[..., Any], part: str) -> Callable[..., Any]:
        @wraps(original)
        def booked(*args: Any, **kwargs: Any) -> Any:
            before = self.turn_to(part)
            try:
                return original(*args, **kwargs)
            finally:
                self.turn_to(before)

        return booked


PARTS: dict[str, list[tuple[type, str]]] = {
    "mosaik": [(Episode, "run")],
    "power flow": [(FastPowerFlow, "solve")],
    "environment": [
        (GridSimulator, "step"),
        (GridSimulator, "get_data"),
        (GridEnvironment, "judge"),
        (GridReward, "__call__"),
    ],
    "agents": [
        (owner, name) for owner in (CoordinatorSimulator, AgentSimulator) for name in ("step", "get_data")
    ],
    "store": [
        (AgentStream, "append"),
        (EnvironmentStream, "append"),
        (PhaseRecorder, "episode"),
        (PhaseRecorder, "finish"),
        (InstanceRecorder, "finish"),
    ],
}


def where_it_goes(steps: int) -> dict[str, float]:
    """Return the ms/step of every part of a document's run with a store."""
    account = Account()
    with account.watching(PARTS):
        run_document(steps, True)
    return {part: account.spent[part] / steps * 1e3 for part in PARTS}


@contextmanager
def noting_the_first_step() -> Iterator[None]:
    """Let the timer know when a document's steps begin."""
    original = Episode.run

    def run(self: Episode, loop: asyncio.AbstractEventLoop) -> None:
        TIMER.steps_began = process_time()
        original(self, loop)

    Episode.run = run  # type: ignore[method-assign]
    try:
        yield
    finally:
        Episode.run = original  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--year", action="store_true", help=f"all {YEAR} steps")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    steps = YEAR if arguments.year else arguments.steps

    graph = world_graph(document(steps))
    injections: Injections = []
    loop, through = bare_loop(steps, injections), objectives(steps)
    if not np.isclose(loop, through, rtol=1e-9):
        raise SystemExit(f"the loop's objectives sum to {loop!r}, the document's to {through!r}")

    cases: dict[str, Callable[[], Any]] = {
        "document, store": lambda: run_document(steps, True),
        "document": lambda: run_document(steps, False),
        "bare mosaik": lambda: bare_mosaik(steps, graph),
        "bare loop": lambda: bare_loop(steps),
        "bare solver": lambda: bare_solver(injections),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    with noting_the_first_step():
        for _ in range(arguments.repeat):
            for name, run in cases.items():
                times[name].append(TIMER(run))
    print(f"{steps} steps, CPU time{'start/s':>20}{'steps/s':>9}{'ms/step':>9}{'least':>9}")
    for name, found in times.items():
        start, rest = (statistics.median(column) for column in zip(*found, strict=True))
        least = min(rest for _, rest in found)
        print(f"{name:28}{start:12.2f}{rest:9.2f}{rest / steps * 1e3:9.3f}{least / steps * 1e3:9.3f}")

    print(f"\n{'ms/step with store, of which':28}" + "".join(f"{part:>16}" for part in (*PARTS, "sum")))
    parts = where_it_goes(steps)
    print(f"{'document':28}" + "".join(f"{ms:16.3f}" for ms in (*parts.values(), sum(parts.values()))))


if __name__ == "__main__":
    main()
