"""The grid, with its set-points for agents."""

from __future__ import annotations

from typing import Any, Literal

from palaestrai_mosaik.core.errors import PowerFlowError
from palaestrai_mosaik.environment.devices import Setpoints
from palaestrai_mosaik.types.arrays import FloatVector

from .power_flow import PowerFlow, PowerFlowResult

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

    def step(
        self,
        load_p: FloatVector,
        load_q: FloatVector,
        sgen_p: FloatVector,
        sgen_q: FloatVector,
        storage_p: FloatVector,
        gen_p: FloatVector,
    ) -> None:
        """Solve for these powers (MW, Mvar) and set :attr:`result` and :attr:`converged`."""
        if self._scaled:
            load_p, load_q = load_p * self.load_scaling.values, load_q * self.load_scaling.values
        try:
            if self._unsolvable:
                raise PowerFlowError(self._unsolvable)
            self.result = self.power_flow.solve(load_p, load_q, sgen_p, sgen_q, storage_p, gen_p)
            self.converged = 1.0
        except PowerFlowError:
            self.converged = 0.0
            if self.on_divergence == "fail":
                raise
