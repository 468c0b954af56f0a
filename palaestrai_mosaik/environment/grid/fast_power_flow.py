"""The fast power flow: build the equations of a topology once, solve them often.

With given voltages V_s of the slacks, the other buses satisfy ::

    V = Y_pq^-1 (conj(S / V) - Y_ps V_s)

and iterating that map converges linearly, by a factor of about the load over the
short-circuit power: four to seven steps in a medium-voltage grid from a close last
state (Stott 1974, "Review of Load-Flow Calculation Methods", Proc. IEEE 62(7), the
"Z-matrix method"). Y_pq is factorised once per topology, so that a step is two sparse
triangular solves and a product with Y. It is used in its equivalent corrected form, ::

    V += Y_pq^-1 conj(mismatch / V)

with the same mismatch that Newton's method tests for convergence.

In a grid near its limits, Newton's method may converge where the iteration does not. The iteration
then reports failure, and Newton's method takes over.

pandapower spends most of a power flow on turning tables into matrices. Here one
``pandapower.runpp`` builds the bus admittance matrix (``net._ppc["internal"]``); every
later state only changes the right-hand side. It is solved from the last state, by Newton's method if
there are PV buses or the iteration does not converge, and otherwise by the fixed-point iteration. Both
stop at the same power mismatch.

Each topology (a line switched, a tap moved) has its own matrix, which is built on first use
and kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pandapower.pd2ppc import _pd2ppc
from pandapower.pypower.idx_bus import BASE_KV, GS, PD, QD, VM
from pandapower.pypower.makeYbus import makeYbus
from scipy import sparse
from scipy.sparse.linalg import splu

from palaestrai_mosaik.core.errors import PowerFlowError
from palaestrai_mosaik.environment.batch import slices_of
from palaestrai_mosaik.types.arrays import BoolVector, ComplexVector, FloatVector, IntVector

from .kernels import Sparse, fixed_point, inject, read
from .power_flow import (
    TOLERANCE_MVA,
    PowerFlow,
    PowerFlowResult,
    powers_of,
    read_pandapower,
    run_pandapower,
    topology_of,
)


class Equations:
    """Matrices and vectors in p.u., taken from a net just solved by pandapower.

    Internal buses are pandapower's ``ppci`` buses: fused, energised, sorted.

    ``ybus`` is the bus admittance matrix (csc); ``ref``, ``pv`` and ``pq`` are the
    internal buses of each kind; ``cold`` is the state with which this topology was first solved, the
    starting point of an episode. ``tolerance`` is the largest power
    mismatch of a solution.
    """

    def __init__(self, net: Any):
        internal = net._ppc["internal"]
        if "baseMVA" not in internal:
            internal = _without_unknowns(net)
        self.base_mva = float(internal["baseMVA"])
        self.tolerance = TOLERANCE_MVA / self.base_mva
        self.ybus = sparse.csc_matrix(internal["Ybus"])
        self.ybus.sum_duplicates()
        self.by_rows = as_arrays(sparse.csr_matrix(self.ybus))
        self.n = self.ybus.shape[0]
        self.ref = np.unique(np.asarray(internal["ref"], dtype=np.int32))
        self.slack = self.ref.astype(np.int64)
        self.pv = np.asarray(internal["pv"], dtype=np.int32)
        self.pq = np.asarray(internal["pq"], dtype=np.int32)
        self.cold: ComplexVector = np.array(internal["V"], dtype=np.complex128)
        self._number_elements(net)
        self._fixed_injections(net, internal)
        self._result_rows(net, internal)
        self.bus_names = net.bus.index.to_numpy()

    def _number_elements(self, net: Any) -> None:
        rows_of_buses, alive = self._internal_bus(net, net.bus.index.to_numpy())
        self.bus_rows = np.where(alive, rows_of_buses, -1)
        rows, factors, alives = [], [], []
        for table, sign in ((net.load, -1.0), (net.sgen, 1.0), (net.storage, -1.0), (net.gen, 1.0)):
            row, alive = self._internal_bus(net, table.bus.to_numpy())
            alive = alive & table.in_service.to_numpy(dtype=bool)
            rows.append(row)
            factors.append(sign / self.base_mva * alive)
            alives.append(alive)
        self.slices = slices_of([alive.shape for alive in alives])
        self.element_rows = np.concatenate(rows)
        self.element_factors = np.concatenate(factors)
        #: whether an element's power flows: it is in service, and its bus is energised
        self.alive: BoolVector = np.concatenate(alives)
        self.all_alive = bool(self.alive.all())
        gens = self.slices[3]
        slack = self.alive[gens] & net.gen.slack.to_numpy(dtype=bool)
        # a slack's power is a result, so its table's value must have no effect
        self.element_factors[gens][slack] = 0.0
        self.slack_gens = np.flatnonzero(slack)
        self.slack_gen_place = np.searchsorted(self.ref, self.element_rows[gens][slack])
        self.p, self.q = np.zeros(len(self.alive)), np.zeros(len(self.alive))
        self.q[self.slices[2]] = (net.storage.q_mvar * net.storage.scaling).to_numpy(dtype=float)

    def _internal_bus(self, net: Any, buses: npt.NDArray[Any]) -> tuple[IntVector, BoolVector]:
        lookup = np.asarray(net._pd2ppc_lookups["bus"], dtype=np.int64)
        rows = lookup[buses.astype(np.int64)]
        alive = (rows >= 0) & (rows < self.n)
        return np.where(alive, rows, 0), alive

    def _fixed_injections(self, net: Any, internal: dict[str, Any]) -> None:
        """Sum the constant injections of motors, wards and the like (p.u.)."""
        bus = internal["bus"].real
        fixed = -(bus[:, PD] + 1j * bus[:, QD]) / self.base_mva
        tables = (net.load, net.sgen, net.storage)
        for part, table in zip(self.slices[:3], tables, strict=True):
            scaling = table.scaling.to_numpy(dtype=float)
            s = (table.p_mw.to_numpy(dtype=float) + 1j * table.q_mvar.to_numpy(dtype=float)) * scaling
            np.add.at(fixed, self.element_rows[part], -s * self.element_factors[part])
        self.fixed = fixed
        self.shunt_p = bus[:, GS] / self.base_mva

    def _result_rows(self, net: Any, internal: dict[str, Any]) -> None:
        """Build one matrix that maps the voltages to the currents of all lines and transformers,
        first ends, then second ends, in percent of the rated ones."""
        branch_in_service = np.asarray(internal["branch_is"], dtype=bool)
        row_of = np.cumsum(branch_in_service) - 1
        base_kv = internal["bus"][:, BASE_KV].real
        yf, yt = sparse.csr_matrix(internal["Yf"]), sparse.csr_matrix(internal["Yt"])
        line, trafo = net.line, net.trafo
        ends = []
        for matrix, column, winding in ((yf, 0, "vn_hv_kv"), (yt, 1, "vn_lv_kv")):
            # 1 / rated current (1/kA)
            lines = _inverse(line.max_i_ka * line.df * line.parallel)
            trafos = np.sqrt(3.0) * _inverse(trafo.sn_mva * trafo.parallel * trafo.df / trafo[winding])
            for name, rating in (("line", lines), ("trafo", trafos)):
                first, last = net._pd2ppc_lookups["branch"].get(name, (0, 0))
                places = np.arange(first, last)
                used = branch_in_service[places]
                kv = base_kv[internal["branch"][row_of[places[used]], column].real.astype(np.int64)]
                scale = np.zeros(last - first)
                scale[used] = 100.0 * rating[used] * self.base_mva / (np.sqrt(3.0) * kv)
                rows = np.where(used, row_of[places], 0)
                if matrix.shape[0]:
                    ends.append(sparse.diags(scale) @ matrix[rows] if len(places) else matrix[:0])
                else:  # every branch is out of service
                    ends.append(sparse.csr_matrix((len(places), self.n), dtype=np.complex128))
        currents = sparse.csr_matrix(sparse.vstack(ends))
        currents.eliminate_zeros()
        self.branch_ends = as_arrays(currents)
        self.n_line = len(net.line)
        row, alive = self._internal_bus(net, net.ext_grid.bus.to_numpy())
        alive = alive & net.ext_grid.in_service.to_numpy(dtype=bool)
        self.ext_grid_place = np.searchsorted(self.ref, np.where(alive, row, self.ref[0]))
        self.ext_grid_factor = self.base_mva * alive

    def power(
        self,
        load_p: FloatVector,
        load_q: FloatVector,
        sgen_p: FloatVector,
        sgen_q: FloatVector,
        storage_p: FloatVector,
        gen_p: FloatVector,
    ) -> ComplexVector:
        """Compute the power injected at every internal bus (p.u.) from the arguments of :meth:`PowerFlow.solve`."""
        loads, sgens, storages, gens = self.slices
        p, q = self.p, self.q
        p[loads], p[sgens], p[storages], p[gens] = load_p, sgen_p, storage_p, gen_p
        q[loads], q[sgens] = load_q, sgen_q
        return inject(p, q, self.element_rows, self.element_factors, self.fixed)

    def read(
        self, voltage: ComplexVector, power: ComplexVector, powers: Sequence[FloatVector]
    ) -> PowerFlowResult:
        """Read the results of the state ``voltage``, which solves the equations for ``power``.

        ``power`` is the result of :meth:`power` for ``powers``.
        """
        vm_pu, loading, feed, losses = read(
            voltage, power, self.by_rows, self.branch_ends, self.bus_rows, self.slack, self.shunt_p
        )
        ext_grid = feed[self.ext_grid_place] * self.ext_grid_factor
        lines, trafos = loading[: self.n_line], loading[self.n_line :]
        if not self.all_alive or len(self.slack_gens):
            powers = self._flowing(powers, feed)
        losses *= self.base_mva
        return PowerFlowResult(vm_pu, lines, trafos, ext_grid.real, ext_grid.imag, losses, *powers)

    def _flowing(self, powers: Sequence[FloatVector], feed: ComplexVector) -> list[FloatVector]:
        """Return the actual powers of elements: the requested ones, 0 if dead, results for slacks."""
        loads, sgens, storages, gens = (self.alive[part] for part in self.slices)
        flowing = [
            np.where(alive, values, 0.0)
            for alive, values in zip((loads, loads, sgens, sgens, storages, gens), powers, strict=True)
        ]
        flowing[-1][self.slack_gens] = feed[self.slack_gen_place].real * self.base_mva
        return flowing

    def worst_mismatch(self, voltage: ComplexVector, power: ComplexVector) -> tuple[float, str]:
        """Return the largest power mismatch (MVA) of a state, and its bus."""
        mismatch = np.abs(voltage * (self.ybus @ voltage).conj() - power) * self.base_mva
        mismatch[self.ref] = 0.0
        index = int(np.argmax(mismatch))
        buses = self.bus_names[self.bus_rows == index]
        return float(mismatch[index]), f"bus {buses[0]}" if len(buses) else f"internal bus {index}"


def _without_unknowns(net: Any) -> dict[str, Any]:
    """Build the matrices that pandapower leaves out if every energised bus has an external grid."""
    _, ppci = _pd2ppc(net)
    ybus, yf, yt = makeYbus(ppci["baseMVA"], ppci["bus"], ppci["branch"])
    none = np.empty(0, dtype=np.int64)
    buses = {"ref": np.arange(len(ppci["bus"])), "pv": none, "pq": none, "V": ppci["bus"][:, VM].real}
    return {**ppci["internal"], **ppci, **buses, "Ybus": ybus, "Yf": yf, "Yt": yt}


def as_arrays(matrix: Any) -> Sparse:
    """Convert a csr or csc matrix to the arrays of the compiled loops."""
    matrix.sort_indices()
    return (
        matrix.indptr.astype(np.int32),
        matrix.indices.astype(np.int32),
        np.ascontiguousarray(matrix.data, dtype=np.complex128),
    )


def _inverse(ratings: Any) -> FloatVector:
    """Return 1 / rating of each branch, 0 without a rating."""
    rating = ratings.to_numpy(dtype=float)
    good = np.isfinite(rating) & (rating > 0)
    inverse: FloatVector = np.divide(1.0, rating, out=np.zeros_like(rating), where=good)
    return inverse


#: largest number of iterations; more would take longer than Newton's method
MAX_ITERATIONS = 40


class FixedPoint:
    """The fixed-point iteration for one topology; make it with :meth:`of`."""

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
        """Return the iteration for ``equations``, or ``None`` if it does not apply to them."""
        pq = equations.pq
        if len(equations.pv) or not len(pq):
            return None
        try:
            # Pivots from the diagonal, in a symmetric order: rows and columns then share one
            # order, in which all vectors can be stored.
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
        """Return the voltages for ``power``, starting from ``start``, or ``None`` without convergence."""
        equations, voltage = self.equations, start.copy()
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


MAX_NEWTON_ITERATIONS = 20


class Newton:
    """Newton's method for one topology. It reuses the pivots of its factorisation."""

    def __init__(self, equations: Equations):
        self.equations = equations
        self._slack_weights = np.zeros(equations.n)
        self._slack_weights[equations.ref] = 1.0 / len(equations.ref)
        self._algorithm = _algorithm()

    def forget(self) -> None:
        """Discard all memory of earlier solutions."""
        self._algorithm.reset()

    def solve(self, start: ComplexVector, power: ComplexVector) -> ComplexVector | None:
        """Return the voltages for ``power``, starting from ``start``, or ``None`` without convergence."""
        equations = self.equations
        if len(equations.ref) == equations.n:
            return start.copy()
        solved = self._algorithm.solve(
            equations.ybus,
            start.copy(),
            power,
            equations.ref,
            self._slack_weights,
            equations.pv,
            equations.pq,
            MAX_NEWTON_ITERATIONS,
            equations.tolerance,
        )
        return self._algorithm.get_V() if solved else None

    def explain(self, power: ComplexVector) -> str:
        """Describe the failure of the last solution, with its worst mismatch."""
        text = f"the power flow did not converge in {MAX_NEWTON_ITERATIONS} iterations"
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


