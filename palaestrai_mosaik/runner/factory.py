"""Creates the objects of a phase from the document: environments, agents and conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from palaestrai_mosaik.agent import Brain, Muscle, Objective
from palaestrai_mosaik.agent.dumper import BrainDumper, load_arrays
from palaestrai_mosaik.agent.filter import Filter, FilterChain
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import BrainDumpError, ContractError
from palaestrai_mosaik.core.importing import load
from palaestrai_mosaik.environment.environment import EnvironmentStateTransformer, Reward, World
from palaestrai_mosaik.experiment import AgentSpec, ClassSpec, EnvironmentSpec, PhaseSpec, resolve
from palaestrai_mosaik.experiment.class_names import ADAPTERS
from palaestrai_mosaik.simulation.batch_body import BatchBody
from palaestrai_mosaik.simulation.body import Body, BodyIdentity
from palaestrai_mosaik.simulation.body_placement import BodyGroup, place_bodies
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.simulation.connections import Channels
from palaestrai_mosaik.simulation.environment_handle import EnvironmentHandle, open_handle
from palaestrai_mosaik.simulation.learner import ExperienceSink
from palaestrai_mosaik.simulation.remote_environment import RemoteEnvironment
from palaestrai_mosaik.types import Mode

from .brains import BrainKeeper, Dumpers
from .recorded_sessions import DEFAULT_SESSIONS, StoredSessions, connect

#: the tag of the dump of learned filter parameters
FILTERS = "filters"

#: the required base class of each kind of part
BASES: dict[str, type] = {
    "environment": World,
    "reward": Reward,
    "state_transformer": EnvironmentStateTransformer,
    "brain": Brain,
    "muscle": Muscle,
    "objective": Objective,
    "filter": Filter,
    "condition": TerminationCondition,
}

T = TypeVar("T")


@dataclass(frozen=True)
class WorkerPlan:
    """All that is needed to create a worker, as plain data that can be sent to another process.

    ``conditions`` are those of the run. ``keepers`` load and save the models of each agent. ``stored`` reads recorded
    sessions.
    """

    phase: PhaseSpec
    conditions: tuple[ClassSpec, ...]
    seed: int
    index: int
    keepers: Mapping[str, BrainKeeper]
    stored: StoredSessions = DEFAULT_SESSIONS


@dataclass(frozen=True, slots=True)
class GivenPart(ClassSpec):
    """A part that user code has created; ``name`` only describes it."""

    part: Any = None


def class_of(name: str, topic: str) -> type:
    """Resolve the class name in a document; for a class of another framework, return its adapter."""
    cls = resolve(name, topic)
    for base in cls.__mro__:
        adapters = ADAPTERS.get(base.__module__.partition(".")[0])
        if adapters is not None:
            adapter: type | None = load(adapters, kind="function")(cls, topic)
            return adapter or cls
    return cls


def resolved_class(spec: ClassSpec | EnvironmentSpec, topic: str) -> type:
    """Return the class of the object that :func:`make` creates for ``spec``."""
    return type(spec.part) if isinstance(spec, GivenPart) else class_of(spec.name, topic)


def muscle_classes(agent: AgentSpec) -> list[type[Muscle]]:
    """Return the distinct classes of the muscles of all bodies."""
    specs = [body.muscle for body in agent.bodies] or [agent.muscle]
    return list(dict.fromkeys(resolved_class(spec, "muscle") for spec in specs))


def unused_model_warning(agent: AgentSpec, mode: Mode) -> str:
    """Return a warning that a loaded model does not reach the muscles, or ``""`` if it does."""
    # a muscle without 'update' follows its own rules and needs no model
    taking = {muscle.__name__ for muscle in muscle_classes(agent) if muscle.update is not Muscle.update}
    names = [name for name in _unprepared(agent) if name in taking]
    if agent.load is None or mode is not Mode.TEST or not names:
        return ""
    return (
        f"agent {agent.name!r} loads a model in test mode, in which its brain gives no updates, and "
        f"{', '.join(names)} has no prepare_model to take it: it acts with initial values"
    )


def _unprepared(agent: AgentSpec) -> list[str]:
    """Return the names of the muscle classes without ``prepare_model``."""
    return [
        muscle.__name__ for muscle in muscle_classes(agent) if muscle.prepare_model is Muscle.prepare_model
    ]


def cannot_load(agent: AgentSpec) -> str:
    """Return why an agent's ``load`` has no effect, or ``""`` if it has one."""
    unprepared = _unprepared(agent)
    brain: type[Brain] | None = None if agent.brain is None else resolved_class(agent.brain, "brain")
    if len(unprepared) < len(muscle_classes(agent)) or (brain is not None and brain.load is not Brain.load):
        return ""
    whose = "" if brain is None else f"{brain.__name__}.load nor "
    return (
        f"agent {agent.name!r} has 'load', but {'neither ' if whose else 'no '}{whose}"
        f"{', '.join(unprepared)}.prepare_model is implemented"
    )


