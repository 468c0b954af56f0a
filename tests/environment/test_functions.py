"""Environments whose reward is a formula."""

from __future__ import annotations

import math

import numpy as np
import pytest

from palaestrai_mosaik.core.errors import ContractError, SimulationError
from palaestrai_mosaik.environment.functions import FUNCTIONS, FunctionEnvironment, ishigami, linear, sobol_g
from palaestrai_mosaik.testing import check_environment


def started(**params):
    environment = FunctionEnvironment(**params)
    environment.baseline = environment.setup()
    environment.rng = np.random.Generator(np.random.PCG64(1))
    environment.reset()
    return environment


def test_it_keeps_the_contract_of_environments():
    check_environment(lambda: FunctionEnvironment(x1=1.0, x2=2.0, x3=3.0, noise=0.1, steps=3))


def test_the_formulas_by_hand():
    assert ishigami([math.pi / 2, math.pi / 2, 2.0]) == pytest.approx(1 + 7 + 0.1 * 16, abs=1e-12)
    assert sobol_g([0.0, 0.5], coefficients=[0, 1]) == pytest.approx(2 * 0.5, abs=1e-12)
    assert linear([1.0, 2.0], coefficients=[3, 4]) == 11.0
    assert linear([1.0, 2.0]) == 3.0


@pytest.mark.parametrize(("name", "low", "high"), [("ishigami", -math.pi, math.pi), ("sobol_g", 0.0, 1.0)])
def test_they_are_those_of_salib(name, low, high):
    from SALib.test_functions import Ishigami, Sobol_G

    size = 3 if name == "ishigami" else 8
    points = np.random.Generator(np.random.PCG64(2)).uniform(low, high, (20, size))
    theirs = (Ishigami if name == "ishigami" else Sobol_G).evaluate(points)
    np.testing.assert_allclose([FUNCTIONS[name](point) for point in points], theirs, rtol=0, atol=1e-12)


def test_every_step_is_rewarded_until_the_last():
    environment = started(function="linear", x1=1.5, x2=2.0, steps=2)
    states = [environment.step(np.zeros(1)) for _ in range(2)]
    assert [(state.rewards, state.terminated) for state in states] == [((3.5,), False), ((3.5,), True)]
    assert states[0].readings.tolist() == [3.5]


def test_noise_and_failures():
    noisy = [started(function="linear", x1=0.0, noise=2.0).step(np.zeros(1)).rewards[0] for _ in range(2)]
    assert noisy[0] == noisy[1] != 0.0
    with pytest.raises(SimulationError):
        started(function="linear", x1=0.0, failures=1.0).step(np.zeros(1))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"function": "ishigamy"}, "unknown function 'ishigamy' (did you mean 'ishigami'?)"),
        ({"function": "linear", "x1": 1, "x3": 2}, "unknown parameter 'x3'"),
        ({"function": "linear", "x1": 1, "coeficients": 2}, "unknown parameter 'coeficients'"),
        ({"x1": 1.0}, "'ishigami' cannot be taken of 1 parameters"),
        ({"function": "sobol_g", "x1": 1.0}, "'sobol_g' cannot be taken of 1 parameters"),
        ({"function": "linear", "x1": 1.0, "coefficients": [1, 2]}, "1 parameters and 2 coefficients"),
    ],
)
def test_wrong_parameters_are_told(params, message):
    with pytest.raises(ContractError) as told:
        FunctionEnvironment(**params)
    assert message in str(told.value)
