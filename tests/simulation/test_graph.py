"""Pictures of worlds: what is in the graph, and that thousands of entities fit a page."""

import asyncio
from pathlib import Path
from xml.etree import ElementTree

import networkx as nx
import pytest
from support.processes import children
from support.simulators import SIMULATORS

from palaestrai_mosaik.core.errors import ContractError, PalaestraiMosaikError
from palaestrai_mosaik.experiment import from_mapping, load
from palaestrai_mosaik.simulation.world_graph import draw_graph, graph_text, summary, world_graph

ROOT = Path(__file__).parents[2]
DUMMY = ROOT / "scenarios" / "dummy.yml"

DUMMY_TEXT = """\
world of phase 0 'train' (vanilla)
4 simulators, 4 entities, 5 connections

0-myenv: environment 'myenv', palaestrai_mosaik.environment.dummy:DummyEnvironment
  myenv [Environment]
    --> coordinator  state

coordinator: the agents' coordinator
  coordinator [EpisodeCoordinator]
    --> agent-0.mighty_defender  newest states (5 values)
    --> agent-1.evil_attacker    newest states (5 values)

agent-0: agent 'mighty_defender', palaestrai_mosaik.agent.library.dummy:DummyMuscle
  mighty_defender [Agent]
    reads myenv.*: 5
    sets myenv.*: 5
    ..> 0-myenv.myenv  setpoints (5 values)

agent-1: agent 'evil_attacker', palaestrai_mosaik.agent.library.dummy:DummyMuscle
  evil_attacker [Agent]
    reads myenv.*: 5
    sets myenv.*: 5
    ..> 0-myenv.myenv  setpoints (5 values)

--> arrives at the same time    ..> time-shifted: arrives at the next step
"""


def coupled(count=2, starter=None, sensor="soc"):
    """Return a document: a constant drives the first of some batteries, an agent the second."""
    params = {
        "step_size": 900,
        "end": 1800,
        "simulators": {
            "storage": starter or {"python": "battery_sim:BatterySimulator"},
            "wishes": {"python": "mosaik.basic_simulators:InputSimulator", "params": {"step_size": 900}},
        },
        "entities": [
            {"uid": "battery", "simulator": "storage", "model": "Battery", "count": count},
            {"uid": "charge", "simulator": "wishes", "model": "Constant", "params": {"constant": 0.5}},
        ],
        "connections": [{"from": "charge", "to": "battery-0", "attributes": [["value", "P_set"]]}],
        "sensors": [
            {"entity": f"battery-{i}", "attribute": "soc", "space": "Box(0, 1, ())"} for i in range(count)
        ],
        "actuators": [{"entity": "battery-1", "attribute": "P_set", "space": "Box(-1, 1, ())", "value": 0.0}],
    }
    name = "palaestrai_mosaik.environment.described:DescribedCoSimulation"
    agent = {
        "name": "keeper",
        "muscle": {"name": "palaestrai_mosaik.agent.library.dummy:DummyMuscle", "params": {}},
        "sensors": [f"net.battery-{i}.{sensor}" for i in range(count)],
        "actuators": ["net.battery-1.P_set"],
    }
    phase = {
        "environments": [{"environment": {"uid": "net", "name": name, "params": params}}],
        "agents": [agent],
        "simulation": {"name": "palaestrai_mosaik.simulation:Vanilla", "conditions": []},
        "phase_config": {"mode": "test", "worker": 1, "episodes": 1},
    }
    condition = "palaestrai_mosaik.simulation.conditions:MaxEpisodesTerminationCondition"
    return from_mapping(
        {
            "uid": "coupled",
            "seed": 1,
            "version": "3.5",
            "schedule": [{"only": phase}],
            "run_config": {"condition": {"name": condition, "params": {}}},
        }
    )


def edges(graph):
    """Return (source, target, attribute there, attribute here, shifted, values) of all edges."""
    return {
        (a, b, d["source"], d["target"], d["time_shifted"], d["values"]) for a, b, d in graph.edges(data=True)
    }


def test_the_graph_has_what_mosaik_connects():
    env, coordinator = "0-myenv.myenv", "coordinator.@coordinator"
    first, second = "agent-0.mighty_defender", "agent-1.evil_attacker"
    assert edges(world_graph(load(DUMMY))) == {
        (env, coordinator, "state", "myenv.state", False, None),
        (coordinator, first, "mighty_defender", "@states", False, 5),
        (coordinator, second, "evil_attacker", "@states", False, 5),
        (first, env, "0-myenv.setpoints", "setpoints", True, 5),
        (second, env, "0-myenv.setpoints", "setpoints", True, 5),
    }


def test_a_phase_is_found_by_name_and_by_number():
    document = load(DUMMY)
    by_name, by_number = world_graph(document, "test"), world_graph(document, 1)
    assert by_name.graph["title"] == by_number.graph["title"] == "world of phase 1 'test' (taking_turns)"
    with pytest.raises(PalaestraiMosaikError, match="did you mean 'test'"):
        world_graph(document, "tset")


def test_the_text_tells_all_of_it():
    assert graph_text(world_graph(load(DUMMY))) == DUMMY_TEXT


