"""Steps per second of one worker and of several, with an environment that takes its time.

    python tests/benchmarks/workers.py [--milliseconds 2] [--workers 1 2] [--steps 2000]

The environment computes for so many milliseconds of CPU time per step (it does not sleep),
the agent has a brain that does nothing, and results are stored. ``ratio`` is against one
worker; as many cores as workers must be free. Wall-clock time, median of ``--repeat`` runs;
what it takes to start the processes is not counted, because it does not grow with the run.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

import numpy as np

from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.runner import Progress, execute
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation

UNIT = Box(0.0, 1.0, shape=())


class Busy(Environment):
    """Computes for ``milliseconds`` per step; truncated after ``steps`` steps."""

    def __init__(self, milliseconds: float, steps: int):
        self.seconds, self.steps = milliseconds / 1e3, steps
        self.count = 0

    def setup(self) -> EnvironmentBaseline:
        return EnvironmentBaseline(
            [SensorInformation(0.0, UNIT, f"s{i}") for i in range(10)],
            [ActuatorInformation(None, UNIT, "a")],
            [RewardInformation(0.0, UNIT, "r")],
        )

    def reset(self) -> EnvironmentState:
        self.count = 0
        return EnvironmentState(np.zeros(10), (0.0,))

    def step(self, setpoints: Any) -> EnvironmentState:
        until = time.thread_time() + self.seconds
        while time.thread_time() < until:
            pass
        self.count += 1
        return EnvironmentState(np.full(10, 0.5), (0.5,), truncated=self.count >= self.steps)


class _Clock(Progress):
    """Measures from the first step to the end of the phase."""

    def __init__(self) -> None:
        self.started: float | None = None
        self.steps = 0
        self.seconds = 0.0

    def step(self, worker: int, episode: int, steps: int) -> None:
        if self.started is None:
            self.started = time.perf_counter()
        self.steps += steps > 0

    def end_phase(self, name: str, reason: str) -> None:
        assert self.started is not None
        self.seconds = time.perf_counter() - self.started


def rate(workers: int, milliseconds: float, steps: int, sync_every: int) -> float:
    """Return the steps per second of all workers together."""
    document = from_mapping(
        {
            "uid": "busy",
            "seed": 1,
            "version": "3.5",
            "schedule": [
                {
                    "train": {
                        "environments": [
                            {
                                "environment": {
                                    "uid": "busy",
                                    "name": "workers:Busy",
                                    "params": {"milliseconds": milliseconds, "steps": steps // 4},
                                }
                            }
                        ],
                        "agents": [
                            {
                                "name": "a",
                                "brain": {"name": "palaestrai_mosaik.agent.library.dummy:DummyBrain"},
                                "muscle": {"name": "palaestrai_mosaik.agent.library.dummy:DummyMuscle"},
                                "sensors": ["busy.s*"],
                                "actuators": ["busy.a"],
                            }
                        ],
                        "simulation": {"name": "vanilla"},
                        "phase_config": {
                            "mode": "train",
                            "workers": workers,
                            "episodes": 4,
                            "sync_every": sync_every,
                        },
                    }
                }
            ],
            "run_config": {
                "condition": {
                    "name": "palaestrai_mosaik.simulation.conditions:VanillaRunGovernorTerminationCondition"
                }
            },
        }
    )
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder, Store(folder, create=True) as store:
        execute(document, store=store, progress=clock)
    return clock.steps / clock.seconds


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--milliseconds", type=float, default=2.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=2000, help="per worker")
    parser.add_argument("--sync-every", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    rates: dict[int, list[float]] = {workers: [] for workers in arguments.workers}
    for _ in range(arguments.repeat):
        for workers, found in rates.items():
            found.append(rate(workers, arguments.milliseconds, arguments.steps, arguments.sync_every))
    base = statistics.median(rates[arguments.workers[0]]) / arguments.workers[0]
    print(f"{'workers':>8} {'steps/s':>9} {'ratio':>6}")
    for workers, found in rates.items():
        middle = statistics.median(found)
        print(f"{workers:>8} {middle:>9.0f} {middle / base:>6.2f}")


if __name__ == "__main__":
    main()
