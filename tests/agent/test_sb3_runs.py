"""Stable-Baselines3 as brain and muscle in whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("stable_baselines3", reason="the extra 'rl' (stable-baselines3) is not installed")

from support.sb3_driver import Driver, layouts_of, make_brain

from palaestrai_mosaik.agent.library.sb3 import SB3Muscle
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.environment.gymnasium import GymnasiumEnvironment
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

LIBRARY = "palaestrai_mosaik.agent.library"
SMALL = {"device": "cpu", "policy_kwargs": {"net_arch": [16]}}
PPO = {"algorithm": "PPO", "n_steps": 32, "batch_size": 16, "n_epochs": 2, **SMALL}
CASES = {
    "ppo": ("CartPole-v1", 12, PPO),
    "dqn": ("CartPole-v1", 12, {"algorithm": "DQN", "learning_starts": 20, "total_timesteps": 100, **SMALL}),
    "sac": (
        "Pendulum-v1",
        15,
        {"algorithm": "SAC", "learning_starts": 20, "batch_size": 16, "train_freq": 4, **SMALL},
    ),
}


def document(case: str, config: dict[str, Any], *more: dict[str, Any]) -> Any:
    """Return a document with a training phase of ``case``, and ``more`` phases."""
    env, longest, params = CASES[case]
    return from_mapping(
        {
            "uid": f"learn-{case}",
            "seed": 5,
            "version": "3.5",
            "schedule": [
                {
                    "train": {
                        "environments": [
                            {
                                "environment": {
                                    "uid": "world",
                                    "name": "palaestrai_mosaik.environment.gymnasium:GymnasiumEnvironment",
                                    "params": {"id": env, "kwargs": {"max_episode_steps": longest}},
                                }
                            }
                        ],
                        "agents": [
                            {
                                "name": "learner",
                                "brain": {"name": f"{LIBRARY}.sb3:SB3Brain", "params": params},
                                "muscle": {"name": f"{LIBRARY}.sb3:SB3Muscle", "params": {}},
                                "sensors": ["world.observation"],
                                "actuators": ["world.action"],
                            }
                        ],
                        "simulation": {"name": "palaestrai_mosaik.simulation:Vanilla", "conditions": []},
                        "phase_config": {"mode": "train", "workers": 1, **config},
                    }
                },
                *more,
            ],
            "run_config": {
                "condition": {
                    "name": "palaestrai_mosaik.simulation.conditions:VanillaRunGovernorTerminationCondition",
                    "params": {},
                }
            },
        }
    )


def columns(frame: Any, start: str) -> list[list[float]]:
    return frame[[c for c in frame if c.startswith(start)]].to_numpy().tolist()


@pytest.mark.parametrize("case", ["ppo", "sac"])
def test_train_evaluate_store_and_test(case, tmp_path):
    test = {
        "test": {"agents": [{"name": "learner", "load": {}}], "phase_config": {"mode": "test", "episodes": 1}}
    }
    doc = document(case, {"episodes": 6, "evaluate_every": 3}, test)
    found = []
    for name in ("one", "two"):
        with Store(tmp_path / name, create=True) as store:
            result = execute(doc, store=store)
            # above all, no global randomness
            assert not result.warnings
            statistics = store.statistics("latest", phase="train")
            frames = [
                store.steps("latest", phase="train", agent="learner"),
                store.steps("latest", phase="train", agent="learner", evaluation=True),
                store.steps("latest", phase="test", agent="learner"),
            ]
            streams = store.streams("latest")
            found.append(sorted(streams["digest"].dropna().tolist()))
    assert found[0] == found[1]
    assert {"train/n_updates", "train/learning_rate"} <= set(statistics["key"])
    assert statistics.loc[statistics["key"] == "train/n_updates", "value"].max() > 0
    assert [frame["episode"].nunique() for frame in frames] == [6, 2, 1]
    if case == "sac":
        explored, _, tested = (columns(frame, "setpoint.") for frame in frames)
        assert len({value for (value,) in explored}) == len(explored)
        assert len(tested) == 15


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_the_bare_loop(case, tmp_path):
    """Every set-point of a run is that of the bare loop, which test_sb3 compares with the library."""
    env, longest, params = CASES[case]
    doc = document(case, {"episodes": 6})
    with Store(tmp_path, create=True) as store:
        execute(doc, store=store)
        steps = store.steps("latest", phase="train", agent="learner")
    recorded = columns(steps, "setpoint.")

    kwargs = {"max_episode_steps": longest}
    given = dict(params)
    layouts = layouts_of(GymnasiumEnvironment(env, kwargs).setup())
    brain = make_brain(
        *layouts, seeding.integer_seed(5, "train", "brain", "learner"), given.pop("algorithm"), **given
    )
    muscle = SB3Muscle()
    muscle.update(brain.initial_update())
    bare = Driver(env, brain, muscle, **kwargs)

    def generators(episode: int) -> tuple[Any, Any]:
        path = ("train", "worker", 0, "episode", episode)
        return tuple(
            seeding.generator(5, *path, *of) for of in (("agent", "learner"), ("environment", "world"))
        )

    bare.generators = generators
    bare.begin()
    bare.run(len(recorded))
    assert brain.algorithm._n_updates > 0
    assert bare.setpoints == recorded


def test_two_workers_learn_from_whole_rollouts(tmp_path: Path):
    doc = document("ppo", {"episodes": 8, "workers": 2, "sync_every": 8})
    with Store(tmp_path, create=True) as store:
        result = execute(doc, store=store)
        assert not result.warnings
        statistics = store.statistics("latest", phase="train")
        rows = len(store.steps("latest", phase="train", agent="learner"))
    updates = statistics[statistics["key"] == "train/n_updates"]
    # two epochs each time; 32 rows of each of two muscles, and up to 15 more that were on their way
    assert rows // 79 <= len(updates) <= rows // 64
    assert updates["value"].tolist() == [2.0 * (i + 1) for i in range(len(updates))]
