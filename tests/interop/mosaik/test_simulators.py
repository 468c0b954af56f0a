"""Our simulators in plain mosaik scenarios, in this process and over TCP."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import mosaik
import mosaik_api_v3
import numpy as np
import pandas as pd
import pytest
from support.waiting import HANG

from palaestrai_mosaik.core.errors import PowerFlowError, SimulationError

pp = pytest.importorskip("pandapower")
simbench = pytest.importorskip("simbench")

from palaestrai_mosaik.interop.mosaik.simulators.power_flow import PowerFlow  # noqa: E402
from palaestrai_mosaik.interop.mosaik.simulators.profiles import Profiles  # noqa: E402
from palaestrai_mosaik.interop.mosaik.simulators.pv import PV, dc_power  # noqa: E402
from palaestrai_mosaik.interop.mosaik.simulators.storage import Storage  # noqa: E402

OURS = "palaestrai_mosaik.simulators"
CODE = "1-LV-rural1--0-sw"
GRID = f"simbench:{CODE}"
#: the row of 2016-06-01: the 152nd day of the leap year
JUNE = (31 + 29 + 31 + 30 + 31) * 96
IN_PROCESS: Any = {
    "Grid": {"python": f"{OURS}:PowerFlow"},
    "Profiles": {"python": f"{OURS}:Profiles"},
    "Storage": {"python": f"{OURS}:Storage"},
    "PV": {"python": f"{OURS}:PV"},
    "Log": {"python": f"{__name__}:Log"},
}
BY_COMMAND: Any = {
    **{
        name: {"cmd": f"%(python)s -m {OURS} {what} %(addr)s"}
        for name, what in (
            ("Grid", "power-flow"),
            ("Profiles", "profiles"),
            ("Storage", "storage"),
            ("PV", "pv"),
        )
    },
    "Log": IN_PROCESS["Log"],
}

#: what :class:`Log` has been sent, by time, source and attribute
logged: dict[tuple[int, str, str], Any] = {}


@cache
def _table(name: str) -> pd.DataFrame:
    return pd.read_csv(Path(simbench.complete_data_path(0)) / f"{name}.csv", sep=";")


@cache
def simbench_net() -> Any:
    """Return SimBench's own net, whose elements name their profiles."""
    return simbench.get_simbench_net(CODE)


def simbench_powers(net: Any, row: int) -> dict[tuple[str, str], pd.Series]:
    """Return what SimBench's own tables say for a quarter of an hour: element and column -> powers."""
    loads, renewables = _table("LoadProfile").loc[row], _table("RESProfile").loc[row]
    return {
        ("load", "p_mw"): net.load.p_mw * [loads[f"{profile}_pload"] for profile in net.load.profile],
        ("load", "q_mvar"): net.load.q_mvar * [loads[f"{profile}_qload"] for profile in net.load.profile],
        ("sgen", "p_mw"): net.sgen.p_mw * [renewables[profile] for profile in net.sgen.profile],
    }


class Log(mosaik_api_v3.Simulator):
    """Keeps all that comes in."""

    def __init__(self) -> None:
        model = {"public": True, "params": [], "any_inputs": True, "attrs": []}
        super().__init__({"api_version": "3.0", "type": "time-based", "models": {"Log": model}})

    def create(self, num: int, model: str) -> Any:
        return [{"eid": "Log", "type": model}]

    def step(self, time: int, inputs: Any, max_advance: int) -> int:
        for name, sources in inputs.get("Log", {}).items():
            logged.update({(time, source, name): value for source, value in sources.items()})
        return time + 900

    def get_data(self, outputs: Any) -> Any:
        return {}


