"""A topology holds together: ids are told apart, ends exist, channels exist."""

from __future__ import annotations

import json

import pytest

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types import Device, Edge, Node, Topology

TANKS = Topology(
    (Node("a", "upper tank", 0.0, 1.0, "tank", "level"), Node("b")),
    (Edge("pipe", "a", "b", "the pipe", "line", "flows[1]", False, "valve"),),
    (Device("pump", "b", "the pump", "pump", ("level", "flows[0]"), ("valve",)),),
)


def test_it_is_plain_data_and_back() -> None:
    data = json.loads(json.dumps(TANKS.to_data()))
    assert data["nodes"][0] == {
        **{"id": "a", "name": "upper tank", "x": 0.0, "y": 1.0},
        **{"kind": "tank", "sensor": "level"},
    }
    assert data["devices"][0]["sensors"] == ["level", "flows[0]"]
    assert Topology.from_data(data) == TANKS


def test_channels_are_renamed() -> None:
    found = TANKS.renamed(lambda uid: f"world.{uid}")
    assert [node.sensor for node in found.nodes] == ["world.level", None]
    assert (found.edges[0].sensor, found.edges[0].actuator) == ("world.flows[1]", "world.valve")
    assert found.devices[0].sensors == ("world.level", "world.flows[0]")
    assert found.devices[0].actuators == ("world.valve",)
    assert found.renamed(lambda uid: uid.removeprefix("world.")) == TANKS


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (((Node("a"), Node("a")),), "there are several nodes with the id 'a'"),
        (((Node("a"),), (Edge("e", "a", "a"),) * 2), "there are several edges with the id 'e'"),
        (((Node("a"),), (), (Device("d", "a"),) * 2), "there are several devices with the id 'd'"),
        (((Node("bus-1"),), (Edge("e", "bus-1", "bus-l"),)), "target of edge 'e' .*did you mean 'bus-1'"),
        (((Node("bus-1"),), (), (Device("d", "bus"),)), "device 'd' names the node 'bus', which does not"),
    ],
)
def test_what_does_not_hold_together_is_refused(parts: tuple, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        Topology(*parts)


def test_channels_that_do_not_exist_are_named() -> None:
    TANKS.check(["level", "flows[0]", "flows[1]"], ["valve"], "environment 'w'")
    with pytest.raises(
        ContractError, match=r"environment 'w': topology: edge 'pipe' names the sensor 'flows\[1\]'"
    ):
        TANKS.check(["level", "flows[0]"], ["valve"], "environment 'w'")
    with pytest.raises(ContractError, match=r"names the actuator 'valve', which does not exist.*'valves'"):
        TANKS.check(["level", "flows[0]", "flows[1]"], ["valves"], "environment 'w'")
