"""The learning side of agents: brains made, loaded, pretrained and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from palaestrai_mosaik import seeding
from palaestrai_mosaik.agent import BodyInformation, Brain, BrainDumper, Experience, Memory
from palaestrai_mosaik.agent.dumper import dump_arrays
from palaestrai_mosaik.agent.filter import FilterChain
from palaestrai_mosaik.errors import BrainDumpError, ContractError, DocumentError, Problem, StoreError
from palaestrai_mosaik.experiment import AgentSpec, PhaseSpec, RunDocument
from palaestrai_mosaik.simulation.body_placement import BodyGroup
from palaestrai_mosaik.simulation.channels import Channels
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
    muscle_uid,
)
from .replay import ReplayContext, find_instance, replay

if TYPE_CHECKING:
    from palaestrai_mosaik.store import Store


def make_learner(
    spec: AgentSpec,
    context: ReplayContext,
    keeper: BrainKeeper,
    groups: Sequence[BodyGroup],
    store: Store | None,
) -> Learner | None:
    """Return the learning side of an agent (``None`` if it has no brain).

    The brain is set up, loaded where the document says ``load``, and in train mode
    pretrained where it says ``replay``. ``groups`` are the agent's bodies, in order. Raises
    :class:`ContractError` where it has filters, and they are not the same for all bodies, or the
    bodies' channels are not of the same sizes: the brain has one chain of them.
    """
    if spec.brain is None:
        return None
    phase, seed = context.phase, context.document.seed
    brain: Brain = make(spec.brain, "brain")
    filters = _common_filters(spec, groups, phase.mode)
    brain.name = spec.name
    brain.mode = phase.mode
    brain.seed = seeding.integer_seed(seed, phase.name, "brain", spec.name)
    brain.rng = seeding.generator(seed, phase.name, "brain", spec.name)
    brain._dumpers = Dumpers([keeper])
    brain.bodies = _bodies(brain, groups, filters, phase.workers)
    brain.sensors, brain.actuators = brain.bodies[0].sensors, brain.bodies[0].actuators
    _lay_out_memories(brain, groups, seed, phase.name)
    give_filters(brain, filters, seed, phase.name, spec.name, "brain")
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


def _common_filters(spec: AgentSpec, groups: Sequence[BodyGroup], mode: Mode) -> FilterChain | None:
    """Return the brain's filters, or raise :class:`ContractError` where they cannot be one chain."""
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
    """Return what the brain knows of all bodies; set-points are drawn from its generator."""
    found = []
    for group in groups:
        channels = group.channels()
        seen = channels if filters is None else filters
        layout, bound = seen.sensors, seen.actuators.bound(brain.rng)
        sensors = [SensorInformation(None, s, u) for s, u in zip(layout.spaces, layout.uids, strict=True)]
        actuators = [ActuatorInformation(None, s, u) for s, u in zip(bound.spaces, bound.uids, strict=True)]
        uids, replayed = tuple(group.environments), any(handle.replays for handle in channels.handles)
        for number in range(group.first, group.first + group.count):
            known_as = number if group.numbered else None
            muscles = tuple(muscle_uid(brain.name, worker, known_as) for worker in range(workers))
            found.append(
                BodyInformation(
                    *(brain.name, uids, number, group.index, muscles),
                    *(sensors, actuators, group.spec.name, replayed),
                )
            )
    return found


def _lay_out_memories(brain: Brain, groups: Sequence[BodyGroup], seed: int, phase: str) -> None:
    """Give the brain one memory for each size of the bodies' rows."""
    made: dict[tuple[int, ...], Memory] = {}
    others: dict[str, Memory] = {}
    for group in groups:
        channels = group.channels()
        own = [body for body in brain.bodies if body.group == group.index]
        sizes = (*_sizes(channels), len(channels.rewards), *own[0].sizes)
        memory = made.get(sizes)
        if memory is None:
            memory = made[sizes] = brain._memory_for(channels, own[0])
            # the first one is named as the only one of an agent with identical bodies only
            below: tuple[str | int, ...] = ("size", len(made) - 1) if len(made) > 1 else ()
            memory.rng = seeding.generator(seed, phase, "memory", brain.name, *below)
            if len(made) == 1:
                brain._memory = memory
        if memory is not brain._memory:
            others.update({muscle: memory for body in own for muscle in body.muscles})
    brain._memories = others


def _sizes(channels: Channels) -> tuple[int, int]:
    """Return how many numbers a body reads and sets."""
    return channels.sensors.size, channels.actuators.size


def _replay(
    learner: Learner,
    spec: AgentSpec,
    context: ReplayContext,
    groups: Sequence[BodyGroup],
    store: Store | None,
) -> None:
    """Fill the brain's memory with what ``replay`` names, as the agent's filters show it.

    The filters see all that is replayed twice: first they learn from the readings, then, with
    what they know by now, they show them to the brain.
    """
    brain, filters = learner.brain, learner.filters
    if filters is None:
        own = {body.group: brain.memory_of(body.muscles[0]) for body in brain.bodies}
        replay([own[group.index] for group in groups], spec, groups, context, store)
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
    """Yield the rows with what a muscle with these filters would have seen and done."""
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


def check_sources(phases: Sequence[PhaseSpec], document: RunDocument, store: Store | None) -> None:
    """Check that the other executions exist that ``load`` and ``replay`` point to.

    ``phases`` are those of ``document`` that will run. What this execution gives itself is
    checked with the document. Raises :class:`DocumentError` with all that is not there.
    """
    problems: dict[Problem, None] = {}

    def look(ask: Callable[[], Any], *place: str | int) -> None:
        try:
            ask()
        except (BrainDumpError, StoreError) as error:
            problems[document.problem(str(error), "phases", *place)] = None

    for phase in phases:
        for i, agent in enumerate(phase.agents):
            place = (phase.index, "agents", i)
            if agent.load is not None:
                look(partial(find_source, agent, phase, document, store), *place, "load")
            if agent.brain is None or phase.mode is Mode.TEST:
                continue
            for j, source in enumerate(agent.replay):
                if source.instance is not None or source.experiment_run not in (None, document.uid):
                    look(partial(find_instance, source, document.uid, store), *place, "replay", j)
    if problems:
        raise DocumentError(list(problems))


def store_model(learner: Learner, dumper: BrainDumper) -> None:
    """Keep the brain and what its filters have learned, all dumps of them at once."""
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
    """Holds dumps until all are there; what is loaded comes from elsewhere."""

    def __init__(self, elsewhere: BrainDumper):
        self.dumps: dict[str, bytes] = {}
        self._elsewhere = elsewhere

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        self.dumps[tag] = dump.read()

    def load(self, tag: str = "") -> BinaryIO:
        return self._elsewhere.load(tag)