#: number of topologies kept with their matrices
CACHED_TOPOLOGIES = 128


class FastPowerFlow(PowerFlow):
    """Fixed-point iteration and Newton's method on pandapower's matrices.

    A state on a medium-voltage grid takes 20 to 50 us with the iteration and 0.1 to 0.4 ms with Newton's
    method, compared to 20 ms and more of ``runpp``. ``newton_only`` disables the iteration.
    """

    def __init__(self, net: Any, newton_only: bool = False):
        super().__init__(net)
        self._newton_only = newton_only
        self._topologies: OrderedDict[bytes, Topology] = OrderedDict()
        self._first = self._topology = self.topology(self.line_in_service, self.tap_pos)

    def reset(self) -> None:
        self.line_in_service, self.tap_pos = self._first_lines, self._first_taps
        self._topology = self._first
        self._topology.forget()

    def set_topology(
        self, line_in_service: npt.NDArray[Any] | None = None, tap_pos: npt.NDArray[Any] | None = None
    ) -> None:
        lines = self.line_in_service if line_in_service is None else np.asarray(line_in_service) > 0.5
        taps = self.tap_pos if tap_pos is None else np.asarray(tap_pos, dtype=float)
        if np.array_equal(lines, self.line_in_service) and np.array_equal(taps, self.tap_pos, equal_nan=True):
            return
        before = self.line_in_service, self.tap_pos
        self.line_in_service, self.tap_pos = lines.copy(), taps.copy()
        try:
            self._topology = self.topology(self.line_in_service, self.tap_pos)
        except PowerFlowError:
            self.line_in_service, self.tap_pos = before
            raise
        self._topology.forget()

    def solve(self, *powers: FloatVector) -> PowerFlowResult:
        try:
            return self._topology.solve(*powers)
        except PowerFlowError as error:
            result = self.solve_by_pandapower(powers, self.line_in_service, self.tap_pos)
            if result is None:
                raise error
            return result

    def solve_by_pandapower(
        self, powers: Sequence[FloatVector], line_in_service: BoolVector, tap_pos: FloatVector
    ) -> PowerFlowResult | None:
        """Return pandapower's solution, or ``None`` if it finds none either.

        pandapower starts from another state, so near the limits of a grid it can converge where
        a solution from the last state does not.
        """
        try:
            with topology_of(self.net, line_in_service, tap_pos), powers_of(self.net, *powers):
                run_pandapower(self.net, numba=False)
                return read_pandapower(self.net)
        except PowerFlowError:
            return None

    def topology(self, line_in_service: BoolVector, tap_pos: FloatVector) -> Topology:
        """Return the solver of a topology; arguments and errors are those of :meth:`set_topology`."""
        key = np.packbits(line_in_service).tobytes() + tap_pos.tobytes()
        topology = self._topologies.pop(key, None)
        if topology is None:
            with topology_of(self.net, line_in_service, tap_pos):
                topology = self._build()
            if len(self._topologies) >= CACHED_TOPOLOGIES:
                self._topologies.popitem(last=False)
        self._topologies[key] = topology
        return topology

    def _build(self) -> Topology:
        """Build the equations of the net in its present topology.

        They need a solution as their starting point: that of the net's own powers, or, if the topology
        cannot carry them, that without load and generation.
        """
        # without numba: compiling takes longer than these few runs
        try:
            run_pandapower(self.net, numba=False)
            return Topology(Equations(self.net), self._newton_only)
        except PowerFlowError:
            if not self._topologies:  # the net itself
                raise
        tables = self.net.load, self.net.sgen, self.net.gen
        scalings = [table["scaling"].copy() for table in tables]
        try:
            for table in tables:
                table["scaling"] = 0.0
            run_pandapower(self.net, numba=False)
            return Topology(Equations(self.net), self._newton_only)
        finally:
            for table, scaling in zip(tables, scalings, strict=True):
                table["scaling"] = scaling


class Topology:
    """The equations of one topology, their solvers, and the last solution."""

    def __init__(self, equations: Equations, newton_only: bool):
        self.equations = equations
        self.newton = Newton(equations)
        self.fixed_point = None if newton_only else FixedPoint.of(equations)
        self.voltage = equations.cold

    def forget(self) -> None:
        """Discard all memory of earlier solutions."""
        self.voltage = self.equations.cold
        self.newton.forget()

    def solve(self, *powers: FloatVector) -> PowerFlowResult:
        """Solve for powers in the order of :meth:`PowerFlow.solve`."""
        power = self.equations.power(*powers)
        voltage = self.fixed_point.solve(self.voltage, power) if self.fixed_point else None
        if voltage is None:
            voltage = self.newton.solve(self.voltage, power)
        if voltage is None:
            self.forget()
            voltage = self.newton.solve(self.voltage, power)
        if voltage is None:
            message = self.newton.explain(power)
            self.forget()
            raise PowerFlowError(message)
        self.voltage = voltage
        return self.equations.read(voltage, power, powers)
