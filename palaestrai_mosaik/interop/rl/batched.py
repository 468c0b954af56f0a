"""Copies of a phase's world as one batch: the same phase, with bodies in a batched environment."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from palaestrai_mosaik.agent.batch import BatchMuscle, BatchObjective
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment.batch import BatchEnvironment
from palaestrai_mosaik.environment.copies import Copies
from palaestrai_mosaik.environment.environment import Environment
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

#: every copy restarts separately, and the phase's episode never ends
_NEVER_ENDS = ClassSpec(
    f"{EnvironmentTerminationCondition.__module__}:{EnvironmentTerminationCondition.__name__}",
    {"when": "all", "episodes": 2**31},
)


class NotBatchable(ContractError):
    """The copies cannot form a batch; the message has the reason."""


@dataclass(frozen=True)
class Sizes:
    """The number of ``copies`` and the number of the ``first``: copy ``k`` draws the streams of ``first + k``.

    A copy is truncated after ``max_steps``; ``None``: only by its environment.
    """

    copies: int
    first: int = 0
    max_steps: int | None = None


def batched(
    document: RunDocument, phase: PhaseSpec, controlled: str, sizes: Sizes
) -> tuple[RunDocument, PhaseSpec]:
    """Return the document and ``phase`` with copies of its environment and of every agent's body.

    ``controlled`` is the agent that the caller controls. Raises :class:`NotBatchable` if a copy would not
    behave as it does alone.
    """
    if len(phase.environments) > 1:
        raise NotBatchable(f"there are {len(phase.environments)} environments, which end together")
    if phase.simulation.controller == "taking_turns" and len(phase.agents) > 1:
        raise NotBatchable("agents take turns, and those of a batch have them at the same time")
    phase_conditions, run_conditions = map(_kept, (phase.simulation.conditions, document.conditions))
    environment = _batched_environment(phase.environments[0], sizes)
    # an environment that was a batch before has its number in the channel names already
    native = environment.name == phase.environments[0].name
    for spec in phase.agents:
        _check_agent(spec, native, controlled=spec.name == controlled)
    agents = tuple(_batched_agent(spec, native, sizes.copies) for spec in phase.agents)
    simulation = replace(phase.simulation, conditions=(*phase_conditions, _NEVER_ENDS))
    batch_phase = replace(phase, environments=(environment,), agents=agents, simulation=simulation)
    return replace(document, conditions=run_conditions), batch_phase


def _kept(conditions: Sequence[ClassSpec]) -> tuple[ClassSpec, ...]:
    """Return the conditions other than those that end an episode with its environments."""
    kept = []
    for spec in conditions:
        condition: Any = resolve(spec.name, "condition")
        hook = condition.episode_flow_control
        if hook is EnvironmentTerminationCondition.episode_flow_control:
            continue
        if hook is not TerminationCondition.episode_flow_control:
            raise NotBatchable(f"the condition {spec.name} may end the episode of all at once")
        kept.append(spec)
    return tuple(kept)


def _batched_environment(spec: EnvironmentSpec, sizes: Sizes) -> EnvironmentSpec:
    if spec.interpreter is not None:
        raise NotBatchable(f"environment {spec.uid!r} has an interpreter of its own")
    environment_class = resolve(spec.name, "environment")
    params_of_batch: dict[str, Any] = {"batch": sizes.copies, "first": sizes.first}
    # nothing is stored
    spec = replace(spec, state_transformer=None)
    if issubclass(environment_class, Copies) or issubclass(environment_class, BatchEnvironment):
        if sizes.max_steps is not None:
            params_of_batch["max_steps"] = _step_limit(environment_class, spec, sizes.max_steps)
        return replace(spec, params={**spec.params, **params_of_batch})
    if issubclass(environment_class, Environment) and environment_class.hold_setpoints:
        params = {
            "name": f"{environment_class.__module__}:{environment_class.__qualname__}",
            "params": spec.params,
            **params_of_batch,
        }
        if sizes.max_steps is not None:
            params["max_steps"] = sizes.max_steps
        return replace(spec, name=f"{Copies.__module__}:{Copies.__name__}", params=params)
    raise NotBatchable(
        f"environment {spec.uid!r} is a {environment_class.__name__}, which cannot be stepped in a batch"
    )


def _step_limit(environment_class: type, spec: EnvironmentSpec, most: int) -> int:
    """Return the step limit of a batched environment: ``most``, or its own if smaller."""
    parameter = inspect.signature(environment_class).parameters.get("max_steps")
    if parameter is None:
        raise NotBatchable(
            f"environment {spec.uid!r} is a {environment_class.__name__}, which has no max_steps"
        )
    limit = spec.params.get("max_steps", parameter.default)
    return min(limit, most) if isinstance(limit, int) else most


def _bodies(agent: AgentSpec) -> Sequence[BodySpec]:
    return agent.bodies or (
        BodySpec(agent.muscle, agent.objective, agent.sensors, agent.actuators, agent.filters),
    )


def _check_agent(agent: AgentSpec, native: bool, *, controlled: bool) -> None:
    """Raise :class:`NotBatchable` unless the agent can have equal bodies that act as one batch.

    Args:
        agent: the agent of the document.
        native: whether its environment is a batch in the document.
        controlled: whether the caller acts for the agent, and not its muscle.
    """
    body, *others = _bodies(agent)
    if others or body.first or (native and not agent.bodies) or (body.count > 1 and not native):
        raise NotBatchable(f"the bodies of agent {agent.name!r} are not one for each copy")
    if body.filters:
        raise NotBatchable(f"agent {agent.name!r} has filters")
    objective = body.objective
    if objective is not None and not issubclass(resolve(objective.name, "objective"), BatchObjective):
        raise NotBatchable(f"the objective of agent {agent.name!r} is no BatchObjective")
    if not controlled and not issubclass(resolve(body.muscle.name, "muscle"), BatchMuscle):
        raise NotBatchable(f"the muscle of agent {agent.name!r} is no BatchMuscle")


def _batched_agent(agent: AgentSpec, native: bool, copies: int) -> AgentSpec:
    """Return the agent with a body in every copy."""
    body = replace(_bodies(agent)[0], count=copies)
    if not native:
        body = replace(body, sensors=_numbered(body.sensors), actuators=_numbered(body.actuators))
    return replace(agent, bodies=(body,), sensors=(), actuators=())


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    """Convert names of one environment's channels to those of a batch."""
    numbered = []
    for name in names:
        uid, _, local = name.partition(".")
        if set(uid) & set("*?[") or BODY_NUMBER in name:
            raise NotBatchable(f"{name!r} does not begin with the uid of the environment, or names a body")
        numbered.append(f"{uid}.{BODY_NUMBER}.{local}")
    return tuple(numbered)
