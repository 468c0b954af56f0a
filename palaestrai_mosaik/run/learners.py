"""The learning side of agents: brains made, loaded, pretrained and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from palaestrai_mosaik import seeding
from palaestrai_mosaik.agent import Brain, BrainDumper, Experience, Memory, Muscle
from palaestrai_mosaik.agent.dumper import dump_arrays
from palaestrai_mosaik.agent.filter import FilterChain
from palaestrai_mosaik.errors import BrainDumpError, DocumentError, Problem, StoreError
from palaestrai_mosaik.experiment import AgentSpec, PhaseSpec, RunDocument, resolve
from palaestrai_mosaik.simulation.channels import Channels
from palaestrai_mosaik.simulation.learner import Learner
from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation

from .brains import BrainKeeper, Dumpers, find_source
from .parts import FILTERS, learned, load_filters, make, make_filters
from .replay import Standpoint, find_instance, replay

if TYPE_CHECKING:
    from palaestrai_mosaik.store import Store


def make_learner(
    spec: AgentSpec, standpoint: Standpoint, keeper: BrainKeeper, channels: Channels, store: Store | None
) -> Learner | None:
    """Return the learning side of an agent (``None`` if it has no brain).

    The brain is set up, loaded where the document says ``load``, and in train mode
    pretrained where it says ``replay``.
    """
    if spec.brain is None:
        return None
    phase, seed = standpoint.phase, standpoint.document.seed
    brain: Brain = make(spec.brain, "brain")
    filters = make_filters(spec, channels, phase.mode)
    brain.name = spec.name
    brain.mode = phase.mode
    brain.seed = seeding.integer_seed(seed, phase.name, "brain", spec.name)
    brain.rng = seeding.generator(seed, phase.name, "brain", spec.name)
    brain._memory = Memory()
    brain._memory.rng = seeding.generator(seed, phase.name, "memory", spec.name)
    brain._dumpers = Dumpers([keeper])
    sensors, actuators = (
        (channels.sensors, channels.actuators) if filters is None else (filters.sensors, filters.actuators)
    )
    brain.sensors = [SensorInformation(None, s, u) for s, u in zip(sensors.spaces, sensors.uids, strict=True)]
    bound = actuators.bound(brain.rng)
    brain.actuators = [ActuatorInformation(None, s, u) for s, u in zip(bound.spaces, bound.uids, strict=True)]
    brain.setup()
    if spec.load is not None:
        muscle: type[Muscle] = resolve(spec.muscle.name, "muscle")
        if type(brain).load is Brain.load and muscle.prepare_model is Muscle.prepare_model:
            raise BrainDumpError(
                f"agent {spec.name!r} has 'load', but neither {type(brain).__name__}.load nor "
                f"{muscle.__name__}.prepare_model is there to do it"
            )
        brain.load()
        load_filters(filters, keeper, spec.name)
    learner = Learner(brain, filters)
    if spec.replay and phase.mode is Mode.TRAIN:
        _replay(learner, spec, standpoint, channels, store)
        learner.hand_out(brain.pretrain())
    if phase.mode is Mode.TRAIN and not learner.updates:
        learner.hand_out(brain.initial_update())
    return learner


def _replay(
    learner: Learner, spec: AgentSpec, standpoint: Standpoint, channels: Channels, store: Store | None
) -> None:
    """Fill the brain's memory with what ``replay`` names, as the agent's filters show it.

    The filters see all that is replayed twice: first they learn from the readings, then, with
    what they know by now, they show them to the brain.
    """
    memory, filters = learner.brain.memory, learner.filters
    if filters is None:
        replay(memory, spec, channels, standpoint, store)
        return
    stored = Memory(size_limit=memory.size_limit)
    replay(stored, spec, channels, standpoint, store)
    for _ in _seen(filters, stored):
        pass
    filters.learn(filters.news())
    filters.mode = Mode.TEST
    rows = list(_seen(filters, stored))
    filters.mode = Mode.TRAIN
    for row in rows:
        memory.append_experience(filters.brain_pre(row))


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
    arrays = learned(learner.filters)
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
