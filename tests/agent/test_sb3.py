"""Stable-Baselines3 as brain and muscle: the same updates as its own loop, and what is around them."""

from __future__ import annotations

# ruff: noqa: NPY002 (global generators are looked at)
import pickle
import random
import tomllib
import warnings
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("stable_baselines3", reason="the extra 'rl' (stable-baselines3) is not installed")

import gymnasium
import stable_baselines3
import torch
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from support.sb3_driver import Driver, TwinMuscle, make_brain

from palaestrai_mosaik.agent import FileBrainDumper, Memory
from palaestrai_mosaik.agent.library.sb3 import SB3Brain, SB3Muscle, policy
from palaestrai_mosaik.agent.library.sb3.buffers import Rollouts, Row, fill_replay, replay_arrays
from palaestrai_mosaik.agent.library.sb3.model import (
    _READS_SAFELY,
    from_bytes,
    networks_of,
    to_bytes,
)
from palaestrai_mosaik.agent.library.sb3.random_states import PrivateRandomness
from palaestrai_mosaik.agent.library.sb3.recipe import make_recipe
from palaestrai_mosaik.agent.library.sb3.spaces import action_space, observation_space
from palaestrai_mosaik.core.errors import BrainDumpError, ContractError
from palaestrai_mosaik.types import Box, Discrete, Mode, MultiBinary, MultiDiscrete
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout, SensorReadings
from tests.support.acting import ask

SMALL = {"policy_kwargs": {"net_arch": [16]}}
ON = {**SMALL, "n_steps": 64}
PPO = {**ON, "batch_size": 32, "n_epochs": 2}
OFF = {**SMALL, "batch_size": 16, "learning_starts": 30, "buffer_size": 100}

#: algorithm, environment, the most steps of an episode, parameters
CASES = {
    "ppo": ("PPO", "CartPole-v1", 15, PPO),
    "a2c": ("A2C", "CartPole-v1", 15, {**SMALL, "n_steps": 5}),
    "ppo-box": ("PPO", "Pendulum-v1", 30, {**PPO, "learning_rate": {"start": 1e-2, "end": 1e-4}}),
    "ppo-sde": ("PPO", "Pendulum-v1", 30, {**PPO, "use_sde": True, "sde_sample_freq": 4}),
    "dqn": ("DQN", "CartPole-v1", 15, {**OFF, "target_update_interval": 30, "exploration_fraction": 0.5}),
    "sac": ("SAC", "Pendulum-v1", 30, {**OFF, "train_freq": 2}),
    "sac-sde": ("SAC", "Pendulum-v1", 30, {**OFF, "use_sde": True, "n_steps": 3, "train_freq": 8}),
    "td3": ("TD3", "Pendulum-v1", 30, {**OFF, "train_freq": 2, "action_noise": {"sigma": 0.1}}),
    "ddpg": (
        "DDPG",
        "Pendulum-v1",
        30,
        {
            **OFF,
            "action_noise": {"kind": "ornstein_uhlenbeck", "sigma": 0.2},
            "train_freq": [1, "episode"],
            "gradient_steps": -1,
        },
    ),
}
STEPS = 128


def cartpole(seed: int = 3, algorithm: str = "PPO", **params: Any) -> SB3Brain:
    return make_brain(*CARTPOLE, seed, algorithm, device="cpu", **params)


CARTPOLE = (
    Layout(["x", "v", "a", "w"], [Box(-np.inf, np.inf, shape=())] * 4),
    Layout(["push"], [Discrete(2)]),
)
PENDULUM = (
    Layout(["observation"], [Box([-1, -1, -8], [1, 1, 8], dtype=np.float32)]),
    Layout(["action"], [Box(-2, 2, shape=(1,), dtype=np.float32)]),
)


def layouts(env: str) -> tuple[Layout, Layout]:
    return CARTPOLE if env.startswith("CartPole") else PENDULUM


def driver(case: str, *, seed: int = 3, twin: bool = True) -> Driver:
    """Return a driver at the beginning of its first episode."""
    algorithm, env, longest, params = CASES[case]
    brain = make_brain(*layouts(env), seed, algorithm, device="cpu", total_timesteps=STEPS, **params)
    muscle = TwinMuscle() if twin else SB3Muscle()
    if isinstance(muscle, TwinMuscle):
        muscle.share(brain)
    muscle.update(brain.initial_update())
    made = Driver(env, brain, muscle, max_episode_steps=longest)
    made.begin(seed)
    return made