def make(spec: ClassSpec | EnvironmentSpec, topic: str) -> Any:
    """Create an object of the class that ``spec`` names, with its ``params`` as keyword arguments.

    Args:
        spec: the specification of the object.
        topic: the kind of the part, a key of :data:`BASES`.

    Raises:
        ContractError: if the class does not derive from the base class of ``topic``.
    """
    if isinstance(spec, EnvironmentSpec) and spec.interpreter is not None:
        return RemoteEnvironment(spec.name, deepcopy(spec.params), spec.interpreter, spec.timeout)
    cls = resolved_class(spec, topic)
    if not issubclass(cls, BASES[topic]):
        raise ContractError(f"{spec.name} is no {BASES[topic].__name__}, so it cannot be a {topic}")
    if isinstance(spec, GivenPart):
        return spec.part
    # copied, because classes may keep and change their arguments, and the document must not change
    return cls(**deepcopy(spec.params))


def make_handle(spec: EnvironmentSpec, stored: StoredSessions = DEFAULT_SESSIONS) -> EnvironmentHandle:
    """Create and set up the environment of ``spec``; a replaying one may read from ``stored``."""
    domain: World = make(spec, "environment")
    domain.uid = spec.uid
    connect(domain, stored)
    if spec.frames is not None:
        domain.enable_frames()
    if spec.step_size is not None:
        domain.step_size = spec.step_size
    reward: Reward | None = None if spec.reward is None else make(spec.reward, "reward")
    transformer: EnvironmentStateTransformer | None = None
    if reward is not None:
        reward._join(domain)
    if spec.state_transformer is not None:
        transformer = make(spec.state_transformer, "state_transformer")
        transformer._join(domain)
    if reward is not None and domain.takes_reward(reward):
        reward = None
    try:
        return open_handle(domain, reward, transformer)
    except BaseException:
        domain.shutdown()
        raise


def make_handles(
    specs: Sequence[EnvironmentSpec],
    stored: StoredSessions,
    create: Callable[[EnvironmentSpec], EnvironmentHandle] = make_handle,
) -> list[EnvironmentHandle]:
    """Create all environments with the function ``create``; if that fails, shut down those already created."""
    handles: list[EnvironmentHandle] = []
    try:
        for spec in specs:
            handles.append(create(spec))
            connect(handles[-1].domain, stored)
    except BaseException:
        for handle in handles:
            handle.domain.shutdown()
        raise
    return handles


def make_conditions(specs: Sequence[ClassSpec], *, of_run: bool = False) -> list[TerminationCondition]:
    """Create the termination conditions in the document's order; ``of_run`` marks conditions of the whole run."""
    conditions: list[TerminationCondition] = [make(spec, "condition") for spec in specs]
    for index, condition in enumerate(conditions):
        condition.of_run, condition._place = of_run, index
    return conditions


def all_conditions(
    phase: PhaseSpec, of_run: Sequence[ClassSpec]
) -> tuple[list[TerminationCondition], list[TerminationCondition]]:
    """Create the conditions of ``phase`` and those of the run, and introduce them to each other."""
    conditions = make_conditions(phase.simulation.conditions)
    run_conditions = make_conditions(of_run, of_run=True)
    for condition in (*conditions, *run_conditions):
        condition.beside([*conditions, *run_conditions])
    return conditions, run_conditions


def make_filters(spec: AgentSpec, channels: Channels, mode: Mode) -> FilterChain | None:
    """Create the filters of an agent, for one of its muscles or for its brain.

    Raises :class:`ContractError` if they do not fit the channels, or if the agent replays and they are irreversible.
    """
    if not spec.filters:
        return None
    chain = FilterChain([make(f, "filter") for f in spec.filters], channels.sensors, channels.actuators)
    chain.mode = mode
    if spec.replay and spec.brain is not None and mode is Mode.TRAIN and chain.irreversible:
        raise ContractError(
            f"agent {spec.name!r} cannot replay through {', '.join(chain.irreversible)}: the store has what the "
            "environment got, but not what the muscle did before its filters changed it"
        )
    return chain


def give_filters(
    part: Muscle | Brain, filters: FilterChain | None, seed: int, phase: str, *whose: str | int
) -> None:
    """Give ``part``, a muscle or a brain, the filters that it owns, each with a seed."""
    owned = [] if filters is None else [member for member in filters.filters if member._has_owner]
    for number, member in enumerate(owned):
        member._introduce(seeding.integer_seed(seed, phase, "filter", *whose, number))
    part._own_filters(owned)


def make_bodies(
    spec: AgentSpec, plan: WorkerPlan, handles: Sequence[EnvironmentHandle], learner: ExperienceSink | None
) -> Iterator[Body | BatchBody]:
    """Yield the bodies of an agent in a worker, set up and loaded.

    Identical bodies in a batched environment become one object if muscle and objective support batches.
    """
    groups, faults = place_bodies(spec, handles)
    if faults:
        raise ContractError(f"agent {spec.name!r}: {faults[0][0]}")
    for group in groups:
        if group.at_once:
            yield _make_batch(spec, group, plan, learner)
        else:
            for index in range(group.count):
                yield _make_body(spec, group, index, plan, learner)


