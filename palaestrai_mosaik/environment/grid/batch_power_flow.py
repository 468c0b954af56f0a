"""The power flow of many states at once: write, solve and read as (states, ...) matrices.

One factorised matrix serves all states of a topology (:mod:`.kernels`). Where that
iteration does not apply or does not converge, Newton's method solves the state by itself
(:class:`.fast_power_flow.Newton`), without memory of another one. So each result is a function of the state's own
arguments, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import PowerFlowError
from palaestrai_mosaik.types.arrays import BoolMatrix, ComplexMatrix, ComplexVector, FloatMatrix, IntVector

from .fast_power_flow import MAX_ITERATIONS, FastPowerFlow, Topology
from .kernels import Pair, follow_profiles, inject, solve_many
from .power_flow import PowerFlowResult
from .profiles import Profiles


class BatchPowerFlow:
    """Solves many states of one net, each with a topology of its own.

    ``columns``: what a row of results holds. ``cold``: voltages (internal buses,) of the net's
    own topology, from which an episode's first state is searched.
    """

    def __init__(self, power_flow: FastPowerFlow):
        self.power_flow = power_flow
        self._own = power_flow.topology(power_flow.line_in_service, power_flow.tap_pos)
        self._own_arrays = _arrays(self._own)
        equations, net = self._own.equations, power_flow.net
        self.cold: ComplexVector = equations.cold
        #: elements, and the places of loads, inverters and storages among them
        self.elements = len(equations.element_rows)
        self.loads, self.sgens, self.storages = equations.slices
        #: Q of all elements in Mvar: 0 but for the storages, where nobody changes it
        self.own_q = equations.q.copy()
        sizes = (1, len(net.bus), len(net.line), len(net.trafo), len(net.ext_grid), len(net.ext_grid))
        ends = np.cumsum(sizes).tolist()
        self.columns = {
            name: slice(end - size, end)
            for name, size, end in zip(
                ("converged", "vm_pu", "line_loading", "trafo_loading", "ext_grid_p", "ext_grid_q"),
                sizes,
                ends,
                strict=True,
            )
        }
        self.width = ends[-1]

    def follow(self, profiles: Profiles, rows: IntVector) -> Pair:
        """Return P and Q (rows, elements) in MW and Mvar, as ``profiles`` have them in ``rows``.

        There, inverters and storages have no Q of their own: it is :attr:`own_q`.
        """
        p, q = np.empty((len(rows), self.elements)), np.repeat(self.own_q[None], len(rows), axis=0)
        load_p, load_q, sgen_p, storage_p = profiles.parts
        for powers, first, part in (
            (p, self.loads.start, load_p),
            (q, self.loads.start, load_q),
            (p, self.sgens.start, slice(sgen_p.start, storage_p.stop)),
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
        """Solve the rows ``states`` in place; return why those have no solution that have none.

        ``powers``: P and Q (rows, elements) of loads, inverters and storages, MW and Mvar, signs
        as pandapower's. ``voltage`` (rows, internal buses): the state before, to search from.
        ``results`` (rows, :attr:`width`): see :attr:`columns`; ``converged`` becomes 1, or 0 where
        there is no solution, whose other results stay. ``switched``: lines in service (rows, lines)
        and tap positions (rows, transformers), ``None``: the net's own. States of another topology
        than that are searched from where it was built, whatever ``voltage`` says.
        """
        reasons: dict[int, str] = {}
        others: dict[bytes, list[int]] = {}
        if switched is not None:
            states, others = self._by_topology(states, *switched)
        if len(states):
            reasons |= self._solve(self._own, self._own_arrays, powers, (voltage, results), states)
        for places in others.values():
            assert switched is not None
            rows = np.array(places, dtype=np.int64)
            voltage[rows] = self.cold
            try:
                topology = self.power_flow.topology(switched[0][rows[0]], switched[1][rows[0]])
            except PowerFlowError as error:
                reasons |= dict.fromkeys(places, str(error))
                results[rows, 0] = 0.0
                continue
            begun = np.repeat(topology.equations.cold[None], len(rows), axis=0)
            found = results[rows]
            inside = np.arange(len(rows))
            why = self._solve(
                topology, _arrays(topology), (powers[0][rows], powers[1][rows]), (begun, found), inside
            )
            results[rows] = found
            reasons |= {places[row]: reason for row, reason in why.items()}
        return reasons

    def _by_topology(
        self, states: IntVector, lines: BoolMatrix, taps: FloatMatrix
    ) -> tuple[IntVector, dict[bytes, list[int]]]:
        """Return the rows that have the net's own topology, and the others by theirs."""
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
        found: tuple[ComplexMatrix, FloatMatrix],
        states: IntVector,
    ) -> dict[int, str]:
        voltage, results = found
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
    """Return what the compiled loop takes, ``None`` where it does not apply."""
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
        ),
    )


def _solve_alone(
    topology: Topology,
    p: npt.NDArray[np.float64],
    q: npt.NDArray[np.float64],
    voltage: ComplexVector,
    results: npt.NDArray[np.float64],
) -> str:
    """Solve one state, in place; return why it has no solution (``""``: it has).

    The iteration for one state computes what that for many does, to the last bit, and is faster
    for one.
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
        results[:] = np.concatenate(_parts_of(equations.read(solution, power)))
        return ""
    reason = newton.explain(power)
    newton.forget()
    voltage[:] = equations.cold
    results[0] = 0.0
    return reason


def _parts_of(result: PowerFlowResult) -> Sequence[npt.NDArray[np.float64]]:
    return (
        np.ones(1),
        result.vm_pu,
        result.line_loading,
        result.trafo_loading,
        result.ext_grid_p,
        result.ext_grid_q,
    )
