"""The file of a grid names modules, too: pandapower imports what its parts were made of."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pandapower as pp
import pandapower.control
import pandapower.networks
import pandapower.timeseries
import pandas as pd
import pytest

from palaestrai_mosaik.environment.grid.network import load_grid
from palaestrai_mosaik.errors import SimulationError
from palaestrai_mosaik.importing import only_modules


def test_a_grid_file_brings_no_other_modules(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "planted.py").write_text("import os\nos.mkdir('exploded')\nclass X(dict):\n    pass\n")
    net = pp.create_empty_network()
    bus = pp.create_bus(net, 20.0)
    pp.create_ext_grid(net, bus)
    sound = pp.to_json(net)
    with only_modules(()):
        (tmp_path / "sound.json").write_text(sound)
        assert len(load_grid("sound.json").net.bus) == 1
        data = json.loads(sound)
        bad = {"_module": "planted", "_class": "X", "_object": "{}"}
        inner = json.loads(data["_object"]["bus"]["_object"])
        inner["data"][0][0] = bad
        for name, changed in (
            ("top", data | {"_object": data["_object"] | {"name": bad}}),
            ("escaped", data | {"_object": data["_object"] | {"name": json.dumps(bad)}}),
            ("in-table", _with_table(data, json.dumps(inner))),
            ("not-json", _with_table(data, json.dumps(inner)[:-1] + ",}")),
        ):
            (tmp_path / f"{name}.json").write_text(json.dumps(changed).replace("_module", "\\u005fmodule"))
            with pytest.raises(SimulationError, match=r"'planted' is not allowed|is no JSON"):
                load_grid(f"{name}.json")
        assert not (tmp_path / "exploded").exists()
    with contextlib.suppress(SimulationError):
        load_grid("top.json")
    assert (tmp_path / "exploded").exists(), "pandapower has imported it, so the test above can fail"


def test_a_grid_file_has_no_parts_but_those_of_nets(tmp_path) -> None:
    """Calls of what libraries define, names that are made of parts, and tables that lie elsewhere."""
    (tmp_path / "inner.json").write_text('{"columns": ["name"], "index": [0], "data": [["b"]]}')
    elsewhere = {
        "_module": "pandas.core.frame",
        "_class": "DataFrame",
        "_object": str(tmp_path / "inner.json"),
    }
    net = pp.create_empty_network()
    data = json.loads(pp.to_json(net))
    name = {"_module": "numpy", "_class": "str_", "_object": "pandas"}
    for part, said in (
        (elsewhere | {"orient": "split"}, "its table is no JSON"),
        (
            {"_module": "pandas", "_class": "read_pickle", "_object": "e.pkl"},
            "module 'pandas' is not allowed",
        ),
        ({"_module": "numpy", "_class": "function", "_object": "load"}, "module 'numpy' is not allowed"),
        ({"_module": "builtins", "_class": "dict", "_object": [["a", 1]]}, "'builtins' is not allowed"),
        ({"_module": name, "_class": "read_pickle", "_object": "e.pkl"}, "its name is no text"),
        ({"_module": "pandapower", "_class": "from_pickle", "_object": "e.p"}, "'pandapower' is not allowed"),
    ):
        file = tmp_path / "bad.json"
        file.write_text(json.dumps(data | {"_object": data["_object"] | {"bus": part}}))
        with only_modules(()), pytest.raises(SimulationError, match=said):
            load_grid(str(file))
        if part["_object"] == elsewhere["_object"]:
            net = pp.from_json_string(file.read_text())
            assert list(net.bus.name) == ["b"], "pandapower reads the other file, so the test can fail"


def test_nets_with_controllers_are_taken(tmp_path) -> None:
    net = pp.networks.mv_oberrhein()
    source = pp.timeseries.DFData(pd.DataFrame({"p": [1.0, 2.0]}))
    load = net.load.index[0]
    pp.control.ConstControl(net, "load", "p_mw", load, profile_name="p", data_source=source)
    pp.control.DiscreteTapControl(net, net.trafo.index[0], 0.98, 1.02)
    pp.control.SplineCharacteristic(net, [0, 1, 2], [1, 2, 4])
    net["more"] = [np.float64(1), np.int32(2), np.bool_(True), np.arange(3), {1, 2}, (1, 2), pd.Index([1])]
    file = tmp_path / "net.json"
    pp.to_json(net, str(file))
    with only_modules(()):
        taken = load_grid(str(file)).net
    kinds = [type(one).__name__ for one in taken.controller.object]
    assert kinds == ["ConstControl", "DiscreteTapControl"]


def _with_table(data: dict[str, Any], text: str) -> dict[str, Any]:
    tables = data["_object"]
    return data | {"_object": tables | {"bus": tables["bus"] | {"_object": text}}}
