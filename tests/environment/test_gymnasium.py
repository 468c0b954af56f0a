"""Environments of Gymnasium: every kind of space, seeds, ends, mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="the extra 'rl' (gymnasium) is not installed")

import gymnasium
from gymnasium import spaces
from support.batches import begun
from support.documents import document as run_document
from support.documents import phase

import palaestrai_mosaik
from palaestrai_mosaik.core.errors import ActionError, ContractError, NameResolutionError
from palaestrai_mosaik.environment.gymnasium import GymnasiumEnvironment
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.testing import check_environment
from palaestrai_mosaik.types import Box, Discrete, MultiBinary, MultiDiscrete

LIBRARY = "palaestrai_mosaik.agent.library"


class Echo(gymnasium.Env[Any, Any]):
    """Observes the action that it was given; ends (terminated, truncated) after the third."""

    def __init__(self, space: Any, end: tuple[bool, bool] = (True, False)):
        self.observation_space = self.action_space = space
        self.end = end
        self.seeds: list[int | None] = []
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.actions.append(action)
        over = len(self.actions) >= 3
        return action, float(len(self.actions)), over and self.end[0], over and self.end[1], {}


def register(space: Any, **kwargs: Any) -> GymnasiumEnvironment:
    gymnasium.register("Echo-v0", lambda **given: Echo(space, **given))
    try:
        made = GymnasiumEnvironment("Echo-v0", kwargs)
        made.uid, made.rng = "world", np.random.default_rng(3)
        made.baseline = made.setup()
    finally:
        del gymnasium.registry["Echo-v0"]
    return made


NESTED = spaces.Dict(
    {
        "pose": spaces.Tuple((spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(4, start=-2))),
        "mode": spaces.MultiBinary([2, 2]),
        "gear": spaces.MultiDiscrete([3, 4], start=[1, -1]),
    }
)


@pytest.mark.parametrize(
    ("space", "ours"),
    [
        (spaces.Box(-2, 3, (2, 2), np.float32), Box(-2, 3, (2, 2), np.float32)),
        (spaces.Box(0, 255, (2,), np.uint8), Box(0, 255, (2,), np.uint8)),
        (spaces.Box(-1.0, np.inf, ()), Box(-1, np.inf, (), np.float32)),
        (spaces.Box(0, 1, (3,), np.bool_), MultiBinary(3)),
        (spaces.Discrete(5, start=2), Discrete(5, start=2)),
        (spaces.MultiDiscrete([[2, 3]]), MultiDiscrete([[2, 3]])),
        (spaces.MultiBinary(4), MultiBinary(4)),
    ],
    ids=str,
)
def test_a_space_becomes_one_sensor_and_one_actuator(space, ours):
    environment = register(space)
    baseline = environment.baseline
    assert [(s.uid, s.space) for s in baseline.sensors] == [("observation", ours)]
    assert [(a.uid, a.space) for a in baseline.actuators] == [("action", ours)]
    assert [(r.uid, r.space.to_string()) for r in baseline.rewards] == [
        ("reward", "Box(low=-inf, high=inf, shape=(), dtype=float64)")
    ]
    state = environment.reset()
    assert ours.contains(ours.unflatten(state.readings))
    vector = ours.flatten(ours.sample(np.random.default_rng(1)))
    state = environment.step(vector)
    # what went in as an action comes out as an observation
    assert state.readings.tolist() == vector.tolist()
    assert state.rewards == (1.0,) and not state.terminated


def test_entries_of_dicts_and_tuples_are_sensors_and_actuators_of_their_own():
    environment = register(NESTED)
    expected = {
        "gear": MultiDiscrete([3, 4]),
        "mode": MultiBinary([2, 2]),
        "pose.0": Box(-1, 1, (2,), np.float32),
        "pose.1": Discrete(4, start=-2),
    }
    assert {s.uid: s.space for s in environment.baseline.sensors} == {
        f"observation.{k}": v for k, v in expected.items()
    }
    assert {a.uid: a.space for a in environment.baseline.actuators} == {
        f"action.{k}": v for k, v in expected.items()
    }
    environment.reset()
    values = {"gear": [2, 3], "mode": [1, 0, 0, 1], "pose.0": [0.5, -0.25], "pose.1": [-2]}
    vector = np.concatenate([values[a.uid.removeprefix("action.")] for a in environment.baseline.actuators])
    state = environment.step(vector.astype(np.float64))
    assert state.readings.tolist() == vector.tolist()
    (action,) = environment._env.unwrapped.actions
    assert isinstance(action["pose"], tuple)
    # a MultiDiscrete that starts at (1, -1)
    assert action["gear"].tolist() == [3, 2]


def test_ends_and_seeds():
    environment = register(spaces.Discrete(3), end=(True, False))
    first = environment.reset().readings
    states = [environment.step(np.zeros(1)) for _ in range(3)]
    assert [s.terminated for s in states] == [False, False, True]
    assert not any(s.truncated for s in states)
    environment.rng = np.random.default_rng(3)
    assert environment.reset().readings == first
    one, two = environment._env.unwrapped.seeds
    assert one == two == int(np.random.default_rng(3).integers(2**31))
    for end in ((False, True), (True, True)):
        other = register(spaces.Discrete(3), end=end)
        other.reset()
        states = [other.step(np.zeros(1)) for _ in range(3)]
        assert (states[-1].terminated, states[-1].truncated) == end


def test_what_holds_until_an_agent_acts_is_nearest_to_zero():
    space = spaces.Tuple((spaces.Box(np.float32([1, -2]), np.float32([3, 2])), spaces.Discrete(3, start=5)))
    values = [np.ravel(a.value).tolist() for a in register(space).baseline.actuators]
    assert values == [[1, 0], [5]]


def test_a_missing_setpoint_is_an_error():
    environment = register(spaces.Discrete(3))
    environment.reset()
    with pytest.raises(ActionError, match="environment 'world': actuator 'action' has no set-point"):
        environment.step(np.array([np.nan]))


@pytest.mark.parametrize(
    ("id", "kwargs", "message"),
    [
        ("CartPol-v1", {}, r"Gymnasium has no environment 'CartPol-v1' \(did you mean 'CartPole-v1'\?\)"),
        ("CartPole-v99", {}, r"no environment 'CartPole-v99' \(did you mean 'CartPole-v"),
        ("no_such_module_here:X-v0", {}, "cannot be imported.*no_such_module_here"),
        ("cart pole", {}, "environment 'cart pole' cannot be made"),
        ("", {}, "id must be a name such as CartPole-v1, not ''"),
        (5, {}, "id must be a name such as CartPole-v1, not 5"),
        ("a.b:c:d", {}, "environment 'a.b:c:d' cannot be made"),
        ("CartPole-v1", {"max_episode_steps": 0}, "environment 'CartPole-v1' cannot be made"),
        ("CartPole-v1", {"colour": 1}, "does not take these kwargs.*colour"),
    ],
)
def test_environments_that_cannot_be_made(id, kwargs, message):
    with pytest.raises(ContractError, match=message):
        GymnasiumEnvironment(id, kwargs).setup()


class Broken(Echo):
    """Has a constructor with a mistake in it."""

    def __init__(self, kind: str = "add"):
        super().__init__(spaces.Discrete(2))
        if kind == "add":
            self.sum = 1 + "1"  # type: ignore[operator]
        elif kind == "index":
            self.sum = list(kind)[9]
        else:
            self.sum = np.zeros("many")


@pytest.mark.parametrize("kind", ["add", "index", "numpy"])
def test_a_mistake_in_a_constructor_is_shown_where_it_is(kind):
    gymnasium.register("Broken-v0", Broken)
    lines = Path(__file__).read_text().splitlines()
    line = {"add": '1 + "1"', "index": "list(kind)[9]", "numpy": 'np.zeros("many")'}[kind]
    (number,) = (i for i, text in enumerate(lines, 1) if text.strip().startswith(f"self.sum = {line}"))
    try:
        with pytest.raises(
            ContractError, match=r"environment 'Broken-v0' cannot be made: .*Error: "
        ) as raised:
            GymnasiumEnvironment("Broken-v0", {"kind": kind}).setup()
        assert "kwargs" not in str(raised.value).partition(" (/")[0].partition("was raised")[0]
        assert f"({__file__}:{number})" in str(raised.value)
        with pytest.raises(ContractError, match=r"'Broken-v0' does not take these kwargs: .*'colour'"):
            GymnasiumEnvironment("Broken-v0", {"colour": 1}).setup()
    finally:
        del gymnasium.registry["Broken-v0"]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"a": spaces.Discrete(2), "none": spaces.Dict({}), "z": spaces.Tuple(())}),
        spaces.Tuple((spaces.Dict({"inside": spaces.Dict({})}), spaces.Discrete(2))),
        spaces.Dict({}),
    ],
)
def test_entries_that_are_empty_have_no_channel(space):
    # (Gymnasium's own check does not like them)
    environment = register(space, disable_env_checker=True)
    assert len(environment.baseline.sensors) == len(environment.baseline.actuators) <= 1
    environment.reset()
    state = environment.step(np.ones(len(environment.baseline.actuators)))
    assert state.readings.tolist() == [1.0] * len(environment.baseline.sensors)


MISSING = """
import sys
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("gymnasium", "pettingzoo", "torch"):
            raise ImportError("a library of it cannot be loaded")
