"""Third-party mosaik simulators in the same world as the agents."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from typing import Any

import mosaik_api_v3
import numpy as np
import psutil
import pytest
from support.documents import ENVIRONMENT_ENDS, agent, document, environment, named, phase
from support.processes import children
from support.simulators import SIMULATORS
from support.waiting import HANG, until

from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.core.errors import DocumentError, SimulatorError
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

DESCRIBED = "palaestrai_mosaik.environment.described:DescribedCoSimulation"
BATTERY = f'"{sys.executable}" "{SIMULATORS / "battery_sim.py"}" %(addr)s'
DYING = f'"{sys.executable}" "{SIMULATORS / "dying_sim.py"}" %(addr)s'


class Charger(Muscle):
    """Charges with 1 kW while the state of charge is below 0.75, then discharges."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        for sensor, actuator in zip(sensors, actuators_available, strict=True):
            actuator.value = 1.0 if sensor.value < 0.75 else -1.0
        return actuators_available, None


def battery(how: dict[str, Any], count: int = 2, **extra: Any) -> dict[str, Any]:
    return environment(
        "co",
        DESCRIBED,
        step_size=3600,
        end=6 * 3600,
        simulators={"storage": {**how, "params": {"step_size": 3600}}},
        entities=[{"uid": "battery", "simulator": "storage", "model": "Battery", "count": count,
                   "params": {"capacity": 4.0, "soc": 0.5}}],
        sensors=[{"uid": f"soc{i}", "entity": f"battery-{i}", "attribute": "soc", "space": "Box(0, 1, ())"}
                 for i in range(count)],
        actuators=[{"uid": f"p{i}", "entity": f"battery-{i}", "attribute": "P_set", "space": "Box(-1, 1, ())",
                    "value": 0.0} for i in range(count)],
        **extra,
    )  # fmt: skip


def charger(name="c", count=2, first=0, **keys):
    numbers = range(first, first + count)
    return agent(name, sensors=[f"co.soc{i}" for i in numbers], actuators=[f"co.p{i}" for i in numbers],
                 muscle=named(f"{__name__}:Charger"), brain=None, **keys)  # fmt: skip


