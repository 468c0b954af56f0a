"""Warnings of a document that can be run, but may not mean what it says: shared actuators, no reward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.documents import DUMMY, agent, document, environment, named, phase

from palaestrai_mosaik.agent import Objective
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.runner.preflight import Inspection
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation

UNIT = Box(0.0, 1.0, shape=())


class World(Environment):
    """Five actuators, and a reward if it ``pays``."""

    def __init__(self, pays: bool = True):
        self.pays = pays

    def setup(self) -> EnvironmentBaseline:
        return EnvironmentBaseline(
            [SensorInformation(0.0, UNIT, "x")],
            [ActuatorInformation(0.0, UNIT, f"u{i}") for i in range(5)],
            [RewardInformation(0.0, UNIT, "r")] if self.pays else [],
        )

    def step(self, setpoints: Any) -> EnvironmentState:
        return EnvironmentState([0.0], [1.0] if self.pays else [], terminated=True)


class Readings(Objective):
    def internal_reward(self, memory: Any, **kwargs: Any) -> float:
        return 1.0


def warnings_of(*agents: dict[str, Any], pays: bool = True, **keys: Any) -> list[tuple[str, str]]:
    """Return place and text of each warning."""
    inspection = Inspection(
        document(phase([environment("w", f"{__name__}:World", pays=pays)], list(agents), **keys))
    )
    inspection.environments.close()
    assert not inspection.problems
    return [(one.path.removeprefix("schedule.0.phase_0."), one.message) for one in inspection.warnings]


def setter(name: str, *actuators: str, **keys: Any) -> dict[str, Any]:
    plain = {
        "brain": None,
        "objective": None,
        "muscle": named("palaestrai_mosaik.agent.library.idle:IdleMuscle"),
    }
    return agent(name, sensors=["w.x"], actuators=[f"w.{one}" for one in actuators], **{**plain, **keys})


def test_agents_that_share_nothing_are_not_warned_of() -> None:
    assert warnings_of(setter("first", "u0"), setter("second", "u[1-4]")) == []


def test_two_agents_on_one_actuator() -> None:
    assert warnings_of(setter("first", "u0"), setter("second", "u0")) == [
        (
            "agents.1.actuators",
            "actuator 'w.u0' is set by 'first' and 'second'; the latest set-point holds; of those of one time, that of "
            "'second'",
        )
    ]


def test_one_warning_for_each_set_of_agents() -> None:
    found = warnings_of(setter("first", "u*"), setter("second", "u[0-2]"), setter("third", "u2", "u3"))
    assert [(place, text.partition(";")[0]) for place, text in found] == [
        ("agents.1.actuators", "actuator 'w.u0' (and 1 more) is set by 'first' and 'second'"),
        ("agents.2.actuators", "actuator 'w.u2' is set by 'first', 'second' and 'third'"),
        ("agents.2.actuators", "actuator 'w.u3' is set by 'first' and 'third'"),
    ]


def test_agents_that_take_turns_hear_how_long_a_set_point_holds() -> None:
    ((_, text),) = warnings_of(setter("first", "u0"), setter("second", "u0"), controller="taking_turns")
    assert text.endswith("they act in turns, and what one of them sets holds until the next one acts")


def test_bodies_that_share_an_actuator() -> None:
    several = {"name": "swarm", "bodies": [{"environment": "w", "count": 9}]}
    swarm = {**setter("swarm"), **several}
    del swarm["sensors"], swarm["actuators"]
    ((place, text),) = warnings_of(swarm)
    assert place == "agents.0.bodies.0"
    assert text.startswith(
        "actuator 'w.u0' (and 4 more) is set by 9 bodies, from body 0 of agent 'swarm' to body 8 of"
    )


@pytest.mark.parametrize("objective", [None, named(f"{DUMMY}:DummyObjective")])
def test_a_run_without_any_reward(objective: Any) -> None:
    ((place, text),) = warnings_of(setter("first", "u0", objective=objective), pays=False)
    assert place == "environments"
    assert text.startswith(
        "no environment gives a reward, so every objective of 'first' is 0: declare 'rewards' in"
    )


def test_an_objective_that_uses_readings_needs_no_reward() -> None:
    assert warnings_of(setter("first", "u0", objective=named(f"{__name__}:Readings")), pays=False) == []


def test_check_and_start_print_the_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two.yml").write_text(
        f"""
uid: two
seed: 1
schedule:
  - a:
      environments: [{{environment: {{uid: w, name: "{__name__}:World", params: {{pays: false}}}}}}]
      agents:
        - {{name: first, muscle: idle, sensors: [w.x], actuators: [w.u0]}}
        - {{name: second, muscle: idle, sensors: [w.x], actuators: [w.u0]}}
      phase_config: {{mode: test, episodes: 1}}
"""
    )
    for command in (["check", "two.yml"], ["start", "two.yml", "--no-store", "--quiet"]):
        assert main(command) == 0
        said = capsys.readouterr().err
        assert "'w.u0' is set by 'first' and 'second'" in said and "no environment gives a reward" in said, (
            command
        )
