"""Conformance check of filters."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from palaestrai_mosaik.agent.filter import Filter, FilterChain
from palaestrai_mosaik.agent.memory import Experience
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .findings import (
    Findings,
    build,
    build_another,
    check_channels,
    check_flat_values,
    same,
    sample_flat,
)

#: steps between two exchanges of news and states
_EXCHANGE = 4


def check_filter(
    factory: Callable[[], Filter],
    sensors: Sequence[SensorInformation],
    actuators: Sequence[ActuatorInformation],
    *,
    steps: int = 12,
    episodes: int = 3,
    seed: int = 0,
) -> None:
    """Check that a filter keeps its contract, with these sensors and actuators.

    Several filters run through the same episodes, first in train mode, then in test mode. Readings are sampled from the
    sensors' spaces, actions from the filter's inner spaces; some actions are NaN.

    The check requires that vectors have the shapes declared by ``setup`` and lie in the declared spaces, set-points in
    those of the environment, and that neither arguments nor earlier results are modified. Other instances, a pickled
    copy, and a new instance with the saved state must behave equally. Only the state may persist between episodes, even
    if the last row was not marked. News must be returned only once, and nothing must be learned in test mode. Rows must
    keep their muscle and their ends, and updates must not be modified. If ``muscle_inverse`` is overridden, its result
    must lead to the same set-points. No global randomness must be used.

    Args:
        factory: creates a filter.
        sensors: the sensors on the environment's side.
        actuators: the actuators on the environment's side.
        steps: the number of steps of an episode.
        episodes: the number of episodes in each mode.
        seed: the seed of the readings and actions.

    Raises:
        ConformanceError: if any rule is broken; lists all of them.
    """
    _, findings = build(factory, Filter)
    check_channels(findings, "sensor", sensors)
    check_channels(findings, "actuator", actuators)
    findings.raise_found()
    layouts = Layout.of(sensors), Layout.of(actuators)
    first, second = (_FilterPair(factory, findings, layouts) for _ in range(2))
    channels = [
        (chain.sensors.uids, chain.sensors.spaces, chain.actuators.uids, chain.actuators.spaces)
        for chain in (first.muscle, second.muscle)
    ]
    if channels[0] != channels[1]:
        raise findings.stop(
            "two instances show different channels to the muscle", f"{channels[0]}, {channels[1]}"
        )
    for mode in Mode:
        for pair in (first, second):
            pair.muscle.mode = pair.brain.mode = mode
        state = copy.deepcopy(first.brain.state())
        for episode in range(episodes):
            compared = {"two instances differ, given the same": second}
            if episode:
                compared["a new instance with the saved state differs from the old one in a new episode"] = (
                    first.restored(factory, mode)
                )
            when = f"{mode.value} mode, episode {episode}"
            rng = seeding.generator(seed, mode.value, episode)
            script = list(_episode(first.muscle, layouts[0], rng, steps))
            if episode % 2:
                # an end that the brain does not get
                script[-1] = script[-1]._replace(marked=False)
            _run_episode(first, compared, script, when)
        if mode is Mode.TEST and not same(first.brain.state(), state):
            findings.add("learns in test mode", "the state has changed")
        for value, original in first.handed_out:
            if not same(value, original):
                findings.add("changes what it has returned before", f"{original!r} became {value!r}")
    findings.raise_found()


class _Step(NamedTuple):
    number: int
    readings: FloatVector
    actions: FloatVector
    reward: float
    #: whether the episode ends with this step
    last: bool
    #: whether the brain gets the end
    marked: bool = True

    @property
    def terminated(self) -> bool:
        """The flag of the brain's row."""
        return self.last and self.marked


