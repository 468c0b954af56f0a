"""Conformance checks of muscles, brains and objectives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik import seeding
from palaestrai_mosaik.agent import BodyInformation, Brain, BrainDumper, Memory, Muscle, Objective
from palaestrai_mosaik.agent.batch import BatchMuscle, BatchObjective
from palaestrai_mosaik.errors import BrainDumpError
from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout, SensorReadings, collect_setpoints

from .batch_agents import check_objective_together, check_together
from .findings import Findings, build, check_channels, same, sample_flat, twin

FloatVector = npt.NDArray[np.float64]

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
    """Check that a muscle keeps its contract, with these ``sensors`` and ``actuators``.

    ``factory`` returns a new muscle. In train mode and in test mode, two of them are shown
    the same readings (sampled from the sensors' spaces) with the same generators.

    Checked: ``propose_actions`` returns set-points and data; set-points belong to the
    agent's actuators and lie in their spaces; readings are not written to; equal readings
    and generators give equal set-points and data; no global randomness is used. Of a
    :class:`BatchMuscle` also: it gives each of several bodies, which end and begin again on
    their own, what a muscle of its own would; ``rounding`` is the largest relative difference
    (0: none at all).

    Raises
    ------
    ConformanceError
        Lists everything that was found.
    """
    first, findings = build(factory, Muscle)
    _check_stage(findings, sensors, actuators)
    for mode in Mode:
        pair = [_Actor(twin(factory, findings), findings, (sensors, actuators), mode) for _ in range(2)]
        for episode in range(episodes):
            rng = seeding.generator(seed, "readings", episode)
            for actor in pair:
                actor.begin(seed, episode)
            for step in range(steps):
                when = f"{mode.value} mode, episode {episode}, step {step}"
                readings = sample_flat(sensors, rng)
                answers = [actor.act(readings, when) for actor in pair]
                if not same(*(setpoints for setpoints, _ in answers)):
                    findings.add("two instances differ, given the same readings and generators", when)
                elif not same(*(data for _, data in answers)):
                    findings.add("two instances send different data to their brains", when)
                for actor, (setpoints, data) in zip(pair, answers, strict=True):
                    actor.remember(readings, setpoints, float(step), data)
            for actor in pair:
                with findings.calling("reset"):
                    actor.muscle.reset()
        for actor in pair:
            with findings.calling("teardown"):
                actor.muscle.teardown()
        if isinstance(first, BatchMuscle):
            check_together(
                *(findings, factory, (sensors, actuators), mode),
                steps=steps,
                seed=seed,
                rounding=rounding,
            )
    findings.raise_found()


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

    ``factory`` returns a new brain, ``muscle`` a new muscle, which sends it data and takes
    its updates. Two pairs live through the same ``steps`` steps.

    Checked: ``thinking`` and ``Muscle.update`` understand each other; equal memories and
    generators give equal updates; no global randomness is used. Where the brain stores
    something: every dump is read back, by ``load`` or by the muscle's ``prepare_model``,
    and ``load`` raises where the dump is missing or cut off, instead of going on with a
    fresh brain.

    Raises
    ------
    ConformanceError
        Lists everything that was found.
    """
    _, findings = build(factory, Brain)
    _check_stage(findings, sensors, actuators)
    dumps: list[_Dumps] = []
    pair = []
    for _ in range(2):
        dumps.append(_Dumps())
        brain = _brain(factory, findings, (sensors, actuators), dumps[-1], seed)
        pair.append((brain, _Actor(twin(muscle, findings), findings, (sensors, actuators), Mode.TRAIN)))
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
            if update is not None:
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

    ``factory`` returns a new objective; ``reward_names`` are full names
    (``environment.reward``). Readings and set-points are sampled from the spaces of
    ``sensors`` and ``actuators``, rewards are random.

    Checked: every value is a finite number or ``None``; the memory is not changed; equal
    memories give equal values; no global randomness is used. Of a :class:`BatchObjective` also:
    it gives many rows at once the values that it gives them one by one.

    Raises
    ------
    ConformanceError
        Lists everything that was found.
    """
    first, findings = build(factory, Objective)
    pair = (first, twin(factory, findings))
    memories = (Memory(), Memory())
    for objective in pair:
        with findings.calling("setup"):
            objective.setup(list(reward_names))
    rng = seeding.generator(seed, "rewards")
    rows, given = [], []
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
        given.append(math.nan if values[0] is None else float(values[0]))
        if not same(*values):
            findings.add("two instances differ, given the same memory", f"row {step}: {values}")
    if isinstance(first, BatchObjective):
        check_objective_together(findings, first, rows, given)
    findings.raise_found()


class _Actor:
    """A muscle under check, on the stage that the framework would give it."""

    def __init__(
        self,
        muscle: Muscle,
        findings: Findings,
        channels: tuple[Sequence[SensorInformation], Sequence[ActuatorInformation]],
        mode: Mode,
    ):
        self.muscle, self.findings = muscle, findings
        self.sensors, self._actuators = (_layout(c) for c in channels)
        muscle.uid, muscle.mode = _UID, mode
        muscle._memory = Memory()
        with findings.calling("setup"):
            muscle.setup()

    def begin(self, seed: int, episode: int) -> None:
        """Start an episode with its generator."""
        rng = seeding.generator(seed, "agent", episode)
        self.muscle.rng = rng
        self.actuators = self._actuators.bound(rng)

    def act(self, readings: FloatVector, when: str) -> tuple[FloatVector, Any]:
        """Ask for set-points and check the answer; return set-points and data."""
        findings, given = self.findings, readings.copy()
        with findings.calling(when):
            answer = self.muscle.propose_actions(
                SensorReadings(self.sensors, given), ActuatorSetpoints(self.actuators)
            )
            self.muscle.pop_statistics()
        if not same(given, readings):
            findings.add("changes the readings that it is given", when)
        if (
            not isinstance(answer, tuple | list)
            or len(answer) != 2
            or isinstance(answer[0], ActuatorInformation)
        ):
            raise findings.stop("propose_actions does not return (actuators, data)", f"{when}: {answer!r}")
        try:
            return collect_setpoints(self.actuators, answer[0]), answer[1]
        except Exception as error:
            raise findings.stop("set-points cannot be used", f"{when}: {error}") from error

    def remember(self, readings: FloatVector, setpoints: FloatVector, reward: float, data: Any) -> None:
        """Close the row of the last action."""
        _remember(self.muscle.memory, (readings, setpoints, np.array([reward])), reward, data)


class _Dumps(BrainDumper):
    """Keeps dumps in memory and notes which of them were asked for."""

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
    dumps: _Dumps,
) -> None:
    if not dumps.kept:
        return
    whole = _Dumps(dict(dumps.kept))
    brain = _brain(factory, findings, channels, whole, 1)
    with findings.calling("load"):
        brain.load()
    actor = _Actor(twin(muscle, findings), findings, channels, Mode.TEST)
    actor.muscle._dumpers = [whole]
    with findings.calling("prepare_model of the muscle"):
        actor.muscle.prepare_model()
    for tag in sorted(whole.kept.keys() - whole.asked):
        findings.add("stores what it does not load", f"the dump with the tag {tag!r}")
    cut_off = {tag: dump[: len(dump) // 2] for tag, dump in dumps.kept.items()}
    for state, kept in (("missing", {}), ("cut off", cut_off)):
        brain = _brain(factory, findings, channels, _Dumps(kept), 1)
        try:
            brain.load()
        except Exception:
            continue
        findings.add("load goes on without a usable dump, instead of raising", f"the dump was {state}")


def _brain(
    factory: Callable[[], Brain],
    findings: Findings,
    channels: tuple[Sequence[SensorInformation], Sequence[ActuatorInformation]],
    dumps: _Dumps,
    seed: int,
) -> Brain:
    brain = twin(factory, findings)
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


def _check_stage(findings: Findings, sensors: Sequence[Any], actuators: Sequence[Any]) -> None:
    """A check whose own sensors and actuators are unsound would accuse the wrong one."""
    check_channels(findings, "sensor", sensors)
    check_channels(findings, "actuator", actuators)
    findings.raise_found()


def _layout(channels: Sequence[Any]) -> Layout:
    return Layout([c.uid for c in channels], [c.space for c in channels])


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
        number = float(value)
    except (TypeError, ValueError):
        raise findings.stop("a value is neither a number nor None", f"{when}: {value!r}") from None
    if not math.isfinite(number):
        findings.add("a value is not finite (where there is none, return None)", f"{when}: {value!r}")
    return number
