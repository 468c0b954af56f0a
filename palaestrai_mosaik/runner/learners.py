"""The learning side of agents: brains are created, loaded, pretrained and saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from palaestrai_mosaik.agent import BodyInformation, Brain, BrainDumper, Experience, Memory
from palaestrai_mosaik.agent.dumper import dump_arrays
from palaestrai_mosaik.agent.filter import FilterChain
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import BrainDumpError, ContractError, DocumentError, Problem, StoreError
from palaestrai_mosaik.experiment import AgentSpec, PhaseSpec, RunDocument
from palaestrai_mosaik.simulation.body_placement import BodyGroup
from palaestrai_mosaik.simulation.connections import Channels
from palaestrai_mosaik.simulation.learner import Learner
from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation

from .brains import BrainKeeper, Dumpers, find_source
from .factory import (
    FILTERS,
    cannot_load,
    filter_arrays,
    give_filters,
    load_filters,
    make,
    make_filters,
    muscle_classes,
    muscle_uid,
)
from .recorded_sessions import ReplayContext, find_instance, replay

if TYPE_CHECKING:
    from palaestrai_mosaik.store import Store


def make_learner(
    spec: AgentSpec,
    context: ReplayContext,
    keeper: BrainKeeper,
    groups: Sequence[BodyGroup],
    store: Store | None,
) -> Learner | None:
    """Create the learning side of an agent, or return ``None`` if the agent has no brain.

    The brain is set up and, if the document requests it, loaded (``load``) and in train mode pretrained (``replay``).

    Args:
        spec: the agent.
        context: the document, the phase, and the current execution.
        keeper: saves and loads the brain.
        groups: the agent's bodies, in order.
        store: the store with sessions to replay, or ``None``.

    Raises:
        ContractError: if the bodies have different filters, or if there are filters and the bodies' channels differ
            in size. The brain has only one filter chain.
        BrainDumpError: if ``load`` would have no effect, or the dump does not fit.
    """
    if spec.brain is None:
        return None
    phase, seed = context.phase, context.document.seed
    brain: Brain = make(spec.brain, "brain")
    filters = _common_filters(spec, groups, phase.mode)
    brain.name = spec.name
    brain.mode = phase.mode
    brain.seed = seeding.integer_seed(seed, phase.streams, "brain", spec.name)
    brain.rng = seeding.generator(seed, phase.streams, "brain", spec.name)
    brain._dumpers = Dumpers([keeper])
    brain.bodies = _bodies(brain, groups, filters, phase.workers)
    brain.sensors, brain.actuators = brain.bodies[0].sensors, brain.bodies[0].actuators
    _lay_out_memories(brain, groups, seed, phase.streams)
    give_filters(brain, filters, seed, phase.streams, spec.name, "brain")
    brain._introduce(spec.load is not None, context.document.uid, context.instance or "", phase.index)
    brain.setup()
    if spec.load is not None:
        problem = cannot_load(spec)
        if problem:
            raise BrainDumpError(problem)
        brain.load()
        load_filters(filters, keeper, spec.name)
    learner = Learner(brain, filters)
    if spec.replay and phase.mode is Mode.TRAIN:
        _replay(learner, spec, context, groups, store)
        learner.hand_out(brain.pretrain())
    if phase.mode is Mode.TRAIN and not learner.updates:
        learner.hand_out(brain.initial_update())
    elif phase.mode is Mode.TEST:
        keeper.model = brain._test_model()
    return learner


def refused_update_warning(spec: AgentSpec, learner: Learner) -> str:
    """Return a warning that a brain returned false values for muscles that take updates, or ``""`` if it did not."""
    if learner.refused is None or spec.brain is None or not expects_updates(spec):
        return ""
    brain, kind = spec.brain.name.rpartition(":")[2], learner.refused.__name__
    never = "" if learner.updates else ", and it never returned another update"
    return (
        f"brain {brain} of agent {spec.name!r} returned a false value of type {kind}{never}: a false value, such as 0 or an "
        "empty list, is no update, so Muscle.update was not called with it; return None where there is no update, and "
        "an array, a tuple or a mapping with the value where there is one"
    )


def expects_updates(spec: AgentSpec) -> bool:
    """Return whether one of the agent's muscles implements ``update``."""
    return any(muscle._expects_updates() for muscle in muscle_classes(spec))


def _common_filters(spec: AgentSpec, groups: Sequence[BodyGroup], mode: Mode) -> FilterChain | None:
    """Create the brain's filters. Raises :class:`ContractError` if the bodies' filters do not form one chain."""
    first = groups[0]
    if not any(group.spec.filters for group in groups):
        return None
    expected = _sizes(first.channels())
    for group in groups:
        if group.spec.filters != first.spec.filters:
            raise ContractError(
                f"agent {spec.name!r}: body {group.first} has other filters than body {first.first}; an agent that "
                "learns has the same ones for all of its bodies, because its brain has one chain of them"
            )
        sizes = _sizes(group.channels())
        if sizes != expected:
            raise ContractError(
                f"agent {spec.name!r}: body {group.first} reads and sets {sizes[0]} and {sizes[1]} numbers, body "
                f"{first.first} {expected[0]} and {expected[1]}; an agent that learns through filters has bodies of "
                "one size, because its brain has one chain of them"
            )
    return make_filters(replace(spec, filters=first.spec.filters), first.channels(), mode)


