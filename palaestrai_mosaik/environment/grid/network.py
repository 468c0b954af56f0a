"""Grids by name: pandapower nets with their profiles, and a cache for those that are slow to parse.

======================== =============================================================
``cigre_mv``             CIGRE medium-voltage benchmark with PV and wind (15 buses)
``simbench:<code>``      a SimBench grid, such as ``simbench:1-MV-rural--2-sw``
``oberrhein``            MV Oberrhein (179 buses, two external grids), constant powers
``case2869``             case2869pegase (2869 buses), constant powers
path to a ``.json``      a pandapower net, with profiles if it has SimBench's tables
======================== =============================================================

The SimBench data (grids and profiles: S. Meinecke et al., "SimBench -- A Benchmark
Dataset of Electric Power Systems to Compare Innovative Solutions Based on Power Flow
Analysis", Energies 13(12), 2020) are published under the Open Database License (ODbL)
1.0, see https://simbench.de; they ship inside the package ``simbench``. Rows are 15
minutes apart, 35,136 for the leap year 2016, counted here in standard time throughout.

Parsing a SimBench grid takes seconds, so the result is cached as one file in
``$PALAESTRAI_MOSAIK_CACHE``, else ``$XDG_CACHE_HOME/palaestrai_mosaik``, else
``~/.cache/palaestrai_mosaik``. Files are written aside and renamed; a damaged one is
rebuilt. A fresh grid is decoded from the file's bytes like a cached one, so both give the same
numbers to the last bit. A process also keeps the grids that it has read last: every phase,
worker and evaluation sets its environments up again, and most of that time goes into reading the
net's tables.
"""

from __future__ import annotations

import copy
import io
import logging
import os
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandapower as pp
import pandas as pd

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import SimulationError, did_you_mean
from palaestrai_mosaik.core.installation import install_extra

from .net_check import check_data
from .net_file import read_net
from .profiles import QUANTITIES, Assignment, Profiles, profiles_of

logger = logging.getLogger(__name__)

_FORMAT = 2
#: number of grids that a process keeps
_KEPT = 4
_SIMBENCH = "simbench:"


@dataclass(slots=True)
class Grid:
    """A named grid: the pandapower ``net``, a copy for the caller, and its ``profiles``."""

    name: str
    net: Any
    profiles: Profiles


def load_grid(name: str) -> Grid:
    """Load a grid by one of the names above.

    Raises:
        SimulationError: for an unknown name, or a file that does not hold a pandapower net.
        DocumentError: lists every fault of a file's data.
    """
    if name.startswith(_SIMBENCH):
        return _cached(name, lambda: _simbench(name.removeprefix(_SIMBENCH)))
    if name == "cigre_mv":
        return _cached(name, _cigre_mv)
    if name in _SHIPPED:
        return _cached(name, lambda: _shipped(name))
    if name.endswith(".json"):
        return _from_file(name)
    allowed = ["cigre_mv", *_SHIPPED]
    raise SimulationError(
        f"unknown grid {name!r}{did_you_mean(name, allowed)}; allowed are {', '.join(allowed)}, "
        "simbench:<code> and the path of a pandapower .json file"
    )


#: functions of ``pandapower.networks``
_SHIPPED = {"oberrhein": "mv_oberrhein", "case2869": "case2869pegase"}


def _shipped(name: str) -> Grid:
    from pandapower import networks

    net = getattr(networks, _SHIPPED[name])()
    return Grid(name, net, profiles_of(net))


def _from_file(name: str) -> Grid:
    if not Path(name).is_file():
        raise SimulationError(f"grid: there is no file {name!r} (working directory: {Path.cwd()})")
    try:
        text = files.read_text(name)
    except (OSError, ValueError) as error:
        raise SimulationError(f"grid: {name!r} cannot be read: {files.reading_fault(error)}") from None
    net = read_net(name, text)
    check_data(name, net)
    return Grid(name, net, profiles_of(net))


def _simbench(code: str) -> Grid:
    import simbench

    codes = simbench.collect_all_simbench_codes()
    if code not in codes:
        raise SimulationError(f"unknown SimBench grid {code!r}{did_you_mean(code, codes)}")
    net = simbench.get_simbench_net(code)
    # SimBench has tap steps, but not the kind of tap changer, which pandapower 3 requires.
    trafo = net.trafo
    missing = trafo.tap_changer_type.isna() & (trafo.tap_step_percent.fillna(0.0) != 0.0)
    trafo["tap_changer_type"] = trafo.tap_changer_type.astype(object).mask(missing, "Ratio")
    return Grid(_SIMBENCH + code, net, profiles_of(net))


#: CIGRE MV: each of R1, R12, CI1, CI12 stands for a whole neighbouring grid.
_CIGRE_LARGE = {
    "Load R1": "mv_semiurb",
    "Load R12": "mv_urban",
    "Load CI1": "mv_comm",
    "Load CI12": "mv_comm",
}
_CIGRE_RESIDENTIAL = ("lv_semiurb4", "lv_semiurb5", "lv_urban6", "lv_rural1", "lv_rural2")
_CIGRE_COMMERCIAL = ("G0-A", "G1-A", "G2-A", "G3-A", "G4-A", "G5-A", "G6-A")


