"""Voltage controllers and attackers, by hand and on a linear toy grid.

The toy grid is one inverter of rating ``r`` that moves its voltage by ``s`` p.u. from zero
to its full rating: ``V[t+1] = 1.03 + s * q[t] / r``. The set-point of ``t`` comes from the
voltage of ``t``, as in the vanilla controller, or from an older one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.agent.library.voltage_attack import GreedyVoltageAttacker, OscillatingVoltageAttacker
from palaestrai_mosaik.agent.library.voltage_control import DroopController, IntegratingVoltageController
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types import Box
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout, SensorReadings
from tests.support.acting import ask

BASE = 1.03


class Stage:
    """Shows voltages to a muscle with inverters of these ``ratings`` (Mvar)."""

    def __init__(self, muscle: Any, *ratings: float):
        self.muscle = muscle
        muscle.rng = np.random.default_rng(0)
        voltage = Box(0.0, 2.0, shape=())
        self.sensors = Layout([f"v{i}" for i in range(len(ratings))], [voltage] * len(ratings))
        spaces = [Box(-r, r, shape=()) for r in ratings]
        self.actuators = Layout([f"q{i}" for i in range(len(ratings))], spaces)

    def __call__(self, *voltages: float) -> list[float]:
        """Return the set-points (Mvar) that reach the grid."""
        return ask(self.muscle, self.sensors, self.actuators, voltages)[0].tolist()


def toy_grid(muscle: Any, s: float, *, steps: int = 600, late: int = 0, rating: float = 2.0) -> np.ndarray:
    """Return the voltages of ``steps`` steps; readings are ``late`` steps older than they must be."""
    stage = Stage(muscle, rating)
    voltages = [BASE]
    for _ in range(steps):
        (q,) = stage(voltages[max(len(voltages) - 1 - late, 0)])
        voltages.append(BASE + s * q / rating)
    return np.array(voltages)


# --- the integrating controller ------------------------------------------------------------


def test_integration_by_hand() -> None:
    stage = Stage(IntegratingVoltageController(gain=10.0), 1.0, 2.0)
    assert stage(1.01, 0.98) == pytest.approx([-0.1, 0.4])
    assert stage(1.01, 0.99) == pytest.approx([-0.2, 0.6])
    assert stage(1.0, 1.0) == pytest.approx([-0.2, 0.6])
    assert stage(1.5, 0.5) == [-1.0, 2.0]
    # no wind-up beyond the rating: it leaves its limit at once
    assert stage(0.99, 1.01) == pytest.approx([-0.9, 1.8])
    stage.muscle.reset()
    assert stage(1.01, 0.98) == pytest.approx([-0.1, 0.4])


def test_integration_towards_another_target() -> None:
    stage = Stage(IntegratingVoltageController(gain=5.0, target=1.02), 2.0)
    assert stage(1.03) == pytest.approx([-0.1])
    assert stage(1.02) == pytest.approx([-0.1])


@pytest.mark.parametrize("late", [0, 1])
@settings(max_examples=25)
@given(s=st.floats(0.04, 0.2), share=st.floats(0.05, 0.95))
def test_integration_settles_for_gains_below_one_over_s(late: int, s: float, share: float) -> None:
    """Roots of z = 1 - gain*s, and with one more step of delay of z^2 - z + gain*s = 0."""
    voltages = toy_grid(IntegratingVoltageController(gain=share / s), s, late=late)
    assert abs(voltages[-50:] - 1.0).max() < 1e-4


@pytest.mark.parametrize(("late", "stable", "unstable"), [(0, 1.9, 2.1), (1, 0.95, 1.05)])
def test_integration_hunts_beyond_the_limit_of_stability(late: int, stable: float, unstable: float) -> None:
    s = 0.1
    settled = toy_grid(IntegratingVoltageController(gain=stable / s), s, late=late)[-50:]
    hunting = toy_grid(IntegratingVoltageController(gain=unstable / s), s, late=late)[-50:]
    assert abs(settled - 1.0).max() < 1e-4
    assert abs(hunting - 1.0).max() > 0.02


@pytest.mark.parametrize("late", [0, 1])
def test_integration_with_far_too_much_gain_jumps_between_the_limits(late: int) -> None:
    s = 0.1
    voltages = toy_grid(IntegratingVoltageController(gain=50.0 / s), s, late=late)[-50:]
    assert voltages.min() == pytest.approx(BASE - s)
    assert voltages.max() == pytest.approx(BASE + s)


def test_integration_stays_at_its_limit_where_that_is_not_enough() -> None:
    voltages = toy_grid(IntegratingVoltageController(gain=10.0), 0.02)
    assert voltages[-50:] == pytest.approx(np.full(50, BASE - 0.02))


# --- the droop -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("voltage", "share"),
    [
        (1.0, 0.0),
        (1.01, 0.0),
        (0.99, 0.0),
        (1.03, -0.5),
        (0.97, 0.5),
        (1.05, -1.0),
        (0.95, 1.0),
        (1.2, -1.0),
        (0.5, 1.0),
    ],
)
def test_droop_by_hand(voltage: float, share: float) -> None:
    """Deadband 0.01, saturation 0.05: half-way between them half of the rating."""
    stage = Stage(DroopController(damping=1.0), 1.0, 4.0)
    for _ in range(2):
        assert stage(voltage, voltage) == pytest.approx([share, 4.0 * share], abs=1e-12)


def test_damping_by_hand() -> None:
    stage = Stage(DroopController(damping=0.1), 1.0)
    # a tenth of the way to -0.5 each
    assert [stage(1.03)[0] for _ in range(3)] == pytest.approx([-0.05, -0.095, -0.1355])
    # and of the way back to 0
    assert stage(1.0) == pytest.approx([-0.12195])
    stage.muscle.reset()
    assert stage(1.03) == pytest.approx([-0.05])


def test_another_characteristic() -> None:
    stage = Stage(DroopController(target=1.02, deadband=0.0, saturation=0.04, damping=0.5), 2.0)
    assert stage(1.03) == pytest.approx([-0.25])


def test_plain_droop_hunts_between_its_limits_on_a_weak_grid() -> None:
    """q = 0, -0.5, 0.25, -1, 1, -1, ... of the rating, from V = 1.03, 0.98, 1.055, 0.93, 1.13."""
    voltages = toy_grid(DroopController(damping=1.0), 0.1)
    assert voltages[:6] == pytest.approx([1.03, 0.98, 1.055, 0.93, 1.13, 0.93])
    assert voltages[-4:] == pytest.approx([0.93, 1.13, 0.93, 1.13]) or voltages[-4:] == pytest.approx(
        [1.13, 0.93, 1.13, 0.93]
    )


def test_damped_droop_settles_on_the_same_grid() -> None:
    """Where droop and grid meet: q = -25 * (0.02 + 0.1 * q), so q = -1/7 and V = 1.03 - 0.1/7."""
    voltages = toy_grid(DroopController(damping=0.1), 0.1)
    assert voltages[-50:] == pytest.approx(np.full(50, 1.03 - 0.1 / 7))


def test_plain_droop_settles_on_a_strong_grid() -> None:
    """Hunting needs s / (saturation - deadband) > 1; here it is 0.5."""
    voltages = toy_grid(DroopController(damping=1.0), 0.02)
    assert np.ptp(voltages[-50:]) < 1e-9


# --- attackers -----------------------------------------------------------------------------


def test_greedy_attack_by_hand() -> None:
    stage = Stage(GreedyVoltageAttacker(), 1.0, 3.0)
    assert stage(1.02, 1.01) == [1.0, 3.0]
    assert stage(0.9, 1.05) == [-1.0, -3.0]
    assert stage(1.0, 1.0) == [1.0, 3.0]
    assert Stage(GreedyVoltageAttacker(target=1.05), 1.0, 3.0)(1.02, 1.01) == [-1.0, -3.0]


def test_attackers_use_the_share_of_their_rating() -> None:
    assert Stage(GreedyVoltageAttacker(strength=0.25), 1.0, 3.0)(1.02, 1.01) == [0.25, 0.75]
    assert Stage(OscillatingVoltageAttacker(strength=0.5), 1.0, 3.0)(1.02, 1.01) == [0.5, 1.5]
    assert Stage(GreedyVoltageAttacker(strength=0), 1.0, 3.0)(1.02, 1.01) == [0.0, 0.0]
    for attacker in (GreedyVoltageAttacker, OscillatingVoltageAttacker):
        with pytest.raises(ContractError, match=r"strength must be from 0 to 1, not 1\.5"):
            attacker(strength=1.5)


@pytest.mark.parametrize(
    ("half_period", "signs"), [(1, [1, -1, 1, -1, 1, -1, 1]), (3, [1, 1, 1, -1, -1, -1, 1])]
)
def test_oscillating_attack_by_hand(half_period: int, signs: list[int]) -> None:
    stage = Stage(OscillatingVoltageAttacker(half_period), 2.0)
    for _ in range(2):
        assert [stage(1.0)[0] for _ in signs] == [2.0 * sign for sign in signs]
        stage.muscle.reset()


def test_greedy_attack_drives_the_toy_grid_out_of_the_band() -> None:
    assert toy_grid(GreedyVoltageAttacker(), 0.1)[-1] == pytest.approx(BASE + 0.1)


# --- all of them ---------------------------------------------------------------------------

ALL = [
    IntegratingVoltageController,
    DroopController,
    lambda: DroopController(damping=1.0),
    lambda: DroopController(damping=0.3),
    GreedyVoltageAttacker,
    OscillatingVoltageAttacker,
]


@pytest.mark.parametrize("make", ALL)
@settings(max_examples=25)
@given(
    ratings=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=3),
    voltages=st.lists(st.floats(0.9, 1.1), min_size=1, max_size=30),
)
@example(ratings=[3.0], voltages=[1.031, 0.9])  # without damping: 3.0000000000000004
def test_set_points_stay_within_the_ratings(make: Any, ratings: list[float], voltages: list[float]) -> None:
    """Rounding must not carry them over: that is an error of the agent."""
    stage = Stage(make(), *ratings)
    for voltage in voltages:
        for q, rating in zip(stage(*[voltage] * len(ratings)), ratings, strict=True):
            assert abs(q) <= rating


@pytest.mark.parametrize("make", ALL)
def test_what_was_handed_on_does_not_change(make: Any) -> None:
    stage = Stage(make(), 1.0)
    readings = SensorReadings(stage.sensors, np.array([1.04]))
    available = ActuatorSetpoints(stage.actuators)
    stage.muscle.propose_actions(readings, available)
    handed = available.vector
    assert handed is not None
    before = handed.copy()
    for voltage in (0.9, 1.1, 1.0):
        stage(voltage)
    np.testing.assert_array_equal(handed, before)
    assert readings.vector.tolist() == [1.04]


def test_voltages_and_inverters_must_be_pairs() -> None:
    stage = Stage(DroopController(), 1.0, 1.0)
    stage.sensors = Layout(["v0"], stage.sensors.spaces[:1])
    with pytest.raises(ContractError, match="1 sensors and 2 actuators"):
        stage(1.0)


def test_inverters_need_limits() -> None:
    with pytest.raises(ContractError, match="finite limits"):
        Stage(GreedyVoltageAttacker(), np.inf)(1.0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: DroopController(deadband=0.05, saturation=0.05), "deadband < saturation"),
        (lambda: DroopController(deadband=-0.1), "deadband < saturation"),
        (lambda: DroopController(damping=0.0), "damping must be above 0 and at most 1, not 0"),
        (lambda: DroopController(damping=1.1), "at most 1, not 1.1"),
        (lambda: OscillatingVoltageAttacker(0), "half_period must be at least 1, not 0"),
    ],
)
def test_senseless_parameters_are_refused(make: Any, text: str) -> None:
    with pytest.raises(ContractError, match=text):
        make()
