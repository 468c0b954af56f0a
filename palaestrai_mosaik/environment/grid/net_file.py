"""A pandapower net from the text of its file: data are made, and nothing is called that the file names.

pandapower's own reader imports the modules that a file names, hands out functions by their names, and gives
its objects whatever attributes the file has, so a file can put a function where a power flow calls
something. Here every part of a file is made by :data:`_MAKERS`, by its exact module and class: tables,
numbers, shapes, and pandapower's own controllers and characteristics, which consist of plain data. What
is not there is refused. A controller of another class is made if its module may be named (see
:func:`~palaestrai_mosaik.importing.only_modules`), from plain data, too.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pandapower as pp
import pandas as pd
from pandapower.file_io import from_json_dict
from pandapower.io_utils import FromSerializableRegistry, JSONSerializableClass

from palaestrai_mosaik import importing
from palaestrai_mosaik.errors import NameResolutionError, SimulationError

Part = dict[str, Any]
#: makes a part of what it is made of and of what else the file says about it
Maker = Callable[[Any, Part], Any]

_CONTROL = "pandapower.control.controller"
#: pandapower's controllers, characteristics and sources of their data: module -> classes
_OBJECTS: Mapping[str, tuple[str, ...]] = {
    f"{_CONTROL}.const_control": ("ConstControl",),
    f"{_CONTROL}.characteristic_control": ("CharacteristicControl",),
    f"{_CONTROL}.dmr_control": ("DmrControl",),
    f"{_CONTROL}.pq_control": ("PQController",),
    f"{_CONTROL}.shunt_control": ("DiscreteShuntController",),
    f"{_CONTROL}.station_control": ("BinarySearchControl", "DroopControl", "VDroopControl_local"),
    f"{_CONTROL}.trafo.ContinuousTapControl": ("ContinuousTapControl",),
    f"{_CONTROL}.trafo.DiscreteTapControl": ("DiscreteTapControl",),
    f"{_CONTROL}.trafo.TapDependentImpedance": ("TapDependentImpedance",),
    f"{_CONTROL}.trafo.VmSetTapControl": ("VmSetTapControl",),
    "pandapower.control.util.characteristic": (
        "Characteristic",
        "SplineCharacteristic",
        "LogSplineCharacteristic",
    ),
    "pandapower.timeseries.data_sources.frame_data": ("DFData",),
}
_MODES = "pandapower.control.controller.station_control", "ControlModusEnum"
_SCALARS: tuple[str, ...] = ("bool", "bool_", "float16", "float32", "float64")
_SCALARS += tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_GEOMETRIES = ("Point", "LineString", "Polygon")
#: what a table's part may have beside its text
_OF_TABLES = frozenset({"orient", "dtype", "typ", "index_name", "index_names", "column_name", "column_names"})
_OF_TABLES |= {"is_multiindex", "is_multicolumn"}
#: no dtype that reads a file, as one with a time zone may
_DTYPE = re.compile(r"[A-Za-z]+\d*(\[[a-z]+(, UTC)?\])?")
_CRS = re.compile(r"(EPSG:\d+|OGC:CRS84)", re.IGNORECASE)


def read_net(name: str, text: str) -> Any:
    """Return the pandapower net that ``text``, of the file ``name``, holds.

    Raises :class:`SimulationError` for what is no net, or has a part that must not be made.
    """
    try:
        net = _made(_parsed(text))
        if type(net) is dict and "bus" in net:
            # pandapower 1 wrote plain mappings
            net = from_json_dict(net)
    except SimulationError as error:
        raise SimulationError(f"grid: {name!r} {error}") from error
    except Exception as error:
        raise SimulationError(f"grid: {name!r} cannot be read as a pandapower net: {error}") from error
    if not isinstance(net, pp.pandapowerNet):
        raise SimulationError(f"grid: {name!r} holds a {type(net).__name__}, not a pandapower net")
    return net


def _parsed(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> Part:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise SimulationError(f"has the key {twice!r:.60} twice in one mapping")
    return found


def _made(value: Any, **_: Any) -> Any:
    """Return ``value``, as JSON has it, with all its parts made.

    pandapower's reader of tables calls this, too, for cells, with options of its own hook.
    """
    if type(value) is list:
        return [_made(one) for one in value]
    if type(value) is not dict:
        return value
    if not ("_module" in value and "_class" in value):
        return {key: _made(one) for key, one in value.items()}
    module, kind = value["_module"], value["_class"]
    if not (isinstance(module, str) and isinstance(kind, str)):
        raise SimulationError(f"has a part of a class that is no text, but {(module, kind)!r:.60}")
    rest = {key: one for key, one in value.items() if key not in ("_module", "_class", "_object")}
    if "_object" in value:
        given = value["_object"]
    else:
        # pandapower 2.0 wrote the content beside the name
        given, rest = rest, {}
    maker = _MAKERS.get((module, kind)) or _own(module, kind)
    try:
        return maker(given, rest)
    except SimulationError:
        raise
    except Exception as error:
        raise SimulationError(f"has a part of class {kind!r:.60} that cannot be made: {error}") from error


def _own(module: str, kind: str) -> Maker:
    """Return what makes objects of a class that is not pandapower's, where the module may be named."""
    try:
        found = importing.load(f"{module}:{kind}", ours=False)
    except NameResolutionError as error:
        raise SimulationError(f"has a part of class {kind!r:.60}: {error}") from error
    if not (inspect.isclass(found) and issubclass(found, JSONSerializableClass)):
        raise SimulationError(
            f"has a part of class {kind!r:.60} of {module!r:.60}: this is none that nets consist of, and no "
            "controller; functions and other classes are not taken from the file of a grid"
        )
    return lambda given, rest: _object(found, given)


