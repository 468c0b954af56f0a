"""Faults in the data of a net: each is named with file, element, column, value and the values that are allowed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandapower as pp
import pandas as pd
import pytest
import yaml
from support.documents import document, environment, named, phase
from support.old_layouts import in_layout

from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.environment.grid.net_check import check_data
from palaestrai_mosaik.environment.grid.network import load_grid

GRID = "palaestrai_mosaik.environment.grid:GridEnvironment"


@pytest.fixture(scope="module")
def all_elements() -> Any:
    """Return a net with elements of every kind that the tables of numbers are about."""
    net = pp.create_empty_network()
    feeder = [pp.create_bus(net, 110.0), *(pp.create_bus(net, 20.0) for _ in range(6))]
    mv, lv, last = pp.create_bus(net, 20.0), pp.create_bus(net, 10.0), pp.create_bus(net, 20.0)
    pp.create_ext_grid(net, feeder[0])
    pp.create_transformer(net, feeder[0], feeder[1], "25 MVA 110/20 kV", tap_pos=1)
    for source, target in pairwise(feeder[1:]):
        pp.create_line(net, source, target, 2.0, "NA2XS2Y 1x185 RM/25 12/20 kV")
    pp.create_transformer3w(net, feeder[0], mv, lv, "63/25/38 MVA 110/20/10 kV")
    pp.create_load(net, feeder[2], 1.0, 0.2, sn_mva=2.0)
    pp.create_load(net, lv, 1.0, 0.2, const_z_p_percent=10.0)
    pp.create_sgen(net, feeder[3], 0.5, 0.1, sn_mva=1.0)
    pp.create_gen(net, feeder[4], 0.3, 1.01, sn_mva=2.0)
    pp.create_storage(net, feeder[5], 0.1, 1.0)
    pp.create_shunt(net, feeder[2], 0.1, 0.01)
    pp.create_ward(net, feeder[3], 0.1, 0.1, 0.1, 0.1)
    pp.create_xward(net, feeder[6], 0.1, 0.1, 0.1, 0.1, 0.5, 0.5, 1.0)
    pp.create_motor(net, feeder[2], 0.1, 0.9, efficiency_percent=90.0, loading_percent=80.0)
    pp.create_asymmetric_load(net, feeder[3], 0.1, 0.1, 0.1, 0.01, 0.01, 0.01)
    pp.create_asymmetric_sgen(net, feeder[3], 0.1, 0.1, 0.1)
    pp.create_impedance(net, feeder[1], feeder[4], 0.01, 0.01, 10.0)
    pp.create_dcline(net, feeder[2], feeder[5], 0.1, 1.0, 0.01, 1.0, 1.0)
    pp.create_switch(net, feeder[1], 0, "l")
    pp.create_switch(net, feeder[6], last, "b")
    return net


def _faults(net: Any) -> list[str]:
    try:
        check_data("net.json", net)
    except DocumentError as error:
        assert all(problem.path == "grid" for problem in error.problems)
        return [problem.message for problem in error.problems]
    return []


def _solution(net: Any) -> dict[str, Any]:
    pp.runpp(net)
    names = [name for name in net if name.startswith("res_") and isinstance(net[name], pd.DataFrame)]
    return {name: net[name].to_numpy(dtype=float) for name in names if len(net[name])}


def test_every_number_is_refused_where_it_is_missing_or_pandapower_does_without_it(all_elements: Any) -> None:
    """The kind of fault: a missing number of any column reaches the solver, whatever becomes of it."""
    assert _faults(copy.deepcopy(all_elements)) == []
    expected = _solution(copy.deepcopy(all_elements))
    refused, needless = 0, []
    for table in [t for t in all_elements if not t.startswith(("_", "res_"))]:
        if not isinstance(all_elements[table], pd.DataFrame) or not len(all_elements[table]):
            continue
        for column in all_elements[table].select_dtypes("number").columns:
            net = copy.deepcopy(all_elements)
            net[table][column] = net[table][column].astype(float)
            net[table].loc[net[table].index[0], column] = np.nan
            faults = _faults(net)
            if faults:
                assert faults == [f"'net.json': {table} 0: {column} is nan; {faults[0].split('; ')[1]}"]
                refused += 1
            else:
                needless.append((table, column, net))
    assert refused > 90
    for table, column, net in needless:
        found = _solution(net)
        # without a rating there is no loading, and without a tap position no tap
        if (table, column) not in {("line", "max_i_ka"), ("line", "df"), ("trafo", "df"), ("trafo", "tap_pos"),
                                   ("trafo", "tap_neutral"), ("trafo", "tap_step_percent")}:  # fmt: skip
            for name, values in expected.items():
                np.testing.assert_allclose(
                    found[name], values, atol=1e-6, err_msg=f"{table}.{column}: {name}"
                )
        assert not np.isnan(found["res_bus"]).any()


def _cell(table: str, row: int, column: str, value: Any) -> Callable[[Any], None]:
    def change(net: Any) -> None:
        if not isinstance(value, float):
            net[table][column] = net[table][column].astype(object)
        net[table].at[row, column] = value

    return change


def _without(table: str, column: str) -> Callable[[Any], None]:
    return lambda net: net.update({table: net[table].drop(columns=column)})


def _with_index(table: str, *index: Any) -> Callable[[Any], None]:
    return lambda net: net.update({table: net[table].set_axis(list(index))})


_FAULTS: list[tuple[Callable[[Any], None], str]] = [
    (_cell("load", 1, "p_mw", np.nan), "load 1: p_mw is nan; allowed is a number"),
    (_cell("load", 1, "p_mw", "1.5"), "load 1: p_mw is a text; allowed is a number"),
    (_cell("load", 1, "p_mw", None), "load 1: p_mw is missing; allowed is a number"),
    (_cell("load", 1, "in_service", None), "load 1: in_service is missing; allowed is true or false"),
    (_cell("switch", 0, "closed", "yes"), "switch 0: closed is a text; allowed is true or false"),
    (_cell("line", 3, "length_km", 0.0), "line 3: length_km is 0.0; allowed is a number above 0"),
    (_cell("bus", 3, "vn_kv", -20.0), "bus 3: vn_kv is -20.0; allowed is a number above 0"),
    (_cell("load", 0, "bus", 77), "load 0: bus is 77; allowed is the index of a bus"),
    (_cell("switch", 0, "bus", 99), "switch 0: bus is 99; allowed is the index of a bus"),
    (_cell("switch", 0, "element", 99), "switch 0: element is 99; allowed is the index of a line"),
    (_cell("switch", 0, "et", "x"), "switch 0: et is a text; allowed is 'b', 'l', 't', 't3'"),
    (_cell("trafo", 0, "tap_changer_type", "ratio"), "trafo 0: tap_changer_type is a text; allowed is 'Ratio'"),
    (_cell("storage", 0, "scaling", np.nan), "storage 0: scaling is nan; allowed is a number"),
    (_without("load", "q_mvar"), "load has no column 'q_mvar'"),
    (_without("sgen", "in_service"), "sgen has no column 'in_service'"),
    (_with_index("load", 4, 4), "load 4 is there twice; allowed is one row for each index"),
    (_with_index("load", "a", "b"), "load has the index a text; allowed are whole numbers"),
    (_with_index("load", 0, -1), "load has the index -1; allowed is 0 to 9999999"),
    (_with_index("load", 0, 10**7), "load has the index 10000000; allowed is 0 to 9999999"),
    (lambda net: net.update(sn_mva=0), "sn_mva is 0; allowed is a number above 0"),
    (lambda net: net.ext_grid.update({"in_service": [False]}), "no external grid is in service"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), _FAULTS, ids=[said for _, said in _FAULTS])
def test_a_fault_is_named_with_its_place(
    change: Any, said: str, all_elements: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    net = copy.deepcopy(all_elements)
    change(net)
    pp.to_json(net, "net.json")
    with pytest.raises(DocumentError) as caught:
        load_grid("net.json")
    (problem,) = caught.value.problems
    assert problem.message.startswith(f"'net.json': {said}")


@pytest.mark.parametrize("layout", ["2.14.0", "1.6"])
def test_faults_of_an_old_net_are_named_as_those_of_a_new_one(
    layout: str, two_bus_net: Any, tmp_path: Path
) -> None:
    two_bus_net.load.loc[0, "p_mw"] = np.nan
    (tmp_path / "old.json").write_text(in_layout(two_bus_net, layout))
    with pytest.raises(DocumentError, match=r"old.json': load 0: p_mw is nan; allowed is a number"):
        load_grid(str(tmp_path / "old.json"))


def test_a_state_that_a_conversion_would_make_up_is_a_fault(two_bus_net: Any, tmp_path: Path) -> None:
    two_bus_net.load["in_service"] = pd.Series([None], dtype=object)
    (tmp_path / "old.json").write_text(in_layout(two_bus_net, "2.14.0"))
    assert bool(pp.from_json(str(tmp_path / "old.json")).load.in_service[0]) is False, (
        "pandapower makes it up"
    )
    with pytest.raises(DocumentError, match="load 0: in_service is missing; allowed is true or false"):
        load_grid(str(tmp_path / "old.json"))


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Callable[[Any], tuple[int, list[str]]]:
    """Check a run document with a net; return the exit code and the lines about the grid."""
    monkeypatch.chdir(tmp_path)

    def run(net: Any) -> tuple[int, list[str]]:
        pp.to_json(net, "net.json")
        idle = {"name": "a", "muscle": named("idle"), "sensors": ["g.bus-*.vm_pu"], "actuators": []}
        written = document(phase([environment("g", GRID, grid="net.json", steps=2)], [idle]))
        Path("run.yml").write_text(yaml.safe_dump(json.loads(json.dumps(written.canonical))))
        code = main(["check", "run.yml"])
        told = capsys.readouterr()
        return code, [line for line in (told.out + told.err).splitlines() if ".params.grid" in line]

    return run


def test_check_tells_every_fault_of_a_net_in_one_round(check: Any, all_elements: Any) -> None:
    net = copy.deepcopy(all_elements)
    net.load.loc[:, "p_mw"] = np.nan
    net.line.loc[2, "length_km"] = np.nan
    net.switch.loc[0, "bus"] = 99
    net["user_pf_options"] = {"trafo_modl": "pi"}
    code, lines = check(net)
    assert code == 2
    for said in (
        "'net.json': load 0, 1: p_mw is nan; allowed is a number",
        "'net.json': line 2: length_km is nan; allowed is a number above 0",
        "'net.json': switch 0: bus is 99; allowed is the index of a bus",
        "'net.json': user_pf_options: 'trafo_modl' is no option of an AC power flow (did you mean 'trafo_model'?)",
    ):
        assert any(f".params.grid: {said}" in line for line in lines), (said, lines)
    assert len(lines) == 4


def test_check_says_what_an_empty_net_lacks(check: Any) -> None:
    code, lines = check(pp.create_empty_network())
    assert code == 2
    said = {line.split("'net.json': ")[1].split(",")[0] for line in lines}
    assert said == {"the net has no bus", "no external grid is in service"}


def test_faults_of_profiles_are_named(two_bus_net: Any, tmp_path: Path) -> None:
    two_bus_net["profiles"] = {
        "load": pd.DataFrame({"time": ["a", "b"], "H_pload": [0.1, np.nan], "H_qload": [0.3, 0.4], "X_pload": np.nan}),
        "renewables": pd.DataFrame({"PV": [0.0]}),
    }  # fmt: skip
    two_bus_net.load["profile"], two_bus_net.sgen["profile"] = "H", "PV"
    pp.to_json(two_bus_net, tmp_path / "net.json")
    with pytest.raises(DocumentError) as caught:
        load_grid(str(tmp_path / "net.json"))
    assert [problem.message.split("json': ")[1] for problem in caught.value.problems] == [
        "profiles['load'], row 1: H_pload is nan; allowed is a number",
        "profiles have different lengths: 2 rows in 'load', 1 rows in 'renewables'; allowed is one length",
    ]


def test_numbers_in_a_column_of_objects_are_numbers(two_bus_net: Any, tmp_path: Path) -> None:
    two_bus_net.load["p_mw"] = pd.Series([2], dtype=object)
    two_bus_net.load["in_service"] = pd.Series([1], dtype=object)
    pp.to_json(two_bus_net, tmp_path / "net.json")
    net = load_grid(str(tmp_path / "net.json")).net
    assert (net.load.p_mw.dtype, net.load.in_service.dtype) == (float, bool)
    pp.runpp(net)


@pytest.mark.parametrize("kind", [None, np.nan, False])
def test_a_transformer_without_a_kind_of_tap_changer_has_no_tap(
    kind: Any, all_elements: Any, tmp_path: Path
) -> None:
    from palaestrai_mosaik.environment.grid import GridEnvironment

    net = copy.deepcopy(all_elements)
    net.trafo["tap_changer_type"] = pd.Series([kind], dtype=object)
    pp.to_json(net, tmp_path / "net.json")
    actuators = GridEnvironment(str(tmp_path / "net.json"), actuators=["trafo"]).setup().actuators
    assert [actuator.uid for actuator in actuators] == []
    net.trafo["tap_changer_type"] = "Ratio"
    pp.to_json(net, tmp_path / "net.json")
    actuators = GridEnvironment(str(tmp_path / "net.json"), actuators=["trafo"]).setup().actuators
    assert [actuator.uid for actuator in actuators] == ["trafo-0.tap_pos"]
