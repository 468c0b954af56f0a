"""The compiled loops of the fast power flow.

A state is solved in a few dozen microseconds, which is what some ten numpy calls take by
themselves; so write, solve and read are one compiled function each (numba). They are
compiled when first used, once per machine: numba keeps them beside this file, in
``$NUMBA_CACHE_DIR`` or in the user's cache directory. What it keeps there are pickles, so a
directory of somebody else is not used.

Sparse matrices are tuples ``(starts, places, values)``: for row (or column) j, the
entries ``starts[j]`` to ``starts[j + 1]`` of places and values, as in scipy.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit

from palaestrai_mosaik.types.arrays import ComplexVector, FloatVector, IntVector

Sparse = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], ComplexVector]

#: a mismatch this many times the first one will not shrink again
GROWTH = 10.0

_Function = TypeVar("_Function")


def compiled(function: _Function) -> _Function:
    """Compile ``function`` when it is first called."""
    # No fast-math: the order of operations, and so the last bit, stays as written.
    try:
        fast: Any = njit(cache=True, error_model="numpy")(function)
        if _is_ours(Path(fast.stats.cache_path)):
            return fast
    except RuntimeError:  # there is no directory to keep it in
        pass
    plain: Any = njit(error_model="numpy")(function)
    return plain


def _is_ours(directory: Path) -> bool:
    """Whether nobody else but root can have put a pickle into ``directory``."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    if os.name != "posix":
        return True
    owners = (os.geteuid(), 0)
    return stat.S_ISDIR(found.st_mode) and found.st_uid in owners and not found.st_mode & stat.S_IWOTH


@compiled
def inject(
    p: FloatVector, q: FloatVector, rows: IntVector, factors: FloatVector, fixed: ComplexVector
) -> ComplexVector:
    """Return the power of every internal bus: ``fixed`` and each element's, times its factor (p.u.)."""
    power = fixed.copy()
    for k in range(len(rows)):
        power[rows[k]] += complex(p[k] * factors[k], q[k] * factors[k])
    return power


@compiled
def fixed_point(
    voltage: ComplexVector,
    power: ComplexVector,
    admittance: Sparse,
    pq: IntVector,
    factors: tuple[Sparse, Sparse, ComplexVector],
    tolerance: float,
    iterations: int,
) -> int:
    """Solve for the voltages of the buses ``pq``, in place; see :mod:`.fast_power_flow`.

    ``admittance`` is held by rows. ``factors``: L without its diagonal of ones and U
    without its diagonal, by columns, then the inverse of U's diagonal; rows and columns
    are in the order of ``pq``. Returns the number of iterations, or -1 if the largest
    mismatch (p.u., of real and imaginary parts) grows or stays above ``tolerance``. Goes
    on to a tenth of that where it can: convergence is linear, so the first mismatch below
    the tolerance is hardly below it, whereas Newton's is by far.
    """
    starts, places, values = admittance
    (l_starts, l_places, l_values), (u_starts, u_places, u_values), u_inverse = factors
    m = len(pq)
    x = np.empty(m, np.complex128)
    limit = np.inf
    for iteration in range(iterations + 1):
        worst = 0.0
        for k in range(m):
            bus = pq[k]
            current = 0j
            for e in range(starts[bus], starts[bus + 1]):
                current += values[e] * voltage[places[e]]
            v = voltage[bus]
            missing = power[bus] - v * current.conjugate()
            if not abs(missing.real) + abs(missing.imag) <= limit:  # too large, or not a number
                return -1
            worst = max(worst, abs(missing.real), abs(missing.imag))
            x[k] = missing.conjugate() * v / (v.real * v.real + v.imag * v.imag)
        if worst < 0.1 * tolerance or (iteration == iterations and worst < tolerance):
            return iteration
        if iteration == 0:
            limit = GROWTH * worst
        for j in range(m):
            for e in range(l_starts[j], l_starts[j + 1]):
                x[l_places[e]] -= l_values[e] * x[j]
        for j in range(m - 1, -1, -1):
            x[j] *= u_inverse[j]
            for e in range(u_starts[j], u_starts[j + 1]):
                x[u_places[e]] -= u_values[e] * x[j]
        for k in range(m):
            voltage[pq[k]] += x[k]
    return -1


@compiled
def read(
    voltage: ComplexVector,
    power: ComplexVector,
    admittance: Sparse,
    ends: Sparse,
    bus_rows: IntVector,
    slack: IntVector,
    shunt_p: FloatVector,
) -> tuple[FloatVector, FloatVector, ComplexVector, float]:
    """Return what is read from a solved state: (vm_pu, loading, feed, losses).

    ``vm_pu``: voltage magnitudes of the internal buses ``bus_rows``, 0 where that is -1.
    ``loading``: the larger of the currents of both ends of each branch; ``ends``, held by
    rows, gives the currents of all first ends, then in the same order of all second ends,
    in percent. ``feed``: the power that the slacks feed in, besides ``power`` (p.u.).
    ``losses``: what flows into the net at all buses, less what ``shunt_p`` takes at
    1 p.u. (p.u.). ``admittance`` is held by rows.
    """
    vm_pu = np.zeros(len(bus_rows))
    for k in range(len(bus_rows)):
        if bus_rows[k] >= 0:
            v = voltage[bus_rows[k]]
            vm_pu[k] = np.sqrt(v.real * v.real + v.imag * v.imag)
    starts, places, values = ends
    n = (len(starts) - 1) // 2
    loading = np.zeros(n)
    for row in range(2 * n):
        current = 0j
        for e in range(starts[row], starts[row + 1]):
            current += values[e] * voltage[places[e]]
        branch = row % n
        loading[branch] = max(loading[branch], current.real * current.real + current.imag * current.imag)
    loading = np.sqrt(loading)
    losses = 0.0
    for bus in range(len(power)):
        v = voltage[bus]
        losses += power[bus].real - shunt_p[bus] * (v.real * v.real + v.imag * v.imag)
    starts, places, values = admittance
    feed = np.empty(len(slack), np.complex128)
    for k in range(len(slack)):
        bus = slack[k]
        current = 0j
        for e in range(starts[bus], starts[bus + 1]):
            current += values[e] * voltage[places[e]]
        feed[k] = voltage[bus] * current.conjugate() - power[bus]
        losses += feed[k].real
    return vm_pu, loading, feed, losses
