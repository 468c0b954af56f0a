"""A run document as text: the phases as they will be executed, after the cascade."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from palaestrai_mosaik.core.printing import counted_by_pattern
from palaestrai_mosaik.types.control import Mode

from .model import (
    BODY_NUMBER,
    AgentSpec,
    BodySpec,
    ClassSpec,
    EnvironmentSpec,
    FrameSpec,
    PhaseSpec,
    RunDocument,
    SnapshotSpec,
)

#: the special characters of shell patterns
_PATTERN = re.compile(r"[*?[{]")
#: modules of this package in the names of classes
_MODULES = re.compile(rf"\b{__name__.partition('.')[0]}\.[\w.]+:(?=[A-Z])")


def describe(document: RunDocument, *, whole: bool = False) -> str:
    """Describe the document's complete phases, one item per line.

    Sensors and actuators are counted by pattern, and classes of this package are named without their module; ``whole``
    has all names.
    """
    text = "\n".join(_lines(document, whole)) + "\n"
    return text if whole else _MODULES.sub("", text)


def _lines(document: RunDocument, whole: bool) -> Iterator[str]:
    yield f"run {document.uid!r}"
    yield f"  seed {document.seed}, version {document.version}, hash {document.hash[:16]}"
    for phase in document.phases:
        yield from _phase(phase, whole)
    yield from _conditions("run_config", document.conditions, "")


def _phase(phase: PhaseSpec, whole: bool) -> Iterator[str]:
    episodes = "episodes not limited" if phase.episodes is None else _count(phase.episodes, "episode")
    workers = _count(phase.workers, "worker")
    yield f"phase {phase.index} {phase.name!r}: {phase.mode.value}, {workers}, {episodes}"
    if phase.random_streams is not None:
        yield f"  random streams of phase {phase.random_streams!r}"
    if phase.mode is Mode.TRAIN:
        yield from _learning(phase)
    simulation = phase.simulation
    by = "" if simulation.scheduler == "direct" else f", scheduler {simulation.scheduler}"
    strict = "" if simulation.values == "count" else f", values {simulation.values}"
    name = "" if simulation.name == simulation.controller else f" ({simulation.name})"
    yield f"  simulation {simulation.controller}{name}{by}{strict}"
    yield from _conditions("conditions", simulation.conditions, "    ")
    for environment in phase.environments:
        yield from _environment(environment)
    for agent in phase.agents:
        yield from _agent(agent, phase.mode, whole)


def _learning(phase: PhaseSpec) -> Iterator[str]:
    if phase.evaluate_every is not None:
        yield f"  evaluation after every {_count(phase.evaluate_every, 'episode', '')}"
    if phase.workers > 1:
        together = "each for itself" if phase.asynchronous else "all together"
        yield f"  workers hear from the brains every {_count(phase.sync_every, 'step', '')}, {together}"


def _environment(environment: EnvironmentSpec) -> Iterator[str]:
    yield f"  environment {environment.uid!r}: {_call(environment.name, environment.params)}"
    if environment.step_size is not None:
        yield f"    step_size {environment.step_size}"
    if environment.interpreter is not None:
        limit = "" if environment.timeout is None else f", timeout {environment.timeout:g} s"
        yield f"    interpreter {environment.interpreter}{limit}"
    yield from _classes(environment, ("reward", "state_transformer"))
    if environment.frames is not None:
        yield f"    frames of {_frames(environment.frames)}"


def _agent(agent: AgentSpec, mode: Mode, whole: bool) -> Iterator[str]:
    yield f"  agent {agent.name!r}"
    yield from _classes(agent, ("muscle", "brain", "objective"))
    for title, ids in (("sensors", agent.sensors), ("actuators", agent.actuators)):
        if ids or not agent.bodies:
            yield f"    {title}{_ids(ids, whole)}"
    if agent.load is not None:
        yield f"    load {_pairs(agent.load) or 'itself from the previous phase'}"
    yield from (f"    filter {_call(spec.name, spec.params)}" for spec in agent.filters)
    yield from _bodies(agent, whole)
    if mode is Mode.TEST:  # nothing is learned
        return
    yield from (f"    replay {_pairs(asdict(source))}" for source in agent.replay)
    if agent.snapshots is not None:
        yield f"    snapshots {' and '.join(_snapshots(agent.snapshots))}"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value!r}" for key, value in values.items() if value is not None)


def _bodies(agent: AgentSpec, whole: bool) -> Iterator[str]:
    """Yield the bodies of an agent, and their differences from it."""
    number = 0
    for body in agent.bodies:
        numbers = f"number {number}" if body.count == 1 else f"numbers {number} to {number + body.count - 1}"
        number += body.count
        label = "" if body.name is None else f" {body.name!r}"
        bodies = "1 body" if body.count == 1 else f"{body.count} bodies"
        first = f", {BODY_NUMBER} from {body.first}" if body.first else ""
        yield f"    {bodies} in {body.environment}:{label} {numbers}{first}"
        for line in _differences(agent, body, whole):
            yield f"      {line}"


def _differences(agent: AgentSpec, body: BodySpec, whole: bool) -> Iterator[str]:
    for key in ("muscle", "objective"):
        spec: ClassSpec | None = getattr(body, key)
        if spec != getattr(agent, key):
            yield f"no {key}" if spec is None else f"{key} {_call(spec.name, spec.params)}"
    if not body.sensors and not body.actuators:
        yield "all sensors and actuators"
    else:
        channels = [(key, getattr(body, key), getattr(agent, key)) for key in ("sensors", "actuators")]
        yield from (f"{key}{_ids(ids, whole)}" for key, ids, common in channels if ids != common)
    if body.filters != agent.filters:
        yield from [f"filter {_call(spec.name, spec.params)}" for spec in body.filters] or ["no filters"]


def _ids(ids: tuple[str, ...], whole: bool) -> str:
    names = ", ".join(ids) if whole else counted_by_pattern(ids)
    # the number of names that a pattern stands for is known once the environments are set up
    is_counted = names.endswith(f": {len(ids):,}") or any(_PATTERN.search(name) for name in ids)
    return f"{'' if is_counted else f' ({len(ids)})'}: {names or 'none'}"


def _frames(spec: FrameSpec) -> str:
    if spec.episodes is None:
        episodes = f"every {_count(spec.every, 'episode', '')}"
    else:
        episodes = f"episodes {', '.join(map(str, spec.episodes))}"
    return f"{episodes}, every {_count(spec.step_every, 'step', '')}"


def _snapshots(spec: SnapshotSpec) -> Iterator[str]:
    if spec.every is not None:
        yield f"every {_count(spec.every, 'episode', '')}"
    if spec.best:
        yield "of the best"


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


def _count(number: int, noun: str, singular: str = "1 ") -> str:
    return f"{singular}{noun}" if number == 1 else f"{number} {noun}s"
