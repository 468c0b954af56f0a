"""Options of a net's file: the solution follows them, and none acts silently."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandapower as pp
import pandapower.networks
import pytest

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.environment.grid import net_check
from palaestrai_mosaik.environment.grid.network import load_grid
from palaestrai_mosaik.environment.grid.power_flow_factory import PandapowerPowerFlow, make_power_flow


@pytest.fixture(scope="module")
def net() -> Any:
    """Return a net with generators at their reactive limits, loaded transformers and lines."""
    net = pp.networks.case14()
    net.gen["slack_weight"] = 1.0
    net.gen["max_q_mvar"] = 10.0
    return net


def _solved(net: Any, options: dict[str, Any], tmp_path: Path) -> tuple[Any, Any, Any]:
    """Return our power flow, its solution, and pandapower's net, from one file."""
    net = copy.deepcopy(net)
    net["user_pf_options"] = options
    pp.to_json(net, tmp_path / "net.json")
    theirs = pp.from_json(str(tmp_path / "net.json"))
    grid = load_grid(str(tmp_path / "net.json")).net
    flow = make_power_flow(grid)
    return flow, flow.solve_own(), theirs


def _assert_same(found: Any, theirs: Any, atol: float = 1e-7) -> None:
    np.testing.assert_allclose(found.vm_pu, theirs.res_bus.vm_pu.fillna(0), rtol=0, atol=atol)
    np.testing.assert_allclose(found.line_loading, theirs.res_line.loading_percent, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.trafo_loading, theirs.res_trafo.loading_percent, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.ext_grid_p, theirs.res_ext_grid.p_mw, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("error:the fast power flow disagrees")
@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "gs"},
        {"algorithm": "fdbx"},
        {"algorithm": "fdxb", "max_iteration": 100},
        {"algorithm": "iwamoto_nr"},
        {"init": "results"},
        {"init": "flat"},
        {"max_iteration": 30},
        {"numba": False, "lightsim2grid": True},
        {"recycle": {"bus_pq": True, "gen": True, "trafo": False}},
        {"only_v_results": True},
        {"check_connectivity": False},
    ],
    ids=str,
)
def test_how_a_net_is_solved_makes_no_difference(options: dict[str, Any], net: Any, tmp_path: Path) -> None:
    flow, found, theirs = _solved(net, options, tmp_path)
    assert not isinstance(flow, PandapowerPowerFlow)
    if options != {"only_v_results": True}:
        pp.runpp(theirs)
    else:
        pp.runpp(net)
        theirs = net
    _assert_same(found, theirs)


@pytest.mark.filterwarnings("error:the fast power flow disagrees")
def test_a_sweep_is_no_reason_not_to_solve_a_net(tmp_path: Path) -> None:
    _, found, theirs = _solved(pp.networks.create_cigre_network_mv(), {"algorithm": "bfsw"}, tmp_path)
    pp.runpp(theirs)
    _assert_same(found, theirs)


