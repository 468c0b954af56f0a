"""Checks of a pandapower net from a file: tables, profiles, and options of its power flow."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandapower as pp
import pandas as pd

from palaestrai_mosaik.core.errors import DocumentError, Problem, did_you_mean
from palaestrai_mosaik.core.printing import listed, shorten

logger = logging.getLogger(__name__)

#: whether a value of an option is allowed, and the allowed values in words
Rule = tuple[Callable[[Any], bool], str]


def _choice(*values: Any) -> Rule:
    def is_allowed(value: Any) -> bool:
        return any(type(value) is type(choice) and value == choice for choice in values)

    return is_allowed, " or ".join(map(repr, values))


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _is_limit(value: Any) -> bool:
    return value == "auto" or (type(value) is int and value > 0)


_NEWTON = ("nr", "iwamoto_nr")
#: options that affect only the solver: memory of the last state, tolerances, libraries
_SOLVER = (
    *("tolerance_mva", "check_connectivity", "recycle", "only_v_results", "run_control", "numba"),
    *("lightsim2grid", "use_umfpack", "permc_spec", "v_debug", "init_vm_pu", "init_va_degree"),
)
_RULES: dict[str, Rule] = {
    "calculate_voltage_angles": _choice(True, False, "auto"),
    "trafo_model": _choice("t", "pi"),
    "trafo_loading": _choice("current", "power"),
    "trafo3w_losses": _choice("hv", "mv", "lv", "star"),
    **dict.fromkeys(
        (
            *("enforce_q_lims", "enforce_p_lims", "voltage_depend_loads", "consider_line_temperature"),
            *("distributed_slack", "neglect_open_switch_branches", "tdpf", "tdpf_update_r_theta"),
        ),
        _choice(True, False),
    ),
    **dict.fromkeys(("switch_rx_ratio", "delta_q", "tdpf_delay_s"), (_is_amount, "a number of at least 0")),
    "algorithm": _choice(*_NEWTON, "bfsw", "gs", "fdbx", "fdxb"),
    "init": _choice("auto", "flat", "dc", "results"),
    "max_iteration": (_is_limit, "'auto' or a whole number above 0"),
    **dict.fromkeys(_SOLVER, (lambda value: True, "")),
}
#: options that, if true, need more than admittances and constant powers in the equations
_UNCOVERED = {
    "enforce_q_lims": "reactive power limits of generators",
    "enforce_p_lims": "active power limits of generators",
    "distributed_slack": "a distributed slack",
    "tdpf": "lines whose resistance depends on their load",
}


def keep_model_options(net: Any) -> Iterator[str]:
    """Remove the options of ``net`` that do not change the solution, and yield faults of the others."""
    options = net.get("user_pf_options")
    if options is None:
        return
    if not isinstance(options, dict):
        yield f"user_pf_options are a {type(options).__name__}; allowed is a mapping"
        return
    kept = {}
    for key, value in options.items():
        if key not in _RULES:
            yield (
                f"user_pf_options: {shorten(repr(key), 40)} is no option of an AC power flow"
                f"{did_you_mean(key, _RULES)}; allowed are {', '.join(_RULES)}"
            )
            continue
        is_allowed, allowed = _RULES[key]
        if not is_allowed(value):
            yield f"user_pf_options: {key} is {shorten(repr(value), 40)}; allowed is {allowed}"
        elif _acts(key, value, options):
            kept[key] = value
        else:
            logger.info("the net's option %s has no effect: power flows are solved in one way", key)
    if kept.get("distributed_slack"):
        # with some releases of lightsim2grid, pandapower fails on a distributed slack
        kept["lightsim2grid"] = False
    net["user_pf_options"] = kept


def uncovered_options(net: Any) -> list[str]:
    """List the features that options of ``net`` request and that the fast power flow lacks."""
    options = net.get("user_pf_options") or {}
    features = [words for key, words in _UNCOVERED.items() if options.get(key)]
    if options.get("trafo_loading") == "power" and len(net.trafo):
        features.append("the loading of transformers by power")
    return features


def _acts(key: str, value: Any, options: dict[str, Any]) -> bool:
    if key in ("algorithm", "max_iteration"):
        return options.get("algorithm", "nr") in _NEWTON
    return key not in _SOLVER and (key, value) != ("init", "results")


#: pandapower allocates tables as long as the largest index
LARGEST_INDEX = 9_999_999
_SHOWN = 3

#: table -> columns that refer to its buses
_BUSES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ext_grid", "gen", "load", "sgen", "storage", "shunt", "ward", "xward"), ("bus",)),
    **dict.fromkeys(("motor", "asymmetric_load", "asymmetric_sgen", "svc", "ssc", "switch"), ("bus",)),
    **dict.fromkeys(("line", "impedance", "dcline", "tcsc"), ("from_bus", "to_bus")),
    "trafo": ("hv_bus", "lv_bus"),
    "trafo3w": ("hv_bus", "mv_bus", "lv_bus"),
    **dict.fromkeys(("vsc", "vsc_stacked", "vsc_bipolar"), ("bus",)),
}
_DC_BUSES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("load_dc", "source_dc", "vsc"), ("bus_dc",)),
    **dict.fromkeys(("vsc_stacked", "vsc_bipolar"), ("bus_dc_plus", "bus_dc_minus")),
    "line_dc": ("from_bus_dc", "to_bus_dc"),
}
_TABLES = ("bus", "bus_dc", *_BUSES, "load_dc", "source_dc", "line_dc")
_ZIP = tuple(f"const_{kind}_{power}_percent" for kind in "zi" for power in "pq")
_PHASES = tuple(column for phase in "abc" for column in (f"p_{phase}_mw", f"q_{phase}_mvar"))
_WARD = ("ps_mw", "qs_mvar", "pz_mw", "qz_mvar")
#: table -> columns with a number in every row
_FINITE: dict[str, tuple[str, ...]] = {
    "ext_grid": ("va_degree",),
    "gen": ("p_mw", "scaling"),
    "load": ("p_mw", "q_mvar", "scaling", *_ZIP),
    "sgen": ("p_mw", "q_mvar", "scaling"),
    "storage": ("p_mw", "q_mvar", "scaling"),
    "motor": ("pn_mech_mw", "loading_percent", "scaling"),
    "asymmetric_load": (*_PHASES, "scaling"),
    "asymmetric_sgen": (*_PHASES, "scaling"),
    "shunt": ("p_mw", "q_mvar", "step"),
    "ward": _WARD,
    "xward": (*_WARD, "r_ohm", "x_ohm"),
    "line": ("r_ohm_per_km", "x_ohm_per_km", "c_nf_per_km", "g_us_per_km"),
    "trafo": ("vk_percent", "vkr_percent", "pfe_kw", "i0_percent", "shift_degree"),
    "trafo3w": (
        *(f"{quantity}_{side}_percent" for quantity in ("vk", "vkr") for side in ("hv", "mv", "lv")),
        *("pfe_kw", "i0_percent", "shift_mv_degree", "shift_lv_degree"),
    ),
    "impedance": tuple(f"{name}_pu" for name in ("rft", "xft", "rtf", "xtf", "gf", "bf", "gt", "bt")),
    "dcline": ("p_mw", "loss_percent", "loss_mw"),
    "svc": ("x_l_ohm", "x_cvar_ohm", "thyristor_firing_angle_degree"),
    "tcsc": ("x_l_ohm", "x_cvar_ohm", "thyristor_firing_angle_degree", "set_p_to_mw"),
    "ssc": ("r_ohm", "x_ohm"),
    "line_dc": ("r_ohm_per_km", "g_us_per_km"),
    "load_dc": ("p_dc_mw", "scaling"),
}
#: table -> columns with a number above 0 in every row
_POSITIVE: dict[str, tuple[str, ...]] = {
    "bus": ("vn_kv",),
    "bus_dc": ("vn_kv",),
    "ext_grid": ("vm_pu",),
    "gen": ("vm_pu",),
    "xward": ("vm_pu",),
    "motor": ("cos_phi", "efficiency_percent"),
    "line": ("length_km", "parallel"),
    "trafo": ("sn_mva", "vn_hv_kv", "vn_lv_kv", "parallel"),
    "trafo3w": ("sn_hv_mva", "sn_mv_mva", "sn_lv_mva", "vn_hv_kv", "vn_mv_kv", "vn_lv_kv"),
    "impedance": ("sn_mva",),
    "dcline": ("vm_from_pu", "vm_to_pu"),
    "svc": ("set_vm_pu",),
    "ssc": ("set_vm_pu",),
    "source_dc": ("vm_pu",),
    "line_dc": ("length_km", "parallel"),
}
#: table -> required columns that may have empty cells
_OPTIONAL: dict[str, tuple[str, ...]] = {
    "sgen": ("sn_mva",),
    "line": ("max_i_ka", "df"),
    "trafo": ("tap_min", "tap_max", "tap_pos", "df"),
}
_STATES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_TABLES, ("in_service",)),
    "gen": ("in_service", "slack"),
    "switch": ("closed",),
}
#: kind of a switch -> table of the switched element
_SWITCHED = {"b": "bus", "l": "line", "t": "trafo", "t3": "trafo3w"}
TAP_CHANGERS = ("Ratio", "Symmetrical", "Ideal", "Tabular")
#: suffixes of the profile columns of elements
_PROFILE_ENDS = ("", "_pload", "_qload")


def check_structure(name: str, net: Any) -> None:
    """Check the structure of the tables of ``net``, from the file ``name``, before any computation.

    Tables must be tables, and their row and column labels unique.

    Raises:
        DocumentError: lists every fault.
    """
    faults: list[str] = []
    for table in (*_TABLES, "controller", "measurement"):
        if table in net:
            faults += _structural_faults(table, net[table])
    _raise(name, faults)


def check_states(name: str, net: Any) -> None:
    """Check that states (``in_service``, ``closed``) are true or false; a conversion would change other values.

    Raises:
        DocumentError: lists every fault.
    """
    _raise(name, [fault for table in _TABLES if table in net for fault in _state_faults(table, net[table])])


def check_data(name: str, net: Any) -> None:
    """Check the data of ``net``, from the file ``name``, in the current layout.

    Columns of numbers become float columns, those of states bool columns, tables without rows
    pandapower's empty ones, and ``user_pf_options`` is reduced by :func:`~keep_model_options`.

    Raises:
        DocumentError: lists every fault, with element, column, value and the allowed values.
    """
    for table in _TABLES:
        if not len(net[table]):
            net[table] = _empty_net()[table].copy()
    faults = [*_net_faults(net)]
    for table in _TABLES:
        faults += _table_faults(net, table)
    faults += _switch_faults(net)
    faults += _tap_faults(net)
    faults += _profile_faults(net)
    faults += keep_model_options(net)
    _raise(name, faults)


@cache
def _empty_net() -> Any:
    return pp.create_empty_network()


def _raise(name: str, faults: list[str]) -> None:
    if faults:
        raise DocumentError([Problem(f"{name!r}: {fault}", "grid") for fault in faults])


def _structural_faults(name: str, table: Any) -> Iterator[str]:
    if not isinstance(table, pd.DataFrame):
        yield f"{name} is a {type(table).__name__}; allowed is a table"
        return
    if not table.columns.is_unique:
        duplicate = table.columns[table.columns.duplicated()][0]
        yield f"{name} has the column {_shown(duplicate)} twice"
        return
    index = table.index
    if not len(table):
        return
    if index.dtype.kind not in "iu":
        yield f"{name} has the index {_shown(index[0])}; allowed are whole numbers"
    elif index.min() < 0 or index.max() > LARGEST_INDEX:
        wrong = index[(index < 0) | (index > LARGEST_INDEX)][0]
        yield (
            f"{name} has the index {wrong}; allowed is 0 to {LARGEST_INDEX} "
            "(pandapower.toolbox.create_continuous_elements_index numbers a net anew)"
        )
    elif not index.is_unique:
        yield f"{name} {index[index.duplicated()][0]} is there twice; allowed is one row for each index"


def _state_faults(name: str, table: pd.DataFrame) -> Iterator[str]:
    for column in _STATES[name]:
        if column in table and table[column].dtype != bool:
            cells = table[column]
            sound = [isinstance(c, bool | np.bool_ | int | float | np.number) and c in (0, 1) for c in cells]
            yield from _fault(name, table, column, ~np.array(sound, dtype=bool), "true or false")


def _net_faults(net: Any) -> Iterator[str]:
    for key in ("sn_mva", "f_hz"):
        value = net.get(key)
        if not _is_number(value) or not 0 < value < np.inf:
            yield f"{key} is {_shown(value)}; allowed is a number above 0"
    if not len(net.bus):
        yield "the net has no bus"
    elif not net.bus.get("in_service", pd.Series([True])).any():
        yield "no bus is in service"
    sources = [net.ext_grid.get("in_service"), net.gen.get("in_service")]
    if sources[1] is not None and "slack" in net.gen:
        sources[1] = (sources[1] == True) & (net.gen.slack == True)  # noqa: E712 (columns)
    if not any(source is not None and source.any() for source in sources):
        yield "no external grid is in service, and no generator that is a slack; a power flow needs one"


def _table_faults(net: Any, name: str) -> Iterator[str]:
    table = net[name]
    if not len(table):
        return
    columns = {
        **dict.fromkeys(_FINITE.get(name, ()), "a number"),
        **dict.fromkeys(_POSITIVE.get(name, ()), "a number above 0"),
        **dict.fromkeys(_OPTIONAL.get(name, ()), "a number or nothing"),
    }
    buses = dict.fromkeys(_BUSES.get(name, ()), "bus") | dict.fromkeys(_DC_BUSES.get(name, ()), "bus_dc")
    for column in (*buses, *columns, *_STATES[name]):
        if column not in table:
            yield f"{name} has no column {column!r}"
    for column, target in buses.items():
        if column in table:
            yield from _reference_faults(net, name, column, np.ones(len(table), dtype=bool), target)
    states = [*_state_faults(name, table)]
    yield from states
    for column in _STATES[name] if not states else ():
        if column in table:
            net[name][column] = table[column].astype(bool)
    for column, allowed in columns.items():
        if column in table:
            yield from _number_faults(net, name, column, allowed)
    if name == "storage" and "efficiency_percent" in table:
        values, texts = _numbers(table["efficiency_percent"])
        wrong = texts | (values <= 0) | (values > 100)
        yield from _fault(
            name, table, "efficiency_percent", wrong, "a number above 0, at most 100, or nothing"
        )


def _number_faults(net: Any, name: str, column: str, allowed: str) -> Iterator[str]:
    """Yield a fault for values that are not ``allowed``; without any, make the column one of floats."""
    table = net[name]
    values, wrong = _numbers(table[column])
    if allowed != "a number or nothing":
        wrong = wrong | ~np.isfinite(values)
    if allowed == "a number above 0":
        wrong = wrong | ~(values > 0)
    yield from _fault(name, table, column, wrong, allowed)
    if table[column].dtype == object and not wrong.any():
        net[name][column] = values


def _reference_faults(
    net: Any, name: str, column: str, rows: npt.NDArray[np.bool_], target: str
) -> Iterator[str]:
    """Yield a fault for those ``rows`` that refer to an element missing in the table ``target``."""
    table = net[name]
    values, texts = _numbers(table[column])
    wrong = rows & (texts | ~np.isin(values, net[target].index.to_numpy()))
    yield from _fault(name, table, column, wrong, f"the index of a {target}")
    if not wrong.any() and rows.all() and table[column].dtype.kind not in "iu":
        net[name][column] = values.astype(np.int64)


def _switch_faults(net: Any) -> Iterator[str]:
    table = net.switch
    if not len(table):
        return
    for column in ("et", "element"):
        if column not in table:
            yield f"switch has no column {column!r}"
            return
    yield from _fault("switch", table, "et", ~table.et.isin(list(_SWITCHED)).to_numpy(), _words(_SWITCHED))
    for kind, target in _SWITCHED.items():
        yield from _reference_faults(net, "switch", "element", (table.et == kind).to_numpy(), target)


def _tap_faults(net: Any) -> Iterator[str]:
    for name in ("trafo", "trafo3w"):
        table = net[name]
        if not len(table):
            continue
        if "tap_changer_type" not in table:
            yield f"{name} has no column 'tap_changer_type'"
            continue
        kinds = table.tap_changer_type
        # pandapower 3.0 wrote False for no tap changer
        wrong = ~(kinds.isna() | kinds.isin([*TAP_CHANGERS, False])).to_numpy()
        yield from _fault(name, table, "tap_changer_type", wrong, f"{_words(TAP_CHANGERS)} or nothing")


def _profile_faults(net: Any) -> Iterator[str]:
    """Yield the faults of the elements' profiles, in SimBench's format."""
    profiles = net.get("profiles")
    if profiles is None:
        return
    if not isinstance(profiles, dict) or not all(isinstance(t, pd.DataFrame) for t in profiles.values()):
        yield "profiles are no mapping of tables"
        return
    names = _profile_columns(net)
    lengths: dict[int, str] = {}
    for key, table in profiles.items():
        columns = [column for column in table.columns if column in names]
        for column in columns:
            values, texts = _numbers(table[column])
            wrong = np.flatnonzero(texts | ~np.isfinite(values))
            if len(wrong):
                value = _shown(table[column].iloc[wrong[0]])
                yield f"profiles[{key!r}], row {wrong[0]}: {column} is {value}; allowed is a number"
        if columns:
            lengths.setdefault(len(table), key)
    if len(lengths) > 1:
        sizes = [f"{length} rows in {key!r}" for length, key in lengths.items()]
        yield f"profiles have different lengths: {listed(sizes, _SHOWN)}; allowed is one length"


def _profile_columns(net: Any) -> set[str]:
    """Return the names of the columns that the elements' profiles have."""
    return {
        f"{profile}{end}"
        for element in ("load", "sgen", "gen", "storage")
        for profile in net[element].get("profile", pd.Series(dtype=object)).dropna().unique()
        for end in _PROFILE_ENDS
    }


