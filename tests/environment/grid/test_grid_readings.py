"""Every sensor reads what pandapower's tables ``res_*`` have, after any switching and outage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandapower as pp
import pandapower.networks
import pandas as pd
import pytest
from support.grid_oracle import Oracle, compare, simbench_net

import palaestrai_mosaik
from palaestrai_mosaik.core.errors import PowerFlowError, SimulationError
from palaestrai_mosaik.environment.batch import BatchStepper
from palaestrai_mosaik.environment.grid import BatchGridEnvironment, batch_power_flow, load_grid
from palaestrai_mosaik.environment.grid import environment as grid_environment
from palaestrai_mosaik.environment.grid.batch_power_flow import BatchPowerFlow
from palaestrai_mosaik.environment.grid.fast_power_flow import FastPowerFlow, FixedPoint, Newton
from palaestrai_mosaik.environment.grid.power_flow import ELEMENT_POWERS
from palaestrai_mosaik.environment.grid.power_flow_factory import PandapowerPowerFlow
from palaestrai_mosaik.interop.mosaik.simulators.power_flow import PowerFlow
from palaestrai_mosaik.interop.mosaik.simulators.profiles import Profiles

WAYS = ("fast", "batch", "pandapower")
ROWS = 8


def all_kinds() -> Any:
    """Return a net in which each kind of element with sensors or a profile is there several times."""
    rng = np.random.default_rng(5)
    net = pp.create_empty_network()
    high, *buses = pp.create_bus(net, 110.0), *pp.create_buses(net, 8, 20.0)
    pp.create_ext_grid(net, high)
    for bus in buses[:2]:
        pp.create_transformer(net, high, bus, "25 MVA 110/20 kV")
    net.trafo["shift_degree"] = 0.0
    for k in range(7):
        pp.create_line(net, buses[k], buses[k + 1], 2.0, "NA2XS2Y 1x185 RM/25 12/20 kV")
    pp.create_line(net, buses[1], buses[7], 3.0, "NA2XS2Y 1x185 RM/25 12/20 kV")
    pp.create_switch(net, buses[3], 3, "l")
    pp.create_switch(net, buses[6], 6, "l", closed=False)
    pp.create_gen(net, buses[4], 3.0, vm_pu=1.0, scaling=0.9)
    pp.create_gen(net, buses[2], 2.0, vm_pu=1.0, in_service=False)
    for k, bus in enumerate(buses):
        pp.create_load(net, bus, 1.0 + 0.1 * k, 0.2, scaling=0.8)
        pp.create_sgen(net, bus, 0.5, 0.05, sn_mva=0.7, scaling=0.9)
        pp.create_storage(net, bus, 0.2, 1.0, q_mvar=0.02, sn_mva=0.3, in_service=k != 5)
    net.gen["profile"] = ["nuclear", None]
    net.load["profile"], net.sgen["profile"], net.storage["profile"] = "l", "pv", "battery"
    net.load.loc[2, "profile"] = None
    values = rng.uniform(0.2, 1.0, (ROWS, 5))
    net["profiles"] = {
        "load": pd.DataFrame({"l_pload": values[:, 0], "l_qload": values[:, 1]}),
        "powerplants": pd.DataFrame({"nuclear": values[:, 2]}),
        "renewables": pd.DataFrame({"pv": values[:, 3], "nuclear": 0.0}),
        "storage": pd.DataFrame({"battery": values[:, 4] - 0.5}),
    }
    return net


def with_zip_loads() -> Any:
    """Return a net whose loads depend on the voltage, solved by pandapower."""
    net = all_kinds()
    net.load["const_z_p_percent"], net.load["const_i_p_percent"], net.load["const_z_q_percent"] = (
        30.0,
        20.0,
        50.0,
    )
    return net


def two_slacks() -> Any:
    """Return a net with a generator that is a slack: its power is a result."""
    net = all_kinds()
    pp.create_gen(net, 8, 1.0, vm_pu=1.0, slack=True)
    return net


MADE = {net.__name__: net for net in (all_kinds, with_zip_loads, two_slacks)}
#: some of each kind; ``benchmarks/grid_readings.py`` compares all nets of pandapower and simbench
_PUBLIC = (
    *("case9", "case57", "mv_oberrhein", "example_multivoltage"),
    *("1-LV-rural1--0-sw", "1-MV-rural--2-sw", "1-EHV-mixed--1-sw"),
)
#: the batched solver refuses these nets (test_batch_grid.py)
_NOT_BATCHED = {"with_zip_loads", "example_multivoltage", "1-EHV-mixed--1-sw"}
_READ = [
    (name, way) for name in (*MADE, *_PUBLIC) for way in WAYS if way != "batch" or name not in _NOT_BATCHED
]


@pytest.mark.parametrize(("name", "way"), _READ)
def test_readings_are_those_of_pandapower(name: str, way: str, tmp_path: Path) -> None:
    if way != "batch":
        needs_gymnasium()
    net = MADE[name]() if name in MADE else _net(name)
    comparison = compare(way, net, 0, tmp_path)
    assert comparison.rows
    assert comparison.worst < 1e-6, comparison.where


def needs_gymnasium() -> None:
    """Skip a test that calls ``make`` if Gymnasium is missing."""
    pytest.importorskip("gymnasium", reason="the extra 'rl' (gymnasium) is not installed")


def _net(name: str) -> Any:
    if name.startswith("1-"):
        return simbench_net(name)
    made = getattr(pandapower.networks, name)()
    return made[0] if isinstance(made, tuple) else made


def test_a_wrong_reading_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle computes the powers from the tables: nothing of ours is compared with itself."""
    needs_gymnasium()
    honest = Oracle.power

    def wrong(self: Oracle, table: str, column: str, row: int) -> Any:
        return honest(self, table, column, row) * (1.0 + 1e-5 * (table == "load"))

    monkeypatch.setattr(Oracle, "power", wrong)
    assert compare("fast", all_kinds(), 0, tmp_path).worst > 1e-6