sys.meta_path.insert(0, Broken())
import importlib
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(error)
"""
PARTS = [
    "palaestrai_mosaik.environment.gymnasium",
    "palaestrai_mosaik.environment.pettingzoo",
    "palaestrai_mosaik.interop.rl",
    "palaestrai_mosaik.agent.library.sb3.brain",
]


def test_an_import_error_without_a_name_is_told_as_it_is():
    done = subprocess.run([sys.executable, "-c", MISSING, *PARTS], capture_output=True, text=True, check=True)
    told = done.stdout.splitlines()
    assert len(told) == len(PARTS)
    for line in told:
        assert "need" in line and "None" not in line
        message, _, command = line.partition(": ")
        assert message.endswith("what cannot be imported (a library of it cannot be loaded)")
        assert "pip install" in command


class Telling(Echo):
    """Says something in its infos, as environments for constrained learning do."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(seed=seed)
        return observation, {"action_mask": np.array([1, 0], dtype=np.int8), "is_success": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *told, _ = super().step(action)
        cost = np.float64(0.5 * len(self.actions))
        info = {"cost": cost, "is_success": len(self.actions) == 3, "time": "mine", "object": object()}
        info |= {"valids": np.array([True, False]), "limits": {"voltage": [0.9, 1.1]}, "ragged": [[1], []]}
        return (*told, info)


@pytest.fixture
def telling():
    gymnasium.register("Telling-v0", lambda: Telling(spaces.Discrete(2)))
    yield
    del gymnasium.registry["Telling-v0"]


def told(**keys):
    world = {
        "environment": {
            "uid": "world",
            "name": "palaestrai_mosaik.environment.gymnasium:GymnasiumEnvironment",
            "params": {"id": "Telling-v0"},
        }
    }
    one = {
        "name": "agent",
        "muscle": {"name": f"{LIBRARY}.random_agent:RandomMuscle", "params": {}},
        "sensors": ["world.observation"],
        "actuators": ["world.action"],
    }
    return run_document(phase([world], [one], mode="test"))


def test_what_infos_say_is_stored(tmp_path, telling):
    with Store(tmp_path, create=True) as store:
        execute(told(), store=store)
        states = [
            state if isinstance(state, dict) else json.loads(state)
            for state in store.environment_states("latest")["state"]
        ]
    assert states[0] == {"info": {"action_mask": [1, 0], "is_success": False}}
    assert [state["info"].get("cost") for state in states] == [None, 0.5, 1.0, 1.5]
    assert states[-1]["info"] == {
        **{"cost": 1.5, "is_success": True, "time": "mine", "valids": [True, False]},
        "limits": {"voltage": [0.9, 1.1]},
    }


def test_what_infos_say_is_in_that_of_make(telling):
    env = palaestrai_mosaik.make(told())
    _, info = env.reset(seed=1)
    assert info["action_mask"].tolist() == [1, 0]
    assert info["is_success"] is False
    for i in (1, 2, 3):
        _, _, terminated, _, info = env.step(np.array([1.0]) if env.action_space.shape else 1)
        assert info["cost"] == 0.5 * i
        # what our own info says stays
        assert info["time"] == i
        assert info["infos"]["world"]["time"] == "mine"
        assert info["is_success"] is (i == 3) is terminated
    assert info["valids"].tolist() == [True, False]
    assert info["limits"]["voltage"].tolist() == [0.9, 1.1]
    env.close()
    game = palaestrai_mosaik.parallel_env(told())
    _, infos = game.reset(seed=1)
    assert infos["agent"]["action_mask"].tolist() == [1, 0]
    *_, infos = game.step({"agent": game.action_space("agent").sample()})
    assert infos["agent"]["cost"] == 0.5
    game.close()


def test_a_space_without_a_vector_form_is_named():
    space = spaces.Dict({"a": spaces.Discrete(2), "note": spaces.Text(5)})
    with pytest.raises(ContractError, match=r"'observation.note' is in Text.*allowed are Box, Discrete"):
        register(space)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"])
def test_it_keeps_the_contract_of_environments(id):
    check_environment(lambda: GymnasiumEnvironment(id), steps=30)


def test_a_run_steps_the_very_environment(tmp_path):
    """The recorded trajectory is that of Gymnasium under the recorded actions and the same seed."""
    document = from_mapping(
        {
            "uid": "pendulum",
            "seed": 1,
            "version": "3.5",
            "schedule": [
                {
                    "only": {
                        "environments": [
                            {
                                "environment": {
                                    "uid": "world",
                                    "name": "palaestrai_mosaik.environment.gymnasium:GymnasiumEnvironment",
                                    "params": {"id": "Pendulum-v1", "kwargs": {"max_episode_steps": 20}},
                                }
                            }
                        ],
                        "agents": [
                            {
                                "name": "agent",
                                "muscle": {"name": f"{LIBRARY}.random_agent:RandomMuscle", "params": {}},
                                "sensors": ["world.observation"],
                                "actuators": ["world.action"],
                            }
                        ],
                        "simulation": {"name": "palaestrai_mosaik.simulation:Vanilla", "conditions": []},
                        "phase_config": {"mode": "test", "workers": 1, "episodes": 2},
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
    )
    with Store(tmp_path, create=True) as store:
        result = execute(document, store=store)
        steps = store.steps("latest", phase="only", agent="agent")
    assert not result.warnings
    assert steps.groupby("episode").size().tolist() == [20, 20]
    assert steps["truncated"].tolist() == ([False] * 19 + [True]) * 2
    readings = steps[[c for c in steps if c.startswith("reading.")]].to_numpy()
    setpoints = steps[[c for c in steps if c.startswith("setpoint.")]].to_numpy()
    rewards = steps[[c for c in steps if c.startswith("reward.")]].to_numpy().ravel()
    world = gymnasium.make("Pendulum-v1").unwrapped
    for episode in (0, 1):
        rows = slice(20 * episode, 20 * episode + 20)
        world.reset()
        world.state = np.array([np.arctan2(readings[rows][0, 1], readings[rows][0, 0]), readings[rows][0, 2]])
        for i in range(19):
            observation, reward, *_ = world.step(setpoints[rows][i].astype(np.float32))
            assert np.allclose(observation, readings[rows][i + 1], atol=1e-4)
            assert reward == pytest.approx(rewards[rows][i], abs=1e-3)


def make_pendulum(gravity: float = 10.0) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Pendulum-v1", g=gravity)


def make_nothing() -> str:
    return "no environment"


FUNCTION = f"{__name__}:make_pendulum"


def test_a_function_makes_the_environment(tmp_path):
    digests = []
    for params in (
        {"id": FUNCTION, "kwargs": {"gravity": 9.0}},
        {"id": f"{__name__}:Echo", "kwargs": {"space": spaces.Discrete(2)}},
        {"id": "Pendulum-v1", "kwargs": {"g": 9.0}},
    ):
        environment = GymnasiumEnvironment(**params)
        environment.uid, environment.rng = "world", np.random.default_rng(3)
        environment.baseline = environment.setup()
        first = environment.reset().readings
        zero = np.zeros(sum(a.space.size for a in environment.baseline.actuators))
        digests.append((*first, *environment.step(zero).readings, environment.step(zero).rewards))
        environment.shutdown()
    assert digests[0] == digests[2] != digests[1]


def test_copies_of_a_function_are_those_of_the_id():
    from palaestrai_mosaik.environment.copies import Copies

    found = []
    for id in ("Pendulum-v1", FUNCTION):
        stepper = begun(Copies(GymnasiumEnvironment, {"id": id}, batch=3))
        found.append(stepper.step(np.full((3, 1), 0.5)).readings)
    assert (found[0] == found[1]).all()


@pytest.mark.parametrize(
    ("id", "kwargs", "kind", "message"),
    [
        (
            f"{__name__}:make_pendulun",
            {},
            NameResolutionError,
            "no function or class 'make_pendulun' .did you mean 'make_pendulum'",
        ),
        ("no_such_module_here:make", {}, NameResolutionError, "there is no module 'no_such_module_here'"),
        (f"{__name__}:make_nothing", {}, ContractError, "returns a str, which is no gymnasium.Env"),
        (f"{__name__}:FUNCTION", {}, ContractError, "is a str, and no function or class that makes"),
        (FUNCTION, {"colour": 1}, ContractError, "does not take these kwargs: .*colour"),
        (f"{__name__}:Broken", {}, ContractError, r"cannot be made: TypeError: .*test_gymnasium.py:\d+"),
    ],
)
def test_functions_that_make_no_environment(id, kwargs, kind, message):
    with pytest.raises(kind, match=message):
        GymnasiumEnvironment(id, kwargs).setup()


@pytest.mark.filterwarnings("ignore:.*Using the latest versioned environment")
def test_a_name_that_is_registered_is_the_registered_environment():
    gymnasium.register("make_pendulum-v3", lambda: Echo(spaces.Discrete(7)))
    try:
        environment = GymnasiumEnvironment(FUNCTION)
        assert [s.space for s in environment.setup().sensors] == [Discrete(7)]
    finally:
        del gymnasium.registry["make_pendulum-v3"]
