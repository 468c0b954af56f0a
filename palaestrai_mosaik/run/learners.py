"""The learning side of agents: brains made, loaded, pretrained and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaestrai_mosaik import seeding
from palaestrai_mosaik.agent import Brain, BrainDumper, Experience, Memory, Muscle
from palaestrai_mosaik.agent.dumper import dump_arrays
from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.errors import BrainDumpError, ContractError
from palaestrai_mosaik.experiment import AgentSpec, resolve
from palaestrai_mosaik.simulation.body import Learner
from palaestrai_mosaik.simulation.channels import Channels
from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation

from .brains import BrainKeeper
from .parts import FILTERS, learned, load_filters, make, make_filters
from .replay import Standpoint, replay

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
    brain._dumpers = [keeper]
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
        load_filters(filters, keeper)
    learner = Learner(brain, filters)
    if spec.replay and phase.mode is Mode.TRAIN:
        _replay(learner, spec, standpoint, channels, store)
        learner.hand_out(brain.pretrain())
    return learner


def _replay(
    learner: Learner, spec: AgentSpec, standpoint: Standpoint, channels: Channels, store: Store | None
) -> None:
    """Fill the brain's memory with what ``replay`` names, as the agent's filters show it."""
    memory, filters = learner.brain.memory, learner.filters
    if filters is None:
        replay(memory, spec, channels, standpoint, store)
        return
    changing = [
        type(f).__name__
        for f in filters.filters
        if type(f).muscle_post_process is not Filter.muscle_post_process
    ]
    if changing:
        raise ContractError(
            f"agent {spec.name!r} cannot replay through {', '.join(changing)}: what was set is stored, but not "
            "what the muscle did before its filters changed it"
        )
    stored = Memory(size_limit=memory.size_limit)
    replay(stored, spec, channels, standpoint, store)
    step = 0
    for row in stored:
        if step == 0:
            filters.reset()
        readings, setpoints = row.sensor_readings[0], row.actuator_setpoints[0]
        memory.append_experience(
            filters.brain_pre(
                Experience(
                    row.muscles[0],
                    readings,
                    setpoints,
                    row.rewards[0],
                    float(row.objective[0]),
                    row.additional_data[0],
                    filters.pre(readings),
                    setpoints,
                    bool(row.terminated[0]),
                    bool(row.truncated[0]),
                    step=step,
                )
            )
        )
        step = 0 if row.dones[0] else step + 1
    news = filters.news()
    if news is not None:
        filters.learn(news)


def store_model(learner: Learner, dumper: BrainDumper) -> None:
    """Keep the brain and what its filters have learned."""
    brain = learner.brain
    before, brain._dumpers = brain._dumpers, [dumper]
    try:
        brain.store()
        arrays = learned(learner.filters)
        if arrays:
            dump_arrays(arrays, [dumper], FILTERS)
    finally:
        brain._dumpers = before
