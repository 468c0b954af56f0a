"""What users' code raises fails the run, and reaches the caller as it is."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.documents import ENVIRONMENT_ENDS, agent, document, environment, named, phase
from support.engine import Counter
from support.waiting import HANG

from palaestrai_mosaik.agent import Muscle, Objective
from palaestrai_mosaik.core.errors import SimulationError
from palaestrai_mosaik.environment.environment import EnvironmentState
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.store import Store

KINDS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (
        TypeError,
        EOFError,
        ConnectionError,
        TimeoutError,
        StopIteration,
        GeneratorExit,
        SystemExit,
        asyncio.CancelledError,
    )
}
ORDINARY = ("TypeError", "EOFError", "ConnectionError", "TimeoutError")


def fail(kind: str) -> None:
    raise KINDS[kind]("on purpose")


class BadMuscle(Muscle):
    def __init__(self, kind: str):
        self.kind = kind

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        fail(self.kind)


class BadObjective(Objective):
    def __init__(self, kind: str):
        self.kind = kind

    def internal_reward(self, memory: Any, **kwargs: Any) -> float:
        fail(self.kind)
        return 0.0


class BadCondition(TerminationCondition):
    def __init__(self, kind: str):
        self.kind = kind

    def episode_flow_control(self, view: Any) -> Any:
        fail(self.kind)


class BadEnvironment(Counter):
    """Fails in ``reset``, in ``step``, or writes to its set-points."""

    def __init__(self, kind: str = "", at: str = "", **params: Any):
        super().__init__("", [], **params)
        self.kind, self.at = kind, at

    def reset(self) -> EnvironmentState:
        if self.at == "reset":
            fail(self.kind)
        return super().reset()

    def step(self, setpoints: Any) -> EnvironmentState:
        if self.at == "step":
            fail(self.kind)
        if self.at == "write":
            setpoints *= 2
        return super().step(setpoints)


def bad(part: str, kind: str, scheduler: str) -> Any:
    here = f"{__name__}:Bad{part.split('.', maxsplit=1)[0].capitalize()}"
    agents = [agent("a"), agent("b", 5)]
    if part in ("muscle", "objective"):
        agents[1][part] = named(here, kind=kind)
    environments = [environment()]
    if part.startswith("environment"):
        environments = [environment("bad", here, kind=kind, at=part.split(".")[1])]
        agents = [agent("a", sensors=["bad.x"], actuators=["bad.u1"], muscle=named("support.parts:Returning",
                                                                                 what="good list"))]  # fmt: skip
    conditions = [named(ENVIRONMENT_ENDS)]
    if part == "condition":
        conditions = [named(here, kind=kind)]
    return document(phase(environments, agents, conditions, scheduler=scheduler))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("part", "scheduler"),
    [
        ("muscle", "direct"),
        ("muscle", "mosaik"),
        ("objective", "direct"),
        ("condition", "mosaik"),
        ("environment.reset", "direct"),
        ("environment.step", "direct"),
    ],
)
def test_the_exception_itself_fails_the_run(tmp_path, part, scheduler, kind):
    with Store(tmp_path, create=True) as store:
        with pytest.raises((SimulationError, *(KINDS[k] for k in ORDINARY))) as caught:
            execute(bad(part, kind, scheduler), store=store)
        assert store.runs()["status"].tolist() == ["failed"]
    error: BaseException = caught.value
    if kind in ORDINARY:
        assert type(error) is KINDS[kind]
    else:
        # these would end more than the run, or less
        assert type(error) is SimulationError
        assert f"raised {kind}('on purpose')" in str(error)
        assert error.__cause__ is not None
        error = error.__cause__
        assert type(error) is KINDS[kind]
    assert str(error) == "on purpose"
    assert traceback.extract_tb(error.__traceback__)[-1].name == "fail"


def test_user_code_that_exits_fails_the_command(tmp_path):
    (tmp_path / "leaving.py").write_text(
        "from palaestrai_mosaik.agent import Muscle\n"
        "class Leaving(Muscle):\n"
        "    def propose_actions(self, sensors, actuators_available):\n"
        "        raise SystemExit(0)\n"
    )
    (tmp_path / "run.yml").write_text(
        """
uid: leaving
seed: 1
version: "3.5"
schedule:
  - one:
      environments:
        - environment: {uid: e, name: "palaestrai_mosaik.environment.dummy:DummyEnvironment", params: {}}
      agents:
        - {name: a, muscle: {name: "leaving:Leaving"}, sensors: [e.0], actuators: [e.0]}
      simulation:
        name: vanilla
        conditions: [{name: "palaestrai_mosaik.simulation.conditions:EnvironmentTerminationCondition"}]
      phase_config: {mode: test, episodes: 1}
run_config:
  condition: {name: "palaestrai_mosaik.simulation.conditions:VanillaRunGovernorTerminationCondition"}
"""
    )
    command = [str(Path(sys.executable).with_name("palaestrai-mosaik")), "start", "run.yml"]
    if not Path(command[0]).exists():
        command = [sys.executable, "-m", "palaestrai_mosaik.cli.main", "start", "run.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode not in (0, None)
    assert "SystemExit(0)" in done.stderr
    assert "pending" not in done.stderr


def test_an_environment_cannot_write_to_its_setpoints():
    with pytest.raises(ValueError, match="read-only"):
        execute(bad("environment.write", "", "direct"))


@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_agents_may_be_named_clock_and_turn(tmp_path, scheduler):
    doc = document(phase(None, [agent("clock"), agent("turn", 5)], scheduler=scheduler))
    with Store(tmp_path, create=True) as store:
        execute(doc, store=store)
        first, second = (store.steps("latest", agent=name) for name in ("clock", "turn"))
    assert np.array_equal(first["time"], range(10))
    assert np.array_equal(second["time"], range(10))
