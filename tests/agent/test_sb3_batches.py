"""Learners of Stable-Baselines3 with many bodies: one forward pass, the draws and the learning of each body."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="the extra 'rl' (stable-baselines3) is not installed")

import torch

from palaestrai_mosaik.agent import BatchReadings
from palaestrai_mosaik.agent.library.sb3 import SB3Brain, SB3Muscle
from palaestrai_mosaik.agent.library.sb3.model import networks_of
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.simulation.learner import Learner
from palaestrai_mosaik.types import Box, Discrete, Mode, MultiBinary, MultiDiscrete
from palaestrai_mosaik.types.vectors import Layout
from tests.support.acting import ask

from .test_batch_learning import ANY, body, ready, rows

PAIR = Box([-2.0, 0.0], [2.0, 1.0])
SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [16]}}
OFF: dict[str, Any] = {**SMALL, "batch_size": 8, "learning_starts": 8, "buffer_size": 100}
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "ppo": ("PPO", Discrete(3, start=1), {**SMALL, "n_steps": 8, "batch_size": 8, "n_epochs": 2}),
    "ppo-box": ("PPO", PAIR, {**SMALL, "n_steps": 8, "batch_size": 8, "n_epochs": 2}),
    "ppo-sde": ("PPO", PAIR, {**SMALL, "n_steps": 8, "batch_size": 8, "use_sde": True, "sde_sample_freq": 3}),
    "a2c-multi": ("A2C", MultiDiscrete([2, 3]), {**SMALL, "n_steps": 4}),
    "a2c-binary": ("A2C", MultiBinary(3), {**SMALL, "n_steps": 4}),
    "dqn": ("DQN", Discrete(3), {**OFF, "exploration_fraction": 0.5, "train_freq": 2}),
    "sac": ("SAC", PAIR, {**OFF, "train_freq": 2}),
    "sac-sde": ("SAC", PAIR, {**OFF, "use_sde": True, "train_freq": 4}),
    "td3": ("TD3", PAIR, {**OFF, "train_freq": 2, "action_noise": {"sigma": 0.2}}),
    "ddpg": ("DDPG", PAIR, {**OFF, "action_noise": {"kind": "ornstein_uhlenbeck", "sigma": 0.3}}),
}


def brain(case: str, bodies: int = 3) -> SB3Brain:
    algorithm, space, params = CASES[case]
    made = SB3Brain(algorithm, device="cpu", total_timesteps=400, **params)
    found: SB3Brain = ready(made, [body(n, space=space) for n in range(bodies)])
    return found


def sent(case: str) -> Any:
    """What a muscle would send with a row, drawn at random."""
    algorithm, space, _ = CASES[case]

    def draw(rng: np.random.Generator, b: int, step: int) -> Any:
        if isinstance(space, Box):
            action = rng.uniform(-1, 1, space.size)
        else:
            action = rng.integers(0, 2, space.size).astype(float)
        extra = [rng.standard_normal(), -abs(rng.standard_normal())] if algorithm in ("PPO", "A2C") else []
        return np.concatenate([action, extra]).astype(np.float32)

    return draw


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("case", ["ppo", "a2c-multi", "dqn", "sac"])
def test_a_batch_teaches_what_its_rows_teach(case: str, ahead: bool) -> None:
    """Also with rows whose successor is known only when the body's next row comes."""
    one, other = Learner(brain(case)), Learner(brain(case))
    told: list[Any] = []
    wanted: list[Any] = []
    for tick in rows(60, sent(case), ahead=ahead):
        update, last = one.learn_batch(tick), None
        told += one.statistics_by_muscle.items()
        for experience in tick:
            last = other.learn(experience) or last
            if other.statistics:
                wanted.append((experience.muscle, other.statistics))
        assert (update is None) == (last is None)
        if update is not None and last is not None:
            assert (update.version, update.steps, update.muscles) == (last.version, last.steps, last.muscles)
    assert update_of(one).version > 3
    assert told == wanted and told
    for name, weights in parameters(one).items():
        assert torch.equal(weights, parameters(other)[name]), name


def update_of(learner: Learner) -> Any:
    return learner.shared[1] if learner.shared[1] is not None else learner.brain._update


