"""Co-simulations described in a document: what the plan says, and that mosaik agrees."""

import subprocess
import sys
import textwrap
import time
from datetime import datetime
from pathlib import Path

import mosaik
import numpy as np
import pytest
import yaml
from support.documents import agent, environment, named, phase
from support.documents import document as run_document
from support.processes import Program
from support.simulators import SIMULATORS
from support.waiting import HANG

import palaestrai_mosaik as pm
from palaestrai_mosaik.core.errors import ContractError, DocumentError
from palaestrai_mosaik.environment.cosimulation import (
    ActuatorPort,
    ConnectionSpec,
    CoSimulationPlan,
    EntitySpec,
    SensorPort,
    SimulatorSpec,
    plan_problems,
)
from palaestrai_mosaik.environment.described import DescribedCoSimulation
from palaestrai_mosaik.types import ActuatorInformation, Box, Discrete, SensorInformation

DOCUMENT = """
step_size: 900
end: 3600
start: 2016-01-01
simulators:
  storage: {python: "battery_sim:BatterySimulator", params: {step_size: 900}}
  wishes: {python: "mosaik.basic_simulators:InputSimulator", params: {step_size: 900}}
  log: {python: "mosaik.basic_simulators:OutputSimulator"}
entities:
  - {uid: battery, simulator: storage, model: Battery, params: {capacity: 2.0, soc: 0.2}, count: 2}
  - {uid: charge, simulator: wishes, model: Constant, params: {constant: 0.5}}
  - {uid: paper, simulator: log, model: Dict}
connections:
  - {from: charge, to: battery-0, attributes: [[value, P_set]]}
  - {from: battery-0, to: paper, attributes: [soc, [P, P]]}
  - {from: battery-1, to: paper, attributes: [soc]}
sensors:
  - {entity: battery-0, attribute: soc, space: "Box(0, 1, ())"}
  - {uid: power, entity: battery-0, attribute: P, space: "Box(-1, 1, ())", value: 0.25}
actuators:
  - {entity: battery-1, attribute: P_set, space: "Box(-1, 1, ())", value: 0.0}
"""


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(str(SIMULATORS))


def described(text=DOCUMENT, **changes):
    return DescribedCoSimulation(**{**yaml.safe_load(textwrap.dedent(text)), **changes})


def problems_of(params):
    with pytest.raises(DocumentError) as caught:
        DescribedCoSimulation(
            **(yaml.safe_load(textwrap.dedent(params)) if isinstance(params, str) else params)
        )
    return {p.path: p.message for p in caught.value.problems}


starters = pytest.importorskip("mosaik.starters", reason="mosaik 3.5 starts no factories")


class _Factory(starters.Starter):
    """Starts what a ``factory`` returns."""

    def __init__(self, factory):
        self.factory = factory
        self.api_version = None

    async def start(self, sim_id, mosaik_remote, mosaik_config):
        return mosaik.proxies.LocalProxy(self.factory(), mosaik_remote)

    @classmethod
    def from_starter_config(cls, starter_config):
        return None


def run_in_mosaik(plan, until):
    """Build a plain world of nothing but the plan, run it; return what the entity ``paper`` got.

    ``{time: {attribute: {source uid: value}}}``
    """
    config, factories = {}, {}
    for spec in plan.simulators:
        if spec.factory is not None:
            factories[spec.uid] = _Factory(spec.factory)
        else:
            ways = {"python": spec.python, "cmd": spec.cmd, "connect": spec.connect, "cwd": spec.cwd}
            config[spec.uid] = {key: way for key, way in ways.items() if way is not None}
            if spec.env:
                config[spec.uid]["env"] = dict(spec.env)
    with mosaik.World(config, configure_logging=False, skip_greetings=True) as world:
        simulators = {
            spec.uid: world.start(factories.get(spec.uid, spec.uid), sim_id=spec.uid, **spec.params)
            for spec in plan.simulators
        }
        entities = {}
        for spec in plan.entities:
            if spec.parent is not None:
                entities[spec.uid] = entities[spec.parent].children_dict[spec.eid]
            else:
                entities[spec.uid] = getattr(simulators[spec.simulator], spec.model)(**spec.params)
        for spec in plan.connections:
            for source, target in spec.attributes:
                world.connect(
                    entities[spec.source],
                    entities[spec.target],
                    (source, target),
                    time_shifted=spec.time_shifted,
                    initial_data=dict(spec.initial),
                )
        uid_of = {entity.full_id: uid for uid, entity in entities.items()}
        world.run(until=until, print_progress=False)
        got = simulators[next(e.simulator for e in plan.entities if e.uid == "paper")].get_dict(
            entities["paper"].eid
        )
    return {
        time: {name: {uid_of[s]: v for s, v in values.items()} for name, values in inputs.items()}
        for time, inputs in got.items()
    }


