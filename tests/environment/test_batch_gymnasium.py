"""The vectorised classic-control tasks agree with Gymnasium's, whatever the size of the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import documents as d
from support.batches import begun, set_up

pytest.importorskip("gymnasium", reason="the extra 'rl' (gymnasium) is not installed")

import gymnasium

from palaestrai_mosaik.environment.batch import BatchEnvironment, BatchStepper
from palaestrai_mosaik.environment.cartpole import BatchCartPole
from palaestrai_mosaik.environment.gymnasium import GymnasiumEnvironment
from palaestrai_mosaik.environment.pendulum import BatchPendulum
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store


def states(stepper: BatchStepper) -> np.ndarray:
    return np.stack(stepper.states, axis=1)


def torques(stepper: BatchStepper, rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(-2.5, 2.5, (stepper.environment.batch, 1)).astype(np.float32)


def pushes(stepper: BatchStepper, rng: np.random.Generator) -> np.ndarray:
    """Half of the carts balance their poles, the others push at random."""
    chosen = rng.integers(0, 2, (stepper.environment.batch, 1))
    balances = (states(stepper) @ [0.1, 0.5, 1.0, 1.0] > 0).astype(int)
    half = len(chosen) // 2
    chosen[:half, 0] = balances[:half]
    return chosen


@pytest.mark.parametrize(
    ("make", "id", "kwargs", "choose"),
    [
        (BatchPendulum, "Pendulum-v1", {}, torques),
        (BatchPendulum, "Pendulum-v1", {"g": 9.81}, torques),
        (BatchCartPole, "CartPole-v1", {}, pushes),
        (BatchCartPole, "CartPole-v1", {"sutton_barto_reward": True}, pushes),
    ],
)
def test_it_agrees_with_gymnasium_until_the_last_one_has_ended(make, id, kwargs, choose):
    batch = 8
    stepper = begun(make(batch, **kwargs))
    rng = np.random.default_rng(2)
    worlds = [gymnasium.make(id, **kwargs) for _ in range(batch)]
    running = dict(enumerate(worlds))
    for k, world in running.items():
        world.reset()
        world.unwrapped.state = states(stepper)[k]
    ends = []
    while running:
        actions = choose(stepper, rng)
        state = stepper.step(actions.astype(np.float64))
        for k, world in list(running.items()):
            action = actions[k] if make is BatchPendulum else int(actions[k, 0])
            observation, reward, terminated, truncated, _ = world.step(action)
            assert np.allclose(states(stepper)[k], world.unwrapped.state, rtol=0, atol=1e-9)
            assert np.allclose(state.readings[k], observation, rtol=0, atol=1e-9)
            assert state.rewards[k, 0] == pytest.approx(reward, rel=0, abs=1e-9)
            assert (state.terminated[k], state.truncated[k]) == (terminated, truncated)
            if terminated or truncated:
                ends.append((terminated, truncated, world._elapsed_steps))
                del running[k]
    if make is BatchPendulum:
        assert ends == [(False, True, 200)] * batch
    else:
        # those that balance are cut off, the others fall early
        assert ends.count((False, True, 500)) == 4
        assert sum(terminated for terminated, _, _ in ends) == 4


@pytest.mark.parametrize(("make", "id"), [(BatchPendulum, "Pendulum-v1"), (BatchCartPole, "CartPole-v1")])
def test_sensors_and_actuators_are_those_of_the_wrapped_environment(make, id):
    ours, theirs = set_up(make()).baseline, GymnasiumEnvironment(id).setup()
    for kind in ("sensors", "actuators", "rewards"):
        assert [(c.uid, c.space) for c in getattr(ours, kind)] == [
            (c.uid, c.space) for c in getattr(theirs, kind)
        ]


@pytest.mark.parametrize(
    ("make", "low", "high"),
    [(BatchPendulum, [-np.pi, -1.0], [np.pi, 1.0]), (BatchCartPole, [-0.05] * 4, [0.05] * 4)],
)
def test_first_states_are_uniform_and_drawn_by_each_on_its_own(make, low, high):
    first = states(begun(make(2000)))
    assert (first >= low).all() and (first <= high).all()
    # mean and variance of a uniform distribution, within five standard errors
    half = np.array(high)
    assert (np.abs(first.mean(axis=0)) < 5 * half / np.sqrt(3 * 2000)).all()
    assert np.allclose(first.var(axis=0) / (half**2 / 3), 1.0, atol=0.1)
    assert (first[[7, 3]] == states(begun(make(2), [7, 3]))).all()


SIZES = (1, 2, 3, 5, 7, 13, 31, 64)


@pytest.mark.parametrize("make", [BatchPendulum, BatchCartPole])
def test_an_incarnation_is_the_same_in_a_batch_of_any_size(make):
    """Byte for byte, also with vector instructions whose last lanes may be treated on their own."""
    steps, largest = 120, max(SIZES)
    rng = np.random.default_rng(3)
    chosen = (
        rng.uniform(-2, 2, (steps, largest, 1))
        if make is BatchPendulum
        else rng.integers(0, 2, (steps, largest, 1)).astype(float)
    )

    def trace(numbers: range) -> list[Any]:
        environment: BatchEnvironment = make(len(numbers), max_steps=50)
        stepper = begun(environment, numbers)
        found = []
        for setpoints in chosen:
            state = stepper.step(setpoints[numbers.start : numbers.stop], resets=True)
            found.append(np.hstack([state.readings, state.rewards, states(stepper)]))
            found.append(np.stack([state.terminated, state.truncated], axis=1).astype(float))
        return [np.stack(found[i::2]) for i in (0, 1)]

    whole = trace(range(largest))
    assert whole[1].sum() > 100
    for size in SIZES:
        for first in (0, largest - size):
            part = trace(range(first, first + size))
            for one, other in zip(whole, part, strict=True):
                assert one[:, first : first + size].tobytes() == other.tobytes(), (size, first)


def test_a_whole_run_of_bodies_is_what_gymnasium_computes(tmp_path):
    """Every body's rows are Gymnasium's under its recorded actions, over two episodes of its own."""
    world = d.environment(
        "world", "palaestrai_mosaik.environment.pendulum:BatchPendulum", batch=3, max_steps=20
    )
    agent = {
        "name": "agent",
        "muscle": d.named("palaestrai_mosaik.agent.library.random_agent:RandomMuscle"),
        "bodies": [{"environment": "world", "count": 3}],
    }
    ends = [d.named(d.ENVIRONMENT_ENDS, when="all", episodes=2)]
    with Store(tmp_path, create=True) as store:
        result = execute(d.document(d.phase([world], [agent], ends, mode="test")), store=store)
        rows = store.steps(result.instance, phase="phase_0", agent="agent")
    assert len(rows) == 3 * 2 * 20 and not result.warnings
    single = gymnasium.make("Pendulum-v1").unwrapped
    for _, episode in rows.groupby(["body", "environment_episode"]):
        observed = episode[[c for c in episode if c.startswith("reading.")]].to_numpy()
        single.reset()
        single.state = np.array([np.arctan2(observed[0, 1], observed[0, 0]), observed[0, 2]])
        for i, row in enumerate(episode.to_dict("records")):
            assert np.allclose(observed[i], single._get_obs(), rtol=0, atol=1e-5)
            torque = np.float32(row["setpoint.world.{body}.action"])
            _, reward, *_ = single.step(np.array([torque]))
            assert row["reward.world.{body}.reward"] == pytest.approx(reward, abs=1e-4)
            assert row["truncated"] == (i == 19)
