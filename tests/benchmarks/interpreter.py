"""What a step of an environment costs in another process (``interpreter``), beside the same one in this process.

* ``step``: the bare environment, asked for one state after the other;
* ``run``: a run document with it and one agent that does nothing, without a store.

The environment computes nothing, so the difference is what the way to the other process and back costs. Both are run in
turn, ``--repeat`` times; the table gives medians in microseconds of wall-clock time, because two processes take part. The
other interpreter is this one (``--interpreter`` says otherwise).

    python tests/benchmarks/interpreter.py [--readings 10 1000 100000] [--steps 2000] [--repeat 5]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from time import perf_counter
from typing import Any

import numpy as np

from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.simulation.remote_environment import RemoteEnvironment
from palaestrai_mosaik.types import ActuatorInformation, Box, SensorInformation

NAME = "interpreter:Still"


class Still(Environment):
    """Has ``readings`` that never change; an episode has so many ``steps``."""

    def __init__(self, readings: int, steps: int):
        self.readings, self.steps = readings, steps

    def setup(self) -> EnvironmentBaseline:
        space = Box(-1.0, 1.0, shape=(self.readings,))
        sensor = SensorInformation(np.zeros(self.readings), space, "readings")
        return EnvironmentBaseline([sensor], [ActuatorInformation(0.0, Box(-1.0, 1.0, shape=()), "push")])

    def reset(self) -> EnvironmentState:
        self.count = 0
        return EnvironmentState(np.zeros(self.readings))

    def step(self, setpoints: Any) -> EnvironmentState:
        self.count += 1
        return EnvironmentState(np.zeros(self.readings), terminated=self.count >= self.steps)


def bare(environment: Environment, steps: int) -> float:
    """Return the seconds per step of an environment without a world."""
    environment.uid, environment.rng = "world", np.random.default_rng(1)
    environment.setup()
    try:
        environment.reset()
        setpoints = np.zeros(1)
        began = perf_counter()
        for _ in range(steps):
            environment.step(setpoints)
        return (perf_counter() - began) / steps
    finally:
        environment.shutdown()


def whole(interpreter: str | None, params: dict[str, int]) -> float:
    """Return the seconds per step of a run, without what it takes to begin."""
    environment = {"uid": "world", "name": NAME, "params": params, "interpreter": interpreter}
    agent = {"name": "a", "muscle": "idle", "sensors": ["world.*"], "actuators": ["world.*"]}
    phase = {
        "environments": [{"environment": environment}],
        "agents": [agent],
        "phase_config": {"mode": "test", "episodes": 1},
    }
    seconds = []
    for steps in (1, params["steps"] + 1):
        params["steps"] = steps
        found = from_mapping({"uid": "benchmark", "seed": 1, "schedule": [{"phase": phase}]})
        began = perf_counter()
        execute(found)
        seconds.append(perf_counter() - began)
    return (seconds[1] - seconds[0]) / (params["steps"] - 1)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--readings", type=int, nargs="+", default=[10, 1000, 100_000])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--interpreter", default=sys.executable)
    given = parser.parse_args()
    print("us per step      readings   this process   another process   difference")
    for readings in given.readings:
        times: dict[str, list[tuple[float, float]]] = {"step": [], "run": []}
        for _ in range(given.repeat):
            params = {"readings": readings, "steps": given.steps}
            other = RemoteEnvironment(NAME, params, given.interpreter)
            times["step"].append((bare(Still(**params), given.steps), bare(other, given.steps)))
            times["run"].append((whole(None, dict(params)), whole(given.interpreter, dict(params))))
        for what, found in times.items():
            here, there = (1e6 * statistics.median(column) for column in zip(*found, strict=True))
            print(f"{what:<12} {readings:>12,} {here:>14.1f} {there:>17.1f} {there - here:>12.1f}")


if __name__ == "__main__":
    main()
