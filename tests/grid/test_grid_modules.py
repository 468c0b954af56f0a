"""The file of a grid names modules, too: pandapower imports what its parts were made of."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pandapower as pp
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


def _with_table(data: dict[str, Any], text: str) -> dict[str, Any]:
    tables = data["_object"]
    return data | {"_object": tables | {"bus": tables["bus"] | {"_object": text}}}
