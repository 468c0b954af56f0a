"""Conformance checks of muscles, brains and objectives, including batched ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np

from palaestrai_mosaik.agent import BodyInformation, Brain, BrainDumper, Memory, Muscle, Objective, is_update
from palaestrai_mosaik.agent.muscle import (
    BatchMuscle,
    BatchObjective,
    BatchReadings,
    BatchRows,
    objective_value,
    proposal,
)
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import BrainDumpError, ContractError
from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation
from palaestrai_mosaik.types.arrays import FloatArray, FloatVector, IndexVector
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout, SensorReadings, collect_setpoints

from .findings import Findings, build, build_another, check_channels, same, sample_flat

_UID = "agent.0"


def check_muscle(
    factory: Callable[[], Muscle],
    sensors: Sequence[SensorInformation],
    actuators: Sequence[ActuatorInformation],
    *,
    steps: int = 50,
    episodes: int = 2,
    seed: int = 0,
    rounding: float = 0.0,
) -> None:
    """Check that a muscle keeps its contract, with these sensors and actuators.

    In train mode and in test mode, two muscles get the same readings, sampled from the sensors' spaces, and the same
    generators.

    The check requires that ``propose_actions`` returns set-points and data, that set-points belong to the agent's
    actuators and lie in their spaces, that readings are not modified, that equal readings and generators give equal
    set-points and data, and that no global randomness is used. A :class:`BatchMuscle` must also give each of several
    bodies, which end and restart independently, the same result as a separate muscle would.

    Args:
        factory: creates a muscle.
        sensors: the sensors that the muscle observes.
        actuators: the actuators that the muscle sets.
        steps: the number of steps of an episode.
        episodes: the number of episodes in each mode.
        seed: the seed of the readings and generators.
        rounding: the largest relative difference between a :class:`BatchMuscle` and single muscles; 0 requires exact
            equality.

    Raises:
        ConformanceError: if any rule is broken; lists all of them.
    """
    first, findings = build(factory, Muscle)
    _check_given_channels(findings, sensors, actuators)
    for mode in Mode:
        pair = [
            _CheckedMuscle(build_another(factory, findings), findings, (sensors, actuators), mode)
            for _ in range(2)
        ]
        for episode in range(episodes):
            for actor in pair:
                actor.begin(seed, episode)
            rng = seeding.generator(seed, "readings", episode)
            for step in range(steps):
                when = f"{mode.value} mode, episode {episode}, step {step}"
                _compare_answers(findings, pair, sample_flat(sensors, rng), float(step), when)
            for actor in pair:
                with findings.calling("reset"):
                    actor.muscle.reset()
        for actor in pair:
            with findings.calling("teardown"):
                actor.muscle.teardown()
        if isinstance(first, BatchMuscle):
            bodies = _Bodies(findings, factory, (sensors, actuators), mode)
            bodies.check(steps=steps, seed=seed, rounding=rounding)
    findings.raise_found()


def _compare_answers(
    findings: Findings, pair: Sequence[_CheckedMuscle], readings: FloatVector, reward: float, when: str
) -> None:
    """Check that two muscles answer the same readings equally."""
    answers = [actor.act(readings, when) for actor in pair]
    if not same(*(setpoints for setpoints, _ in answers)):
        findings.add("two instances differ, given the same readings and generators", when)
    elif not same(*(data for _, data in answers)):
        findings.add("two instances send different data to their brains", when)
    for actor, (setpoints, data) in zip(pair, answers, strict=True):
        actor.remember(readings, setpoints, reward, data)


def check_brain(
    factory: Callable[[], Brain],
    muscle: Callable[[], Muscle],
    sensors: Sequence[SensorInformation],
    actuators: Sequence[ActuatorInformation],
    *,
    steps: int = 50,
    seed: int = 0,
) -> None:
    """Check that a brain keeps its contract, together with its kind of muscle.

    Two pairs of brain and muscle run through the same steps.

    The check requires that ``thinking`` and ``Muscle.update`` fit together, that equal memories and generators give
    equal updates, and that no global randomness is used. If the brain stores dumps, each must be loaded by ``load`` or
    by the muscle's ``prepare_model``, and ``load`` must raise if a dump is missing or truncated, instead of continuing
    with a fresh brain.

    Args:
        factory: creates a brain.
        muscle: creates a muscle, which sends data to the brain and gets its updates.
        sensors: the sensors that the muscle observes; readings are sampled from their spaces.
        actuators: the actuators that the muscle sets.
        steps: the number of steps of the only episode.
        seed: the seed of the readings, rewards and generators.

    Raises:
        ConformanceError: if any rule is broken; lists all of them.
    """
    _, findings = build(factory, Brain)
    _check_given_channels(findings, sensors, actuators)
    dumps: list[_MemoryDumper] = []
    pair = []
    for _ in range(2):
        dumps.append(_MemoryDumper())
        brain = _brain(factory, findings, (sensors, actuators), dumps[-1], seed)
        pair.append(
            (
                brain,
                _CheckedMuscle(build_another(muscle, findings), findings, (sensors, actuators), Mode.TRAIN),
            )
        )
    rng = seeding.generator(seed, "readings", 0)
    for _, actor in pair:
        actor.begin(seed, 0)
    for step in range(steps):
        readings, reward = sample_flat(sensors, rng), float(rng.normal())
        updates = []
        for brain, actor in pair:
            setpoints, data = actor.act(readings, f"step {step}, propose_actions")
            for memory in (brain.memory, actor.muscle.memory):
                _remember(memory, (readings, setpoints, np.array([reward])), reward, data)
                if step + 1 == steps:
                    memory.mark_end(terminated=True, truncated=False)
            with findings.calling(f"step {step}, thinking"):
                updates.append(brain.thinking(_UID, data))
            brain.pop_statistics()
            update = updates[-1]
            if is_update(update):
                with findings.calling(f"step {step}, update of the muscle"):
                    actor.muscle.update(update)
        if not same(*updates):
            findings.add("two instances differ, given the same memory and generators", f"step {step}")
    for brain, _ in pair:
        with findings.calling("store"):
            brain.store()
    _check_dumps(findings, factory, muscle, (sensors, actuators), dumps[0])
    findings.raise_found()


def check_objective(
    factory: Callable[[], Objective],
    reward_names: Sequence[str],
    *,
    sensors: Sequence[SensorInformation] = (),
    actuators: Sequence[ActuatorInformation] = (),
    steps: int = 50,
    seed: int = 0,
) -> None:
    """Check that an objective keeps its contract, for an agent with these rewards.

    The check requires that every value is a finite number or ``None``, that the memory is not modified, that equal
    memories give equal values, and that no global randomness is used. A :class:`BatchObjective` must also give the same
    values for many rows at once as for single rows.

    Args:
        factory: creates an objective.
        reward_names: the full names of the rewards (``environment.reward``); their values are random.
        sensors: the agent's sensors; readings are sampled from their spaces.
        actuators: the agent's actuators; set-points are sampled from their spaces.
        steps: the number of rows.
        seed: the seed of the readings, set-points and rewards.

    Raises:
        ConformanceError: if any rule is broken; lists all of them.
    """
    first, findings = build(factory, Objective)
    pair = (first, build_another(factory, findings))
    memories = (Memory(), Memory())
    for objective in pair:
        with findings.calling("setup"):
            objective.setup(list(reward_names))
    rng = seeding.generator(seed, "rewards")
    rows, first_values = [], []
    for step in range(steps):
        row = (sample_flat(sensors, rng), sample_flat(actuators, rng), rng.normal(size=len(reward_names)))
        values = []
        for objective, memory in zip(pair, memories, strict=True):
            memory.append(*row)
            before = _rows(memory)
            with findings.calling(f"row {step}"):
                values.append(objective.internal_reward(memory))
            if not same(_rows(memory), before):
                raise findings.stop("changes the memory", f"row {step}")
            value = values[-1]
            memory.close(math.nan if value is None else _number(findings, value, f"row {step}"))
        rows.append(row)
        first_values.append(math.nan if values[0] is None else float(values[0]))
        if not same(*values):
            findings.add("two instances differ, given the same memory", f"row {step}: {values}")
    if isinstance(first, BatchObjective):
        _check_batch_objective(findings, first, rows, first_values)
    findings.raise_found()


class _CheckedMuscle:
    """A muscle under test, set up as by the framework."""

    def __init__(
        self,
        muscle: Muscle,
        findings: Findings,
        channels: tuple[Sequence[SensorInformation], Sequence[ActuatorInformation]],
        mode: Mode,
    ):
        self.muscle, self.findings = muscle, findings
        self.sensors, self._actuators = (Layout.of(c) for c in channels)
        _set_up(findings, muscle, mode)

    def begin(self, seed: int, episode: int) -> None:
        """Begin an episode with its generator."""
        rng = seeding.generator(seed, "agent", episode)
        self.muscle.rng = rng
        self.actuators = self._actuators.bound(rng)

    def act(self, readings: FloatVector, when: str) -> tuple[FloatVector, Any]:
        """Get and check the muscle's answer; return set-points and data."""
        findings, shown = self.findings, readings.copy()
        with findings.calling(when):
            answer = self.muscle.propose_actions(
                SensorReadings(self.sensors, shown), ActuatorSetpoints(self.actuators)
            )
            self.muscle.pop_statistics()
        if not same(shown, readings):
            findings.add("changes the readings that it is given", when)
        try:
            proposed, data = proposal(answer)
        except ContractError as error:
            raise findings.stop(
                "propose_actions does not return (actuators, data)", f"{when}: {error}"
            ) from error
        try:
            return collect_setpoints(self.actuators, proposed), data
        except Exception as error:
            raise findings.stop("set-points cannot be used", f"{when}: {error}") from error

    def remember(self, readings: FloatVector, setpoints: FloatVector, reward: float, data: Any) -> None:
        """Complete the row of the last action."""
        _remember(self.muscle.memory, (readings, setpoints, np.array([reward])), reward, data)


