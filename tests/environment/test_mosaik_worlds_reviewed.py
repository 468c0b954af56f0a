"""Worlds made for palaestrai-mosaik: what they see of each other, and how building them may fail."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import mosaik
import mosaik_api_v3
import numpy as np
import pytest
from support.engine import make_coordinator, run_episodes
from support.processes import children
from support.waiting import HANG

from palaestrai_mosaik import MosaikEnvironment
from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.core.errors import ContractError, SimulationError, SimulatorError, SpaceError
from palaestrai_mosaik.environment.cosimulation import (
    ActuatorPort,
    CoSimulation,
    CoSimulationPlan,
    EntitySpec,
    SensorPort,
    SimulatorSpec,
)
from palaestrai_mosaik.environment.environment import EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.interop.palaestrai import mosaik_environment
from palaestrai_mosaik.simulation.episode import Episode
from palaestrai_mosaik.types import ActuatorInformation, Box, SensorInformation, Space

#: what the simulators got and were told; who was finalized; what `get_world` and `describe` do
LOG: list[Any] = []
ENDED: list[str] = []
DO: dict[str, Any] = {}

NUMBER = "Box(-1000, 1000, (), np.float64)"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    for log in (LOG, ENDED, DO):
        log.clear()


class Tank(mosaik_api_v3.Simulator):
    """Adds up all that it gets."""

    kind = "time-based"

    def __init__(self) -> None:
        model = {"public": True, "params": ["x"], "attrs": ["x", "u", "more"]}
        super().__init__({"api_version": "3.0", "type": self.kind, "models": {"Tank": model}})

    def init(self, sid: str, time_resolution: float = 1.0, **params: Any) -> Any:
        self.sid = sid
        LOG.append((sid, time_resolution))
        return self.meta

    def create(self, num: int, model: str, **params: Any) -> Any:
        self.x = params.get("x", 0.0)
        return [{"eid": "e", "type": model}]

    def step(self, time: int, inputs: Any, max_advance: int) -> int:
        given = inputs.get("e", {})
        LOG.append((time, given))
        for values in given.values():
            self.x += sum(value or 0.0 for value in values.values())
        return time + 1

    def get_data(self, outputs: Any) -> Any:
        return {"e": {"x": self.x}}

    def finalize(self) -> None:
        ENDED.append(self.sid)


class Hybrid(Tank):
    """The same, also triggered by what it gets."""

    kind = "hybrid"

    def __init__(self) -> None:
        super().__init__()
        self.meta["models"]["Tank"] |= {"trigger": ["u"]}


class Control(Tank):
    """Asks mosaik for its tank, by the id that it knows, and gives it ten."""

    def step(self, time: int, inputs: Any, max_advance: int) -> Any:
        (source,) = inputs["e"]["u"]
        related = yield self.mosaik.get_related_entities(f"{self.sid}.e")
        everything = yield self.mosaik.get_related_entities(None)
        data = yield self.mosaik.get_data({"Tank-0.e": ["x"]})  # type: ignore[dict-item]
        LOG.append((source, sorted(related), sorted(everything["nodes"]), data["Tank-0.e"]["x"]))
        yield self.mosaik.set_data({f"{self.sid}.e": {"Tank-0.e": {"more": 10.0}}})
        return time + 1


CONFIG: dict[str, Any] = {name: {"python": f"{__name__}:{name}"} for name in ("Tank", "Hybrid", "Control")}


class MyWorld(mosaik.AsyncWorld):
    """A world with something of the user's own."""

    def __init__(self, mine: Any, **arguments: Any) -> None:
        super().__init__(CONFIG, **arguments)
        self.mine = mine


def describe(params: dict[str, Any]) -> Any:
    kind = params.get("kind", "Tank")
    sensors = DO.get("sensors", [{"uid": f"{kind}-0.e.x", "space": params.get("space", NUMBER)}])
    value = params.get("value")
    return sensors, [{"uid": f"{kind}-0.e.u", "space": "Box(-5, 5, (), np.float64)", "value": value}]