@pytest.fixture
def importable(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize(
    "how", [{"python": "battery_sim:BatterySimulator"}, {"cmd": BATTERY}], ids=["python", "cmd"]
)
@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_agents_connect_to_entities_of_a_simulator(tmp_path, how, scheduler):
    before = children()
    doc = document(phase([battery(how)], [charger()], scheduler=scheduler, episodes=2))
    with Store(tmp_path, create=True) as store:
        execute(doc, store=store)
        steps = store.steps("latest", episode=1)
    # 4 kWh, 1 kW: 0.25 an hour. What is set at t reaches the battery an hour later, and
    # shows in its state of charge at the end of the hour after that.
    assert steps["time"].tolist() == [0, 3600, 7200, 10800, 14400, 18000]
    assert steps["reading.co.soc1"].tolist() == [0.5, 0.5, 0.75, 1.0, 0.75, 0.5]
    assert steps["setpoint.co.p1"].tolist() == [1, 1, -1, -1, -1, 1]
    assert steps["truncated"].tolist() == [False] * 5 + [True]
    assert not steps["terminated"].any()
    assert children() <= before


@pytest.mark.usefixtures("importable")
def test_a_cosimulation_and_an_environment_share_a_world(tmp_path):
    both = charger()
    both["sensors"] = [*both["sensors"], "dummy.0"]
    both["muscle"] = named("support.parts:Returning", what="good list")
    dummy = environment("dummy", max_iter=99)
    dummy["environment"]["step_size"] = 1800
    doc = document(phase([battery({"python": "battery_sim:BatterySimulator"}), dummy], [both]))
    with Store(tmp_path, create=True) as store:
        execute(doc, store=store)
        steps = store.steps("latest")
    assert steps["time"].tolist() == list(range(0, 6 * 3600, 1800))
    assert steps["reading.dummy.0"].tolist() == list(range(12))


class Clock(mosaik_api_v3.Simulator):
    """Steps at every tick, and says when."""

    def __init__(self) -> None:
        models = {"Clock": {"public": True, "params": [], "attrs": ["now"]}}
        super().__init__({"type": "time-based", "models": models})

    def create(self, num: int, model: str) -> Any:
        return [{"eid": f"clock-{i}", "type": model} for i in range(num)]

    def step(self, time: int, inputs: Any, max_advance: int) -> int:
        self.time = time
        return time + 1

    def get_data(self, outputs: Any) -> Any:
        return {eid: {"now": float(self.time)} for eid in outputs}


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_an_agent_sees_the_states_that_environments_have(tmp_path, scheduler):
    """A state is of the time of its environment's step, also if a simulator of it is further on when the agent acts."""
    slow = environment(
        "slow",
        DESCRIBED,
        step_size=4,
        end=100,
        simulators={"clock": {"python": f"{__name__}:Clock"}},
        entities=[{"uid": "clock", "simulator": "clock", "model": "Clock"}],
        sensors=[{"uid": "now", "entity": "clock", "attribute": "now", "space": "Box(0, inf, ())"}],
    )
    quick = environment("quick", max_iter=7)
    both = agent(
        "a",
        sensors=["slow.now", "quick.0"],
        actuators=["quick.0"],
        muscle=named("support.parts:Returning", what="good list"),
        brain=None,
    )
    doc = document(phase([slow, quick], [both], scheduler=scheduler))
    with Store(tmp_path, create=True) as store:
        execute(doc, store=store)
        steps = store.steps("latest")
    assert steps["time"].tolist() == list(range(7))
    assert steps["reading.slow.now"].tolist() == [0, 0, 0, 0, 4, 4, 4]


@pytest.mark.usefixtures("importable")
def test_an_actuator_of_a_cosimulation_has_one_owner():
    doc = document(
        phase(
            [battery({"python": "battery_sim:BatterySimulator"})],
            [charger("c"), charger("d", first=1, count=1)],
        )
    )
    with pytest.raises(DocumentError, match=r"agents.1.actuators: .*'co.p1' belongs to 'c' and to 'd'"):
        execute(doc)


def sources(**extra):
    """mosaik's own InputSimulator and the published mosaik-csv, seen by an agent."""
    return environment(
        "world",
        DESCRIBED,
        step_size=1,
        end=4,
        simulators={
            "constant": {"python": "mosaik.basic_simulators.input_simulator:InputSimulator",
                         "params": {"step_size": 1}},
            **extra.pop("simulators", {}),
        },
        entities=[{"uid": "seven", "simulator": "constant", "model": "Constant", "params": {"constant": 7}},
                  *extra.pop("entities", [])],
        sensors=[{"uid": "seven", "entity": "seven", "attribute": "value", "space": "Box(0, 10, ())"},
                 *extra.pop("sensors", [])],
    )  # fmt: skip


def watcher(*sensors):
    return agent("w", sensors=list(sensors), actuators=["dummy.0"])


def test_simulators_that_nobody_here_wrote(tmp_path):
    pytest.importorskip("mosaik_csv", reason="mosaik_csv is not installed (extra 'test')")
    data = tmp_path / "sun.csv"
    rows = "\n".join(f"2016-01-01 00:00:{s:02d},{s * 1.5}" for s in range(10))
    data.write_text(f"Sun\nTime,G\n{rows}\n")
    world = sources(
        simulators={"csv": {"python": "mosaik_csv:CSV", "params": {
            "sim_start": "2016-01-01 00:00:00", "datafile": str(data), "date_format": "%Y-%m-%d %H:%M:%S",
            "type": "time-based"}}},
        entities=[{"uid": "sun", "simulator": "csv", "model": "Sun"}],
        sensors=[{"uid": "g", "entity": "sun", "attribute": "G", "space": "Box(0, 1000, ())"}],
    )  # fmt: skip
    doc = document(phase([world, environment("dummy", max_iter=50)], [watcher("world.seven", "world.g")]))
    with Store(tmp_path / "store", create=True) as store:
        execute(doc, store=store)
        steps = store.steps("latest")
    assert steps["reading.world.seven"].tolist() == [7, 7, 7, 7]
    assert steps["reading.world.g"].tolist() == [0, 1.5, 3, 4.5]


def dying(how: str, start: dict[str, Any], **extra):
    return environment(
        "mortal",
        DESCRIBED,
        step_size=1,
        end=20,
        simulators={"dying": {**start, "params": {"how": how, "after": 5}, **extra}},
        entities=[{"uid": "m", "simulator": "dying", "model": "Mortal"}],
        sensors=[{"uid": "value", "entity": "m", "attribute": "value", "space": "Box(0, 99, ())"}],
        actuators=[{"uid": "x", "entity": "m", "attribute": "x", "space": "Box(0, 1, ())", "value": 0}],
    )


@pytest.fixture(scope="module")
def _a_run_came_before(tmp_path_factory):
    """What libraries open once and keep (pyarrow a pipe, at its first table) is open already."""
    with Store(tmp_path_factory.mktemp("before"), create=True) as store:
        execute(document(phase([environment(max_iter=2)], [agent("a")])), store=store)
        store.steps("latest"), store.runs(), store.errors("latest")


@pytest.mark.usefixtures("_a_run_came_before")
@pytest.mark.parametrize(
    ("how", "start", "error", "words"),
    [
        ("raise", {"python": "dying_sim:DyingSimulator"}, RuntimeError, "died on purpose at 5"),
        ("raise", {"cmd": DYING}, SimulatorError, "0-mortal-dying.*died on purpose at 5"),
        ("exit", {"cmd": DYING}, SimulatorError, "0-mortal-dying.*closed its connection"),
        (
            "hang",
            {"cmd": DYING, "timeout": 4.0},
            SimulatorError,
            "0-mortal-dying.*has not answered for 4 s.*time 5",
        ),
    ],
    ids=["python raises", "cmd raises", "cmd exits", "cmd hangs"],
)
@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_a_simulator_that_dies_half_way_fails_the_run(
    tmp_path, monkeypatch, how, start, error, words, scheduler
):
    # it starts, then hangs
    monkeypatch.setattr("palaestrai_mosaik.simulation.mosaik_internals.LEAST_START", HANG)
    process = psutil.Process()
    children, files = len(process.children(recursive=True)), process.num_fds()
    one = agent("a", sensors=["mortal.value"], actuators=["mortal.x"])
    doc = document(phase([dying(how, start)], [one], [named(ENVIRONMENT_ENDS)], scheduler=scheduler))
    started = time.monotonic()
    with Store(tmp_path, create=True) as store:
        with pytest.raises(error, match=words):
            execute(doc, store=store)
        assert time.monotonic() - started < HANG
        assert store.runs().iloc[-1]["status"] == "failed"
        assert "dying" in store.errors("latest").iloc[0]["traceback"] or how == "raise"
        # the states of t = 0 to 4, of which the last is still waiting for its reward
        assert len(store.steps("latest")) in (3, 4)
    assert len(process.children(recursive=True)) == children
    assert process.num_fds() <= files


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({"cmd": "no-such-command %(addr)s"}, "could not be started"),
        (
            {"cmd": f'"{sys.executable}" -c "raise SystemExit(3)" %(addr)s', "timeout": 2.0},
            "could not be started",
        ),
        ({"connect": "127.0.0.1:9"}, "could not be started"),
    ],
)
def test_a_simulator_that_cannot_be_started_is_an_error(start, words, monkeypatch):
    monkeypatch.setattr("palaestrai_mosaik.simulation.mosaik_internals.LEAST_START", 2.0)
    before = children()
    one = agent("a", sensors=["mortal.value"], actuators=["mortal.x"])
    with pytest.raises(SimulatorError, match=words):
        execute(document(phase([dying("never", start)], [one])))
    assert children() <= before


