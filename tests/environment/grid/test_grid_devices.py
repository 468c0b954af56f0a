"""Inverters, storages, set-points and what agents change in the grid, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from palaestrai_mosaik.core.errors import PowerFlowError, SimulationError
from palaestrai_mosaik.environment.devices import Inverters, Setpoints, Storages
from palaestrai_mosaik.environment.grid.power_flow import PowerGrid
from palaestrai_mosaik.environment.grid.power_flow_factory import make_power_flow

NAN = np.nan


def vector(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)


def test_setpoints_of_two_senders_are_merged_and_hold() -> None:
    setpoints = Setpoints(3)
    assert not setpoints.any
    assert setpoints.accept({"b": vector(NAN, 2, NAN), "a": vector(1, NAN, NAN)})
    np.testing.assert_array_equal(setpoints.values, [1, 2, NAN])
    np.testing.assert_array_equal(setpoints.commanded, [True, True, False])
    assert not setpoints.accept({"a": vector(NAN, NAN, NAN)})
    np.testing.assert_array_equal(setpoints.values, [1, 2, NAN])


def test_setpoints_delivered_again_do_not_undo_newer_ones() -> None:
    setpoints = Setpoints(1)
    old = vector(1)
    setpoints.accept({"a": old})
    setpoints.accept({"a": old, "b": vector(2)})
    assert setpoints.values[0] == 2
    assert not setpoints.accept({"a": old})
    setpoints.accept({"a": vector(1)})
    assert setpoints.values[0] == 1


def test_setpoints_are_handed_on_unchanged() -> None:
    setpoints = Setpoints(2, vector(5, 6))
    before = setpoints.values
    setpoints.accept({"a": [NAN, 7]})
    np.testing.assert_array_equal(before, [5, 6])
    np.testing.assert_array_equal(setpoints.values, [5, 7])


def test_setpoints_of_wrong_length() -> None:
    with pytest.raises(SimulationError, match=r"from agent-1 have shape \(3,\), expected \(2,\)"):
        Setpoints(2).accept({"agent-1": vector(1, 2, 3)})


def test_inverters_by_hand() -> None:
    inverters = Inverters(vector(5, 5, 5, 5, 1), vector(0, 0, 0, 0.7, 0))
    p = vector(3, 4, 0, 5, 2)
    _, q = inverters.step(p)
    np.testing.assert_array_equal(q, [0, 0, 0, 0.7, 0])
    inverters.q_set.accept({"agent": vector(9, -1, -9, NAN, 1)})
    out_p, q = inverters.step(p)
    np.testing.assert_array_equal(out_p, p)
    # sqrt(25 - 9) = 4; within; sqrt(25) = 5; nobody set it; P above the rating leaves no room
    np.testing.assert_allclose(q, [4, -1, -5, 0.7, 0])


@settings(max_examples=50)
@given(
    # the square of a smaller rating would be no normal number
    arrays(float, 4, elements=st.just(0.0) | st.floats(1e-100, 10)),
    arrays(float, 4, elements=st.floats(0, 10)),
    arrays(float, 4, elements=st.floats(-20, 20)),
)
def test_inverters_stay_within_their_rating(rating: Any, p: Any, q_set: Any) -> None:
    inverters = Inverters(rating, np.zeros(4))
    inverters.q_set.accept({"agent": q_set})
    _, q = inverters.step(p)
    assert np.all(np.hypot(p, q) <= np.maximum(rating, p) * (1 + 1e-12))
    assert np.all(np.abs(q) <= np.abs(q_set))
    assert np.all(q * q_set >= 0)


def battery(soc: float = 0.5, n: int = 1) -> Storages:
    one = np.ones(n)
    return Storages(2 * one, 4 * one, 0.4 * one, 0.8 * one, soc, hours=0.5)


def test_storages_by_hand() -> None:
    storages = battery(n=3)
    storages.p_set.accept({"agent": vector(1, -1, NAN)})
    p, soc = storages.step(vector(0, 0, -0.3))
    np.testing.assert_array_equal(p, [1, -1, -0.3])
    np.testing.assert_array_equal(soc, [0.5, 0.5, 0.5])
    # 1 MW * 0.5 h * 0.8 = 0.4 MWh in; 1 MW * 0.5 h / 0.8 = 0.625 MWh out; the profile is no model
    np.testing.assert_allclose(storages.energy, [2.4, 1.375, 2.0])


def test_storages_follow_their_profile_until_set() -> None:
    storages = battery()
    for _ in range(10):
        p, soc = storages.step(vector(-1.5))
    assert (p[0], soc[0]) == (-1.5, 0.5)


def test_storages_stop_at_their_limits() -> None:
    storages = battery(soc=0.95)
    storages.p_set.accept({"agent": vector(2)})
    # room for 0.2 MWh: 0.2 / (0.5 * 0.8) = 0.5 MW
    assert storages.step(vector(0))[0][0] == pytest.approx(0.5)
    assert storages.step(vector(0))[0][0] == pytest.approx(0.0)
    storages.p_set.accept({"agent": vector(-9)})
    # the converter gives 2 MW, taking 1.25 MWh a step; 3.6 MWh are left to take
    taken = [storages.step(vector(0))[0][0] for _ in range(4)]
    np.testing.assert_allclose(taken, [-2, -2, -(3.6 - 2.5) * 0.8 / 0.5, 0], atol=1e-12)
    assert storages.soc[0] == pytest.approx(0.1)


@settings(max_examples=50)
@given(st.floats(0, 1), st.lists(st.floats(-5, 5), min_size=1, max_size=20))
def test_storages_keep_their_limits_and_lose_energy(soc: float, wishes: list[float]) -> None:
    storages = battery(soc)
    before = storages.energy[0]
    drawn = 0.0
    for wish in wishes:
        storages.p_set.accept({"agent": vector(wish)})
        p, reading = storages.step(vector(0))
        drawn += p[0] * 0.5
        assert abs(p[0]) <= min(2.0, abs(wish))
        assert p[0] * wish >= 0
        assert 0.1 - 1e-12 <= reading[0] <= 1.0
    assert storages.energy[0] - before <= drawn + 1e-9


def test_devices_of_a_net(two_bus_net: Any) -> None:
    assert Inverters.of(two_bus_net).rating[0] == 1.25
    two_bus_net.sgen["sn_mva"] = NAN
    assert Inverters.of(two_bus_net).rating[0] == 1.0
    two_bus_net.storage["efficiency_percent"] = 90.0
    storages = Storages.of(two_bus_net, initial_soc=0.25)
    assert (storages.rating[0], storages.capacity[0], storages.efficiency[0]) == (0.5, 1.0, 0.9)
    assert storages.energy[0] == 0.25


def own(net: Any) -> list[np.ndarray]:
    return [vector(2.0), vector(0.5), vector(1.0), vector(0.0), vector(0.0), vector()]


def test_grid_scales_loads(two_bus_net: Any) -> None:
    flow = make_power_flow(two_bus_net)
    grid = PowerGrid(flow, flow.solve_own())
    grid.accept({"load_scaling": {"agent": vector(0.5)}})
    grid.step(*own(two_bus_net))
    assert (grid.result.load_p[0], grid.result.load_q[0]) == (1.0, 0.25)
    assert grid.result.ext_grid_p[0] == pytest.approx(0.0, abs=1e-2)


def test_divergence_keeps_the_last_state_and_says_so(two_bus_net: Any) -> None:
    flow = make_power_flow(two_bus_net)
    grid = PowerGrid(flow, flow.solve_own())
    grid.step(*own(two_bus_net))
    good = grid.result
    grid.step(vector(500.0), *own(two_bus_net)[1:])
    assert (grid.result, grid.converged) == (good, 0.0)
    grid.step(*own(two_bus_net))
    assert grid.converged == 1.0
    grid.accept({"line_in_service": {"agent": vector(0)}})
    grid.step(*own(two_bus_net))
    # nothing is left to solve: the external grid feeds nothing
    assert (grid.converged, grid.result.load_p[0], grid.result.ext_grid_p[0]) == (1.0, 0.0, 0.0)
    grid.accept({"line_in_service": {"agent": vector(1)}})
    grid.step(*own(two_bus_net))
    assert grid.converged == 1.0


def test_divergence_fails_if_it_shall(two_bus_net: Any) -> None:
    flow = make_power_flow(two_bus_net)
    grid = PowerGrid(flow, flow.solve_own(), "fail")
    with pytest.raises(PowerFlowError, match="worst mismatch"):
        grid.step(vector(500.0), *own(two_bus_net)[1:])