class _FilterPair:
    """The filters of a muscle and of its brain, for one agent with one worker."""

    def __init__(self, factory: Callable[[], Filter], findings: Findings, layouts: tuple[Layout, Layout]):
        self.findings, self.layouts = findings, layouts
        parts = [build_another(factory, findings) for _ in range(2)]
        with findings.calling("setup"):
            self.muscle, self.brain = (FilterChain([part], *layouts) for part in parts)
        #: results of the filter, with copies from the time of their return
        self.handed_out: list[tuple[Any, Any]] = []

    def restored(self, factory: Callable[[], Filter], mode: Mode) -> _FilterPair:
        """Create a pair that only shares the saved state with this one."""
        pair = _FilterPair(factory, self.findings, self.layouts)
        with self.findings.calling("state"):
            state = self.brain.state()
        for name, value in state[0].items():
            if np.asarray(value).dtype.kind not in "biuf":
                raise self.findings.stop(
                    "the state holds other than arrays and numbers", f"{name!r}: {value!r}"
                )
        file = BytesIO()
        np.savez(file, **state[0])
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            saved = [dict(arrays)]
        for chain in (pair.muscle, pair.brain):
            chain.mode = mode
            with self.findings.calling("set_state"):
                chain.set_state(saved)
        return pair

    def copied(self) -> _FilterPair:
        """Return a pair with pickled copies of the filters."""
        pair = copy.copy(self)
        with self.findings.calling("pickling"):
            pair.muscle, pair.brain = pickle.loads(pickle.dumps((self.muscle, self.brain)))
        pair.handed_out = []
        return pair

    def reset(self) -> None:
        with self.findings.calling("reset"):
            self.muscle.reset()

    def _pre_process(self, readings: FloatVector, when: str) -> FloatVector:
        """Pre-process readings and check the result."""
        copied = readings.copy()
        observations = self.muscle.pre(copied)
        if not same(copied, readings):
            self.findings.add("changes the readings that it is given", when)
        channels = _channels(self.muscle.sensors)
        check_flat_values(self.findings, "reading that the muscle sees", channels, observations, when)
        self.handed_out.append((observations, observations.copy()))
        return observations

    def _post_process(self, actions: FloatVector, when: str) -> FloatVector:
        """Post-process a muscle's set-points and check the result."""
        copied = actions.copy()
        (member,) = self.muscle.filters
        inverts = type(member).muscle_inverse is not Filter.muscle_inverse
        before = copy.deepcopy(self.muscle) if inverts else None
        setpoints = self.muscle.post(copied)
        if not same(copied, actions):
            self.findings.add("changes the set-points that it is given", when)
        self.handed_out.append((setpoints, setpoints.copy()))
        if before is not None:
            again = before.post(before.filters[0].muscle_inverse(setpoints.copy()))
            if not np.allclose(again, setpoints, rtol=1e-9, atol=1e-9, equal_nan=True):
                self.findings.add(
                    "muscle_inverse leads to other set-points", f"{when}: {again}, not {setpoints}"
                )
        return setpoints

    def step(self, step: _Step, when: str) -> tuple[Any, ...]:
        """Run one step; return all results."""
        observations, setpoints = (
            self._pre_process(step.readings, when),
            self._post_process(step.actions, when),
        )
        final = self._pre_process(step.readings, when) if step.last else None
        reward = np.array([step.reward])
        row = Experience(
            "agent.0",
            step.readings,
            setpoints,
            reward,
            step.reward,
            None,
            observations,
            step.actions,
            terminated=step.terminated,
            final_observations=final,
            step=step.number,
        )
        before = copy.deepcopy(row)
        learned = self.brain.brain_pre(row)
        if not same(row, before):
            self.findings.add("changes the row that it is given", when)
        if not isinstance(learned, Experience):
            raise self.findings.stop(
                "brain_pre_process does not return an Experience", f"{when}: {learned!r}"
            )
        if (learned.muscle, learned.terminated, learned.truncated) != ("agent.0", step.terminated, False):
            self.findings.add("changes the muscle or the end of a row", f"{when}: {learned!r}")
        weights = {"weights": step.readings.copy()}
        update = self.brain.brain_post(weights)
        if not same(weights, {"weights": step.readings}):
            self.findings.add("changes the update that it is given", when)
        news = self._exchange(when) if step.last or step.number % _EXCHANGE == 0 else None
        return observations, setpoints, final, learned, update, news

    def _exchange(self, when: str) -> Any:
        """Pass the muscle's news to the brain, and the brain's state to the muscle; return both."""
        news, again = self.muscle.news(), self.muscle.news()
        if again is not None:
            self.findings.add("gives the same news twice", f"{when}: {again!r}")
        if news is not None and self.muscle.mode is Mode.TEST:
            self.findings.add("learns in test mode", f"{when}: {news!r}")
        self.brain.learn(pickle.loads(pickle.dumps(news)))
        state = self.brain.state()
        self.handed_out.append((state, copy.deepcopy(state)))
        self.muscle.set_state(state)
        return news, self.handed_out[-1][1]


def _episode(chain: FilterChain, sensors: Layout, rng: np.random.Generator, steps: int) -> Iterator[_Step]:
    """Yield the readings and actions of a muscle; in some steps, a part or all of the set-points are missing."""
    for number in range(steps):
        readings, actions = (sample_flat(_channels(part), rng) for part in (sensors, chain.actuators))
        actions[rng.random(len(actions)) < (0.0, 0.3, 1.0)[number % 3]] = np.nan
        last = number + 1 == steps
        yield _Step(number, readings, actions, float(rng.normal()), last)


def _run_episode(
    first: _FilterPair, others: dict[str, _FilterPair], script: Sequence[_Step], when: str
) -> None:
    """Run one episode with all pairs, and compare them with the ``first`` one."""
    for pair in (first, *others.values()):
        pair.reset()
    others = dict(others)
    for step in script:
        at = f"{when}, step {step.number}"
        if step.number == len(script) // 2:
            others["a pickled copy differs from the original"] = first.copied()
        with first.findings.calling(at):
            expected = first.step(step, at)
            answers = {rule: pair.step(step, at) for rule, pair in others.items()}
        for rule, answer in answers.items():
            if not same(expected, answer):
                first.findings.add(rule, at)


def _channels(layout: Layout) -> list[SensorInformation]:
    return [
        SensorInformation(None, space, uid) for uid, space in zip(layout.uids, layout.spaces, strict=True)
    ]
