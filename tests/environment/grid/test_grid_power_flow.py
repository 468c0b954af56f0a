"""The fast power flow against pandapower, and by hand."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import numpy as np
import pandapower as pp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.core.errors import PowerFlowError
from palaestrai_mosaik.environment.grid import kernels
from palaestrai_mosaik.environment.grid.fast_power_flow import Equations, FastPowerFlow, FixedPoint, Newton
from palaestrai_mosaik.environment.grid.network import load_grid
from palaestrai_mosaik.environment.grid.power_flow import PowerFlowResult
from palaestrai_mosaik.environment.grid.power_flow_factory import (
    PandapowerPowerFlow,
    make_power_flow,
    uncovered_features,
)

SOLVE_BY_NEWTON = Newton.solve
GRIDS = (
    "cigre_mv",
    "simbench:1-MV-rural--2-sw",
    "simbench:1-MV-semiurb--1-sw",
    "oberrhein",
    "case2869",
)


def powers_of(net: Any) -> list[np.ndarray]:
    pairs = (
        ("load", "p_mw"),
        ("load", "q_mvar"),
        ("sgen", "p_mw"),
        ("sgen", "q_mvar"),
        ("storage", "p_mw"),
        ("gen", "p_mw"),
    )
    return [(net[t][c] * net[t].scaling).to_numpy(dtype=float) for t, c in pairs]


def oracle(net: Any, powers: list[np.ndarray]) -> PowerFlowResult:
    """pandapower's own answer, written and read table by table without our code."""
    net.load["scaling"] = net.sgen["scaling"] = net.storage["scaling"] = net.gen["scaling"] = 1.0
    net.load["p_mw"], net.load["q_mvar"], net.sgen["p_mw"], net.sgen["q_mvar"] = powers[:4]
    net.storage["p_mw"], net.gen["p_mw"] = powers[4:]
    pp.runpp(net, tolerance_mva=1e-8, numba=False)
    return PowerFlowResult(
        net.res_bus.vm_pu.fillna(0.0).to_numpy(),
        net.res_line.loading_percent.fillna(0.0).to_numpy(),
        net.res_trafo.loading_percent.fillna(0.0).to_numpy(),
        net.res_ext_grid.p_mw.to_numpy(),
        net.res_ext_grid.q_mvar.to_numpy(),
        float(net.res_line.pl_mw.sum() + net.res_trafo.pl_mw.sum()),
        *powers,
    )


