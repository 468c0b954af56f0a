"""The fixed-point iteration on the admittance matrix: for grids without PV buses.

With the slacks' voltages V_s given, the other buses satisfy ::

    V = Y_pq^-1 (conj(S / V) - Y_ps V_s)

and iterating that map converges linearly, by a factor of about the load over the
short-circuit power: four to seven steps in a medium-voltage grid whose last state is
near (Stott 1974, "Review of Load-Flow Calculation Methods", Proc. IEEE 62(7), the
"Z-matrix method"). Y_pq is factorised once per topology, so that a step is two sparse
triangular solves and a product with Y. It is used in its equivalent corrected form, ::

    V += Y_pq^-1 conj(mismatch / V)

whose mismatch is the very quantity that Newton's method tests for convergence.

The iteration does not converge in a grid near its limits where Newton's method still
does; it says so, and :mod:`.fastflow` then asks Newton.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from .equations import Equations, as_arrays
from .kernels import ComplexVector, fixed_point

#: takes about as long as Newton's method
MAX_ITERATIONS = 40


class FixedPoint:
    """The iteration for one topology; make it with :meth:`of`."""

    def __init__(self, equations: Equations, factors: Any):
        self.equations = equations
        self.order = equations.pq[np.argsort(factors.perm_c)].astype(np.int64)
        self.factors = (
            as_arrays(sparse.csc_matrix(sparse.tril(factors.L, -1))),
            as_arrays(sparse.csc_matrix(sparse.triu(factors.U, 1))),
            1.0 / factors.U.diagonal().astype(np.complex128),
        )

    @classmethod
    def of(cls, equations: Equations) -> FixedPoint | None:
        """Return the iteration for ``equations``, ``None`` where it does not apply to them."""
        pq = equations.pq
        if len(equations.pv) or not len(pq):
            return None
        try:
            # Pivots from the diagonal, in a symmetric order: rows and columns then have the
            # same order, in which everything can be kept.
            factors = splu(
                equations.ybus[pq][:, pq].tocsc(),
                permc_spec="MMD_AT_PLUS_A",
                diag_pivot_thresh=0.0,
                options={"SymmetricMode": True},
            )
        except RuntimeError:  # singular
            return None
        return cls(equations, factors) if np.array_equal(factors.perm_r, factors.perm_c) else None

    def solve(self, start: ComplexVector, power: ComplexVector) -> ComplexVector | None:
        """Return the voltages for ``power``, searched from ``start``; ``None`` if not found."""
        equations = self.equations
        voltage = start.copy()
        iterations = fixed_point(
            voltage,
            power,
            equations.by_rows,
            self.order,
            self.factors,
            equations.tolerance,
            MAX_ITERATIONS,
        )
        return voltage if iterations >= 0 else None
