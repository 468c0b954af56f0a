"""Learning with many bodies: as fast per environment step as Stable-Baselines3's vector environments?

* ``curves``: one agent with ``--bodies`` bodies in a batched environment, and Stable-Baselines3 with
  as many environments in a ``DummyVecEnv``, with the same parameters and number of environment
  steps, several seeds each: mean return of the training episodes in ten equal parts of the
  budget, judged as in ``rl.py``;
* ``speed``: environment steps per second of CPU time of such trainings (without the store), for
  several numbers of bodies;
* ``parts``: microseconds that a muscle of the library takes for 64 bodies, and a brain for their
  64 rows, beside 64 muscles and rows one by one.

    python tests/benchmarks/batch_learning.py curves cartpole-ppo pendulum-sac [--seeds 3]
    python tests/benchmarks/batch_learning.py speed
    python tests/benchmarks/batch_learning.py parts
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from interop.rl import LAST, PARTS, Episodes, Task, curve
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from palaestrai_mosaik.agent import BatchReadings, Experience, Memory
from palaestrai_mosaik.agent.library.constant import ConstantMuscle
from palaestrai_mosaik.agent.library.cross_entropy import CrossEntropyBrain, CrossEntropyMuscle
from palaestrai_mosaik.agent.library.random_agent import RandomMuscle
from palaestrai_mosaik.agent.library.sb3 import SB3Brain, SB3Muscle
from palaestrai_mosaik.agent.library.voltage_control import DroopController
from palaestrai_mosaik.experiment import RunDocument, from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.simulation.conditions import EpisodeView, TerminationCondition
from palaestrai_mosaik.simulation.learner import Learner
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import ActuatorInformation, Box, SensorInformation, SimulationFlowControl
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout, SensorReadings

BATCHED = {
    "CartPole-v1": "palaestrai_mosaik.environment.cartpole:BatchCartPole",
    "Pendulum-v1": "palaestrai_mosaik.environment.pendulum:BatchPendulum",
}
SHORT = {"policy_kwargs": {"net_arch": [64, 64]}, "learning_rate": 1e-3}
TASKS = {
    "cartpole-ppo": Task("PPO", "CartPole-v1", 49_152, {"n_steps": 128, "batch_size": 256}),
    "cartpole-a2c": Task("A2C", "CartPole-v1", 40_000, {"n_steps": 8, "learning_rate": 2e-3}),
    # as many updates as rows, as with one environment
    "pendulum-sac": Task("SAC", "Pendulum-v1", 8000, {**SHORT, "gradient_steps": 8}),
}


class TickBudget(TerminationCondition):
    """Ends the phase after ``ticks`` ticks."""

    def __init__(self, ticks: int):
        self.left = ticks

    def episode_flow_control(self, view: EpisodeView) -> SimulationFlowControl:
        self.left -= 1
        return SimulationFlowControl.STOP_PHASE if self.left < 0 else SimulationFlowControl.CONTINUE


def document(task: Task, steps: int, bodies: int, seed: int) -> RunDocument:
    """Return the run document of a task: every incarnation begins again on its own."""
    library = "palaestrai_mosaik.agent.library"
    conditions = "palaestrai_mosaik.simulation.conditions"
    world = {"uid": "world", "name": BATCHED[task.environment], "params": {"batch": bodies}}
    brain = {"algorithm": task.algorithm, "device": "cpu", "total_timesteps": steps, **task.parameters}
    phase = {
        "environments": [{"environment": world}],
        "agents": [
            {
                "name": "learner",
                "brain": {"name": f"{library}.sb3:SB3Brain", "params": brain},
                "muscle": {"name": f"{library}.sb3:SB3Muscle"},
                "bodies": [{"environment": "world", "count": bodies}],
            }
        ],
        "simulation": {
            "name": "palaestrai_mosaik.simulation:Vanilla",
            "conditions": [
                {
                    "name": f"{conditions}:EnvironmentTerminationCondition",
                    "params": {"when": "all", "episodes": steps},
                },
                {"name": f"{__name__}:TickBudget", "params": {"ticks": steps // bodies}},
            ],
        },
        "phase_config": {"mode": "train", "workers": 1, "episodes": 1},
    }
    run = {"name": f"{conditions}:VanillaRunGovernorTerminationCondition"}
    return from_mapping(
        {
            "uid": "learning",
            "seed": seed,
            "version": "3.5",
            "schedule": [{"train": phase}],
            "run_config": {"condition": run},
        }
    )


def through_document(task: Task, steps: int, bodies: int, seed: int, *, stored: bool) -> Episodes:
    """Learn through the package; return length and return of the episodes that ended (if stored)."""
    made = document(task, steps, bodies, seed)
    if not stored:
        execute(made)
        return []
    with tempfile.TemporaryDirectory() as folder, Store(folder, create=True) as store:
        execute(made, store=store)
        rows = store.steps("latest", agent="learner")
    groups = rows.groupby(["body", "environment_episode"])
    table = groups.agg(ends=("time", "max"), steps=("time", "size"), value=("objective", "sum"))
    whole = groups[["terminated", "truncated"]].any().any(axis=1) & (table["ends"] < rows["time"].max())
    table = table[whole].sort_values("ends", kind="stable")
    return list(zip(table["steps"].tolist(), table["value"].tolist(), strict=True))


def alone(task: Task, steps: int, bodies: int, seed: int) -> Episodes:
    """Learn with the library alone, in ``bodies`` environments one after the other."""
    worlds = [Monitor(gymnasium.make(task.environment)) for _ in range(bodies)]
    ended: list[tuple[float, int, int, float]] = []
    vector = DummyVecEnv([lambda world=world: world for world in worlds])  # type: ignore[misc]
    model = getattr(stable_baselines3, task.algorithm)
    model("MlpPolicy", vector, seed=seed, device="cpu", **task.parameters).learn(steps)
    for number, world in enumerate(worlds):
        ends = np.cumsum(world.get_episode_lengths())
        rows = zip(ends, world.get_episode_lengths(), world.get_episode_rewards(), strict=True)
        ended += [(end, number, length, value) for end, length, value in rows]
    return [(length, value) for _, _, length, value in sorted(ended)]


def curves(names: list[str], bodies: int, seeds: int, scale: float) -> None:
    """Learn every task with every seed in both ways, and print the curves."""
    for name in names:
        task = TASKS[name]
        steps = int(task.steps * scale)
        print(
            f"\n{name}: {task.algorithm} on {task.environment}, {bodies} bodies, {steps} steps, {seeds} seeds"
        )
        print(f"{'part':>22}" + "".join(f"{i + 1:8}" for i in range(PARTS)))
        ends: dict[str, list[float]] = {}
        ways: dict[str, Callable[[int], Episodes]] = {
            "DummyVecEnv": partial(alone, task, steps, bodies),
            "bodies": partial(through_document, task, steps, bodies, stored=True),
        }
        for who, way in ways.items():
            for seed in range(seeds):
                row = curve(way(seed), steps)
                ends.setdefault(who, []).append(statistics.mean(row[-LAST:]))
                print(f"{who:>19} {seed:2}" + "".join(f"{value:8.1f}" for value in row), flush=True)
        theirs, ours = ends["DummyVecEnv"], statistics.mean(ends["bodies"])
        spread = statistics.pstdev(theirs)
        low, high = min(theirs) - spread, max(theirs) + spread
        told = "within" if low <= ours <= high else "NOT within"
        print(
            f"last {LAST} parts: {ours:.1f} and {statistics.mean(theirs):.1f}: {told} {low:.1f} to {high:.1f}"
        )


def speed(steps: int, repeat: int) -> None:
    """Print environment steps per second of CPU time, for several numbers of bodies."""
    task = Task("PPO", "CartPole-v1", steps, {"batch_size": 64})
    print(
        f"PPO on CartPole-v1, {steps} steps, rollouts of 2048 rows, median of {repeat}: steps/s of CPU time"
    )
    print(f"{'bodies':>8}{'DummyVecEnv':>14}{'bodies':>10}{'ratio':>8}")
    for bodies in (1, 8, 64):
        same = Task(task.algorithm, task.environment, steps, {**task.parameters, "n_steps": 2048 // bodies})
        rates: list[list[float]] = [[], []]
        for seed in range(repeat + 1):
            for found, run in zip(
                rates,
                (
                    partial(alone, same, steps, bodies),
                    partial(through_document, same, steps, bodies, stored=False),
                ),
                strict=True,
            ):
                started = process_time()
                run(seed)
                if seed:
                    # the first time is for imports and caches
                    found.append(steps / (process_time() - started))
        theirs, ours = (statistics.median(found) for found in rates)
        print(f"{bodies:8}{theirs:14.0f}{ours:10.0f}{ours / theirs:8.2f}", flush=True)


def _time(call: Callable[[], Any], repeat: int = 300) -> float:
    """Return microseconds of CPU time of a call: the median."""
    found = []
    for _ in range(repeat):
        started = process_time()
        call()
        found.append(process_time() - started)
    return statistics.median(found) * 1e6


def parts(bodies: int = 64) -> None:
    """Print what muscles and brains take for all bodies, at once and one by one."""
    ANY, torque = Box(-np.inf, np.inf, shape=()), Box(-1.0, 1.0, shape=())
    sensors, actuators = Layout(["a", "b", "c"], [ANY] * 3), Layout(["x", "y", "z"], [torque] * 3)
    readings = np.random.default_rng(0).standard_normal((bodies, 3))
    batch = BatchReadings(readings, np.arange(bodies), sensors, actuators)
    brain = _ready(SB3Brain("PPO", device="cpu"), sensors, actuators)
    muscles: dict[str, Callable[[], Any]] = {
        "constant": lambda: ConstantMuscle(0.5),
        "random": RandomMuscle,
        "droop": DroopController,
        "cross-entropy, 16 units": lambda: CrossEntropyMuscle(hidden=[16]),
        "PPO": SB3Muscle,
    }
    print(f"\n{bodies} bodies, us{'at once':>32}{'one by one':>12}")
    for name, make in muscles.items():
        together, single = make(), make()
        together.rngs = [np.random.default_rng(b) for b in range(bodies)]
        together.rng = single.rng = np.random.default_rng(0)
        if name == "PPO":
            together.update(brain.initial_update())
            single.update(brain.initial_update())

        def one_by_one(single: Any = single) -> None:
            for row in readings:
                single.propose_actions(SensorReadings(sensors, row), ActuatorSetpoints(actuators))

        at_once = _time(lambda together=together: together.propose_batch(batch))  # type: ignore[misc]
        print(f"{name:>28}{at_once:16.0f}{_time(one_by_one, 50):12.0f}")
    candidate = CrossEntropyMuscle()
    candidate.rngs = [np.random.default_rng(b) for b in range(bodies)]
    setpoints, data = candidate.propose_batch(batch)
    random = np.random.default_rng(1)
    pairs = [random.standard_normal(5).astype(np.float32) for _ in range(bodies)]
    # no training falls into the time: rollouts are long
    brains: dict[str, tuple[Any, Any]] = {
        "CrossEntropyBrain": (lambda: CrossEntropyBrain(10**6, 8), data),
        "SB3Brain, PPO": (lambda: SB3Brain("PPO", device="cpu", n_steps=10**6, batch_size=10**6), pairs),
    }
    for name, (make, sent) in brains.items():
        learners = [Learner(_ready(make(), sensors, actuators)) for _ in range(2)]
        rows = [
            Experience(
                f"m.{b}", readings[b], setpoints[b], np.ones(1), 1.0, sent[b], readings[b], setpoints[b]
            )
            for b in range(bodies)
        ]
        learners[0].learn_batch(rows)
        at_once = _time(lambda learner=learners[0], rows=rows: learner.learn_batch(rows))  # type: ignore[misc]
        alone = _time(lambda learner=learners[1], rows=rows: [learner.learn(row) for row in rows])  # type: ignore[misc]
        print(f"{name:>28}{at_once:16.0f}{alone:12.0f}")


def _ready(brain: Any, sensors: Layout, actuators: Layout) -> Any:
    brain.name, brain.seed, brain._memory = "a", 0, Memory()
    brain.sensors = [SensorInformation(None, s, u) for s, u in zip(sensors.spaces, sensors.uids, strict=True)]
    brain.actuators = [
        ActuatorInformation(None, s, u) for s, u in zip(actuators.spaces, actuators.uids, strict=True)
    ]
    brain.setup()
    brain.memory.size_limit = 100_000
    return brain


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("curves", "speed", "parts"))
    parser.add_argument("tasks", nargs="*", help=f"of {', '.join(TASKS)} (default: all)")
    parser.add_argument("--bodies", type=int, default=8, help="of curves")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of steps")
    parser.add_argument("--steps", type=int, default=16_384, help="of speed")
    parser.add_argument("--repeat", type=int, default=3, help="of speed")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.tasks) - set(TASKS))
    if unknown:
        parser.error(f"no task {unknown[0]!r}; allowed are {', '.join(TASKS)}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if arguments.what == "speed":
        speed(arguments.steps, arguments.repeat)
    elif arguments.what == "parts":
        parts()
    else:
        curves(arguments.tasks or list(TASKS), arguments.bodies, arguments.seeds, arguments.scale)


if __name__ == "__main__":
    main()
