"""Many values on many wires: each input has what mosaik's own scheduler gives, in the same order."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import mosaik
import mosaik_api_v3
import pytest

from palaestrai_mosaik.simulation.scheduler import run_world


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


class Values(mosaik_api_v3.Simulator):
    """Gives the numbers of its entities, attributes and times; notes its inputs as they are ordered.

    ``kind``: its type; ``step_size``: 0 for no steps of its own. ``late``: by time, how much later its outputs
    are. ``silent``: by time, entities without outputs.
    """

    notes: list[Any] = []

    def __init__(self) -> None:
        model = {"public": True, "params": [], "attrs": ["a", "b", "x", "y"]}
        super().__init__({"api_version": "3.0", "models": {"E": model}})

    def init(self, sid: str, time_resolution: float = 1.0, kind: str = "time-based", **params: Any) -> Any:
        self.sid, self.params = sid, params
        self.meta["type"] = kind
        if kind == "hybrid":
            self.meta["models"]["E"] |= {"trigger": ["x"], "non-persistent": ["a"]}
        return self.meta

    def create(self, num: int, model: str) -> list[dict[str, Any]]:
        return [{"eid": f"e{i}", "type": model} for i in range(num)]

    def step(self, time: int, inputs: Any, max_advance: int) -> int | None:
        Values.notes.append((self.sid, time, json.dumps(inputs), max_advance))
        self.time = time
        step_size = self.params.get("step_size", 1)
        return time + step_size if step_size else None

    def get_data(self, outputs: Any) -> Any:
        data: dict[str, Any] = {
            eid: {attr: f"{self.sid} {eid} {attr} {self.time}" for attr in attrs}
            for eid, attrs in outputs.items()
            if eid not in self.params.get("silent", {}).get(self.time, ())
        }
        if self.time in self.params.get("late", {}):
            data["time"] = self.time + self.params["late"][self.time]
        return data


def notes(build: Callable[[mosaik.World], None], scheduler: str, **how: Any) -> list[Any]:
    Values.notes = []
    world = mosaik.World(
        {"V": {"python": f"{__name__}:Values"}}, skip_greetings=True, configure_logging=False, **how
    )
    try:
        build(world)
        run_world(world, until=12, scheduler=scheduler, print_progress=False)
    finally:
        if not world.loop.is_closed():
            world.shutdown()
    # (who of several goes first at one time, mosaik leaves open)
    return sorted(Values.notes, key=lambda note: note[:2])


def delays_of_several_lengths(world: mosaik.World) -> None:
    """Events for now come after events for later have been sent, to the same port and to others."""
    source = world.start("V", sim_id="source", kind="event-based", late={2: 3, 4: 1}).E.create(3)
    beside = world.start("V", sim_id="beside", kind="event-based", step_size=2).E.create(2)
    sink = world.start("V", sim_id="sink", kind="event-based", step_size=0).E.create(2)
    for i, entity in enumerate(source):
        world.connect_one(entity, sink[0], "a", "x", time_shifted=3 * i)
        world.connect_one(entity, sink[1], "b", "y", time_shifted=2 - i)
        world.connect_one(entity, sink[i % 2], "a", "y", transform=lambda value: f"<{value}>")
    for entity in beside:
        world.connect_one(entity, sink[0], "a", "x")
        world.connect_one(entity, sink[1], "b", "a", time_shifted=5)
    world.set_initial_event("source")
    world.set_initial_event("beside")


def several_attributes(world: mosaik.World) -> None:
    """Entities with one input and with several, from one source and from several."""
    one, two = (world.start("V", sim_id=name).E.create(2) for name in ("one", "two"))
    sink = world.start("V", sim_id="sink").E.create(3)
    world.connect_one(one[0], sink[1], "a", "y")
    world.connect_one(two[1], sink[0], "b", "x")
    world.connect_one(one[1], sink[1], "b", "x", transform=str.upper)
    world.connect_one(two[0], sink[1], "a", "x")
    world.connect_one(one[0], sink[2], "a", "x")
    world.connect_one(sink[0], one[1], "a", "x", time_shifted=1, initial_data="begin")
    world.connect_one(sink[2], one[1], "b", "y", time_shifted=2, initial_data="begin")


def events_and_what_persists(world: mosaik.World) -> None:
    """Inputs that are fetched, and others that are sent, of the same simulator."""
    source = world.start("V", sim_id="source", kind="hybrid", silent={3: ["e0"], 4: ["e0"]}).E.create(2)
    sink = world.start("V", sim_id="sink", kind="hybrid", step_size=3).E.create(2)
    for entity in source:
        world.connect_one(entity, sink[0], "a", "x")
        world.connect_one(entity, sink[1], "b", "y")
        world.connect_one(entity, sink[0], "b", "b")
        world.connect_one(entity, sink[1], "a", "x", time_shifted=4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("build", [delays_of_several_lengths, several_attributes, events_and_what_persists])
def test_every_input_is_what_mosaik_gives(build: Callable[[mosaik.World], None], cache: bool) -> None:
    theirs = notes(build, "mosaik", cache=cache)
    assert notes(build, "direct", cache=cache) == theirs
    assert len([note for note in theirs if note[0] == "sink" and len(note[2]) > 60]) >= 4
