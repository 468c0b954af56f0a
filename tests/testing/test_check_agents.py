"""The checks of muscles, brains, objectives and conditions: sound parts pass, broken ones do not."""

from __future__ import annotations

import json
import random
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.agent import Brain, BrainDumper, Muscle, Objective
from palaestrai_mosaik.agent.library.aggregate import AggregateRewardsObjective
from palaestrai_mosaik.agent.library.dummy import DummyBrain, DummyMuscle, DummyObjective
from palaestrai_mosaik.agent.library.voltage_attack import GreedyVoltageAttacker, OscillatingVoltageAttacker
from palaestrai_mosaik.agent.library.voltage_control import DroopController, IntegratingVoltageController
from palaestrai_mosaik.core.errors import BrainDumpError
from palaestrai_mosaik.simulation.conditions import (
    AgentObjectiveTerminationCondition,
    EnvironmentTerminationCondition,
    MaxEpisodesTerminationCondition,
    TerminationCondition,
    VanillaRunGovernorTerminationCondition,
    VanillaSimControllerTerminationCondition,
)
from palaestrai_mosaik.testing import (
    ConformanceError,
    check_brain,
    check_muscle,
    check_objective,
    check_termination_condition,
)
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    Discrete,
    Mode,
    MultiDiscrete,
    SensorInformation,
    SimulationFlowControl,
)

VOLTAGES = [SensorInformation(1.0, Box(0.8, 1.2, shape=()), f"bus-{i}.vm_pu") for i in range(3)]
POWERS = [ActuatorInformation(None, Box(-1.0 - i, 1.0 + i, shape=()), f"sgen-{i}.q_mvar") for i in range(3)]
COUNTS = [ActuatorInformation(None, Discrete(5, start=2), f"n{i}") for i in range(2)]
WIDE = [ActuatorInformation(None, MultiDiscrete([2, 3]), "wide"), *POWERS]


def only(error: pytest.ExceptionInfo[ConformanceError], text: str) -> None:
    """The one thing that is wrong is found, and nothing else."""
    assert len(error.value.findings) == 1, error.value
    assert text in error.value.findings[0]


# --- muscles -------------------------------------------------------------------------------


class Sound(Muscle):
    """Sets every actuator to a share of its limit, drawn from its own generator."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        share = self.rng.random()
        for actuator in actuators_available:
            actuator.value = float(share * actuator.space.flat_high[0])
        return actuators_available, share


class Vector(Muscle):
    """Sets all actuators at once; uses its memory."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        past = self.memory.tail(3).objective
        actuators_available.vector = np.tanh(sensors.vector + (past.sum() if len(past) else 0.0))
        return actuators_available, sensors.vector.copy()