# --- the description ----------------------------------------------------------------------


def test_the_plan_is_what_the_document_says():
    assert described().plan() == CoSimulationPlan(
        simulators=[
            SimulatorSpec("storage", python="battery_sim:BatterySimulator", params={"step_size": 900}),
            SimulatorSpec(
                "wishes", python="mosaik.basic_simulators:InputSimulator", params={"step_size": 900}
            ),
            SimulatorSpec("log", python="mosaik.basic_simulators:OutputSimulator"),
        ],
        entities=[
            EntitySpec("battery-0", "storage", "Battery", {"capacity": 2.0, "soc": 0.2}),
            EntitySpec("battery-1", "storage", "Battery", {"capacity": 2.0, "soc": 0.2}),
            EntitySpec("charge", "wishes", "Constant", {"constant": 0.5}),
            EntitySpec("paper", "log", "Dict"),
        ],
        connections=[
            ConnectionSpec("charge", "battery-0", [("value", "P_set")]),
            ConnectionSpec("battery-0", "paper", [("soc", "soc"), ("P", "P")]),
            ConnectionSpec("battery-1", "paper", [("soc", "soc")]),
        ],
        sensors=[
            SensorPort(SensorInformation(0.0, Box(0, 1, ()), "battery-0.soc"), "battery-0", "soc"),
            SensorPort(SensorInformation(0.25, Box(-1, 1, ()), "power"), "battery-0", "P"),
        ],
        actuators=[
            ActuatorPort(ActuatorInformation(0.0, Box(-1, 1, ()), "battery-1.P_set"), "battery-1", "P_set"),
        ],
    )


def test_the_baseline_has_the_ports_in_order_and_no_rewards():
    world = described()
    baseline = world.setup()
    assert [s.uid for s in baseline.sensors] == ["battery-0.soc", "power"]
    assert [s.value for s in baseline.sensors] == [0.0, 0.25]
    assert [(a.uid, a.value) for a in baseline.actuators] == [("battery-1.P_set", 0.0)]
    assert list(baseline.rewards) == []
    assert baseline.start == datetime(2016, 1, 1)
    assert world.step_size == 900


def test_every_way_to_start_a_simulator():
    world = described(
        simulators={
            "a": {"cmd": "%(python)s a.py %(addr)s", "cwd": "/tmp", "env": {"A": 1, "B": "x"}, "timeout": 5},
            "b": {"connect": "127.0.0.1:5678", "params": {"x": [1]}},
            "c": {"python": "battery_sim:BatterySimulator"},
        },
        entities=[{"uid": 1, "simulator": "a", "model": "M"}, {"uid": "kid", "parent": 1, "eid": "M_0-kid"}],
        connections=[
            {"from": 1, "to": "kid", "attributes": ["x"], "time_shifted": True, "initial": {"x": 0}},
            {"from": "kid", "to": 1, "attributes": ["x", ["y", "z"]], "time_shifted": 3},
        ],
        sensors=[],
        actuators=[],
    )
    assert world.plan() == CoSimulationPlan(
        simulators=[
            # no matter of speed: nothing is started
            SimulatorSpec(
                "a", cmd="%(python)s a.py %(addr)s", cwd="/tmp", env={"A": "1", "B": "x"}, timeout=5.0
            ),
            SimulatorSpec("b", connect="127.0.0.1:5678", params={"x": [1]}),
            SimulatorSpec("c", python="battery_sim:BatterySimulator"),
        ],
        entities=[EntitySpec("1", "a", "M"), EntitySpec("kid", parent="1", eid="M_0-kid")],
        connections=[
            ConnectionSpec("1", "kid", [("x", "x")], time_shifted=1, initial={"x": 0}),
            ConnectionSpec("kid", "1", [("x", "x"), ("y", "z")], time_shifted=3),
        ],
        sensors=[],
        actuators=[],
    )


