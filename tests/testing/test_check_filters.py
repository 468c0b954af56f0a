"""The check of filters: sound ones pass, each fault is found."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.agent.filters import (
    AbsoluteDeviationFilter,
    ActionChangePenaltyFilter,
    ActionTimeShiftFilter,
    DelayFilter,
    DeltaActionFilter,
    DeltaObsFilter,
    DeltaStepFilter,
    MergeStepsFilter,
    NormFilter,
    QuadraticPenaltyFilter,
    ScaleFilter,
)
from palaestrai_mosaik.testing import ConformanceError, check_filter
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    Discrete,
    Mode,
    MultiDiscrete,
    SensorInformation,
    Tuple,
)
from palaestrai_mosaik.types.vectors import Layout

VOLTAGES = [SensorInformation(1.0, Box(0.8, 1.2, shape=()), f"bus-{i}.vm_pu") for i in range(3)]
POWERS = [ActuatorInformation(None, Box(1.0 + i, 2.0 + i, shape=()), f"sgen-{i}.q_mvar") for i in range(2)]

ODD_SENSORS = [
    SensorInformation(3, Discrete(5, start=2), "tap"),
    SensorInformation(np.zeros((2, 2)), Box([[-1, 0], [-np.inf, 0]], [[1, 0], [4, np.inf]]), "matrix"),
    SensorInformation((1, 0.5), Tuple(Discrete(2), Box(0.0, 1.0, shape=())), "pair"),
    SensorInformation([1, 2], MultiDiscrete([2, 3]), "many"),
    SensorInformation(0.5, Box(-1.0, 0.7, shape=(), dtype=np.float32), "narrow"),
]
BOXES = [
    ActuatorInformation(None, Box(-3, 5, shape=(), dtype=np.int64), "count"),
    ActuatorInformation(None, Box([-1.0, 2.0, 7.0], [0.3, 8.0, 7.0]), "three"),
    ActuatorInformation(None, Box(-0.1, 0.7, shape=(), dtype=np.float32), "narrow"),
]
CHOICES = [*BOXES, ActuatorInformation(None, Discrete(4, start=-2), "choice")]


class Tripled(Filter):
    """Sound: all kinds of things that a filter may do, and all that it must keep apart.

    Shows the readings less their mean so far, adds up actions, smooths the objective.
    """

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        self.start, self.sum, self.count = np.ones(sensors.size), np.zeros(sensors.size), 0
        self.new: list[Any] = []
        self.smooth: dict[str, float] = {}
        self.reset()
        wide = [Box(-9.0, 9.0, shape=()) for _ in sensors.uids]
        return Layout(sensors.uids, wide), actuators

    def reset(self) -> None:
        self.last = self.start

    def muscle_pre_process(self, readings: Any) -> Any:
        if self.mode is Mode.TRAIN:
            self.new.append(readings)
        seen = readings - self.sum / max(self.count, 1) + self.last
        self.last = readings
        return seen

    def brain_pre_process(self, experience: Any) -> Any:
        before = self.smooth.get(experience.muscle, 0.0) if experience.step else 0.0
        value = self.smooth[experience.muscle] = 0.5 * (before + experience.objective)
        return replace(experience, objective=value)

    def news(self) -> Any:
        news, self.new = self.new, []
        return news or None

    def learn(self, news: Any) -> None:
        self.sum = self.sum + np.sum(news, axis=0)
        self.count += len(news)

    def state(self) -> dict[str, Any]:
        return {"sum": self.sum, "count": self.count}

    def set_state(self, state: Any) -> None:
        self.sum, self.count = np.array(state["sum"]), int(state["count"])


class WrongSetup(Tripled):
    def setup(self, sensors: Layout, actuators: Layout) -> Any:
        return super().setup(sensors, actuators)[0]


class TwiceTheUid(Tripled):
    def setup(self, sensors: Layout, actuators: Layout) -> Any:
        sensors, actuators = super().setup(sensors, actuators)
        return Layout(["a", "b", "a"], sensors.spaces), actuators


class OtherChannels(Tripled):
    instances = 0

    def setup(self, sensors: Layout, actuators: Layout) -> Any:
        OtherChannels.instances += 1
        sensors, actuators = super().setup(sensors, actuators)
        return Layout([f"{uid}{OtherChannels.instances}" for uid in sensors.uids], sensors.spaces), actuators


class ShortVector(Tripled):
    def muscle_pre_process(self, readings: Any) -> Any:
        return super().muscle_pre_process(readings)[1:]


class NoVector(Tripled):
    def muscle_post_process(self, setpoints: Any) -> Any:
        return None


class OutsideTold(Tripled):
    def muscle_pre_process(self, readings: Any) -> Any:
        return super().muscle_pre_process(readings) + 10.0


class OutsideActuator(Tripled):
    def muscle_post_process(self, setpoints: Any) -> Any:
        return setpoints * 2.0


class WritesReadings(Tripled):
    def muscle_pre_process(self, readings: Any) -> Any:
        seen = super().muscle_pre_process(readings.copy())
        readings += 1.0
        return seen


class WritesSetpoints(Tripled):
    def muscle_post_process(self, setpoints: Any) -> Any:
        new = np.clip(setpoints, 1.0, 1.5)
        setpoints[:] = 0.0
        return np.maximum(new, self.low)

    def setup(self, sensors: Layout, actuators: Layout) -> Any:
        self.low = actuators.low
        return super().setup(sensors, actuators)


class OwnBuffer(Tripled):
    """Returns one and the same memory over and over."""

    def setup(self, sensors: Layout, actuators: Layout) -> Any:
        self.buffer = np.zeros(sensors.size)
        return super().setup(sensors, actuators)

    def muscle_pre_process(self, readings: Any) -> Any:
        self.buffer[:] = super().muscle_pre_process(readings)
        return self.buffer[:]


class LiveState(Tripled):
    """Goes on learning in the state that it has handed out."""

    def learn(self, news: Any) -> None:
        self.sum += np.sum(news, axis=0)
        self.count += len(news)


class SharedCount(Tripled):
    steps = 0

    def muscle_pre_process(self, readings: Any) -> Any:
        SharedCount.steps += 1
        return super().muscle_pre_process(readings) + 1e-6 * SharedCount.steps


class LosesOnTheWay(Tripled):
    def __getstate__(self) -> Any:
        return {**self.__dict__, "last": self.start}


class NoPickle(Tripled):
    def setup(self, sensors: Layout, actuators: Layout) -> Any:
        self.function = lambda x: x
        return super().setup(sensors, actuators)


class ForgetsReset(Tripled):
    def reset(self) -> None:
        self.last = getattr(self, "last", self.start)


class HalfState(Tripled):
    def set_state(self, state: Any) -> None:
        self.sum = np.array(state["sum"])


class TextState(Tripled):
    def state(self) -> dict[str, Any]:
        return {**super().state(), "kind": "mean"}


class SameNews(Tripled):
    def news(self) -> Any:
        return self.new[-1:] or None


class LearnsInTest(Tripled):
    def muscle_pre_process(self, readings: Any) -> Any:
        self.mode = Mode.TRAIN
        return super().muscle_pre_process(readings)


class BrainLearnsInTest(Tripled):
    def brain_pre_process(self, experience: Any) -> Any:
        self.count += 1
        return super().brain_pre_process(experience)


class WritesRow(Tripled):
    def brain_pre_process(self, experience: Any) -> Any:
        experience.objective = 0.0
        return super().brain_pre_process(experience)


class OnlyObjective(Tripled):
    def brain_pre_process(self, experience: Any) -> Any:
        return super().brain_pre_process(experience).objective


class EndsRows(Tripled):
    def brain_pre_process(self, experience: Any) -> Any:
        return replace(super().brain_pre_process(experience), truncated=experience.terminated)


class GlobalPython(Tripled):
    def muscle_pre_process(self, readings: Any) -> Any:
        random.random()
        return super().muscle_pre_process(readings)


class WritesUpdate(Tripled):
    def brain_post_process(self, update: Any) -> Any:
        update["weights"] *= 2.0
        return update


class OtherInverse(Tripled):
    """Forgets that actions are turned upside down."""

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        self.turned = actuators.low + actuators.high
        return super().setup(sensors, actuators)

    def muscle_post_process(self, setpoints: Any) -> Any:
        return self.turned - setpoints

    def muscle_inverse(self, setpoints: Any) -> Any:
        return setpoints


class UpdateAsText(Tripled):
    def brain_post_process(self, update: Any) -> Any:
        return update["actor"]


class WaitsForTheEnd(Tripled):
    """Begins afresh only where the end of an episode was marked."""

    def brain_pre_process(self, experience: Any) -> Any:
        value = 0.5 * (self.smooth.get(experience.muscle, 0.0) + experience.objective)
        self.smooth[experience.muscle] = 0.0 if experience.done else value
        return replace(experience, objective=value)


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (
            WrongSetup,
            "setup: ContractError: WrongSetup.setup must return the sensors' and the actuators' Layout",
        ),
        (TwiceTheUid, "filter TwiceTheUid makes two sensors with the uid 'a'"),
        (OtherChannels, "two instances show different channels to the muscle"),
        (
            ShortVector,
            "ShortVector.muscle_pre_process must return a vector of shape (3,), not one of shape (2,)",
        ),
        (NoVector, "NoVector.muscle_post_process must return a vector of shape (2,), not None"),
        (OutsideTold, "a reading that the muscle sees lies outside its space"),
        (OutsideActuator, "ActionError: after the filters OutsideActuator: set-point ["),
        (WritesReadings, "changes the readings that it is given"),
        (WritesSetpoints, "changes the set-points that it is given"),
        (OwnBuffer, "changes what it has returned before"),
        (LiveState, "changes what it has returned before"),
        (LosesOnTheWay, "a pickled copy differs from the original: train mode, episode 0, step 6"),
        (NoPickle, "raises an exception: pickling:"),
        (
            ForgetsReset,
            "a new instance with the saved state differs from the old one in a new episode: train mode, episode 1, step 0",
        ),
        (
            WaitsForTheEnd,
            "a new instance with the saved state differs from the old one in a new episode: train mode, episode 2, step 0",
        ),
        (HalfState, "a new instance with the saved state differs from the old one in a new episode"),
        (TextState, "the state holds other than arrays and numbers: 'kind': 'mean'"),
        (SameNews, "gives the same news twice: train mode, episode 0, step 0"),
        (LearnsInTest, "learns in test mode: test mode, episode 0, step 0"),
        (BrainLearnsInTest, "learns in test mode: the state has changed"),
        (WritesRow, "changes the row that it is given"),
        (OnlyObjective, "brain_pre_process does not return an Experience"),
        (EndsRows, "changes the muscle or the end of a row: train mode, episode 0, step 11"),
        (GlobalPython, "uses a global random generator"),
        (WritesUpdate, "changes the update that it is given: train mode, episode 0, step 0"),
        (OtherInverse, "muscle_inverse leads to other set-points: train mode, episode 0, step 0"),
        (UpdateAsText, "train mode, episode 0, step 0: KeyError: 'actor'"),
        (object, "is no Filter: it is a object"),
    ],
)
def test_what_is_wrong_with_a_filter_is_found(broken: Any, text: str) -> None:
    with pytest.raises(ConformanceError) as error:
        check_filter(broken, VOLTAGES, POWERS)
    assert any(text in found for found in error.value.findings), error.value


def test_shared_state_of_instances_is_found() -> None:
    with pytest.raises(
        ConformanceError, match="two instances differ, given the same: train mode, episode 0, step 0"
    ):
        check_filter(SharedCount, VOLTAGES, POWERS)


def test_unsound_sensors_are_the_callers_fault() -> None:
    with pytest.raises(ConformanceError, match="several sensors have the same uid"):
        check_filter(Tripled, [VOLTAGES[0]] * 2, POWERS)


def test_sound_filters_pass() -> None:
    check_filter(Tripled, VOLTAGES, POWERS)
    check_filter(Filter, ODD_SENSORS, CHOICES)


@pytest.mark.parametrize(
    "factory",
    [
        AbsoluteDeviationFilter,
        lambda: AbsoluteDeviationFilter(target=-3.0, sensor_uids=["matrix", "pair"]),
        QuadraticPenaltyFilter,
        ActionChangePenaltyFilter,
        lambda: ActionChangePenaltyFilter(weight=0.3, power=2.0),
        ActionTimeShiftFilter,
        lambda: ActionTimeShiftFilter(steps=3),
        DelayFilter,
        lambda: DelayFilter(steps=0),
        DeltaObsFilter,
        lambda: DeltaObsFilter(delta_sensor_uids=["many", "tap"], replace=False),
        MergeStepsFilter,
        lambda: MergeStepsFilter(steps=1),
        NormFilter,
        lambda: NormFilter(normalise_objective=False, clip_obs=np.inf),
        ScaleFilter,
        lambda: ScaleFilter(discrete=True),
        lambda: ScaleFilter(sensors=False),
        lambda: ScaleFilter(actuators=False),
    ],
)
def test_filters_for_any_channels_pass(factory: Any) -> None:
    check_filter(factory, ODD_SENSORS, CHOICES)


@pytest.mark.parametrize(
    "factory", [DeltaActionFilter, DeltaStepFilter, lambda: DeltaStepFilter(step_size=2.0)]
)
def test_filters_for_boxes_pass(factory: Any) -> None:
    check_filter(factory, ODD_SENSORS, BOXES)


def test_filters_without_any_channels_pass() -> None:
    for factory in (
        NormFilter,
        ScaleFilter,
        lambda: ActionTimeShiftFilter(2),
        DeltaActionFilter,
        MergeStepsFilter,
    ):
        check_filter(factory, [], [], steps=8)
