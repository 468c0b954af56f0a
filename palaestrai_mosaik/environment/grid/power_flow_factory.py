"""The choice of a power flow: the fast one where it covers the net, pandapower's elsewhere."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from palaestrai_mosaik.errors import PowerFlowError
from palaestrai_mosaik.installation import install_packages
from palaestrai_mosaik.types.arrays import FloatVector

from .power_flow import PowerFlow, PowerFlowResult, run_pandapower, topology_of

logger = logging.getLogger(__name__)

#: largest difference to pandapower that the start-up check lets pass
CHECK_VOLTAGE_PU = 1e-6
CHECK_LOADING_PERCENT = 1e-3
#: what the fast power flow is made of
_NEEDED = ("lightsim2grid", "numba")
#: Tables whose elements make the equations more than admittances and constant powers.
_NONLINEAR_TABLES = ("xward", "svc", "ssc", "tcsc", "vsc", "bus_dc", "line_dc", "dcline", "b2b_vsc")
_ZIP_COLUMNS = (
    "const_z_p_percent",
    "const_i_p_percent",
    "const_z_q_percent",
    "const_i_q_percent",
    "const_z_percent",
    "const_i_percent",
)


class PandapowerPowerFlow(PowerFlow):
    """Every state by ``pandapower.runpp``: slow (10 to 40 ms), but covers all it offers.

    ``enforce_q_lims`` keeps generators within their reactive limits. Controllers of the
    net are run.
    """

    def __init__(self, net: Any, enforce_q_lims: bool = False):
        super().__init__(net)
        self._options = {
            "enforce_q_lims": enforce_q_lims,
            "run_control": bool(len(net.controller)) and bool(net.controller.in_service.any()),
        }
        # Controllers write into these tables, so a reset restores them.
        self._own = {
            name: net[name].copy() for name in ("load", "sgen", "storage", "gen", "trafo", "trafo3w")
        }
        self._solve_and_read()  # says at once if the net has no solution

    def reset(self) -> None:
        for name, table in self._own.items():
            self.net[name] = table.copy()
        super().reset()

    def set_topology(
        self, line_in_service: npt.NDArray[Any] | None = None, tap_pos: npt.NDArray[Any] | None = None
    ) -> None:
        if line_in_service is not None:
            self.line_in_service = np.asarray(line_in_service) > 0.5
        if tap_pos is not None:
            self.tap_pos = np.asarray(tap_pos, dtype=float).copy()

    def solve(
        self,
        load_p: FloatVector,
        load_q: FloatVector,
        sgen_p: FloatVector,
        sgen_q: FloatVector,
        storage_p: FloatVector,
    ) -> PowerFlowResult:
        net = self.net
        columns: list[tuple[pd.DataFrame, str, FloatVector]] = [
            (net.load, "p_mw", load_p),
            (net.load, "q_mvar", load_q),
            (net.sgen, "p_mw", sgen_p),
            (net.sgen, "q_mvar", sgen_q),
            (net.storage, "p_mw", storage_p),
        ]
        own = [(table, name, table[name].copy()) for table, name, _ in columns]
        scalings = [(table, table["scaling"].copy()) for table in (net.load, net.sgen, net.storage)]
        storage_q = net.storage.q_mvar * net.storage.scaling
        own.append((net.storage, "q_mvar", net.storage.q_mvar.copy()))
        try:
            for table, name, values in columns:
                table[name] = values
            net.storage["q_mvar"] = storage_q
            for table, _ in scalings:
                table["scaling"] = 1.0
            return self._solve_and_read()
        finally:
            for table, name, before in own:
                table[name] = before
            for table, scaling in scalings:
                table["scaling"] = scaling

    def _solve_and_read(self) -> PowerFlowResult:
        net = self.net
        with topology_of(net, self.line_in_service, self.tap_pos):
            run_pandapower(net, **self._options)
        return read_pandapower(net)


def read_pandapower(net: Any) -> PowerFlowResult:
    """Return pandapower's result tables of ``net`` as a :class:`PowerFlowResult`."""

    def column(table: str, name: str) -> FloatVector:
        found: FloatVector = np.nan_to_num(net[table][name].to_numpy(dtype=float), nan=0.0, posinf=0.0)
        return found

    branches = ("res_line", "res_trafo", "res_trafo3w", "res_impedance")
    return PowerFlowResult(
        column("res_bus", "vm_pu"),
        column("res_line", "loading_percent"),
        column("res_trafo", "loading_percent"),
        column("res_ext_grid", "p_mw"),
        column("res_ext_grid", "q_mvar"),
        float(sum(np.nansum(net[name].pl_mw) for name in branches if len(net[name]))),
    )