def test_places_of_vectors():
    vector = {"entity": "paper", "attribute": "v", "space": "Discrete(5, start=2)"}
    world = described(
        sensors=[{**vector, "index": 3}],
        actuators=[
            {**vector, "index": 4, "uid": "last", "value": 3},
            {**vector, "index": 0},
            {**vector, "attribute": "w", "index": 0, "size": 9},
        ],
    )
    sensor = world.plan().sensors[0]
    # with no reading given, the value nearest to zero stands until the first observation
    assert (sensor.information.uid, sensor.information.value, sensor.index) == ("paper.v.3", 2, 3)
    assert [(a.information.uid, a.information.value, a.index, a.size) for a in world.plan().actuators] == [
        ("last", 3, 4, 5),
        ("paper.v.0", None, 0, 5),
        ("paper.w.0", None, 0, 9),
    ]


@pytest.mark.parametrize(
    ("time", "end", "truncated"),
    [(0, 3600, False), (2700, 3600, False), (3600, 3600, True), (3700, 3600, True)],
)
def test_the_episode_is_truncated_at_the_end(time, end, truncated):
    readings = np.array([0.5, 0.0])
    state = described(end=end).judge(time, readings)
    assert (state.truncated, state.terminated) == (truncated, False)
    assert state.readings is readings
    assert len(state.rewards) == 0
    assert not described(end=None).judge(10**9, readings).truncated


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2016-07-01T12:30:00", datetime(2016, 7, 1, 12, 30)),
        (datetime(2016, 7, 1), datetime(2016, 7, 1)),
        (datetime(2016, 7, 1).date(), datetime(2016, 7, 1)),
        (None, None),
    ],
)
def test_start_dates(value, expected):
    assert described(start=value).setup().start == expected


# --- mosaik agrees ------------------------------------------------------------------------

# 2 MWh, charged with 0.5 MW: 0.5 MW * 0.25 h / 2 MWh = 0.0625 per step
CHARGED = {0: 0.2, 900: 0.2625, 1800: 0.325, 2700: 0.3875}


def test_a_plain_mosaik_world_of_the_plan_charges_the_battery():
    got = run_in_mosaik(described().plan(), until=3600)
    assert {t: x["soc"]["battery-0"] for t, x in got.items()} == pytest.approx(CHARGED)
    assert {t: x["soc"]["battery-1"] for t, x in got.items()} == dict.fromkeys(CHARGED, 0.2)
    assert {t: x["P"]["battery-0"] for t, x in got.items()} == dict.fromkeys(CHARGED, 0.5)


def test_in_a_process_of_its_own_it_does_the_same():
    simulators = yaml.safe_load(DOCUMENT)["simulators"]
    simulators["storage"] = {
        "cmd": "%(python)s battery_sim.py %(addr)s",
        "cwd": str(SIMULATORS),
        "params": {"step_size": 900},
    }
    got = run_in_mosaik(described(simulators=simulators).plan(), until=3600)
    assert {t: x["soc"]["battery-0"] for t, x in got.items()} == pytest.approx(CHARGED)


def test_a_time_series_of_mosaik_csv_drives_the_battery(tmp_path):
    table = tmp_path / "surplus.csv"
    table.write_text(
        "Surplus\nDate,P\n"
        "2016-01-01 00:00:00,1.0\n2016-01-01 00:15:00,-2.0\n"
        "2016-01-01 00:30:00,0.0\n2016-01-01 00:45:00,4.0\n2016-01-01 01:00:00,0.0\n"
    )
    plan = described(
        f"""
        simulators:
          weather:
            python: mosaik_csv:CSV
            params: {{sim_start: 2016-01-01 00:00:00, datafile: {table}}}
          storage: {{python: "battery_sim:BatterySimulator", params: {{step_size: 900}}}}
          log: {{python: "mosaik.basic_simulators:OutputSimulator"}}
        entities:
          - {{uid: sun, simulator: weather, model: Surplus}}
          - {{uid: battery, simulator: storage, model: Battery, params: {{capacity: 1.0, soc: 0.25}}}}
          - {{uid: paper, simulator: log, model: Dict}}
        connections:
          - {{from: sun, to: battery, attributes: [[P, P_set]]}}
          - {{from: battery, to: paper, attributes: [P, soc]}}
        """
    ).plan()
    got = run_in_mosaik(plan, until=4500)
    # +1 MW for 15 min: 0.25 to 0.5; -2 MW: to 0; rest; +4 MW: to 1
    assert [got[t]["soc"]["battery"] for t in range(0, 4500, 900)] == pytest.approx(
        [0.25, 0.5, 0.0, 0.0, 1.0]
    )
    assert [got[t]["P"]["battery"] for t in range(0, 4500, 900)] == pytest.approx([1.0, -2.0, 0.0, 4.0, 0.0])


