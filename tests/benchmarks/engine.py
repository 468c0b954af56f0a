"""Steps per second of the dummy document, beside its upper bounds.

Two agents (5 sensors and 5 actuators each) act in the dummy environment:

* ``vanilla``, ``taking turns``: the run document through the whole package, with and without the store,
  and with ``scheduler: mosaik``;
* ``bare mosaik``: two simulators with empty ``step``, one for the environment and one for all agents (a simulator for
  each of them would be slower), by mosaik's own scheduler in asyncio's event loop;
* ``bare loop``: the same environment, muscles, brains and objectives in a Python loop.

All are run in this process, in turn, ``--repeat`` times; the table gives the median and
the spread of steps per second of CPU time, and the ratios to bare mosaik and to the bare loop.

    python tests/benchmarks/engine.py [--steps 4000] [--repeat 5]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Callable
from time import process_time

import mosaik_api_v3
import numpy as np
from mosaik.async_scenario import AsyncWorld

from palaestrai_mosaik.agent import Memory
from palaestrai_mosaik.agent.library.dummy import DummyBrain, DummyMuscle, DummyObjective
from palaestrai_mosaik.environment.dummy import DummyEnvironment
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.simulation import mosaik_internals as internals
from palaestrai_mosaik.simulation.world_run import run as run_world
from palaestrai_mosaik.simulation.world_run import shut_down
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout, SensorReadings, collect_setpoints

AGENTS = {"mighty_defender": range(5), "evil_attacker": range(5, 10)}
LIBRARY = "palaestrai_mosaik.agent.library.dummy"


def document(steps: int, controller: str = "Vanilla", scheduler: str = "direct") -> dict:
    """Return the dummy document with one episode of ``steps`` steps."""
    return {
        "uid": "benchmark",
        "seed": 42,
        "version": "3.5",
        "schedule": [
            {
                "phase": {
                    "environments": [
                        {
                            "environment": {
                                "uid": "myenv",
                                "name": "palaestrai_mosaik.environment.dummy:DummyEnvironment",
                                "params": {"max_iter": steps},
                            }
                        }
                    ],
                    "agents": [
                        {
                            "name": name,
                            "brain": {"name": f"{LIBRARY}:DummyBrain", "params": {}},
                            "muscle": {"name": f"{LIBRARY}:DummyMuscle", "params": {}},
                            "objective": {"name": f"{LIBRARY}:DummyObjective", "params": {}},
                            "sensors": [f"myenv.{i}" for i in mine],
                            "actuators": [f"myenv.{i}" for i in mine],
                        }
                        for name, mine in AGENTS.items()
                    ],
                    "simulation": {
                        "name": f"palaestrai_mosaik.simulation:{controller}",
                        "scheduler": scheduler,
                        "conditions": [
                            {
                                "name": "palaestrai_mosaik.simulation.conditions:EnvironmentTerminationCondition",
                                "params": {},
                            }
                        ],
                    },
                    "phase_config": {"mode": "train", "workers": 1, "episodes": 1},
                }
            }
        ],
        "run_config": {
            "condition": {
                "name": "palaestrai_mosaik.simulation.conditions:VanillaRunGovernorTerminationCondition",
                "params": {},
            }
        },
    }


class Empty(mosaik_api_v3.Simulator):
    """A simulator that does nothing but step itself and hand on one vector per entity."""

    def __init__(self, steps: int):
        super().__init__(
            {
                "api_version": "3.0",
                "type": "hybrid",
                "models": {"E": {"public": True, "params": ["eid"], "attrs": ["a", "b"]}},
            }
        )
        self.steps = steps
        self.vector = np.zeros(13)

    def init(self, sid, time_resolution=1.0):
        return self.meta

    def create(self, num, model, eid):
        return [{"eid": eid, "type": model}]

    def step(self, time, inputs, max_advance):
        return time + 1

    def get_data(self, outputs):
        return {eid: dict.fromkeys(attrs, self.vector) for eid, attrs in outputs.items()}


class Last(Empty):
    """Ends the world, as the agents of a document do."""

    world: AsyncWorld

    def step(self, time, inputs, max_advance):
        if time < self.steps:
            return time + 1
        internals.stop(self.world, time)
        return None


def bare_mosaik(steps: int) -> None:
    """Run a world like the document's with empty simulators."""

    async def run() -> None:
        world = AsyncWorld({"ours": internals.HANDED_OVER}, configure_logging=False, skip_greetings=True)
        last = Last(steps)
        last.world = world
        internals.hand_over(Empty(steps))
        environment = await (await world.start("ours", sim_id="environment")).E(eid="myenv")
        internals.hand_over(last)
        factory = await world.start("ours", sim_id="agents")
        coordinator = await factory.E(eid="@coordinator")
        agents = [await factory.E(eid=name) for name in AGENTS]
        for target in (coordinator, *agents):
            world.connect_one(environment, target, "a", "a", transform=lambda x: x)
        for agent in agents:
            world.connect_one(
                agent, environment, "b", "b", time_shifted=1, initial_data=(), transform=lambda x: x
            )
        await run_world(
            world, schedule=None, lazy_stepping=False, over=lambda: True, wants_end=lambda: False, timeouts={}
        )
        await shut_down(world, ())

    asyncio.run(run())


