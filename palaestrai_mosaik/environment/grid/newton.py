"""The fast power flow: build the equations once, solve them often.

pandapower spends most of a power flow on turning tables into matrices. Here one
``pandapower.runpp`` builds the bus admittance matrix (``net._ppc["internal"]``); every
later state only changes the right-hand side and is solved by lightsim2grid's Newton
solver on KLU, warm-started from the state before.

Another topology (a line switched, a tap moved) is another matrix: it is built when first
seen and kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt
from pandapower.pypower.idx_bus import BASE_KV, GS, PD, QD
from pandapower.pypower.idx_gen import GEN_BUS, PG
from scipy import sparse

from palaestrai_mosaik.errors import PowerFlowError

from .powerflow import (
    TOLERANCE_MVA,
    BoolVector,
    FloatVector,
    PowerFlow,
    PowerFlowResult,
    run_pandapower,
    topology_of,
)

MAX_ITERATIONS = 20
#: topologies whose matrices are kept
CACHED_TOPOLOGIES = 128


class NewtonPowerFlow(PowerFlow):
    """lightsim2grid's Newton solver on pandapower's matrices.

    0.1 to 0.2 ms a state on medium-voltage grids, against 10 ms and more of ``runpp``.
    """

    def __init__(self, net: Any):
        super().__init__(net)
        self._models: OrderedDict[bytes, _Equations] = OrderedDict()
        self._first = self._model = self._equations()

    def reset(self) -> None:
        self.line_in_service, self.tap_pos = self._first_lines, self._first_taps
        self._model = self._first
        self._model.forget()

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
            self._model = self._equations()
        except PowerFlowError:
            self.line_in_service, self.tap_pos = before
            raise
        self._model.forget()

    def solve(
        self,
        load_p: FloatVector,
        load_q: FloatVector,
        sgen_p: FloatVector,
        sgen_q: FloatVector,
        storage_p: FloatVector,
    ) -> PowerFlowResult:
        return self._model.solve(load_p, load_q, sgen_p, sgen_q, storage_p)

    def _equations(self) -> _Equations:
        key = np.packbits(self.line_in_service).tobytes() + self.tap_pos.tobytes()
        model = self._models.pop(key, None)
        if model is None:
            with topology_of(self.net, self.line_in_service, self.tap_pos):
                # Only the matrices and a solution to start from are wanted: any powers do.
                # Without numba: compiling takes longer than the few runs that this is.
                run_pandapower(self.net, numba=False)
                model = _Equations(self.net)
            if len(self._models) >= CACHED_TOPOLOGIES:
                self._models.popitem(last=False)
        self._models[key] = model
        return model


class _Equations:
    """The power flow equations of one topology, taken from a net just solved by pandapower.

    Internal buses are pandapower's ``ppci`` buses: fused, energised, sorted.
    """

    def __init__(self, net: Any):
        internal = net._ppc["internal"]
        if "baseMVA" not in internal:  # pandapower had nothing to solve
            raise PowerFlowError("nothing is energised besides the buses of the external grids")
        self.base_mva = float(internal["baseMVA"])
        self.ybus = sparse.csc_matrix(internal["Ybus"])
        self.ybus.sum_duplicates()
        self.n = self.ybus.shape[0]
        self.ref = np.unique(np.asarray(internal["ref"], dtype=np.int32))
        self.pv = np.asarray(internal["pv"], dtype=np.int32)
        self.pq = np.asarray(internal["pq"], dtype=np.int32)
        self.slack_weights = np.zeros(self.n)
        self.slack_weights[self.ref] = 1.0 / len(self.ref)
        #: a state that is known to solve this topology: where an episode starts from
        self.cold = np.asarray(internal["V"], dtype=complex).copy()
        self._number_elements(net)
        self._fixed_injections(net, internal)
        self._result_rows(net, internal)
        self.bus_names = net.bus.index.to_numpy()
        self.algorithm = _newton_algorithm()
        self.voltage = self.cold.copy()

    def _number_elements(self, net: Any) -> None:
        self.bus_rows, self.bus_alive = self._internal_bus(net, net.bus.index.to_numpy())
        self.all_alive = bool(self.bus_alive.all())
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

    def _internal_bus(self, net: Any, buses: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], BoolVector]:
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
        self.fixed_p, self.fixed_q = fixed.real.copy(), fixed.imag.copy()
        self.shunt_p = bus[:, GS] / self.base_mva if np.any(bus[:, GS]) else None
        self.not_ref = np.setdiff1d(np.arange(self.n), self.ref)

    @staticmethod
    def _reference_generators(net: Any, internal: dict[str, Any]) -> npt.NDArray[np.int64]:
        # ref_gens counts the generators of ppc, internal["gen"] holds those in service.
        in_service = np.flatnonzero(internal["gen_is"])
        return np.flatnonzero(np.isin(in_service, internal["ref_gens"]))

    def _result_rows(self, net: Any, internal: dict[str, Any]) -> None:
        """One matrix whose product with the voltages holds all currents that are read:
        line and transformer currents (scaled to loading in %), then those of the slacks."""
        branch_in_service = np.asarray(internal["branch_is"], dtype=bool)
        row_of = np.cumsum(branch_in_service) - 1
        base_kv = internal["bus"][:, BASE_KV].real
        yf, yt = sparse.csr_matrix(internal["Yf"]), sparse.csr_matrix(internal["Yt"])
        n_line, n_trafo = len(net.line), len(net.trafo)
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
        slack_rows = sparse.csr_matrix(self.ybus)[self.ref]
        self.currents = sparse.csr_matrix(sparse.vstack([*ends, slack_rows]))
        self.currents.eliminate_zeros()
        self.n_line, self.n_branch = n_line, n_line + n_trafo
        row, alive = self._internal_bus(net, net.ext_grid.bus.to_numpy())
        alive = alive & net.ext_grid.in_service.to_numpy(dtype=bool)
        self.ext_grid_place = np.searchsorted(self.ref, np.where(alive, row, self.ref[0]))
        self.ext_grid_factor = self.base_mva * alive

    def forget(self) -> None:
        """Start the next solution afresh: voltages and the factorisation's pivots."""
        self.voltage = self.cold.copy()
        self.algorithm.reset()

    def solve(
        self,
        load_p: FloatVector,
        load_q: FloatVector,
        sgen_p: FloatVector,
        sgen_q: FloatVector,
        storage_p: FloatVector,
    ) -> PowerFlowResult:
        loads, sgens, storages = self.slices
        p, q, rows, factors = self.p, self.q, self.element_rows, self.element_factors
        p[loads], p[sgens], p[storages] = load_p, sgen_p, storage_p
        q[loads], q[sgens] = load_q, sgen_q
        power = np.empty(self.n, dtype=complex)
        power.real = self.fixed_p + np.bincount(rows, p * factors, self.n)
        power.imag = self.fixed_q + np.bincount(rows, q * factors, self.n)
        if not self._iterate(power):
            self.forget()
            if not self._iterate(power):
                message = self._why(power)
                self.forget()
                raise PowerFlowError(message)
        voltage = self.voltage = self.algorithm.get_V()
        return self._read(voltage, power)

    def _iterate(self, power: npt.NDArray[np.complex128]) -> bool:
        return bool(
            self.algorithm.solve(
                self.ybus,
                self.voltage.copy(),
                power,
                self.ref,
                self.slack_weights,
                self.pv,
                self.pq,
                MAX_ITERATIONS,
                TOLERANCE_MVA / self.base_mva,
            )
        )

    def _read(
        self, voltage: npt.NDArray[np.complex128], power: npt.NDArray[np.complex128]
    ) -> PowerFlowResult:
        magnitude = np.abs(voltage)
        vm_pu = magnitude[self.bus_rows]
        if not self.all_alive:
            vm_pu *= self.bus_alive
        currents = self.currents @ voltage
        n, lines = self.n_branch, self.n_line
        sizes = np.abs(currents[: 2 * n])
        loading = np.maximum(sizes[:n], sizes[n:])
        slack = voltage[self.ref] * currents[2 * n :].conj()
        feed = slack - power[self.ref]
        ext_grid = feed[self.ext_grid_place] * self.ext_grid_factor
        losses = power.real[self.not_ref].sum() + slack.real.sum()
        if self.shunt_p is not None:
            losses -= self.shunt_p @ magnitude**2
        return PowerFlowResult(
            vm_pu,
            loading[:lines],
            loading[lines:],
            ext_grid.real.copy(),
            ext_grid.imag.copy(),
            float(losses) * self.base_mva,
        )

    def _why(self, power: npt.NDArray[np.complex128]) -> str:
        voltage = self.algorithm.get_V()
        text = f"the power flow did not converge in {MAX_ITERATIONS} iterations"
        if voltage.shape != power.shape or not np.isfinite(voltage).all():
            return f"{text}: the voltages became infinite"
        mismatch = np.abs(voltage * (self.ybus @ voltage).conj() - power) * self.base_mva
        mismatch[self.ref] = 0.0
        worst = int(np.argmax(mismatch))
        buses = self.bus_names[(self.bus_rows == worst) & self.bus_alive]
        where = f"bus {buses[0]}" if len(buses) else f"internal bus {worst}"
        return f"{text}: worst mismatch {mismatch[worst]:.3g} MVA at {where}"


def _newton_algorithm() -> Any:
    from lightsim2grid import algorithm

    # KLU is in the published wheels; a build from source may lack it.
    kind = getattr(algorithm, "NRSing_KLU", None) or algorithm.NRSing_SparseLU
    return kind()


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