def scenario(config: Any, hours: float) -> dict[tuple[int, str, str], Any]:
    """Run a day's part: profiles feed the grid, a battery charges, and all is logged."""
    logged.clear()
    with mosaik.World(config, skip_greetings=True, configure_logging=False) as world:
        grid = world.start("Grid", sim_id="G", step_size=900).Grid(grid=GRID)
        profiles = world.start("Profiles", sim_id="P", step_size=900).Profiles(grid=GRID, start="2016-06-01")
        battery = world.start("Storage", sim_id="S", step_size=900).Battery(capacity_mwh=2.0)
        log = world.start("Log", sim_id="L").Log()
        elements = {child.eid: child for child in grid.children}
        for child in profiles.children:
            attributes = ["p_mw", "q_mvar"] if child.type == "Load" else ["p_mw"]
            world.connect(child, elements[child.eid], *attributes)
        world.connect(battery, log, "soc", "p_mw")
        for name, child in elements.items():
            if name.startswith("bus"):
                world.connect(child, log, "vm_pu")
            elif name.startswith(("line", "trafo")):
                world.connect(child, log, "loading_percent")
        world.connect(grid, log, "converged")
        world.run(until=int(hours * 3600), print_progress=False)
    return dict(logged)


def test_the_power_flow_is_that_of_pandapower() -> None:
    """Three quarters of an hour of SimBench's own tables, solved by pandapower itself."""
    found = scenario(IN_PROCESS, 0.75)
    own = simbench_net()
    for step in range(3):
        net = deepcopy(own)
        for (element, column), powers in simbench_powers(own, JUNE + step).items():
            net[element][column] = powers
        pp.runpp(net, tolerance_mva=1e-8)
        for i in net.bus.index:
            assert found[step * 900, f"G.bus-{i}", "vm_pu"] == pytest.approx(net.res_bus.vm_pu[i], abs=1e-6)
        for i in net.line.index:
            loading = found[step * 900, f"G.line-{i}", "loading_percent"]
            assert loading == pytest.approx(net.res_line.loading_percent[i], abs=1e-3)


def test_over_tcp_they_give_the_same_bytes() -> None:
    assert scenario(BY_COMMAND, 0.5) == scenario(IN_PROCESS, 0.5)