def test_third_party_entities_have_the_names_of_the_document():
    graph = world_graph(coupled())
    names = {data["entity"]: (data["simulator"], data["model"]) for _, data in graph.nodes(data=True)}
    assert names == {
        "battery-0": ("0-net-storage", "Battery"),
        "battery-1": ("0-net-storage", "Battery"),
        "charge": ("0-net-wishes", "Constant"),
        "coordinator": ("coordinator", "EpisodeCoordinator"),
        "keeper": ("agent-0", "Agent"),
    }
    flows = {(f.source, f.target, f.time_shifted): f.label for f in summary(graph).flows}
    assert flows["0-net-wishes.Constant-0", "0-net-storage.Battery_0", False] == "value → P_set"
    assert flows["agent-0.keeper", "0-net-storage.Battery_1", True] == "P_set"
    assert flows["0-net-storage.Battery_1", "coordinator.@coordinator", False] == "soc"
    assert flows["coordinator.@coordinator", "agent-0.keeper", False] == "newest states (2 values)"


def test_columns_of_the_picture_are_the_order_of_steps_within_one_time():
    ranks = {box.simulator: box.rank for box in summary(world_graph(coupled())).boxes}
    assert ranks == {"0-net-wishes": 0, "0-net-storage": 1, "coordinator": 2, "agent-0": 3}


def test_every_agent_is_a_simulator_of_its_own():
    graph = world_graph(coupled())
    assert graph.graph["simulators"]["coordinator"] == "the agents' coordinator"
    assert graph.graph["simulators"]["agent-0"].startswith("agent 'keeper'")


def test_many_entities_and_connections_become_one_row_and_one_arrow(tmp_path):
    graph = world_graph(coupled(count=300))
    assert graph.number_of_nodes() == 303
    picture = summary(graph)
    (storage,) = [box for box in picture.boxes if box.simulator == "0-net-storage"]
    assert [row.label for row in storage.rows] == ["Battery x 300  (battery-0, ..., battery-299)"]
    flows = {(f.source, f.target): f.label for f in picture.flows}
    assert flows["0-net-storage/Battery", "coordinator.@coordinator"] == "soc (300 connections)"
    assert flows["coordinator.@coordinator", "agent-0.keeper"] == "newest states (300 values)"
    text = graph_text(graph)
    assert "303 entities" in text
    assert len(text.split("\n")) < 25


def test_remote_simulators_are_started_and_ended(tmp_path):
    starter = {"cmd": f"%(python)s {SIMULATORS / 'battery_sim.py'} %(addr)s"}
    before = children()
    graph = world_graph(coupled(starter=starter))
    assert "battery_sim.py" in graph.graph["simulators"]["0-net-storage"]
    assert children() == before


def test_environments_are_shut_down(monkeypatch):
    from palaestrai_mosaik.environment.dummy import DummyEnvironment

    closed = []
    monkeypatch.setattr(DummyEnvironment, "shutdown", lambda self: closed.append(self.uid))
    world_graph(load(DUMMY))
    assert closed == ["myenv"]


def test_a_notebook_can_draw_a_world():
    """Its cells run below an event loop."""

    async def cell():
        return graph_text(world_graph(load(DUMMY)))

    assert asyncio.run(cell()) == DUMMY_TEXT


def test_unknown_sensors_are_an_error():
    with pytest.raises(ContractError, match=r"net\.battery-0\.sco"):
        world_graph(coupled(sensor="sco"))


@pytest.mark.parametrize(("ending", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_pictures_are_files_of_their_format(tmp_path, ending, start):
    path = tmp_path / f"world{ending}"
    draw_graph(world_graph(load(DUMMY)), path)
    assert path.read_bytes().startswith(start)


def test_the_same_world_gives_the_same_drawing(tmp_path):
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    draw_graph(world_graph(coupled()), first)
    draw_graph(world_graph(coupled()), second)
    assert ElementTree.parse(first).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert first.read_bytes() == second.read_bytes()


def test_an_unknown_format_and_an_unwritable_file_are_clear_errors(tmp_path):
    graph = world_graph(load(DUMMY))
    with pytest.raises(PalaestraiMosaikError, match=r"must end with \.svg, \.png, \.pdf"):
        draw_graph(graph, tmp_path / "world.bmp")
    with pytest.raises(PalaestraiMosaikError, match="cannot write"):
        draw_graph(graph, tmp_path / "nowhere" / "world.svg")


def test_drawing_leaves_matplotlib_as_it_is(tmp_path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    draw_graph(world_graph(load(DUMMY)), tmp_path / "world.png")
    assert dict(mpl.rcParams) == before


def test_what_reaches_a_few_of_many_entities_is_not_drawn_to_all():
    graph = nx.MultiDiGraph(title="world", simulators={"houses": "x", "grid": "y"})
    for i in range(2):
        graph.add_node(f"houses.{i}", simulator="houses", entity=f"house-{i}", model="House")
    for i in range(18):
        graph.add_node(f"grid.{i}", simulator="grid", entity=f"load-{i}", model="Load")

    def connect(source, target):
        names = {"source": "p", "target": "p", "time_shifted": False, "values": None}
        graph.add_edge(f"houses.{source}", f"grid.{target}", **names)

    connect(0, 3)
    connect(1, 5)
    text = graph_text(graph)
    assert "--> grid.load-3  p" in text and "--> grid.load-5  p" in text
    assert "16 other Load  (load-0, ..., load-17)" in text and "Load x 18" not in text
    for i in range(8, 18):
        connect(0, i)
    assert "--> grid.Load x 18  p (11 connections) to 11 of 18" in graph_text(graph)
    assert "--> grid.Load x 18  p to 1 of 18" in graph_text(graph)
