"""The power flow of many states at once: write, solve and read as (states, ...) matrices.

One factorised matrix serves all states of a topology (:mod:`.kernels`). If the fixed-point iteration does
not apply or does not converge, Newton's method solves the state separately
(:class:`.fast_power_flow.Newton`), without memory of other states. Each result therefore depends on the
state's own arguments alone, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import PowerFlowError
from palaestrai_mosaik.environment.batch import slices_of
from palaestrai_mosaik.types.arrays import BoolMatrix, ComplexMatrix, ComplexVector, FloatMatrix, IntVector

from .fast_power_flow import MAX_ITERATIONS, FastPowerFlow, Topology
from .kernels import Pair, follow_profiles, inject, solve_many
from .profiles import Profiles

#: the parts of a row of results after ``converged``
_RESULTS = attrgetter(
    *("vm_pu", "line_loading", "trafo_loading", "ext_grid_p", "ext_grid_q"),
    *("load_p", "sgen_p", "storage_p", "sgen_q"),
)


class BatchPowerFlow:
    """Solves many states of one net, each with its own topology.

    ``columns``: the columns of a row of results. ``cold``: voltages (internal buses,) of the net's
    default topology, the starting point of an episode's first state.
    """

    def __init__(self, power_flow: FastPowerFlow):
        self.power_flow = power_flow
        self._own = power_flow.topology(power_flow.line_in_service, power_flow.tap_pos)
        self._own_arrays = _arrays(self._own)
        equations, net = self._own.equations, power_flow.net
        self.cold: ComplexVector = equations.cold
        #: number of elements, and the slices of loads, inverters, storages and generators among them
        self.elements = len(equations.element_rows)
        self.loads, self.sgens, self.storages, self.gens = equations.slices
        #: default Q of all elements in Mvar: that of the storages, 0 for all others
        self.own_q = equations.q.copy()
        tables = {
            "vm_pu": "bus",
            "line_loading": "line",
            "trafo_loading": "trafo",
            "ext_grid_p": "ext_grid",
            "ext_grid_q": "ext_grid",
            "load_p_mw": "load",
            "sgen_p_mw": "sgen",
            "storage_p_mw": "storage",
            "sgen_q_mvar": "sgen",
        }
        widths = {"converged": 1} | {name: len(net[table]) for name, table in tables.items()}
        self.columns = dict(zip(widths, slices_of([(width,) for width in widths.values()]), strict=True))
        self.width = sum(widths.values())

    def follow(self, profiles: Profiles, rows: IntVector) -> Pair:
        """Return P and Q (rows, elements) in MW and Mvar of ``rows`` of the ``profiles``.

        Profiles have no Q of inverters, storages and generators; it is :attr:`own_q`.
        """
        p, q = np.empty((len(rows), self.elements)), np.repeat(self.own_q[None], len(rows), axis=0)
        load_p, load_q, sgen_p, _, gen_p = profiles.parts
        for powers, first, part in (
            (p, self.loads.start, load_p),
            (q, self.loads.start, load_q),
            (p, self.sgens.start, slice(sgen_p.start, gen_p.stop)),
        ):
            columns, factors = profiles.columns[part], profiles.factors[part]
            follow_profiles(profiles.table, rows, columns, factors, powers, first)
        return p, q

    def solve(
        self,
        powers: Pair,
        voltage: ComplexMatrix,
        results: FloatMatrix,
        states: IntVector,
        switched: tuple[BoolMatrix, FloatMatrix] | None = None,
    ) -> dict[int, str]:
        """Solve the rows ``states`` in place and return the reasons of rows without a solution.

        Args:
            powers: P and Q (rows, elements) of loads, inverters, storages and generators, in MW and Mvar,
                with pandapower's signs.
            voltage: (rows, internal buses), the state before, from which the solver starts.
            results: (rows, :attr:`width`), see :attr:`columns`. ``converged`` becomes 1, or 0 without a
                solution; the other results then do not change.
            states: the rows to solve.
            switched: lines in service (rows, lines) and tap positions (rows, transformers); ``None``: those
                of the net. With another topology, the solver starts from the state that was found when
                that topology was built, and ignores ``voltage``.
        """
        reasons: dict[int, str] = {}
        others: dict[bytes, list[int]] = {}
        if switched is not None:
            states, others = self._by_topology(states, *switched)
        if len(states):
            reasons |= self._solve(self._own, self._own_arrays, powers, (voltage, results), states)
        for row_numbers in others.values():
            assert switched is not None
            rows = np.array(row_numbers, dtype=np.int64)
            voltage[rows] = self.cold
            try:
                topology = self.power_flow.topology(switched[0][rows[0]], switched[1][rows[0]])
            except PowerFlowError as error:
                reasons |= dict.fromkeys(row_numbers, str(error))
                results[rows, 0] = 0.0
                continue
            start = np.repeat(topology.equations.cold[None], len(rows), axis=0)
            solved_results = results[rows]
            inside = np.arange(len(rows))
            unsolved = self._solve(
                topology,
                _arrays(topology),
                (powers[0][rows], powers[1][rows]),
                (start, solved_results),
                inside,
            )
            results[rows] = solved_results
            reasons |= {row_numbers[row]: reason for row, reason in unsolved.items()}
        return {
            row: reason
            for row, reason in reasons.items()
            if not self._solve_by_pandapower(powers, voltage, results, row, switched)
        }

    def _solve_by_pandapower(
        self,
        powers: Pair,
        voltage: ComplexMatrix,
        results: FloatMatrix,
        row: int,
        switched: tuple[BoolMatrix, FloatMatrix] | None,
    ) -> bool:
        """Solve one state in place by pandapower and return whether it has a solution."""
        flow = self.power_flow
        lines, taps = (flow.line_in_service, flow.tap_pos) if switched is None else (m[row] for m in switched)
        result = flow.solve_by_pandapower(_by_kind(self._own, powers[0][row], powers[1][row]), lines, taps)
        if result is None:
            return False
        voltage[row] = self.cold
        results[row] = np.concatenate((np.ones(1), *_RESULTS(result)))
        return True

    def _by_topology(
        self, states: IntVector, lines: BoolMatrix, taps: FloatMatrix
    ) -> tuple[IntVector, dict[bytes, list[int]]]:
        """Split the rows into those with the net's default topology and the others, by topology."""
        flow = self.power_flow
        same = (lines[states] == flow.line_in_service).all(axis=1)
        same &= ((taps[states] == flow.tap_pos) | np.isnan(flow.tap_pos)).all(axis=1)
        others: dict[bytes, list[int]] = {}
        for row in states[~same].tolist():
            others.setdefault(lines[row].tobytes() + taps[row].tobytes(), []).append(row)
        return states[same], others

    def _solve(
        self,
        topology: Topology,
        arrays: tuple[Any, ...] | None,
        powers: Pair,
        state: tuple[ComplexMatrix, FloatMatrix],
        states: IntVector,
    ) -> dict[int, str]:
        voltage, results = state
        solved = np.zeros(len(voltage), dtype=np.bool_)
        if arrays is not None and len(states) > 1:
            limits = topology.equations.tolerance, MAX_ITERATIONS
            solve_many(powers, voltage, results, states, arrays, limits, solved)
        if solved.sum() == len(states):
            return {}
        reasons = {}
        for row in states[~solved[states]].tolist():
            reason = _solve_alone(topology, powers[0][row], powers[1][row], voltage[row], results[row])
            if reason:
                reasons[row] = reason
        return reasons


