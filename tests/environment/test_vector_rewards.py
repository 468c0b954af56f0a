"""Environments of Gymnasium and games of PettingZoo that give a vector as their reward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.documents import agent, document, environment, named, phase

gymnasium = pytest.importorskip("gymnasium", reason="Gymnasium is not installed (extra 'rl')")
pettingzoo = pytest.importorskip("pettingzoo", reason="PettingZoo is not installed (extra 'rl')")

from palaestrai_mosaik.core.errors import ContractError  # noqa: E402
from palaestrai_mosaik.environment.copies import Copies  # noqa: E402
from palaestrai_mosaik.environment.gymnasium import GymnasiumEnvironment  # noqa: E402
from palaestrai_mosaik.runner import execute  # noqa: E402
from palaestrai_mosaik.store import Store  # noqa: E402
from palaestrai_mosaik.testing import check_environment  # noqa: E402

HERE = __name__
RANDOM = named("palaestrai_mosaik.agent.library.random_agent:RandomMuscle")


class Two(gymnasium.Env[Any, Any]):
    """Pays the number of the step, and its negative; ends after three steps."""

    observation_space = gymnasium.spaces.Box(0, 3, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        seen = np.full(1, self.count, np.float32)
        return seen, np.array([self.count, -self.count], np.float32), self.count == 3, False, {}


class Declared(Two):
    reward_space = gymnasium.spaces.Box(np.float32([0.0, -3.0]), np.float32([3.0, 0.0]))


class Single(Declared):
    """Has a reward space of one number, and pays it as a vector."""

    reward_space = gymnasium.spaces.Box(0.0, 3.0, (1,))

    def step(self, action: Any) -> Any:
        seen, gains, *rest = super().step(action)
        return seen, gains[:1], *rest


class Weighted(gymnasium.RewardWrapper[Any, Any]):
    """Makes one reward of two, and says so."""

    reward_space = gymnasium.spaces.Box(-np.inf, np.inf, ())

    def reward(self, reward: Any) -> Any:
        return float(reward.sum())


class Undeclared(Weighted):
    reward_space = None


def weighted() -> Any:
    return Weighted(Declared())


def undeclared() -> Any:
    return Undeclared(Declared())


class Pair(pettingzoo.ParallelEnv[str, Any, Any]):
    """Two agents act three times; each is paid in two currencies."""

    metadata = {"name": "pair"}
    possible_agents = ("x", "y")

    def __init__(self, declares: bool = True):
        if declares:
            self.reward_space = lambda agent: gymnasium.spaces.Box(-9.0, 9.0, (2,))

    def observation_space(self, agent: str) -> Any:
        return gymnasium.spaces.Discrete(4)

    def action_space(self, agent: str) -> Any:
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.count = list(self.possible_agents), 0
        return dict.fromkeys(self.agents, 0), {one: {} for one in self.agents}

    def step(self, actions: Any) -> Any:
        self.count += 1
        there, over = self.agents, self.count == 3
        if over:
            self.agents = []
        gains = {one: np.array([self.count, factor * self.count]) for one, factor in (("x", 10), ("y", 20))}
        ends = dict.fromkeys(there, over)
        return (
            dict.fromkeys(there, self.count),
            gains,
            ends,
            dict.fromkeys(there, False),
            {one: {} for one in there},
        )


def steps_of(tmp_path: Path, world: dict[str, Any], sensor: str, actuators: list[str]) -> Any:
    one = agent("a", brain=None, objective=None, muscle=RANDOM, sensors=[sensor], actuators=actuators)
    with Store(tmp_path, create=True) as store:
        execute(document(phase([world], [one])), store=store)
        return store.steps("test", 0, "a")


def gym(name: str) -> dict[str, Any]:
    return environment("w", "gymnasium", id=f"{HERE}:{name}")


def test_a_reward_space_of_several_numbers_gives_several_rewards(tmp_path: Path) -> None:
    steps = steps_of(tmp_path, gym("Declared"), "w.observation", ["w.action"])
    assert steps["reward.w.reward.0"].tolist() == [1.0, 2.0, 3.0]
    assert steps["reward.w.reward.1"].tolist() == [-1.0, -2.0, -3.0]
    assert steps["objective"].tolist() == [0.0] * 3
    assert [str(one.space) for one in GymnasiumEnvironment(f"{HERE}:Declared").setup().rewards] == [
        "Box(low=0.0, high=3.0, shape=(), dtype=float64)",
        "Box(low=-3.0, high=0.0, shape=(), dtype=float64)",
    ]


def test_copies_of_it_give_several_rewards(tmp_path: Path) -> None:
    copies = environment("w", f"{Copies.__module__}:Copies", batch=2)
    copies["environment"]["params"] |= {
        "name": f"{GymnasiumEnvironment.__module__}:GymnasiumEnvironment",
        "params": {"id": f"{HERE}:Declared"},
    }
    steps = steps_of(tmp_path, copies, "w.1.observation", ["w.1.action"])
    assert steps["reward.w.1.reward.1"].tolist() == [-1.0, -2.0, -3.0]


def test_the_contract_of_an_environment_is_kept() -> None:
    check_environment(lambda: GymnasiumEnvironment(f"{HERE}:Declared"), steps=3)


@pytest.mark.parametrize("name", ["Single", "weighted"])
def test_a_single_number_is_one_reward(tmp_path: Path, name: str) -> None:
    steps = steps_of(tmp_path, gym(name), "w.observation", ["w.action"])
    assert steps["reward.w.reward"].tolist() == ([1.0, 2.0, 3.0] if name == "Single" else [0.0] * 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Two", r"w' \(.*:Two\), step: 1 reward declared, others given: .*reward_space = .* \(2,\)\)` .*'reward.0' to 'reward.1'"),
        ("undeclared", r"w' \(.*:Declared\), step: 2 rewards declared, others given: found 0.0, a .*; a wrapper that makes one"),
    ],
)  # fmt: skip
def test_others_than_declared_say_what_to_write(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        steps_of(tmp_path, gym(name), "w.observation", ["w.action"])


def test_a_game_has_several_rewards_for_each_agent(tmp_path: Path) -> None:
    game = environment("w", "pettingzoo", id=f"{HERE}:Pair")
    steps = steps_of(tmp_path, game, "w.x.observation", ["w.x.action", "w.y.action"])
    for name, values in (("x.reward.0", 1.0), ("x.reward.1", 10.0), ("y.reward.1", 20.0)):
        assert steps[f"reward.w.{name}"].tolist() == [values, 2 * values, 3 * values]


def test_a_game_that_declares_no_vector_is_refused_with_the_remedy(tmp_path: Path) -> None:
    game = environment("w", "pettingzoo", id=f"{HERE}:Pair", kwargs={"declares": False})
    with pytest.raises(ContractError, match=r"\(.*:Pair\), step, agent 'x': 1 reward declared, others given"):
        steps_of(tmp_path, game, "w.x.observation", ["w.x.action", "w.y.action"])