def in_a_run(net: Any, folder: Path, sensors: list[str], actuators: list[str]) -> Any:
    """Return the environment of a document with one agent in the grid ``net``."""
    needs_gymnasium()
    pp.to_json(net, str(folder / "net.json"))
    agent = {"name": "a", "muscle": "idle", "sensors": sensors, "actuators": actuators}
    environment = {"uid": "grid", "name": "grid", "params": {"grid": str(folder / "net.json"), "steps": 5}}
    phase = {
        "environments": [{"environment": environment}],
        "agents": [agent],
        "phase_config": {"mode": "test", "episodes": 1},
    }
    return palaestrai_mosaik.make({"uid": "u", "seed": 1, "schedule": [{"only": phase}]}, flatten=False)


def test_a_generator_follows_its_profile(tmp_path: Path) -> None:
    """30 MW of load, less 4 and 20 MW that both halve: 6 MW from outside become 18, and some losses."""
    net = pp.create_empty_network()
    first, second = pp.create_bus(net, 110.0), pp.create_bus(net, 110.0)
    pp.create_ext_grid(net, first)
    pp.create_line(net, first, second, 10.0, "243-AL1/39-ST1A 110.0")
    pp.create_load(net, second, 30.0, 5.0)
    pp.create_gen(net, second, 20.0, vm_pu=1.0)
    pp.create_sgen(net, second, 4.0, sn_mva=4.0)
    net.gen["profile"], net.sgen["profile"] = "g", "s"
    net["profiles"] = {
        "powerplants": pd.DataFrame({"g": [1.0, 0.5, 0.5]}),
        "renewables": pd.DataFrame({"s": [1.0, 0.5, 0.5]}),
    }
    pp.to_json(net, str(tmp_path / "net.json"))
    environment = BatchGridEnvironment(
        str(tmp_path / "net.json"), sensors=["ext_grid.p_mw"], actuators=[], steps=3
    )
    environment.setup()
    stepper = BatchStepper(environment)
    nothing = np.empty((1, 0))
    batch = [stepper.reset().readings[0, 1], *(stepper.step(nothing).readings[0, 1] for _ in range(2))]
    np.testing.assert_allclose(batch, [6.0, 18.0, 18.0], atol=0.05)
    np.testing.assert_allclose(by_simulators(str(tmp_path / "net.json")), batch, atol=1e-6)


def by_simulators(path: str) -> list[float]:
    """Return what the external grid feeds in, where profiles and power flow are simulators of a script."""
    grid, profiles = PowerFlow(), Profiles()
    for simulator, name in ((grid, "Grid"), (profiles, "Profiles")):
        simulator.init("S", time_resolution=900.0, step_size=1)
        simulator.create(1, name, grid=path)
    readings = []
    for time in range(3):
        profiles.step(time, {}, time)
        inputs = {
            eid: {attribute: {"P": value} for attribute, value in values.items()}
            for eid, values in profiles.outputs.items()
            if values
        }
        grid.step(time, inputs, time)
        readings.append(grid.outputs["ext_grid-0"]["p_mw"])
    assert grid.outputs["gen-0"]["p_mw"] == 10.0
    return readings


def cut_net() -> Any:
    """Return a net with a far bus on one line; there, and out of service, is one of each kind."""
    net = pp.create_empty_network()
    high, near, far = pp.create_bus(net, 110.0), pp.create_bus(net, 20.0), pp.create_bus(net, 20.0)
    pp.create_ext_grid(net, high)
    pp.create_transformer(net, high, near, "25 MVA 110/20 kV")
    pp.create_line(net, near, far, 3.0, "NA2XS2Y 1x185 RM/25 12/20 kV")
    for bus, in_service in ((near, True), (far, True), (near, False)):
        pp.create_load(net, bus, 2.0, 0.4, in_service=in_service)
        pp.create_sgen(net, bus, 0.5, 0.1, sn_mva=0.6, in_service=in_service)
        pp.create_storage(net, bus, 0.1, 1.0, sn_mva=0.3, in_service=in_service)
    return net