# --- tables and plain values ------------------------------------------------------------------


def _table(given: Any, rest: Part) -> Any:
    return _reader(given, rest).DataFrame()


def _series(given: Any, rest: Part) -> Any:
    return _reader(given, rest).Series()


def _reader(given: Any, rest: Part) -> FromSerializableRegistry:
    """Return pandapower's reader of tables, for a table that lies in the file, and nowhere else."""
    if not (isinstance(given, str) and given.lstrip()[:1] in ("{", "[")):
        raise SimulationError(f"has a part whose table is no JSON, but {given!r:.60}")
    strange = sorted(rest.keys() - _OF_TABLES)
    if strange:
        raise SimulationError(f"has a table with {strange[0]!r:.60}, which is none of {sorted(_OF_TABLES)}")
    if rest.get("orient", "split") not in ("split", "columns", "index"):
        raise SimulationError(f"has a table whose orient is {rest['orient']!r:.60}; pandapower writes split, "
                              "columns and index")  # fmt: skip
    dtypes = rest.get("dtype")
    for dtype in dtypes.values() if isinstance(dtypes, dict) else [dtypes]:
        if not (dtype is None or (isinstance(dtype, str) and _DTYPE.fullmatch(dtype))):
            raise SimulationError(f"has a table with the dtype {dtype!r:.60}")
    # cells come back to _made: what pandas has found in them, in whatever way it has read them, is made there
    return FromSerializableRegistry(given, dict(rest), _made)


def _net(given: Any, rest: Part) -> Any:
    if isinstance(given, str):
        return _made(_parsed(given))
    if type(given) is not dict:
        raise SimulationError(f"has a net that is no mapping, but a {type(given).__name__}")
    net = pp.create_empty_network()
    net.update({key: _made(one) for key, one in given.items()})
    return net


def _graph(given: Any, rest: Part) -> Any:
    return FromSerializableRegistry(_made(given), {}, _made).networkx()


def _geo_table(given: Any, rest: Part) -> Any:
    crs = rest.get("crs")
    if not (crs is None or (isinstance(crs, str) and _CRS.fullmatch(crs))):
        raise SimulationError(
            f"has a table of shapes with the reference system {crs!r:.60}: EPSG:<number> is known"
        )
    return FromSerializableRegistry(given, _made(rest), _made).geoDataFrame()


