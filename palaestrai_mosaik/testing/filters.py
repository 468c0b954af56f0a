"""Conformance check of filters."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from palaestrai_mosaik import seeding
from palaestrai_mosaik.agent.filter import Filter, FilterChain
from palaestrai_mosaik.agent.memory import Experience
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

    Several filters run through the same episodes, first in train mode, then in test mode: readings are
    sampled from the sensors' spaces, actions from the spaces that the filter shows to the muscle, some of
    them NaN.

    Checked: vectors have the shapes and lie in the spaces that ``setup`` declared, set-points in those of the
    environment; what is given is not written to, and what was returned does not change later; instances do
    the same, and so do a pickled copy and a new instance that was given the saved state; nothing but the
    state outlives an episode, also one with an unmarked last row; news are handed out once; nothing is
    learned in test mode; rows keep their muscle and their ends; the update that is given is not changed;
    set-points are restored from what ``muscle_inverse`` makes of them, where the filter overrides it; no
    global randomness is used.

    Args:
        factory: returns a new filter.
        sensors: the sensors on the environment's side.
        actuators: the actuators on the environment's side.
        steps: steps of an episode.
        episodes: number of episodes in each mode.
        seed: of the readings and actions.

    Raises:
        ConformanceError: lists everything that was found.
    """
    _, findings = build(factory, Filter)
    check_channels(findings, "sensor", sensors)
    check_channels(findings, "actuator", actuators)
    findings.raise_found()
    layouts = Layout.of(sensors), Layout.of(actuators)
    first, second = (_FilterPair(factory, findings, layouts) for _ in range(2))
    shown = [
        (chain.sensors.uids, chain.sensors.spaces, chain.actuators.uids, chain.actuators.spaces)
        for chain in (first.muscle, second.muscle)
    ]
    if shown[0] != shown[1]:
        raise findings.stop("two instances show different channels to the muscle", f"{shown[0]}, {shown[1]}")
    for mode in Mode:
        for pair in (first, second):
            pair.muscle.mode = pair.brain.mode = mode
        known = copy.deepcopy(first.brain.state())
        for episode in range(episodes):
            others = {"two instances differ, given the same": second}
            if episode:
                others["a new instance with the saved state differs from the old one in a new episode"] = (
                    first.restored(factory, mode)
                )
            when = f"{mode.value} mode, episode {episode}"
            rng = seeding.generator(seed, mode.value, episode)
            script = list(_episode(first.muscle, layouts[0], rng, steps))
            if episode % 2:
                # an end that is not reported to the brain
                script[-1] = script[-1]._replace(marked=False)
            _run_episode(first, others, script, when)
        if mode is Mode.TEST and not same(first.brain.state(), known):
            findings.add("learns in test mode", "the state has changed")
        for given, then in first.handed_out:
            if not same(given, then):
                findings.add("changes what it has returned before", f"{then!r} became {given!r}")
    findings.raise_found()


class _Step(NamedTuple):
    number: int
    readings: FloatVector
    actions: FloatVector
    reward: float
    #: the episode ends with this step
    last: bool
    #: whether that is reported to the brain
    marked: bool = True

    @property
    def terminated(self) -> bool:
        """What the row says."""
        return self.last and self.marked


class _FilterPair:
    """A muscle's filter and a brain's filter, of one agent with one worker."""

    def __init__(self, factory: Callable[[], Filter], findings: Findings, layouts: tuple[Layout, Layout]):
        self.findings, self.layouts = findings, layouts
        parts = [build_another(factory, findings) for _ in range(2)]
        with findings.calling("setup"):
            self.muscle, self.brain = (FilterChain([part], *layouts) for part in parts)
        #: what the filter returned, and what it was then
        self.handed_out: list[tuple[Any, Any]] = []

    def restored(self, factory: Callable[[], Filter], mode: Mode) -> _FilterPair:
        """Return a new pair that has only the saved state of this one."""
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
        given = readings.copy()
        seen = self.muscle.pre(given)
        if not same(given, readings):
            self.findings.add("changes the readings that it is given", when)
        channels = _channels(self.muscle.sensors)
        check_flat_values(self.findings, "reading that the muscle sees", channels, seen, when)
        self.handed_out.append((seen, seen.copy()))
        return seen

    def _post_process(self, actions: FloatVector, when: str) -> FloatVector:
        """Post-process a muscle's set-points and check the result."""
        given = actions.copy()
        (one,) = self.muscle.filters
        inverts = type(one).muscle_inverse is not Filter.muscle_inverse
        before = copy.deepcopy(self.muscle) if inverts else None
        setpoints = self.muscle.post(given)
        if not same(given, actions):
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
        seen, setpoints = self._pre_process(step.readings, when), self._post_process(step.actions, when)
        final = self._pre_process(step.readings, when) if step.last else None
        reward = np.array([step.reward])
        row = Experience(
            "agent.0",
            step.readings,
            setpoints,
            reward,
            step.reward,
            None,
            seen,
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
        given = {"weights": step.readings.copy()}
        update = self.brain.brain_post(given)
        if not same(given, {"weights": step.readings}):
            self.findings.add("changes the update that it is given", when)
        news = self._exchange(when) if step.last or step.number % _EXCHANGE == 0 else None
        return seen, setpoints, final, learned, update, news

    def _exchange(self, when: str) -> Any:
        """Take the muscle's news to the brain and the brain's state to the muscle; return both."""
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
    """Yield what a muscle reads and does; some set-points are missing, in places all of them."""
    for number in range(steps):
        readings, actions = (sample_flat(_channels(part), rng) for part in (sensors, chain.actuators))
        actions[rng.random(len(actions)) < (0.0, 0.3, 1.0)[number % 3]] = np.nan
        last = number + 1 == steps
        yield _Step(number, readings, actions, float(rng.normal()), last)


def _run_episode(
    first: _FilterPair, others: dict[str, _FilterPair], script: Sequence[_Step], when: str
) -> None:
    """Let all pairs run through one episode and compare them with the ``first`` one."""
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