def assert_same(found: PowerFlowResult, expected: PowerFlowResult) -> None:
    np.testing.assert_allclose(found.vm_pu, expected.vm_pu, rtol=0, atol=1e-6)
    # one millionth of the rated current, of 1 MVA
    np.testing.assert_allclose(found.line_loading, expected.line_loading, rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(found.trafo_loading, expected.trafo_loading, rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(found.ext_grid_p, expected.ext_grid_p, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(found.ext_grid_q, expected.ext_grid_q, rtol=1e-6, atol=1e-5)
    assert found.losses_mw == pytest.approx(expected.losses_mw, rel=1e-5, abs=1e-6)


METHODS = pytest.mark.parametrize("newton_only", [False, True], ids=["fixed_point", "newton"])


@pytest.fixture
def no_newton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sure that an answer is the fixed-point iteration's own."""

    def solve(self: Any, start: Any, power: Any) -> Any:
        raise AssertionError("Newton's method was asked")

    monkeypatch.setattr(Newton, "solve", solve)


@METHODS
@pytest.mark.parametrize("name", GRIDS)
def test_agrees_with_pandapower(name: str, newton_only: bool, request: pytest.FixtureRequest) -> None:
    net = load_grid(name).net
    fast = FastPowerFlow(net, newton_only)
    if not newton_only and name != "case2869":  # which has PV buses
        request.getfixturevalue("no_newton")
    rng = np.random.default_rng(1)
    own = powers_of(net)
    for factor in (0.7, 0.95):
        powers = [p * factor * rng.uniform(0.9, 1.1, len(p)) for p in own]
        powers[3] = powers[3] + rng.uniform(-0.1, 0.1, len(powers[3]))
        found = fast.solve(*powers)
    expected = oracle(net, powers)
    assert_same(found, expected)
    np.testing.assert_allclose(found.vm_pu, expected.vm_pu, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["cigre_mv", "simbench:1-MV-rural--2-sw"])
def test_both_methods_agree_along_a_day(name: str, no_newton: None) -> None:
    """Each state is solved from the one before; the last states of 1e-9 MVA mismatch agree to 1e-9 p.u."""
    grid = load_grid(name)
    fixed_point = FastPowerFlow(grid.net)
    q = powers_of(grid.net)[3]
    found, powers = [], []
    for row in range(17_000, 17_096):
        load_p, load_q, sgen_p, storage_p, gen_p = grid.profiles.at(row)
        powers.append((load_p, load_q, sgen_p, q, storage_p, gen_p))
        found.append(fixed_point.solve(*powers[-1]).vm_pu)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Newton, "solve", SOLVE_BY_NEWTON)
        newton = FastPowerFlow(grid.net, newton_only=True)
        expected = [newton.solve(*p).vm_pu for p in powers]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def factor_at_the_limit(net: Any) -> float:
    """How much of ``net``'s own load is close to the most that the line can carry (pandapower)."""
    low, high = 1.0, 1000.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        net.load["scaling"] = middle
        try:
            pp.runpp(net, numba=False)
            low = middle
        except pp.LoadflowNotConverged:
            high = middle
    net.load["scaling"] = 1.0
    return low


def test_what_the_iteration_cannot_solve_is_solved_by_newton(two_bus_net: Any) -> None:
    """Near the nose of the P-V curve the fixed point contracts by next to nothing per step."""
    factor = factor_at_the_limit(two_bus_net) * (1.0 - 1e-4)
    powers = powers_of(two_bus_net)
    powers[0], powers[1] = powers[0] * factor, powers[1] * factor
    fast = FastPowerFlow(two_bus_net)
    equations = Equations(two_bus_net)
    iteration = FixedPoint.of(equations)
    assert iteration is not None
    assert iteration.solve(equations.cold, equations.power(*powers)) is None
    found = fast.solve(*powers)
    assert found.vm_pu[1] < 0.6
    assert_same(found, oracle(two_bus_net, powers))
    # what comes next starts from Newton's solution
    easy = [p * 0.5 for p in powers]
    assert_same(fast.solve(*easy), oracle(two_bus_net, easy))


@pytest.mark.parametrize("power", [complex(np.nan, 0.0), complex(0.0, np.inf), -1e6, -1e300])
def test_the_iteration_never_takes_nonsense_for_a_solution(two_bus_net: Any, power: complex) -> None:
    pp.runpp(two_bus_net)
    equations = Equations(two_bus_net)
    iteration = FixedPoint.of(equations)
    assert iteration is not None
    before = equations.cold.copy()
    assert iteration.solve(equations.cold, np.full(equations.n, power, dtype=complex)) is None
    np.testing.assert_array_equal(equations.cold, before)


def test_the_iteration_is_not_for_pv_buses(two_bus_net: Any) -> None:
    pp.create_gen(two_bus_net, 1, 1.0)
    fast = FastPowerFlow(two_bus_net)
    assert FixedPoint.of(Equations(two_bus_net)) is None
    assert fast.solve_own().vm_pu[1] == pytest.approx(1.0, abs=1e-12)


@METHODS
@pytest.mark.parametrize("name", ["cigre_mv", "simbench:1-MV-rural--2-sw", "oberrhein"])
def test_topology_and_taps(name: str, newton_only: bool) -> None:
    net = load_grid(name).net
    fast = FastPowerFlow(net, newton_only)
    before = fast.solve_own()
    powers = powers_of(net)
    lines = net.line.in_service.to_numpy(dtype=bool).copy()
    lines[np.flatnonzero(lines)[-1]] = False
    taps = net.trafo.tap_pos.to_numpy(dtype=float) + (0.0 if name == "cigre_mv" else 2.0)
    fast.set_topology(lines, taps)
    switched = fast.solve(*powers)
    fast.reset()
    again = fast.solve_own()
    np.testing.assert_array_equal(again.vm_pu, before.vm_pu)
    assert np.abs(switched.vm_pu - before.vm_pu).max() > 1e-5
    net.line["in_service"], net.trafo["tap_pos"] = lines, taps
    assert_same(switched, oracle(net, powers))


@METHODS
def test_a_bus_without_supply_is_dark(two_bus_net: Any, newton_only: bool) -> None:
    net = two_bus_net
    third = pp.create_bus(net, 20.0)
    pp.create_line_from_parameters(net, 1, third, 1.0, 0.2, 0.3, 0.0, 0.4)
    pp.create_load(net, third, 0.3, 0.1)
    fast = FastPowerFlow(net, newton_only)
    supplied = fast.solve_own()
    fast.set_topology(np.array([1, 0]))
    dark = fast.solve_own()
    assert dark.vm_pu[2] == 0.0
    assert dark.line_loading[1] == 0.0
    assert supplied.ext_grid_p[0] - dark.ext_grid_p[0] == pytest.approx(0.3, abs=1e-2)
    net.line["in_service"] = [True, False]
    assert_same(dark, oracle(net, powers_of(net)))


def test_nothing_left_to_supply_is_solved_and_can_be_undone(two_bus_net: Any) -> None:
    fast = make_power_flow(two_bus_net)
    before = fast.solve_own()
    fast.set_topology(np.array([0]))
    dark = fast.solve_own()
    two_bus_net.line["in_service"] = False
    assert_same(dark, oracle(two_bus_net, powers_of(two_bus_net)))
    assert (dark.vm_pu.tolist(), dark.line_loading.tolist(), dark.ext_grid_p.tolist()) == (
        [1.0, 0.0],
        [0.0],
        [0.0],
    )
    fast.set_topology(np.array([1]))
    np.testing.assert_allclose(fast.solve_own().vm_pu, before.vm_pu, rtol=0, atol=1e-12)


@METHODS
def test_by_hand(two_bus_net: Any, newton_only: bool) -> None:
    """P = 2 - 1 - 0 MW, Q = 0.5 Mvar through Z = 2 + 3j ohm: the two-bus equation in closed form."""
    found = FastPowerFlow(two_bus_net, newton_only).solve_own()
    p, q, r, x, u1 = 1.0, 0.5, 2.0, 3.0, 20.0
    b = u1**2 - 2 * (p * r + q * x)
    u2_squared = (b + np.sqrt(b**2 - 4 * (p**2 + q**2) * (r**2 + x**2))) / 2
    current = np.sqrt((p**2 + q**2) / (3 * u2_squared))
    losses = 3 * r * current**2
    assert found.vm_pu[1] == pytest.approx(np.sqrt(u2_squared) / u1, abs=1e-9)
    assert found.line_loading[0] == pytest.approx(100 * current / 0.4, abs=1e-6)
    assert found.losses_mw == pytest.approx(losses, abs=1e-9)
    assert found.ext_grid_p[0] == pytest.approx(p + losses, abs=1e-8)
    assert found.ext_grid_q[0] == pytest.approx(q + 3 * x * current**2, abs=1e-8)


@settings(max_examples=25)
@given(
    st.floats(0.0, 5.0), st.floats(-2.0, 2.0), st.floats(0.0, 5.0), st.floats(-2.0, 2.0), st.floats(-1.0, 1.0)
)
def test_power_balance(load_p: float, load_q: float, sgen_p: float, sgen_q: float, storage_p: float) -> None:
    """What the external grid feeds in is what is consumed, less what is generated, plus losses."""
    flow = _TWO_BUS.setdefault("flow", None) or _two_bus_flow()
    r = flow.solve(*(np.array([v]) for v in (load_p, load_q, sgen_p, sgen_q, storage_p)), np.zeros(0))
    assert r.ext_grid_p[0] == pytest.approx(load_p + storage_p - sgen_p + r.losses_mw, abs=1e-7)
    assert r.losses_mw >= -1e-9


_TWO_BUS: dict[str, Any] = {}


def _two_bus_flow() -> Any:
    net = pp.create_empty_network()
    buses = pp.create_buses(net, 2, 20.0)
    pp.create_ext_grid(net, buses[0])
    pp.create_line_from_parameters(net, buses[0], buses[1], 10.0, 0.2, 0.3, 0.0, 0.4)
    pp.create_load(net, buses[1], 2.0, 0.5)
    pp.create_sgen(net, buses[1], 1.0)
    pp.create_storage(net, buses[1], 0.0, max_e_mwh=1.0)
    _TWO_BUS["flow"] = make_power_flow(net)
    return _TWO_BUS["flow"]


def test_divergence_names_the_worst_bus_and_is_recovered_from(two_bus_net: Any) -> None:
    fast = make_power_flow(two_bus_net)
    good = fast.solve_own()
    with pytest.raises(PowerFlowError, match=r"did not converge .* at bus 1"):
        fast.solve(np.array([500.0]), *powers_of(two_bus_net)[1:])
    np.testing.assert_allclose(fast.solve_own().vm_pu, good.vm_pu, atol=1e-10)


@METHODS
def test_results_do_not_depend_on_the_past(newton_only: bool) -> None:
    net = load_grid("cigre_mv").net
    fast = FastPowerFlow(net, newton_only)
    powers = powers_of(net)

    def run() -> bytes:
        fast.reset()
        return b"".join(fast.solve(*(p * f for p in powers)).vm_pu.tobytes() for f in (0.5, 0.8, 1.0))

    first = run()
    fast.solve(*(p * 0.1 for p in powers))
    fast.set_topology(
        tap_pos=net.trafo.tap_pos.to_numpy() + 1.0, line_in_service=np.arange(len(net.line)) != 1
    )
    fast.solve_own()
    assert run() == first


def test_zip_loads_are_solved_by_pandapower(two_bus_net: Any) -> None:
    net = two_bus_net
    net.load["const_z_p_percent"] = net.load["const_z_q_percent"] = 100.0
    net.sgen["p_mw"] = 0.0
    assert uncovered_features(net) == ["voltage-dependent (ZIP) loads"]
    slow = make_power_flow(net)
    assert isinstance(slow, PandapowerPowerFlow)
    found = slow.solve_own()
    # a constant impedance of 2 MW at 1 p.u. takes 2 V^2
    p, v = found.ext_grid_p[0] - found.losses_mw, found.vm_pu[1]
    assert p == pytest.approx(2.0 * v**2, abs=1e-6)
    assert v < 0.99


@pytest.mark.parametrize("make", [FastPowerFlow, PandapowerPowerFlow])
def test_both_solvers_leave_the_net_as_it_was(two_bus_net: Any, make: Any) -> None:
    net = two_bus_net
    net.load["scaling"] = 0.5
    before = {t: net[t].copy() for t in ("load", "sgen", "storage", "line", "trafo")}
    flow = make(net)
    flow.set_topology(np.array([1]))
    own = flow.solve_own()
    half = flow.solve(np.array([0.5]), np.array([0.25]), np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(0))
    flow.reset()
    for name, table in before.items():
        assert table.equals(net[name])
    assert own.ext_grid_p[0] == pytest.approx(2.0 * 0.5 - 1.0, abs=1e-2)
    assert half.ext_grid_p[0] == pytest.approx(0.5, abs=1e-2)


def test_other_uncovered_features(two_bus_net: Any) -> None:
    net = two_bus_net
    assert uncovered_features(net) == []
    assert uncovered_features(net, enforce_q_lims=True) == ["reactive power limits of generators"]
    pp.create_ext_grid(net, 0)
    pp.create_xward(net, 1, 0, 0, 0, 0, 0.1, 0.1, 1.0)
    assert uncovered_features(net) == ["1 xward", "several voltage-controlled sources at one bus"]


@pytest.mark.parametrize("missing", ["lightsim2grid", "numba"])
def test_without_what_it_needs_it_warns_and_agrees(
    two_bus_net: Any, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    fast = make_power_flow(two_bus_net).solve_own()
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == missing else find(n, *a))
    with pytest.warns(RuntimeWarning, match=f"{missing} not installed"):
        slow = make_power_flow(two_bus_net)
    assert isinstance(slow, PandapowerPowerFlow)
    assert_same(slow.solve_own(), fast)


def test_the_package_can_be_imported_without_numba() -> None:
    code = (
        "import sys, importlib.abc\n"
        "class Refuse(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name in ('numba', 'lightsim2grid'): raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import palaestrai_mosaik.environment.grid.power_flow_factory\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_compiling_does_not_need_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def njit(cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: ("compiled", function)

    monkeypatch.setattr(kernels, "njit", njit)
    assert kernels.compiled(abs) == ("compiled", abs)


def test_a_wrong_fast_solver_is_noticed(two_bus_net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = FastPowerFlow.solve

    def wrong(self: Any, *powers: Any) -> PowerFlowResult:
        result = honest(self, *powers)
        result.vm_pu[1] += 1e-5
        return result

    monkeypatch.setattr(FastPowerFlow, "solve", wrong)
    with pytest.warns(RuntimeWarning, match="disagrees with pandapower .*vm_pu differs by 1e-05"):
        assert isinstance(make_power_flow(two_bus_net), PandapowerPowerFlow)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning:pandapower")
def test_a_net_without_slack_is_an_error(two_bus_net: Any) -> None:
    two_bus_net.ext_grid["in_service"] = False
    with pytest.raises(PowerFlowError):
        make_power_flow(two_bus_net)