def plain(value: Any) -> Any:
    """Return ``value`` with the bytes of its tensors in their stead."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else value


def weights(brain: SB3Brain) -> Any:
    """Return all that an algorithm has learned: networks, optimizers, entropy coefficient."""
    return plain(networks_of(brain.algorithm))


# --- the same as Stable-Baselines3 -------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_whole_trainings_are_bit_identical(case):
    algorithm, env, longest, params = CASES[case]
    ours = driver(case)
    theirs = deepcopy(params)
    if "learning_rate" in theirs:
        theirs["learning_rate"] = stable_baselines3.common.utils.LinearSchedule(1e-2, 1e-4, 1.0)
    if isinstance(theirs.get("train_freq"), list):
        theirs["train_freq"] = tuple(theirs["train_freq"])
    if "action_noise" in theirs:
        kind = NormalActionNoise if case == "td3" else OrnsteinUhlenbeckActionNoise
        theirs["action_noise"] = kind(np.zeros(1), np.full(1, theirs["action_noise"]["sigma"]))
    threads = torch.get_num_threads()
    with PrivateRandomness(0).for_all():
        torch.set_num_threads(1)
        world = gymnasium.make(env, max_episode_steps=longest)
        model = getattr(stable_baselines3, algorithm)("MlpPolicy", world, seed=3, device="cpu", **theirs)
        start = [p.clone() for p in model.policy.parameters()]
        model.learn(STEPS)
    torch.set_num_threads(threads)
    ours.run(model.num_timesteps)

    mine = ours.brain.algorithm
    assert mine._n_updates == model._n_updates > 0
    assert any(not torch.equal(a, b) for a, b in zip(start, model.policy.parameters(), strict=True))
    for name, value in model.policy.state_dict().items():
        assert torch.equal(value, mine.policy.state_dict()[name]), name
    if hasattr(model, "rollout_buffer"):
        names = ("observations", "actions", "rewards", "returns", "advantages", "values", "log_probs")
        theirs_buffer, buffer = model.rollout_buffer, mine.rollout_buffer
    else:
        names = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
        theirs_buffer, buffer = model.replay_buffer, mine.replay_buffer
        assert buffer.full and buffer.pos == theirs_buffer.pos
        assert theirs_buffer.dones.sum() > 0
    for name in names:
        assert np.array_equal(getattr(theirs_buffer, name), getattr(buffer, name)), name
    if algorithm == "DQN":
        assert ours.muscle._update.recipe.exploration_rate(STEPS // 4) == pytest.approx(0.525)


# --- rollouts, by hand -------------------------------------------------------------------


def rows_of(brain: SB3Brain, rewards: list[float], end: str = "", following: bool = True) -> list[Row]:
    """Return rows with observations 0, 1, ... (value 10 each), the last one ended by ``end``."""
    seen = [np.full((1, 4), float(i), dtype=np.float32) for i in range(len(rewards) + 1)]
    data = np.array([1, 10.0, -0.5], dtype=np.float32)
    rows = [Row(seen[i], data, r, False, False, seen[i + 1]) for i, r in enumerate(rewards)]
    rows[-1].terminated, rows[-1].truncated = "terminated" in end, "truncated" in end
    if not following:
        rows[-1].following = None
    return rows


def values(brain: SB3Brain, *states: float) -> list[float]:
    batch = torch.tensor([[s] * 4 for s in states])
    with torch.no_grad():
        return brain.algorithm.policy.predict_values(batch).flatten().tolist()


@pytest.mark.parametrize("end", ["", "terminated", "truncated", "terminated and truncated"])
def test_returns_by_hand(end):
    # gamma 0.5 and lambda 1: the return is the discounted sum of rewards, and of the value where it is cut
    brain = cartpole(**PPO, gamma=0.5, gae_lambda=1.0)
    rollouts = Rollouts()
    for row in rows_of(brain, [1.0, 2.0], end):
        rollouts.add("a", row)
    buffer = rollouts.take(brain.algorithm)
    # the end of the world has no value after it, even if time runs out with it
    cut = 0.0 if "terminated" in end else values(brain, 2)[0]
    second = 2 + 0.5 * cut
    assert buffer.rewards.ravel().tolist() == pytest.approx([1, second if end == "truncated" else 2])
    assert buffer.returns.ravel().tolist() == pytest.approx([1 + 0.5 * second, second])
    assert buffer.advantages.ravel().tolist() == pytest.approx([1 + 0.5 * second - 10, second - 10])
    assert not len(rollouts)


def test_a_row_without_successor_waits_and_serves_as_the_successor():
    brain = cartpole(**PPO, gamma=0.5, gae_lambda=1.0)
    rollouts = Rollouts()
    rows = rows_of(brain, [1.0, 2.0, 4.0], following=False)
    for row in rows:
        rollouts.add("a", row)
    buffer = rollouts.take(brain.algorithm)
    assert buffer.returns.ravel().tolist() == pytest.approx(
        [1 + 0.5 * (2 + 0.5 * values(brain, 2)[0]), 2 + 0.5 * values(brain, 2)[0]]
    )
    assert rollouts.segments["a"].rows == rows[2:] and not rollouts.segments["a"].begins
    assert rollouts.take(brain.algorithm) is None


def test_muscles_may_have_rollouts_of_different_lengths():
    brain = cartpole(**PPO, gamma=0.5, gae_lambda=0.9)
    parts = {"a": rows_of(brain, [1.0, 2.0, 3.0]), "b": rows_of(brain, [5.0], "terminated")}
    together, alone = Rollouts(), []
    for muscle, rows in parts.items():
        single = Rollouts()
        for row in rows:
            together.add(muscle, row)
            single.add(muscle, row)
        alone.append(single.take(brain.algorithm))
    whole = together.take(brain.algorithm)
    assert whole.buffer_size == 4 and whole.full
    for name in ("observations", "returns", "advantages", "episode_starts"):
        assert np.array_equal(getattr(whole, name), np.concatenate([getattr(p, name) for p in alone])), name


def feed(brain: SB3Brain, muscle: str, count: int, *, done: bool = False) -> list[Any]:
    """Let ``brain`` think about ``count`` rows of ``muscle``; return the updates."""
    updates = []
    data = np.array([1, 0.5, -0.7] if brain.recipe.on_policy else [1], dtype=np.float32)
    for i in range(count):
        brain._memory.append(np.full(4, 0.1 * i), np.ones(1), np.ones(1), data, 1.0, muscle=muscle)
        if done and i == count - 1:
            brain._memory.mark_end(
                terminated=True, truncated=False, muscle=muscle, final_observations=np.ones(4)
            )
        updates.append(brain.thinking(muscle, data))
    return updates


def test_a_muscle_that_stopped_blocks_nobody():
    brain = cartpole(**PPO)
    assert feed(brain, "b", 10, done=True) == [None] * 10
    updates = feed(brain, "a", 120)
    # 64 rows for each of two muscles: 10 of b and 118 of a
    assert [i for i, update in enumerate(updates) if update is not None] == [117]
    # the newest row of a waits for its successor
    assert brain.algorithm.rollout_buffer.buffer_size == 127
    assert updates[117].muscles == 2 and updates[117].steps == 128


def test_learning_waits_for_rows_that_are_on_their_way():
    brain = cartpole(**PPO)
    brain.rows_waiting = 1
    assert feed(brain, "a", 70) == [None] * 70
    brain.rows_waiting = 0
    assert feed(brain, "a", 1)[0] is not None
    assert brain.algorithm.rollout_buffer.buffer_size == 70


def returns(buffer: Any) -> list[float]:
    """Return what each row of a replay buffer got in all of its steps, in the order of its first reward."""
    rows = np.argsort(buffer.rewards[: buffer.size(), 0], kind="stable")
    return buffer._get_samples(rows).rewards.ravel().tolist()


def test_returns_over_several_steps_run_along_the_rows_of_each_muscle():
    """Three steps, a discount of 1/2; a buffer of 7 rows forgets the first of a."""
    brain = make_brain(*PENDULUM, 3, "SAC", device="cpu", **{**OFF, "buffer_size": 7}, n_steps=3, gamma=0.5)
    buffer = brain.algorithm.replay_buffer
    given = [("a", 1), ("b", 10), ("a", 2), ("b", 20), ("a", 4), ("c", 300), ("a", 8), ("b", 40)]
    for number, (muscle, reward) in enumerate(given):
        brain._memory.append(
            np.full(3, number / 10), np.zeros(1), np.ones(1), None, float(reward), muscle=muscle
        )
        if reward == 4:
            brain._memory.mark_end(terminated=True, truncated=False, muscle="a")
        brain.next_observations = np.full(3, number / 10 + 0.05)
        brain.thinking(muscle, None)
    found = [2 + 4 / 2, 4, 8, 10 + 20 / 2 + 40 / 4, 20 + 40 / 2, 40, 300]
    assert returns(buffer) == found
    # a ended after 4, so that nothing follows; of b it is known what came after 40
    batch = buffer._get_samples(np.argsort(buffer.rewards[:, 0]))
    assert batch.dones.ravel().tolist() == [1, 1, 0, 0, 0, 0, 0]
    assert np.allclose(batch.next_observations[3:6], 0.75)
    assert np.allclose(batch.discounts.ravel(), [0.25, 0.5, 0.5, 0.125, 0.25, 0.5, 0.5])
    assert returns(pickle.loads(pickle.dumps(brain)).algorithm.replay_buffer) == found
    other = make_brain(*PENDULUM, 3, "SAC", device="cpu", **{**OFF, "buffer_size": 9}, n_steps=3, gamma=0.5)
    fill_replay(other.algorithm.replay_buffer, replay_arrays(buffer))
    assert returns(other.algorithm.replay_buffer) == found


def test_returns_over_several_steps_end_where_a_stored_episode_does():
    """What followed the last row of a truncated episode is not known, so it is left out."""
    brain = cartpole(3, "DQN", **OFF, total_timesteps=99, n_steps=3, gamma=0.5, pretrain_steps=0)
    for reward in (1.0, 100.0):
        for i in range(4):
            brain._memory.append(np.full(4, i), np.ones(1), np.ones(1), None, reward, muscle="replay-0")
        brain._memory.mark_end(terminated=False, truncated=True, muscle="replay-0")
    brain.pretrain()
    assert sorted(returns(brain.algorithm.replay_buffer)) == [1, 1.5, 1.75, 100, 150, 175]


# --- random states -----------------------------------------------------------------------


def test_global_random_states_stay_as_they_are():
    np.random.seed(1)
    np.random.normal()  # numpy now keeps a second deviate
    before = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()
    for case in ("ppo", "sac"):
        driver(case, twin=False).run(80)
    after = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()
    assert before[0] == after[0] and before[3] == after[3]
    assert before[1][2:] == after[1][2:] and np.array_equal(before[1][1], after[1][1])
    assert before[1][3] == 1
    assert torch.equal(before[2], after[2])


@pytest.mark.parametrize("case", ["ppo", "dqn", "sac"])
def test_the_same_seed_gives_the_same_bytes(case):
    first, second, other = (driver(case, seed=seed, twin=False) for seed in (3, 3, 4))
    first.run(80)
    for _ in range(80):
        second.step()
        np.random.random(), torch.rand(1)
    other.run(80)
    assert weights(first.brain) == weights(second.brain) != weights(other.brain)
    assert first.returns == second.returns


@pytest.mark.parametrize("case", ["ppo", "dqn", "sac", "ddpg"])
def test_training_goes_on_after_pickling_as_if_nothing_had_been(case):
    through, stopped = driver(case, twin=False), driver(case, twin=False)
    through.run(100)
    stopped.run(50)
    size = len(pickle.dumps(stopped.brain))
    # the empty part of a replay buffer is not pickled
    assert size < 200_000
    stopped.brain, stopped.muscle = pickle.loads(pickle.dumps((stopped.brain, stopped.muscle)))
    stopped.run(50)
    assert weights(through.brain) == weights(stopped.brain)
    assert through.returns == stopped.returns


def test_a_full_replay_buffer_is_pickled_with_its_position():
    ours = driver("sac", twin=False)
    ours.run(STEPS)
    copy = pickle.loads(pickle.dumps(ours.brain)).algorithm.replay_buffer
    buffer = ours.brain.algorithm.replay_buffer
    assert copy.full and copy.pos == buffer.pos == STEPS - 100
    assert np.array_equal(copy.observations, buffer.observations)


# --- keeping models ----------------------------------------------------------------------


@pytest.mark.parametrize("case", ["ppo", "dqn", "sac"])
def test_a_stored_model_acts_and_learns_on(case, tmp_path):
    first = driver(case)
    first.brain.store_replay_buffer = True
    first.run(130)
    first.brain._dumpers = dumpers = [FileBrainDumper(tmp_path, "run", "phase", "agent")]
    first.brain.store()

    second = driver(case, seed=9)
    second.brain._dumpers, second.brain.store_replay_buffer = dumpers, True
    second.brain.load()
    assert weights(second.brain) == weights(first.brain)
    assert second.brain.initial_update().recipe.warm_up == 0
    if case != "ppo":
        one, two = first.brain.algorithm.replay_buffer, second.brain.algorithm.replay_buffer
        assert two.full and np.array_equal(np.roll(one.actions, -one.pos, axis=0), two.actions)

    muscle = SB3Muscle()
    muscle._dumpers, muscle.mode, muscle.rng, muscle.uid = dumpers, Mode.TEST, np.random.default_rng(0), "m"
    muscle.prepare_model()
    first.muscle.mode = Mode.TEST
    for number in range(5):
        readings = np.random.default_rng(number).normal(size=first.sensors.size)
        answers = []
        for actor in (first.muscle, muscle):
            actuators, data = actor.propose_actions(
                SensorReadings(first.sensors, readings), ActuatorSetpoints(first.actuators)
            )
            assert data is None
            answers.append(actuators.vector.tolist())
        expected = first.brain.algorithm.predict(readings.astype(np.float32), deterministic=True)[0]
        assert answers[0] == answers[1] == expected.reshape(-1).tolist()


def test_a_model_of_another_kind_is_refused(tmp_path):
    brain = cartpole(**PPO)
    brain._dumpers = [FileBrainDumper(tmp_path, "run", "phase", "agent")]
    brain.store()
    others = {
        "has algorithm PPO instead of A2C": cartpole(algorithm="A2C", **ON),
        "has observations Box of 4 numbers instead of Box of 3 numbers, actions Discrete": make_brain(
            *PENDULUM, 1, "PPO", **PPO
        ),
        "(?s)of other networks than this agent's.*size mismatch": cartpole(n_steps=64),
    }
    for message, other in others.items():
        other._dumpers = brain._dumpers
        with pytest.raises(BrainDumpError, match=message):
            other.load()


class Bomb:
    """Is dangerous to unpickle."""

    def __reduce__(self) -> Any:
        return (exec, ("import builtins; builtins.exploded = True",))


@pytest.mark.parametrize(
    ("tag", "content"),
    [
        ("", b"{"),
        ("", b"[]"),
        ("", b'{"format": "x"}'),
        ("", b'{"format": "sb3-1"}'),
        ("", b'{"format": "sb3-1", "recipe": 3, "observations": "", "actions": ""}'),
        ("", b'{"format": "sb3-1", "recipe": {"epsilon": null}, "observations": "", "actions": ""}'),
        (
            "",
            b'{"format": "sb3-1", "recipe": {"algorithm": "X", "epsilon": null, "rollout": [0, "step"]}, '
            b'"observations": "", "actions": ""}',
        ),
        ("networks", None),
    ],
)
def test_a_strange_dump_is_refused_and_never_executed(tag, content, tmp_path):
    brain = cartpole(**PPO)
    dumper = FileBrainDumper(tmp_path, "run", "phase", "agent")
    brain._dumpers = [dumper]
    brain.store()
    stream = BytesIO(content or b"")
    if content is None:
        torch.save({"parameters": Bomb()}, stream)
        stream.seek(0)
    dumper.save(stream, tag)
    with pytest.raises(BrainDumpError, match=r"SB3Brain|the networks cannot be read"):
        brain.load()
    assert "exploded" not in vars(__import__("builtins"))


@pytest.mark.parametrize("content", [3, [1.0], {"a": 1}])
def test_a_policy_that_is_none_is_refused(content, tmp_path):
    brain = cartpole(**PPO)
    dumper = FileBrainDumper(tmp_path, "run", "phase", "agent")
    brain._dumpers = [dumper]
    brain.store()
    for tag in ("acting", "networks"):
        stream = BytesIO()
        torch.save(content, stream)
        stream.seek(0)
        dumper.save(stream, tag)
    muscle = SB3Muscle()
    muscle._dumpers = brain._dumpers
    with pytest.raises(BrainDumpError, match="weights are no mapping of tensors"):
        muscle.prepare_model()
    with pytest.raises(BrainDumpError, match="of other networks"):
        brain.load()


# --- acting ------------------------------------------------------------------------------


def act(muscle: SB3Muscle, sensors: Layout, actuators: Layout, readings: Any = None) -> tuple[Any, Any]:
    readings = np.zeros(sensors.size) if readings is None else readings
    return ask(muscle, sensors, actuators.bound(muscle.rng), readings)


def muscle_of(brain: SB3Brain | None = None, mode: Mode = Mode.TRAIN) -> SB3Muscle:
    muscle = SB3Muscle()
    muscle.uid, muscle.mode, muscle.rng = "learner.0", mode, np.random.default_rng(5)
    if brain is not None:
        muscle.update(brain.initial_update())
    return muscle


def test_without_a_model_a_muscle_acts_at_random_but_cannot_be_tested():
    muscle = muscle_of()
    found = {act(muscle, *CARTPOLE)[0].item() for _ in range(20)}
    assert found == {0.0, 1.0}
    brain = cartpole(**PPO)
    brain._memory.append(np.zeros(4), np.zeros(1), np.ones(1), None, 1.0)
    # such a row is not learned from, but answered with a model
    assert brain.thinking("learner.0", None).version == 1
    assert not brain._rollouts
    muscle.mode = Mode.TEST
    with pytest.raises(
        ContractError, match=r"'learner.0' has no model to test: give its agent the key 'load'"
    ):
        act(muscle, *CARTPOLE)


def test_no_exploration_in_test_mode():
    brain = make_brain(*PENDULUM, 3, "SAC", **OFF)
    train, test = muscle_of(brain), muscle_of(brain, Mode.TEST)
    assert len({act(train, *PENDULUM)[0].item() for _ in range(10)}) == 10
    assert len({act(test, *PENDULUM)[0].item() for _ in range(10)}) == 1


@pytest.mark.parametrize("layouts", [CARTPOLE, PENDULUM], ids=["categorical", "normal"])
def test_a_policy_without_numbers_is_said_in_torchs_words(layouts):
    brain = make_brain(*layouts, 3, "PPO", device="cpu", **PPO)
    muscle, update = muscle_of(brain), brain.initial_update()
    weights = {name: np.full_like(value, np.nan) for name, value in update.weights.items()}
    muscle.update(replace(update, version=7, weights=weights))
    with pytest.raises(ValueError, match="to satisfy the constraint"):
        act(muscle, *layouts)
    assert torch.distributions.Distribution._validate_args is True
    # and the policy that it had draws as if nothing had been
    muscle.update(replace(update, version=8))
    assert np.isfinite(act(muscle, *layouts)[0]).all()


@pytest.mark.parametrize("layouts", [CARTPOLE, PENDULUM], ids=["categorical", "normal"])
def test_a_step_with_checks_is_the_same(layouts, monkeypatch):
    def drawn():
        muscle = muscle_of(make_brain(*layouts, 3, "PPO", device="cpu", **PPO))
        return [[part.tolist() for part in act(muscle, *layouts)] for _ in range(20)]

    expected, asked = drawn(), []
    monkeypatch.setattr(policy, "_unchecked", lambda: nullcontext(asked.append(True)))
    assert drawn() == expected
    assert len(asked) == 20


@pytest.mark.parametrize(
    "spaces",
    [
        [Discrete(3, start=-1)],
        [Discrete(2), Discrete(4, start=2)],
        [MultiDiscrete([[2, 3], [4, 5]]), Discrete(2)],
        [MultiBinary(3), MultiBinary([2, 2])],
        [Box(0, 0.1, shape=()), Box([-1, 3], [1, 30]), Box(-2, 2, shape=(2, 2))],
    ],
    ids=str,
)
def test_actuators_of_all_kinds(spaces):
    actuators = Layout([f"u{i}" for i in range(len(spaces))], spaces)
    sensors = Layout(["s", "d"], [Box(0, 1, shape=(2,)), Discrete(3)])
    brain = make_brain(sensors, actuators, 3, "PPO", device="cpu", **{**PPO, "n_steps": 16, "batch_size": 16})
    muscle = muscle_of(brain)
    seen = set()
    for _ in range(40):
        vector, data = act(muscle, sensors, actuators, np.array([0.5, 0.2, 2.0]))
        seen.add(tuple(vector))
        brain._memory.append(np.zeros(3), vector, np.ones(1), data, 1.0, muscle="m")
        update = brain.thinking("m", data)
        if update is not None:
            muscle.update(update)
    assert brain.algorithm._n_updates == 4
    # actions are drawn over all of the space
    reached = np.array(list(seen))
    if not isinstance(spaces[0], Box):
        assert np.array_equal(reached.min(axis=0), actuators.low)
        assert np.array_equal(reached.max(axis=0), actuators.high)


@pytest.mark.parametrize("space", [Discrete(5, start=2), MultiDiscrete([3, 4]), MultiBinary(3)], ids=str)
def test_a_single_finite_sensor_is_one_hot(space):
    sensors = Layout(["s"], [space])
    brain = make_brain(sensors, CARTPOLE[1], 3, "DQN", total_timesteps=50, **OFF)
    muscle = muscle_of(brain)
    for _ in range(60):
        readings = space.flatten(space.sample(muscle.rng))
        vector, data = act(muscle, sensors, CARTPOLE[1], readings)
        brain._memory.append(readings, vector, np.ones(1), data, 1.0, muscle="m")
        update = brain.thinking("m", data)
        if update is not None:
            muscle.update(update)
    assert brain.algorithm._n_updates > 0
    width = {Discrete: 5, MultiDiscrete: 7, MultiBinary: 3}[type(space)]
    assert brain.algorithm.q_net.features_extractor.features_dim == width


@settings(max_examples=60)
@given(
    low=st.floats(-1e6, 1e6),
    width=st.floats(1e-2, 1e6),
    action=st.floats(-1e9, 1e9, width=32),
)
def test_float32_never_leads_out_of_a_space(low, width, action):
    box = Box(low, low + width + 0.1 * abs(low), shape=())
    space = action_space([box], ["u"])
    for value in (action, space.space.low, space.space.high):
        vector = space.setpoints(np.clip(np.float32(value), space.space.low, space.space.high))
        assert box.contains(vector.item())


# --- mistakes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spaces", "message"),
    [
        ([Box(-np.inf, np.inf, shape=())], "actuator 'u0': actions need finite bounds"),
        ([Box(1, 1, shape=())], "need low < high"),
        ([Box(0, 5, shape=(), dtype=np.int64)], "no actions in Box.*allowed are Box of floats"),
        (
            [Box(0, 5, shape=()), Discrete(2)],
            "actuators of one kind, but found 'u0' in Box.*'u1' in Discrete",
        ),
        ([], "nothing to do"),
    ],
)
def test_actuators_that_cannot_be_learned(spaces, message):
    with pytest.raises(ContractError, match=message):
        action_space(spaces, [f"u{i}" for i in range(len(spaces))])


def test_an_agent_without_sensors_cannot_learn():
    with pytest.raises(ContractError, match="nothing to learn from"):
        observation_space([])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"algorithm": "PP0"}, r"no algorithm 'PP0' \(did you mean 'PPO'\?\); allowed are PPO, A2C"),
        (
            {"algorithm": "PPO", "lerning_rate": 1},
            r"no parameter 'lerning_rate' here \(did you mean 'learning_rate'",
        ),
        ({"algorithm": "PPO", "seed": 1}, "no parameter 'seed' here"),
        ({"algorithm": "PPO", "policy": "CnnPolicy"}, "must be 'MlpPolicy'"),
        ({"algorithm": "PPO", "total_timesteps": 0}, "at least 1, not 0"),
        ({"algorithm": "TD3", "action_noise": 0.1}, "action_noise must be a mapping"),
        ({"algorithm": "TD3", "action_noise": {"kind": "norml"}}, r"no kind 'norml' \(did you mean 'normal'"),
        (
            {"algorithm": "PPO", "policy_kwargs": {"features_extractor_class": dict}},
            "must be made of numbers",
        ),
        ({"algorithm": "PPO", "policy_kwargs": "abc"}, "policy_kwargs must be a mapping, not 'abc'"),
        ({"algorithm": "DQN", "learning_starts": "abc"}, "learning_starts must be .* at least 0, not 'abc'"),
        ({"algorithm": "DQN", "train_freq": [4]}, r"train_freq must be .*, not \[4\]"),
        ({"algorithm": "DQN", "train_freq": 0}, "train_freq must be .*, not 0"),
        ({"algorithm": "DQN", "train_freq": -1}, "train_freq must be .*, not -1"),
        ({"algorithm": "DQN", "buffer_size": 0}, "buffer_size must be a whole number of at least 1, not 0"),
        ({"algorithm": "DQN", "batch_size": None}, "batch_size must be .*, not None"),
        ({"algorithm": "PPO", "n_steps": 0}, "n_steps must be .*, not 0"),
        ({"algorithm": "DQN", "exploration_fraction": 1.5}, "exploration_fraction must be .* from 0 to 1"),
        ({"algorithm": "SAC", "pretrain_steps": "a"}, "pretrain_steps must be .*, not 'a'"),
        ({"algorithm": "TD3", "action_noise": {"sigma": -1}}, "sigma must be .* at least 0, not -1"),
        ({"algorithm": "TD3", "action_noise": {"sigma": "x"}}, "sigma must be a finite number.*'x'"),
        ({"algorithm": "TD3", "action_noise": {"mean": np.inf}}, "mean must be a finite number, not inf"),
    ],
)
def test_mistaken_parameters(params, message):
    with pytest.raises(ContractError, match=message):
        SB3Brain(**params)


@pytest.mark.parametrize(
    ("algorithm", "params", "message"),
    [
        ("SAC", {}, r"SAC has no actions in Discrete\(2\); it takes Box"),
        (
            "PPO",
            {"policy_kwargs": {"activation_fn": "Rellu"}},
            r"torch.nn has no 'Rellu' \(did you mean 'relu'",
        ),
        ("PPO", {"batch_size": 1}, "Stable-Baselines3 refuses the parameters of PPO: `batch_size`"),
        ("PPO", {"learning_rate": {"from": 1}}, "learning_rate must be a number or have the keys start, end"),
        ("DQN", {"train_freq": [1, "epsiode"]}, "train_freq must be .*epsiode"),
        (
            "PPO",
            {"learning_rate": {"start": 1, "end": 0, "fraction": 0}},
            "learning_rate: fraction must be above 0",
        ),
        ("PPO", {"device": "cudaa"}, "device: 'cudaa' is none; allowed are auto, cpu, cuda"),
        ("PPO", {"device": "cuda:99"}, "device: 'cuda:99' is not there"),
    ],
)
def test_mistakes_that_show_at_setup(algorithm, params, message):
    with pytest.raises(ContractError, match=message):
        make_brain(*CARTPOLE, 3, algorithm, total_timesteps=9, **params)


def test_schedules_need_the_number_of_steps():
    with pytest.warns(UserWarning, match="DQN: the exploration rate cannot change over time without"):
        make_recipe("DQN", "MlpPolicy", {}, None)
    with pytest.warns(UserWarning, match="PPO: clip_range cannot"):
        make_recipe("PPO", "MlpPolicy", {"clip_range": {"start": 1, "end": 0}}, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_recipe("DQN", "MlpPolicy", {"exploration_final_eps": 1.0}, None)
        recipe = make_recipe("DQN", "MlpPolicy", {}, 1000)
    # from 1 to 0.05 in the first tenth
    assert [recipe.exploration_rate(n) for n in (0, 50, 100, 5000)] == pytest.approx([1, 0.525, 0.05, 0.05])


def test_a_row_without_objective_is_refused():
    brain = cartpole(**PPO)
    brain._memory.append(np.zeros(4), np.zeros(1), np.ones(1), np.zeros(3, np.float32), muscle="m")
    with pytest.raises(
        ContractError, match="objective of agent 'learner' gave no value for a row; PPO needs one"
    ):
        brain.thinking("m", np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("readings", "objective", "following", "message"),
    [
        ([0, np.nan, 0, 0], 1.0, None, "'m' reads nan from sensor 'v'; DQN needs finite numbers"),
        ([0, 0, 0, -np.inf], 1.0, None, "'m' reads -inf from sensor 'w'"),
        ([1e39, 0, 0, 0], 1.0, None, r"'m' reads 1e\+39 from sensor 'x'.*float32"),
        ([0, 0, 0, 0], np.inf, None, "objective of agent 'learner' gave the value inf for a row"),
        ([0, 0, 0, 0], -1e39, None, r"gave the value -1e\+39 for a row; DQN needs one that is finite"),
        ([0, 0, 0, 0], 1.0, [0, 0, np.nan, 0], "'m' reads nan from sensor 'a'"),
    ],
)
def test_a_row_that_would_spoil_the_weights_is_refused(readings, objective, following, message):
    brain = cartpole(algorithm="DQN", **OFF, total_timesteps=9)
    data = np.ones(1, np.float32)
    brain._memory.append(np.array(readings, float), np.ones(1), np.ones(1), data, objective, muscle="m")
    brain.next_observations = None if following is None else np.array(following, float)
    with pytest.raises(ContractError, match=message):
        brain.thinking("m", data)


def test_what_follows_the_end_of_the_world_may_be_nan():
    brain = cartpole(algorithm="DQN", **OFF, total_timesteps=9)
    data = np.ones(1, np.float32)
    brain._memory.append(np.full(4, 0.5), np.ones(1), np.ones(1), data, 1.0, muscle="m")
    brain.next_observations = np.full(4, np.nan)
    brain._memory.mark_end(terminated=True, truncated=False, final_observations=brain.next_observations)
    brain.thinking("m", data)
    buffer = brain.algorithm.replay_buffer
    assert buffer.pos == 1 and buffer.dones[0, 0] == 1.0
    assert buffer.next_observations[0].tolist() == [[0.5] * 4]


def test_an_exploration_that_ends_at_once():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        brain = cartpole(algorithm="DQN", **OFF, exploration_fraction=0, exploration_final_eps=0.25)
    assert brain.recipe.exploration_rate(0) == 0.25
    feed(brain, "a", 5)
    assert brain.algorithm.exploration_rate == 0.25


def test_a_loaded_model_does_not_explore_anew(tmp_path):
    given = {**OFF, "total_timesteps": 100, "exploration_fraction": 0.5}
    brain = cartpole(algorithm="DQN", **given)
    brain._dumpers = [FileBrainDumper(tmp_path, "run", "phase", "agent")]
    brain.store()
    for more, rates in (({}, [0.05, 0.05]), ({"exploration_initial_eps": 0.65}, [0.65, 0.35])):
        other = cartpole(algorithm="DQN", **given, **more)
        other._dumpers = brain._dumpers
        other.load()
        recipe = other.initial_update().recipe
        assert [recipe.exploration_rate(n) for n in (0, 25)] == pytest.approx(rates)
        feed(other, "a", 26)
        assert other.algorithm.exploration_rate == pytest.approx(rates[1], abs=0.02)


def test_an_update_of_another_brain_is_refused():
    with pytest.raises(ContractError, match="needs the brain SB3Brain; it got the update 3"):
        SB3Muscle().update(3)


# --- offline -----------------------------------------------------------------------------


def test_an_off_policy_algorithm_learns_from_stored_rows():
    brain = make_brain(*PENDULUM, 3, "SAC", **OFF, pretrain_steps=7)
    memory: Memory = brain._memory
    for i in range(20):
        memory.append(np.full(3, 0.01 * i), np.array([0.5]), np.ones(1), None, 2.0, muscle="replay-0")
        if i == 9:
            memory.mark_end(terminated=False, truncated=True)
    before = weights(brain)
    brain.pretrain()
    # what followed the rows 9 (truncated) and 19 (the last one) is not known
    buffer = brain.algorithm.replay_buffer
    assert buffer.pos == 18
    assert buffer.actions.ravel()[:18].tolist() == [0.25] * 18
    assert np.allclose(buffer.next_observations[8, 0], 0.09)
    assert brain.algorithm._n_updates == 7 and weights(brain) != before
    assert brain.initial_update().version == 2


def test_a_stored_row_without_an_action_is_named():
    brain = make_brain(*PENDULUM, 3, "SAC", **OFF)
    brain._memory.append(np.zeros(3), np.array([np.nan]), np.ones(1), None, 2.0, muscle="replay-0")
    with pytest.raises(ContractError, match="in which 'replay-0' left actuator 'action' alone"):
        brain.pretrain()


def test_the_memory_has_room_for_what_the_replay_buffer_takes():
    sizes = [
        cartpole(algorithm="DQN", **{**OFF, "buffer_size": n}, total_timesteps=9).memory.size_limit
        for n in (100, 150_000)
    ]
    assert sizes == [100_000, 150_000]


def test_an_on_policy_algorithm_cannot():
    with pytest.raises(
        ContractError, match="PPO learns from what its own policy does, and cannot use 'replay'"
    ):
        cartpole(**PPO).pretrain()


@pytest.mark.parametrize(
    ("release", "taken"),
    [("2.3.0", False), ("2.6.0", False), ("2.9.1+cpu", False), ("2.10.0", True), ("3.0.0a1", True)],
)
def test_a_release_of_torch_that_runs_what_is_in_a_model_is_not_asked(release, taken, monkeypatch) -> None:
    """CVE-2025-32434 and CVE-2026-24747: ``weights_only`` does not hold there what it says."""
    dumped = to_bytes({"weights": torch.zeros(2)})
    monkeypatch.setattr(torch, "__version__", release)
    if taken:
        assert from_bytes(dumped, "the model", "cpu")["weights"].tolist() == [0.0, 0.0]
        return
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch must not see it"))
    with pytest.raises(
        BrainDumpError, match=r"the model is not read with torch .*CVE-2025-32434.*pip install"
    ):
        from_bytes(dumped, "the model", "cpu")


def test_no_release_of_torch_is_installed_that_does_not_read_models() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    (least,) = [one for one in extras["project"]["optional-dependencies"]["rl"] if one.startswith("torch")]
    assert least == f"torch>={_READS_SAFELY[0]}.{_READS_SAFELY[1]}"
