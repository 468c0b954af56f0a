"""The file of a grid names modules, too: pandapower imports what its parts were made of."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pickle
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandapower as pp
import pandapower.control
import pandapower.networks
import pandapower.timeseries
import pandas as pd
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pandapower.control.util.characteristic import LogSplineCharacteristic
from pandapower.io_utils import JSONSerializableClass
from support.documents import DUMMY, document, environment, named, phase

from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import DocumentError, SimulationError
from palaestrai_mosaik.core.importing import only_modules
from palaestrai_mosaik.environment.grid import net_file
from palaestrai_mosaik.environment.grid.net_file import read_net
from palaestrai_mosaik.environment.grid.network import load_grid


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
            ("attribute", data | {"_object": data["_object"] | {"name": _characteristic(more=bad)}}),
            ("in-table", _with_table(data, json.dumps(inner))),
            ("not-json", _with_table(data, json.dumps(inner)[:-1] + ",}")),
        ):
            (tmp_path / f"{name}.json").write_text(json.dumps(changed).replace("_module", "\\u005fmodule"))
            with pytest.raises(SimulationError, match=r"'planted' is not allowed|cannot be made"):
                load_grid(f"{name}.json")
        assert not (tmp_path / "exploded").exists()
    with contextlib.suppress(Exception):
        pp.from_json("top.json")
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
        (elsewhere | {"orient": "split"}, "whose table is no JSON"),
        (
            {"_module": "pandas", "_class": "read_pickle", "_object": "e.pkl"},
            "module 'pandas' is not allowed",
        ),
        ({"_module": "numpy", "_class": "function", "_object": "load"}, "module 'numpy' is not allowed"),
        ({"_module": "builtins", "_class": "dict", "_object": [["a", 1]]}, "'builtins' is not allowed"),
        ({"_module": name, "_class": "read_pickle", "_object": "e.pkl"}, "whose module or class is no text"),
        ({"_module": "pandapower", "_class": "from_pickle", "_object": "e.p"}, "'pandapower' is not allowed"),
    ):
        file = tmp_path / "bad.json"
        file.write_text(json.dumps(data | {"_object": data["_object"] | {"bus": part}}))
        with only_modules(()), pytest.raises(SimulationError, match=said):
            load_grid(str(file))
        if part["_object"] == elsewhere["_object"]:
            net = pp.from_json_string(file.read_text())
            assert list(net.bus.name) == ["b"], "pandapower reads the other file, so the test can fail"


def _characteristic(kind: str = "Characteristic", **more: Any) -> dict[str, Any]:
    """Return a characteristic as it stands in a file, with ``more`` attributes."""
    attributes = {"x_vals": [0.0, 1.0], "y_vals": [0.0, 1.0], "index": 0} | more
    return {
        "_module": "pandapower.control.util.characteristic",
        "_class": kind,
        "_object": json.dumps(attributes),
    }


def _small_net() -> Any:
    """Return a net in which a controller calls a characteristic with what stands in a table."""
    net = pp.create_empty_network()
    first, second = pp.create_bus(net, 20.0), pp.create_bus(net, 20.0)
    pp.create_ext_grid(net, first)
    pp.create_line(net, first, second, 1.0, "NAYY 4x50 SE")
    pp.create_load(net, second, 0.01, name="0.5")
    pp.control.Characteristic(net, [0, 1], [0, 1])
    pp.control.CharacteristicControl(net, "load", "q_mvar", 0, "load", "p_mw", 0, 0)
    return net


def _without_empty_tables(text: str) -> Any:
    """Return what a net's file holds, which is read in no time."""
    data = json.loads(text)
    tables = data["_object"]
    empty = [
        name
        for name, one in tables.items()
        if isinstance(one, dict) and '"data":[]' in one.get("_object", "")
    ]
    return data | {"_object": {name: one for name, one in tables.items() if name not in empty}}


def _with_object(net: Any, part: Any) -> str:
    """Return the text of ``net`` with ``part`` in the place of its characteristic."""
    data = _without_empty_tables(pp.to_json(net))
    entry = data["_object"]["characteristic"]
    inner = json.loads(entry["_object"])
    inner["data"][0][inner["columns"].index("object")] = part
    entry["_object"] = json.dumps(inner)
    return json.dumps(data)


_CALL = {
    "_module": "palaestrai_mosaik.arsenai.execution.cluster.slurm",
    "_class": "function",
    "_object": "_call",
}


