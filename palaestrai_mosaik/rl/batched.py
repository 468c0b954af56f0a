"""Copies of a phase's world as one batch: the same phase, with bodies in a batched environment."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from palaestrai_mosaik.agent.batch import BatchMuscle, BatchObjective
from palaestrai_mosaik.environment.batch import BatchEnvironment
from palaestrai_mosaik.environment.copies import Copies
from palaestrai_mosaik.environment.environment import Environment
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.experiment import (
    BODY_NUMBER,
    AgentSpec,
    BodySpec,
    ClassSpec,
    EnvironmentSpec,
    PhaseSpec,
    RunDocument,
    resolve,
)
from palaestrai_mosaik.simulation.conditions import EnvironmentTerminationCondition, TerminationCondition

#: every copy begins again on its own, and the phase's episode never ends
_NEVER_ENDS = ClassSpec(
    f"{EnvironmentTerminationCondition.__module__}:{EnvironmentTerminationCondition.__name__}",
    {"when": "all", "episodes": 2**31},
)


class NotBatchable(ContractError):
    """The copies cannot be one batch; the message says why."""


@dataclass(frozen=True)
class Sizes:
    """How many ``copies``; the number of the ``first``, so that copy ``k`` draws the streams of ``first + k``.

    A copy is truncated after ``max_steps`` (``None``: when its environment says so).
    """

    copies: int
    first: int = 0
    max_steps: int | None = None


def batched(document: RunDocument, phase: PhaseSpec, own: str, sizes: Sizes) -> tuple[RunDocument, PhaseSpec]:
    """Return ``phase`` with copies of its environment and of every agent's body, and its document.

    ``own`` is the caller's agent, whose muscle does not matter. Raises :class:`NotBatchable` where a copy would not live through the same as it does alone.
    """
    if len(phase.environments) > 1:
        raise NotBatchable(f"there are {len(phase.environments)} environments, which end together")
    if phase.simulation.controller == "taking_turns" and len(phase.agents) > 1:
        raise NotBatchable("agents take turns, and those of a batch have them at the same time")
    conditions = [*phase.simulation.conditions, *document.conditions]
    for spec in conditions:
        if not _ends_with_environments(spec) and _hook(spec) is not TerminationCondition.episode_flow_control:
            raise NotBatchable(f"the condition {spec.name} may end the episode of all at once")
    environment = _batched_environment(phase.environments[0], sizes)
    # it was a batch already: then its channels have their place in it
    native = environment.name == phase.environments[0].name
    agents = tuple(_batched_agent(spec, native, sizes.copies, spec.name == own) for spec in phase.agents)
    kept = tuple(spec for spec in phase.simulation.conditions if not _ends_with_environments(spec))
    simulation = replace(phase.simulation, conditions=(*kept, _NEVER_ENDS))
    made = replace(phase, environments=(environment,), agents=agents, simulation=simulation)
    of_run = tuple(spec for spec in document.conditions if not _ends_with_environments(spec))
    return replace(document, conditions=of_run), made


def _batched_environment(spec: EnvironmentSpec, sizes: Sizes) -> EnvironmentSpec:
    if spec.interpreter is not None:
        raise NotBatchable(f"environment {spec.uid!r} has an interpreter of its own")
    found = resolve(spec.name, "environment")
    given: dict[str, Any] = {"batch": sizes.copies, "first": sizes.first}
    # there is nothing to be stored
    spec = replace(spec, state_transformer=None)
    if issubclass(found, Copies) or issubclass(found, BatchEnvironment):
        if sizes.max_steps is not None:
            given["max_steps"] = _step_limit(found, spec, sizes.max_steps)
        return replace(spec, params={**spec.params, **given})
    if issubclass(found, Environment) and found.hold_setpoints:
        params = {"name": f"{found.__module__}:{found.__qualname__}", "params": spec.params, **given}
        if sizes.max_steps is not None:
            params["max_steps"] = sizes.max_steps
        return replace(spec, name=f"{Copies.__module__}:{Copies.__name__}", params=params)
    raise NotBatchable(f"environment {spec.uid!r} is a {found.__name__}, which cannot be stepped in a batch")


def _step_limit(found: type, spec: EnvironmentSpec, most: int) -> int:
    """Return how many steps a batched environment may make: ``most``, or what it has of its own."""
    known = inspect.signature(found).parameters.get("max_steps")
    if known is None:
        raise NotBatchable(f"environment {spec.uid!r} is a {found.__name__}, which has no max_steps")
    own = spec.params.get("max_steps", known.default)
    return min(own, most) if isinstance(own, int) else most


def _batched_agent(agent: AgentSpec, native: bool, copies: int, own: bool) -> AgentSpec:
    """Return the agent with a body in every copy."""
    bodies = agent.bodies or (
        BodySpec(agent.muscle, agent.objective, agent.sensors, agent.actuators, agent.filters),
    )
    body = bodies[0]
    if len(bodies) > 1 or body.first or (body.count > 1 and not native) or (native and not agent.bodies):
        raise NotBatchable(f"the bodies of agent {agent.name!r} are not one for each copy")
    if not native:
        body = replace(body, sensors=_numbered(body.sensors), actuators=_numbered(body.actuators))
    body = replace(body, count=copies)
    if body.filters:
        raise NotBatchable(f"agent {agent.name!r} has filters")
    objective = body.objective
    if objective is not None and not issubclass(resolve(objective.name, "objective"), BatchObjective):
        raise NotBatchable(f"the objective of agent {agent.name!r} is no BatchObjective")
    if not own and not issubclass(resolve(body.muscle.name, "muscle"), BatchMuscle):
        raise NotBatchable(f"the muscle of agent {agent.name!r} is no BatchMuscle")
    return replace(agent, bodies=(body,), sensors=(), actuators=())


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of channels of one environment as they are in a batch of it."""
    found = []
    for name in names:
        uid, _, local = name.partition(".")
        if set(uid) & set("*?[") or BODY_NUMBER in name:
            raise NotBatchable(f"{name!r} does not begin with the uid of the environment, or names a body")
        found.append(f"{uid}.{BODY_NUMBER}.{local}")
    return tuple(found)


def _ends_with_environments(spec: ClassSpec) -> bool:
    return _hook(spec) is EnvironmentTerminationCondition.episode_flow_control


def _hook(spec: ClassSpec) -> Any:
    found: Any = resolve(spec.name, "condition")
    return found.episode_flow_control