async def get_world(params: dict[str, Any]) -> Any:
    kind = params.get("kind", "Tank")
    world = MyWorld(params.get("mine"), time_resolution=params.get("resolution", 1.0))
    tank = await (await world.start(kind)).Tank(x=params.get("x", 0.0))
    entities = {tank.full_id: tank}
    if params.get("control"):
        control = await (await world.start("Control")).Tank()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            world.connect(tank, control, ("x", "u"), async_requests=True)
    return DO["then"](world, entities) if "then" in DO else (world, entities)


def get_world_in_a_thread(params: dict[str, Any]) -> Any:
    DO["hang"].wait(2 * HANG)


class Fixed(Muscle):
    """Sets a half; ``seen`` are the vectors that it saw."""

    def __init__(self) -> None:
        self.seen: list[list[float]] = []

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        self.seen.append(sensors.vector.tolist())
        for actuator in actuators_available:
            actuator.value = 0.5
        return actuators_available, None


def world(uid: str = "w", **params: Any) -> MosaikEnvironment:
    more: dict[str, Any] = {
        key: params.pop(key) for key in ("instance_func", "simulation_timeout", "end") if key in params
    }
    given: dict[str, Any] = {"module": __name__, "arl_sync_freq": 1, "end": 2, "params": params, **more}
    given = {"description_func": "describe", "instance_func": "get_world", **given}
    found = MosaikEnvironment(**given)
    found.uid = uid
    return found


def seen_of(*environments: Any, episodes: int = 1) -> list[list[float]]:
    muscle = Fixed()
    sensors, actuators = [], []
    for one in environments:
        baseline = one.setup()
        sensors += [f"{one.uid}.{s.uid}" for s in baseline.sensors]
        actuators += [f"{one.uid}.{a.uid}" for a in baseline.actuators]
    run_episodes(make_coordinator(list(environments), [("a", muscle, None, sensors, actuators)]), episodes)
    return muscle.seen


class Group(CoSimulation):
    """One tank, as a co-simulation of ours."""

    uid, step_size = "co", 1

    def setup(self) -> EnvironmentBaseline:
        self.sensor = SensorInformation(0.0, Box(-9, 999, ()), "x")
        self.actuator = ActuatorInformation(2.0, Box(-5, 5, ()), "u")
        return EnvironmentBaseline([self.sensor], [self.actuator], [], None, None)

    def plan(self) -> CoSimulationPlan:
        return CoSimulationPlan(
            [SimulatorSpec("s", python=f"{__name__}:Hybrid")],
            [EntitySpec("e", "s", "Tank")],
            [],
            [SensorPort(self.sensor, "e", "x")],
            [ActuatorPort(self.actuator, "e", "u")],
        )

    def judge(self, time: int, readings: Any) -> EnvironmentState:
        return EnvironmentState(readings, np.empty(0), False, time >= 1)


def test_simulators_of_two_worlds_know_their_own_only() -> None:
    """Both have a Tank-0 and a Control-0; each control asks for its tank and adds ten to it."""
    alone = [seen_of(world("p", x=x, control=True)) for x in (0.0, 100.0)]
    assert alone[0] == [[0.0], [10.5]]
    asked = [entry for entry in LOG if len(entry) == 4]
    LOG.clear()
    together = seen_of(world("p", control=True), world("q", x=100.0, control=True))
    assert together == [a + b for a, b in zip(*alone, strict=True)]
    both = [entry for entry in LOG if len(entry) == 4]
    assert sorted(both) == sorted(asked)
    assert both[0][:3] == (
        "Tank-0.e",
        ["Tank-0.e"],
        ["Control-0.e", "Tank-0.e", "agent-0.a", "coordinator.@coordinator"],
    )
    sources = {
        source
        for entry in LOG
        if len(entry) == 2 and isinstance(entry[1], dict)
        for source in entry[1].get("more", ())
    }
    assert sources == {"Control-0.e"}


@pytest.mark.parametrize("first", [0, 1])
def test_ticks_of_another_length_beside_simulators_of_another_environment(first: int) -> None:
    environments = [Group(), world(resolution=60.0)]
    with pytest.raises(ContractError, match=r"'w' has a world with .* of 60 s, environment 'co' one of 1 s"):
        seen_of(environments[first], environments[1 - first])
    ENDED.clear()
    seen_of(Group(), world())
    assert sorted(ENDED) == ["0-co-s", "Tank-0"]