def test_time_shifted_connections_start_with_their_initial_values():
    plan = described(
        """
        simulators:
          storage: {python: "battery_sim:BatterySimulator", params: {step_size: 900}}
          log: {python: "mosaik.basic_simulators:OutputSimulator"}
        entities:
          - {uid: a, simulator: storage, model: Battery, params: {capacity: 1.0, soc: 0.5}}
          - {uid: b, simulator: storage, model: Battery, params: {capacity: 1.0, soc: 0.5}}
          - {uid: paper, simulator: log, model: Dict}
        connections:
          - {from: a, to: b, attributes: [[P, P_set]], time_shifted: true, initial: {P: 0.4}}
          - {from: b, to: a, attributes: [[P, P_set]], time_shifted: 1, initial: {P: -0.4}}
          - {from: b, to: paper, attributes: [soc]}
          - {from: a, to: paper, attributes: [soc]}
        """
    ).plan()
    got = run_in_mosaik(plan, until=2700)
    # each does what the other did a step before: +0.4, -0.4, +0.4 MW for a quarter of an hour
    assert [got[t]["soc"]["b"] for t in (0, 900, 1800)] == pytest.approx([0.5, 0.6, 0.5])
    assert [got[t]["soc"]["a"] for t in (0, 900, 1800)] == pytest.approx([0.5, 0.4, 0.5])


def run_beside_a_battery(**parts):
    """Return what the only sensor reads in a run of the environment ``co`` with a battery and these parts."""
    simulators = {"storage": {"python": "battery_sim:BatterySimulator", "params": {"step_size": 1}}}
    battery = {"uid": "battery", "simulator": "storage", "model": "Battery", "params": {"soc": 0.5}}
    power = {"entity": "battery", "attribute": "P_set", "space": "Box(-1, 1, ())", "value": 1.0}
    found = environment(
        "co",
        "palaestrai_mosaik.environment.described:DescribedCoSimulation",
        end=4,
        **{
            **parts,
            "simulators": simulators | parts["simulators"],
            "entities": [battery, *parts["entities"]],
            "actuators": [power],
        },
    )
    idle = named("palaestrai_mosaik.agent.library.idle:IdleMuscle")
    one = agent("a", muscle=idle, brain=None, objective=None, sensors=["co.*"], actuators=["co.*"])
    pytest.importorskip("gymnasium", reason="the extra 'rl' (gymnasium) is not installed")
    from palaestrai_mosaik.interop.rl.driver import Session

    session = Session(run_document(phase([found], [one])))
    readings = [session.reset().readings["a"][0]]
    while not session.over:
        turn = session.step({"a": [float("nan")]})
        readings += [float(turn.readings["a"][0])] if "a" in turn.readings else []
    session.close()
    return readings


def test_weak_connections_let_simulators_answer_each_other_within_one_time():
    loop = {
        "simulators": {"calls": {"python": "loop_sim:Caller"}, "replies": {"python": "loop_sim:Replier"}},
        "entities": [
            {"uid": "caller", "simulator": "calls", "model": "Caller", "params": {"rounds": 5}},
            {"uid": "replier", "simulator": "replies", "model": "Replier"},
        ],
        "sensors": [{"entity": "caller", "attribute": "count", "space": "Box(0, 9, ())"}],
    }
    call = {"from": "caller", "to": "replier", "attributes": ["call"]}
    reply = {"from": "replier", "to": "caller", "attributes": ["reply"], "weak": True}
    assert run_beside_a_battery(connections=[call, reply], **loop) == [5.0] * 5
    with pytest.raises(
        DocumentError, match="within one time: calls -> replies -> calls; make one connection time_"
    ):
        run_beside_a_battery(connections=[call, {**reply, "weak": False}], **loop)


