"""Run documents as environments of Gymnasium: its checks, Stable-Baselines3's, and known trajectories."""

from __future__ import annotations

import pickle
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.documents import agent, document, environment, named, phase

from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import ActionError, ContractError

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces  # noqa: E402
from gymnasium.utils.env_checker import check_env  # noqa: E402

import palaestrai_mosaik  # noqa: E402
from palaestrai_mosaik.interop.rl.spaces import ChannelSpace  # noqa: E402
from palaestrai_mosaik.types import Box, Discrete, MultiBinary, MultiDiscrete  # noqa: E402
from palaestrai_mosaik.types.vectors import Layout  # noqa: E402

ROOT = Path(__file__).parents[3]
IDLE = named("palaestrai_mosaik.agent.library.idle:IdleMuscle")
GYMNASIUM = "palaestrai_mosaik.environment.gymnasium:GymnasiumEnvironment"
DESCRIBED = "palaestrai_mosaik.environment.described:DescribedCoSimulation"


@pytest.fixture(autouse=True)
def _simulators(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "example_simulators"))


def alone(uid: str, found: Any, **keys: Any) -> Any:
    """Return a document with one agent that reads and sets everything."""
    plain = {
        "muscle": IDLE,
        "brain": None,
        "objective": None,
        "sensors": [f"{uid}.*"],
        "actuators": [f"{uid}.*"],
    }
    return document(phase([found], [agent("a", **{**plain, **keys})]))


def bare(id: str, **kwargs: Any) -> Any:
    return alone("world", environment("world", GYMNASIUM, id=id, kwargs=kwargs))


def batteries(power: str = "Box(-1, 1, ())") -> Any:
    return alone(
        "co",
        environment(
            "co",
            DESCRIBED,
            end=8,
            simulators={"s": {"python": "battery_sim:BatterySimulator", "params": {"step_size": 1}}},
            entities=[
                {"uid": "b", "simulator": "s", "model": "Battery", "params": {"capacity": 1.0, "soc": 0.5}}
            ],
            sensors=[{"uid": "soc", "entity": "b", "attribute": "soc", "space": "Box(0, 1, ())"}],
            actuators=[{"uid": "P", "entity": "b", "attribute": "P_set", "space": power, "value": 0.0}],
        ),
    )


def turns() -> Any:
    dummy = environment("myenv", discrete=False, max_iter=7)
    return document(phase([dummy], [agent("a"), agent("b", 5)], controller="taking_turns"))