def _plain(value: Any) -> Any:
    """Return ``value`` if it is of JSON's types alone."""
    if type(value) is dict:
        return {key: _plain(one) for key, one in value.items()}
    if type(value) is list:
        return [_plain(one) for one in value]
    if value is None or type(value) in (str, int, float, bool):
        return value
    raise SimulationError(f"has a {type(value).__name__} where plain values are needed")


def _scalar(kind: str) -> Maker:
    made = bool if kind == "bool" else getattr(np, kind)
    # (as pandapower does it: texts are true, as it writes them)
    return lambda given, rest: made(_plain(given))


def _shape(given: Any, rest: Part) -> Any:
    plain = _plain(given)
    try:
        from shapely.geometry import shape
    except ImportError:
        return plain  # (as pandapower does)
    return shape(plain)


def _index(kind: str) -> Maker:
    return lambda given, rest: getattr(pd, kind)(_made(given), dtype=_index_dtype(rest))


def _index_dtype(rest: Part) -> Any:
    dtype = rest.get("dtype")
    return dtype if isinstance(dtype, str) and _DTYPE.fullmatch(dtype) else None


# --- controllers ------------------------------------------------------------------------------


def _pandapowers(module: str, kind: str) -> Maker:
    def make(given: Any, rest: Part) -> Any:
        return _object(_class(module, kind), given)

    return make


@cache
def _class(module: str, kind: str) -> Any:
    found = getattr(import_module(module), kind, None)
    if found is None:
        raise SimulationError(f"has a part of class {kind!r}, which this release of pandapower does not know")
    return found


def _object(found: Any, given: Any) -> Any:
    """Return a controller, a characteristic or a source of data whose attributes are plain data or parts."""
    attributes = _made(_parsed(given) if isinstance(given, str) else given)
    if type(attributes) is not dict:
        raise SimulationError(
            f"has a part of class {found.__name__!r} without attributes: {attributes!r:.60}"
        )
    attributes.pop("net", None)  # (as pandapower does)
    for name in attributes:
        # what the class defines, a method for instance, is not exchanged
        if not name.isidentifier() or name.startswith("__") or hasattr(found, name):
            raise SimulationError(
                f"has a part of class {found.__name__!r} with the attribute {name!r:.60}, which is no data of its own"
            )
    if attributes.get("_interpolator") is not None:
        raise SimulationError(f"has a part of class {found.__name__!r} with an interpolator of its own")
    if hasattr(found, "interpolator"):
        # a characteristic makes it at the first call, and never writes it
        attributes["_interpolator"] = None
    return found.from_dict(attributes)


def _mode(given: Any, rest: Part) -> Any:
    return _class(*_MODES)(_plain(given))


def _makers() -> dict[tuple[str, str], Maker]:
    found: dict[tuple[str, str], Maker] = {
        ("pandapower.auxiliary", "pandapowerNet"): _net,
        ("geopandas.geodataframe", "GeoDataFrame"): _geo_table,
        ("networkx", "MultiGraph"): _graph,
        ("numpy", "array"): lambda given, rest: np.array([_made(one) for one in given]),
        ("builtins", "complex"): lambda given, rest: complex(_plain(given)),
        _MODES: _mode,
    }
    for kind in (tuple, set, frozenset):
        found["builtins", kind.__name__] = lambda given, rest, kind=kind: kind(_made(given))  # type: ignore[misc]
    for module in ("pandas", "pandas.core.frame"):
        found[module, "DataFrame"] = _table
    for module in ("pandas", "pandas.core.series"):
        found[module, "Series"] = _series
    for name in _SCALARS:
        found["numpy", name] = _scalar(name)
    found["pandas", "MultiIndex"] = lambda given, rest: pd.MultiIndex.from_tuples(_made(given))
    found["pandas", "RangeIndex"] = lambda given, rest: pd.Index(_made(given))
    for name in ("DatetimeIndex", "Index"):
        found["pandas", name] = _index(name)
    for name in _GEOMETRIES:
        found["shapely", name] = _shape
    for module, names in _OBJECTS.items():
        for name in names:
            found[module, name] = _pandapowers(module, name)
    return found


_MAKERS = _makers()
