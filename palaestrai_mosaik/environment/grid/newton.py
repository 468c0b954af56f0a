"""Newton's method, by lightsim2grid on KLU: for every grid, and wherever a solution is hard to find."""

from __future__ import annotations

from typing import Any

import numpy as np

from .equations import Equations
from .kernels import ComplexVector

MAX_ITERATIONS = 20


class Newton:
    """Newton's method for one topology. It keeps its factorisation's pivots from state to state."""

    def __init__(self, equations: Equations):
        self.equations = equations
        self._slack_weights = np.zeros(equations.n)
        self._slack_weights[equations.ref] = 1.0 / len(equations.ref)
        self._algorithm = _algorithm()

    def forget(self) -> None:
        """Start the next solution afresh."""
        self._algorithm.reset()

    def solve(self, start: ComplexVector, power: ComplexVector) -> ComplexVector | None:
        """Return the voltages for ``power``, searched from ``start``; ``None`` if not found."""
        equations = self.equations
        solved = self._algorithm.solve(
            equations.ybus,
            start.copy(),
            power,
            equations.ref,
            self._slack_weights,
            equations.pv,
            equations.pq,
            MAX_ITERATIONS,
            equations.tolerance,
        )
        return self._algorithm.get_V() if solved else None

    def explain(self, power: ComplexVector) -> str:
        """Say where the search that has just failed was worst."""
        text = f"the power flow did not converge in {MAX_ITERATIONS} iterations"
        voltage = self._algorithm.get_V()
        if voltage.shape != power.shape or not np.isfinite(voltage).all():
            return f"{text}: the voltages became infinite"
        mismatch, where = self.equations.worst_mismatch(voltage, power)
        return f"{text}: worst mismatch {mismatch:.3g} MVA at {where}"


def _algorithm() -> Any:
    from lightsim2grid import algorithm

    # KLU is in the published wheels; a build from source may lack it.
    kind = getattr(algorithm, "NRSing_KLU", None) or algorithm.NRSing_SparseLU
    return kind()