def uncovered_features(net: Any, enforce_q_lims: bool = False) -> list[str]:
    """Return what in ``net`` the fast power flow cannot express (empty: all is covered)."""
    found = [f"{len(net[t])} {t}" for t in _NONLINEAR_TABLES if t in net and len(net[t])]
    if any(net.load[c].to_numpy(dtype=float).any() for c in _ZIP_COLUMNS if c in net.load):
        found.append("voltage-dependent (ZIP) loads")
    if enforce_q_lims:
        found.append("reactive power limits of generators")
    if len(net.controller) and net.controller.in_service.any():
        found.append("controllers")
    slack = net.ext_grid.bus[net.ext_grid.in_service.astype(bool)]
    if slack.duplicated().any() or net.gen.bus[net.gen.in_service.astype(bool)].isin(slack).any():
        found.append("several voltage-controlled sources at one bus")
    return found


def make_power_flow(net: Any, enforce_q_lims: bool = False) -> PowerFlow:
    """Return the fastest power flow that covers ``net``, checked against pandapower.

    Falls back to ``pandapower.runpp`` for features that the fast one lacks (logged), and
    with a warning where what it needs is not installed or the check fails. Raises
    :class:`PowerFlowError` if not even pandapower solves the net.
    """
    features = uncovered_features(net, enforce_q_lims)
    if features:
        logger.info("solved by pandapower.runpp, because the net has %s", ", ".join(features))
        return PandapowerPowerFlow(net, enforce_q_lims)
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        warnings.warn(
            f"{names} not installed: every power flow is solved by pandapower, some hundred times slower "
            f"({install_packages(*missing)})",
            RuntimeWarning,
            stacklevel=2,
        )
        return PandapowerPowerFlow(net)
    from .fast_power_flow import FastPowerFlow

    fast = FastPowerFlow(net)
    difference = check_against_pandapower(fast)
    if difference:
        warnings.warn(
            f"the fast power flow disagrees with pandapower on this net ({difference}); "
            "pandapower solves it instead",
            RuntimeWarning,
            stacklevel=2,
        )
        return PandapowerPowerFlow(net)
    return fast


def check_against_pandapower(fast: PowerFlow) -> str:
    """Compare ``fast`` with ``runpp`` on a state that it did not start from.

    Loads are lowered by 10 % for it. Returns what differs (``""`` if nothing does).
    """
    net = fast.net
    scaling = net.load.scaling.copy()
    net.load["scaling"] = scaling * 0.9
    try:
        with topology_of(net, fast.line_in_service, fast.tap_pos):
            run_pandapower(net, numba=False)
        expected, found = read_pandapower(net), fast.solve_own()
    except PowerFlowError as error:
        return str(error)
    finally:
        net.load["scaling"] = scaling
        fast.reset()
    for name, limit in (
        ("vm_pu", CHECK_VOLTAGE_PU),
        ("line_loading", CHECK_LOADING_PERCENT),
        ("trafo_loading", CHECK_LOADING_PERCENT),
        ("ext_grid_p", CHECK_LOADING_PERCENT),
        ("ext_grid_q", CHECK_LOADING_PERCENT),
    ):
        worst = np.abs(getattr(expected, name) - getattr(found, name)).max(initial=0.0)
        if not worst <= limit:
            return f"{name} differs by {worst:.3g}"
    return ""
