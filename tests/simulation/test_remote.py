"""Simulators in other processes: what they are sent, time-outs, interruption, what is left behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.documents import agent, document, environment, named, phase
from support.processes import children
from support.simulators import SIMULATORS
from support.waiting import HANG, until

from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.core.errors import RunInterrupted, SimulationError, SimulatorError
from palaestrai_mosaik.environment.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.interrupt import Interrupt
from palaestrai_mosaik.simulation.mosaik_internals import plain
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import ActuatorInformation, Box, SensorInformation

DESCRIBED = "palaestrai_mosaik.environment.described:DescribedCoSimulation"
SLOW = f'"{sys.executable}" "{SIMULATORS / "slow_sim.py"}" %(addr)s'
PYTHON = "slow_sim:SlowSimulator"
NUMBER = "Box(0, 1, ())"


class Sampling(Muscle):
    """Draws its set-points from their spaces."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        for actuator in actuators_available:
            actuator.value = actuator.space.sample(self.rng)
        return actuators_available, None


class Helped(Environment):
    """Has a process of its own from its first episode on."""

    process: subprocess.Popen[bytes] | None = None
    alive: list[bool]

    def __init__(self) -> None:
        Helped.alive = []

    def setup(self) -> EnvironmentBaseline:
        space = Box(0.0, 1.0, shape=())
        return EnvironmentBaseline(
            [SensorInformation(0.0, space, "x")], [ActuatorInformation(0.0, space, "u")]
        )

    def reset(self) -> EnvironmentState:
        if self.process is None:
            self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        Helped.alive.append(self.process.poll() is None)
        return EnvironmentState(np.zeros(1))

    def step(self, setpoints: Any) -> EnvironmentState:
        return EnvironmentState(np.zeros(1))

    def shutdown(self) -> None:
        if self.process is not None:
            Helped.alive.append(self.process.poll() is None)
            self.process.kill()
            self.process.wait()


def slow(
    start: dict[str, Any], space: str = NUMBER, value: Any = 0.0, end: int = 4, **port: Any
) -> dict[str, Any]:
    given = {} if value is None else {"value": value}
    return environment(
        "co",
        DESCRIBED,
        end=end,
        simulators={"s": start},
        entities=[{"uid": "m", "simulator": "s", "model": "Slow"}],
        sensors=[{"uid": "got", "entity": "m", "attribute": "got", "space": "Box(-99, 99, (3,))"}],
        actuators=[{"uid": "x", "entity": "m", "attribute": "x", "space": space, **given, **port}],
    )


def one(**keys: Any) -> dict[str, Any]:
    return agent(
        "a",
        sensors=["co.got"],
        actuators=["co.x"],
        muscle=named(f"{__name__}:Sampling"),
        brain=None,
        objective=None,
        **keys,
    )


def cmd(timeout: float = HANG, **params: Any) -> dict[str, Any]:
    return {"cmd": SLOW, "timeout": timeout, "params": params}


class Later(Interrupt):
    """Asks for the end some time after a condition holds, as Ctrl-C does."""

    def __init__(self, condition: Callable[[], bool], seconds: float):
        super().__init__()
        self.condition, self.seconds = condition, seconds

    def __enter__(self) -> Interrupt:
        threading.Thread(target=self._ask, daemon=True).start()
        return super().__enter__()

    def _ask(self) -> None:
        until(self.condition)
        time.sleep(self.seconds)
        self.request()


@pytest.mark.parametrize(
    ("space", "value", "port", "numbers", "nulls"),
    [
        ("Box(0, 1, (3,))", [0.0, 0.0, 0.0], {}, 3, 0),
        ("MultiDiscrete([3, 4])", [0, 0], {}, 2, 0),
        ("Discrete(3)", 0, {}, 1, 0),
        (NUMBER, None, {"index": 1, "size": 3}, 3, 2),
    ],
    ids=["Box", "MultiDiscrete", "Discrete", "one place of a vector"],
)
def test_setpoints_reach_a_remote_simulator(tmp_path, space, value, port, numbers, nulls):
    with Store(tmp_path, create=True) as store:
        execute(document(phase([slow(cmd(), space, value, **port)], [one()])), store=store)
        steps = store.steps("latest")
    sums = steps[[c for c in steps if c.startswith("setpoint.")]].sum(axis=1)
    got = steps[[c for c in steps if c.startswith("reading.")]].to_numpy()
    # what is set at t arrives at t + 1
    assert got[1:].tolist() == pytest.approx(np.array([[numbers, nulls, s] for s in sums[:-1]]))
    assert sums[:-1].any()


def test_values_as_json_knows_them():
    value = (
        1,
        np.array([[0.5, np.nan]]),
        {"a": np.float64(2.0)},
        np.arange(2),
        [np.True_],
        "s",
        float("inf"),
    )
    assert plain(value) == [1, [[0.5, None]], {"a": 2.0}, [0, 1], [True], "s", float("inf")]
    assert type(plain(np.float64(2.0))) is float


