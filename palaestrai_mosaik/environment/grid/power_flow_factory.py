"""The choice of a power flow: the fast one if it covers the net, otherwise pandapower's."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import PowerFlowError
from palaestrai_mosaik.core.installation import install_packages
from palaestrai_mosaik.types.arrays import FloatVector

from .net_check import uncovered_options
from .power_flow import (
    ELEMENT_POWERS,
    PowerFlow,
    PowerFlowResult,
    powers_of,
    read_pandapower,
    run_pandapower,
    topology_of,
)

logger = logging.getLogger(__name__)

#: largest difference to pandapower that passes the start-up check
CHECK_VOLTAGE_PU = 1e-6
CHECK_LOADING_PERCENT = 1e-3
#: packages that the fast power flow requires
_NEEDED = ("lightsim2grid", "numba")
#: tables of elements that need more than admittances and constant powers in the equations
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
    """Solves every state with ``pandapower.runpp``: slow (10 to 40 ms), but with all its features.

    ``enforce_q_lims`` keeps generators within their reactive limits. Controllers of the
    net are run.
    """

    def __init__(self, net: Any, enforce_q_lims: bool = False):
        super().__init__(net)
        self._options = {
            "enforce_q_lims": enforce_q_lims,
            "run_control": bool(len(net.controller)) and bool(net.controller.in_service.any()),
        }
        # controllers write into these tables, so a reset restores them
        self._own = {
            name: net[name].copy() for name in ("load", "sgen", "storage", "gen", "trafo", "trafo3w")
        }
        self._solve_and_read()  # fails early if the net has no solution

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

    def solve(self, *powers: FloatVector) -> PowerFlowResult:
        with powers_of(self.net, *powers):
            return self._solve_and_read()

    def _solve_and_read(self) -> PowerFlowResult:
        net = self.net
        with topology_of(net, self.line_in_service, self.tap_pos):
            run_pandapower(net, **self._options)
        return read_pandapower(net)


def uncovered_features(net: Any, enforce_q_lims: bool = False) -> list[str]:
    """List the features of ``net`` that the fast power flow cannot express."""
    features = [f"{len(net[t])} {t}" for t in _NONLINEAR_TABLES if t in net and len(net[t])]
    if any(net.load[c].to_numpy(dtype=float).any() for c in _ZIP_COLUMNS if c in net.load):
        features.append("voltage-dependent (ZIP) loads")
    if enforce_q_lims:
        features.append("reactive power limits of generators")
    features += [feature for feature in uncovered_options(net) if feature not in features]
    if len(net.controller) and net.controller.in_service.any():
        features.append("controllers")
    slack = net.ext_grid.bus[net.ext_grid.in_service.astype(bool)]
    if slack.duplicated().any() or net.gen.bus[net.gen.in_service.astype(bool)].isin(slack).any():
        features.append("several voltage-controlled sources at one bus")
    return features


def make_power_flow(net: Any, enforce_q_lims: bool = False) -> PowerFlow:
    """Return the fastest power flow that covers ``net``, checked against pandapower.

    Falls back to ``pandapower.runpp`` for features that the fast one lacks (logged), and, with a
    warning, if a required package is not installed or the check fails. Raises
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

    For this, loads are lowered by 10 %. Returns the first difference, or ``""``.
    """
    net = fast.net
    scaling = net.load.scaling.copy()
    net.load["scaling"] = scaling * 0.9
    try:
        with topology_of(net, fast.line_in_service, fast.tap_pos):
            run_pandapower(net, numba=False)
        expected, actual = read_pandapower(net), fast.solve_own()
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
        *((name, CHECK_LOADING_PERCENT) for name in ELEMENT_POWERS),
    ):
        worst = np.abs(getattr(expected, name) - getattr(actual, name)).max(initial=0.0)
        if not worst <= limit:
            return f"{name} differs by {worst:.3g}"
    return ""