class Arrays(Muscle):
    """Writes single numbers as arrays of length one, as many published agents do."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        for actuator in actuators_available:
            actuator.value = np.array([0.5])
        return actuators_available, None


class Silent(Muscle):
    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        return [], None


class OneResult(Sound):
    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        return super().propose_actions(sensors, actuators_available)[0]


class Foreign(Sound):
    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        return [ActuatorInformation(0.5, POWERS[0].space, "sgen-9.q_mvar")], None


class Numbers(Sound):
    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        return [0.1, 0.2, 0.3], None


class WildVector(Sound):
    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        actuators_available.vector = np.array([0.0, 2.5, 0.0])
        return actuators_available, None


class ShortVector(Sound):
    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        actuators_available.vector = np.zeros(2)
        return actuators_available, None


class WildValue(Sound):
    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        actuators_available[0].value = 7.0
        return actuators_available, None


class WritesReadings(Sound):
    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        sensors.vector -= 1.0
        return super().propose_actions(sensors, actuators_available)


class OwnGenerator(Sound):
    def setup(self) -> None:
        self.own = np.random.default_rng()

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        self.rng = self.own
        return super().propose_actions(sensors, actuators_available)


class SharedCount(Sound):
    """Counts for all muscles together, and tells only the brain."""

    count = 0

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        SharedCount.count += 1
        return super().propose_actions(sensors, actuators_available)[0], SharedCount.count


class GlobalPython(Sound):
    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        random.random()
        return super().propose_actions(sensors, actuators_available)


class GlobalNumpy(Sound):
    def reset(self) -> None:
        np.random.rand()  # noqa: NPY002 (the fault that shall be found)


class OnlyTrains(Sound):
    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        if self.mode is Mode.TEST:
            raise NotImplementedError("no test mode")
        return super().propose_actions(sensors, actuators_available)


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (OneResult, "propose_actions does not return (actuators, data): train mode, episode 0, step 0"),
        (Foreign, "actuator 'sgen-9.q_mvar' is not one of the agent's (did you mean 'sgen-"),
        (Numbers, "propose_actions must return actuators, not 0.1"),
        (WildVector, "set-point [2.5] of actuator 'sgen-1.q_mvar' is not in"),
        (ShortVector, "the vector of set-points has shape (2,), expected is (3,)"),
        (WildValue, "ActionError: set-point 7.0 of actuator 'sgen-0.q_mvar' is not in"),
        (WritesReadings, "changes the readings that it is given"),
        (OwnGenerator, "two instances differ, given the same readings and generators"),
        (SharedCount, "two instances send different data to their brains"),
        (GlobalPython, "uses a global random generator"),
        (GlobalNumpy, "instead of its own rng: reset"),
        (OnlyTrains, "test mode, episode 0, step 0: NotImplementedError: no test mode"),
        (DummyBrain, "is no Muscle"),
    ],
)
def test_what_is_wrong_with_a_muscle_is_found(broken: Any, text: str) -> None:
    with pytest.raises(ConformanceError) as error:
        check_muscle(broken, VOLTAGES, POWERS)
    only(error, text)


@pytest.mark.parametrize("actuators", [POWERS, COUNTS, WIDE], ids=["powers", "counts", "wide"])
@pytest.mark.parametrize("factory", [DummyMuscle, lambda: DummyMuscle(count_upwards=True), Silent])
def test_muscles_for_any_actuators_pass(factory: Any, actuators: Any) -> None:
    check_muscle(factory, VOLTAGES, actuators, steps=10)


@pytest.mark.parametrize(
    "factory",
    [
        Sound,
        Vector,
        Arrays,
        IntegratingVoltageController,
        DroopController,
        lambda: DroopController(damping=1.0),
        GreedyVoltageAttacker,
        lambda: OscillatingVoltageAttacker(half_period=3),
    ],
)
def test_muscles_for_inverters_pass(factory: Any) -> None:
    check_muscle(factory, VOLTAGES, POWERS)


def test_unsound_sensors_are_the_callers_fault() -> None:
    with pytest.raises(ConformanceError, match="several sensors have the same uid"):
        check_muscle(Sound, [VOLTAGES[0]] * 2, POWERS)


# --- brains --------------------------------------------------------------------------------


class Learner(Brain):
    """Learns the mean reward with noise; two dumps."""

    def __init__(self) -> None:
        self.mean = 0.0

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        row = self.memory.tail(5)
        self.mean += 0.1 * (float(row.rewards.mean()) - self.mean) + 1e-3 * self.rng.normal()
        return {"mean": self.mean, "from": data_from_muscle}

    def store(self) -> None:
        for tag in ("", "critic"):
            BrainDumper.store_brain_dump(
                BytesIO(json.dumps({"mean": self.mean}).encode()), self._dumpers, tag
            )

    def load(self) -> None:
        self.mean = json.loads(BrainDumper.load_brain_dump(self._dumpers).read())["mean"]


class Follower(Sound):
    """The muscle of :class:`Learner`, which also loads the second dump."""

    def update(self, update: Any) -> None:
        self.mean = update["mean"]

    def prepare_model(self) -> None:
        self.load("critic").read()


class Unread(Learner):
    def store(self) -> None:
        super().store()
        BrainDumper.store_brain_dump(BytesIO(b"{}"), self._dumpers, "optimizer")


class FreshInstead(Learner):
    """Swallows that there is no dump; a damaged one is noticed."""

    def load(self) -> None:
        try:
            dump = BrainDumper.load_brain_dump(self._dumpers)
        except BrainDumpError:
            return
        self.mean = json.loads(dump.read())["mean"]


class Careless(Learner):
    """Reads whatever is left of the dump."""

    def load(self) -> None:
        self.mean = len(BrainDumper.load_brain_dump(self._dumpers).read())


class CannotLoad(Learner):
    def load(self) -> None:
        BrainDumper.load_brain_dump(self._dumpers, "actor")


class OwnDice(Learner):
    def setup(self) -> None:
        self.rng = np.random.default_rng()


class Loud(Learner):
    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        random.random()
        return super().thinking(muscle_id, data_from_muscle)


class OtherUpdate(Learner):
    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        return {"average": 1.0}


class NeedsSensors(Learner):
    def setup(self) -> None:
        raise LookupError(f"no sensor 'x' among {[s.uid for s in self.sensors]}")


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (Unread, "stores what it does not load: the dump with the tag 'optimizer'"),
        (FreshInstead, "load goes on without a usable dump, instead of raising: the dump was missing"),
        (Careless, "load goes on without a usable dump, instead of raising: the dump was cut off"),
        (CannotLoad, "load: BrainDumpError: no brain dump 'actor', there are ['', 'critic']"),
        (OwnDice, "two instances differ, given the same memory and generators"),
        (Loud, "uses a global random generator"),
        (OtherUpdate, "step 0, update of the muscle: KeyError: 'mean'"),
        (NeedsSensors, "setup: LookupError: no sensor 'x' among ['bus-0.vm_pu'"),
        (Sound, "is no Brain"),
    ],
)
def test_what_is_wrong_with_a_brain_is_found(broken: Any, text: str) -> None:
    with pytest.raises(ConformanceError) as error:
        check_brain(broken, Follower, VOLTAGES, POWERS)
    only(error, text)


def test_sound_brains_pass() -> None:
    check_brain(Learner, Follower, VOLTAGES, POWERS)
    check_brain(DummyBrain, lambda: DummyMuscle(count_upwards=True), VOLTAGES, COUNTS)


# --- objectives ----------------------------------------------------------------------------

REWARDS = ["grid.defender", "grid.cost"]


class Difference(Objective):
    """How much better the reward has become; nothing at first."""

    def internal_reward(self, memory: Any, **kwargs: Any) -> Any:
        rows = memory.tail(2).rewards
        return float(rows[1, 0] - rows[0, 0]) if len(rows) == 2 else None


class Text(Difference):
    def internal_reward(self, memory: Any, **kwargs: Any) -> Any:
        return "good"


class NotANumber(Difference):
    def internal_reward(self, memory: Any, **kwargs: Any) -> Any:
        return float("nan")


class Forgets(Difference):
    def internal_reward(self, memory: Any, **kwargs: Any) -> Any:
        memory.truncate(1)
        return 1.0


class Limits(Difference):
    def internal_reward(self, memory: Any, **kwargs: Any) -> Any:
        memory.size_limit = 10
        return 1.0


class Writes(Difference):
    def internal_reward(self, memory: Any, **kwargs: Any) -> Any:
        memory.tail(1).rewards[:] = 0.0
        return 1.0


class GlobalNoise(Difference):
    def internal_reward(self, memory: Any, **kwargs: Any) -> Any:
        random.random()
        return 1.0


class SharedSum(Difference):
    total = 0.0

    def internal_reward(self, memory: Any, **kwargs: Any) -> Any:
        SharedSum.total += 1.0
        return SharedSum.total


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (
            Text,
            "a value is neither a number nor None: row 0: internal_reward must return a number or None, not 'good'",
        ),
        (NotANumber, "a value is not finite (where there is none, return None): row 0: nan (and 99 more)"),
        (Forgets, "changes the memory: row 1"),
        (Limits, "changes the memory: row 0"),
        (Writes, "raises an exception: row 0: ValueError"),
        (GlobalNoise, "uses a global random generator"),
        (SharedSum, "two instances differ, given the same memory: row 0: [1.0, 2.0]"),
        (lambda: AggregateRewardsObjective("defnder"), "setup: ContractError: reward 'defnder'"),
        (Sound, "is no Objective"),
    ],
)
def test_what_is_wrong_with_an_objective_is_found(broken: Any, text: str) -> None:
    SharedSum.total = 0.0
    with pytest.raises(ConformanceError) as error:
        check_objective(broken, REWARDS)
    only(error, text)


@pytest.mark.parametrize(
    "factory",
    [
        DummyObjective,
        Difference,
        lambda: AggregateRewardsObjective("defender"),
        lambda: AggregateRewardsObjective(REWARDS, "min", factor=-1.0),
    ],
)
def test_sound_objectives_pass(factory: Any) -> None:
    check_objective(factory, REWARDS, sensors=VOLTAGES, actuators=POWERS)


# --- termination conditions ----------------------------------------------------------------

GO_ON, RESET = SimulationFlowControl.CONTINUE, SimulationFlowControl.RESET


class Number(TerminationCondition):
    def episode_flow_control(self, view: Any) -> Any:
        return 1


class PerWorker(TerminationCondition):
    """Ends an episode with the second step after the sum of the objectives is above 50."""

    def __init__(self) -> None:
        self.steps: dict[tuple[int, int], int] = {}

    def episode_flow_control(self, view: Any) -> Any:
        key = (view.worker, view.episode)
        self.steps[key] = self.steps.get(key, 0) + int(view.objectives("agent").sum() > 50)
        return RESET if self.steps[key] == 2 else GO_ON


class Altogether(TerminationCondition):
    """Counts the steps since it was last asked about a first step: mixes up the workers."""

    def episode_flow_control(self, view: Any) -> Any:
        self.steps = 0 if view.time == 0 else self.steps + 1
        return RESET if self.steps == 20 else GO_ON


class Clears(TerminationCondition):
    def episode_flow_control(self, view: Any) -> Any:
        view.objectives("agent")[:] = 0.0
        return GO_ON


class Clears2(TerminationCondition):
    def phase_flow_control(self, view: Any) -> Any:
        view.history[0].clear()
        return GO_ON


class Moody(TerminationCondition):
    """Every second one of them answers differently."""

    made = 0

    def __init__(self) -> None:
        Moody.made += 1
        self.answer = SimulationFlowControl.RESTART if Moody.made % 2 else GO_ON

    def phase_flow_control(self, view: Any) -> Any:
        return self.answer


class Forgetful(TerminationCondition):
    """Ends the phase with the fourth episode; a pickled copy begins to count again."""

    count = 0

    def phase_flow_control(self, view: Any) -> Any:
        self.count += 1
        return SimulationFlowControl.STOP_PHASE if self.count == 4 else GO_ON

    def __getstate__(self) -> dict[str, Any]:
        return {}


class GlobalCoin(TerminationCondition):
    def phase_flow_control(self, view: Any) -> Any:
        random.random()
        return GO_ON


class Surprise(TerminationCondition):
    def phase_flow_control(self, view: Any) -> Any:
        return SimulationFlowControl.STOP_PHASE

    def can_end_phase(self, episodes: int | None) -> bool:
        return False


class Perhaps(TerminationCondition):
    def can_end_phase(self, episodes: int | None) -> Any:
        return "perhaps"


class Unknown(TerminationCondition):
    def episode_flow_control(self, view: Any) -> Any:
        raise KeyError("no agent 'x'")


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (Number, "must return a SimulationFlowControl, not 1; write `return SimulationFlowControl.CONTINUE`"),
        (Altogether, "mixes up workers or episodes"),
        (Clears, "changes what it is shown: worker 0, episode 0, step 1"),
        (Clears2, "changes what it is shown: after worker 0, episode 0"),
        (Moody, "two instances differ, asked about the same phase"),
        (Forgetful, "a pickled copy answers differently"),
        (GlobalCoin, "uses a global random generator"),
        (Surprise, "ends a phase although can_end_phase says that it cannot"),
        (Perhaps, "can_end_phase returns neither True nor False: 'perhaps'"),
        (Unknown, "KeyError"),
        (Sound, "is no TerminationCondition"),
    ],
)
def test_what_is_wrong_with_a_condition_is_found(broken: Any, text: str) -> None:
    with pytest.raises(ConformanceError) as error:
        check_termination_condition(broken, steps=30)
    only(error, text)


@pytest.mark.parametrize(
    "factory",
    [
        TerminationCondition,
        EnvironmentTerminationCondition,
        MaxEpisodesTerminationCondition,
        VanillaRunGovernorTerminationCondition,
        VanillaSimControllerTerminationCondition,
        PerWorker,
        lambda: AgentObjectiveTerminationCondition(agent={"brain_avg10": 15.0}),
        lambda: AgentObjectiveTerminationCondition(agent={"brain_avg10": 15.0, "phase_avg2": 8.0}),
    ],
)
def test_sound_conditions_pass(factory: Any) -> None:
    check_termination_condition(factory, steps=30)


class Reporting(DummyBrain):
    """Reports a figure at every step."""

    def thinking(self, muscle_id, data_from_muscle):
        self.add_statistics("count", self.count)
        return super().thinking(muscle_id, data_from_muscle)


class ReportingMuscle(DummyMuscle):
    """Reports a figure at every step, too."""

    def propose_actions(self, sensors, actuators_available):
        self.add_statistics("iter", self.iter)
        return super().propose_actions(sensors, actuators_available)


def test_parts_that_report_statistics_pass():
    space = Discrete(5)
    sensors = [SensorInformation(0, space, "e.s")]
    actuators = [ActuatorInformation(None, space, "e.a")]
    check_muscle(ReportingMuscle, sensors, actuators)
    check_brain(Reporting, ReportingMuscle, sensors, actuators)
