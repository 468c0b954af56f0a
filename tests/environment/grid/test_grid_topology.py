"""The topology of a grid: by hand for a small net, and each channel that it names is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandapower as pp
import pandas as pd
import pytest
from support.documents import document, phase

from palaestrai_mosaik.environment.grid import BatchGridEnvironment, GridEnvironment
from palaestrai_mosaik.environment.grid.topology import grid_topology
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import Device, Edge, Node


@pytest.fixture
def net(two_bus_net: Any) -> Any:
    """The net of two buses with names, coordinates, a transformer and switches."""
    net = two_bus_net
    net.bus["name"] = ["first", "second"]
    net.bus["geo"] = ['{"type":"Point", "coordinates":[8.5, 53.25]}', '{"coordinates": [9, 54, 12.0]}']
    third, fourth = pp.create_bus(net, 0.4, name="third"), pp.create_bus(net, 0.4)
    pp.create_transformer(net, 1, third, "0.25 MVA 20/0.4 kV", name="T1")
    pp.create_line_from_parameters(net, 1, 0, 1.0, 0.2, 0.3, 0.0, 0.4, name="spare", in_service=False)
    pp.create_line_from_parameters(net, 0, 1, 1.0, 0.2, 0.3, 0.0, 0.4, name="open")
    pp.create_switch(net, 0, 2, et="l", closed=False)
    pp.create_switch(net, 1, 0, et="t", closed=True)
    pp.create_switch(net, third, fourth, et="b", closed=False, name="coupler")
    return net


def test_a_small_net_by_hand(net: Any) -> None:
    sensors = {"bus-0.vm_pu", "bus-3.vm_pu", "line-0.loading", "sgen-0.vm_pu", "sgen-0.p_mw", "storage-0.soc"}
    found = grid_topology(net, sensors, {"line-2.in_service", "sgen-0.q_mvar", "trafo-0.tap_pos"})
    assert found.nodes == (
        Node("bus-0", "first", 8.5, 53.25, "bus", "bus-0.vm_pu"),
        Node("bus-1", "second", 9.0, 54.0, "bus"),
        Node("bus-2", "third", None, None, "bus"),
        Node("bus-3", "", None, None, "bus", "bus-3.vm_pu"),
    )
    assert found.edges == (
        Edge("line-0", "bus-0", "bus-1", "", "line", "line-0.loading"),
        Edge("line-1", "bus-1", "bus-0", "spare", "line", in_service=False),
        Edge("line-2", "bus-0", "bus-1", "open", "line", in_service=False, actuator="line-2.in_service"),
        Edge("trafo-0", "bus-1", "bus-2", "T1", "trafo"),
        Edge("switch-2", "bus-2", "bus-3", "coupler", "switch", in_service=False),
    )
    assert found.devices == (
        Device("ext_grid-0", "bus-0", "", "ext_grid"),
        Device("sgen-0", "bus-1", "", "sgen", ("sgen-0.vm_pu", "sgen-0.p_mw"), ("sgen-0.q_mvar",)),
        Device("storage-0", "bus-1", "", "storage", ("storage-0.soc",)),
        Device("load-0", "bus-1", "", "load"),
    )


@pytest.mark.parametrize(
    "geo", [None, float("nan"), "", "{", "[]", '{"coordinates": [1, "x"]}', '{"coordinates": 1}']
)
def test_a_bus_without_coordinates_has_none(two_bus_net: Any, geo: Any) -> None:
    two_bus_net.bus["geo"] = pd.Series([geo, '{"coordinates": [1, 2]}'], dtype=object)
    places = [(node.x, node.y) for node in grid_topology(two_bus_net, (), ()).nodes]
    assert places == [(None, None), (1.0, 2.0)]


def test_coordinates_of_older_nets_are_in_a_table_of_their_own(two_bus_net: Any) -> None:
    two_bus_net["bus_geodata"] = pd.DataFrame({"x": [3.0], "y": [4.5]}, index=[1])
    places = [(node.x, node.y) for node in grid_topology(two_bus_net, (), ()).nodes]
    assert places == [(None, None), (3.0, 4.5)]


def test_a_transformer_with_three_windings_is_two_edges() -> None:
    net = pp.create_empty_network()
    buses = [pp.create_bus(net, voltage) for voltage in (110.0, 20.0, 10.0)]
    pp.create_transformer3w(net, *buses, "63/25/38 MVA 110/20/10 kV", name="T")
    ends = [(edge.id, edge.source, edge.target) for edge in grid_topology(net, (), ()).edges]
    assert ends == [("trafo3w-0.mv", "bus-0", "bus-1"), ("trafo3w-0.lv", "bus-0", "bus-2")]


def grid_phase(name: str, grid: str, sensor: str, actuator: str, **params: Any) -> Any:
    return document(
        phase(
            [{"environment": {"uid": "grid", "name": name, "params": {"grid": grid, "steps": 2} | params}}],
            [{"name": "a", "muscle": "random", "sensors": [sensor], "actuators": [actuator]}],
            mode="test",
        )
    )


@pytest.mark.parametrize(
    ("grid", "buses", "edges"), [("cigre_mv", 15, 17), ("simbench:1-MV-rural--2-sw", 99, 105)]
)
def test_every_channel_that_is_named_is_recorded(tmp_path: Path, grid: str, buses: int, edges: int) -> None:
    pytest.importorskip("simbench")
    with Store(tmp_path / "results", create=True) as store:
        execute(grid_phase("grid", grid, "grid.bus-0.vm_pu", "grid.load-0.scaling"), store=store)
        found = store.topology("latest", "grid")
        assert found is not None
        assert (len(found.nodes), len(found.edges)) == (buses, edges)
        assert all(node.x is not None and node.y is not None for node in found.nodes)
        channels = store.channels("latest")
        offered = channels[channels["environment"] == "grid"].groupby("kind")["uid"].agg(set)
        columns = set(store.environment_states("latest"))
        named = [node.sensor for node in found.nodes] + [
            edge.sensor for edge in found.edges if edge.kind != "switch"
        ]
        named += [uid for device in found.devices for uid in device.sensors]
        # all that an element has is named: all sensors but whether there is a solution
        assert sorted(named) == sorted(offered["sensor"] - {"grid.grid.converged"})
        assert {f"reading.{uid}" for uid in named} < columns
        acting = [edge.actuator for edge in found.edges if edge.actuator is not None]
        acting += [uid for device in found.devices for uid in device.actuators]
        taps = {uid for uid in offered["actuator"] if uid.endswith("tap_pos")}
        assert sorted(acting) == sorted(offered["actuator"] - taps)


def test_only_the_chosen_channels_are_named() -> None:
    pytest.importorskip("simbench")
    choice = {"sensors": ["bus", "storage.soc"], "actuators": ["sgen"]}
    alone = GridEnvironment("cigre_mv", **choice).setup().topology
    batched = BatchGridEnvironment("cigre_mv", batch=2, **choice).setup().topology
    assert alone is not None and alone == batched
    assert {edge.sensor for edge in alone.edges} == {edge.actuator for edge in alone.edges} == {None}
    assert alone.nodes[3].sensor == "bus-3.vm_pu"
    assert {uid for device in alone.devices for uid in device.sensors} <= {"storage-0.soc", "storage-1.soc"}
    by_kind = {device.kind: device.actuators for device in alone.devices}
    assert by_kind["load"] == () and by_kind["sgen"] == ("sgen-8.q_mvar",)


def test_incarnations_share_a_topology(tmp_path: Path) -> None:
    pytest.importorskip("simbench")
    pytest.importorskip("numba")
    found = grid_phase("batch_grid", "cigre_mv", "grid.0.bus-0.vm_pu", "grid.0.sgen-0.q_mvar", batch=2)
    with Store(tmp_path / "results", create=True) as store:
        execute(found, store=store)
        topology = store.topology("latest", "grid")
        assert topology is not None
        assert topology.nodes[3].sensor == "grid.{body}.bus-3.vm_pu"
        assert f"reading.{topology.nodes[3].sensor}" in store.environment_states("latest")
