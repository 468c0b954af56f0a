"""Read a pandapower net from the text of its file without calling anything that the file names.

pandapower's reader imports the modules that a file names, returns functions by their names, and gives
its objects any attributes of the file, so a power flow could be made to call a function of the
file's choice. Here every part of a file is made by one of :data:`_MAKERS`, selected by its exact module and
class: tables, numbers, shapes, and pandapower's own controllers and characteristics, which consist of plain
data. All other classes are refused, except controllers from allowed modules (see
:func:`~palaestrai_mosaik.core.importing.only_modules`); these, too, are made from plain data.

A net in an older layout is then converted by ``pandapower.convert_format``, which moves data
between tables and uses no names from the file. Tables whose text would expand much in memory are
refused.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import pandapower as pp
import pandas as pd
from packaging.version import InvalidVersion, Version
from pandapower.convert_format import convert_format
from pandapower.file_io import from_json_dict
from pandapower.io_utils import FromSerializableRegistry, JSONSerializableClass

from palaestrai_mosaik.core import importing
from palaestrai_mosaik.core.errors import DocumentError, NameResolutionError, SimulationError
from palaestrai_mosaik.core.files import reading_fault

from .net_check import check_states, check_structure

Part = dict[str, Any]
#: makes a part from its content and its other keys
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
#: allowed keys of a table's part, besides its text
_OF_TABLES = frozenset({"orient", "dtype", "typ", "index_name", "index_names", "column_name", "column_names"})
_OF_TABLES |= {"is_multiindex", "is_multicolumn"}
#: allows no dtype that reads a file, such as one with a time zone, nor a long one, such as ``S1000000``
_DTYPE = re.compile(r"[A-Za-z]{3,}\d{0,3}(\[[a-z]+(, UTC)?\])?")
#: number of cells allowed beyond twice the values in a table's text
_SPARE_CELLS = 10_000
_LONGEST_LABEL = 500
_CRS = re.compile(r"(EPSG:\d+|OGC:CRS84)", re.IGNORECASE)


def read_net(name: str, text: str) -> Any:
    """Read the pandapower net in ``text``, from the file ``name``, and convert it to the current layout.

    Raises:
        SimulationError: the text is not a net, has a forbidden part, or cannot be converted.
        DocumentError: lists every fault of the tables' structure (:func:`~.net_check.check_structure`).
    """
    try:
        net = _made(_parsed(text))
        if type(net) is dict and "bus" in net:
            # pandapower 1 wrote plain mappings
            for table in net.values():
                _require_even(table)
            net = from_json_dict(net)
        if isinstance(net, pp.pandapowerNet):
            _convert(name, net)
    except DocumentError:
        raise
    except SimulationError as error:
        raise SimulationError(f"grid: {name!r} {error}") from None
    except Exception as error:
        raise SimulationError(
            f"grid: {name!r} cannot be read as a pandapower net: {reading_fault(error)}"
        ) from None
    if not isinstance(net, pp.pandapowerNet):
        raise SimulationError(f"grid: {name!r} holds a {type(net).__name__}, not a pandapower net")
    return net


def _convert(name: str, net: Any) -> None:
    """Convert ``net`` to the current layout, like ``pandapower.from_json``."""
    layout = _layout(net)
    newest = Version(pp.__format_version__)
    if layout > newest:
        raise SimulationError(
            f"was written by a newer pandapower: its layout is {layout}, pandapower {pp.__version__} reads "
            f"layouts up to {newest}; update pandapower"
        )
    check_structure(name, net)
    if layout == newest:
        return
    check_states(name, net)
    try:
        convert_format(net, drop_invalid_geodata=True)
    except Exception as error:
        raise SimulationError(
            f"has the layout of pandapower {layout}, which pandapower {pp.__version__} cannot convert: "
            f"{reading_fault(error)}; or it has what later layouts lack"
        ) from None


def _layout(net: Any) -> Version:
    """Return the version of a net's layout; before pandapower 2.11, ``format_version`` is missing."""
    versions = []
    for key in ("version", "format_version"):
        value = net.get(key)
        if not isinstance(value, str | int | float):
            raise SimulationError(f"has a {type(value).__name__} as {key!r}; pandapower writes a text")
        try:
            versions.append(Version(str(value).split(".dev")[0]))
        except (InvalidVersion, ValueError):
            raise SimulationError(f"has a text as {key!r} that is no version") from None
    return min(versions) if isinstance(net["version"], str) else versions[0]