def _bodies(
    brain: Brain, groups: Sequence[BodyGroup], filters: FilterChain | None, workers: int
) -> list[BodyInformation]:
    """Create the brain's information about all bodies, with set-points drawn from the brain's generator."""
    bodies = []
    for group in groups:
        channels = group.channels()
        visible = channels if filters is None else filters
        layout, bound = visible.sensors, visible.actuators.bound(brain.rng)
        sensors = [SensorInformation(None, s, u) for s, u in zip(layout.spaces, layout.uids, strict=True)]
        actuators = [ActuatorInformation(None, s, u) for s, u in zip(bound.spaces, bound.uids, strict=True)]
        uids, replayed = tuple(group.environments), any(handle.replays for handle in channels.handles)
        for number in range(group.first, group.first + group.count):
            suffix = number if group.numbered else None
            muscles = tuple(muscle_uid(brain.name, worker, suffix) for worker in range(workers))
            bodies.append(
                BodyInformation(
                    *(brain.name, uids, number, group.index, muscles),
                    *(sensors, actuators, group.spec.name, replayed),
                )
            )
    return bodies


def _lay_out_memories(brain: Brain, groups: Sequence[BodyGroup], seed: int, phase: str) -> None:
    """Create one of the brain's memories for each distinct size of the bodies' rows."""
    made: dict[tuple[int, ...], Memory] = {}
    extra: dict[str, Memory] = {}
    for group in groups:
        channels = group.channels()
        members = [body for body in brain.bodies if body.group == group.index]
        sizes = (*_sizes(channels), len(channels.rewards), *members[0].sizes)
        memory = made.get(sizes)
        if memory is None:
            memory = made[sizes] = brain._memory_for(channels, members[0])
            # the first memory has the same random stream as that of an agent with identical bodies only
            below: tuple[str | int, ...] = ("size", len(made) - 1) if len(made) > 1 else ()
            memory.rng = seeding.generator(seed, phase, "memory", brain.name, *below)
            if len(made) == 1:
                brain._memory = memory
        if memory is not brain._memory:
            extra.update({muscle: memory for body in members for muscle in body.muscles})
    brain._memories = extra


def _sizes(channels: Channels) -> tuple[int, int]:
    """Return the number of values that a body reads, and of those that it sets."""
    return channels.sensors.size, channels.actuators.size


def _replay(
    learner: Learner,
    spec: AgentSpec,
    context: ReplayContext,
    groups: Sequence[BodyGroup],
    store: Store | None,
) -> None:
    """Fill the brain's memory with the sessions of ``replay``, transformed by the agent's filters.

    The filters process all sessions twice: first they learn from the readings, then they transform them.
    """
    brain, filters = learner.brain, learner.filters
    if filters is None:
        memories = {body.group: brain.memory_of(body.muscles[0]) for body in brain.bodies}
        replay([memories[group.index] for group in groups], spec, groups, context, store)
        return
    stored = Memory(size_limit=brain.memory.size_limit)
    replay(stored, spec, groups, context, store)
    for _ in _seen(filters, stored):
        pass
    filters.learn(filters.news())
    filters.mode = Mode.TEST
    rows = list(_seen(filters, stored))
    filters.mode = Mode.TRAIN
    for row in rows:
        brain.memory.append_experience(filters.brain_pre(row))


def _seen(filters: FilterChain, stored: Memory) -> Iterator[Experience]:
    """Yield the rows with the observations and actions of a muscle with these filters."""
    step = 0
    for row in stored:
        if step == 0:
            filters.reset()
        readings, setpoints = row.sensor_readings[0], row.actuator_setpoints[0]
        terminated, truncated = bool(row.terminated[0]), bool(row.truncated[0])
        yield Experience(
            row.muscles[0],
            readings,
            setpoints,
            row.rewards[0],
            float(row.objective[0]),
            row.additional_data[0],
            filters.pre(readings),
            filters.undo(setpoints),
            terminated,
            truncated,
            step=step,
        )
        step = 0 if terminated or truncated else step + 1


def check_executions(phases: Sequence[PhaseSpec], document: RunDocument, store: Store | None) -> None:
    """Check that the other executions exist that ``load`` and ``replay`` refer to.

    Phases of the same execution were checked with the document.

    Args:
        phases: the phases of ``document`` that will run.
        document: the document.
        store: the open store, or ``None``.

    Raises:
        DocumentError: with all missing executions.
    """
    problems: dict[Problem, None] = {}

    def check(find: Callable[[], Any], *path: str | int) -> None:
        try:
            find()
        except (BrainDumpError, StoreError) as error:
            problems[document.problem(str(error), "phases", *path)] = None

    for phase in phases:
        for i, agent in enumerate(phase.agents):
            path = (phase.index, "agents", i)
            if agent.load is not None:
                check(partial(find_source, agent, phase, document, store), *path, "load")
            if agent.brain is None or phase.mode is Mode.TEST:
                continue
            for j, source in enumerate(agent.replay):
                if source.instance is not None or source.experiment_run not in (None, document.uid):
                    check(partial(find_instance, source, document.uid, store), *path, "replay", j)
    if problems:
        raise DocumentError(list(problems))


def store_model(learner: Learner, dumper: BrainDumper) -> None:
    """Save the brain and the learned filter parameters, all dumps at once."""
    brain = learner.brain
    collected = _Collected(dumper)
    before, brain._dumpers = brain._dumpers, [collected]
    try:
        brain.store()
    finally:
        brain._dumpers = before
    arrays = filter_arrays(learner.filters)
    if arrays:
        dump_arrays(arrays, [collected], FILTERS)
    dumper.save_all(collected.dumps)


class _Collected(BrainDumper):
    """Buffers dumps, so that all are saved together; loads from another dumper."""

    def __init__(self, elsewhere: BrainDumper):
        self.dumps: dict[str, bytes] = {}
        self._elsewhere = elsewhere

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        self.dumps[tag] = dump.read()

    def load(self, tag: str = "") -> BinaryIO:
        return self._elsewhere.load(tag)
