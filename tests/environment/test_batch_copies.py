"""Copies of ordinary environments in a batch: each gives what the environment alone gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.batches import begun, generators, set_up

from palaestrai_mosaik.core.errors import ContractError, NameResolutionError
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.environment.copies import Copies
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation, Tuple

ANY = Box(-np.inf, np.inf, shape=())


class Walk(Environment):
    """A random walk that set-points push; ends below -3 (terminated) or above 3 (truncated)."""

    made = 0
    step_size = 4

    def __init__(self, noise: float = 1.0, fail: str = ""):
        self.number = Walk.made
        Walk.made += 1
        self.noise, self.fail = noise, fail
        self.closed = False
        self._maybe_fail("making")

    def _maybe_fail(self, where: str) -> None:
        if self.fail == where and self.number == 1:
            raise RuntimeError(f"broken while {where}")

    def setup(self) -> EnvironmentBaseline:
        self._maybe_fail("setup")
        moves = Tuple(Box(-1.0, 1.0, shape=(2,)), Box(-1.0, 1.0, shape=()))
        return EnvironmentBaseline(
            [SensorInformation(0.0, ANY, "place"), SensorInformation([0.0, 0.0], Box(-9, 9, (2,)), "last")],
            [ActuatorInformation(None, moves, "push")],
            [RewardInformation(0.0, ANY, "far"), RewardInformation(0.0, ANY, "one")],
        )

    def reset(self) -> EnvironmentState:
        self.place = self.rng.normal()
        self.last = np.zeros(2)
        return self._state()

    def step(self, setpoints: Any) -> EnvironmentState:
        self._maybe_fail("step")
        self.last = setpoints[:2] * self.noise
        self.place += setpoints.sum() + self.noise * self.rng.normal()
        return self._state()

    def _state(self) -> EnvironmentState:
        readings = np.array([self.place, *self.last])
        if self.fail == "readings" and self.number == 1:
            readings = readings[:1]
        return EnvironmentState(readings, (abs(self.place), 1.0), self.place < -3, self.place > 3)

    def shutdown(self) -> None:
        self.closed = True
        self._maybe_fail("shutdown")


@pytest.fixture(autouse=True)
def _count_anew() -> None:
    Walk.made = 0


def test_every_copy_gives_what_the_environment_alone_gives() -> None:
    batch = 5
    copies = set_up(Copies(f"{__name__}:Walk", {"noise": 0.5}, batch=batch))
    alone = [Walk(noise=0.5) for _ in range(batch)]
    assert copies.step_size == 4
    stepper = begun(copies)
    for environment, rng in zip(alone, generators(range(batch)), strict=True):
        environment.rng = rng
        environment.reset()
    rng = np.random.default_rng(5)
    ended, ends = np.zeros(batch, dtype=bool), 0
    for _ in range(60):
        setpoints = rng.uniform(-1, 1, (batch, 3))
        given = setpoints.copy()
        state = stepper.step(setpoints, resets=True)
        assert (setpoints == given).all()
        for k, environment in enumerate(alone):
            # a copy that has ended is reset, and is not stepped before
            single = environment.reset() if ended[k] else environment.step(setpoints[k])
            assert state.readings[k].tobytes() == single.readings.tobytes()
            assert state.rewards[k].tolist() == ([0, 0] if ended[k] else list(single.rewards))
            assert (state.terminated[k], state.truncated[k]) == (single.terminated, single.truncated)
            ended[k] = single.terminated or single.truncated
            ends += ended[k]
    assert ends > 10
    assert stepper.states[0].tolist() == [0, 1, 2, 3, 4]


def test_a_batch_offers_what_a_copy_offers() -> None:
    pytest.importorskip("gymnasium", reason="the extra 'rl' (gymnasium) is not installed")
    from palaestrai_mosaik.environment.gymnasium import GymnasiumEnvironment

    name = "palaestrai_mosaik.environment.gymnasium:GymnasiumEnvironment"
    copies = set_up(Copies(name, {"id": "CartPole-v1"}, batch=2))
    alone = GymnasiumEnvironment("CartPole-v1").setup()
    for kind in ("sensors", "actuators", "rewards"):
        assert [(c.uid, c.space, np.ravel(c.value).tolist()) for c in getattr(copies.baseline, kind)] == [
            (c.uid, c.space, np.ravel(c.value).tolist()) for c in getattr(alone, kind)
        ]
    assert set_up(Copies(Walk)).baseline.actuators[0].value is None


@pytest.mark.parametrize("fail", ["making", "setup", "step", "shutdown"])
def test_an_exception_says_which_copy_raised(fail: str) -> None:
    with pytest.raises(RuntimeError, match=f"broken while {fail}") as error:
        copies = Copies(Walk, {"fail": fail}, batch=3)
        try:
            begun(copies).step(np.zeros((3, 3)))
        finally:
            copies.shutdown()
            assert fail != "shutdown" or [c.closed for c in copies.copies] == [True] * 3
    (note,) = error.value.__notes__
    assert note == ("in copy 1" if fail == "making" else "in copy 1 of environment 'world'")


class Moody(Walk):
    def setup(self) -> EnvironmentBaseline:
        baseline = super().setup()
        baseline.sensors = baseline.sensors[: 2 - self.number]
        return baseline


class Fresh(Walk):
    hold_setpoints = False


@pytest.mark.parametrize(
    ("name", "params", "error", "message"),
    [
        (
            Walk,
            {"fail": "readings"},
            ContractError,
            r"copy 1 of environment 'world' \(.*:Walk\): readings are not a vector of shape \(3,\): their shape is \(1,\)",
        ),
        (
            Moody,
            {},
            ContractError,
            "copy 1 of environment .*:Moody. does not offer the same as the first one",
        ),
        (Fresh, {}, ContractError, "wants to know which set-points are new"),
        (dict, {}, ContractError, "makes a dict, which is no Environment"),
        ("walk", {}, NameResolutionError, "'walk' is not a class name of the form 'package.module:Class'"),
        (f"{__name__}:Wolk", {}, NameResolutionError, r"has no .*'Wolk' \(did you mean 'Walk'\?\)"),
        ("no_such_module_here:Walk", {}, NameResolutionError, "no_such_module_here"),
        (f"{__name__}:ANY", {}, NameResolutionError, "has a Box and no class .ANY."),
    ],
)
def test_what_cannot_be_copied_is_named(name: Any, params: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        begun(Copies(name, params, batch=2))