@pytest.mark.parametrize("command", ["check", "graph", "start"])
def test_a_grid_file_calls_no_function_of_this_package(command, tmp_path, monkeypatch, capsys) -> None:
    """A function that starts a program stands where a controller calls it with the name of a load."""
    script = tmp_path / "planted.sh"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/exploded\n")
    script.chmod(0o755)
    net = _small_net()
    net.load.loc[0, "name"] = str(script)
    net.controller.object[0].input_variable = "name"
    (tmp_path / "evil.json").write_text(_with_object(net, _CALL))
    grid = "palaestrai_mosaik.environment.grid:GridEnvironment"
    nobody = {"name": "a", "muscle": named(f"{DUMMY}:DummyMuscle"), "sensors": ["w.*"], "actuators": []}
    written = document(phase([environment("w", grid, grid="evil.json")], [nobody]))
    (tmp_path / "run.yml").write_text(yaml.safe_dump(written.canonical))
    monkeypatch.chdir(tmp_path)
    assert main([command, "run.yml", "--allow-modules", ""]) != 0
    told = capsys.readouterr()
    assert "module 'palaestrai_mosaik.arsenai.execution.cluster.slurm' is not allowed" in told.out + told.err
    assert not (tmp_path / "exploded").exists()
    with contextlib.suppress(Exception):
        pp.runpp(pp.from_json("evil.json"), run_control=True)
    assert (tmp_path / "exploded").exists(), "pandapower calls it, so the test above can fail"


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (_CALL, "is not allowed"),
        ({"_module": "os", "_class": "function", "_object": "system"}, "module 'os' is not allowed"),
        ({"_module": "json", "_class": "function", "_object": "loads"}, "has no class 'function'"),
        ({"_module": "json", "_class": "JSONDecoder", "_object": "{}"}, "none that nets consist of"),
        (_characteristic(satisfies="x"), "with the attribute 'satisfies'"),
        (_characteristic(from_dict=1), "with the attribute 'from_dict'"),
        (_characteristic(__class__=1), "with the attribute '__class__'"),
        (_characteristic(__deepcopy__=1), "with an attribute, which is no data of its own"),
        (_characteristic(more=_CALL), "is not allowed"),
        (_characteristic(more=[{"deep": [_CALL]}]), "is not allowed"),
        (_characteristic("SplineCharacteristic", _interpolator=[1]), "an interpolator of its own"),
        (_characteristic("SplineCharacteristic", interpolator=[1]), "with the attribute 'interpolator'"),
    ],
)
def test_what_a_controller_calls_is_not_in_the_file(part, said, tmp_path) -> None:
    (tmp_path / "net.json").write_text(_with_object(_small_net(), part))
    with only_modules(("json",)), pytest.raises(SimulationError, match=re.escape(said)):
        load_grid(str(tmp_path / "net.json"))


def test_a_key_that_is_there_twice_hides_nothing(tmp_path, monkeypatch) -> None:
    """A reader that calls a hook for every mapping sees the first one, too."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "planted_twice.py").write_text("import os\nos.mkdir('exploded')\n")
    monkeypatch.chdir(tmp_path)
    bad = json.dumps({"_module": "planted_twice", "_class": "X", "_object": "{}"})
    text = pp.to_json(_small_net()).replace('"name"', f'"name": {bad}, "name"', 1)
    (tmp_path / "net.json").write_text(text)
    with only_modules(()), pytest.raises(SimulationError, match=r"whose key [0-9]+ is there twice"):
        load_grid("net.json")
    assert not (tmp_path / "exploded").exists()
    with contextlib.suppress(Exception):
        pp.from_json("net.json")
    assert (tmp_path / "exploded").exists(), "pandapower imports it, so the test above can fail"


# --- whatever a file names --------------------------------------------------------------------

#: what somebody may name: functions and classes of the standard library, of ours, of what we need
_NAMES = st.tuples(
    st.sampled_from(
        [
            *("canary", "canary.inner", "builtins", "os", "posix", "subprocess", "runpy", "ctypes", "pickle"),
            *("numpy", "pandas", "pandas.io.pickle", "networkx", "shapely", "json", "pathlib", "antigravity"),
            *(
                "pandapower",
                "pandapower.auxiliary",
                "pandapower.file_io",
                "pandapower.timeseries.output_writer",
            ),
            *("pandapower.control.util.characteristic", "pandapower.control.controller.const_control"),
            *(
                "palaestrai_mosaik.arsenai.execution.cluster.slurm",
                "palaestrai_mosaik.core.importing",
                "pandas.core.frame",
            ),
        ]
    ),
    st.sampled_from(
        [
            *("function", "method", "type", "exec", "eval", "system", "Popen", "CDLL", "Called", "called"),
            *("Serializable", "load", "read_pickle", "from_pickle", "Path", "array", "Index", "DataFrame"),
            *(
                "OutputWriter",
                "Characteristic",
                "SplineCharacteristic",
                "ConstControl",
                "pandapowerNet",
                "_call",
            ),
        ]
    ),
    st.sampled_from(["called", "_call", "system", "{}", "[]", '{"x_vals": [1]}', "e.pkl", 1, None, [], {}]),
)


def _places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return where something stands, in texts inside of texts, too; the last key of each table alone."""
    found = [path]
    if isinstance(node, str) and node[:1] in ("{", "["):
        found += _places(json.loads(node), (*path, None))
    elif isinstance(node, dict):
        for key, one in node.items():
            found += _places(one, (*path, key))
    elif isinstance(node, list):
        for place, one in enumerate(node[:3]):
            found += _places(one, (*path, place))
    return found