CASES: dict[str, Any] = {
    "dummy": (ROOT / "scenarios" / "dummy.yml", {"agent": "mighty_defender"}),
    "bodies": (ROOT / "scenarios" / "aeb_base.yml", {}),
    "taking turns": (turns, {"agent": "b"}),
    "co-simulation": (batteries, {}),
    "Gymnasium's": (lambda: bare("Pendulum-v1", max_episode_steps=30), {"dtype": "float32"}),
    "grid": (ROOT / "scenarios" / "rural_learn.yml", {"dtype": "float32"}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_checkers_have_no_complaint(case):
    if case == "grid":
        pytest.importorskip("pandapower")
    found, options = CASES[case]
    found = found() if callable(found) else str(found)
    env = gymnasium.make(
        "palaestrai_mosaik.interop.rl:palaestrai_mosaik/Run-v0", document=found, render_mode="ansi", **options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", category=UserWarning)
        # advice about scales
        warnings.filterwarnings("ignore", message=".*(symmetric and normalized|recommend using np.float32).*")
        check_env(env.unwrapped, skip_render_check=False)
        pytest.importorskip("stable_baselines3.common.env_checker").check_env(env.unwrapped)
    env.reset(seed=1)
    assert env.render().startswith("t=1\nmyenv.5 = " if case == "taking turns" else "t=0\n")
    env.close()


@pytest.mark.parametrize("id", ["Pendulum-v1", "CartPole-v1"])
def test_an_environment_of_gymnasium_comes_back_as_it_is(id):
    env = palaestrai_mosaik.make(bare(id))
    own = gymnasium.make(id)
    assert env.action_space == own.action_space
    for episode in range(2):
        observation, _ = env.reset(**({"seed": 5} if episode == 0 else {}))
        path = ("phase_0", "worker", 0, "episode", episode, "environment", "world")
        expected, _ = own.reset(seed=int(seeding.generator(5, *path).integers(2**31)))
        own.action_space.seed(episode)
        done, steps = False, 0
        while not done:
            assert observation.tobytes() == expected.tobytes() and observation.dtype == expected.dtype
            action = own.action_space.sample()
            observation, reward, terminated, truncated, info = env.step(action)
            expected, paid, *flags, _ = own.step(action)
            assert (reward, [terminated, truncated]) == (paid, flags)
            done, steps = terminated or truncated, steps + 1
        assert steps == info["time"] > 5
    env.close()


def test_a_trajectory_worked_out_by_hand():
    """The dummy environment counts its steps modulo 3, and pays that."""
    dummy = environment("myenv", max_iter=3)
    agents = [agent("a", count=2, sensors=["myenv.0"]), agent("b", 5)]
    env = palaestrai_mosaik.make(document(phase([dummy], agents)), agent="a")
    assert env.observation_space == spaces.Discrete(4) and env.action_space == spaces.MultiDiscrete(
        [100, 100]
    )
    observation, info = env.reset()
    assert observation == 0
    assert info == {"time": 0, "sensors": ("myenv.0",), "actuators": ("myenv.0", "myenv.1")}
    told = [env.step([0, 99]) for _ in range(3)]
    assert [step[:4] for step in told] == [
        (1, 1.0, False, False),
        (2, 2.0, False, False),
        (0, 0.0, True, False),
    ]
    assert told[1][4] == {"time": 2, "objective": 2.0, "rewards": {"myenv.Dummy Reward": 2.0}}
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step([0, 0])
    env.close()


def test_what_is_wrong_with_an_action():
    env = palaestrai_mosaik.make(turns(), agent="a")
    env.reset(seed=1)
    for action, message in (
        ([0, 0, 11, 0, 0], r"\[11\.0\] of actuator 'myenv\.2' is not in Box"),
        ([0, np.nan, 0, 0, 0], r"actuator 'myenv\.1' is NaN"),
        ([0, 0], r"has the shape \(2,\), but .* has \(5,\): one number for each of myenv\.0"),
        ("left", "could not convert"),
    ):
        with pytest.raises(ActionError, match=message):
            env.step(action)
    assert env.step(np.zeros(5))[4]["time"] == 2  # b has acted at 1
    env.close()


def test_whose_part_the_caller_takes():
    both = str(ROOT / "scenarios" / "dummy.yml")
    with pytest.raises(ContractError, match=r"say with 'agent' .* mighty_defender, evil_attacker"):
        palaestrai_mosaik.make(both)
    with pytest.raises(ContractError, match=r"no agent 'mighty'.* mighty_defender"):
        palaestrai_mosaik.make(both, agent="mighty")
    with pytest.raises(ContractError, match=r"'walker' has 3 bodies.*parallel_env"):
        palaestrai_mosaik.make(ROOT / "scenarios" / "aeb_batch.yml")
    only = document(phase(agents=[agent("a"), agent("b", 5, brain=None)]))
    env = palaestrai_mosaik.make(only)
    assert env.player.agent == "a"
    env.close()


def test_a_copy_begins_anew_and_lives_through_the_same():
    env = palaestrai_mosaik.make(turns(), agent="a", reward="Dummy Reward")
    copy = pickle.loads(pickle.dumps(env))
    assert copy.reset(seed=3)[0].tobytes() == env.reset(seed=3)[0].tobytes()
    assert copy.step(np.ones(5))[0].tobytes() == env.step(np.ones(5))[0].tobytes()
    env.close()
    copy.close()


@pytest.mark.parametrize("made", ["make", "make_vec", "parallel_env", "aec_env"])
@pytest.mark.parametrize("copied", [deepcopy, pickle.dumps])
def test_an_episode_is_not_lost_in_a_copy(made, copied):
    """A copy begins before its first episode, so there is none of one that is running."""
    dummy = environment("myenv", max_iter=3)
    plain = document(phase([dummy], [agent("a", muscle=IDLE, brain=None, objective=None)]))
    env = getattr(palaestrai_mosaik, made)(plain, **({"num_envs": 2} if made == "make_vec" else {}))
    copied(env)
    env.reset(seed=3)
    with pytest.raises(
        ContractError, match="an episode is running, and a copy or a pickle cannot go on with it"
    ):
        copied(env)
    if made == "make":
        while not any(env.step(env.action_space.sample())[2:4]):
            with pytest.raises(ContractError, match="an episode is running"):
                copied(env)
        # it is over now, and nothing is lost
        assert copied(env) is not None
    env.close()
    assert copied(env) is not None


def test_frames_are_those_of_the_environment_of_gymnasium():
    pytest.importorskip("pygame", reason="CartPole draws with it")
    env = palaestrai_mosaik.make(bare("CartPole-v1"), render_mode="rgb_array")
    assert env.metadata["render_modes"] == ["ansi", "rgb_array"]
    assert env.metadata["render_fps"] == 50
    assert env.render() is None
    env.reset(seed=1)
    first = env.render()
    assert (first.shape, first.dtype) == ((400, 600, 3), np.uint8)
    while not any(env.step(1)[2:4]):
        pass
    last = env.render()
    assert last.shape == first.shape
    assert (last != first).any()
    env.close()
    text = palaestrai_mosaik.make(bare("CartPole-v1"), render_mode="ansi")
    text.reset(seed=1)
    assert text.render().startswith("t=0\nworld.observation = ")
    text.close()


def test_frames_of_a_document_that_has_none_are_refused():
    with pytest.raises(
        ContractError, match=r"must be None or 'ansi', not 'rgb_array': no environment of the agent"
    ):
        palaestrai_mosaik.make(turns(), agent="a", render_mode="rgb_array")
    with pytest.raises(ContractError, match=r"must be None or 'ansi' or 'rgb_array', not 'human'$"):
        palaestrai_mosaik.make(bare("CartPole-v1"), render_mode="human")
    env = palaestrai_mosaik.make(turns(), agent="a")
    assert env.metadata["render_modes"] == ["ansi"]
    env.close()


LAYOUTS = {
    "reals": [Box(-0.1, 0.1, shape=()), Box(0.0, 5.0, shape=(2,))],
    "narrow": [Box(-1.0, 1.0, shape=(2,), dtype=np.float32)],
    "one": [Discrete(3, start=-1)],
    "counts": [Discrete(3, start=-1), MultiDiscrete([2, 4])],
    "flags": [MultiBinary(2), MultiBinary(1)],
    "whole": [Box(0, 9, shape=(2,), dtype=np.int32), Discrete(3)],
}
FLAT = {
    "reals": spaces.Box(np.array([-0.1, 0, 0]), np.array([0.1, 5, 5]), dtype=np.float64),
    "narrow": spaces.Box(-1.0, 1.0, (2,), np.float32),
    "one": spaces.Discrete(3, start=-1),
    "counts": spaces.MultiDiscrete([3, 2, 4]),
    "flags": spaces.MultiBinary(3),
    "whole": spaces.Box(np.array([0, 0, 0]), np.array([9, 9, 2]), dtype=np.int64),
}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_spaces_and_their_values(kind):
    layout = Layout([f"e.{i}" for i in range(len(LAYOUTS[kind]))], LAYOUTS[kind])
    for flatten in (True, False):
        view = ChannelSpace(layout, "actuator", flatten=flatten)
        if flatten:
            assert view.space == FLAT[kind]
        view.space.seed(3)
        for _ in range(20):
            sample = view.space.sample()
            vector = view.vector(sample)
            layout.check(vector)
            again = view.value(vector)
            assert view.space.contains(again) and view.vector(again).tobytes() == vector.tobytes()


def test_bounds_in_a_narrower_type_hold():
    layout = Layout(["e.x"], [Box(-0.1, 0.1, shape=())])
    inner = ChannelSpace(layout, "actuator", dtype=np.float32).space
    outer = ChannelSpace(layout, "sensor", dtype=np.float32).space
    bounds = [float(bound[0]) for bound in (outer.low, inner.low, inner.high, outer.high)]
    assert bounds[0] < -0.1 < bounds[1] < 0 < bounds[2] < 0.1 < bounds[3]
    mixed = Layout(["e.x", "e.n"], [Box(0.0, 1.0, shape=()), Discrete(2)])
    with pytest.raises(ContractError, match="flatten=False"):
        ChannelSpace(mixed, "actuator")
    with pytest.raises(ActionError, match=r"no value for actuator 'e\.n'"):
        ChannelSpace(mixed, "actuator", flatten=False).vector({"e.x": 0.5})
    with pytest.raises(ActionError, match=r"no actuator 'e\.m' \(did you mean 'e\."):
        ChannelSpace(mixed, "actuator", flatten=False).vector({"e.x": 0.5, "e.m": 1})


def test_stable_baselines_learns_in_it():
    sb3 = pytest.importorskip("stable_baselines3")
    env = palaestrai_mosaik.make(bare("CartPole-v1"))
    model = sb3.PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=1, seed=1, device="cpu")
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(128)
    assert any((a != b).any() for a, b in zip(before, model.policy.parameters(), strict=True))
    env.close()


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_what_rounding_has_put_outside_is_on_the_bound(dtype):
    """``low + 0.5 * (1 + 1) * (high - low)`` is above 0.3, by one unit in the last place."""
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.noise import NormalActionNoise

    env = palaestrai_mosaik.make(batteries("Box(-0.1, 0.3, ())"), dtype=dtype)
    noise = NormalActionNoise(np.zeros(1), np.full(1, 9.0))
    model = sb3.TD3(
        "MlpPolicy",
        env,
        learning_starts=2,
        train_freq=100,
        buffer_size=40,
        action_noise=noise,
        policy_kwargs={"net_arch": [2]},
        seed=1,
        device="cpu",
    )
    model.learn(20)
    env.reset()
    env.step(model.policy.unscale_action(np.ones(1, np.float32)))
    view, kind = env._set, env.action_space.dtype
    assert view.vector(env.action_space.high) <= 0.3
    for bound, out in ((0.3, 1.0), (-0.1, -1.0)):
        value = np.nextafter(np.array(bound, kind), np.array(out, kind))
        assert abs(value) > abs(bound)
        assert view.vector(np.array([value])) == bound
        assert view.vectors(np.array([[value], [0.2]]), (2, 1)).tolist() == [[bound], [0.2]]
    env.reset()
    with pytest.raises(ActionError, match="is not in Box"):
        env.step(np.array([0.3 + 8 * np.finfo(kind).eps]))
    env.close()


def test_what_is_seen_may_be_written_to():
    """Also where a filter has made it, and by who has one copy only."""
    filters = [named("palaestrai_mosaik.agent.filters:NormFilter")]
    for found in (
        bare("Pendulum-v1"),
        alone("world", environment("world", GYMNASIUM, id="Pendulum-v1"), filters=filters),
    ):
        trails = []
        for writes in (False, True):
            env = palaestrai_mosaik.make(found, dtype=np.float64)
            observation, _ = env.reset(seed=1)
            trail = [observation.copy()]
            for _ in range(3):
                if writes:
                    observation *= 0
                observation, *_ = env.step(np.ones(1))
                trail.append(observation.copy())
            env.close()
            trails.append(np.array(trail).tobytes())
        assert trails[0] == trails[1]
