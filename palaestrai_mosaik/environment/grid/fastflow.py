"""The fast power flow: build the equations once, solve them often.

pandapower spends most of a power flow on turning tables into matrices. Here one
``pandapower.runpp`` builds the bus admittance matrix (``net._ppc["internal"]``); every
later state only changes the right-hand side. It is solved from the state before by the
fixed-point iteration (:mod:`.fixed_point`) where there are no PV buses, and by Newton's
method (:mod:`.newton`) where there are, or where the iteration does not converge. Both
stop at the same power mismatch.

Another topology (a line switched, a tap moved) is another matrix: it is built when first
seen and kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import PowerFlowError

from .equations import Equations
from .fixed_point import FixedPoint
from .newton import Newton
from .powerflow import BoolVector, FloatVector, PowerFlow, PowerFlowResult, run_pandapower, topology_of

#: topologies whose matrices are kept
CACHED_TOPOLOGIES = 128


class FastPowerFlow(PowerFlow):
    """Fixed-point iteration and Newton's method on pandapower's matrices.

    20 to 50 us a state with the first on medium-voltage grids, 0.1 to 0.4 ms with the
    second, against 20 ms and more of ``runpp``. ``newton_only`` leaves the first out.
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

    def solve(
        self,
        load_p: FloatVector,
        load_q: FloatVector,
        sgen_p: FloatVector,
        sgen_q: FloatVector,
        storage_p: FloatVector,
    ) -> PowerFlowResult:
        return self._topology.solve(load_p, load_q, sgen_p, sgen_q, storage_p)

    def topology(self, line_in_service: BoolVector, tap_pos: FloatVector) -> Topology:
        """Return what solves a topology; the arguments and errors of :meth:`set_topology`."""
        key = np.packbits(line_in_service).tobytes() + tap_pos.tobytes()
        topology = self._topologies.pop(key, None)
        if topology is None:
            with topology_of(self.net, line_in_service, tap_pos):
                # Only the matrices and a solution to start from are wanted: any powers do.
                # Without numba: compiling takes longer than the few runs that this is.
                run_pandapower(self.net, numba=False)
                topology = Topology(Equations(self.net), self._newton_only)
            if len(self._topologies) >= CACHED_TOPOLOGIES:
                self._topologies.popitem(last=False)
        self._topologies[key] = topology
        return topology


class Topology:
    """The equations of one topology, how they are solved, and the last solution."""

    def __init__(self, equations: Equations, newton_only: bool):
        self.equations = equations
        self.newton = Newton(equations)
        self.fixed_point = None if newton_only else FixedPoint.of(equations)
        self.voltage = equations.cold

    def forget(self) -> None:
        """Start the next solution afresh."""
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
        return self.equations.read(voltage, power)
