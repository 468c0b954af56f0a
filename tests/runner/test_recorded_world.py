"""The world of a phase is recorded as it was built, and kept once for all runs that have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import sqlalchemy as sa
from support.documents import agent, document, environment, phase

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.experiment import RunDocument, load
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.simulation.world_graph import MOST, graph_data, world_data, world_graph
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.merge import delete_runs
from palaestrai_mosaik.store.models import Description
from palaestrai_mosaik.store.verify import verify

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def counted(data: dict[str, Any]) -> dict[str, Any]:
    """Return what ``graph`` says with the keys that a record has in addition."""
    for simulator in data["simulators"]:
        for entity in simulator["entities"]:
            entity["count"] = 1
    return data | {"summarised": False, "left_out": {"simulators": 0, "connections": 0}}


def descriptions(store: Store) -> int:
    with store.database.reading() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(Description)) or 0


def test_it_is_the_world_that_graph_draws(tmp_path: Path) -> None:
    found = load(SCENARIOS / "dummy.yml")
    with Store(tmp_path / "results", create=True) as store:
        execute(found, store=store)
        for number, name in enumerate(("train", "test")):
            wanted = counted(graph_data(world_graph(found, number)))
            assert store.world("dummy", number) == store.world("dummy", name) == wanted
        assert store.world("dummy") == store.world("dummy", "test")
        # another run has the same worlds
        execute(found, store=store)
        assert descriptions(store) == 2
        store.export("latest", tmp_path / "out")
        exported = json.loads((tmp_path / "out" / "worlds.json").read_text())
        assert [(one["phase"], one["world"]) for one in exported] == [
            (number, store.world("latest", number)) for number in (0, 1)
        ]
        first, second = store.runs()["run"]
        assert not verify(store, first).damage
        delete_runs(store, [first])
        assert store.world(second) is not None and descriptions(store) == 2
        delete_runs(store, [second])
        assert descriptions(store) == 0


def test_co_simulations_have_their_simulators(tmp_path: Path) -> None:
    pytest.importorskip("simbench")
    found = load(SCENARIOS / "cigre_mv_day.yml")
    with Store(tmp_path, create=True) as store:
        execute(found, store=store)
        for spec in found.phases:
            assert store.world("latest", spec.index) == counted(graph_data(world_graph(found, spec.index)))


def walking(**keys: Any) -> RunDocument:
    return document(phase([environment(max_iter=2)], [agent()], episodes=2, **keys))


def test_workers_in_processes_record_the_world_of_the_first(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        execute(walking(workers=2), store=store)
        execute(walking(), store=store)
        first, second = store.runs()["run"]
        assert store.world(first) == store.world(second) is not None
        assert descriptions(store) == 1


def test_a_phase_of_which_no_world_is_known_has_none(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        execute(walking(), store=store)
        with store.database.writing() as session:
            session.execute(sa.text("UPDATE phases SET world_id = NULL"))
        assert store.world("latest") is None
        with pytest.raises(StoreError, match="has no phase 'trian'"):
            store.world("latest", "trian")


def many(simulators: int, entities: int) -> nx.MultiDiGraph:
    """A world of simulators that each send from all of their entities to all of the next one."""
    graph = nx.MultiDiGraph(title="a large world")
    graph.graph["simulators"] = {f"sim-{s}": f"simulator {s}" for s in range(simulators)}
    for s in range(simulators):
        for e in range(entities):
            graph.add_node(f"sim-{s}.e{e}", simulator=f"sim-{s}", entity=f"e{e}", model="Model")
    for s in range(simulators - 1):
        for e in range(entities):
            graph.add_edge(
                f"sim-{s}.e{e}", f"sim-{s + 1}.e{e}", source="p", target="p", time_shifted=False, values=None
            )
    return graph


def test_a_large_world_is_summarised() -> None:
    found = world_data(many(3, 500))
    assert found["summarised"] and len(json.dumps(found)) < 1500
    assert found["simulators"][1] == {
        "simulator": "sim-1",
        "what": "simulator 1",
        "entities": [{"entity": "Model x 500", "model": "Model", "count": 500}],
    }
    assert found["connections"][0] == {
        "source": {"simulator": "sim-0", "entity": "Model x 500"},
        "target": {"simulator": "sim-1", "entity": "Model x 500"},
        **{"data": "p (500 connections)", "time_shifted": False, "values": None},
    }
    assert len(found["connections"]) == 2
    assert found["left_out"] == {"simulators": 0, "connections": 0}


@pytest.mark.parametrize("simulators", [60, 2000])
def test_what_has_no_room_is_counted(simulators: int) -> None:
    found = world_data(many(simulators, 1))
    assert len(json.dumps(found, separators=(",", ":"))) <= MOST
    assert min(found["left_out"].values()) > 0
    assert len(found["simulators"]) + found["left_out"]["simulators"] == simulators
    assert len(found["connections"]) + found["left_out"]["connections"] == simulators - 1
    there = {one["simulator"] for one in found["simulators"]}
    for one in found["connections"]:
        assert {one["source"]["simulator"], one["target"]["simulator"]} <= there
