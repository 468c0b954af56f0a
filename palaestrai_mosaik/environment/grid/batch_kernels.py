"""The compiled loops that solve many states of one grid at once.

The same iteration as :func:`.kernels.fixed_point`, with the innermost loops over states: every
entry of a matrix is read once for a block of them, and the processor's vector units work on
several at a time. No operation mixes two states, and each of them stops by itself, so the
numbers of one do not depend on those beside it, to the last bit.

Inside, complex numbers are two arrays of shape (buses, states), real and imaginary parts.
"""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.types.arrays import (
    BoolVector,
    ComplexMatrix,
    ComplexVector,
    FloatMatrix,
    FloatVector,
    IntVector,
)

from .kernels import GROWTH, Sparse, compiled

Pair = tuple[FloatMatrix, FloatMatrix]

#: states that are solved side by side: what they need then stays in the processor's second cache
BLOCK = 32

#: element rows, their factors, and the fixed power of every bus, as for :func:`.kernels.inject`
Injections = tuple[IntVector, FloatVector, ComplexVector]
#: pq, L, U and the inverse of its diagonal, as for :func:`.kernels.fixed_point`
Factors = tuple[IntVector, Sparse, Sparse, ComplexVector]
#: bus rows and ends of branches, as for :func:`.kernels.read`; slack row and factor (MVA) of
#: every external grid
Readout = tuple[IntVector, Sparse, IntVector, FloatVector]


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

    A negative column is one of ones. Raises :class:`IndexError` where there is no such row.
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
            # without a question in it, this loop takes a third; a negative column counts from the end
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
    """Solve the rows ``states`` of ``voltage`` (rows, buses), in place, and read ``results``.

    ``powers``: P and Q of all elements, both (rows, elements), in MW and Mvar. ``equations``: the
    admittances by rows, then as said above. ``limits``: the tolerance (p.u.) and the number of
    iterations. ``solved`` (rows,): whether a row's iteration has converged. ``results`` (rows,
    columns): 1, voltages (p.u.), loadings (%), P and Q of the external grids (MW, Mvar). Where
    the iteration has not converged, voltage and results stay what they were.
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
    v, s = _load(powers, voltage, states, injections)
    tolerance, most = limits
    pq, width = factors[0], len(states)
    x = np.empty((len(pq), width)), np.empty((len(pq), width))
    current = np.empty(width), np.empty(width)
    worst, largest = np.empty(width), np.full(width, np.inf)
    going, failed = np.ones(width, np.bool_), np.zeros(width, np.bool_)
    for iteration in range(most + 1):
        _missing(v, s, x, admittance, pq, current, (worst, largest, failed))
        left = 0
        for w in range(width):
            if not going[w]:
                continue
            if worst[w] < 0.1 * tolerance or (iteration == most and worst[w] < tolerance):
                solved[states[w]] = not failed[w]
            going[w] = not failed[w] and not solved[states[w]] and iteration < most
            left += going[w]
            if iteration == 0:
                largest[w] = GROWTH * worst[w]
        if left == 0:
            break
        _correct(v, x, factors, going)
    for w in range(width):
        if solved[states[w]]:
            for bus in range(len(v[0])):
                voltage[states[w], bus] = complex(v[0][bus, w], v[1][bus, w])
    _read(v, s, results, states, admittance, readout, solved)


@compiled
def _load(
    powers: Pair, voltage: ComplexMatrix, states: IntVector, injections: Injections
) -> tuple[Pair, Pair]:
    """Return voltages and injected powers of the block."""
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
def _missing(
    v: Pair,
    s: Pair,
    x: Pair,
    admittance: Sparse,
    pq: IntVector,
    current: tuple[FloatVector, FloatVector],
    verdict: tuple[FloatVector, FloatVector, BoolVector],
) -> None:
    """Write conj(mismatch / V) to ``x``, the largest mismatch to the first part of ``verdict``, and to
    the third whether one is above the second."""
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
def _correct(v: Pair, x: Pair, factors: Factors, going: BoolVector) -> None:
    """Solve for the corrections ``x``, and add them to the voltages of states that go on."""
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
            if going[w]:
                vr[bus, w] += xr[k, w]
                vi[bus, w] += xi[k, w]


@compiled
def _read(
    v: Pair,
    s: Pair,
    results: FloatMatrix,
    states: IntVector,
    admittance: Sparse,
    readout: Readout,
    solved: BoolVector,
) -> None:
    """Write the results of the states that are solved; see :func:`.kernels.read`."""
    bus_rows, ends, ext_rows, ext_factors = readout
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
            for row in range(len(out)):
                results[states[w], row] = out[row, w]