def test_what_is_wrong_in_a_description_is_told_with_its_place():
    world = dying("never", {"python": "dying_sim:DyingSimulator"})
    world["environment"]["params"]["sensors"][0]["entity"] = "mm"
    world["environment"]["params"]["actuators"][0]["space"] = "Bocks(0, 1)"
    one = agent("a", sensors=["mortal.value"], actuators=["mortal.x"])
    with pytest.raises(DocumentError) as caught:
        execute(document(phase([world], [one])))
    text = str(caught.value)
    assert "schedule.0.phase_0.environments.0.environment.params.sensors.0" in text
    assert "Bocks" in text
    assert len(caught.value.problems) == 2


def test_connect_joins_a_running_simulator(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, str(SIMULATORS / "dying_sim.py"), "--remote", f"127.0.0.1:{port}"],
        stderr=subprocess.DEVNULL,
    )
    try:
        until(
            lambda: any(c.status == psutil.CONN_LISTEN for c in psutil.Process(server.pid).net_connections())
        )
        one = agent("a", sensors=["mortal.value"], actuators=["mortal.x"])
        with Store(tmp_path, create=True) as store:
            execute(document(phase([dying("never", {"connect": f"127.0.0.1:{port}"})], [one])), store=store)
            assert store.steps("latest")["reading.mortal.value"].tolist() == list(range(1, 21))
    finally:
        server.terminate()
        server.wait()


def test_agents_own_places_of_a_vector_attribute(tmp_path):
    world = environment("v", "support.vectors:VectorWorld")
    agents = [
        agent("a", sensors=["v.x1"], actuators=["v.u2", "v.u0"], muscle=named(f"{__name__}:Plus", base=10.0)),
        agent("b", sensors=["v.x0", "v.x2"], actuators=["v.u1"], muscle=named(f"{__name__}:Plus", base=20.0)),
    ]
    for scheduler in ("direct", "mosaik"):
        with Store(tmp_path, create=True) as store:
            execute(document(phase([world], agents, scheduler=scheduler)), store=store)
            a, b = store.steps("latest", agent="a"), store.steps("latest", agent="b")
        # a sets u2 = 10 + x1 and u0 = 11 + x1; b sets u1 = 20 + x0
        assert a["reading.v.x1"].tolist() == [0, 20, 31]
        assert a["setpoint.v.u2"].tolist() == [10, 30, 41]
        assert b["reading.v.x0"].tolist() == [0, 11, 31]
        assert b["reading.v.x2"].tolist() == [0, 10, 30]
        assert b["setpoint.v.u1"].tolist() == [20, 31, 51]
        assert b["reward.v.sum"].tolist() == [41, 92, 134]


class Plus(Muscle):
    """Sets its i-th actuator to ``base`` + i + its first reading."""

    def __init__(self, base: float):
        self.base = base

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        first = sensors.vector[0]
        actuators_available.vector = self.base + np.arange(len(actuators_available)) + first
        return actuators_available, None
