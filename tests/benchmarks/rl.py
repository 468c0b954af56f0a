"""Learning with Stable-Baselines3's algorithms through the package, beside the library alone.

Both learn in the same Gymnasium environment with the same parameters and number of steps, with
several seeds each:

* ``curves``: mean return of the training episodes in ten equal parts of the budget, for every
  seed. ``within`` says whether the mean of our seeds' returns in the last three parts lies in the
  range of the library's own seeds, widened by their standard deviation;
* ``speed``: training steps per second of CPU time on CartPole with PPO, without and with the
  store, and their ratio to the library (aim: at least 0.6).

    python tests/benchmarks/rl.py curves cartpole-ppo cartpole-dqn pendulum-sac --picture rl.png
    python tests/benchmarks/rl.py speed [--repeat 5]

The library alone computes with one thread, as a brain does. Rows of ``--out`` (JSON) may be drawn
again with ``--picture``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.monitor import Monitor

from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.simulation.conditions import EpisodeView, TerminationCondition
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import SimulationFlowControl

PARTS = 10
#: how many of the last parts are compared
LAST = 3


@dataclass(frozen=True)
class Task:
    """What is learned, and with what."""

    algorithm: str
    environment: str
    steps: int
    parameters: dict[str, Any]


#: CartPole with DQN needs more than the defaults; these are of the RL Zoo of Stable-Baselines3
TASKS = {
    "cartpole-ppo": Task("PPO", "CartPole-v1", 24_576, {}),
    "cartpole-dqn": Task(
        "DQN",
        "CartPole-v1",
        30_000,
        {
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1000,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04,
            "policy_kwargs": {"net_arch": [128, 128]},
        },
    ),
    "pendulum-sac": Task(
        "SAC", "Pendulum-v1", 6000, {"learning_rate": 1e-3, "policy_kwargs": {"net_arch": [64, 64]}}
    ),
}


class StepBudget(TerminationCondition):
    """Ends the phase after ``steps`` steps in all of its episodes."""

    def __init__(self, steps: int):
        self.left = steps + 1
        self._episode = -1

    def episode_flow_control(self, view: EpisodeView) -> SimulationFlowControl:
        # the first state of an episode is no step
        self.left -= view.episode == self._episode
        self._episode = view.episode
        return SimulationFlowControl.STOP_PHASE if self.left <= 1 else SimulationFlowControl.CONTINUE


def document(task: Task, steps: int, seed: int) -> dict[str, Any]:
    """Return the run document of a task."""
    library = "palaestrai_mosaik.agent.library"
    return {
        "uid": "learning",
        "seed": seed,
        "version": "3.5",
        "schedule": [
            {
                "train": {
                    "environments": [
                        {
                            "environment": {
                                "uid": "world",
                                "name": "palaestrai_mosaik.environment.gymnasium:GymnasiumEnvironment",
                                "params": {"id": task.environment},
                            }
                        }
                    ],
                    "agents": [
                        {
                            "name": "learner",
                            "brain": {
                                "name": f"{library}.sb3:SB3Brain",
                                "params": {
                                    "algorithm": task.algorithm,
                                    "device": "cpu",
                                    "total_timesteps": steps,
                                    **task.parameters,
                                },
                            },
                            "muscle": {"name": f"{library}.sb3:SB3Muscle", "params": {}},
                            "sensors": ["world.observation"],
                            "actuators": ["world.action"],
                        }
                    ],
                    "simulation": {
                        "name": "palaestrai_mosaik.simulation:Vanilla",
                        "conditions": [{"name": f"{__name__}:StepBudget", "params": {"steps": steps}}],
                    },
                    "phase_config": {"mode": "train", "workers": 1, "episodes": steps},
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


Episodes = list[tuple[int, float]]


def through_document(task: Task, steps: int, seed: int, *, stored: bool) -> Episodes:
    """Learn through the package; return the length and return of every episode (if stored)."""
    made = from_mapping(document(task, steps, seed))
    if not stored:
        execute(made)
        return []
    with tempfile.TemporaryDirectory() as folder, Store(folder, create=True) as store:
        execute(made, store=store)
        found = store.episodes("latest")
    return list(zip(found["steps"].tolist(), found["objective_sum"].tolist(), strict=True))


def alone(task: Task, steps: int, seed: int) -> Episodes:
    """Learn with the library alone."""
    world = Monitor(gymnasium.make(task.environment))
    parameters = json.loads(json.dumps(task.parameters))
    model = getattr(stable_baselines3, task.algorithm)
    model("MlpPolicy", world, seed=seed, device="cpu", **parameters).learn(steps)
    return list(zip(world.get_episode_lengths(), world.get_episode_rewards(), strict=True))


def curve(episodes: Episodes, steps: int) -> list[float]:
    """Return the mean return of the episodes that ended in each part of the budget."""
    ends = np.cumsum([length for length, _ in episodes])
    returns = np.array([value for _, value in episodes])
    part = np.minimum((ends - 1) * PARTS // steps, PARTS - 1)
    # in a part in which no episode ended, the one before it goes on
    found: list[float] = []
    for i in range(PARTS):
        mine = returns[part == i]
        found.append(float(mine.mean()) if len(mine) else (found[-1] if found else float(returns[0])))
    return found


def learn(names: list[str], seeds: int, scale: float) -> dict[str, Any]:
    """Learn every task with every seed in both ways; print and return the curves."""
    results: dict[str, Any] = {}
    for name in names:
        task = TASKS[name]
        steps = int(task.steps * scale)
        ours, theirs = [], []
        for seed in range(seeds):
            theirs.append(curve(alone(task, steps, seed), steps))
            ours.append(curve(through_document(task, steps, seed, stored=True), steps))
        results[name] = {"steps": steps, "ours": ours, "alone": theirs}
        print(f"\n{name}: {task.algorithm} on {task.environment}, {steps} steps, {seeds} seeds")
        print(f"{'part':>22}" + "".join(f"{i + 1:8}" for i in range(PARTS)))
        for who, curves in (("alone", theirs), ("through the package", ours)):
            for seed, row in enumerate(curves):
                print(f"{who:>19} {seed:2}" + "".join(f"{value:8.1f}" for value in row))
        ends = {
            who: [float(np.mean(c[-LAST:])) for c in curves] for who, curves in (("a", theirs), ("o", ours))
        }
        spread = statistics.pstdev(ends["a"])
        low, high, mean = min(ends["a"]) - spread, max(ends["a"]) + spread, statistics.mean(ends["o"])
        told = "within" if low <= mean <= high else "NOT within"
        print(
            f"last {LAST} parts: ours {mean:.1f}, alone {statistics.mean(ends['a']):.1f}: {told} {low:.1f} to {high:.1f}"
        )
    return results


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the curves of every task: thin lines are seeds, the thick one is their mean."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(5 * len(results), 3.6), squeeze=False)
    for ax, (name, result) in zip(axes[0], results.items(), strict=True):
        at = (np.arange(PARTS) + 0.5) * result["steps"] / PARTS
        for who, label, colour in (
            ("alone", "Stable-Baselines3", "tab:orange"),
            ("ours", "this package", "tab:blue"),
        ):
            for row in result[who]:
                ax.plot(at, row, color=colour, alpha=0.35, linewidth=1)
            ax.plot(at, np.mean(result[who], axis=0), color=colour, linewidth=2.5, label=label)
        ax.set_title(f"{TASKS[name].environment}, {TASKS[name].algorithm}, {len(result['ours'])} seeds")
        ax.set_xlabel("training steps")
        ax.grid(alpha=0.3)
    axes[0][0].set_ylabel("mean return of training episodes")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def speed(steps: int, repeat: int) -> None:
    """Print training steps per second of CPU time."""
    task = TASKS["cartpole-ppo"]
    cases = {
        "Stable-Baselines3": alone,
        "document": partial(through_document, stored=False),
        "document, store": partial(through_document, stored=True),
    }
    for run in cases.values():
        run(task, 2048, 0)  # imports and caches
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for seed in range(repeat):
        for name, run in cases.items():
            started = process_time()
            run(task, steps, seed)
            rates[name].append(steps / (process_time() - started))
    print(f"PPO on CartPole-v1, {steps} steps, {repeat} times")
    print(f"{'steps/s of CPU time':22}{'median':>9}{'min':>9}{'max':>9}{'of the library':>16}")
    for name, found in rates.items():
        ratio = statistics.median(r / b for r, b in zip(found, rates["Stable-Baselines3"], strict=True))
        print(f"{name:22}{statistics.median(found):9.0f}{min(found):9.0f}{max(found):9.0f}{ratio:16.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("curves", "speed"))
    parser.add_argument("tasks", nargs="*", help=f"of {', '.join(TASKS)} (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of steps")
    parser.add_argument("--steps", type=int, default=8192, help="of speed")
    parser.add_argument("--repeat", type=int, default=5, help="of speed")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--out", type=Path, help="JSON with the curves; tasks in it are kept")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.tasks) - set(TASKS))
    if unknown:
        parser.error(f"no task {unknown[0]!r}; allowed are {', '.join(TASKS)}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if arguments.what == "speed":
        speed(arguments.steps, arguments.repeat)
        return
    results: dict[str, Any] = {}
    if arguments.out is not None and arguments.out.exists():
        results = json.loads(arguments.out.read_text())
    results |= learn(arguments.tasks or list(TASKS), arguments.seeds, arguments.scale)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results))
    if arguments.picture is not None:
        draw(results, arguments.picture)


if __name__ == "__main__":
    main()