def step(simulator: Any, time: int = 0, **inputs: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Send ``entity={attribute: value}`` to a simulator; return all outputs."""
    names = {eid.replace("__", "-"): values for eid, values in inputs.items()}
    sent = {eid: {name: {"test": value} for name, value in values.items()} for eid, values in names.items()}
    assert simulator.step(time, sent, 0) == time + simulator.step_size
    found = simulator.outputs
    for eid, outputs in found.items():
        attributes = list(outputs)
        assert simulator.get_data({eid: attributes}) == {eid: outputs}
    return dict(found)


def test_set_points_of_elements_reach_the_power_flow() -> None:
    grid = PowerFlow()
    grid.init("G")
    (entity,) = grid.create(1, "Grid", grid="cigre_mv")
    children = {child["eid"]: child for child in entity["children"]}
    assert children["load-0"]["rel"] == ["bus-1"]
    assert children["load-0"]["extra_info"] == {"name": "Load R1", "index": 0}
    step(
        grid,
        load__0={"p_mw": 3.0, "scaling": 2.0},
        sgen__1={"p_mw": 0.5, "q_mvar": -0.2},
        line__3={"in_service": 0},
    )
    net = pp.from_json_string(grid.get_net())
    net.load.loc[0, ["p_mw", "scaling"]] = [3.0, 2.0]
    net.sgen.loc[1, ["p_mw", "q_mvar"]] = [0.5, -0.2]
    net.line.loc[3, "in_service"] = False
    pp.runpp(net, tolerance_mva=1e-8)
    outputs = step(grid)
    assert outputs["load-0"]["p_mw"] == 6.0
    assert outputs["line-3"] == {"loading_percent": 0.0, "in_service": 0.0}
    voltages = [outputs[f"bus-{i}"]["vm_pu"] for i in net.bus.index]
    np.testing.assert_allclose(voltages, net.res_bus.vm_pu.fillna(0.0), atol=1e-6)
    assert outputs["ext_grid-0"]["p_mw"] == pytest.approx(net.res_ext_grid.p_mw[0], abs=1e-5)
    with pytest.raises(PowerFlowError, match="at time 900"):
        step(grid, 900, load__0={"p_mw": 1e5})


def test_a_grid_without_a_solution_can_keep_its_last_results() -> None:
    grid = PowerFlow()
    grid.init("G")
    grid.create(1, "Grid", grid="cigre_mv", on_divergence="keep")
    before = step(grid)["bus-5"]
    after = step(grid, 900, load__0={"p_mw": 1e5})
    assert (after["Grid"]["converged"], after["bus-5"]) == (0.0, before)
    with pytest.raises(SimulationError, match="one simulator solves one grid"):
        grid.create(1, "Grid")


def test_profiles_are_those_of_simbench() -> None:
    profiles = Profiles()
    # half a minute a tick: 30 ticks a row
    profiles.init("P", time_resolution=30.0, step_size=15)
    profiles.create(1, "Profiles", grid=GRID, start="2016-06-01T12:00")
    net, first = simbench_net(), JUNE + 48
    for time, row in ((0, first), (15, first), (30, first + 1)):
        outputs = step(profiles, time)
        for (element, column), powers in simbench_powers(net, row).items():
            found = [outputs[f"{element}-{i}"][column] for i in powers.index]
            np.testing.assert_allclose(found, powers, atol=1e-12)
    assert profiles.get_date(30) == "2016-06-01T12:15:00"
    with pytest.raises(SimulationError, match="at time 3000000"):
        step(profiles, 3_000_000)


def test_a_battery_by_hand() -> None:
    """2 MWh, half full, 80 % each way, steps of an hour; rated 1 MW."""
    storage = Storage()
    storage.init("S", step_size=3600)
    storage.create(
        1, "Battery", capacity_mwh=2.0, p_rated_mw=1.0, efficiency=0.8, initial_soc=0.5, min_soc=0.1
    )
    seen = [
        step(storage, time * 3600, Battery_0=wish)["Battery_0"]
        for time, wish in enumerate(({"p_set_mw": 0.5}, {}, {"p_set_mw": 5.0}, {"p_set_mw": -5.0}, {}, {}))
    ]
    # charged with 0.4 MWh twice; then 0.2 MWh are room for 0.25 MW; discharging 1 MW takes 1.25 MWh, until
    # 0.2 MWh are left
    assert [one["p_mw"] for one in seen] == pytest.approx([0.5, 0.5, 0.25, -1.0, -0.44, 0.0])
    assert [one["soc"] for one in seen] == pytest.approx([0.5, 0.7, 0.9, 1.0, 0.375, 0.1])
    with pytest.raises(SimulationError, match="0 <= min_soc"):
        storage.create(1, "Battery", min_soc=0.6)


def test_a_plant_by_hand() -> None:
    """At 800 W/m2 and 20 degrees the cells have 45 degrees, and 8 % less power than at 25."""
    assert dc_power(1.0, 800.0, 20.0) == pytest.approx(0.8 * 0.92)
    assert dc_power(1.0, 1000.0, -6.25) == pytest.approx(1.0)
    pv = PV()
    pv.init("PV")
    pv.create(1, "PV", p_rated_mw=1.0, s_rated_mva=1.0)
    found = step(pv, PV_0={"g_w_m2": 800.0, "t_air_degc": 20.0, "q_set_mvar": -2.0})["PV_0"]
    assert found["p_mw"] == pytest.approx(0.736)
    assert found["q_mvar"] == pytest.approx(-np.sqrt(1 - 0.736**2))
    assert step(pv, PV_0={"p_available_mw": 1.5})["PV_0"]["p_mw"] == 1.0
    assert step(pv)["PV_0"]["p_mw"] == 0.0
    with pytest.raises(SimulationError, match="one of them"):
        step(pv, PV_0={"p_available_mw": 1.5, "g_w_m2": 800.0})
    with pytest.raises(SimulationError, match="no number: 'much'"):
        step(pv, PV_0={"p_available_mw": "much"})  # type: ignore[dict-item]


def test_the_command_knows_its_names(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", OURS, "power_flow"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "did you mean 'power-flow'" in done.stderr


@pytest.mark.parametrize("name", ["Storage", "PV"])
def test_devices_start_without_a_grid(name: str) -> None:
    """pandapower takes seconds to be imported."""
    code = (
        f"import sys; from {OURS} import {name}; {name}(); "
        "print({'pandapower', 'pandas', 'matplotlib', 'palaestrai_mosaik.environment.grid'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG
    )
    assert done.stdout == "set()\n"
