"""Environment steps per second (bodies x steps) of batched environments, beside other ways.

For batches of B incarnations, each of which begins anew when its episode ends:

* ``run``, ``run, store``: a whole run document with one agent that has a body in each of the B
  incarnations and acts at random, without and with the store (its files written);
* ``run, B worlds``: runs of one incarnation, one after the other (at most ``--worlds`` of the B);
* ``stepper``: the environment alone in a loop, with set-points that were drawn before;
* ``Gymnasium, sync``, ``async``, ``vector``: Gymnasium's vector environments of the same task, with
  actions that were drawn before: B environments in a loop, a process for each (at most
  ``--processes``), arrays.

A rate is one of the process's CPU time, except for ``async``, whose work is done in other processes:
there it is one of wall-clock time. All cases of a batch size are run in turn, ``--repeat`` times;
printed are the median, the smallest and the largest rate, and how often the rate of the same
case with B = 1 the median is. ``--csv FILE`` writes every single measurement; ``--more MODULE``
adds the cases that another program of this folder offers.

    OMP_NUM_THREADS=1 python tests/benchmarks/batches.py [--repeat 5] [--sizes 1 8 64 512]
"""

from __future__ import annotations

import argparse
import csv
import gc
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.environment.batch import BatchEnvironment, BatchStepper
from palaestrai_mosaik.environment.cartpole import BatchCartPole
from palaestrai_mosaik.environment.pendulum import BatchPendulum
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

SIZES = (1, 8, 64, 512)
#: steps of every incarnation in one measurement, by the size of the batch
STEPS = {1: 4000, 8: 3000, 64: 2000, 512: 600}
ENVIRONMENT = "palaestrai_mosaik.environment"
CONDITIONS = "palaestrai_mosaik.simulation.conditions"


@dataclass(frozen=True)
class Case:
    """``begin(batch, steps)`` prepares and returns what is measured: a function that returns how
    many environment steps it made, and has ``close`` where something must be closed. ``most``: the largest
    batch that makes sense; ``wall``: the rate is one of wall-clock time."""

    task: str
    name: str
    begin: Callable[[int, int], Callable[[], int]]
    most: int = SIZES[-1]
    wall: bool = False


# --- ours ------------------------------------------------------------------------------------


def document(environment: str, params: dict[str, Any], batch: int, episodes: int) -> dict[str, Any]:
    """Return a run of one agent with ``batch`` bodies, until each had ``episodes`` episodes."""
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
                                "uid": "world",
                                "name": f"{ENVIRONMENT}.{environment}",
                                "params": {"batch": batch, **params},
                            }
                        }
                    ],
                    "agents": [
                        {
                            "name": "agent",
                            "muscle": {"name": "palaestrai_mosaik.agent.library.random_agent:RandomMuscle"},
                            "bodies": [{"environment": "world", "count": batch}],
                        }
                    ],
                    "simulation": {
                        "name": "palaestrai_mosaik.simulation:Vanilla",
                        "conditions": [
                            {
                                "name": f"{CONDITIONS}:EnvironmentTerminationCondition",
                                "params": {"when": "all", "episodes": episodes},
                            }
                        ],
                    },
                    "phase_config": {"mode": "test", "workers": 1, "episodes": 1},
                }
            }
        ],
        "run_config": {
            "condition": {"name": f"{CONDITIONS}:VanillaRunGovernorTerminationCondition", "params": {}}
        },
    }


