"""Agents in scripts of users: what ends a run early, values that are not there yet, and unclear input."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mosaik
import mosaik_api_v3
import numpy as np
import pytest
from support.waiting import HANG

from palaestrai_mosaik import attach_agents
from palaestrai_mosaik.agent import Memory, Muscle, Objective
from palaestrai_mosaik.core.errors import ContractError, SimulationError
from palaestrai_mosaik.interop.mosaik import Agent, Agents
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import Box

LIMITS = Box(-5, 5)


class Probe(mosaik_api_v3.Simulator):
    """Steps at every tick; ``x`` is the next of ``values`` (the last one stays), ``u`` triggers a step."""

    def __init__(self) -> None:
        model = {"public": True, "params": [], "attrs": ["x", "u"], "trigger": ["u"]}
        super().__init__({"api_version": "3.0", "type": "hybrid", "models": {"Probe": model}})
        #: time of each step, and what has come in at ``u``
        self.seen: list[tuple[int, Any]] = []
        PROBES.append(self)

    def init(self, sid: str, time_resolution: float = 1.0, values: Any = (0.0,)) -> Any:  # type: ignore[override]
        self.values = list(values)
        return self.meta

    def create(self, num: int, model: str) -> Any:  # type: ignore[override]
        return [{"eid": "e", "type": model}]

    def step(self, time: int, inputs: Any, max_advance: int) -> int:
        self.seen.append((time, inputs.get("e", {}).get("u")))
        self.x = self.values.pop(0) if len(self.values) > 1 else self.values[0]
        return time + 1

    def get_data(self, outputs: Any) -> Any:
        return {"e": {"x": self.x}}


PROBES: list[Probe] = []


class Sets(Muscle):
    """Sets 1; calls ``at_third`` at its third action."""

    def __init__(self, at_third: Callable[[], None] = lambda: None):
        self.at_third, self.actions = at_third, 0

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        self.actions += 1
        if self.actions == 3:
            self.at_third()
        for actuator in actuators_available:
            actuator.value = 1.0
        return actuators_available, None


class Nothing(Objective):
    """Never says a value."""

    def internal_reward(self, memory: Memory, **kwargs: Any) -> float | None:
        return None


def started(sid: str = "Probe-0", cache: bool = True, **params: Any) -> tuple[mosaik.World, Any]:
    PROBES.clear()
    world = mosaik.World(
        {"Probe": {"python": f"{__name__}:Probe"}}, cache=cache, skip_greetings=True, configure_logging=False
    )
    return world, world.start("Probe", sim_id=sid, **params).Probe()


def agent(entity: Any, muscle: Any = Sets, name: str = "a", sensor: Any = "x", limits: Any = LIMITS) -> Agent:
    return Agent(name, muscle, sensors={entity: sensor}, actuators={entity: {"u": limits}})


def run(world: mosaik.World, until: int = 5) -> None:
    world.run(until=until, print_progress=False)


def readings(agents: Agents, sid: str = "Probe-0") -> list[float]:
    return agents.frame()[f"reading.world.{sid}.e.x"].tolist()


def fail() -> None:
    raise ValueError("broken")


@pytest.mark.parametrize(
    ("happens", "error", "status"),
    [
        (fail, ValueError, "failed"),
        (lambda: signal.raise_signal(signal.SIGINT), KeyboardInterrupt, "interrupted"),
    ],
    ids=["failed", "Ctrl-C"],
)
def test_the_store_does_not_call_it_finished(
    tmp_path: Path, happens: Callable[[], None], error: type[BaseException], status: str
) -> None:
    """Also where the script catches the error, lets agents act in another world, and closes them."""
    with Store(tmp_path, create=True) as store:
        world, entity = started()
        agents = attach_agents(world, agent(entity, Sets(happens)), store=store)
        with pytest.raises(error):
            run(world, 100)
        assert world.loop.is_closed()
        again, entity = started()
        agents.attach(again, entity)
        run(again)
        agents.close()
        assert [one.ended_by for one in agents.results] == [status, "until"]
        # the third action has no reward
        assert len(store.steps("scenario", agent="a")) == 2 + 4
        assert store.runs()["status"].tolist() == [status]


def test_a_remote_simulator_that_hangs_does_not_hold_up_ctrl_c() -> None:
    path = Path(__file__).parents[2] / "example_simulators" / "dying_sim.py"
    world = mosaik.World(
        {"Mortal": {"cmd": f"%(python)s {path} %(addr)s"}}, skip_greetings=True, configure_logging=False
    )
    mortal = world.start("Mortal", how="hang", after=2).Mortal()
    agents = attach_agents(
        world, Agent("a", Sets, sensors={mortal: "value"}, actuators={mortal: {"x": LIMITS}})
    )
    world.loop.call_later(0.5, signal.raise_signal, signal.SIGINT)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(world, 100)
    assert time.monotonic() - began < HANG
    assert agents.result.ended_by == "interrupted"


@pytest.mark.parametrize("cache", [True, False])
def test_what_is_not_there_yet_is_nan_and_truth_is_a_number(cache: bool) -> None:
    world, entity = started(values=[None, None, True, np.False_, 2], cache=cache)
    agents = attach_agents(world, agent(entity))
    run(world, 6)
    np.testing.assert_array_equal(readings(agents), [math.nan, math.nan, 1.0, 0.0, 2.0])


@pytest.mark.parametrize(
    ("value", "space", "message"),
    [
        (None, "Discrete(3)", "sensor 'Probe-0.e.x' has no value yet"),
        (1.5, "Discrete(3)", "what sensor 'Probe-0.e.x' gave is no reading: 1.5"),
        (math.nan, "Tuple(Discrete(3),)", "what sensor 'Probe-0.e.x' gave is no reading: nan"),
        ("on", None, "what sensor 'Probe-0.e.x' gave is no reading: 'on'"),
    ],
)
def test_what_is_no_reading_is_told_by_the_name_that_the_script_uses(
    value: Any, space: Any, message: str
) -> None:
    world, entity = started(values=[value])
    attach_agents(world, agent(entity, sensor={"x": space}))
    with pytest.raises(ContractError, match=message):
        run(world)


def test_an_input_that_triggers_has_its_first_value_too() -> None:
    world, entity = started()
    attach_agents(world, agent(entity, limits=(LIMITS, 2.0)), step_size=2)
    run(world, 4)
    assert PROBES[0].seen[:2] == [(0, {"agent-0.a": 2.0}), (1, {"agent-0.a": 1.0})]


def test_a_simulator_may_be_called_as_ours_is() -> None:
    world, entity = started("agent-0")
    agents = attach_agents(world, agent(entity))
    run(world)
    assert readings(agents, "agent-0") == [0.0] * 4
    assert PROBES[0].seen[1] == (1, {"agent-0-2.a": 1.0})


def test_an_end_comes_at_once_for_those_that_are_not_connected_too() -> None:
    world, entity = started()
    world.start("Probe", sim_id="Probe-1").Probe()
    agents = attach_agents(world, agent(entity), ends=lambda seen: seen.time == 3)
    run(world, 10_000)
    assert (agents.result.ended_by, agents.result.steps) == ("ends", 3)
    assert PROBES[0].seen[-1][0] == 3
    assert PROBES[1].seen[-1][0] <= 4


def test_nobody_would_ever_act() -> None:
    world, entity = started()
    agents = attach_agents(world, agent(entity), step_size=5)
    with pytest.raises(ContractError, match="every 5 ticks"):
        run(world, 5)
    assert world.loop.is_closed()
    assert not agents.results


@pytest.mark.parametrize("what", ["muscle", "objective"])
def test_two_agents_do_not_share_an_object(what: str) -> None:
    world, entity = started()
    other = world.start("Probe", sim_id="Probe-1").Probe()
    pair = [agent(entity, name="a"), agent(other, name="b")]
    shared: Any = {"muscle": Sets(), "objective": Nothing()}[what]
    pair = [replace(one, **{what: shared}) for one in pair]
    with pytest.raises(ContractError, match=f"'a' and 'b' have the same object as {what}"):
        attach_agents(world, pair)
    world.shutdown()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w, e: attach_agents(w, agent(e), step_size=1.5), "step_size .* whole number.* found 1.5"),
        (lambda w, e: attach_agents(w, agent(e), step_size="15*60"), "step_size .* whole number"),
        (lambda w, e: attach_agents(w, agent(e), seed="x"), "seed must be a whole number, found 'x'"),
        (lambda w, e: attach_agents(w, agent(e), ends=True), "ends is no function"),
        (lambda w, e: attach_agents(w, ["a"]), "found 'a' among them"),
        (lambda w, e: attach_agents(w, []), "an Agent or several"),
        (lambda w, e: attach_agents("w", agent(e)), "mosaik.World or AsyncWorld, found 'w'"),
        (lambda w, e: attach_agents(w, agent("Probe-0.e"), "Probe-0.e"), "not their ids"),
        (lambda w, e: attach_agents(w, agent(e, sensor=None)), "sensors of 'Probe-0.e' are names"),
        (lambda w, e: attach_agents(w, agent(e, {"name": "a:B", "params": [1]})), "params .a mapping."),
        (lambda w, e: attach_agents(w, agent(e, limits=(LIMITS, 1, 2))), "a space, or .space, value."),
    ],
)
def test_unclear_input_is_told(call: Callable[[Any, Any], Any], message: str) -> None:
    world, entity = started()
    with pytest.raises(ContractError, match=message):
        call(world, entity)
    world.shutdown()


@pytest.mark.parametrize(
    "params", [{"capacity_mwh": math.nan}, {"p_rated_mw": math.inf}, {"min_soc": "0"}], ids=str
)
def test_a_battery_is_made_of_finite_numbers(params: dict[str, Any]) -> None:
    pytest.importorskip("pandapower")
    from palaestrai_mosaik.interop.mosaik.simulators.storage import Storage

    storage = Storage()
    storage.init("S")
    with pytest.raises(SimulationError, match=f"{next(iter(params))} of a battery must be a finite number"):
        storage.create(1, "Battery", **params)