def _cigre_mv() -> Grid:
    """Build CIGRE MV (CIGRE TF C6.04.02, "Benchmark Systems for Network Integration of Renewable
    and Distributed Energy Resources", 2014), in pandapower's version with PV and wind.

    The benchmark has peak powers only, so SimBench profiles are assigned to them:
    aggregated low-voltage profiles to residential loads, commercial ones to the others,
    in turn. A load's profile is scaled to its peak: the benchmark's power is the peak of
    the year, its power factor constant. PV and wind profiles are relative to rated power.
    """
    import simbench
    from pandapower.networks import create_cigre_network_mv

    net = create_cigre_network_mv(with_der="pv_wind")
    turn = {"R": 0, "CI": 0}
    loads = []
    for name in net.load.name:
        kind, choice = ("CI", _CIGRE_COMMERCIAL) if "CI" in name else ("R", _CIGRE_RESIDENTIAL)
        if name in _CIGRE_LARGE:
            loads.append(_CIGRE_LARGE[name])
        else:
            loads.append(choice[turn[kind] % len(choice)])
            turn[kind] += 1
    pv = [f"PV{i}" for i in range(1, 9)]
    sgens = [pv.pop(0) if kind == "PV" else "WP4" for kind in net.sgen.type]
    folder = Path(simbench.complete_data_path(0))
    load_table = pd.read_csv(folder / "LoadProfile.csv", sep=";", usecols=[f"{p}_pload" for p in set(loads)])
    sgen_table = pd.read_csv(folder / "RESProfile.csv", sep=";", usecols=list(set(sgens)))
    relative = {p: load_table[f"{p}_pload"] / load_table[f"{p}_pload"].max() for p in sorted(set(loads))}
    net.load["profile"], net.sgen["profile"] = loads, sgens
    net["profiles"] = {
        "load": pd.DataFrame({f"{p}{end}": v for p, v in relative.items() for end in ("_pload", "_qload")}),
        "renewables": sgen_table,
    }
    return Grid("cigre_mv", net, profiles_of(net))


def cache_directory() -> Path:
    """Return the directory of parsed grids, which need not exist."""
    if cache := os.environ.get("PALAESTRAI_MOSAIK_CACHE"):
        return Path(cache)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "palaestrai_mosaik"


def _cached(name: str, build: Callable[[], Grid]) -> Grid:
    try:
        versions = "+".join(f"{package}-{version(package)}" for package in ("simbench", "pandapower"))
    except PackageNotFoundError as error:
        raise ImportError(f"grid {name!r} needs {error.name}: {install_extra('grid')}") from error
    key = sha256(f"{name} {versions} {_FORMAT}".encode()).hexdigest()[:16]
    path = cache_directory() / f"{name.replace(':', '_').replace('/', '_')}-{key}.npz"
    try:
        return _decode(name, files.read_bytes(path))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, SyntaxError) as error:
        logger.warning("the cached grid %s cannot be read (%s); it is built again", path, error)
    data = _encode(build())
    try:
        files.add_root(path.parent)
        files.make_folder(path.parent, parents=True)
        files.write_bytes(path, data, durable=False)
    except OSError as error:
        logger.info("the grid cannot be cached: %s", error)
    return _decode(name, data)


def _encode(grid: Grid) -> bytes:
    profiles = grid.profiles
    arrays: dict[str, Any] = {
        "net": np.frombuffer(pp.to_json(grid.net).encode(), dtype=np.uint8),
        "table": profiles.table,
        "first": np.array(profiles.first.isoformat()),
        "resolution": np.array(profiles.resolution),
    }
    for quantity, assignment in profiles.assignments.items():
        arrays[f"{quantity}_columns"] = assignment.columns
        arrays[f"{quantity}_factors"] = assignment.factors
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


#: name and digest of the file -> the grid, private to :func:`_decode`
_kept: OrderedDict[tuple[str, str], Grid] = OrderedDict()


def _decode(name: str, data: bytes) -> Grid:
    """Return a grid with a copy of its net; its profiles are read-only and shared."""
    key = name, sha256(data).hexdigest()
    grid = _kept.pop(key, None)
    if grid is None:
        grid = _read(name, data)
    _kept[key] = grid
    while len(_kept) > _KEPT:
        _kept.popitem(last=False)
    return Grid(name, copy.deepcopy(grid.net), grid.profiles)


def _read(name: str, data: bytes) -> Grid:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        assignments = {
            quantity: Assignment(arrays[f"{quantity}_columns"], arrays[f"{quantity}_factors"])
            for quantity in QUANTITIES
        }
        first = datetime.fromisoformat(str(arrays["first"]))
        table = arrays["table"]
        for array in (
            table,
            *(a for assignment in assignments.values() for a in (assignment.columns, assignment.factors)),
        ):
            array.flags.writeable = False
        profiles = Profiles(table, assignments, first, int(arrays["resolution"]))
        net = read_net(name, arrays["net"].tobytes().decode())
    return Grid(name, net, profiles)
