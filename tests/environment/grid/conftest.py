"""What the tests of the grid share: small nets, and a bare mosaik world around a plan."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import mosaik
import mosaik_api_v3
import pytest

from palaestrai_mosaik.environment.cosimulation import CoSimulation

pp = pytest.importorskip("pandapower", reason="the extra 'grid' is not installed")

Answer = Callable[[int, dict[str, Any]], Mapping[str, Any]]


class _Agent(mosaik_api_v3.Simulator):
    """Records what it sees at every tick and answers with set-points."""

    def __init__(self, attributes: Sequence[str], answer: Answer):
        model = {"public": True, "params": [], "attrs": list(attributes)}
        super().__init__({"api_version": "3.0", "type": "hybrid", "models": {"Agent": model}})
        self.answer = answer
        self.trace: list[dict[str, Any]] = []

    def create(self, num: int, model: str) -> list[dict[str, Any]]:
        return [{"eid": "agent", "type": model}]

    def step(self, time: int, inputs: dict[str, Any], max_advance: int) -> int:
        seen = {name: next(iter(values.values())) for name, values in inputs["agent"].items()}
        self.trace.append(seen)
        self.setpoints = self.answer(time, seen)
        return time + 1

    def get_data(self, outputs: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
        return {"agent": {name: self.setpoints[name] for name in outputs["agent"]}}


class _HandedOver(ModuleType):
    """A module for mosaik to import whose "class" is the simulator that was put aside."""

    waiting: list[Any] = []

    def simulator(self) -> Any:
        return self.waiting.pop()


sys.modules["grid_tests_handed_over"] = _HandedOver("grid_tests_handed_over")


def _run_plan(
    environment: CoSimulation,
    ticks: int,
    initial: Mapping[str, Any] | None = None,
    answer: Answer | None = None,
) -> list[dict[str, Any]]:
    """Run the plan of ``environment`` in a plain mosaik world with one agent.

    The agent sees every attribute of which a part is a sensor, under the name
    ``Entity.attribute``, and gives set-points to the attributes in ``initial``
    (``Entity.attribute`` -> what holds at tick 0). Returns what it saw, tick by tick.
    """
    environment.reset()
    plan = environment.plan()
    starter = {"any": {"python": "grid_tests_handed_over:simulator"}}
    world = mosaik.World(starter, configure_logging=False, skip_greetings=True)

    def start(sid: str, simulator: Any) -> Any:
        _HandedOver.waiting.append(simulator)
        return world.start("any", sim_id=sid)

    try:
        factories = {spec.uid: start(spec.uid, spec.factory()) for spec in plan.simulators}
        entities = {e.uid: getattr(factories[e.simulator], e.model)(**e.params) for e in plan.entities}
        for connection in plan.connections:
            shifted = {}
            if connection.time_shifted:
                shifted = {"time_shifted": True, "initial_data": dict(connection.initial)}
            for pair in connection.attributes:
                world.connect(entities[connection.source], entities[connection.target], pair, **shifted)
        seen = list(dict.fromkeys((port.entity, port.attribute) for port in plan.sensors))
        initial = initial or {}
        names = [f"{entity}.{attribute}" for entity, attribute in seen]
        agent = _Agent([*names, *initial], answer or (lambda time, seen: {}))
        body = start("agents", agent).Agent()
        for (entity, attribute), name in zip(seen, names, strict=True):
            world.connect(entities[entity], body, (attribute, name))
        for name, value in initial.items():
            entity, attribute = name.split(".")
            world.connect(
                body, entities[entity], (name, attribute), time_shifted=True, initial_data={name: value}
            )
        world.run(until=ticks, print_progress=False)
    finally:
        world.shutdown()
    return agent.trace


@pytest.fixture
def two_bus_net() -> Any:
    """20 kV slack, a 10 km line, a load, an inverter and a storage at its end."""
    net = pp.create_empty_network()
    first, second = pp.create_bus(net, 20.0), pp.create_bus(net, 20.0)
    pp.create_ext_grid(net, first)
    pp.create_line_from_parameters(net, first, second, 10.0, 0.2, 0.3, 0.0, 0.4)
    pp.create_load(net, second, 2.0, 0.5)
    pp.create_sgen(net, second, 1.0, sn_mva=1.25)
    pp.create_storage(net, second, 0.0, max_e_mwh=1.0, sn_mva=0.5)
    return net


@pytest.fixture
def hand_over() -> Callable[[Any], dict[str, str]]:
    """Make mosaik start this very simulator: gives what stands for it in ``sim_config``."""

    def prepare(simulator: Any) -> dict[str, str]:
        _HandedOver.waiting.append(simulator)
        return {"python": "grid_tests_handed_over:simulator"}

    return prepare


@pytest.fixture
def run_plan() -> Callable[..., list[dict[str, Any]]]:
    return _run_plan