def bare_loop(steps: int) -> None:
    """Run the same objects in a loop: no mosaik, no store."""
    environment = DummyEnvironment(max_iter=steps)
    baseline = environment.setup()
    agents = []
    for mine in AGENTS.values():
        muscle, brain, objective = DummyMuscle(), DummyBrain(), DummyObjective()
        rng = np.random.default_rng(1)
        muscle._memory, brain._memory = Memory(), Memory()
        sensors = Layout([str(i) for i in mine], [baseline.sensors[i].space for i in mine])
        actuators = Layout([str(i) for i in mine], [baseline.actuators[i].space for i in mine]).bound(rng)
        agents.append((list(mine), muscle, brain, objective, sensors, actuators))
    state = environment.reset()
    setpoints = np.zeros(10)
    while not state.terminated:
        done = []
        for mine, muscle, brain, objective, sensors, actuators in agents:
            readings = state.readings[mine]
            actions, data = muscle.propose_actions(
                SensorReadings(sensors, readings), ActuatorSetpoints(actuators)
            )
            chosen = collect_setpoints(actuators, actions)
            setpoints[mine] = chosen
            done.append((muscle, brain, objective, readings, chosen, data))
        state = environment.step(setpoints)
        for muscle, brain, objective, readings, chosen, data in done:
            muscle.memory.append(readings, chosen, state.rewards, data)
            muscle.memory.close(objective.internal_reward(muscle.memory))
            brain.memory.append(readings, chosen, state.rewards, data)
            update = brain.thinking("m", data)
            if update:
                muscle.update(update)


def through_document(controller: str, stored: bool, scheduler: str = "direct") -> Callable[[int], None]:
    """Return a function that runs the document for a number of steps."""

    def run(steps: int) -> None:
        found = from_mapping(document(steps, controller, scheduler))
        if not stored:
            execute(found)
            return
        with tempfile.TemporaryDirectory() as folder, Store(folder, create=True) as store:
            execute(found, store=store)

    return run


CASES: dict[str, Callable[[int], None]] = {
    "bare mosaik": bare_mosaik,
    "bare loop": bare_loop,
    "vanilla": through_document("Vanilla", False),
    "vanilla, store": through_document("Vanilla", True),
    "taking turns": through_document("TakingTurns", False),
    "taking turns, store": through_document("TakingTurns", True),
    "vanilla, store, scheduler: mosaik": through_document("Vanilla", True, "mosaik"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    for run in CASES.values():
        run(20)  # imports and caches
    rates: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(arguments.repeat):
        for name, run in CASES.items():
            started = process_time()
            run(arguments.steps)
            rates[name].append(arguments.steps / (process_time() - started))
    print(
        f"{'steps/s of CPU time':34}{'median':>9}{'min':>9}{'max':>9}{'of bare mosaik':>16}{'of bare loop':>14}"
    )
    for name, found in rates.items():
        ratios = (
            statistics.median(r / b for r, b in zip(found, rates[bound], strict=True))
            for bound in ("bare mosaik", "bare loop")
        )
        figures = f"{statistics.median(found):9.0f}{min(found):9.0f}{max(found):9.0f}"
        print(f"{name:34}{figures}{next(ratios):16.2f}{next(ratios):14.2f}")


if __name__ == "__main__":
    main()
