"""Seconds that a folder of short runs takes to be executed, and what it could take at best.

    python tests/benchmarks/execution.py [--runs 200] [--steps 100] [--jobs 2] [--repeat 3]

The runs are of the dummy environment and two agents, recorded in one store. ``local`` is ``arsenai
run`` (in this process, from nothing to all results), ``shared`` the same with ten runs per process,
``spawn`` one interpreter per run, as on systems that cannot fork. ``command`` is one
``palaestrai-mosaik start`` per run, as many at the same time. ``ideal`` is what the runs take one
after the other in a warm process, divided by the number of jobs. Wall-clock time; ``spawn`` and
``command`` are timed with a twentieth of the runs. ``MB`` is what the resident memory of this process
grew by while the folder was executed. The machine must do nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.folder import RESULTS, DesignFolder
from palaestrai_mosaik.arsenai.execution import LocalExecutor, Settings, StoreLocation, run_folder
from palaestrai_mosaik.arsenai.execution import runs as runs_module

DUMMY = "palaestrai_mosaik.agent.library.dummy"
CONDITIONS = "palaestrai_mosaik.simulation.conditions"


def design(runs: int, steps: int) -> dict[str, Any]:
    """Return a design of ``runs`` rows."""
    agents = [
        {
            "name": name,
            "brain": {"name": f"{DUMMY}:DummyBrain"},
            "muscle": {"name": f"{DUMMY}:DummyMuscle"},
            "objective": {"name": f"{DUMMY}:DummyObjective", "params": {"params": 0}},
            "sensors": [f"myenv.{i}" for i in range(first, first + 5)],
            "actuators": [f"myenv.{i}" for i in range(first, first + 5)],
        }
        for name, first in (("defender", 0), ("attacker", 5))
    ]
    environment = {
        "uid": "myenv",
        "name": "palaestrai_mosaik.environment.dummy:DummyEnvironment",
        "params": {"max_iter": steps},
    }
    train = {
        "environments": [{"environment": environment}],
        "agents": agents,
        "simulation": {
            "name": "vanilla",
            "conditions": [{"name": f"{CONDITIONS}:EnvironmentTerminationCondition"}],
        },
        "phase_config": {"mode": "train", "workers": 1, "episodes": 1},
    }
    return {
        "uid": "many",
        "seed": 1,
        "version": "3.5",
        "base": {
            "schedule": [{"train": train}],
            "run_config": {"condition": {"name": f"{CONDITIONS}:VanillaRunGovernorTerminationCondition"}},
        },
        "factors": {
            "number": {
                "path": "schedule[0].train.agents.defender.objective.params.params",
                "levels": list(range(runs)),
            }
        },
    }


def execute(folder: DesignFolder, settings: Settings) -> float:
    """Execute the folder; return the seconds."""
    clock = time.perf_counter()
    summary = run_folder(folder, settings=settings)
    assert summary.whole, summary
    return time.perf_counter() - clock


def ideal(folder: DesignFolder, jobs: int) -> float:
    """Return the seconds of the runs after the first, one after the other here, over ``jobs``."""
    run_folder(folder, rows=[0], settings=Settings(executor="inline"))
    return execute(folder, Settings(executor="inline")) / jobs


def spawn(folder: DesignFolder, jobs: int) -> float:
    """Execute the folder without forks; return the seconds."""
    before: Callable[..., Any] = runs_module.make_executor
    try:
        runs_module.make_executor = lambda settings, design: LocalExecutor(jobs, method="spawn")
        return execute(folder, Settings())
    finally:
        runs_module.make_executor = before


def command(folder: DesignFolder, jobs: int) -> float:
    """Return the seconds of one command per run, ``jobs`` at the same time."""
    store = StoreLocation.of(folder.path / RESULTS).location

    def one(file: str) -> None:
        call = [sys.executable, "-m", "palaestrai_mosaik.cli.main", "start", str(folder.path / file)]
        subprocess.run([*call, "--store", store, "--quiet"], check=True, capture_output=True)

    clock = time.perf_counter()
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, [run.file for run in folder.documents]))
    return time.perf_counter() - clock


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    jobs = options.jobs
    few = max(options.runs // 20, jobs, 2)
    variants: dict[str, tuple[int, Callable[[DesignFolder], float]]] = {
        "local": (options.runs, lambda folder: execute(folder, Settings(jobs=jobs))),
        "shared": (options.runs, lambda folder: execute(folder, Settings(jobs=jobs, runs_per_process=10))),
        "ideal": (options.runs, lambda folder: ideal(folder, jobs)),
        "spawn": (few, lambda folder: spawn(folder, jobs)),
        "command": (few, lambda folder: command(folder, jobs)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    grown: dict[str, float] = {}
    for _ in range(options.repeat):
        for name, (count, measure) in variants.items():
            with tempfile.TemporaryDirectory() as temporary:
                folder = Design.from_mapping(design(count, options.steps)).generate(Path(temporary) / "f")
                before = psutil.Process().memory_info().rss
                seconds[name].append(measure(folder) * options.runs / count)
                grown[name] = (psutil.Process().memory_info().rss - before) / 1e6
    print(f"{options.runs} runs of {options.steps} steps, {jobs} at the same time")
    for name, found in seconds.items():
        told = f"{statistics.median(found):8.1f} s   ({min(found):.1f} to {max(found):.1f})"
        print(f"{name:8} {told}   {grown[name]:+.1f} MB")


if __name__ == "__main__":
    main()
