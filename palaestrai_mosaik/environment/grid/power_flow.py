"""Power flows of a net, and the grid that solves one at every step."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandapower as pp

from palaestrai_mosaik.core.errors import PowerFlowError
from palaestrai_mosaik.environment.devices import Setpoints
from palaestrai_mosaik.types.arrays import BoolVector, FloatVector

#: powers of elements, as arguments of :meth:`PowerFlow.solve` and in its results, in this order, each with its table
#: and column in a net
ELEMENT_POWERS = {
    "load_p": ("load", "p_mw"),
    "load_q": ("load", "q_mvar"),
    "sgen_p": ("sgen", "p_mw"),
    "sgen_q": ("sgen", "q_mvar"),
    "storage_p": ("storage", "p_mw"),
    "gen_p": ("gen", "p_mw"),
}

#: convergence: largest power mismatch of any bus, as in pandapower
TOLERANCE_MVA = 1e-8


@dataclass(frozen=True, slots=True)
class PowerFlowResult:
    """A solved state. Vectors follow the rows of the net's tables.

    ``vm_pu`` bus voltages (p.u.), ``line_loading`` and ``trafo_loading`` in percent,
    ``ext_grid_p``/``ext_grid_q`` the infeed of the external grids (MW, Mvar),
    ``losses_mw`` the active losses of all branches. The powers of loads, static generators,
    storages and generators (MW, Mvar) are the actual ones: 0 for an element that is out of service
    or has a bus without voltage.
    """

    vm_pu: FloatVector
    line_loading: FloatVector
    trafo_loading: FloatVector
    ext_grid_p: FloatVector
    ext_grid_q: FloatVector
    losses_mw: float
    load_p: FloatVector
    load_q: FloatVector
    sgen_p: FloatVector
    sgen_q: FloatVector
    storage_p: FloatVector
    gen_p: FloatVector


class PowerFlow(ABC):
    """A net that can be solved for any powers, tap positions and line states."""

    def __init__(self, net: Any):
        self.net = net
        self.line_in_service: BoolVector = net.line.in_service.to_numpy(dtype=bool).copy()
        self.tap_pos: FloatVector = net.trafo.tap_pos.to_numpy(dtype=float).copy()
        self._first_lines, self._first_taps = self.line_in_service, self.tap_pos

    def reset(self) -> None:
        """Return to the net's default topology and forget the last state.

        Later results then depend only on the calls after the reset, to the last bit.
        """
        self.set_topology(self._first_lines, self._first_taps)

    @abstractmethod
    def set_topology(
        self, line_in_service: npt.NDArray[Any] | None = None, tap_pos: npt.NDArray[Any] | None = None
    ) -> None:
        """Set the lines in service, shape ``(n_lines,)``, and the tap positions, ``(n_trafos,)``.

        ``None`` leaves them unchanged. Raises :class:`PowerFlowError` if the topology cannot be
        solved even for the net's default powers, or has no external grid.
        """

    @abstractmethod
    def solve(
        self,
        load_p: FloatVector,
        load_q: FloatVector,
        sgen_p: FloatVector,
        sgen_q: FloatVector,
        storage_p: FloatVector,
        gen_p: FloatVector,
        /,
    ) -> PowerFlowResult:
        """Solve for powers (MW, Mvar) in the order of :data:`ELEMENT_POWERS`.

        Signs are pandapower's: loads and storages consume, generators feed in. Raises
        :class:`PowerFlowError` with the worst mismatch if no solution is found.
        """

    def solve_own(self) -> PowerFlowResult:
        """Solve for the powers in the net's tables, with their scaling."""
        net = self.net
        return self.solve(
            *(
                (net[table][column] * net[table].scaling).to_numpy(dtype=float)
                for table, column in ELEMENT_POWERS.values()
            )
        )


@contextlib.contextmanager
def topology_of(net: Any, line_in_service: BoolVector, tap_pos: FloatVector) -> Iterator[None]:
    """Switch ``net`` to another topology within a ``with`` block."""
    lines, taps = net.line.in_service.copy(), net.trafo.tap_pos.copy()
    net.line["in_service"] = line_in_service
    net.trafo["tap_pos"] = tap_pos
    try:
        yield
    finally:
        net.line["in_service"] = lines
        net.trafo["tap_pos"] = taps