@pytest.mark.parametrize("way", ["fast", "pandapower"])
def test_dead_elements_read_nothing_and_do_not_charge(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "pandapower":
        monkeypatch.setattr(grid_environment, "make_power_flow", lambda net, limits: PandapowerPowerFlow(net))
    setters = ["grid.line-0.in_service", *(f"grid.storage-{k}.p_mw" for k in range(3))]
    environment = in_a_run(cut_net(), tmp_path, ["grid.*"], setters)
    readings, _ = environment.reset(seed=1)
    actions = [dict(zip(setters, (closed, 0.3, 0.3, 0.3), strict=True)) for closed in (1, 0, 0, 1)]
    seen = [readings, *(environment.step(action)[0] for action in actions)]
    environment.close()

    def row(quantity: str) -> list[list[float]]:
        element, _, name = quantity.partition(".")
        return [[round(float(r[f"grid.{element}-{k}.{name}"]), 6) for k in range(3)] for r in seen]

    on, off = [2.0, 2.0, 0.0], [2.0, 0.0, 0.0]
    assert row("load.p_mw") == [on, on, off, off, on]
    assert row("sgen.p_mw") == [[p / 4 for p in state] for state in (on, on, off, off, on)]
    assert row("sgen.q_mvar") == [[p / 20 for p in state] for state in (on, on, off, off, on)]
    assert row("storage.p_mw") == [[0.1, 0.1, 0], [0.3, 0.3, 0], [0.3, 0, 0], [0.3, 0, 0], [0.3, 0.3, 0]]
    # 0.3 MW in a quarter of an hour add 0.3 * 0.25 * 0.95 = 0.07125 MWh of 1 MWh; seen one step later
    levels = [[0.5, 0.5], [0.5, 0.5], [0.57125, 0.57125], [0.6425, 0.57125], [0.71375, 0.57125]]
    assert row("storage.soc") == [[*level, 0.5] for level in levels]
    assert [float(r["grid.bus-2.vm_pu"]) > 0.9 for r in seen] == [True, True, False, False, True]


def test_dead_elements_in_a_batch_are_what_they_are_alone(tmp_path: Path) -> None:
    """One copy is cut off; the state of charge of the other one rises."""
    pp.to_json(cut_net(), str(tmp_path / "net.json"))
    environment = BatchGridEnvironment(str(tmp_path / "net.json"), batch=2, steps=4)
    sensors = [sensor.uid for sensor in environment.setup().sensors]
    setters = environment.action_names
    stepper = BatchStepper(environment)
    stepper.reset()
    chosen = np.repeat(environment.get_idle_actions()[0][None], 2, axis=0)
    chosen[:, [setters.index(f"storage-{k}.p_mw") for k in range(3)]] = 0.3
    chosen[1, setters.index("line-0.in_service")] = 0
    stepper.step(chosen)
    readings = stepper.step(chosen).readings
    far = [sensors.index(f"{uid}.{quantity}") for uid, quantity in
           (("load-1", "p_mw"), ("sgen-1", "q_mvar"), ("storage-1", "p_mw"), ("storage-1", "soc"))]  # fmt: skip
    np.testing.assert_allclose(readings[:, far], [[2.0, 0.1, 0.3, 0.57125], [0.0, 0.0, 0.0, 0.5]], atol=1e-12)


def test_elements_of_a_script_read_what_flows(tmp_path: Path) -> None:
    pp.to_json(cut_net(), str(tmp_path / "net.json"))
    grid = PowerFlow()
    grid.init("S", time_resolution=900.0, step_size=1)
    grid.create(1, "Grid", grid=str(tmp_path / "net.json"))
    assert [grid.outputs[f"load-{k}"]["p_mw"] for k in range(3)] == [2.0, 2.0, 0.0]
    grid.step(0, {"line-0": {"in_service": {"S": 0}}}, 0)
    for table, quantity in (("load", "q_mvar"), ("sgen", "p_mw"), ("sgen", "q_mvar"), ("storage", "p_mw")):
        powers = [grid.outputs[f"{table}-{k}"][quantity] for k in range(3)]
        assert powers[0] != 0.0 and powers[1:] == [0.0, 0.0]


def test_the_power_of_a_slack_generator_is_a_result() -> None:
    net = two_slacks()
    fast, slow = FastPowerFlow(net).solve_own(), PandapowerPowerFlow(net).solve_own()
    assert abs(fast.gen_p[2] - 1.0) > 0.1
    for name in ELEMENT_POWERS:
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), atol=1e-7)


