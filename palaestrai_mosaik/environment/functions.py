"""Environments with a formula as reward: known results to test designs and analyses with.

The parameters ``x1``, ``x2``, ... of :class:`FunctionEnvironment` are the factors. Each function's
docstring states its analytic sensitivity indices, for independent, uniform parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from palaestrai_mosaik.core.errors import ContractError, SimulationError, did_you_mean
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation
from palaestrai_mosaik.types.arrays import FloatVector

from .environment import Environment, EnvironmentBaseline, EnvironmentState


def ishigami(x: Sequence[float], coefficients: Sequence[float] = (7.0, 0.1)) -> float:
    """Return sin x1 + a sin^2 x2 + b x3^4 sin x1, for x in [-pi, pi]; ``coefficients`` are a, b.

    For a = 7, b = 0.1: S1 = 0.3139, 0.4424, 0; ST = 0.5576, 0.4424, 0.2437; of the pairs only
    S13 = 0.2437 is not 0. Source: Ishigami and Homma 1990, "An importance quantification
    technique in uncertainty analysis for computer models", ISUMA '90.
    """
    a, b = coefficients
    x1, x2, x3 = x
    return math.sin(x1) + a * math.sin(x2) ** 2 + b * x3**4 * math.sin(x1)


def sobol_g(x: Sequence[float], coefficients: Sequence[float] = (0, 1, 4.5, 9, 99, 99, 99, 99)) -> float:
    """Return the product of (|4 x_i - 2| + a_i)/(1 + a_i), for x in [0, 1]; ``coefficients`` are the a_i.

    The partial variances are V_i = 1/(3 (1 + a_i)^2), the variance V is the product of all
    1 + V_i, less 1; S1_i = V_i/V, ST_i = V_i/V times the product of 1 + V_j over j other than i. For the default: ST =
    0.7871, 0.2422, 0.0343, 0.0105, 0.0001 (four times). Source: Saltelli and Sobol' 1995,
    "About the use of rank transformation in sensitivity analysis of model output", Reliability
    Engineering & System Safety 50.
    """
    return math.prod((abs(4 * xi - 2) + a) / (1 + a) for xi, a in zip(x, coefficients, strict=True))


def linear(x: Sequence[float], coefficients: Sequence[float] = ()) -> float:
    """Return the sum of c_i x_i; without ``coefficients`` all are 1.

    The elementary effects are c_i times the range of x_i, all identical: sigma is 0. S1 = ST = c_i^2
    Var(x_i) over their sum, also for levels: x1 of 0, 1, 3 and x2 of 0, 2 have 14/23 and 9/23.
    """
    if not coefficients:
        return math.fsum(x)
    return math.fsum(c * xi for c, xi in zip(coefficients, x, strict=True))


def branin(x: Sequence[float]) -> float:
    """Return Branin's function of x1 in [-5, 10] and x2 in [0, 15], to be minimised.

    Its minimum is 0.397887, at (-pi, 12.275), (pi, 2.275) and (9.42478, 2.475). Source: Branin 1972, "Widely convergent
    method for finding multiple solutions of simultaneous nonlinear equations", IBM Journal of Research and
    Development 16.
    """
    x1, x2 = x
    b, c, t = 5.1 / (4 * math.pi**2), 5 / math.pi, 1 / (8 * math.pi)
    return (x2 - b * x1**2 + c * x1 - 6) ** 2 + 10 * (1 - t) * math.cos(x1) + 10


_HARTMANN_A = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
_HARTMANN_P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)


def hartmann6(x: Sequence[float]) -> float:
    """Return Hartmann's function of six numbers in [0, 1], to be minimised.

    Its minimum is -3.32237, at (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573). Source: Dixon and Szego 1978,
    "The global optimization problem: an introduction", Towards Global Optimization 2.
    """
    if len(x) != 6:
        raise ValueError("six numbers")
    total = 0.0
    for alpha, a, p in zip((1.0, 1.2, 3.0, 3.2), _HARTMANN_A, _HARTMANN_P, strict=True):
        total -= alpha * math.exp(-math.fsum(aj * (xj - pj) ** 2 for aj, xj, pj in zip(a, x, p, strict=True)))
    return total


#: all functions by name
FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "ishigami": ishigami,
    "sobol_g": sobol_g,
    "linear": linear,
    "branin": branin,
    "hartmann6": hartmann6,
}


class FunctionEnvironment(Environment):
    """Rewards every step with a function of its parameters.

    Both the reward and the only sensor are called ``y``; the only actuator, ``idle``, has no effect.
    ``noise`` and ``failures`` show how an analysis copes with them. Both are drawn from the
    environment's generator, so runs with one seed share them.

    Args:
        function: name of the function.
        steps: number of steps after which the episode terminates.
        coefficients: the constants of the function; ``None``: its defaults.
        noise: standard deviation of a normal error of every reward.
        failures: the probability that the first step of an episode raises :class:`SimulationError`.
        x: ``x1``, ``x2``, ...: the arguments of the function.

    Raises:
        ContractError: the function is unknown, or does not have these parameters.
    """

    def __init__(
        self,
        function: str = "ishigami",
        steps: int = 1,
        coefficients: Sequence[float] | None = None,
        noise: float = 0.0,
        failures: float = 0.0,
        **x: float,
    ):
        if function not in FUNCTIONS:
            raise ContractError(
                f"unknown function {function!r}{did_you_mean(function, FUNCTIONS)}; allowed: {', '.join(FUNCTIONS)}"
            )
        names = [f"x{i}" for i in range(1, len(x) + 1)]
        for name in x:
            if name not in names:
                raise ContractError(
                    f"unknown parameter {name!r} of FunctionEnvironment{did_you_mean(name, names)}; the "
                    f"parameters of the function are called x1, x2, ... without a gap"
                )
        arguments = [float(x[name]) for name in names]
        try:
            self.y = FUNCTIONS[function](arguments, *([] if coefficients is None else [coefficients]))
        except ValueError:
            counts = f"{len(arguments)} parameters" + (
                "" if coefficients is None else f" and {len(coefficients)} coefficients"
            )
            raise ContractError(f"the function {function!r} cannot be taken of {counts}") from None
        self.steps = int(steps)
        self.noise, self.failures = float(noise), float(failures)
        self.done = 0
        self._fails = False

    def setup(self) -> EnvironmentBaseline:
        anything = Box(-np.inf, np.inf, shape=())
        return EnvironmentBaseline(
            sensors=[SensorInformation(0.0, anything, "y")],
            actuators=[ActuatorInformation(0.0, Box(0.0, 1.0, shape=()), "idle")],
            rewards=[RewardInformation(0.0, anything, "y")],
        )

    def reset(self) -> EnvironmentState:
        self.done = 0
        # the second number keeps the noise that follows as in published figures
        self._fails = bool(self.rng.random(2)[0] < self.failures)
        return EnvironmentState(np.zeros(1), (0.0,))

    def step(self, setpoints: FloatVector) -> EnvironmentState:
        if self._fails:
            raise SimulationError("this episode fails, as `failures` asks for")
        self.done += 1
        y = self.y + self.noise * self.rng.standard_normal() if self.noise else self.y
        return EnvironmentState(np.array([y]), (y,), terminated=self.done >= self.steps)
