"""A small sound document to vary, and a short way to what is wrong with a text."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from palaestrai_mosaik.core.errors import DocumentError, Problem
from palaestrai_mosaik.experiment import loads

MINIMAL: dict[str, Any] = {
    "uid": "minimal",
    "seed": 1,
    "version": "3.5",
    "schedule": [
        {
            "first": {
                "environments": [
                    {"environment": {"uid": "world", "name": "worlds:World", "params": {"size": 3}}}
                ],
                "agents": [
                    {
                        "name": "defender",
                        "muscle": {"name": "muscles:Muscle", "params": {}},
                        "brain": {"name": "brains:Brain", "params": {"rate": 0.5}},
                        "objective": {"name": "objectives:Objective"},
                        "sensors": ["world.a"],
                        "actuators": ["world.b"],
                    }
                ],
                "simulation": {"name": "palaestrai.simulation:Vanilla", "conditions": [{"name": "ends:End"}]},
                "phase_config": {"mode": "train", "workers": 2, "episodes": 5},
            }
        }
    ],
    "run_config": {"condition": {"name": "ends:RunEnd", "params": {}}},
}

TEXT = """\
uid: minimal
seed: 1
version: "3.5"
schedule:
  - first:
      environments:
        - environment: {uid: world, name: "worlds:World"}
      agents:
        - name: defender
          muscle: {name: "muscles:Muscle"}
          sensors: [world.a]
          actuators: [world.b]
      simulation: {name: vanilla}
run_config:
  condition: {name: "ends:RunEnd"}
"""


@pytest.fixture
def minimal() -> dict[str, Any]:
    """A sound document as plain data of its own."""
    return copy.deepcopy(MINIMAL)


@pytest.fixture
def text() -> str:
    """A sound document as text of 15 lines."""
    return TEXT


@pytest.fixture
def problems() -> Callable[[str], list[Problem]]:
    """Return a function that gives the problems of a text (none if it is sound)."""

    def of(text: str) -> list[Problem]:
        try:
            loads(text, "run.yml")
        except DocumentError as error:
            return list(error.problems)
        return []

    return of