def _arrays(topology: Topology) -> tuple[Any, ...] | None:
    """Return the arguments of the compiled loop, or ``None`` if it does not apply."""
    equations, iteration = topology.equations, topology.fixed_point
    if iteration is None:
        return None
    return (
        equations.by_rows,
        (equations.element_rows, equations.element_factors, equations.fixed),
        (iteration.order, *iteration.factors),
        (
            equations.bus_rows,
            equations.branch_ends,
            equations.slack[equations.ext_grid_place],
            equations.ext_grid_factor,
            equations.alive[: equations.slices[2].stop],
            np.arange(equations.slices[1].start, equations.slices[1].stop),
        ),
    )


def _solve_alone(
    topology: Topology,
    p: npt.NDArray[np.float64],
    q: npt.NDArray[np.float64],
    voltage: ComplexVector,
    results: npt.NDArray[np.float64],
) -> str:
    """Solve one state in place; return ``""``, or the reason if it has no solution.

    Its iteration gives the same result as that for many states, to the last bit, and is faster for one.
    """
    equations, newton = topology.equations, topology.newton
    power = inject(p, q, equations.element_rows, equations.element_factors, equations.fixed)
    solution = topology.fixed_point.solve(voltage, power) if topology.fixed_point else None
    for start in (voltage, equations.cold):
        if solution is None:
            newton.forget()
            solution = newton.solve(start, power)
    if solution is not None:
        voltage[:] = solution
        result = equations.read(solution, power, _by_kind(topology, p, q))
        results[:] = np.concatenate((np.ones(1), *_RESULTS(result)))
        return ""
    reason = newton.explain(power)
    newton.forget()
    voltage[:] = equations.cold
    results[0] = 0.0
    return reason


def _by_kind(
    topology: Topology, p: npt.NDArray[np.float64], q: npt.NDArray[np.float64]
) -> Sequence[npt.NDArray[np.float64]]:
    """Return the powers of elements as arguments of :meth:`FastPowerFlow.solve`."""
    loads, sgens, storages, gens = topology.equations.slices
    return p[loads], q[loads], p[sgens], q[sgens], p[storages], p[gens]