@pytest.mark.parametrize("call", ["create", "setup_done", "step"])
def test_a_call_that_hangs_obeys_the_time_out(call, monkeypatch):
    # it starts, then hangs
    monkeypatch.setattr("palaestrai_mosaik.simulation.mosaik_internals.LEAST_START", HANG)
    started = time.monotonic()
    doc = document(phase([slow(cmd(4.0, hangs=call))], [one()]))
    with pytest.raises(SimulatorError, match=f"'0-co-s' has not answered for 4 s, in .*{call}"):
        execute(doc)
    assert time.monotonic() - started < HANG


@pytest.mark.parametrize("call", ["init", "create", "setup_done", "step"])
def test_a_call_that_hangs_can_be_interrupted(tmp_path, call):
    before = children()
    doc = document(phase([slow(cmd(hangs=call))], [one()]))
    started = time.monotonic()
    with Store(tmp_path, create=True) as store:
        with pytest.raises(RunInterrupted):
            execute(doc, store=store, interrupt=Later(lambda: True, 1.0))
        assert store.runs()["status"].tolist() == ["interrupted"]
    assert time.monotonic() - started < HANG
    assert children() <= before


def test_an_interrupted_simulator_ends_its_step(tmp_path, monkeypatch):
    doc = document(phase([slow(cmd(hangs="step", seconds=0.4), end=999)], [one()]))
    propose, acts = Sampling.propose_actions, []

    def noting(self, *what):
        acts.append(what)
        return propose(self, *what)

    monkeypatch.setattr(Sampling, "propose_actions", noting)
    with Store(tmp_path, create=True) as store:
        with pytest.raises(RunInterrupted):
            execute(doc, store=store, interrupt=Later(lambda: len(acts) > 2, 0.2))
        assert len(store.steps("latest")) >= 1


def test_the_process_of_an_environment_survives_the_episodes():
    doc = document(phase([slow(cmd()), environment("helped", f"{__name__}:Helped")], [one()], episodes=2))
    execute(doc)
    assert Helped.alive == [True, True, True]


def test_nothing_is_said_about_what_could_not_be_sent():
    # a set-point of a third simulator that JSON does not know; the request stays unanswered
    script = f"""
import sys; sys.path[:0] = [{str(SIMULATORS)!r}, {str(SIMULATORS.parent)!r}]
from support.documents import agent, document, environment, named, phase
from palaestrai_mosaik.runner import execute
import slow_sim
slow_sim.SlowSimulator.get_data = lambda self, outputs: {{e: dict.fromkeys(n, object) for e, n in outputs.items()}}
world = environment("co", {DESCRIBED!r}, end=3,
    simulators={{"p": {{"python": "slow_sim:SlowSimulator"}}, "s": {{"cmd": {SLOW!r}}}}},
    entities=[{{"uid": "p", "simulator": "p", "model": "Slow"}}, {{"uid": "m", "simulator": "s", "model": "Slow"}}],
    connections=[{{"from": "p", "to": "m", "attributes": [["got", "x"]]}}],
    sensors=[{{"uid": "got", "entity": "m", "attribute": "got", "space": "Box(-99, 99, (3,))"}}])
try:
    execute(document(phase([world], [agent("a", sensors=["co.got"], actuators=[])])))
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert "not JSON serializable" in done.stdout
    assert "SimulatorError" in done.stdout
    assert "never retrieved" not in done.stderr


@pytest.mark.parametrize(
    ("raises", "error", "words"),
    [
        ("TypeError", TypeError, "^TypeError on purpose$"),
        ("ConnectionError", ConnectionError, "^ConnectionError on purpose$"),
        ("SystemExit", SimulationError, r"SystemExit\('SystemExit on purpose'\)"),
    ],
)
def test_what_a_simulator_in_this_process_raises_is_what_is_raised(tmp_path, raises, error, words):
    doc = document(phase([slow({"python": PYTHON, "params": {"raises": raises}})], [one()]))
    with Store(tmp_path, create=True) as store:
        with pytest.raises(error, match=words) as caught:
            execute(doc, store=store)
        assert store.runs()["status"].tolist() == ["failed"]
    assert type(caught.value) is error


def test_simulators_of_similar_names_are_told_apart_and_strays_are_held_back(tmp_path):
    world = slow({"python": PYTHON})
    params = world["environment"]["params"]
    params["simulators"] = {"s.1": {"python": PYTHON}, "s_1": {"python": PYTHON}}
    params["entities"] = [
        {"uid": "m", "simulator": "s.1", "model": "Slow"},
        {"uid": "stray", "simulator": "s_1", "model": "Slow"},
    ]
    with Store(tmp_path, create=True) as store:
        execute(document(phase([world], [one()])), store=store)
        assert len(store.steps("latest")) == 4
