"""The compiled loops of the fast power flow, for one state and for many at once.

A state is solved in a few dozen microseconds, the time of some ten numpy calls, so write, solve and read
are one compiled function each (numba). They are compiled on first use, once per machine: numba caches
them beside this file, in ``$NUMBA_CACHE_DIR`` or in the user's cache directory. Cached functions are
pickles, so a directory that other users can write to is not used.

Sparse matrices are tuples ``(starts, places, values)``, as in scipy: row (or column) j has the entries
``starts[j]`` to ``starts[j + 1]`` of places and values.

:func:`fixed_point` solves one state. :func:`solve_many` runs the same iteration for many states of one
grid, with the innermost loops over states: every entry of a matrix is read once per block of
states, and the processor's vector units work on several states at a time. No operation mixes two states,
and each stops separately, so the results of a state do not depend on its neighbours, to the
last bit. There, complex numbers are two arrays of shape (buses, states), real and imaginary parts.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit

from palaestrai_mosaik.types.arrays import (
    BoolVector,
    ComplexMatrix,
    ComplexVector,
    FloatMatrix,
    FloatVector,
    IntVector,
)

Sparse = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], ComplexVector]

#: real and imaginary parts, (buses, states)
Pair = tuple[FloatMatrix, FloatMatrix]

#: element rows, their factors, and the fixed power of every bus, as for :func:`inject`
Injections = tuple[IntVector, FloatVector, ComplexVector]
#: pq, L, U and the inverse of its diagonal, as for :func:`fixed_point`
Factors = tuple[IntVector, Sparse, Sparse, ComplexVector]
#: bus rows and ends of branches, as for :func:`read`; slack row and factor (MVA) of
#: every external grid; mask of live elements, for the elements with a P reading; the
#: elements with a Q reading
Readout = tuple[IntVector, Sparse, IntVector, FloatVector, BoolVector, IntVector]

#: a mismatch this many times the first one is taken as divergence
GROWTH = 10.0
#: number of states solved side by side, so that their data fits the processor's second-level cache
BLOCK = 32

_Function = TypeVar("_Function")


def compiled(function: _Function) -> _Function:
    """Compile ``function`` when it is first called."""
    # No fast-math: it would reorder operations and change the last bit.
    try:
        fast: Any = njit(cache=True, error_model="numpy")(function)
        if _is_ours(Path(fast.stats.cache_path)):
            return cast(_Function, fast)
    except RuntimeError:  # there is no directory to keep it in
        pass
    plain: Any = njit(error_model="numpy")(function)
    return cast(_Function, plain)


def _is_ours(directory: Path) -> bool:
    """Return whether only this user or root can write to ``directory``."""
    try:
        status = directory.lstat()
    except OSError:
        return False
    if os.name != "posix":
        return True
    owners = (os.geteuid(), 0)
    return stat.S_ISDIR(status.st_mode) and status.st_uid in owners and not status.st_mode & stat.S_IWOTH


@compiled
def inject(
    p: FloatVector, q: FloatVector, rows: IntVector, factors: FloatVector, fixed: ComplexVector
) -> ComplexVector:
    """Return the power of every internal bus (p.u.): ``fixed`` plus each element's power times its factor."""
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

    Args:
        voltage: (internal buses,), the starting point and the result.
        power: the power of every internal bus (p.u.).
        admittance: the admittance matrix by rows.
        pq: the buses to solve for.
        factors: L without its unit diagonal and U without its diagonal, by columns, and the inverse of
            U's diagonal; rows and columns are in the order of ``pq``.
        tolerance: largest mismatch of real and imaginary parts (p.u.). The iteration continues to a tenth of
            it if possible: convergence is linear, so the first mismatch below the tolerance is only just
            below it, whereas Newton's is far below.
        iterations: the largest number of iterations.

    Returns:
        The number of iterations, or -1 if the mismatch grows or stays above ``tolerance``.
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
    """Read the results of a solved state: (vm_pu, loading, feed, losses).

    ``vm_pu``: voltage magnitudes of the internal buses ``bus_rows``, 0 for -1.
    ``loading``: the larger current of the two ends of each branch, in percent; the rows of ``ends`` give
    the currents of all first ends, then in the same order of all second ends. ``feed``: the power that the
    slacks feed in, besides ``power`` (p.u.). ``losses``: the sum of the power into the net at all buses
    (p.u.), minus that of the shunts, ``shunt_p`` at 1 p.u. ``admittance`` is stored by rows.
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


@compiled
def follow_profiles(
    table: FloatMatrix,
    rows: IntVector,
    columns: IntVector,
    factors: FloatVector,
    powers: FloatMatrix,
    first: int,
) -> None:
    """Write ``table[rows[i], columns[k]] * factors[k]`` to ``powers[i, first + k]``.

    A negative column stands for a column of ones. Raises :class:`IndexError` for a row outside the table.
    """
    some_constant = False
    for k in range(len(columns)):
        some_constant |= columns[k] < 0
    for i in range(len(rows)):
        out = powers[i, first:]
        if table.shape[1]:
            if not 0 <= rows[i] < len(table):
                raise IndexError("the profiles have no such row")
            row = table[rows[i]]
            # three times as fast without a condition; here, a negative column counts from the end
            for k in range(len(columns)):
                out[k] = row[columns[k]] * factors[k]
        if some_constant:
            for k in range(len(columns)):
                if columns[k] < 0:
                    out[k] = factors[k]


@compiled
def solve_many(
    powers: Pair,
    voltage: ComplexMatrix,
    results: FloatMatrix,
    states: IntVector,
    equations: tuple[Sparse, Injections, Factors, Readout],
    limits: tuple[float, int],
    solved: BoolVector,
) -> None:
    """Solve the rows ``states`` of ``voltage`` in place and read ``results``.

    If the iteration does not converge, a row's voltage and results do not change.

    Args:
        powers: P and Q of all elements, both (rows, elements), in MW and Mvar.
        voltage: (rows, buses), in p.u.
        results: (rows, columns): 1, voltages (p.u.), loadings (%), P and Q of the external grids, P and Q of
            elements (MW, Mvar).
        states: the rows to solve.
        equations: admittances by rows, :data:`Injections`, :data:`Factors` and :data:`Readout`.
        limits: the tolerance (p.u.) and the number of iterations.
        solved: (rows,), set for rows that have converged.
    """
    for start in range(0, len(states), BLOCK):
        block = states[start : start + BLOCK]
        _solve_block(powers, voltage, results, block, equations, limits, solved)


@compiled
def _solve_block(
    powers: Pair,
    voltage: ComplexMatrix,
    results: FloatMatrix,
    states: IntVector,
    equations: tuple[Sparse, Injections, Factors, Readout],
    limits: tuple[float, int],
    solved: BoolVector,
) -> None:
    admittance, injections, factors, readout = equations
    v, s = _load_block(powers, voltage, states, injections)
    tolerance, most = limits
    pq, width = factors[0], len(states)
    x = np.empty((len(pq), width)), np.empty((len(pq), width))
    current = np.empty(width), np.empty(width)
    worst, largest = np.empty(width), np.full(width, np.inf)
    active, failed = np.ones(width, np.bool_), np.zeros(width, np.bool_)
    for iteration in range(most + 1):
        _mismatch(v, s, x, admittance, pq, current, (worst, largest, failed))
        left = 0
        for w in range(width):
            if not active[w]:
                continue
            if worst[w] < 0.1 * tolerance or (iteration == most and worst[w] < tolerance):
                solved[states[w]] = not failed[w]
            active[w] = not failed[w] and not solved[states[w]] and iteration < most
            left += active[w]
            if iteration == 0:
                largest[w] = GROWTH * worst[w]
        if left == 0:
            break
        _correct_block(v, x, factors, active)
    for w in range(width):
        if solved[states[w]]:
            for bus in range(len(v[0])):
                voltage[states[w], bus] = complex(v[0][bus, w], v[1][bus, w])
    _read_block(powers, (v, s), results, states, admittance, readout, solved)


@compiled
def _load_block(
    powers: Pair, voltage: ComplexMatrix, states: IntVector, injections: Injections
) -> tuple[Pair, Pair]:
    """Load voltages and injected powers of the block."""
    p, q = powers
    rows, factors, fixed = injections
    n, width = len(fixed), len(states)
    vr, vi = np.empty((n, width)), np.empty((n, width))
    sr, si = np.empty((n, width)), np.empty((n, width))
    for bus in range(n):
        for w in range(width):
            vr[bus, w], vi[bus, w] = voltage[states[w], bus].real, voltage[states[w], bus].imag
            sr[bus, w], si[bus, w] = fixed[bus].real, fixed[bus].imag
    for k in range(len(rows)):
        bus, factor = rows[k], factors[k]
        for w in range(width):
            sr[bus, w] += p[states[w], k] * factor
            si[bus, w] += q[states[w], k] * factor
    return (vr, vi), (sr, si)


@compiled
def _flow(v: Pair, matrix: Sparse, row: int, current: tuple[FloatVector, FloatVector]) -> None:
    """Write the product of one row of ``matrix`` with the voltages to ``current``."""
    starts, places, values = matrix
    vr, vi = v
    cr, ci = current
    cr[:] = 0.0
    ci[:] = 0.0
    for e in range(starts[row], starts[row + 1]):
        yr, yi, bus = values[e].real, values[e].imag, places[e]
        for w in range(len(cr)):
            cr[w] += yr * vr[bus, w] - yi * vi[bus, w]
            ci[w] += yr * vi[bus, w] + yi * vr[bus, w]


@compiled
def _mismatch(
    v: Pair,
    s: Pair,
    x: Pair,
    admittance: Sparse,
    pq: IntVector,
    current: tuple[FloatVector, FloatVector],
    verdict: tuple[FloatVector, FloatVector, BoolVector],
) -> None:
    """Write conj(mismatch / V) to ``x``, and to ``verdict`` the largest mismatch and, as its third part,
    whether any mismatch exceeds the second part."""
    vr, vi = v
    sr, si = s
    xr, xi = x
    cr, ci = current
    worst, largest, failed = verdict
    worst[:] = 0.0
    for k in range(len(pq)):
        bus = pq[k]
        _flow(v, admittance, bus, current)
        for w in range(len(worst)):
            a, b = vr[bus, w], vi[bus, w]
            p = sr[bus, w] - (a * cr[w] + b * ci[w])
            q = si[bus, w] - (b * cr[w] - a * ci[w])
            # too large, or not a number
            failed[w] |= not abs(p) + abs(q) <= largest[w]
            worst[w] = max(worst[w], abs(p), abs(q))
            square = a * a + b * b
            xr[k, w] = (p * a + q * b) / square
            xi[k, w] = (p * b - q * a) / square


@compiled
def _correct_block(v: Pair, x: Pair, factors: Factors, active: BoolVector) -> None:
    """Solve for the corrections ``x`` and add them to the voltages of active states."""
    pq, (l_starts, l_places, l_values), (u_starts, u_places, u_values), u_inverse = factors
    vr, vi = v
    xr, xi = x
    m, width = xr.shape
    for j in range(m):
        for e in range(l_starts[j], l_starts[j + 1]):
            fr, fi, i = l_values[e].real, l_values[e].imag, l_places[e]
            for w in range(width):
                xr[i, w] -= fr * xr[j, w] - fi * xi[j, w]
                xi[i, w] -= fr * xi[j, w] + fi * xr[j, w]
    for j in range(m - 1, -1, -1):
        fr, fi = u_inverse[j].real, u_inverse[j].imag
        for w in range(width):
            a, b = xr[j, w], xi[j, w]
            xr[j, w] = a * fr - b * fi
            xi[j, w] = a * fi + b * fr
        for e in range(u_starts[j], u_starts[j + 1]):
            fr, fi, i = u_values[e].real, u_values[e].imag, u_places[e]
            for w in range(width):
                xr[i, w] -= fr * xr[j, w] - fi * xi[j, w]
                xi[i, w] -= fr * xi[j, w] + fi * xr[j, w]
    for k in range(m):
        bus = pq[k]
        for w in range(width):
            if active[w]:
                vr[bus, w] += xr[k, w]
                vi[bus, w] += xi[k, w]


@compiled
def _read_block(
    powers: Pair,
    solution: tuple[Pair, Pair],
    results: FloatMatrix,
    states: IntVector,
    admittance: Sparse,
    readout: Readout,
    solved: BoolVector,
) -> None:
    """Write the results of solved states; see :func:`read`.

    ``powers`` are those of elements; ``solution`` has voltages and powers of the buses.
    """
    bus_rows, ends, ext_rows, ext_factors, alive, reactive = readout
    v, s = solution
    vr, vi = v
    sr, si = s
    width = len(states)
    current = np.empty(width), np.empty(width)
    cr, ci = current
    buses, branches, grids = len(bus_rows), (len(ends[0]) - 1) // 2, len(ext_rows)
    out = np.ones((1 + buses + branches + 2 * grids, width))
    for k in range(buses):
        bus = bus_rows[k]
        for w in range(width):
            out[1 + k, w] = np.sqrt(vr[bus, w] ** 2 + vi[bus, w] ** 2) if bus >= 0 else 0.0
    for k in range(branches):
        row = 1 + buses + k
        _flow(v, ends, k, current)
        for w in range(width):
            out[row, w] = cr[w] * cr[w] + ci[w] * ci[w]
        _flow(v, ends, k + branches, current)
        for w in range(width):
            out[row, w] = np.sqrt(max(out[row, w], cr[w] * cr[w] + ci[w] * ci[w]))
    for k in range(grids):
        bus, factor, row = ext_rows[k], ext_factors[k], 1 + buses + branches + k
        _flow(v, admittance, bus, current)
        for w in range(width):
            out[row, w] = (vr[bus, w] * cr[w] + vi[bus, w] * ci[w] - sr[bus, w]) * factor
            out[row + grids, w] = (vi[bus, w] * cr[w] - vr[bus, w] * ci[w] - si[bus, w]) * factor
    for w in range(width):
        if solved[states[w]]:
            state = states[w]
            for row in range(len(out)):
                results[state, row] = out[row, w]
            first = len(out)
            for k in range(len(alive)):
                results[state, first + k] = powers[0][state, k] if alive[k] else 0.0
            first += len(alive)
            for k in range(len(reactive)):
                element = reactive[k]
                results[state, first + k] = powers[1][state, element] if alive[element] else 0.0
