"""Steps per second of run documents as environments of Gymnasium, beside the engine and Gymnasium itself.

* ``start``: the run document, executed as ``palaestrai-mosaik start`` does it, without a store;
* ``make``: the same document through ``palaestrai_mosaik.make``, with the same actions;
* ``bare``: the same environment in Gymnasium alone (Pendulum), or in a Python loop (dummy);
* ``vec``: ``palaestrai_mosaik.make_vec`` with 1, 8 and 64 copies (environment steps: copies x steps), and Gymnasium's
  ``SyncVectorEnv`` of the bare environment.

All are run in this process, in turn, ``--repeat`` times; the table gives median, least and most steps per
second of CPU time.

    python tests/benchmarks/gymnasium_env.py [--steps 3000] [--repeat 5]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import gymnasium
import numpy as np

import palaestrai_mosaik
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.runner import execute

LIBRARY = "palaestrai_mosaik.agent.library"
ENVIRONMENTS: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "dummy": ("palaestrai_mosaik.environment.dummy:DummyEnvironment", "max_iter", {"discrete": False}),
    "Gymnasium's Pendulum": (
        "palaestrai_mosaik.environment.gymnasium:GymnasiumEnvironment",
        None,
        {"id": "Pendulum-v1"},
    ),
}


def document(name: str, steps: int) -> dict[str, Any]:
    """Return a document with one agent that always does the same."""
    found, limit, params = ENVIRONMENTS[name]
    params = {**params, limit: steps} if limit else {**params, "kwargs": {"max_episode_steps": steps}}
    return {
        "uid": "benchmark",
        "seed": 42,
        "version": "3.5",
        "schedule": [
            {
                "phase": {
                    "environments": [{"environment": {"uid": "env", "name": found, "params": params}}],
                    "agents": [
                        {
                            "name": "a",
                            "muscle": {
                                "name": f"{LIBRARY}.constant:ConstantMuscle",
                                "params": {"values": 0.5},
                            },
                            "sensors": ["env.*"],
                            "actuators": ["env.*"],
                        }
                    ],
                    "simulation": {
                        "name": "vanilla",
                        "conditions": [
                            {
                                "name": "palaestrai_mosaik.simulation.conditions:EnvironmentTerminationCondition",
                                "params": {},
                            }
                        ],
                    },
                    "phase_config": {"mode": "test", "workers": 1, "episodes": 1},
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


def start(name: str, steps: int) -> float:
    """Run the document; return steps per second."""
    found = from_mapping(document(name, steps))
    began = process_time()
    execute(found)
    return steps / (process_time() - began)


def _drive(env: Any, steps: int, action: Any) -> float:
    env.reset(seed=1)
    began = process_time()
    for _ in range(steps):
        env.step(action)
    rate = steps / (process_time() - began)
    env.close()
    return rate


def made(name: str, steps: int) -> float:
    """Step the document through Gymnasium's interface."""
    env = palaestrai_mosaik.make(document(name, steps))
    return _drive(env, steps, np.full(env.action_space.shape, 0.5, env.action_space.dtype))


def bare(steps: int) -> float:
    """Step Gymnasium's own environment."""
    return _drive(gymnasium.make("Pendulum-v1", max_episode_steps=steps), steps, np.array([0.5], np.float32))


def vectorised(name: str, copies: int, steps: int) -> float:
    """Step many copies of the document's world."""
    env = palaestrai_mosaik.make_vec(document(name, steps), copies)
    return copies * _drive(env, steps, np.full(env.action_space.shape, 0.5, env.action_space.dtype))


def bare_vectorised(copies: int, steps: int) -> float:
    """Step Gymnasium's own vector of its own environment."""
    env = gymnasium.make_vec(
        "Pendulum-v1", num_envs=copies, vectorization_mode="sync", max_episode_steps=steps
    )
    return copies * _drive(env, steps, np.full((copies, 1), 0.5, np.float32))


CASES: dict[str, Callable[[int], float]] = {"bare Pendulum": bare}
for _name in ENVIRONMENTS:
    CASES[f"{_name}, start"] = partial(start, _name)
    CASES[f"{_name}, make"] = partial(made, _name)
    for _copies in (1, 8, 64):
        CASES[f"{_name}, make_vec {_copies}"] = partial(vectorised, _name, _copies)
for _copies in (1, 8, 64):
    CASES[f"SyncVectorEnv {_copies}, Pendulum"] = partial(bare_vectorised, _copies)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    cases = {name: run for name, run in CASES.items() if arguments.only in name}
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for run in cases.values():
        run(20)  # imports and caches
    for _ in range(arguments.repeat):
        for name, run in cases.items():
            rates[name].append(run(arguments.steps))
    print(f"{'environment steps/s of CPU time':36}{'median':>10}{'min':>10}{'max':>10}")
    for name, found in rates.items():
        print(f"{name:36}{statistics.median(found):10.0f}{min(found):10.0f}{max(found):10.0f}")


if __name__ == "__main__":
    main()