def _put(node: Any, path: tuple[Any, ...], part: Any) -> Any:
    """Return ``node`` with ``part`` at ``path``; ``None`` in it leads into a text."""
    if not path:
        return part
    first, *rest = path
    if first is None:
        return json.dumps(_put(json.loads(node), tuple(rest), part))
    copied = dict(node) if isinstance(node, dict) else list(node)
    copied[first] = _put(node[first], tuple(rest), part)
    return copied


class _Watched:
    """While it is entered, it lists what is imported, started, or called among what nobody may name."""

    _EVENTS = ("subprocess.Popen", "os.system", "os.exec", "ctypes.dlopen", "pickle.find_class")

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.on = False

    def called(self, *_: Any, **__: Any) -> Any:
        self.seen.append("called")
        return {}

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event in self._EVENTS:
            self.seen.append(f"{event} {arguments!r:.100}")

    def find_spec(self, name: str, *_: Any) -> None:
        """Note what is to be imported; other finders look for it."""
        self.seen.append(f"import {name}")

    def __enter__(self) -> list[str]:
        self.seen.clear()
        self.on = True
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]  # it finds nothing
        return self.seen

    def __exit__(self, *_: object) -> None:
        self.on = False
        sys.meta_path.remove(self)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def watched() -> Iterator[_Watched]:
    watch = _Watched()

    class Serializable(JSONSerializableClass):
        from_dict = watch.called

    for name in ("canary", "canary.inner"):
        module = types.ModuleType(name)
        vars(module).update(called=watch.called, Called=watch.called, system=watch.called)
        vars(module).update(Serializable=Serializable)
        sys.modules[name] = module
    sys.addaudithook(watch.heard)
    # what pandas and pandapower import when they are first needed, and when they first convert a net
    for version in ("3.0.0", "2.14.0", 1.4):
        with contextlib.suppress(SimulationError):
            read_net("net", json.dumps(_TEXT | {"_object": _TEXT["_object"] | {"version": version}}))
    yield watch
    for name in ("canary", "canary.inner"):
        del sys.modules[name]


_TEXT = _without_empty_tables(pp.to_json(_small_net()))
_TEXT["_object"] = {
    name: _TEXT["_object"][name] for name in ("bus", "load", "controller", "characteristic", "name")
}
_PATHS = [path for path in _places(_TEXT) if path]


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(path=st.sampled_from(_PATHS), named=_NAMES, version=st.sampled_from([None, 1.4, "2.2.0", "2.14.0"]))
def test_nothing_that_a_grid_file_names_is_imported_or_called(path, named, version, watched) -> None:
    """Any node of a net's file becomes a part of any class: it is refused, or data; so in older layouts."""
    module, kind, content = named
    data = _put(_TEXT, path, {"_module": module, "_class": kind, "_object": content})
    if version is not None and isinstance(data.get("_object"), dict):
        data["_object"] = {**data["_object"], "version": version}
    text = json.dumps(data)
    with only_modules(()), watched as seen, contextlib.suppress(SimulationError, DocumentError):
        read_net("net", text)
    assert seen == []


def test_what_is_imported_or_called_would_be_found(watched) -> None:
    """So the test above can fail: pandapower itself hands out functions, and imports modules."""
    for part, said in (
        ({"_module": "canary", "_class": "Serializable", "_object": "{}"}, "called"),
        ({"_module": "antigravity_", "_class": "X", "_object": "{}"}, "import antigravity_"),
    ):
        with watched as seen, contextlib.suppress(Exception):
            pp.from_json_string(json.dumps(part))
        assert any(said in one for one in seen), said


# --- nothing is lost --------------------------------------------------------------------------


def test_a_net_is_read_as_pandapower_reads_it(tmp_path) -> None:
    net = pp.networks.mv_oberrhein()
    net["more"] = [np.float64(1), np.int32(2), np.arange(3), {1, 2}, (1, 2), pd.Index([1]), pd.Series([1, 2])]
    pp.control.ConstControl(net, "load", "p_mw", net.load.index[0])
    text = pp.to_json(net)
    mine, theirs = read_net("net", text), pp.from_json_string(text)
    assert list(mine) == list(theirs)
    for name, table in theirs.items():
        if isinstance(table, pd.DataFrame) and name != "controller":
            pd.testing.assert_frame_equal(mine[name], table, check_exact=True)
        elif name not in ("controller", "more"):
            assert repr(mine[name]) == repr(table), name
    assert repr(mine["more"]) == repr(theirs["more"])


