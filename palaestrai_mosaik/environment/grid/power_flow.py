"""AC power flow of a pandapower net: what every solver offers.

The fast solver (:mod:`.fast_power_flow`) builds the equations once and solves them often; nets
with a feature that it cannot express are solved by ``pandapower.runpp`` (:mod:`.power_flow_factory`,
whose :func:`~.power_flow_factory.make_power_flow` chooses). Results follow pandapower's
definitions: ``res_bus.vm_pu``, ``res_line.loading_percent`` of the larger end current,
``res_trafo.loading_percent`` with ``trafo_loading="current"``.

De-energised buses have voltage 0, branches out of service or without a rating loading 0.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import pandapower as pp

from palaestrai_mosaik.errors import PowerFlowError
from palaestrai_mosaik.types.arrays import BoolVector, FloatVector

#: convergence: largest power mismatch of any bus, as in pandapower
TOLERANCE_MVA = 1e-8


@dataclass(frozen=True, slots=True)
class PowerFlowResult:
    """A solved state. Vectors follow the rows of the net's tables.

    ``vm_pu`` bus voltages (p.u.), ``line_loading`` and ``trafo_loading`` in percent,
    ``ext_grid_p``/``ext_grid_q`` what the external grids feed in (MW, Mvar),
    ``losses_mw`` the active losses of all branches.
    """

    vm_pu: FloatVector
    line_loading: FloatVector
    trafo_loading: FloatVector
    ext_grid_p: FloatVector
    ext_grid_q: FloatVector
    losses_mw: float


class PowerFlow(ABC):
    """A net that can be solved for any powers, tap positions and line states."""

    def __init__(self, net: Any):
        self.net = net
        self.line_in_service: BoolVector = net.line.in_service.to_numpy(dtype=bool).copy()
        self.tap_pos: FloatVector = net.trafo.tap_pos.to_numpy(dtype=float).copy()
        self._first_lines, self._first_taps = self.line_in_service, self.tap_pos

    def reset(self) -> None:
        """Return to the net's own topology and forget the last state.

        What follows is then a function of the calls that follow, to the last bit.
        """
        self.set_topology(self._first_lines, self._first_taps)

    @abstractmethod
    def set_topology(
        self, line_in_service: npt.NDArray[Any] | None = None, tap_pos: npt.NDArray[Any] | None = None
    ) -> None:
        """Set which lines are in service, shape ``(n_lines,)``, and taps, ``(n_trafos,)``.

        ``None`` keeps what is. Raises :class:`PowerFlowError` if the topology cannot be
        solved even for the net's own powers, or has no external grid.
        """

    @abstractmethod
    def solve(
        self,
        load_p: FloatVector,
        load_q: FloatVector,
        sgen_p: FloatVector,
        sgen_q: FloatVector,
        storage_p: FloatVector,
    ) -> PowerFlowResult:
        """Solve for the powers (MW, Mvar) of loads, static generators and storages.

        Signs are pandapower's: loads and storages consume, generators feed in. Raises
        :class:`PowerFlowError` with the worst mismatch if no solution is found.
        """

    def solve_own(self) -> PowerFlowResult:
        """Solve for the powers that stand in the net's own tables (with their scaling)."""
        net = self.net
        return self.solve(
            (net.load.p_mw * net.load.scaling).to_numpy(dtype=float),
            (net.load.q_mvar * net.load.scaling).to_numpy(dtype=float),
            (net.sgen.p_mw * net.sgen.scaling).to_numpy(dtype=float),
            (net.sgen.q_mvar * net.sgen.scaling).to_numpy(dtype=float),
            (net.storage.p_mw * net.storage.scaling).to_numpy(dtype=float),
        )


@contextlib.contextmanager
def topology_of(net: Any, line_in_service: BoolVector, tap_pos: FloatVector) -> Iterator[None]:
    """Give ``net`` another topology for the time of a ``with`` block."""
    lines, taps = net.line.in_service.copy(), net.trafo.tap_pos.copy()
    net.line["in_service"] = line_in_service
    net.trafo["tap_pos"] = tap_pos
    try:
        yield
    finally:
        net.line["in_service"] = lines
        net.trafo["tap_pos"] = taps


def run_pandapower(net: Any, **options: Any) -> None:
    """Run ``pandapower.runpp`` to our tolerance; its errors become :class:`PowerFlowError`."""
    try:
        pp.runpp(net, tolerance_mva=TOLERANCE_MVA, **options)
    except pp.LoadflowNotConverged as error:
        raise PowerFlowError(f"pandapower: {error}") from error
    except UserWarning as error:  # pandapower raises it where no external grid is in service
        raise PowerFlowError(f"the net cannot be solved: {error}") from error
