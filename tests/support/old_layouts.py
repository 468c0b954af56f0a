"""Nets as earlier releases of pandapower wrote them: what ``pandapower.convert_format`` does, backwards."""

from __future__ import annotations

import copy
import json
from typing import Any

import pandapower as pp
import pandas as pd
from packaging.version import Version

#: layouts, by the release that wrote them first: what differs is said in :func:`in_layout`
LAYOUTS = ("1.4", "1.6", "2.0.1", "2.2.0", "2.8.0", "2.12.0", "2.14.0", "3.0.0", "3.1.0")

_OLDER_NAMES = {"max_i_ka": "imax_ka"}
#: columns that came later -> the first layout that has them
_COLUMNS = {
    "line": {"g_us_per_km": "1.6", "df": "1.6"},
    "trafo": {"df": "1.6"},
    "switch": {"z_ohm": "2.2.0", "in_ka": "2.12.0"},
    "gen": {"slack": "2.2.0", "slack_weight": "2.12.0"},
    "ext_grid": {"slack_weight": "2.12.0"},
    "xward": {"slack_weight": "2.12.0"},
    "shunt": {"vn_kv": "1.6", "step": "1.6", "max_step": "1.6"},
    "sgen": {"current_source": "2.2.0"},
    "impedance": dict.fromkeys(("gf_pu", "bf_pu", "gt_pu", "bt_pu"), "3.0.0"),
}
_TABLES = {"controller": "2.2.0", "group": "2.8.0", "motor": "2.8.0", "asymmetric_load": "2.8.0"}
_TABLES |= {"asymmetric_sgen": "2.8.0", "storage": "2.0.1"}


def in_layout(net: Any, layout: str) -> str:
    """Return the text of a file of ``net`` in one of :data:`LAYOUTS`.

    From 3.1.0 backwards: coordinates that were checked later; one share of constant impedance for active and
    reactive power (2.14.0), phase shifters in place of kinds of tap changers, coordinates as tables; no
    ``format_version`` (2.8.0), fewer columns and tables; parts without ``_object`` (2.0.1); kW, kvar and kVA,
    static generators as negative loads, other names of transformers' columns (1.6); plain mappings (1.4).
    """
    net, version = copy.deepcopy(net), Version(layout)
    if version < Version("3.0.0"):
        _before_3(net)
    for table, since in _TABLES.items():
        if version < Version(since) and not len(net.get(table, ())):
            net.pop(table, None)
    for table, columns in _COLUMNS.items():
        late = [column for column, since in columns.items() if version < Version(since) and table in net]
        net[table] = net[table].drop(columns=[column for column in late if column in net[table]])
    if version < Version("2.0.0"):
        _before_2(net)
    if layout == "1.4":
        return json.dumps(_plain(net))
    data = json.loads(pp.to_json(net))
    parts = data["_object"]
    parts["version"] = float(layout) if version < Version("2.0.0") else layout
    parts["format_version"] = layout
    if version < Version("2.11.0"):
        del parts["format_version"]
    if layout == "2.0.1":
        del data["_object"]
        data |= parts
    return json.dumps(data)


def _before_3(net: Any) -> None:
    for power in "pq":
        shares = net.load[[f"const_z_{power}_percent", f"const_i_{power}_percent"]]
        net.load = net.load.drop(columns=shares.columns)
        net.load[["const_z_percent", "const_i_percent"]] = shares.to_numpy()
    for table in ("trafo", "trafo3w"):
        late = ("tap_changer_type", "tap_dependency_table", "id_characteristic_table")
        net[table] = net[table].drop(columns=[column for column in late if column in net[table]])
        net[table]["tap_phase_shifter"] = False
    for table in ("bus", "line"):
        geo = net[table].pop("geo").dropna().map(json.loads)
        points = [shape["coordinates"] for shape in geo]
        columns = (
            {"x": [p[0] for p in points], "y": [p[1] for p in points]}
            if table == "bus"
            else {"coords": points}
        )
        net[f"{table}_geodata"] = pd.DataFrame(columns, index=geo.index)
    net["group"] = net["group"].rename(columns={"element_index": "element"})
    for name in [name for name in net if name.endswith(("_dc", "_table")) or name.startswith("vsc")]:
        del net[name]
    for name in ("svc", "ssc", "tcsc"):
        del net[name]


def _before_2(net: Any) -> None:
    for name in [name for name in net if name.startswith("res_")]:
        del net[name]
    for table in ("sgen", "gen"):
        net[table]["p_mw"] *= -1
        limits = {column: column for column in net[table] if column.startswith(("min_", "max_"))}
        net[table] = net[table].drop(columns=list(limits))
    net.sgen["q_mvar"] *= -1
    for name in [name for name in net if isinstance(net[name], pd.DataFrame) and not name.startswith("_")]:
        table = net[name]
        renamed = {}
        for column in table:
            new = (
                str(column).replace("tap_neutral", "tp_mid").replace("_step_", "_st_").replace("tap_", "tp_")
            )
            new = new.replace("vkr_", "vscr_").replace("vk_", "vsc_")
            for unit, smaller in (("_mw", "_kw"), ("_mvar", "_kvar"), ("_mva", "_kva")):
                if new.endswith(unit):
                    new = new.removesuffix(unit) + smaller
                    table[column] = table[column] * 1e3
                    break
            renamed[column] = _OLDER_NAMES.get(new, new)
        net[name] = table.rename(columns=renamed)
    net["sn_kva"] = net.pop("sn_mva") * 1e3
    net["std_types"] = {"line": {}, "trafo": {}, "trafo3w": {}}


def _plain(net: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {"std_types": net["std_types"]}
    plain["parameters"] = {"parameter": {"version": 1.4, "f_hz": net.f_hz, "sn_kva": net.sn_kva}}
    for name, table in net.items():
        # pandapower itself cannot convert the coordinates of such a file
        if isinstance(table, pd.DataFrame) and not name.startswith("_") and not name.endswith("_geodata"):
            plain[name] = json.loads(table.to_json(default_handler=str, double_precision=15))
    return plain