@pytest.mark.filterwarnings("ignore:divide by zero encountered in log10:RuntimeWarning:pandapower")
def test_every_controller_that_is_named_comes_back(tmp_path) -> None:
    """The list of pandapower's classes is of classes that are there, and they are read as pandapower reads them."""
    net = pp.networks.mv_oberrhein()
    control, trafo, load = pp.control, net.trafo.index[0], net.load.index[0]
    source = pp.timeseries.DFData(pd.DataFrame({"p": [1.0, 2.0]}))
    control.ConstControl(net, "load", "p_mw", load, profile_name="p", data_source=source)
    control.DiscreteTapControl(net, trafo, 0.98, 1.02)
    control.ContinuousTapControl(net, net.trafo.index[1], 1.0)
    for kind in (control.Characteristic, control.SplineCharacteristic, LogSplineCharacteristic):
        kind(net, np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 4.0, 5.0]))
    control.CharacteristicControl(net, "load", "q_mvar", load, "load", "p_mw", load, 0)
    control.TapDependentImpedance(net, trafo, 0)
    control.VmSetTapControl(net, 1, 0)
    shunt = pp.create_shunt(net, net.bus.index[0], 0.1, max_step=3)
    control.DiscreteShuntController(net, shunt, 1.0)
    line = net.line.index[0]
    gen = net.sgen.index[0]
    control.BinarySearchControl(
        net,
        ctrl_in_service=True,
        output_element="sgen",
        output_variable="q_mvar",
        output_element_index=[gen],
        output_element_in_service=[True],
        output_values_distribution=[1],
        input_element="res_line",
        input_variable="q_to_mvar",
        input_element_index=[line],
        set_point=0.1,
    )
    text = pp.to_json(net)
    with only_modules(()):
        mine = read_net("net", text)
    theirs = pp.from_json_string(text)
    for table in ("controller", "characteristic"):
        for one, other in zip(mine[table].object, theirs[table].object, strict=True):
            assert type(one) is type(other)
            assert repr(sorted(vars(one).items())) == repr(sorted(vars(other).items()))
    assert mine.characteristic.object[1](2.5) == theirs.characteristic.object[1](2.5)
    for module, names in net_file._OBJECTS.items():
        for name in names:
            net_file._class(module, name)


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


_OWN = """
from pandapower.control.basic_controller import Controller
class Own(Controller):
    def __init__(self, net, factor):
        super().__init__(net)
        self.factor = factor
    def is_converged(self, net):
        return True
"""


def test_a_controller_of_ones_own_is_made_where_its_module_is_allowed(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_control.py").write_text(_OWN)
    import own_control  # type: ignore[import-not-found]

    net = _small_net()
    own_control.Own(net, 2.5)
    text = pp.to_json(net)
    for allowed in (None, ("own_control",)):
        with only_modules(allowed):
            _, made = read_net("net", text).controller.object
        assert type(made) is own_control.Own and made.factor == 2.5
    with only_modules(()), pytest.raises(SimulationError, match="module 'own_control' is not allowed"):
        read_net("net", text)


@pytest.mark.skipif(os.name != "posix", reason="other systems have no modes")
@pytest.mark.parametrize("theirs", [False, True])
def test_what_numba_has_kept_is_read_from_a_directory_of_ones_own(theirs, tmp_path, monkeypatch) -> None:
    """It is a pickle: a directory into which everybody can write is not used."""
    numba = pytest.importorskip("numba", reason="the extra 'grid' (numba) is not installed")
    from palaestrai_mosaik.environment.grid.kernels import compiled

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "own.py").write_text("def twice(x):\n    return x + x\n")
    spec = importlib.util.spec_from_file_location("own", tmp_path / "own.py")
    assert spec is not None and spec.loader is not None
    own = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    assert compiled(own.twice)(2) == 4
    (index,) = (tmp_path / "cache").rglob("own.twice*.nbi")
    with open(index, "ab") as file:
        # behind the version, which is read first
        file.seek(0)
        file.truncate(len(pickle.dumps(pickle.loads(index.read_bytes()), protocol=-1)))
        file.write(pickle.dumps(_Bomb(str(tmp_path / "exploded"))))
    if theirs:
        index.parent.chmod(0o777)
    with contextlib.suppress(Exception):
        compiled(own.twice)(2)
    assert (tmp_path / "exploded").exists() is not theirs


class _Bomb:
    """Leaves a folder behind when it is unpickled."""

    def __init__(self, folder: str):
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (self.folder,)