def test_a_simulator_may_ask_another_one_for_data():
    soc = run_beside_a_battery(
        simulators={"asks": {"python": "loop_sim:Asker"}},
        entities=[
            {
                "uid": "asker",
                "simulator": "asks",
                "model": "Asker",
                "params": {"entity": "0-co-storage.Battery_0", "attribute": "soc"},
            }
        ],
        connections=[{"from": "battery", "to": "asker", "async_requests": True}],
        sensors=[{"entity": "asker", "attribute": "seen", "space": "Box(-1, 1, ())"}],
    )
    assert soc == pytest.approx([0.5 + i / 3600 for i in range(4)] + [0.5 + 3 / 3600], abs=2 / 3600)
    assert soc[1] > soc[0]


def test_mistakes_in_weak_connections_are_found():
    parts = yaml.safe_load(DOCUMENT)
    parts["connections"] = [
        {
            "from": "battery-0",
            "to": "battery-1",
            "attributes": [["P", "P_set"]],
            "weak": True,
            "initial": {"P": 0},
        },
        {"from": "charge", "to": "paper", "attributes": ["value"], "weak": "yes"},
        {"from": "charge", "to": "paper", "async_requests": 1},
    ]
    with pytest.raises(DocumentError) as raised:
        DescribedCoSimulation(**parts)
    told = {problem.path: problem.message for problem in raised.value.problems}
    assert told == {
        "connections.0.weak": "a weak connection is one between two simulators",
        "connections.1.weak": "must be true or false, found 'yes'",
        "connections.2.async_requests": "must be true or false, found 1",
        "connections.2.attributes": "a connection needs at least one attribute",
    }


# --- built by a function ------------------------------------------------------------------

BUILDER = """
from mosaik.basic_simulators import InputSimulator, OutputSimulator
from palaestrai_mosaik.environment.cosimulation import *

class Nest(InputSimulator):
    '''Its constants live in a nest.'''
    def create(self, num, model, **params):
        return [{"eid": f"nest_{i}", "type": model, "children": super(Nest, self).create(2, model, **params)}
                for i in range(num)]

calls = []

def plan(constant):
    calls.append(constant)
    return CoSimulationPlan(
        simulators=[SimulatorSpec("nest", factory=Nest), SimulatorSpec("log", factory=OutputSimulator)],
        entities=[
            EntitySpec("root", "nest", "Constant", {"constant": constant}),
            EntitySpec("egg", parent="root", eid="Constant-1"),
            EntitySpec("paper", "log", "Dict"),
        ],
        connections=[ConnectionSpec("egg", "paper", [("value", "v")])],
        sensors=[], actuators=[],
    )

def wrong(): return {"simulators": []}
def raises(): raise KeyError("my own mistake")
def unsound():
    return CoSimulationPlan([], [EntitySpec("e", "nset", "M")], [], [], [])
a_number = 5
"""