def run_pandapower(net: Any, **options: Any) -> None:
    """Run ``pandapower.runpp`` to our tolerance and convert its errors to :class:`PowerFlowError`."""
    try:
        pp.runpp(net, tolerance_mva=TOLERANCE_MVA, **options)
    except pp.LoadflowNotConverged as error:
        raise PowerFlowError(f"pandapower: {error}") from error
    except UserWarning as error:  # pandapower raises it if no external grid is in service
        raise PowerFlowError(f"the net cannot be solved: {error}") from error


@contextlib.contextmanager
def powers_of(net: Any, *powers: FloatVector) -> Iterator[None]:
    """Set other powers of the elements of ``net`` within a ``with`` block.

    ``powers`` are the arguments of :meth:`PowerFlow.solve`, in order.
    """
    columns = [*ELEMENT_POWERS.values(), ("storage", "q_mvar")]
    columns += [(table, "scaling") for table in ("load", "sgen", "storage", "gen")]
    before = [net[table][column].copy() for table, column in columns]
    storage_q = net.storage.q_mvar * net.storage.scaling
    try:
        for (table, column), values in zip(columns, (*powers, storage_q, 1.0, 1.0, 1.0, 1.0), strict=True):
            net[table][column] = values
        yield
    finally:
        for (table, column), values in zip(columns, before, strict=True):
            net[table][column] = values


def read_pandapower(net: Any) -> PowerFlowResult:
    """Return pandapower's result tables of ``net`` as a :class:`PowerFlowResult`."""

    def column(table: str, name: str) -> FloatVector:
        if not len(net[table]):
            return np.zeros(0)
        values: FloatVector = np.nan_to_num(net[table][name].to_numpy(dtype=float), nan=0.0, posinf=0.0)
        return values

    branches = ("res_line", "res_trafo", "res_trafo3w", "res_impedance")
    return PowerFlowResult(
        column("res_bus", "vm_pu"),
        column("res_line", "loading_percent"),
        column("res_trafo", "loading_percent"),
        column("res_ext_grid", "p_mw"),
        column("res_ext_grid", "q_mvar"),
        float(sum(np.nansum(net[name].pl_mw) for name in branches if len(net[name]))),
        *(column(f"res_{table}", name) for table, name in ELEMENT_POWERS.values()),
    )


OnDivergence = Literal["terminate", "fail"]


class PowerGrid:
    """A grid that solves its power flow at every step.

    Agents may scale loads (``load_scaling``, 1 is the profile), move taps (``tap_pos``)
    and switch lines (``line_in_service``, on from 0.5).

    If a power flow has no solution, ``on_divergence="fail"`` raises
    :class:`~palaestrai_mosaik.core.errors.PowerFlowError`; with ``"terminate"`` the results
    of the last solved state remain and :attr:`converged` becomes 0.

    Args:
        power_flow: solver of the net; it is reset, so that equal inputs give equal results.
        before: results to use if not even the first state has a solution.
    """

    def __init__(
        self, power_flow: PowerFlow, before: PowerFlowResult, on_divergence: OnDivergence = "terminate"
    ):
        power_flow.reset()
        self.power_flow = power_flow
        self.result = before
        self.on_divergence = on_divergence
        self.converged = 1.0
        net = power_flow.net
        self.load_scaling = Setpoints(len(net.load), 1.0)
        self.tap_pos = Setpoints(len(net.trafo), power_flow.tap_pos)
        self.line_in_service = Setpoints(len(net.line), power_flow.line_in_service.astype(float))
        self._scaled = False
        self._unsolvable = ""

    def accept(self, senders: dict[str, dict[str, Any]]) -> None:
        """Apply set-points: attribute name -> sender -> vector."""
        if "load_scaling" in senders:
            self._scaled |= self.load_scaling.accept(senders["load_scaling"])
        changed = False
        for name in ("tap_pos", "line_in_service"):
            if name in senders:
                changed |= getattr(self, name).accept(senders[name])
        if changed:
            self._switch()

    def _switch(self) -> None:
        try:
            self.power_flow.set_topology(self.line_in_service.values, self.tap_pos.values)
            self._unsolvable = ""
        except PowerFlowError as error:
            self._unsolvable = str(error)

    def step(self, *powers: FloatVector) -> None:
        """Solve for ``powers``, like :meth:`PowerFlow.solve`, and set :attr:`result` and :attr:`converged`."""
        if self._scaled:
            load_p, load_q, *others = powers
            powers = load_p * self.load_scaling.values, load_q * self.load_scaling.values, *others
        try:
            if self._unsolvable:
                raise PowerFlowError(self._unsolvable)
            self.result = self.power_flow.solve(*powers)
            self.converged = 1.0
        except PowerFlowError:
            self.converged = 0.0
            if self.on_divergence == "fail":
                raise
