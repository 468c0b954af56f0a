"""Builds run documents for tests; what is not given is the dummy document."""

from __future__ import annotations

import json
import re
from typing import Any

from palaestrai_mosaik.experiment import RunDocument, from_mapping

DUMMY = "palaestrai_mosaik.agent.library.dummy"
CONDITIONS = "palaestrai_mosaik.simulation.conditions"
ENVIRONMENT_ENDS = f"{CONDITIONS}:EnvironmentTerminationCondition"
MAX_EPISODES = f"{CONDITIONS}:MaxEpisodesTerminationCondition"
AGENT_OBJECTIVE = f"{CONDITIONS}:AgentObjectiveTerminationCondition"
VANILLA_RUN = f"{CONDITIONS}:VanillaRunGovernorTerminationCondition"
VANILLA_SIMULATION = f"{CONDITIONS}:VanillaSimControllerTerminationCondition"

#: a short run document: two episodes of a random walk
WALK = """
uid: walk
seed: 7
schedule:
  train:
    environments: [slippery_grid]
    agents: [{name: walker, muscle: random}]
    phase_config: {episodes: 2}
"""


def named(name: str, **params: Any) -> dict[str, Any]:
    """Return the entry of a class and its parameters."""
    return {"name": name, "params": params}


def environment(uid: str = "myenv", name: str = "", **params: Any) -> dict[str, Any]:
    """Return the entry of an environment (the dummy one if no name is given)."""
    return {
        "environment": {
            "uid": uid,
            "name": name or "palaestrai_mosaik.environment.dummy:DummyEnvironment",
            "params": params,
        }
    }


#: the outcome of a design of walks: the number of steps
LENGTH = "outcomes: {length: {of: steps, step: sum, episode: sum, better: lower}}"


def walks(*episodes: int, outcomes: str = LENGTH) -> str:
    """Return a design of random walks with these numbers of episodes."""
    return f"""
uid: walks
seed: 1
base:
  uid: walk
  seed: 7
  schedule:
    train:
      environments: [slippery_grid]
      agents: [{{name: walker, muscle: random}}]
      phase_config: {{episodes: 1}}
factors:
  episodes: {{path: schedule.train.phase_config.episodes, levels: {list(episodes)}}}
sampler: factorial
{outcomes}
"""


def agent(name: str = "a", first: int = 0, count: int = 5, uid: str = "myenv", **keys: Any) -> dict[str, Any]:
    """Return the entry of a dummy agent; ``keys`` replace what is given there."""
    channels = [f"{uid}.{i}" for i in range(first, first + count)]
    return {
        "name": name,
        "brain": named(f"{DUMMY}:DummyBrain"),
        "muscle": named(f"{DUMMY}:DummyMuscle"),
        "objective": named(f"{DUMMY}:DummyObjective"),
        "sensors": channels,
        "actuators": channels,
        **keys,
    }


def phase(
    environments: list[Any] | None = None,
    agents: list[Any] | None = None,
    conditions: list[Any] | None = None,
    controller: str = "vanilla",
    scheduler: str = "direct",
    **phase_config: Any,
) -> dict[str, Any]:
    """Return a phase."""
    return {
        "environments": environments if environments is not None else [environment()],
        "agents": agents if agents is not None else [agent("a"), agent("b", 5)],
        "simulation": {
            "name": controller,
            **({} if scheduler == "direct" else {"scheduler": scheduler}),
            "conditions": conditions if conditions is not None else [named(ENVIRONMENT_ENDS)],
        },
        "phase_config": {"mode": "train", "workers": 1, "episodes": 1, **phase_config},
    }


def document(
    *phases: dict[str, Any], run: list[Any] | None = None, uid: str = "test", seed: int = 42
) -> RunDocument:
    """Return a document; phases are named phase_0, phase_1, ..."""
    return from_mapping(
        {
            "uid": uid,
            "seed": seed,
            "version": "3.5",
            "schedule": [{f"phase_{i}": p} for i, p in enumerate(phases or (phase(),))],
            "run_config": {"conditions": run if run is not None else [named(VANILLA_RUN)]},
        }
    )


def extras_of(document: RunDocument) -> set[str]:
    """Return the extras that the document's classes need; short names are full names in its canonical form."""
    text = json.dumps(document.canonical)
    needs = {"grid"} if re.search(r"\.grid[.:]", text) else set()
    return needs | ({"rl"} if re.search(r"\.(sb3|gymnasium|pettingzoo):", text) else set())