def _set_up(findings: Findings, muscle: Muscle, mode: Mode) -> None:
    """Set a muscle up as the framework does."""
    muscle.uid, muscle.mode = _UID, mode
    muscle._memory = Memory()
    with findings.calling("setup"):
        muscle.setup()


class _MemoryDumper(BrainDumper):
    """Keeps dumps in memory, and the tags of those that were requested."""

    def __init__(self, kept: dict[str, bytes] | None = None):
        self.kept: dict[str, bytes] = {} if kept is None else kept
        self.asked: set[str] = set()

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        self.kept[tag] = dump.read()

    def load(self, tag: str = "") -> BinaryIO:
        self.asked.add(tag)
        if tag not in self.kept:
            raise BrainDumpError(f"no brain dump {tag!r}, there are {sorted(self.kept)}")
        return BytesIO(self.kept[tag])


def _check_dumps(
    findings: Findings,
    factory: Callable[[], Brain],
    muscle: Callable[[], Muscle],
    channels: tuple[Sequence[SensorInformation], Sequence[ActuatorInformation]],
    dumps: _MemoryDumper,
) -> None:
    if not dumps.kept:
        return
    whole = _MemoryDumper(dict(dumps.kept))
    brain = _brain(factory, findings, channels, whole, 1)
    with findings.calling("load"):
        brain.load()
    actor = _CheckedMuscle(build_another(muscle, findings), findings, channels, Mode.TEST)
    actor.muscle._dumpers = [whole]
    with findings.calling("prepare_model of the muscle"):
        actor.muscle.prepare_model()
    for tag in sorted(whole.kept.keys() - whole.asked):
        findings.add("stores what it does not load", f"the dump with the tag {tag!r}")
    cut_off = {tag: dump[: len(dump) // 2] for tag, dump in dumps.kept.items()}
    for state, kept in (("missing", {}), ("cut off", cut_off)):
        brain = _brain(factory, findings, channels, _MemoryDumper(kept), 1)
        try:
            brain.load()
        except Exception:
            continue
        findings.add("load goes on without a usable dump, instead of raising", f"the dump was {state}")


def _brain(
    factory: Callable[[], Brain],
    findings: Findings,
    channels: tuple[Sequence[SensorInformation], Sequence[ActuatorInformation]],
    dumps: _MemoryDumper,
    seed: int,
) -> Brain:
    brain = build_another(factory, findings)
    brain.name, brain.mode = "agent", Mode.TRAIN
    brain.seed = seeding.integer_seed(seed, "brain")
    brain.rng = seeding.generator(seed, "brain")
    brain.sensors = [SensorInformation(None, s.space, s.uid) for s in channels[0]]
    brain.actuators = [ActuatorInformation(None, a.space.bound(brain.rng), a.uid) for a in channels[1]]
    brain.bodies = [BodyInformation("agent", ("environment",), 0, 0, (_UID,), brain.sensors, brain.actuators)]
    brain._memory = Memory()
    brain._dumpers = [dumps]
    with findings.calling("setup"):
        brain.setup()
    return brain


def _check_given_channels(findings: Findings, sensors: Sequence[Any], actuators: Sequence[Any]) -> None:
    """Raise if the sensors and actuators of the check itself are invalid, so that the part is not blamed."""
    check_channels(findings, "sensor", sensors)
    check_channels(findings, "actuator", actuators)
    findings.raise_found()


def _remember(
    memory: Memory, row: tuple[FloatVector, FloatVector, FloatVector], objective: float, data: Any
) -> None:
    memory.append(*row, data)
    memory.close(objective)


def _rows(memory: Memory) -> tuple[Any, ...]:
    tail = memory.tail(len(memory))
    arrays = (tail.sensor_readings, tail.actuator_setpoints, tail.rewards, tail.objective, tail.dones)
    return (memory.size_limit, list(tail.additional_data), *(array.copy() for array in arrays))


def _number(findings: Findings, value: Any, when: str) -> float:
    try:
        number = objective_value(value)
    except ContractError as error:
        raise findings.stop("a value is neither a number nor None", f"{when}: {error}") from None
    if not math.isfinite(number):
        findings.add("a value is not finite (where there is none, return None)", f"{when}: {value!r}")
    return number


#: the number of bodies of a muscle under test
_BODIES = 5
_EPISODES = 2
#: the share of bodies with an environment that ends in a step
_END_SHARE = 0.2


class _Bodies:
    """A batch muscle for several bodies, and a separate muscle for each of them."""

    def __init__(
        self,
        findings: Findings,
        factory: Callable[[], Muscle],
        channels: tuple[Sequence[Any], Sequence[Any]],
        mode: Mode,
    ):
        self.findings, self.mode, self.channels = findings, mode, channels
        self.sensors, self.actuators = map(Layout.of, channels)
        self.muscles = [build_another(factory, findings) for _ in range(_BODIES + 1)]
        for muscle in self.muscles:
            _set_up(findings, muscle, mode)
        whole, *self.singles = self.muscles
        assert isinstance(whole, BatchMuscle)
        self.whole = whole

    def check(self, *, steps: int, seed: int, rounding: float) -> None:
        """Check that all bodies get the same results from the batch muscle as from their own muscles.

        Some bodies end, pause for one step, and restart. ``rounding`` is the largest relative difference between
        set-points; 0 requires exact equality.
        """
        findings = self.findings
        for episode in range(_EPISODES):
            rng = seeding.generator(seed, "together", self.mode.value, episode)
            self._begin(seed, episode)
            ended = np.zeros(_BODIES, dtype=bool)
            for step in range(steps):
                begun, ended = ended, rng.random(_BODIES) < _END_SHARE
                self._restart(np.flatnonzero(begun))
                indices = np.flatnonzero(~ended)
                if len(indices):
                    readings = np.array([sample_flat(self.channels[0], rng) for _ in indices])
                    when = f"{self.mode.value} mode, episode {episode}, step {step}"
                    self._compare(readings, indices, when, rounding)
            for muscle in self.muscles:
                with findings.calling("reset"):
                    muscle.reset()
        for muscle in self.muscles:
            with findings.calling("teardown"):
                muscle.teardown()

    def _begin(self, seed: int, episode: int) -> None:
        """Begin an episode of the phase with its generators."""
        self.whole.rngs = [seeding.generator(seed, "agent", episode, body) for body in range(_BODIES)]
        self.whole.rng = self.whole.rngs[0]
        for body, muscle in enumerate(self.singles):
            muscle.rng = seeding.generator(seed, "agent", episode, body)
        self.offered = [self.actuators.bound(muscle.rng) for muscle in self.singles]

    def _restart(self, indices: IndexVector) -> None:
        """Restart the bodies with these indices."""
        if len(indices):
            with self.findings.calling("reset_bodies"):
                self.whole.reset_bodies(indices)
            for index in indices.tolist():
                with self.findings.calling("reset"):
                    self.singles[index].reset()

    def _compare(self, readings: FloatArray, indices: IndexVector, when: str, rounding: float) -> None:
        """Compare the results of one step for the bodies with these indices."""
        findings = self.findings
        together, data = self._propose_batch(readings, indices, when)
        for i, index in enumerate(indices.tolist()):
            with findings.calling(when):
                answer, alone_data = self.singles[index].propose_actions(
                    SensorReadings(self.sensors, readings[i].copy()), ActuatorSetpoints(self.offered[index])
                )
                self.singles[index].pop_statistics()
            expected = collect_setpoints(self.offered[index], answer)
            if not _agree(together[i], expected, rounding):
                findings.add(
                    "propose_batch gives a body other set-points than propose_actions",
                    f"{when}, body {index}: {together[i].tolist()}, alone {expected.tolist()}",
                )
            elif rounding == 0.0 and not same(None if data is None else data[i], alone_data):
                findings.add(
                    "propose_batch sends other data to the brain than propose_actions",
                    f"{when}, body {index}",
                )

    def _propose_batch(self, readings: FloatArray, indices: IndexVector, when: str) -> tuple[FloatArray, Any]:
        """Return the batch muscle's set-points (n, set-points) and data, after checking their shapes."""
        findings, shown = self.findings, readings.copy()
        with findings.calling(when):
            answer = self.whole.propose_batch(BatchReadings(shown, indices, self.sensors, self.actuators))
            self.whole.pop_statistics()
        if not same(shown, readings):
            findings.add("changes the readings that it is given", when)
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            raise findings.stop("propose_batch does not return (set-points, data)", f"{when}: {answer!r}")
        setpoints, data = np.array(answer[0], dtype=np.float64), answer[1]
        expected = (len(indices), self.actuators.size)
        if setpoints.shape != expected:
            raise findings.stop(
                "propose_batch returns set-points of another shape",
                f"{when}: {setpoints.shape}, not {expected}",
            )
        if data is not None and len(data) != len(indices):
            raise findings.stop("propose_batch does not return data for each body", f"{when}: {len(data)}")
        return setpoints, data


def _check_batch_objective(
    findings: Findings,
    objective: Objective,
    rows: Sequence[tuple[FloatVector, FloatVector, FloatVector]],
    values: Sequence[float],
) -> None:
    """Check that a :class:`BatchObjective` returns the ``values`` of single ``rows`` for all rows at once, too."""
    assert isinstance(objective, BatchObjective)
    readings, setpoints, rewards = (np.array(column) for column in zip(*rows, strict=True))
    with findings.calling("internal_rewards"):
        answer = np.array(
            objective.internal_rewards(BatchRows(readings, setpoints, rewards, np.arange(len(rows)))),
            dtype=np.float64,
        )
    if answer.shape != (len(rows),):
        raise findings.stop(
            "internal_rewards does not return a value for each row",
            f"its shape is {answer.shape}, there are {len(rows)} rows",
        )
    if not same(answer, np.array(values)):
        index = int(np.argmax(~((answer == values) | (np.isnan(answer) & np.isnan(values)))))
        findings.add(
            "internal_rewards gives a row another value than internal_reward",
            f"row {index}: {answer[index]!r}, alone {values[index]!r}",
        )


def _agree(a: FloatVector, b: FloatVector, rounding: float) -> bool:
    if rounding == 0.0:
        return same(a, b)
    return bool(np.allclose(a, b, rtol=rounding, atol=rounding, equal_nan=True))
