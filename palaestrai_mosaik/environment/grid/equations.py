"""The power flow equations of one topology of a net, with everything that is read from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from pandapower.pypower.idx_bus import BASE_KV, GS, PD, QD
from pandapower.pypower.idx_gen import GEN_BUS, PG
from scipy import sparse

from palaestrai_mosaik.errors import PowerFlowError

from .kernels import ComplexVector, IntVector, Sparse, inject, read
from .powerflow import TOLERANCE_MVA, BoolVector, FloatVector, PowerFlowResult


class Equations:
    """Matrices and vectors in p.u., taken from a net just solved by pandapower.

    Internal buses are pandapower's ``ppci`` buses: fused, energised, sorted.

    ``ybus`` is the bus admittance matrix (csc); ``ref``, ``pv`` and ``pq`` are the
    internal buses of each kind; ``cold`` is a state that is known to solve this topology
    for some powers: where an episode starts from. ``tolerance`` is the largest power
    mismatch of a solution.
    """

    def __init__(self, net: Any):
        internal = net._ppc["internal"]
        if "baseMVA" not in internal:  # pandapower had nothing to solve
            raise PowerFlowError("nothing is energised besides the buses of the external grids")
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
        self.slices: list[slice] = []
        rows, factors, start = [], [], 0
        for table, sign in ((net.load, -1.0), (net.sgen, 1.0), (net.storage, -1.0)):
            row, alive = self._internal_bus(net, table.bus.to_numpy())
            rows.append(row)
            factors.append(sign / self.base_mva * (alive & table.in_service.to_numpy(dtype=bool)))
            self.slices.append(slice(start, start + len(table)))
            start += len(table)
        self.element_rows = np.concatenate(rows)
        self.element_factors = np.concatenate(factors)
        self.p, self.q = np.zeros(start), np.zeros(start)
        self.q[self.slices[2]] = net.storage.q_mvar.to_numpy(dtype=float) * net.storage.scaling.to_numpy(
            float
        )

    def _internal_bus(self, net: Any, buses: npt.NDArray[Any]) -> tuple[IntVector, BoolVector]:
        lookup = np.asarray(net._pd2ppc_lookups["bus"], dtype=np.int64)
        rows = lookup[buses.astype(np.int64)]
        alive = (rows >= 0) & (rows < self.n)
        return np.where(alive, rows, 0), alive

    def _fixed_injections(self, net: Any, internal: dict[str, Any]) -> None:
        """Everything that nobody changes: generators' P, motors, wards, ... (p.u.)."""
        bus, gen = internal["bus"].real, internal["gen"].real
        fixed = -(bus[:, PD] + 1j * bus[:, QD]) / self.base_mva
        others = np.setdiff1d(np.arange(len(gen)), self._reference_generators(net, internal))
        np.add.at(fixed, gen[others, GEN_BUS].astype(np.int64), gen[others, PG] / self.base_mva)
        tables = (net.load, net.sgen, net.storage)
        for part, table in zip(self.slices, tables, strict=True):
            scaling = table.scaling.to_numpy(dtype=float)
            s = (table.p_mw.to_numpy(dtype=float) + 1j * table.q_mvar.to_numpy(dtype=float)) * scaling
            np.add.at(fixed, self.element_rows[part], -s * self.element_factors[part])
        self.fixed = fixed
        self.shunt_p = bus[:, GS] / self.base_mva

    @staticmethod
    def _reference_generators(net: Any, internal: dict[str, Any]) -> npt.NDArray[np.int64]:
        # ref_gens counts the generators of ppc, internal["gen"] holds those in service.
        in_service = np.flatnonzero(internal["gen_is"])
        return np.flatnonzero(np.isin(in_service, internal["ref_gens"]))

    def _result_rows(self, net: Any, internal: dict[str, Any]) -> None:
        """One matrix whose product with the voltages holds the currents of all lines and
        transformers, first ends, then second ends, in percent of the rated ones."""
        branch_in_service = np.asarray(internal["branch_is"], dtype=bool)
        row_of = np.cumsum(branch_in_service) - 1
        base_kv = internal["bus"][:, BASE_KV].real
        yf, yt = sparse.csr_matrix(internal["Yf"]), sparse.csr_matrix(internal["Yt"])
        ends = []
        for matrix, column, winding in ((yf, 0, "vn_hv_kv"), (yt, 1, "vn_lv_kv")):
            for name, rating in (("line", _line_rating(net)), ("trafo", _trafo_rating(net, winding))):
                first, last = net._pd2ppc_lookups["branch"].get(name, (0, 0))
                places = np.arange(first, last)
                used = branch_in_service[places]
                kv = base_kv[internal["branch"][row_of[places[used]], column].real.astype(np.int64)]
                scale = np.zeros(last - first)
                scale[used] = 100.0 * rating[used] * self.base_mva / (np.sqrt(3.0) * kv)
                rows = np.where(used, row_of[places], 0)
                ends.append(sparse.diags(scale) @ matrix[rows] if len(places) else matrix[:0])
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
    ) -> ComplexVector:
        """Return the power that is injected at every internal bus (p.u.), of powers in MW and Mvar."""
        loads, sgens, storages = self.slices
        p, q = self.p, self.q
        p[loads], p[sgens], p[storages] = load_p, sgen_p, storage_p
        q[loads], q[sgens] = load_q, sgen_q
        return inject(p, q, self.element_rows, self.element_factors, self.fixed)

    def read(self, voltage: ComplexVector, power: ComplexVector) -> PowerFlowResult:
        """Return the results of the state ``voltage``, which solves the equations for ``power``."""
        vm_pu, loading, feed, losses = read(
            voltage, power, self.by_rows, self.branch_ends, self.bus_rows, self.slack, self.shunt_p
        )
        ext_grid = feed[self.ext_grid_place] * self.ext_grid_factor
        lines = self.n_line
        return PowerFlowResult(
            vm_pu, loading[:lines], loading[lines:], ext_grid.real, ext_grid.imag, losses * self.base_mva
        )

    def worst_mismatch(self, voltage: ComplexVector, power: ComplexVector) -> tuple[float, str]:
        """Return the largest power mismatch (MVA) of a state, and where it is."""
        mismatch = np.abs(voltage * (self.ybus @ voltage).conj() - power) * self.base_mva
        mismatch[self.ref] = 0.0
        worst = int(np.argmax(mismatch))
        buses = self.bus_names[self.bus_rows == worst]
        return float(mismatch[worst]), f"bus {buses[0]}" if len(buses) else f"internal bus {worst}"


def as_arrays(matrix: Any) -> Sparse:
    """Return the arrays of a csr or csc matrix, as the compiled loops take them."""
    matrix.sort_indices()
    return (
        matrix.indptr.astype(np.int32),
        matrix.indices.astype(np.int32),
        np.ascontiguousarray(matrix.data, dtype=np.complex128),
    )


def _inverse(rating: FloatVector) -> FloatVector:
    good = np.isfinite(rating) & (rating > 0)
    return np.divide(1.0, rating, out=np.zeros_like(rating), where=good)


def _line_rating(net: Any) -> FloatVector:
    """1 / rated current (1/kA) of each line, 0 where it has none."""
    line = net.line
    return _inverse((line.max_i_ka * line.df * line.parallel).to_numpy(dtype=float))


def _trafo_rating(net: Any, winding: str) -> FloatVector:
    """1 / rated current (1/kA) of one winding of each transformer."""
    trafo = net.trafo
    return np.sqrt(3.0) * _inverse(
        (trafo.sn_mva * trafo.parallel * trafo.df / trafo[winding]).to_numpy(dtype=float)
    )
