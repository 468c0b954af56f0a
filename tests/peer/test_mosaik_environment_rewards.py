"""palaestrAI's rewards and information objects in worlds made for palaestrai-mosaik."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("palaestrai")

from palaestrai.agent import ActuatorInformation, SensorInformation
from palaestrai.types import Box, Discrete
from support import mosaik_worlds
from support.documents import agent, document, environment, named, phase
from support.engine import run_episodes

from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.runner.factory import make_handle
from palaestrai_mosaik.simulation.body import Body, BodyIdentity
from palaestrai_mosaik.simulation.conditions import EnvironmentTerminationCondition
from palaestrai_mosaik.simulation.connections import Channels
from palaestrai_mosaik.simulation.coordinator import EpisodeCoordinator

GOLDEN = json.loads(Path(__file__).with_name("golden_mosaik.json").read_text(encoding="utf-8"))


class Replayed(Muscle):
    """Sets the valve to each of ``values``."""

    uid = "a"

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        actuators_available[0].value = [self.values.pop(0)]
        return actuators_available, None


def rewards_of(params: dict[str, Any], values: list[float]) -> list[float]:
    """Return the rewards of one episode; the document names palaestrAI's reward."""
    entry = environment(
        "w",
        "palaestrai_mosaik:MosaikEnvironment",
        module="support.mosaik_worlds",
        description_func="describe",
        instance_func="get_world",
        **params,
    )
    entry["reward"] = named("support.small_reward:LevelReward")
    (spec,) = document(phase([entry], [agent(uid="w")])).phases[0].environments
    handle = make_handle(spec)
    assert [reward.uid for reward in handle.rewards] == ["level less valve"]
    body = Body(
        BodyIdentity("a"),
        Replayed(values),
        None,
        Channels([handle], handle.sensors.uids, handle.actuators.uids),
    )
    body.muscle._memory = body.memory
    coordinator = EpisodeCoordinator(
        [handle], [body], [EnvironmentTerminationCondition()], taking_turns=False
    )
    run_episodes(coordinator)
    return list(coordinator.objectives("a"))


@pytest.mark.parametrize("case", GOLDEN)
def test_rewards_are_those_of_palaestrai_mosaik(case: str) -> None:
    rows = GOLDEN[case]["rows"]
    found = rewards_of(GOLDEN[case]["params"], [row["set"] for row in rows])
    assert found == [row["rewards"][0] for row in rows]


def test_information_objects_of_palaestrai_describe_as_dictionaries_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def describe(params: Any) -> Any:
        sensors = [
            SensorInformation(
                uid="Tank-0.e.level", space=Box(0.0, 1e6, shape=(), dtype=np.float32), value=None
            ),
            SensorInformation(uid="Tank-0.e.full", space=Discrete(2), value=None),
        ]
        valve = Box(low=np.array([0.0]), high=np.array([20.0]), dtype=np.float32)
        return sensors, [ActuatorInformation(uid="Tank-0.e.valve", space=valve, value=None)], {}

    rows = GOLDEN["slow agents"]["rows"]
    monkeypatch.setattr(mosaik_worlds, "describe", describe)
    found = rewards_of(GOLDEN["slow agents"]["params"], [row["set"] for row in rows])
    assert found == [row["rewards"][0] for row in rows]
