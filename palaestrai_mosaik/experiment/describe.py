"""A run document as text: the phases as they will be executed, the cascade applied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .model import AgentSpec, ClassSpec, EnvironmentSpec, PhaseSpec, RunDocument

_SHOWN = 8


def describe(document: RunDocument) -> str:
    """Return the document's phases, complete, one thing a line."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: RunDocument) -> Iterator[str]:
    yield f"run {document.uid!r}"
    yield f"  seed {document.seed}, version {document.version}, hash {document.hash[:16]}"
    for phase in document.phases:
        yield from _phase(phase)
    yield from _conditions("run_config", document.conditions, "")


def _phase(phase: PhaseSpec) -> Iterator[str]:
    episodes = "episodes not limited" if phase.episodes is None else _count(phase.episodes, "episode")
    workers = _count(phase.workers, "worker")
    yield f"phase {phase.index} {phase.name!r}: {phase.mode.value}, {workers}, {episodes}"
    simulation = phase.simulation
    yield f"  simulation {simulation.controller} ({simulation.name}), bridge {simulation.bridge}"
    yield from _conditions("conditions", simulation.conditions, "    ")
    for environment in phase.environments:
        yield from _environment(environment)
    for agent in phase.agents:
        yield from _agent(agent)


def _environment(environment: EnvironmentSpec) -> Iterator[str]:
    yield f"  environment {environment.uid!r}: {_call(environment.name, environment.params)}"
    if environment.step_size is not None:
        yield f"    step_size {environment.step_size}"
    yield from _classes(environment, ("reward", "state_transformer"))


def _agent(agent: AgentSpec) -> Iterator[str]:
    yield f"  agent {agent.name!r}"
    yield from _classes(agent, ("muscle", "brain", "objective"))
    for title, ids in (("sensors", agent.sensors), ("actuators", agent.actuators)):
        more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
        yield f"    {title} ({len(ids)}): {', '.join(ids[:_SHOWN]) or 'none'}{more}"
    if agent.load is not None:
        where = ", ".join(f"{key} {value!r}" for key, value in agent.load.items())
        yield f"    load {where or 'itself from the previous phase'}"


def _classes(owner: EnvironmentSpec | AgentSpec, keys: tuple[str, ...]) -> Iterator[str]:
    for key in keys:
        spec: ClassSpec | None = getattr(owner, key)
        if spec is not None:
            yield f"    {key} {_call(spec.name, spec.params)}"


def _conditions(title: str, specs: tuple[ClassSpec, ...], indent: str) -> Iterator[str]:
    yield f"{indent}{title}:" + ("" if specs else " none")
    for spec in specs:
        yield f"{indent}  {_call(spec.name, spec.params)}"


def _call(name: str, params: dict[str, Any]) -> str:
    inner = ", ".join(f"{key}={value!r}" for key, value in params.items())
    if len(inner) > 200:
        inner = inner[:190] + "..."
    return f"{name}({inner})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