@pytest.mark.parametrize(
    ("options", "fast"),
    [
        ({"trafo_loading": "power"}, False),
        ({"enforce_q_lims": True}, False),
        ({"distributed_slack": True}, False),
        ({"calculate_voltage_angles": False}, True),
        ({"trafo_model": "pi"}, True),
        ({"voltage_depend_loads": False}, True),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("error:the fast power flow disagrees")
def test_what_is_solved_follows_the_net(
    options: dict[str, Any], fast: bool, net: Any, tmp_path: Path
) -> None:
    flow, found, theirs = _solved(net, options, tmp_path)
    pp.runpp(theirs, lightsim2grid=False)
    _assert_same(found, theirs)
    assert isinstance(flow, PandapowerPowerFlow) is not fast


def test_limits_that_bind_in_a_later_state_are_kept(tmp_path: Path) -> None:
    """At set-up, no generator is at a limit, so a comparison there says nothing about later states."""
    net = pp.networks.case9()
    net.gen["max_q_mvar"], net.gen["min_q_mvar"] = 30.0, -30.0
    flow, _, theirs = _solved(net, {"enforce_q_lims": True}, tmp_path)
    theirs.load["q_mvar"] *= 1.5
    pp.runpp(theirs)
    assert (theirs.res_gen.q_mvar > 29.9).any(), "a limit binds"
    table = flow.net.load
    none = np.empty(0)
    found = flow.solve(
        table.p_mw.to_numpy(), table.q_mvar.to_numpy() * 1.5, none, none, none, flow.net.gen.p_mw.to_numpy()
    )
    _assert_same(found, theirs)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"algorithm": "dc"}, "algorithm is 'dc'; allowed is 'nr' or 'iwamoto_nr' or 'bfsw'"),
        ({"ac": False}, "'ac' is no option of an AC power flow"),
        ({"mode": "sc"}, "'mode' is no option of an AC power flow"),
        ({"trafo_modl": "pi"}, r"did you mean 'trafo_model'\?"),
        ({"trafo_model": "x"}, "trafo_model is 'x'; allowed is 't' or 'pi'"),
        ({"enforce_q_lims": 1}, "enforce_q_lims is 1; allowed is True or False"),
        ({"max_iteration": 0}, "max_iteration is 0; allowed is 'auto' or a whole number above 0"),
        ({"switch_rx_ratio": "a"}, "switch_rx_ratio is 'a'; allowed is a number"),
        ([1], "user_pf_options are a list; allowed is a mapping"),
    ],
)
def test_options_of_no_ac_power_flow_are_refused(
    options: Any, said: str, two_bus_net: Any, tmp_path: Path
) -> None:
    two_bus_net["user_pf_options"] = options
    pp.to_json(two_bus_net, tmp_path / "net.json")
    with pytest.raises(DocumentError, match=f"net.json': user_pf_options.*{said}|net.json': {said}"):
        load_grid(str(tmp_path / "net.json"))


def test_every_option_of_pandapower_is_known() -> None:
    """A release with another option is noticed: it would act, or be refused, for no reason."""
    named = set(inspect.signature(pp.runpp).parameters) - {"net", "kwargs"}
    assert named <= net_check._RULES.keys()


# --- nets in which nothing is unknown ---------------------------------------------------------


def _nothing_unknown(kind: str) -> Any:
    net = pp.create_empty_network()
    first = pp.create_bus(net, 20.0)
    pp.create_ext_grid(net, first, vm_pu=1.02)
    pp.create_load(net, first, 1.0, 0.5)
    if kind != "one bus":
        second = pp.create_bus(net, 20.0)
        pp.create_load(net, second, 2.0, 0.25)
    if kind == "switch":
        pp.create_switch(net, first, second, "b")
        pp.create_shunt(net, second, 0.3, 0.2)
    if kind == "two external grids":
        pp.create_ext_grid(net, second, vm_pu=1.0)
        pp.create_line(net, first, second, 1.0, "NAYY 4x150 SE")
    if kind == "line out of service":
        pp.create_line(net, first, second, 1.0, "NAYY 4x150 SE", in_service=False)
    return net


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "kind", ["one bus", "unconnected", "switch", "two external grids", "line out of service"]
)
def test_a_net_in_which_nothing_is_unknown_is_solved(kind: str, tmp_path: Path) -> None:
    flow, found, theirs = _solved(_nothing_unknown(kind), {}, tmp_path)
    pp.runpp(theirs)
    np.testing.assert_allclose(found.vm_pu, theirs.res_bus.vm_pu.fillna(0.0), atol=1e-12)
    np.testing.assert_allclose(found.line_loading, theirs.res_line.loading_percent.fillna(0.0), atol=1e-9)
    for quantity in ("p_mw", "q_mvar"):
        expected = theirs.res_ext_grid[quantity].fillna(0.0)
        np.testing.assert_allclose(getattr(found, f"ext_grid_{quantity[0]}"), expected, atol=1e-9)
    assert not isinstance(flow, PandapowerPowerFlow)
