"""The house with a heat pump, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment.building import Building, coefficient_of_performance
from palaestrai_mosaik.testing import check_environment


def started(seed: int = 1, **params: Any) -> Building:
    house = Building(**params)
    house.setup()
    house.rng = np.random.Generator(np.random.PCG64(seed))
    house.reset()
    return house


def test_it_keeps_the_contract_of_environments():
    check_environment(lambda: Building(days=1, pv=0.0))
    check_environment(lambda: Building(days=2))


def test_the_coefficient_of_performance_is_staffells():
    assert coefficient_of_performance(5.0) == pytest.approx(6.81 - 0.121 * 30 + 0.00063 * 900)
    assert coefficient_of_performance(40.0) == coefficient_of_performance(
        20.0
    )  # a lift of 15 kelvin at least
    assert coefficient_of_performance(-40.0) == coefficient_of_performance(-25.0)


def test_a_step_solves_the_equation():
    house = started(loss=0.2, capacity=5.0, gain=0.4)
    house._outside[:] = 0.0
    inside = house.step(np.array([1.0])).readings[0]
    settled = (coefficient_of_performance(0.0) + 0.4) / 0.2
    assert inside == pytest.approx(settled + (20.0 - settled) * math.exp(-0.25 * 0.2 / 5.0))
    small = 20.0
    for _ in range(10_000):
        small += (0.2 * -small + coefficient_of_performance(0.0) + 0.4) / 5.0 * 0.25 / 10_000
    assert inside == pytest.approx(small, abs=1e-5)


def test_solar_power_costs_what_it_would_have_earned():
    house = started(buy=0.4, sell=0.1)
    house._sun[:] = 1.0
    assert house.step(np.array([0.5])).rewards[1] == pytest.approx(-0.25 * 0.5 * 0.1)
    assert house.step(np.array([3.0])).rewards[1] == pytest.approx(-0.25 * (1.0 * 0.1 + 2.0 * 0.4))
    assert house.step(np.array([0.0])).rewards[1] == 0


@pytest.mark.parametrize(("inside", "kelvin"), [(19.0, 1.0), (21.0, 0.0), (24.0, 2.0)])
def test_comfort_counts_kelvin_hours_outside_of_the_band(inside, kelvin):
    house = started(capacity=1e9)
    house._inside = inside
    assert house.step(np.array([0.0])).rewards[0] == pytest.approx(-0.25 * kelvin, abs=1e-6)


def test_no_set_point_changes_the_weather():
    cold, warm = started(days=3), started(days=3)
    assert (cold._outside == warm._outside).all() and (cold._sun == warm._sun).all()
    seen = [
        [house.step(np.array([power])).readings[1:] for _ in range(3 * 96)]
        for house, power in ((cold, 0.0), (warm, 3.0))
    ]
    assert (np.array(seen[0]) == np.array(seen[1])).all()
    assert (started(seed=2)._outside[:96] != cold._outside[:96]).any()


def test_the_sun_shines_by_day_only():
    house = started(days=2, pv=4.0)
    hour = np.arange(len(house._sun)) / 4 % 24
    assert (house._sun[(hour <= 8) | (hour >= 16)] == 0).all()
    assert 0 < house._sun.max() <= 2.0


def test_a_step_size_that_no_day_is_a_multiple_of():
    house = Building()
    house.step_size = 7
    house.setup()
    house.rng = np.random.Generator(np.random.PCG64(1))
    house.reset()
    states = [house.step(np.array([1.0])) for _ in range(206)]
    assert [state.truncated for state in states[-2:]] == [False, True]


@pytest.mark.parametrize(
    "params", [{"days": 0}, {"loss": 0.0}, {"capacity": 0.0}, {"pv": -1.0}, {"sell": 1.0}]
)
def test_a_house_that_cannot_be_is_refused(params):
    with pytest.raises(ContractError, match="a building has days of 1 or more"):
        Building(**params)
