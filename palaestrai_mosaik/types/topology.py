"""The topology of an environment: nodes, edges, and the devices at the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from palaestrai_mosaik.core.errors import ContractError, did_you_mean


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a topology, such as a bus of a grid.

    Attributes:
        id: unique among the nodes of the topology.
        name: a label for people.
        x, y: the position in a drawing; ``None`` if unknown. Only the proportions matter.
        kind: the kind of node, such as ``bus``.
        sensor: uid of its most descriptive sensor, such as the voltage of a bus.
    """

    id: str
    name: str = ""
    x: float | None = None
    y: float | None = None
    kind: str = "node"
    sensor: str | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """A connection of two nodes, such as a line of a grid.

    Attributes:
        id: unique among the edges of the topology.
        source, target: ids of the nodes at its ends.
        name: a label for people.
        kind: the kind of edge, such as ``line``, ``trafo`` or ``switch``.
        sensor: uid of its most descriptive sensor, such as the loading of a line.
        in_service: whether it connects its nodes before any agent acts.
        actuator: uid of the actuator that switches it on (1) and off (0).
    """

    id: str
    source: str
    target: str
    name: str = ""
    kind: str = "line"
    sensor: str | None = None
    in_service: bool = True
    actuator: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """A device at a node, such as a load or a generator.

    Attributes:
        id: unique among the devices of the topology.
        node: id of its node.
        name: a label for people.
        kind: the kind of device, such as ``load``, ``sgen`` or ``storage``.
        sensors, actuators: uids of all its channels.
    """

    id: str
    node: str
    name: str = ""
    kind: str = "device"
    sensors: tuple[str, ...] = ()
    actuators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """Nodes, the edges between them, and the devices at them, each with its sensors and actuators.

    In the baseline of an environment, uids are those of its sensors and actuators; in a store,
    they are the recorded ones (``grid.bus-3.vm_pu``). A channel of several numbers has one
    uid for each: ``levels[0]``, ``levels[1]``.

    Args:
        nodes: the nodes.
        edges: the connections of two nodes each.
        devices: the devices at the nodes.

    Raises:
        ContractError: an id occurs twice, or an edge or device refers to a missing node.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    devices: tuple[Device, ...] = ()

    def __post_init__(self) -> None:
        for name in ("nodes", "edges", "devices"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        node_ids = _ids("node", self.nodes)
        _ids("edge", self.edges)
        _ids("device", self.devices)
        for edge in self.edges:
            for end, node in (("source", edge.source), ("target", edge.target)):
                _check(node, node_ids, f"topology: {end} of edge {edge.id!r}", "node")
        for device in self.devices:
            _check(device.node, node_ids, f"topology: device {device.id!r}", "node")

    def check(self, sensors: Iterable[str], actuators: Iterable[str], who: str) -> None:
        """Check that the topology refers only to channels of an environment.

        Args:
            sensors: uids of all sensors of the environment.
            actuators: uids of all its actuators.
            who: the environment, for the message.

        Raises:
            ContractError: the environment lacks a channel.
        """
        uids = {"sensor": dict.fromkeys(sensors), "actuator": dict.fromkeys(actuators)}
        for kind, part, uid in self._channels():
            _check(uid, uids[kind], f"{who}: topology: {part}", kind)

    def _channels(self) -> Iterable[tuple[str, str, str]]:
        """Yield the kind, owner and uid of each channel in the topology."""
        for node in self.nodes:
            if node.sensor is not None:
                yield "sensor", f"node {node.id!r}", node.sensor
        for edge in self.edges:
            for kind, uid in (("sensor", edge.sensor), ("actuator", edge.actuator)):
                if uid is not None:
                    yield kind, f"edge {edge.id!r}", uid
        for device in self.devices:
            yield from (("sensor", f"device {device.id!r}", uid) for uid in device.sensors)
            yield from (("actuator", f"device {device.id!r}", uid) for uid in device.actuators)

    def renamed(self, rename: Callable[[str], str]) -> Topology:
        """Return the same topology with other uids of sensors and actuators.

        Args:
            rename: returns the new uid for an old one.
        """

        def renamed(uid: str | None) -> str | None:
            return None if uid is None else rename(uid)

        return Topology(
            tuple(replace(node, sensor=renamed(node.sensor)) for node in self.nodes),
            tuple(replace(e, sensor=renamed(e.sensor), actuator=renamed(e.actuator)) for e in self.edges),
            tuple(
                replace(d, sensors=tuple(map(rename, d.sensors)), actuators=tuple(map(rename, d.actuators)))
                for d in self.devices
            ),
        )

    def to_data(self) -> dict[str, Any]:
        """Return the topology as plain data: three lists of mappings."""
        # not asdict(): it copies each number, which takes most of a second for some thousand nodes
        data: dict[str, Any] = {}
        for title, parts in (("nodes", self.nodes), ("edges", self.edges), ("devices", self.devices)):
            names = [field.name for field in fields(parts[0])] if parts else []
            data[title] = [{name: getattr(part, name) for name in names} for part in parts]
        for device in data["devices"]:
            device["sensors"], device["actuators"] = list(device["sensors"]), list(device["actuators"])
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Topology:
        """Rebuild a topology.

        Args:
            data: the result of :meth:`to_data`.
        """
        devices = [
            Device(**{**entry, "sensors": tuple(entry["sensors"]), "actuators": tuple(entry["actuators"])})
            for entry in data["devices"]
        ]
        return cls(
            tuple(Node(**entry) for entry in data["nodes"]),
            tuple(Edge(**entry) for entry in data["edges"]),
            tuple(devices),
        )


def _ids(kind: str, parts: Iterable[Any]) -> dict[str, None]:
    ids: dict[str, None] = {}
    for part in parts:
        if part.id in ids:
            raise ContractError(f"topology: there are several {kind}s with the id {part.id!r}")
        ids[part.id] = None
    return ids


def _check(name: str, names: Mapping[str, None], where: str, kind: str) -> None:
    if name not in names:
        raise ContractError(
            f"{where} names the {kind} {name!r}, which does not exist{did_you_mean(name, list(names))}"
        )