def _parsed(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> Part:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        number = next(i for i, key in enumerate(keys) if key in keys[:i])
        raise SimulationError(f"has a mapping of {len(keys)} keys whose key {number + 1} is there twice")
    return mapping


def _made(value: Any, **_: Any) -> Any:
    """Return a JSON value with all its parts made.

    pandapower's table reader calls this for cells as well, with its hook's options.
    """
    if type(value) is list:
        return [_made(item) for item in value]
    if type(value) is not dict:
        return value
    if not value.keys() >= {"_module", "_class"}:
        return {key: _made(item) for key, item in value.items()}
    if "_object" in value or type(value.get("_state")) is not dict:
        return _part(value)
    _named_class(value)
    # pandapower 2.1 wrote a controller's attributes this way
    return {key: _made(item) for key, item in value["_state"].items() if key != "_init"}


def _named_class(value: Part) -> tuple[str, str]:
    module, kind = value["_module"], value["_class"]
    if not (isinstance(module, str) and isinstance(kind, str)):
        raise SimulationError("has a part whose module or class is no text")
    return module, kind


def _part(value: Part) -> Any:
    """Return the object of a class that a JSON mapping describes."""
    module, kind = _named_class(value)
    content = keys = {key: item for key, item in value.items() if key not in ("_module", "_class", "_object")}
    if "_object" in value:
        content = value["_object"]
    else:
        # pandapower 2.0 wrote the content beside the name
        keys = {}
    maker = _MAKERS.get((module, kind)) or _own(module, kind)
    try:
        return maker(content, keys)
    except SimulationError:
        raise
    except Exception as error:
        raise SimulationError(
            f"has a part of class {kind!r:.60} that cannot be made: {reading_fault(error)}"
        ) from None


def _own(module: str, kind: str) -> Maker:
    """Return the maker for a class outside pandapower, if its module is allowed."""
    try:
        cls = importing.load(f"{module}:{kind}", ours=False)
    except NameResolutionError as error:
        raise SimulationError(f"has a part of class {kind!r:.60}: {error}") from error
    if not (inspect.isclass(cls) and issubclass(cls, JSONSerializableClass)):
        raise SimulationError(
            f"has a part of class {kind!r:.60} of {module!r:.60}: this is none that nets consist of, and no "
            "controller; functions and other classes are not taken from the file of a grid"
        )
    return lambda content, keys: _object(cls, content)


# --- tables and plain values ------------------------------------------------------------------


def _reader(content: Any, keys: Part) -> FromSerializableRegistry:
    """Return pandapower's table reader, restricted to a table that is part of the file's text."""
    if not (isinstance(content, str) and content.lstrip()[:1] in ("{", "[")):
        raise SimulationError(f"has a part whose table is no JSON, but a {type(content).__name__}")
    if keys.keys() - _OF_TABLES:
        raise SimulationError(f"has a table with other keys than {', '.join(sorted(_OF_TABLES))}")
    if keys.get("orient", "split") not in ("split", "columns", "index"):
        raise SimulationError(
            "has a table whose orient is none of pandapower's, which are split, columns and index"
        )
    dtypes = keys.get("dtype")
    for dtype in dtypes.values() if isinstance(dtypes, dict) else [dtypes]:
        if dtype is not None and not _is_dtype(dtype):
            raise SimulationError("has a table with a dtype that pandapower does not write")
    _require_even(json.loads(content), labels=bool(keys.get("is_multiindex") or keys.get("is_multicolumn")))
    # pandas' reader calls _made for cells, so their parts are made by the same rules
    return FromSerializableRegistry(content, dict(keys), _made)


def _require_even(table: Any, labels: bool = False) -> None:
    """Refuse a table with many more cells than its text has values, since pandas pads short rows.

    ``labels``: its rows or columns are labelled by tuples, written as text.
    """
    if type(table) is not dict:
        return
    keys, high, wide, values = (
        _extent_of_rows(table) if type(table.get("data")) is list else _extent_of_columns(table)
    )
    if high * wide > 2 * values + _SPARE_CELLS:
        raise SimulationError(f"has a table of {high} times {wide} cells with only {values} values")
    if labels and any(type(key) is str and len(key) > _LONGEST_LABEL for key in keys):
        raise SimulationError(f"has a table with a label of more than {_LONGEST_LABEL} characters")


def _extent_of_rows(table: Part) -> tuple[list[Any], int, int, int]:
    """Return the labels, height, width and number of values of a table in pandas' layout ``split``."""
    sizes = [len(row) if type(row) is list else 1 for row in table["data"]]
    index, columns = _items(table.get("index")), _items(table.get("columns"))
    return [*index, *columns], max(len(sizes), len(index)), max(sizes, default=0), sum(sizes)


def _extent_of_columns(table: Part) -> tuple[list[Any], int, int, int]:
    """Return the labels, height, width and number of values of a table in pandas' layouts ``columns`` and ``index``."""
    columns = [column for column in table.values() if type(column) in (dict, list)]
    sizes = [len(column) for column in columns]
    inner = {key for column in columns if type(column) is dict for key in column}
    return [*table, *inner], len(table), max(len(inner), *sizes, 0), sum(sizes)


def _items(value: Any) -> list[Any]:
    return value if type(value) is list else []


def _net(content: Any, keys: Part) -> Any:
    if isinstance(content, str):
        return _made(_parsed(content))
    if type(content) is not dict:
        raise SimulationError(f"has a net that is no mapping, but a {type(content).__name__}")
    net = pp.create_empty_network()
    # keys such as _ppc are pandapower's state between power flows, which it never writes
    net.update({key: _made(item) for key, item in content.items() if not key.startswith("_")})
    return net


def _graph(content: Any, keys: Part) -> Any:
    return FromSerializableRegistry(_made(content), {}, _made).networkx()


def _geo_table(content: Any, keys: Part) -> Any:
    crs = keys.get("crs")
    if not (crs is None or (isinstance(crs, str) and _CRS.fullmatch(crs))):
        raise SimulationError(
            "has a table of shapes with an unknown reference system: EPSG:<number> is known"
        )
    return FromSerializableRegistry(content, _made(keys), _made).geoDataFrame()


def _plain(value: Any) -> Any:
    """Return ``value`` if it consists only of JSON types."""
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    if type(value) is list:
        return [_plain(item) for item in value]
    if value is None or type(value) in (str, int, float, bool):
        return value
    raise SimulationError(f"has a {type(value).__name__} where plain values are needed")


def _scalar(kind: str, content: Any, keys: Part) -> Any:
    to_scalar = bool if kind == "bool" else getattr(np, kind)
    # like pandapower, which writes booleans as text: any text is true
    return to_scalar(_plain(content))


def _shape(content: Any, keys: Part) -> Any:
    plain = _plain(content)
    try:
        from shapely.geometry import shape
    except ImportError:
        return plain  # as pandapower does
    return shape(plain)


def _index(kind: str, content: Any, keys: Part) -> Any:
    dtype = keys.get("dtype")
    return getattr(pd, kind)(_made(content), dtype=dtype if _is_dtype(dtype) else None)


def _multi_index(content: Any, keys: Part) -> Any:
    labels = _made(content)
    _require_even({"data": [list(label) for label in labels]})
    return pd.MultiIndex.from_tuples(labels)


def _is_dtype(value: Any) -> bool:
    return isinstance(value, str) and _DTYPE.fullmatch(value) is not None


# --- controllers ------------------------------------------------------------------------------


def _pandapowers(module: str, kind: str, content: Any, keys: Part) -> Any:
    return _object(_class(module, kind), content)


@cache
def _class(module: str, kind: str) -> Any:
    cls = getattr(import_module(module), kind, None)
    if cls is None:
        raise SimulationError(f"has a part of class {kind!r}, which this release of pandapower does not know")
    return cls


def _object(cls: Any, content: Any) -> Any:
    """Make a controller, a characteristic or a data source from attributes that are plain data or parts."""
    attributes = _made(_parsed(content) if isinstance(content, str) else content)
    if type(attributes) is not dict:
        raise SimulationError(
            f"has a part of class {cls.__name__!r} whose attributes are a {type(attributes).__name__}"
        )
    attributes.pop("net", None)  # as pandapower does
    for name in attributes:
        # a file must not replace anything that the class defines, such as a method
        if not name.isidentifier() or name.startswith("__") or hasattr(cls, name):
            which = f"the attribute {name!r}" if hasattr(cls, name) else "an attribute"
            raise SimulationError(
                f"has a part of class {cls.__name__!r} with {which}, which is no data of its own"
            )
    if attributes.get("_interpolator") is not None:
        raise SimulationError(f"has a part of class {cls.__name__!r} with an interpolator of its own")
    if hasattr(cls, "interpolator"):
        # a characteristic creates its interpolator at the first call and never writes it
        attributes["_interpolator"] = None
    return cls.from_dict(attributes)


def _mode(content: Any, keys: Part) -> Any:
    return _class(*_MODES)(_plain(content))


def _makers() -> dict[tuple[str, str], Maker]:
    makers: dict[tuple[str, str], Maker] = {
        ("pandapower.auxiliary", "pandapowerNet"): _net,
        ("geopandas.geodataframe", "GeoDataFrame"): _geo_table,
        ("networkx", "MultiGraph"): _graph,
        ("numpy", "array"): lambda content, keys: np.array([_made(item) for item in content]),
        ("builtins", "complex"): lambda content, keys: complex(_plain(content)),
        _MODES: _mode,
    }
    for kind in (tuple, set, frozenset):
        makers["builtins", kind.__name__] = lambda content, keys, kind=kind: kind(_made(content))  # type: ignore[misc]
    for module in ("pandas", "pandas.core.frame"):
        makers[module, "DataFrame"] = lambda content, keys: _reader(content, keys).DataFrame()
    for module in ("pandas", "pandas.core.series"):
        makers[module, "Series"] = lambda content, keys: _reader(content, keys).Series()
    for name in _SCALARS:
        makers["numpy", name] = partial(_scalar, name)
    makers["pandas", "MultiIndex"] = _multi_index
    makers["pandas", "RangeIndex"] = lambda content, keys: pd.Index(_made(content))
    for name in ("DatetimeIndex", "Index"):
        makers["pandas", name] = partial(_index, name)
    for name in _GEOMETRIES:
        makers["shapely", name] = _shape
    for module, names in _OBJECTS.items():
        for name in names:
            makers[module, name] = partial(_pandapowers, module, name)
    return makers


_MAKERS = _makers()
