"""Nets in the layouts of earlier releases of pandapower: converted as ``pandapower.from_json`` does."""

from __future__ import annotations

import copy
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandapower as pp
import pandapower.control
import pandapower.networks
import pytest
from support.documents import document, environment, named, phase
from support.old_layouts import LAYOUTS, in_layout

import palaestrai_mosaik as pm
from palaestrai_mosaik.core.errors import DocumentError, SimulationError
from palaestrai_mosaik.core.importing import only_modules
from palaestrai_mosaik.environment.grid.net_file import read_net
from palaestrai_mosaik.environment.grid.network import load_grid
from palaestrai_mosaik.environment.grid.power_flow_factory import make_power_flow

GRID = "palaestrai_mosaik.environment.grid:GridEnvironment"


@pytest.fixture(scope="module")
def multivoltage() -> Any:
    """Return pandapower's example with transformers of two and three windings, generators, switches, a ward."""
    net = pp.networks.example_multivoltage()
    net.trafo.loc[0, "tap_pos"] = -2
    pp.runpp(net)
    return net


@pytest.mark.filterwarnings("ignore:This net is saved in older format:DeprecationWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_net_in_an_old_layout_has_its_voltages(layout: str, multivoltage: Any, tmp_path: Path) -> None:
    """The net's own solution, from before it was rewritten, is the oracle; so is pandapower's conversion."""
    file = tmp_path / "old.json"
    file.write_text(in_layout(multivoltage, layout))
    net, theirs = load_grid(str(file)).net, pp.from_json(str(file))
    assert net.format_version == pp.__format_version__
    found = make_power_flow(net).solve_own()
    pp.runpp(theirs)
    for expected in (multivoltage, theirs):
        np.testing.assert_allclose(found.vm_pu, expected.res_bus.vm_pu, rtol=0, atol=1e-9)
        np.testing.assert_allclose(
            found.line_loading, expected.res_line.loading_percent, rtol=1e-6, atol=1e-6
        )
        np.testing.assert_allclose(found.trafo_loading, expected.res_trafo.loading_percent, rtol=1e-6)
        np.testing.assert_allclose(found.ext_grid_p, expected.res_ext_grid.p_mw, rtol=1e-6)


@pytest.mark.parametrize("layout", ["1.6", "2.14.0"])
def test_a_run_records_the_voltages_of_an_old_net(layout: str, two_bus_net: Any, tmp_path: Path) -> None:
    pp.runpp(two_bus_net)
    (tmp_path / "old.json").write_text(in_layout(two_bus_net, layout))
    idle = {"name": "a", "muscle": named("idle"), "sensors": ["g.bus-1.vm_pu"], "actuators": []}
    written = document(phase([environment("g", GRID, grid=str(tmp_path / "old.json"), steps=3)], [idle]))
    steps = pm.run(written, store=tmp_path / "results", quiet=True).steps()
    assert len(steps) == 2
    np.testing.assert_allclose(
        steps["reading.g.bus-1.vm_pu"], two_bus_net.res_bus.vm_pu[1], rtol=0, atol=1e-9
    )


def test_coordinates_of_an_old_net_are_drawn(tmp_path: Path) -> None:
    net = pp.networks.create_cigre_network_mv()
    (tmp_path / "old.json").write_text(in_layout(net, "2.14.0"))
    assert json.loads(load_grid(str(tmp_path / "old.json")).net.bus.geo[3]) == json.loads(net.bus.geo[3])


@pytest.mark.parametrize("layout", ["2.2.0", "2.12.0"])
@pytest.mark.parametrize("state", [False, True])
def test_a_controller_in_an_old_net_has_its_new_names(layout: str, state: bool, tmp_path: Path) -> None:
    """With ``state``, its attributes are where pandapower 2.1 wrote them."""
    net = pp.networks.create_cigre_network_mv()
    net.trafo["tap_side"], net.trafo["tap_step_percent"] = "hv", 1.25
    net.trafo[["tap_min", "tap_max", "tap_neutral", "tap_pos"]] = [-9.0, 9.0, 0.0, 0.0]
    net.trafo["tap_changer_type"] = "Ratio"
    pp.control.DiscreteTapControl(net, net.trafo.index[0], 0.97, 0.99)
    expected = copy.deepcopy(net)
    pp.runpp(expected, run_control=True)
    assert expected.trafo.tap_pos[0] != 0
    attributes = vars(net.controller.object[0])
    for new, old in (("element_index", "tid"), ("element", "trafotable"), ("trafobus", "controlled_bus"),
                     ("vm_lower_pu", "u_lower"), ("vm_upper_pu", "u_upper")):  # fmt: skip
        attributes[old] = attributes.pop(new)
    text = in_layout(net, layout)
    if state:
        text = _with_states(text)
    (tmp_path / "old.json").write_text(text)
    with only_modules(()):
        grid = load_grid(str(tmp_path / "old.json"))
    found = make_power_flow(grid.net).solve_own()
    np.testing.assert_allclose(found.vm_pu, expected.res_bus.vm_pu, rtol=0, atol=1e-9)


def _with_states(text: str) -> str:
    data = json.loads(text)
    table = data["_object"]["controller"]
    inner = json.loads(table["_object"])
    part = inner["data"][0][inner["columns"].index("object")]
    names = {key: part[key] for key in ("_module", "_class")}
    attributes = json.loads(part["_object"])
    part["_object"] = json.dumps(
        {**names, "_init": {"tid": 0}, "_state": {**attributes, "_init": {"tid": 0}}}
    )
    table["_object"] = json.dumps(inner)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": "99.1.0", "format_version": "99.0.0"}, "newer pandapower: its layout is 99.0.0.*reads layouts up to"),
        ({"format_version": "soon"}, "has a text as 'format_version' that is no version"),
        ({"version": None}, "has a NoneType as 'version'"),
        ({"std_types": 3}, "layout of pandapower 2.14.0, which pandapower .* cannot convert: its content is not valid"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_converted_is_named_with_its_version(
    changes: dict[str, Any], said: str, two_bus_net: Any, tmp_path: Path
) -> None:
    data = json.loads(in_layout(two_bus_net, "2.14.0"))
    data["_object"] |= changes
    (tmp_path / "old.json").write_text(json.dumps(data))
    with pytest.raises(SimulationError, match=f"old.json' (was|has).*{said}|old.json' {said}"):
        load_grid(str(tmp_path / "old.json"))


def test_a_development_version_is_read_as_its_release(two_bus_net: Any) -> None:
    data = json.loads(in_layout(two_bus_net, "2.14.0"))
    data["_object"] |= {"version": "2.7.1.dev1"}
    assert read_net("net", json.dumps(data)).format_version == pp.__format_version__


# --- nets from elsewhere ----------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["1.6", "2.2.0", "2.14.0"])
@pytest.mark.parametrize("table", ["std_types", "controller", "load", "user_pf_options", "index_names"])
def test_an_old_net_brings_no_modules(layout: str, table: str, two_bus_net: Any, tmp_path: Path) -> None:
    data = json.loads(in_layout(two_bus_net, layout))
    data["_object"][table] = {"a": [{"_module": "antigravity", "_class": "X", "_object": "{}"}]}
    with only_modules(()), pytest.raises(SimulationError, match="'antigravity' is not allowed"):
        read_net("net", json.dumps(data))
    assert "antigravity" not in sys.modules


def test_what_pandapower_keeps_between_two_power_flows_is_not_in_a_file(two_bus_net: Any) -> None:
    data = json.loads(in_layout(two_bus_net, "2.14.0"))
    data["_object"] |= {"_ppc": {"bus": []}, "_empty_res_bus": {"a": 1}}
    net = read_net("net", json.dumps(data))
    assert net._ppc is None and len(net._empty_res_bus.columns)


_COUNT = 20_000


def _ragged_rows() -> dict[str, Any]:
    table = {
        "columns": list(range(_COUNT)),
        "index": list(range(_COUNT)),
        "data": [[]] * (_COUNT - 1) + [[0] * _COUNT],
    }
    return {"load": _frame(json.dumps(table), orient="split")}  # fmt: skip


def _diagonal() -> dict[str, Any]:
    return {"load": _frame(json.dumps({f"c{k}": {str(k): 0} for k in range(_COUNT)}), orient="columns")}


def _one_bus_many_times() -> dict[str, Any]:
    """Every shunt finds every bus of its index: 4 * 10^8 values."""
    bus = {"columns": ["vn_kv"], "index": [0] * _COUNT, "data": [[20.0]] * _COUNT}
    shunt = {"columns": ["bus"], "index": list(range(_COUNT)), "data": [[0]] * _COUNT}
    return {"bus": _frame(json.dumps(bus)), "shunt": _frame(json.dumps(shunt))}


def _high_index() -> dict[str, Any]:
    table = {"columns": ["vn_kv"], "index": [10**12], "data": [[20.0]]}
    return {"bus": _frame(json.dumps(table))}


def _wide_text() -> dict[str, Any]:
    table = {"columns": ["name"], "index": list(range(_COUNT)), "data": [["a"]] * _COUNT}
    return {"load": _frame(json.dumps(table), dtype={"name": "S1000000"})}


def _long_label() -> dict[str, Any]:
    index = [str(tuple(range(_COUNT))), *(f"({k},)" for k in range(_COUNT))]
    table = {"columns": ["name"], "index": index, "data": [["a"]] * len(index)}
    return {"load": _frame(json.dumps(table), is_multiindex=True)}


def _frame(text: str, orient: str = "split", **more: Any) -> dict[str, Any]:
    return {"_module": "pandas.core.frame", "_class": "DataFrame", "_object": text, "orient": orient, **more}


_GROWING = (_ragged_rows, _diagonal, _one_bus_many_times, _high_index, _wide_text, _long_label)


@pytest.mark.parametrize("growing", _GROWING)
@pytest.mark.parametrize("layout", ["1.6", "2.14.0"])
def test_a_small_file_does_not_become_large(growing: Any, layout: str, two_bus_net: Any) -> None:
    data = json.loads(in_layout(two_bus_net, layout))
    data["_object"] |= growing()
    said = (
        "cells with only|row for each index|index 1000000000000|a dtype that pandapower does not write|"
        "a label of more|is there twice"
    )
    with pytest.raises((SimulationError, DocumentError), match=said):
        read_net("net", json.dumps(data))


def test_a_small_plain_mapping_does_not_become_large(two_bus_net: Any) -> None:
    data = json.loads(in_layout(two_bus_net, "1.4"))
    data["load"] = {f"c{k}": {str(k): 0} for k in range(_COUNT)}
    with pytest.raises(SimulationError, match="cells with only"):
        read_net("net", json.dumps(data))


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))


@pytest.mark.parametrize("growing", [_ragged_rows, _diagonal])
def test_a_small_file_would_become_large(growing: Any, tmp_path: Path) -> None:
    """So the tests above can fail: pandapower runs out of memory."""
    (tmp_path / "net.json").write_text(json.dumps(growing()["load"]))
    code = "import pandapower; pandapower.from_json_string(open('net.json').read())"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(
        command, cwd=tmp_path, check=False, capture_output=True, text=True, preexec_fn=_limit_memory
    )
    assert "MemoryError" in ended.stderr, ended.stderr[-500:]