def run(environment: str, params: dict[str, Any], stored: bool, batch: int, steps: int) -> Callable[[], int]:
    """Prepare a whole run in which every incarnation makes ``steps`` steps, in episodes of 200."""
    episodes = max(steps // 200, 1)
    found = from_mapping(document(environment, params, batch, episodes))

    def measured() -> int:
        if not stored:
            execute(found)
        else:
            with tempfile.TemporaryDirectory() as folder, Store(folder, create=True) as store:
                execute(found, store=store)
        return batch * episodes * 200

    return measured


def worlds(environment: str, params: dict[str, Any], most: int, batch: int, steps: int) -> Callable[[], int]:
    """Prepare runs of one incarnation, one after the other."""
    runs = [run(environment, params, False, 1, steps) for _ in range(min(batch, most))]
    return lambda: sum(one() for one in runs)


def stepper(make: Callable[..., BatchEnvironment], batch: int, steps: int) -> Callable[[], int]:
    """Prepare the bare loop over a batched environment."""
    environment = make(batch=batch)
    environment.rngs = [seeding.generator(42, "world", k) for k in range(batch)]
    baseline = environment.setup()
    space = baseline.actuators[0].space
    rng = seeding.generator(42, "agent")
    drawn = rng.uniform(space.flat_low, space.flat_high + space.flat_integral, (steps, batch, space.size))
    setpoints = np.where(space.flat_integral, np.floor(drawn), drawn)
    bare = BatchStepper(environment)

    def measured() -> int:
        bare.reset()
        for chosen in setpoints:
            bare.step(chosen, resets=True)
        return batch * steps

    return measured


# --- Gymnasium -------------------------------------------------------------------------------


def vector_environment(make: Callable[[int], Any], batch: int, steps: int) -> Callable[[], int]:
    """Prepare the loop over a vector environment of Gymnasium."""
    world = make(batch)
    world.action_space.seed(42)
    actions = [world.action_space.sample() for _ in range(steps)]

    def measured() -> int:
        world.reset(seed=42)
        for chosen in actions:
            world.step(chosen)
        return batch * steps

    measured.close = world.close  # type: ignore[attr-defined]
    return measured


def sync(id: str, batch: int) -> Any:
    return SyncVectorEnv([lambda: gymnasium.make(id) for _ in range(batch)])


def processes(id: str, batch: int) -> Any:
    return AsyncVectorEnv([lambda: gymnasium.make(id) for _ in range(batch)])


def vector(id: str, batch: int) -> Any:
    return gymnasium.make_vec(id, num_envs=batch, vectorization_mode="vector_entry_point")


def cases(most_worlds: int, most_processes: int) -> list[Case]:
    """Return the cases of pendulum and cart; other modules bring their own (``--more``)."""
    pendulum: tuple[str, dict[str, Any]] = ("pendulum:BatchPendulum", {"max_steps": 200})
    found = [
        Case("pendulum", "run", partial(run, *pendulum, False)),
        Case("pendulum", "run, store", partial(run, *pendulum, True)),
        Case("pendulum", "run, B worlds", partial(worlds, *pendulum, most_worlds)),
    ]
    for id, make in (("Pendulum-v1", BatchPendulum), ("CartPole-v1", BatchCartPole)):
        task = id.split("-")[0].lower()
        in_loop, in_processes = (partial(vector_environment, partial(kind, id)) for kind in (sync, processes))
        found += [
            Case(task, "stepper", partial(stepper, make)),
            Case(task, "Gymnasium, sync", in_loop),
            Case(task, "Gymnasium, async", in_processes, most_processes, wall=True),
        ]
    arrays = partial(vector_environment, partial(vector, "CartPole-v1"))
    return [*found, Case("cartpole", "Gymnasium, vector", arrays)]


# --- measuring -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """Environment steps per second."""

    task: str
    case: str
    batch: int
    by_cpu: float
    by_wall: float


def measure(chosen: Iterable[Case], batch: int, steps: int, repeat: int) -> list[Measurement]:
    """Measure all cases in turn, ``repeat`` times."""
    prepared = [(case, case.begin(batch, steps)) for case in chosen if batch <= case.most]
    found = []
    for number in range(repeat + 1):
        for case, measured in prepared:
            gc.collect()
            wall, cpu = perf_counter(), process_time()
            made = measured()
            cpu, wall = process_time() - cpu, perf_counter() - wall
            if number:  # the first round warms up
                found.append(Measurement(case.task, case.name, batch, made / cpu, made / wall))
    for _, measured in prepared:
        getattr(measured, "close", lambda: None)()
    return found


def table(chosen: Iterable[Case], found: Iterable[Measurement]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [
        "| task | case | B | steps/s | smallest | largest | of B = 1 |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for case in chosen:
        single = None
        for batch in sorted({m.batch for m in found}):
            rates = [
                m.by_wall if case.wall else m.by_cpu
                for m in found
                if (m.task, m.case, m.batch) == (case.task, case.name, batch)
            ]
            if not rates:
                continue
            middle = statistics.median(rates)
            single = single or middle
            numbers = (f"{rate:,.0f}" for rate in (middle, min(rates), max(rates)))
            lines.append(
                f"| {case.task} | {case.name} | {batch} | {' | '.join(numbers)} | {middle / single:.1f} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="B")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--steps", type=int, help="steps of every incarnation (default: fewer in larger batches)"
    )
    parser.add_argument("--worlds", type=int, default=4, help="at most so many runs one after the other (4)")
    parser.add_argument(
        "--processes", type=int, default=8, help="at most so many processes of Gymnasium's (8)"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose task or name has it")
    parser.add_argument(
        "--more",
        nargs="+",
        default=[],
        metavar="MODULE",
        help="modules of this folder whose function cases() returns more cases",
    )
    parser.add_argument("--csv", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    offered = cases(arguments.worlds, arguments.processes)
    for module in arguments.more:
        offered += import_module(module).cases()
    chosen = [case for case in offered if arguments.only in f"{case.task} {case.name}"]
    if not chosen:
        known = ", ".join(f"{case.task} {case.name!r}" for case in offered)
        parser.error(f"no case has {arguments.only!r}; there are {known}")
    found: list[Measurement] = []
    before = os.getloadavg()[0]
    for batch in arguments.sizes:
        steps = arguments.steps or STEPS.get(batch, max(300_000 // batch, 200))
        found += measure(chosen, batch, steps, arguments.repeat)
    print("\n".join(table(chosen, found)))
    spread = statistics.median(
        (max(rates) - min(rates)) / statistics.median(rates)
        for rates in (
            [m.by_cpu for m in found if (m.task, m.case, m.batch) == key]
            for key in {(m.task, m.case, m.batch) for m in found}
        )
    )
    print(
        f"\n{arguments.repeat} repeats; the smallest and the largest rate are typically {spread:.0%} apart; "
        f"{os.cpu_count()} cores, load {before:.1f} before and {os.getloadavg()[0]:.1f} after"
    )
    if arguments.csv is not None:
        with arguments.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["task", "case", "batch", "steps_per_cpu_second", "steps_per_second"])
            writer.writerows([m.task, m.case, m.batch, m.by_cpu, m.by_wall] for m in found)


if __name__ == "__main__":
    main()