@pytest.mark.parametrize(
    ("space", "value", "reading"),
    [
        ("Discrete(3)", -1.7, -1.0),
        ("Box(0, 255, (), np.uint8)", 255.9, 255.0),
        ("Box(0, 255, (), np.uint8)", 256, r"256 is no reading of sensor 'a\.b\.c'.* from 0 to 255"),
        ("Box(0, 255, (), np.uint8)", -1, "from 0 to 255"),
        ("Discrete(3)", np.inf, "inf is no reading"),
        ("Box(0, 10, (), np.int64)", 2.0**63, "from -9223372036854775808 to 9223372036854775807"),
        ("Box(0, 10, (), np.int64)", np.nan, np.nan),
        ("MultiDiscrete([3, 3])", [np.nan, 2.5], [np.nan, 2.0]),
        ("Box(0, 1, (2,), np.float64)", [1.0, 2.0, 3.0], r"it has shape \(3,\)"),
        ("Box(0, 1, (), np.float64)", 1 + 2j, "type complex128"),
        ("Tuple(Discrete(2), Box(0, 1, (1,)))", None, [np.nan, np.nan]),
        ("Tuple(Discrete(2), Box(0, 1, (1,)))", (True, [0.5]), [1.0, 0.5]),
        ("Tuple(Discrete(2), Box(0, 1, (1,)))", (1, [0.5], 2), r"sensor 'a\.b\.c'.* 2 values are needed"),
        ("Tuple(Discrete(2), Box(0, 1, (1,)))", (np.inf, [0.5]), r"inf is no reading of sensor 'a\.b\.c'"),
    ],
)
def test_values_that_a_space_cannot_hold(space: str, value: Any, reading: Any) -> None:
    found = Space.from_string(space)
    convert = mosaik_environment.readable(found, "a.b.c")
    if isinstance(reading, str):
        with pytest.raises(ContractError, match=reading):
            convert(value)
    else:
        np.testing.assert_array_equal(found.flatten(convert(value)), np.atleast_1d(reading))


def test_a_value_holds_until_an_agent_acts_also_where_it_triggers() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert seen_of(world(kind="Hybrid", value=2.0)) == [[2.0], [2.5]]
        assert seen_of(Group())[0] == [2.0]
        LOG.clear()
        seen_of(world(kind="Hybrid"))
    assert LOG[1] == (0, {"u": {"agent-0.a": None}})


def test_what_a_user_adds_to_a_world_stays_its_own() -> None:
    made: list[Any] = []

    def keep(one: Any, entities: Any) -> Any:
        made.append(one)
        return one, entities

    DO["then"] = keep
    seen_of(world("p", mine=1), world("q", mine=2))
    assert [one.mine for one in made] == [1, 2]
    made[0].mine = 3
    assert [one.mine for one in made] == [3, 2]
    assert all(isinstance(one, MyWorld) for one in made)
    # all else is that of the one world that runs
    assert made[0].until == made[1].until
    assert set(made[0].entity_graph) == {"Tank-0.e", "q-Tank-0.e", "agent-0.a", "coordinator.@coordinator"}


def _late(one: Any, entities: Any) -> Any:
    raise ValueError("late")


def _cancels(one: Any, entities: Any) -> Any:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("then", "kind", "message"),
    [
        (_late, ValueError, "late"),
        (_cancels, SimulationError, r"instance function of environment 'w' raised CancelledError"),
        (lambda one, entities: one, ContractError, r"must return \(world, entities\)"),
        (lambda one, entities: (one, {}), ContractError, "has given no entity 'Tank-0.e'"),
        (
            lambda one, entities: (one, {"Tank-0.e": "Tank-0.e"}),
            ContractError,
            "is no entity of its world: 'Tank-0.e'",
        ),
        (
            lambda one, entities: (MyWorld(None), entities),
            ContractError,
            r"given as 'Tank-0\.e' is no entity of its world",
        ),
    ],
)
def test_what_was_started_is_ended_where_a_world_cannot_be_built(then: Any, kind: Any, message: str) -> None:
    DO["then"] = then
    with warnings.catch_warnings(record=True) as told, pytest.raises(kind, match=message):
        seen_of(world())
    gc.collect()
    assert ENDED == ["Tank-0"]
    assert not [one for one in told if "never shut down" in str(one.message)]


