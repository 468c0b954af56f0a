"""The topology of a pandapower net: buses, the branches between them, and the devices at them."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from typing import Any

from palaestrai_mosaik.types import Device, Edge, Node, Topology

from .channels import ACTUATOR_GROUPS, SENSOR_GROUPS

#: tables of branches -> (kind, columns of the buses, code in ``net.switch``)
_BRANCHES = {
    "line": ("line", "from_bus", "to_bus", "l"),
    "trafo": ("trafo", "hv_bus", "lv_bus", "t"),
    "impedance": ("line", "from_bus", "to_bus", None),
    "dcline": ("line", "from_bus", "to_bus", None),
}
#: tables of devices at buses
_DEVICES = ("ext_grid", "gen", "sgen", "storage", "load")


def grid_topology(net: Any, sensors: Collection[str], actuators: Collection[str]) -> Topology:
    """Build the topology of a pandapower net.

    Ids are ``<table>-<index>``. A bus without coordinates (``net.bus.geo``, or ``net.bus_geodata`` of
    older nets) has none. A branch is out of service if its table says so, or a switch at one of its
    ends is open. A three-winding transformer is two edges, which start at its high-voltage bus.

    Args:
        net: the net.
        sensors: uids of the environment's sensors; other sensors are not referenced.
        actuators: uids of its actuators; other actuators are not referenced.
    """
    places = _coordinates(net)
    nodes = []
    for index, row in _rows(net, "bus"):
        x, y = places.get(index, (None, None))
        nodes.append(Node(f"bus-{index}", _name(row), x, y, "bus", _of(f"bus-{index}.vm_pu", sensors)))
    return Topology(
        tuple(nodes),
        (*_branches(net, sensors, actuators), *_three_windings(net), *_switches(net)),
        tuple(_devices(net, sensors, actuators)),
    )


def _branches(net: Any, sensors: Collection[str], actuators: Collection[str]) -> Iterator[Edge]:
    for table, (kind, source, target, switched) in _BRANCHES.items():
        cut = _open_at(net, switched)
        for index, row in _rows(net, table):
            uid, ends = f"{table}-{index}", (f"bus-{row[source]}", f"bus-{row[target]}")
            loading, switch = _of(f"{uid}.loading", sensors), _of(f"{uid}.in_service", actuators)
            in_service = bool(row["in_service"]) and index not in cut
            yield Edge(uid, *ends, _name(row), kind, loading, in_service, switch)


def _three_windings(net: Any) -> Iterator[Edge]:
    cut = _open_at(net, "t3")
    for index, row in _rows(net, "trafo3w"):
        in_service = bool(row["in_service"]) and index not in cut
        for side in ("mv", "lv"):
            ends = (f"bus-{row['hv_bus']}", f"bus-{row[f'{side}_bus']}")
            yield Edge(f"trafo3w-{index}.{side}", *ends, _name(row), "trafo", in_service=in_service)


def _switches(net: Any) -> Iterator[Edge]:
    """Yield the switches between two buses; those at branches are part of the branches."""
    for index, row in _rows(net, "switch"):
        if row["et"] == "b":
            ends = (f"bus-{row['bus']}", f"bus-{row['element']}")
            yield Edge(f"switch-{index}", *ends, _name(row), "switch", in_service=bool(row["closed"]))


def _devices(net: Any, sensors: Collection[str], actuators: Collection[str]) -> Iterator[Device]:
    for table in _DEVICES:
        for index, row in _rows(net, table):
            uid = f"{table}-{index}"
            read, driven = _among(uid, SENSOR_GROUPS, sensors), _among(uid, ACTUATOR_GROUPS, actuators)
            yield Device(uid, f"bus-{row['bus']}", _name(row), table, read, driven)


def _among(uid: str, groups: Collection[str], channels: Collection[str]) -> tuple[str, ...]:
    """Return the ``channels`` of a device, in the order of ``groups``."""
    parts = (group.partition(".") for group in groups)
    names = (f"{uid}.{quantity}" for table, _, quantity in parts if table == uid.partition("-")[0])
    return tuple(name for name in names if name in channels)


def _rows(net: Any, table: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield index and columns of each row of a table of the net, or nothing without the table."""
    if table not in net or not len(net[table]):
        return
    frame = net[table]
    for index, row in zip(frame.index, frame.to_dict("records"), strict=True):
        yield int(index), row


def _of(uid: str, uids: Collection[str]) -> str | None:
    return uid if uid in uids else None


def _name(row: dict[str, Any]) -> str:
    name = row.get("name")
    return name if isinstance(name, str) else "" if name is None or name != name else str(name)  # noqa: PLR0124


def _open_at(net: Any, kind: str | None) -> set[int]:
    """Return the indices of the branches of a kind that have an open switch."""
    return {row["element"] for _, row in _rows(net, "switch") if row["et"] == kind and not row["closed"]}


def _coordinates(net: Any) -> dict[int, tuple[float, float]]:
    points: dict[int, Any] = {}
    for index, row in _rows(net, "bus_geodata"):
        points[index] = (row.get("x"), row.get("y"))
    for index, row in _rows(net, "bus"):
        if isinstance(row.get("geo"), str):
            points[index] = _point(row["geo"])
    return {index: (float(at[0]), float(at[1])) for index, at in points.items() if _is_point(at)}


def _point(text: str) -> Any:
    """Return the coordinates of a GeoJSON point."""
    try:
        return json.loads(text)["coordinates"]
    except (ValueError, KeyError, TypeError):
        return None


def _is_point(at: Any) -> bool:
    """Return whether ``at`` is a point: two finite numbers, optionally followed by a height."""
    if not isinstance(at, list | tuple) or len(at) < 2:
        return False
    return all(isinstance(value, int | float) and math.isfinite(value) for value in at[:2])