@pytest.fixture
def builder(tmp_path, monkeypatch):
    (tmp_path / "nest_builder.py").write_text(BUILDER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nest_builder", raising=False)
    yield
    sys.modules.pop("nest_builder", None)


@pytest.mark.usefixtures("builder")
def test_a_function_builds_the_plan_once():
    world = DescribedCoSimulation(build="nest_builder:plan", params={"constant": 7}, step_size=5, end=9)
    world.setup()
    assert world.plan() is world.plan()
    assert sys.modules["nest_builder"].calls == [7]
    assert (world.step_size, world.judge(9, np.empty(0)).truncated) == (5, True)
    assert run_in_mosaik(world.plan(), until=2) == {0: {"v": {"egg": 7}}, 1: {"v": {"egg": 7}}}


@pytest.mark.usefixtures("builder")
def test_a_function_that_breaks_its_contract():
    with pytest.raises(ContractError, match="wrong must return a CoSimulationPlan"):
        DescribedCoSimulation(build="nest_builder:wrong").setup()
    with pytest.raises(KeyError, match="my own mistake"):  # a user's error reaches the user
        DescribedCoSimulation(build="nest_builder:raises").setup()
    with pytest.raises(DocumentError) as caught:
        DescribedCoSimulation(build="nest_builder:unsound").setup()
    assert str(caught.value) == "build: entities.0.simulator: unknown simulator 'nset'; there are: none"


@pytest.mark.usefixtures("builder")
@pytest.mark.parametrize(
    ("params", "path", "parts"),
    [
        ({"build": "nest_builder:plna"}, "build", ["has no 'plna'", "did you mean 'plan'"]),
        ({"build": "nest_builder:a_number"}, "build", ["has no class or function 'a_number'"]),
        ({"build": "nest_bilder:plan"}, "build", ["cannot import 'nest_bilder'", "there is no module"]),
        ({"build": "nest_builder.plan"}, "build", ["package.module:name", "'nest_builder.plan'"]),
        ({"build": 5}, "build", ["found 5"]),
        ({"build": "nest_builder:plan", "params": [1]}, "params", ["must be a mapping, found [1]"]),
        ({"build": "nest_builder:plan", "sensors": []}, "sensors", ["unknown key", "allowed: step_size"]),
    ],
)
def test_names_of_functions_are_checked_before_anything_runs(params, path, parts):
    problems = problems_of(params)
    assert list(problems) == [path]
    for part in parts:
        assert part in problems[path]


# --- everything wrong at once -------------------------------------------------------------


def test_all_problems_are_reported_at_once():
    problems = problems_of(
        """
        step_size: 0
        end: soon
        start: tomorrow
        stepsize: 5
        simulators:
          storage: {python: "battery_sim:BatterySimulater", timeout: 5}
          both: {cmd: "%(python)s x %(addr)s", connect: "here:1"}
          none: {params: {a: 1}}
          deaf: {cmd: "run me", timeout: -1}
          far: {connect: "localhost", cwd: here}
          log: {python: "mosaik.basic_simulators:OutputSimulator", pyton: x}
        entities:
          - {uid: battery, simulator: storgae, model: Battery, params: [1]}
          - {uid: battery, simulator: storage, modell: Battery}
          - {simulator: log, model: Dict, count: 0}
          - {uid: orphan, parent: batery, eid: x}
          - {uid: early, parent: late, eid: x}
          - {uid: late, simulator: log, model: Dict}
          - {uid: lost, parent: late}
          - {uid: double, parent: late, eid: x, simulator: log, count: 2}
          - 7
        connections:
          - {from: battery, to: lat, attributes: [[a, b, c], x]}
          - {from: battery, to: late, attributes: [], time_shifted: -1}
          - {from: late, to: battery, attributes: [x], initial: {x: 1}}
          - {from: late, to: battery, attributes: [x], initial: {y: 1, x: null}, time_shifted: 1}
        sensors:
          - {entity: batttery, attribute: soc, space: "Box(0, 1, ())"}
          - {uid: s, entity: late, attribute: soc, space: "Bx(0, 1)"}
          - {uid: s, entity: late, space: "Box(0, 1, ())", value: 2}
          - {uid: t, entity: late, attribute: v, index: 1, space: "Box(0, 1, (3,))"}
        actuators:
          - {entity: late, attribute: a, space: "Box(0, 1, ())"}
          - {entity: late, attribute: b, space: "Box(0, 1, ())", value: 2}
          - {uid: c, entity: late, attribute: c, index: 0, space: "Discrete(2)"}
          - {uid: d, entity: late, attribute: c, index: 0, space: "Discrete(2)"}
          - {uid: e, entity: late, attribute: c, value: 0, space: "Discrete(2)"}
          - {uid: f, entity: late, attribute: f, index: 2, size: 2, space: "Discrete(2)"}
          - {uid: g, entity: late, attribute: g, value: 0, size: 2, space: "Discrete(2)"}
        """
    )
    expected = {
        "step_size": ">= 1, found 0",
        "end": "found 'soon'",
        "start": "ISO date",
        "stepsize": "did you mean 'step_size'",
        "simulators.storage.python": "did you mean 'BatterySimulator'",
        "simulators.storage.timeout": "timeout goes with cmd or connect only",
        "simulators.both": "exactly one of python, cmd, connect; found cmd and connect",
        "simulators.none": "exactly one of python, cmd, connect; found none",
        "simulators.deaf.cmd": "%(addr)s",
        "simulators.deaf.timeout": "> 0, found -1",
        "simulators.far.connect": "host:port, found 'localhost'",
        "simulators.far.cwd": "cwd goes with cmd only",
        "simulators.log.pyton": "did you mean 'python'",
        "entities.0.simulator": "unknown simulator 'storgae' (did you mean 'storage'?)",
        "entities.0.params": "must be a mapping, found [1]",
        "entities.1.uid": "'battery' is defined twice",
        "entities.1.modell": "did you mean 'model'",
        "entities.1.model": "needs a model",
        "entities.2.uid": "uid is missing",
        "entities.2.count": ">= 1, found 0",
        "entities.3.parent": "unknown parent 'batery' (did you mean 'battery'?)",
        "entities.4.parent": "'late' must be listed before its child 'early'",
        "entities.6.eid": "eid is missing",
        "entities.7.simulator": "has no place here",
        "entities.7.count": "count has no place here",
        "entities.8": "must be a mapping, found 7",
        "connections.0.to": "unknown entity 'lat' (did you mean 'late'?)",
        "connections.0.attributes.0": "pair [source, target]",
        "connections.1.attributes": "at least one attribute",
        "connections.1.time_shifted": ">= 0, found -1",
        "connections.2": "wait for each other within one time: storage -> log -> storage",
        "connections.2.initial": "time-shifted",
        "connections.3.initial.y": "unknown source attribute 'y'",
        "connections.3.initial.x": "cannot be null",
        "sensors.0.entity": "unknown entity 'batttery' (did you mean 'battery'?)",
        "sensors.1.space": "did you mean 'Box'",
        "sensors.2.uid": "sensor 's' is defined twice",
        "sensors.2.attribute": "attribute is missing",
        "sensors.2.value": "2 is not in Box",
        "sensors.3.space": "with an index the space holds one number, not 3",
        "actuators.0.value": "value is missing",
        "actuators.1.value": "set-point 2 of actuator 'late.b' is not in Box",
        "actuators.3.index": "'c' and 'd' both set late.c",
        "actuators.4.attribute": "'c' and 'e' both set late.c",
        "actuators.5.index": "index 2 does not fit size 2",
        "actuators.6.size": "size goes with index only",
    }
    for path, part in expected.items():
        assert part in problems.get(path, "(nothing)"), path
    assert set(problems) == set(expected)  # and no follow-up messages


@pytest.mark.parametrize(
    ("params", "path", "part"),
    [
        ({}, "simulators", "simulators is missing (or give build)"),
        ({"simulators": [1]}, "simulators", "must be a mapping, found [1]"),
        ({"simulators": {"a": 3}}, "simulators.a", "a simulator must be a mapping, found 3"),
        ({"simulators": {1: {}}}, "simulators", "the keys must be text, found 1"),
        ({"entities": {"uid": "a"}}, "entities", "must be a list"),
        ({"params": {}}, "params", "unknown key 'params'"),
        ({"step_size": True}, "step_size", "found True"),
        ({"end": 0}, "end", "found 0"),
        ({"simulators": {"a": {"python": 5.5}}}, "simulators.a.python", "must be text, found 5.5"),
    ],
)
def test_single_problems(params, path, part):
    assert part in problems_of(params)[path]


@pytest.mark.parametrize("how", [{}, {"attributes": ["x"], "time_shifted": True, "initial": {"x": 0.0}}])
def test_who_may_ask_for_data_waits_for_them(how):
    connections = [
        {"from": "paper", "to": "charge", "attributes": ["x"]},
        {"from": "charge", "to": "paper", "async_requests": True, **how},
    ]
    (message,) = problems_of({**yaml.safe_load(DOCUMENT), "connections": connections}).values()
    assert "simulators wait for each other within one time" in message


def test_simulators_that_wait_for_each_other_are_found():
    connections = [
        {"from": "paper", "to": "charge", "attributes": ["x"]},
        {"from": "battery-0", "to": "paper", "attributes": ["x"]},
        {"from": "charge", "to": "battery-1", "attributes": ["x"]},
    ]
    problems = problems_of({**yaml.safe_load(DOCUMENT), "connections": connections})
    assert len(problems) == 1
    (message,) = problems.values()
    assert "simulators wait for each other within one time" in message
    for name in ("storage", "log", "wishes"):
        assert name in message
    connections[1]["time_shifted"] = 1
    assert plan_problems(described(connections=connections).plan()) == []
    loop = [{"from": "battery-0", "to": "battery-1", "attributes": ["x"]}]
    assert (
        "storage -> storage"
        in problems_of({**yaml.safe_load(DOCUMENT), "connections": loop})["connections.0"]
    )


def test_a_plan_made_in_python_is_checked_in_the_same_way():
    good = described().plan()
    twice = CoSimulationPlan(
        [*good.simulators, SimulatorSpec("storage", cmd="%(addr)s")],
        good.entities,
        good.connections,
        [*good.sensors, SensorPort(SensorInformation(0, Discrete(2), "x"), "paper", "v", -1)],
        [ActuatorPort(ActuatorInformation(0, Discrete(2), "y"), "paper", "v", 3, 2)],
    )
    assert plan_problems(good) == []
    assert [str(p) for p in plan_problems(twice)] == [
        "simulators.storage: simulator 'storage' is defined twice",
        "sensors.2.index: an index is 0 or more, found -1",
        "actuators.0.index: index 3 does not fit size 2",
    ]


# --- the simulator that dies --------------------------------------------------------------


def dying_plan(**params):
    return described(
        simulators={
            "frail": {"python": "dying_sim:DyingSimulator", "params": params},
            "log": {"python": "mosaik.basic_simulators:OutputSimulator"},
        },
        entities=[
            {"uid": "m", "simulator": "frail", "model": "Mortal"},
            {"uid": "paper", "simulator": "log", "model": "Dict"},
        ],
        connections=[{"from": "m", "to": "paper", "attributes": ["value"]}],
        sensors=[],
        actuators=[],
    ).plan()


def test_the_dying_simulator_raises_when_told():
    with pytest.raises(RuntimeError, match="died on purpose at 2"):
        run_in_mosaik(dying_plan(how="raise", after=2), until=9)
    alive = run_in_mosaik(dying_plan(how="never", after=2), until=4)
    assert [alive[t]["value"]["m"] for t in range(4)] == [1, 2, 3, 4]


def step_in_a_process(how):
    code = (
        "from dying_sim import DyingSimulator as S; s = S(); "
        f"s.init('s', how={how!r}, after=2); [print(s.step(t, {{}}, 9), flush=True) for t in range(4)]"
    )
    command = [sys.executable, "-c", code]
    return Program(command, cwd=SIMULATORS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_dying_simulator_ends_its_process_when_told():
    with step_in_a_process("exit") as process:
        out, err = process.communicate(timeout=HANG)
    assert (process.returncode, out.split(), err) == (7, ["1", "2"], "")


def test_the_dying_simulator_hangs_when_told():
    with step_in_a_process("hang") as process:
        assert [process.stdout.readline() for _ in range(2)] == ["1\n", "2\n"]
        time.sleep(0.5)
        assert process.poll() is None
        process.kill()
        assert process.stdout.read() == ""


def test_a_start_gives_steps_their_dates(tmp_path: Path) -> None:
    simulators = {"wishes": {"python": "mosaik.basic_simulators:InputSimulator"}}
    entity = {"uid": "wish", "simulator": "wishes", "model": "Constant", "params": {"constant": 1.0}}
    sensor = {"uid": "w", "entity": "wish", "attribute": "value", "space": "Box(0, 1, ())"}
    params = {"step_size": 900, "end": 1800, "start": "2016-01-15", "simulators": simulators}
    params |= {"entities": [entity], "sensors": [sensor]}
    data = {
        "uid": "dated",
        "seed": 1,
        "schedule": {
            "day": {
                "environments": [{"environment": {"uid": "net", "name": "cosimulation", "params": params}}],
                "agents": [{"name": "watcher", "muscle": "dummy", "sensors": ["net.w"], "actuators": []}],
                "phase_config": {"mode": "test", "episodes": 1},
            }
        },
    }
    with pm.run(data, store=tmp_path, quiet=True) as result:
        dates = [str(date) for date in result.environment_states()["date"]]
    assert dates == ["2016-01-15 00:00:00", "2016-01-15 00:15:00", "2016-01-15 00:30:00"]
