"""Represents a scenario as a run document, for the engine, the learners and the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.experiment import AgentSpec, ClassSpec, EnvironmentSpec, PhaseSpec, RunDocument
from palaestrai_mosaik.experiment.canonical import digest
from palaestrai_mosaik.experiment.model import DOCUMENT_VERSION, SimulationSpec
from palaestrai_mosaik.runner.factory import GivenPart
from palaestrai_mosaik.types import Mode

from .agent import Agent, load_of, part_of
from .environment import WORLD, Scenario

#: the name of the only phase
PHASE = "scenario"


def describe(
    agents: Sequence[Agent], scenario: Scenario, uid: str, seed: int, mode: Mode, taking_turns: bool
) -> RunDocument:
    """Create the run document of a scenario. Its canonical form is only stored, and cannot be loaded."""
    names = [agent.name for agent in agents]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ContractError(f"there are two agents {name!r}")
    specs = tuple(_agent(agent, scenario, uid) for agent in agents)
    _check_unshared(specs)
    controller = "taking_turns" if taking_turns else "vanilla"
    environment = EnvironmentSpec(
        WORLD, f"{Scenario.__module__}:{Scenario.__name__}", step_size=scenario.step_size
    )
    phase = PhaseSpec(
        index=0,
        name=PHASE,
        environments=(environment,),
        agents=specs,
        simulation=SimulationSpec(controller, controller),  # type: ignore[arg-type]  # one of the two
        mode=mode,
    )
    canonical: dict[str, Any] = {
        "uid": uid,
        "seed": seed,
        "version": DOCUMENT_VERSION,
        "scenario": {
            "step_size": scenario.step_size,
            "mode": mode.value,
            "controller": controller,
            "agents": [_agent_entry(spec) for spec in specs],
        },
    }
    return RunDocument(
        uid, seed, DOCUMENT_VERSION, (phase,), (), canonical, digest(canonical), "a script", text=""
    )


def _agent(agent: Agent, scenario: Scenario, uid: str) -> AgentSpec:
    muscle = part_of(agent.name, "muscle", agent.muscle)
    if muscle is None:
        raise ContractError(f"agent {agent.name!r} has no muscle")
    sensors, actuators = scenario.owned[agent.name]
    if not sensors and not actuators:
        raise ContractError(f"agent {agent.name!r} has neither sensors nor actuators")
    return AgentSpec(
        agent.name,
        muscle,
        part_of(agent.name, "brain", agent.brain),
        part_of(agent.name, "objective", agent.objective),
        sensors,
        actuators,
        load_of(agent, uid, PHASE),
    )


def _check_unshared(specs: Sequence[AgentSpec]) -> None:
    """Raise :class:`ContractError` if two agents share an object."""
    owners: dict[int, str] = {}
    for spec in specs:
        for what, part in (("muscle", spec.muscle), ("brain", spec.brain), ("objective", spec.objective)):
            if isinstance(part, GivenPart) and owners.setdefault(id(part.part), spec.name) != spec.name:
                raise ContractError(
                    f"agents {owners[id(part.part)]!r} and {spec.name!r} have the same object as {what}: give each "
                    "one of its own, or the class"
                )


def _agent_entry(spec: AgentSpec) -> Mapping[str, Any]:
    parts: dict[str, ClassSpec | None] = {
        "muscle": spec.muscle,
        "brain": spec.brain,
        "objective": spec.objective,
    }
    classes = {
        what: {"name": part.name, "params": part.params} for what, part in parts.items() if part is not None
    }
    return {
        "name": spec.name,
        **classes,
        "sensors": list(spec.sensors),
        "actuators": list(spec.actuators),
        "load": spec.load,
    }