def _numbers(column: pd.Series) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the values of a column as floats, and the mask of cells that are neither numbers nor missing."""
    if column.dtype.kind in "iuf" and isinstance(column.dtype, np.dtype):
        return column.to_numpy(dtype=float), np.zeros(len(column), dtype=bool)
    cells = list(column)
    wrong = np.array([not (_is_number(cell) or cell is None or cell is pd.NA) for cell in cells], dtype=bool)
    values = [float(cell) if _is_number(cell) else np.nan for cell in cells]
    return np.array(values, dtype=float), wrong


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _fault(
    name: str, table: pd.DataFrame, column: str, wrong: npt.NDArray[np.bool_], allowed: str
) -> Iterator[str]:
    """Yield one fault for all rows in ``wrong``, with the value of the first one."""
    rows = np.flatnonzero(wrong)
    if len(rows):
        elements = listed([str(index) for index in table.index[rows[: _SHOWN + 1]]], _SHOWN)
        more = f" ({len(rows)} rows)" if len(rows) > _SHOWN else ""
        value = _shown(table[column].iloc[rows[0]])
        yield f"{name} {elements}{more}: {column} is {value}; allowed is {allowed}"


def _shown(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value is pd.NA:
        return "missing"
    if isinstance(value, str):
        # a file that a document names may hold a secret
        return "a text"
    if isinstance(value, bool | int | float):
        return shorten(repr(value), 40)
    return f"a {type(value).__name__}"


def _words(names: Any) -> str:
    return ", ".join(map(repr, names))