def _make_body(
    spec: AgentSpec, group: BodyGroup, index: int, plan: WorkerPlan, learner: ExperienceSink | None
) -> Body:
    mode, channels = plan.phase.mode, group.channels(index)
    filters = make_filters(replace(spec, filters=group.spec.filters), channels, mode)
    identity = group.identity(index)
    muscle, objective = _made(spec, group, plan, identity)
    give_filters(muscle, filters, plan.seed, plan.phase.streams, spec.name, plan.index, index)
    body = Body(identity, muscle, objective, channels, learner, filters)
    for part in (muscle, objective):
        memory = None if part is None else part._memory_for(channels)
        if memory is not None:
            body.memory = memory
            break
    muscle._memory = body.memory
    suffix = () if identity.number is None else (identity.number,)
    muscle._memory.rng = seeding.generator(
        plan.seed, plan.phase.streams, "memory", spec.name, plan.index, *suffix
    )
    _set_up(body, spec, plan)
    return body


def _make_batch(
    spec: AgentSpec, group: BodyGroup, plan: WorkerPlan, learner: ExperienceSink | None
) -> BatchBody:
    identity = group.identity()
    muscle, objective = _made(spec, group, plan, identity)
    muscles = [muscle_uid(spec.name, plan.index, group.first + i) for i in range(group.count)]
    body = BatchBody(identity, muscle, objective, group.batch_channels(), muscles, learner)
    _set_up(body, spec, plan)
    return body


def _made(spec: AgentSpec, group: BodyGroup, plan: WorkerPlan, identity: BodyIdentity) -> tuple[Any, Any]:
    muscle: Muscle = make(group.spec.muscle, "muscle")
    wanted = group.spec.objective
    objective: Objective | None = None if wanted is None else make(wanted, "objective")
    muscle.uid = muscle_uid(spec.name, plan.index, identity.number)
    muscle.mode = plan.phase.mode
    muscle._dumpers = Dumpers([plan.keepers[spec.name]])
    suffix = () if identity.number is None else (identity.number,)
    brain: type = object if spec.brain is None else resolved_class(spec.brain, "brain")
    filtered = issubclass(brain, Brain) and brain._filters_muscle_data

    def seed(topic: str) -> int:
        return seeding.integer_seed(plan.seed, plan.phase.streams, topic, spec.name, plan.index, *suffix)

    muscle._introduce(spec.name, seed("muscle"), loads=spec.load is not None, taught=filtered)
    if objective is not None:
        objective._introduce(spec.name, seed("objective"), muscle)
    return muscle, objective


def _set_up(body: Body | BatchBody, spec: AgentSpec, plan: WorkerPlan) -> None:
    if body.objective is not None:
        body.objective.setup(body.reward_names)
    body.muscle.setup()
    model = plan.keepers[spec.name].model
    if model is not None:
        body.muscle._take_model(model)
    if spec.load is not None:
        body.muscle.prepare_model()
        load_filters(body.filters, plan.keepers[spec.name], spec.name)


def muscle_uid(agent: str, worker: int, body: int | None = None) -> str:
    """Return the uid of an agent's muscle; ``body`` is the number of its body in an agent with several."""
    return f"{agent}.{worker}" if body is None else f"{agent}.{worker}.{body}"


def muscle_uids(spec: AgentSpec, worker: int) -> list[str]:
    """Return the uids of all muscles of an agent in a worker."""
    if not spec.bodies:
        return [muscle_uid(spec.name, worker)]
    return [muscle_uid(spec.name, worker, b) for b in range(sum(body.count for body in spec.bodies))]


def load_filters(filters: FilterChain | None, dumper: BrainDumper, agent: str) -> None:
    """Restore the learned parameters of the filters of ``agent``, if they have any.

    Raises :class:`BrainDumpError` if the dump does not belong to these filters.
    """
    expected = filter_arrays(filters)
    if filters is None or not expected:
        return
    arrays = load_arrays([dumper], FILTERS)
    names = ", ".join(type(member).__name__ for member in filters.filters)
    misfit = (
        f"agent {agent!r}: the model that 'load' points to has not been learned through its filters ({names})"
    )
    if arrays.keys() != expected.keys():
        # learned arrays are named after the filter's index in the chain
        raise BrainDumpError(
            f"{misfit}: they keep {', '.join(expected)}, but it has {', '.join(arrays) or 'nothing'}"
        )
    states = filters.state()
    for name, array in arrays.items():
        index, key = name.split(".", 1)
        states[int(index)][key] = array
    try:
        filters.set_state(states)
    except (ContractError, TypeError, ValueError) as error:
        raise BrainDumpError(f"{misfit}: {error}") from error


def filter_arrays(filters: FilterChain | None) -> dict[str, Any]:
    """Return all learned arrays of filters, named after the filter's index in the chain and the array."""
    states = [] if filters is None else filters.state()
    return {f"{i}.{key}": np.asarray(value) for i, state in enumerate(states) for key, value in state.items()}


def call_all(actions: Sequence[Callable[[], None]]) -> None:
    """Call all ``actions``, even if some fail; then raise the first error."""
    failure: Exception | None = None
    for action in actions:
        try:
            action()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