def test_a_topology_that_cannot_carry_the_own_powers_is_solved_for_others(tmp_path: Path) -> None:
    """Two lines carry 40 MW, one does not; half of it is no more than one can carry."""
    net = pp.create_empty_network()
    first, second = pp.create_bus(net, 20.0), pp.create_bus(net, 20.0)
    pp.create_ext_grid(net, first)
    for _ in range(2):
        pp.create_line_from_parameters(net, first, second, 10.0, 0.2, 0.3, 0.0, 0.4)
    pp.create_load(net, second, 40.0)
    flow = FastPowerFlow(net)
    flow.set_topology(np.array([1, 0]))
    net.line["in_service"] = [True, False]
    with pytest.raises(pp.LoadflowNotConverged):
        pp.runpp(net)
    net.load["scaling"] = 0.5
    pp.runpp(net, tolerance_mva=1e-10)
    none = np.zeros(0)
    found = flow.solve(np.array([20.0]), np.zeros(1), none, none, none, none)
    np.testing.assert_allclose(found.vm_pu, net.res_bus.vm_pu, atol=1e-9)


@pytest.mark.parametrize("batch", [False, True])
def test_a_state_that_only_pandapower_solves_is_solved(
    batch: bool, two_bus_net: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = FastPowerFlow(two_bus_net)
    expected = flow.solve_own()
    nothing = np.zeros(0)
    heavy = np.array([500.0]), np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1), nothing
    monkeypatch.setattr(Newton, "solve", lambda *arguments: None)
    monkeypatch.setattr(Newton, "explain", lambda *arguments: "no solution")
    monkeypatch.setattr(FixedPoint, "solve", lambda *arguments: None)
    if not batch:
        for name in ("vm_pu", "line_loading", "ext_grid_p", "load_p", "sgen_p"):
            np.testing.assert_allclose(getattr(flow.solve_own(), name), getattr(expected, name), rtol=1e-6)
        with pytest.raises(PowerFlowError, match="no solution"):
            flow.solve(*heavy)
        return
    many = BatchPowerFlow(flow)
    monkeypatch.setattr(batch_power_flow, "solve_many", lambda *arguments: None)
    p, q = np.array([[2.0, 1.0, 0.0], [500.0, 1.0, 0.0]]), np.array([[0.5, 0.0, 0.0]] * 2)
    results = np.zeros((2, many.width))
    reasons = many.solve((p, q), np.repeat(many.cold[None], 2, axis=0), results, np.arange(2))
    assert reasons == {1: "no solution"}
    assert results[:, 0].tolist() == [1.0, 0.0]
    np.testing.assert_allclose(results[0, many.columns["vm_pu"]], expected.vm_pu, rtol=1e-6)
    assert results[0, many.columns["load_p_mw"]].tolist() == [2.0]


def test_profiles_that_cannot_be_applied_are_named(tmp_path: Path) -> None:
    net = all_kinds()
    net.gen.loc[0, "profile"], net.load.loc[1, "profile"] = "nuklear", "x"
    net.shunt["profile"] = pd.Series(dtype=object)
    pp.create_motor(net, 1, 0.1, 0.9)
    net.motor["profile"] = "l"
    net["profiles"]["gen.vm_pu"] = pd.DataFrame({0: [1.0] * ROWS})
    pp.to_json(net, str(tmp_path / "net.json"))
    with pytest.raises(SimulationError) as caught:
        load_grid(str(tmp_path / "net.json"))
    for text in (
        "table 'gen.vm_pu'",
        "motor-0 names the profile 'l', but a motor cannot follow one; allowed are load, sgen, storage, gen",
        "gen-0.p_mw follows the profile 'nuklear', but there is none (did you mean 'nuclear'?); allowed are the "
        "columns of net.profiles' powerplants and renewables: nuclear, pv",
        "load-1.p_mw follows the profile 'x_pload'",
        "load-1.q_mvar follows the profile 'x_qload'",
    ):
        assert text in str(caught.value)


def test_a_net_without_its_profiles_is_refused_and_one_of_ours_is_whole(tmp_path: Path) -> None:
    net = all_kinds()
    del net["profiles"]
    pp.to_json(net, str(tmp_path / "net.json"))
    with pytest.raises(SimulationError, match=r"load-0\.p_mw follows the profile 'l_pload'.* and \d+ more"):
        load_grid(str(tmp_path / "net.json"))
    pp.to_json(all_kinds(), str(tmp_path / "net.json"))
    pp.to_json(load_grid(str(tmp_path / "net.json")).net, str(tmp_path / "again.json"))
    again = load_grid(str(tmp_path / "again.json")).profiles
    assert again.steps is None
    np.testing.assert_allclose(again.at(0)[4], [2.7, 2.0])