def parameters(learner: Learner) -> dict[str, torch.Tensor]:
    found = networks_of(learner.brain.algorithm)["parameters"]
    return {f"{net}.{k}": v for net in ("policy",) for k, v in found[net].items()}


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.TEST])
@pytest.mark.parametrize("case", CASES)
def test_a_body_of_many_does_what_it_does_alone(case: str, mode: Mode) -> None:
    """The same draws; the networks' numbers are equal to the rounding of float32."""
    count = 5
    teacher = brain(case, count)
    space = CASES[case][1]
    sensors = Layout([f"e.0.s{i}" for i in range(4)], [ANY] * 4)
    actuators = Layout(["e.0.u"], [space])
    together, singles = SB3Muscle(), [SB3Muscle() for _ in range(count)]
    everyone = [together, *singles]
    rng = np.random.default_rng(2)
    for muscle in everyone:
        muscle.uid, muscle.mode = "a.0.0", mode
        muscle.update(teacher.initial_update())
    for episode in range(2):
        together.rngs = [np.random.default_rng([episode, b]) for b in range(count)]
        for b, muscle in enumerate(singles):
            muscle.rng = np.random.default_rng([episode, b])
        for tick in range(14):
            acting = np.flatnonzero(rng.random(count) < 0.8)
            if tick == 6:
                together.reset_bodies(np.array([1, 3]))
                for b in (1, 3):
                    singles[b].reset()
            if tick == 8:
                # the brain has learned: new weights, and the warm-up is over
                teacher.algorithm.num_timesteps += 60
                with torch.no_grad():
                    for weight in teacher.algorithm.policy.parameters():
                        weight.mul_(1.3)
                teacher._changed()
                for muscle in everyone:
                    muscle.update(teacher._update)
            if not len(acting):
                continue
            readings = rng.standard_normal((len(acting), 4))
            found, data = together.propose_batch(BatchReadings(readings, acting, sensors, actuators))
            for i, b in enumerate(acting):
                wanted, alone = ask(singles[b], sensors, actuators, readings[i])
                assert found[i] == pytest.approx(wanted, rel=1e-5, abs=1e-6), (episode, tick, b)
                if mode is Mode.TRAIN:
                    assert data is not None and data[i].dtype == alone.dtype
                    assert data[i] == pytest.approx(alone, rel=1e-4, abs=1e-5)
        for muscle in everyone:
            muscle.reset()


def test_without_a_model_bodies_act_at_random_or_refuse() -> None:
    muscle = SB3Muscle()
    muscle.rngs = [np.random.default_rng(b) for b in range(3)]
    batch = BatchReadings(
        np.zeros((2, 4)), np.array([0, 2]), Layout(list("wxyz"), [ANY] * 4), Layout(["u"], [PAIR])
    )
    found, data = muscle.propose_batch(batch)
    assert data is None
    for row, b in zip(found, (0, 2), strict=True):
        alone = SB3Muscle()
        alone.rng = np.random.default_rng(b)
        assert row.tolist() == ask(alone, batch.sensors, batch.actuators, np.zeros(4))[0].tolist()
    muscle.mode = Mode.TEST
    with pytest.raises(ContractError, match="has no model to test"):
        muscle.propose_batch(batch)


def test_bodies_of_different_kinds_are_refused_with_what_is_possible() -> None:
    kinds = [body(0), body(1, sensors=6, group=1, environments=("walker",))]
    with pytest.raises(
        ContractError, match=r"body 1 \(walker\) observes and acts in Box of 6 numbers and Discr"
    ) as e:
        ready(SB3Brain("PPO", device="cpu"), kinds)
    assert "CrossEntropyBrain and EvolutionStrategyBrain" in str(e.value)
    # as many numbers, but another range
    with pytest.raises(ContractError, match="all bodies need equal spaces"):
        ready(
            SB3Brain("SAC", device="cpu"),
            [body(0, space=PAIR), body(1, group=1, space=Box(-1, 1, shape=(2,)))],
        )


def test_only_off_policy_learners_train_on_what_others_did() -> None:
    bodies = [body(0), body(1, group=1, environments=("lived",), replayed=True)]
    with pytest.raises(
        ContractError, match=r"body 1 is in lived, which replays.*PPO learns from what its own.*DQN"
    ):
        ready(SB3Brain("PPO", device="cpu"), bodies)
    tested = SB3Brain("PPO", device="cpu")
    tested.mode = Mode.TEST
    ready(tested, bodies)
    # the muscle of body 1 wanted 1 all the time, but 0 was done
    learner = Learner(ready(SB3Brain("DQN", device="cpu", total_timesteps=99, **OFF), bodies))
    for tick in rows(30, lambda rng, b, step: np.array([1.0], np.float32), ahead=True, bodies=2):
        for experience in tick:
            experience.setpoints[:] = experience.actions[:] = 0.0
        learner.learn_batch(tick)
    buffer = learner.brain.algorithm.replay_buffer
    assert set(buffer.actions[: buffer.size()].reshape(-1).tolist()) == {0, 1}
    assert (buffer.actions[: buffer.size()] == 0).sum() == len(learner.brain.tail(99, body=1))


@pytest.mark.parametrize(
    ("algorithm", "params"),
    [
        ("A2C", {**SMALL, "n_steps": 1, "normalize_advantage": True}),
        ("PPO", {**SMALL, "n_steps": 1, "batch_size": 6, "n_epochs": 1}),
        ("DQN", {**OFF, "learning_starts": 0, "train_freq": 1}),
    ],
)
def test_the_first_training_waits_for_the_rows_of_all_bodies(algorithm: str, params: dict[str, Any]) -> None:
    """Three bodies of two workers: a row of each is six rows."""
    made = ready(SB3Brain(algorithm, device="cpu", total_timesteps=99, **params), [body(n) for n in range(3)])
    assert made.algorithm.get_parameters() and made.initial_update().muscles == 6
    trained, train = [], made._train

    def noted(own: Any) -> None:
        trained.append(made.algorithm.num_timesteps)
        train(own)

    made._train = noted
    extra = [] if algorithm == "DQN" else [0.5, -0.7]
    teach(made, rows(9, lambda rng, b, step: np.array([1.0, *extra], np.float32), ahead=True))
    assert trained[:3] == [6, 12, 18]
    weights = made.initial_update().weights
    assert all(np.isfinite(value).all() for value in weights.values())


def teach(learned: Any, ticks: Any) -> None:
    learner = Learner(learned)
    for tick in ticks:
        learner.learn_batch(tick)
