"""Makes the objects of a phase from what the document says: environments, agents, conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from palaestrai_mosaik import seeding
from palaestrai_mosaik.agent import Brain, Memory, Muscle, Objective
from palaestrai_mosaik.agent.dumper import BrainDumper
from palaestrai_mosaik.environment.environment import EnvironmentStateTransformer, Reward, World
from palaestrai_mosaik.errors import BrainDumpError, ContractError
from palaestrai_mosaik.experiment import AgentSpec, ClassSpec, EnvironmentSpec, PhaseSpec, resolve
from palaestrai_mosaik.simulation.body import Body
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.simulation.ports import EnvironmentPort
from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation

#: what a class named under each topic of a document must derive from
BASES: dict[str, type] = {
    "environment": World,
    "reward": Reward,
    "state_transformer": EnvironmentStateTransformer,
    "brain": Brain,
    "muscle": Muscle,
    "objective": Objective,
    "condition": TerminationCondition,
}

T = TypeVar("T")


def make(spec: ClassSpec | EnvironmentSpec, topic: str) -> Any:
    """Return an object of the class that ``spec`` names; ``params`` are its keywords."""
    found = resolve(spec.name, topic)
    if not issubclass(found, BASES[topic]):
        raise ContractError(f"{spec.name} is no {BASES[topic].__name__}, so it cannot be a {topic}")
    # Classes may keep and change what they are given; the document must stay as it is.
    return found(**deepcopy(spec.params))


def make_port(spec: EnvironmentSpec) -> EnvironmentPort:
    """Return the environment of ``spec``, set up."""
    domain: World = make(spec, "environment")
    domain.uid = spec.uid
    if spec.step_size is not None:
        domain.step_size = spec.step_size
    reward = make(spec.reward, "reward") if spec.reward is not None else None
    transformer = (
        make(spec.state_transformer, "state_transformer") if spec.state_transformer is not None else None
    )
    try:
        return EnvironmentPort(domain, reward, transformer)
    except BaseException:
        domain.shutdown()
        raise


def make_conditions(specs: Sequence[ClassSpec]) -> list[TerminationCondition]:
    """Return the termination conditions in the document's order."""
    return [make(spec, "condition") for spec in specs]


class Agent:
    """One agent of a phase: one brain, and a body for every worker.

    ``seed`` is that of the run. ``dumper`` is where the brain is kept, and where it is
    loaded from if the document says ``load``.
    """

    def __init__(self, spec: AgentSpec, phase: PhaseSpec, seed: int, dumper: BrainDumper | None):
        self.spec = spec
        self.mode = phase.mode
        self._dumpers = [dumper] if dumper is not None else []
        self.brain: Brain | None = make(spec.brain, "brain") if spec.brain is not None else None
        if self.brain is not None:
            self.brain.name = spec.name
            self.brain.mode = phase.mode
            self.brain.seed = seeding.integer_seed(seed, phase.name, "brain", spec.name)
            self.brain.rng = seeding.generator(seed, phase.name, "brain", spec.name)
            self.brain._memory = Memory()
            self.brain._dumpers = self._dumpers
        self._set_up = False

    def body(self, worker: int, ports: Sequence[EnvironmentPort]) -> Body:
        """Return a new body for ``worker``; the first one completes the brain."""
        muscle: Muscle = make(self.spec.muscle, "muscle")
        objective: Objective | None = None
        if self.spec.objective is not None:
            objective = make(self.spec.objective, "objective")
        learns = self.brain if self.mode is Mode.TRAIN else None
        body = Body(
            self.spec.name, muscle, objective, learns, ports, (self.spec.sensors, self.spec.actuators)
        )
        muscle.uid = f"{self.spec.name}.{worker}"
        muscle.mode = self.mode
        muscle._memory = body.memory
        muscle._dumpers = self._dumpers
        if objective is not None:
            objective.setup(body.reward_names)
        self._complete_brain(body)
        muscle.setup()
        if self.spec.load is not None:
            muscle.prepare_model()
        return body

    def _complete_brain(self, body: Body) -> None:
        brain = self.brain
        if brain is None or self._set_up:
            return
        sensors, actuators = body.sensors, body.actuators
        brain.sensors = [
            SensorInformation(None, s, u) for s, u in zip(sensors.spaces, sensors.uids, strict=True)
        ]
        bound = actuators.bound(brain.rng)
        brain.actuators = [
            ActuatorInformation(None, s, u) for s, u in zip(bound.spaces, bound.uids, strict=True)
        ]
        brain.setup()
        if self.spec.load is not None:
            if type(brain).load is Brain.load and type(body.muscle).prepare_model is Muscle.prepare_model:
                raise BrainDumpError(
                    f"agent {self.spec.name!r} has 'load', but neither {type(brain).__name__}.load nor "
                    f"{type(body.muscle).__name__}.prepare_model is there to do it"
                )
            brain.load()
        self._set_up = True

    def store(self) -> None:
        """Keep the brain, as every agent's at the end of a phase."""
        if self.brain is not None:
            self.brain.store()


def all_of(actions: Sequence[Callable[[], None]]) -> None:
    """Call all ``actions``, also after one has failed; raise the first failure."""
    failure: Exception | None = None
    for action in actions:
        try:
            action()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