REMOTE = """
import os, time
import mosaik_api_v3
class Remote(mosaik_api_v3.Simulator):
    def __init__(self):
        model = {"public": True, "params": ["x"], "attrs": ["x", "u"]}
        super().__init__({"api_version": "3.0", "type": "time-based", "models": {"Tank": model}})
    def create(self, num, model, x):
        if x == "hang": time.sleep(3600)
        if x == "exit": os._exit(3)
        raise ValueError("boom")
mosaik_api_v3.start_simulation(Remote())
"""


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "remote.py").write_text(REMOTE, encoding="utf-8")
    starter = {"cmd": f"%(python)s {tmp_path / 'remote.py'} %(addr)s", "posix": True}
    monkeypatch.setitem(CONFIG, "Tank", starter)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("hang", "'Tank-0' has not answered for 4 s, while the instance function of environment 'w' built"),
        ("raise", r"simulator 'Tank(-0)?' raised ValueError: boom\n"),
        ("exit", "simulator 'Tank-0' closed its connection"),
    ],
)
def test_a_simulator_in_another_process_fails_while_the_world_is_built(
    remote: None, how: str, message: str
) -> None:
    before = children()
    with pytest.raises(SimulatorError, match=message):
        seen_of(world(x=how, simulation_timeout=4 if how == "hang" else HANG))
    assert children() == before


@pytest.mark.parametrize("where", ["process", "thread"])
def test_the_user_may_end_the_building(request: pytest.FixtureRequest, where: str) -> None:
    if where == "process":
        request.getfixturevalue("remote")
    DO["hang"] = threading.Event()
    environment = world(
        x="hang", instance_func="get_world" if where == "process" else "get_world_in_a_thread"
    )
    coordinator = make_coordinator([environment], [("a", Fixed(), None, ["w.Tank-0.e.x"], ["w.Tank-0.e.u"])])
    started = time.monotonic()
    loop = asyncio.new_event_loop()
    try:
        wants_end = lambda: time.monotonic() > started + 1  # noqa: E731
        Episode(coordinator, 0, 0, 42, ("phase",), wants_end=wants_end).run(loop)
    finally:
        loop.close()
        DO["hang"].set()
    assert time.monotonic() < started + HANG
    assert not coordinator.over


def test_a_description_is_the_same_in_every_episode() -> None:
    environment = world()
    coordinator = make_coordinator([environment], [("a", Fixed(), None, ["w.Tank-0.e.x"], ["w.Tank-0.e.u"])])
    run_episodes(coordinator)
    two = [{"uid": "Tank-0.e.x", "space": NUMBER}, {"uid": "Tank-0.e.more", "space": NUMBER}]
    where = rf"{__name__}\.describe must describe the same sensors in every episode.* place "
    for sensors, message in [
        (
            [{"uid": "Tank-0.e.x", "space": "Discrete(5)"}],
            r"0 was 'Tank-0\.e\.x', Box\(.*, is now 'Tank-0\.e\.x', Disc",
        ),
        (two, r"1 was nothing, is now 'Tank-0\.e\.more'"),
    ]:
        DO["sensors"] = sensors
        with pytest.raises(ContractError, match=where + message):
            run_episodes(coordinator)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"simulation_timeout": "x"}, "simulation_timeout must be a positive number of seconds, found 'x'"),
        ({"simulation_timeout": float("nan")}, "simulation_timeout must be"),
        ({"params": [1]}, r"params must be a mapping .* found \[1\]"),
        ({"module": 3}, "module must be text, found 3"),
        ({"end": "-" * 100_000 + "1"}, r"end must be a number of ticks, .* found '-+\.\.\.$"),
    ],
)
def test_parameters_of_another_kind(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"module": __name__, "description_func": "describe", "instance_func": "get_world"}
    with pytest.raises(ContractError, match=message):
        MosaikEnvironment(**{**given, "arl_sync_freq": 1, "end": 2, **change})


def test_a_space_that_is_too_large_for_the_memory() -> None:
    with pytest.raises(SpaceError, match="too large for the memory"):
        Space.from_string("Box(0, 1, (1000000000000000,), np.float64)")
