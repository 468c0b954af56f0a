"""Agents that learn with many bodies, in whole runs: alike ones, and ones of different kinds."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.agent.dumper import FileBrainDumper
from palaestrai_mosaik.agent.library.search import read_searches
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment.batch import Arrays, BatchEnvironment
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import Box
from palaestrai_mosaik.types.arrays import IndexVector
from tests.support.documents import ENVIRONMENT_ENDS, document, environment, named, phase

LIBRARY = "palaestrai_mosaik.agent.library"
CARTPOLE = "palaestrai_mosaik.environment.cartpole:BatchCartPole"
PENDULUM = "palaestrai_mosaik.environment.pendulum:BatchPendulum"
#: what a linear policy should answer to the only observation, which is 1
TARGET = np.array([0.3, -0.6, 0.8, 0.1, -0.2])


class Spheres(BatchEnvironment):
    """One step; the reward is minus the squared distance of the ``size`` set-points from ``TARGET``."""

    def __init__(self, batch: int = 1, first: int = 0, size: int = 3):
        super().__init__(batch=batch, first=first, max_steps=1)
        self.size = size
        self.observation_shapes = ((size - 1,),)
        self.action_shapes = ((size,),)
        self.action_dtypes = (np.float64,)

    def get_action_spaces(self) -> Any:
        return [Box(-1.0, 1.0, shape=(self.size,))]

    def get_action_results(self, last_states: Arrays, actions: Arrays) -> tuple[Arrays, Arrays]:
        return [last_states[0].copy()], [np.zeros((self.batch, self.size - 1))]

    def get_first_states(self, incarnations: IndexVector) -> tuple[Arrays, Arrays]:
        return [np.zeros(len(incarnations))], [np.zeros((len(incarnations), self.size - 1))]

    def get_rewards(self, last_states: Arrays, actions: Arrays, new_states: Arrays) -> Any:
        return -((actions[0] - TARGET[: self.size]) ** 2).sum(axis=1)


def learning(
    environments: list[Any], bodies: list[Any], brain: Any, muscle: Any, own: int, **agent: Any
) -> Any:
    """A document whose environments begin again until each has had ``own`` episodes."""
    keys = {"name": "a", "brain": brain, "muscle": muscle, "bodies": bodies, **agent}
    ends = [named(ENVIRONMENT_ENDS, when="all", episodes=own)]
    return document(phase(environments, [keys], conditions=ends))


@pytest.mark.parametrize(
    "brain",
    [
        named(f"{LIBRARY}.cross_entropy:CrossEntropyBrain", population=24, elites=6, smoothing=0.8),
        named(
            f"{LIBRARY}.evolution_strategy:EvolutionStrategyBrain",
            population=24, learning_rate=0.05,
        ),
    ],
    ids=["cross-entropy", "evolution strategy"],
)  # fmt: skip
def test_one_agent_learns_two_tasks_of_different_sizes(brain: Any, tmp_path: Path) -> None:
    """Eight bodies with 2 readings and 3 set-points, and four with 4 and 5, at the same time."""
    worlds = [
        environment("small", f"{__name__}:Spheres", batch=8, size=3),
        environment("large", f"{__name__}:Spheres", batch=4, size=5),
    ]
    bodies = [{"environment": "small", "count": 8}, {"environment": "large", "count": 4}]
    gradient = "evolution" in brain["name"]
    std = 0.1 if gradient else 0.5
    muscle = named(f"{LIBRARY}.cross_entropy:CrossEntropyMuscle", std=std)
    with Store(tmp_path, create=True) as store:
        result = execute(learning(worlds, bodies, brain, muscle, 420), store=store)
        steps = store.steps("latest", phase="phase_0", agent="a", environment="large")
    assert len(steps) == 4 * 420
    assert result.directory is not None
    dumper = FileBrainDumper(result.directory / "brains", "test", "phase_0", "a")
    searches = list(read_searches([dumper], "a").values())
    # the observations are 0, so the answer is what is added last: the biases
    found = sorted((search.mean[-size:] for search, size in zip(searches, (3, 5), strict=True)), key=len)
    for biases, size in zip(found, (3, 5), strict=True):
        assert np.clip(biases, -1, 1) == pytest.approx(TARGET[:size], abs=0.15 if gradient else 0.05)


def test_searches_of_alike_bodies_do_not_depend_on_how_they_are_written(tmp_path: Path) -> None:
    """As one entry, which is stepped as arrays, and as an entry for each of them."""
    brain = named(f"{LIBRARY}.cross_entropy:CrossEntropyBrain", population=4, elites=2)
    muscle = named(f"{LIBRARY}.cross_entropy:CrossEntropyMuscle", hidden=[3], std=0.7)
    outcomes = []
    for i, bodies in enumerate(
        ([{"environment": "p", "count": 5}], [{"environment": "p", "first": k} for k in range(5)])
    ):
        worlds = [environment("p", CARTPOLE, batch=5, max_steps=30)]
        with Store(tmp_path / str(i), create=True) as store:
            execute(learning(worlds, bodies, brain, muscle, 6), store=store)
            steps = store.steps("latest", phase="phase_0", agent="a")
            told = store.statistics("latest")
        steps = steps.sort_values(["body", "step"], kind="stable")
        outcomes.append(
            (
                steps[["body", "environment_episode", "step", "time"]].to_numpy().tolist(),
                told["value"].tolist(),
            )
        )
    assert outcomes[0] == outcomes[1] and len(outcomes[0][1]) > 20


def test_filters_need_bodies_of_one_size_with_equal_filters() -> None:
    worlds = [environment("p", PENDULUM, batch=2), environment("c", CARTPOLE, batch=2)]
    brain = named(f"{LIBRARY}.cross_entropy:CrossEntropyBrain")
    muscle = named(f"{LIBRARY}.cross_entropy:CrossEntropyMuscle")
    norm = [named("palaestrai_mosaik.agent.filters.norm:NormFilter")]
    bodies = [{"environment": "p", "count": 2}, {"environment": "c", "count": 2}]
    with pytest.raises(ContractError, match="body 2 reads and sets 4 and 1 numbers, body 0 3 and 1"):
        execute(learning(worlds, bodies, brain, muscle, 1, filters=norm))
    bodies = [{"environment": "p"}, {"environment": "p", "first": 1, "filters": norm}]
    with pytest.raises(ContractError, match="body 1 has other filters than body 0"):
        execute(learning(worlds, bodies, brain, muscle, 1))


def test_eight_bodies_with_one_network_learn(tmp_path: Path) -> None:
    """A body that has ended has no row for a tick, and all of them make one rollout."""
    pytest.importorskip("stable_baselines3", reason="the extra 'rl' (stable-baselines3) is not installed")
    brain = named(
        f"{LIBRARY}.sb3:SB3Brain",
        algorithm="PPO", device="cpu", n_steps=16, batch_size=64, n_epochs=8, learning_rate=2e-2,
        policy_kwargs={"net_arch": [], "log_std_init": -1.0},
    )  # fmt: skip
    worlds = [environment("s", f"{__name__}:Spheres", batch=8, size=3)]
    bodies = [{"environment": "s", "count": 8}]
    run = learning(worlds, bodies, brain, named(f"{LIBRARY}.sb3:SB3Muscle"), 400)
    with Store(tmp_path, create=True) as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        execute(run, store=store)
        steps = store.steps("latest", phase="phase_0", agent="a")
        told = store.statistics("latest")
    assert len(steps) == 8 * 400
    # each training is of 8 times 16 rows
    assert (told["key"] == "train/loss").sum() == len(steps) // 128
    done = steps[[c for c in steps if c.startswith("setpoint.")]].to_numpy()
    assert np.abs(done[:400].mean(axis=0) - TARGET[:3]).max() > 0.3
    assert done[-400:].mean(axis=0) == pytest.approx(TARGET[:3], abs=0.1)
