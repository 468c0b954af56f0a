"""Copies of a Gymnasium environment are laid out as arrays: each gives what the environment alone gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.batches import begun, generators

pytest.importorskip("gymnasium", reason="the extra 'rl' (gymnasium) is not installed")

import gymnasium
from gymnasium import spaces

from palaestrai_mosaik.core.errors import ActionError, ContractError
from palaestrai_mosaik.environment.copies import Copies
from palaestrai_mosaik.environment.environment import EnvironmentState
from palaestrai_mosaik.environment.gymnasium import GymnasiumEnvironment

#: no row of an array of actions is one of these
NESTED = spaces.Dict({"x": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(3, start=1)})
SEEN = spaces.Dict(
    {
        "a": spaces.Box(-5, 5, (2, 1), np.float32),
        "d": spaces.Discrete(4, start=2),
        "m": spaces.MultiDiscrete([3, 4], start=[1, 2]),
        "t": spaces.Tuple([spaces.MultiBinary(3)]),
    }
)
ACTIONS = {
    "nested": NESTED,
    "whole": spaces.Discrete(3, start=1),
    "several": spaces.MultiDiscrete([2, 3], start=[1, 2]),
    "real": spaces.Box(-1, 1, (2, 1), np.float32),
    "scalar": spaces.Box(-1, 1, (), np.float32),
}


class Odd(gymnasium.Env[Any, Any]):
    """Says at random, and what it was given; copy ``bad`` of all that are made does what ``how`` says."""

    made = 0

    def __init__(self, action: str, bad: int = -1, how: str = ""):
        self.observation_space, self.action_space = SEEN, ACTIONS[action]
        self.how = how if Odd.made == bad else ""
        Odd.made += 1

    def _seen(self) -> Any:
        rng = self.np_random
        seen = {
            "a": rng.uniform(-5, 5, (2, 1)).astype(np.float32),
            "d": int(rng.integers(2, 6)),
            "m": rng.integers([1, 2], [4, 6]),
            "t": (rng.integers(0, 2, 3),),
        }
        if self.steps and self.how == "short":
            seen["a"] = seen["a"][:1]
        if self.steps and self.how == "missing":
            del seen["d"]
        return seen

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.how == "raise":
            raise RuntimeError("broken")
        assert action in self.action_space, action
        if not isinstance(self.action_space, spaces.Discrete | spaces.Dict):
            assert isinstance(action, np.ndarray)
            assert action.flags.writeable
        parts = action.values() if isinstance(action, dict) else [action]
        gain = sum(float(np.sum(part)) for part in parts)
        return self._seen(), np.float32(gain), bool(self.np_random.random() < 0.1), self.steps > 9, {"q": 1}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    gymnasium.register("Odd-v0", Odd, disable_env_checker=True)
    Odd.made = 0
    yield
    gymnasium.registry.pop("Odd-v0")


def odd(action: str, **kwargs: Any) -> dict[str, Any]:
    return {"id": "Odd-v0", "kwargs": {"action": action, **kwargs}}


@pytest.mark.parametrize("action", ACTIONS)
def test_every_copy_gives_what_the_environment_alone_gives(action: str) -> None:
    batch = 4
    stepper = begun(Copies(GymnasiumEnvironment, odd(action), batch=batch))
    alone = [GymnasiumEnvironment(**odd(action)) for _ in range(batch)]
    for environment, rng in zip(alone, generators(range(batch)), strict=True):
        environment.setup()
        environment.rng = rng
        environment.reset()
    space, ended, ends, begun_together = alone[0]._action, np.zeros(batch, dtype=bool), 0, 0
    rng = np.random.default_rng(3)
    low, high = (np.concatenate([getattr(p.ours, f"flat_{b}") for p in space.parts]) for b in ("low", "high"))
    whole = np.concatenate([p.ours.flat_integral for p in space.parts])
    for _ in range(80):
        setpoints = rng.uniform(low, high, (batch, space.size))
        setpoints = np.where(whole, np.rint(setpoints), setpoints)
        begun_together += ended.all()
        state = stepper.step(setpoints, resets=True)
        for k, environment in enumerate(alone):
            single = environment.reset() if ended[k] else environment.step(setpoints[k])
            assert state.readings[k].tobytes() == single.readings.tobytes()
            assert state.rewards[k].tolist() == ([0] if ended[k] else list(single.rewards))
            assert (state.terminated[k], state.truncated[k]) == (single.terminated, single.truncated)
            ended[k] = single.terminated or single.truncated
            ends += ended[k]
    assert ends > 20


def test_all_copies_may_begin_again_at_once() -> None:
    stepper = begun(Copies(GymnasiumEnvironment, odd("whole"), batch=2, max_steps=1))
    assert stepper.step(np.ones((2, 1)), resets=True).truncated.tolist() == [True, True]
    state = stepper.step(np.ones((2, 1)), resets=True)
    assert (state.rewards.tolist(), state.truncated.tolist()) == ([[0.0], [0.0]], [False, False])


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("raise", RuntimeError, "broken"),
        ("short", ContractError, r"copy 1 of environment .* readings are not .* their shape is \(7,\)"),
        ("missing", KeyError, "d"),
    ],
)
@pytest.mark.parametrize("action", ["real", "nested"])
def test_what_is_wrong_is_said_of_the_copy_that_is_wrong(how, error, message, action) -> None:
    stepper = begun(Copies(GymnasiumEnvironment, odd(action, bad=1, how=how), batch=3))
    setpoints = np.ones((3, 2 if action == "real" else 3))
    with pytest.raises(error, match=message) as found:
        stepper.step(setpoints)
    if error is not ContractError:
        assert found.value.__notes__ == ["in copy 1 of environment 'world'"]


@pytest.mark.parametrize("action", ["real", "nested"])
def test_an_action_without_a_set_point_is_no_action(action) -> None:
    stepper = begun(Copies(GymnasiumEnvironment, odd(action), batch=3))
    setpoints = np.ones((3, 2 if action == "real" else 3))
    setpoints[2, 1] = np.nan
    with pytest.raises(ActionError, match=r"environment 'world\.2': actuator .* has no set-point") as found:
        stepper.step(setpoints)
    assert found.value.__notes__ == ["in copy 2 of environment 'world'"]


class Halved(GymnasiumEnvironment):
    """Steps in another way than its class."""

    def step(self, setpoints: Any) -> EnvironmentState:
        state = super().step(setpoints)
        state.rewards = (state.rewards[0] / 2,)
        return state


def test_a_step_of_ones_own_is_made() -> None:
    rewards = [
        begun(Copies(made, odd("whole"), batch=2)).step(np.full((2, 1), 3.0)).rewards.tolist()
        for made in (GymnasiumEnvironment, Halved)
    ]
    assert rewards == [[[3.0], [3.0]], [[1.5], [1.5]]]
