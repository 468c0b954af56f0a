"""Environments, agents and conditions whose behaviour shows all that happens to them.

They serve documents that are run twice: by the engine, and by the plain loop of :mod:`support.plain_loop`.
A value that reaches one of them late, twice or not at all changes what it does next. In one process, they also
write down what they see, in :data:`journal`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.agent import BatchMuscle, BatchObjective, Brain, Muscle, Objective
from palaestrai_mosaik.agent.dumper import dump_arrays, load_arrays
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    Discrete,
    Mode,
    RewardInformation,
    SensorInformation,
    SimulationFlowControl,
)

#: what the parts of this process saw, in order: who, the call, and its arguments
journal: list[tuple[Any, ...]] = []

COLUMNS = [
    "muscles",
    "sensor_readings",
    "actuator_setpoints",
    "observations",
    "actions",
    "next_observations",
    "rewards",
    "objective",
    "terminated",
    "truncated",
    "additional_data",
]


def plain(value: Any) -> Any:
    """Return ``value`` as lists, numbers and texts, with None for NaN."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return None if isinstance(value, float) and np.isnan(value) else value


def remembered(memory: Any) -> list[Any]:
    """Return all rows of a memory."""
    rows = memory.tail(len(memory))
    columns = [plain(getattr(rows, name)) for name in COLUMNS]
    # how rows that are replayed are called is not defined
    columns[0] = ["replay" if name.startswith("replay") else name for name in columns[0]]
    return [list(row) for row in zip(*columns, strict=True)]


def checksum(value: Any) -> int:
    """Return a number that differs where ``value`` does."""
    return zlib.crc32(repr(value).encode())


class Place(Environment):
    """A number that set-points move.

    Args:
        sensors: number of sensors.
        actuators: number of actuators.
        rewards: number of rewards.
        steps: how many steps its first episode takes, its second one, and so on, in turn. The incarnation of a
            batch begins further on in the list.
        ends: ``terminated`` or ``truncated``.
        initial: the actuators have a value from the beginning.
        noisy: it draws a number in every step.
        whole: the actuators take whole numbers.
    """

    def __init__(  # noqa: PLR0913
        self,
        sensors: int = 1,
        actuators: int = 1,
        rewards: int = 1,
        steps: Sequence[int] = (5,),
        ends: str = "terminated",
        initial: bool = False,
        noisy: bool = False,
        whole: bool = False,
    ):
        self.sensors, self.actuators, self.rewards = sensors, actuators, rewards
        self.steps, self.end, self.initial, self.noisy, self.whole = steps, ends, initial, noisy, whole
        self.lives = 0

    def setup(self) -> EnvironmentBaseline:
        space: Any = Discrete(7) if self.whole else Box(-10.0, 40.0, shape=())
        value = None if not self.initial else 3 if self.whole else 1.5
        sensor, reward = Box(-200.0, 200.0, shape=()), Box(-1e6, 1e6, shape=())
        number = self.uid.rpartition(".")[2]
        self.number = int(number) if number.isdecimal() else 0
        return EnvironmentBaseline(
            [SensorInformation(0.0, sensor, f"s{i}") for i in range(self.sensors)],
            [ActuatorInformation(value, space, f"a{i}") for i in range(self.actuators)],
            [RewardInformation(0.0, reward, f"r{i}") for i in range(self.rewards)],
        )

    def reset(self) -> EnvironmentState:
        self.count, self.value = 0, 0.5 * self.lives + self.number
        self.length = self.steps[(self.lives + self.number) % len(self.steps)]
        self.lives += 1
        journal.append((self.uid, "reset"))
        return self._state([])

    def step(self, setpoints: Any) -> EnvironmentState:
        journal.append((self.uid, "step", plain(setpoints)))
        self.count += 1
        moves = [(-0.7 if np.isnan(u) else float(u)) * (i + 1) for i, u in enumerate(setpoints)]
        noise = float(self.rng.normal()) if self.noisy else 0.0
        self.value = 0.75 * self.value + sum(moves) + self.count + noise
        return self._state(plain(setpoints))

    def _state(self, setpoints: list[Any]) -> EnvironmentState:
        over = self.count >= self.length
        return EnvironmentState(
            np.array([self.value % 97.0 + i for i in range(self.sensors)]),
            [10.0 * self.count + self.value % 7.0 + 0.5 * i for i in range(self.rewards)],
            terminated=over and self.end == "terminated",
            truncated=over and self.end == "truncated",
            world_state={"setpoints": setpoints, "lives": self.lives},
        )


class Fleeting(Place):
    """A set-point lasts for a single step."""

    hold_setpoints = False


class Doer(Muscle):
    """Acts on all that it sees and remembers.

    Args:
        pattern: which actuators its first action sets, its second one, and so on, in turn.
        vector: it sets them as one vector.
        limit: how many rows it remembers.
        noisy: it draws a number for every action.
    """

    def __init__(
        self,
        pattern: Sequence[Sequence[int]] = ((0, 1, 2, 3),),
        vector: bool = False,
        limit: int = 100,
        noisy: bool = False,
    ):
        self.pattern, self.vector, self.limit, self.noisy = pattern, vector, limit, noisy
        self.count, self.lives, self.weight = 0, 0, 0.0

    def setup(self) -> None:
        journal.append((self.uid, "setup"))
        self.memory.size_limit = self.limit

    def prepare_model(self) -> None:
        self.weight = float(load_arrays(self._dumpers)["weight"])
        journal.append((self.uid, "prepare_model", self.weight))

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        rows = remembered(self.memory)
        readings = np.array(sensors.vector, dtype=float).tolist()
        journal.append((self.uid, "propose_actions", self.mode.value, readings, rows))
        self.add_statistics("seen", checksum(rows))
        level = 0.37 * sum(readings) + 0.0137 * (checksum(rows) % 1000)
        return self._act(level, actuators_available, len(rows))

    def _act(self, level: float, actuators: Any, rows: int) -> Any:
        level += 1.7 * self.weight + 0.61 * self.count + 0.23 * self.lives
        level += 0.41 if self.mode is Mode.TEST else 0.0
        level += float(self.rng.uniform()) if self.noisy else 0.0
        chosen = self.pattern[self.count % len(self.pattern)]
        self.count += 1
        values = [chosen_value(level * (i + 1), one.space) for i, one in enumerate(actuators)]
        if self.vector:
            actuators.vector = np.array([v if i in chosen else np.nan for i, v in enumerate(values)])
        else:
            for i in chosen:
                if i < len(values):
                    actuators[i].value = values[i]
        return actuators, [self.count, rows, round(level, 3)]

    def update(self, update: Any) -> None:
        journal.append((self.uid, "update", update))
        self.weight = update

    def reset(self) -> None:
        journal.append((self.uid, "reset"))
        self.count, self.lives = 0, self.lives + 1

    def teardown(self) -> None:
        journal.append((self.uid, "teardown"))


def chosen_value(level: float, space: Any) -> Any:
    """Return a value of ``space`` that depends on ``level``."""
    if isinstance(space, Discrete):
        return int(level * 7) % 7
    low, high = float(np.ravel(space.low)[0]), float(np.ravel(space.high)[0])
    return low + (level % 1.0) * (high - low)


class AheadDoer(Doer):
    """Its brain hears what it sees next."""

    looks_ahead = True


class Crowd(BatchMuscle, Doer):
    """Acts for many bodies at once; remembers nothing."""

    def setup(self) -> None:
        self.counts: dict[int, int] = {}

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        readings = np.array(sensors.vector, dtype=float).tolist()
        return self._act(0.37 * sum(readings), actuators_available, 0)

    def propose_batch(self, batch: Any) -> Any:
        answers, data = [], []
        rng, count, vector, self.vector = self.rng, self.count, self.vector, False
        for body, readings in zip(batch.bodies.tolist(), batch.observations.tolist(), strict=True):
            self.rng, self.count = self.rngs[body], self.counts.get(body, 0)
            _, actuators = batch.offered()
            _, told = self._act(0.37 * sum(readings), actuators, 0)
            answers.append([np.nan if one.value is None else float(one.value) for one in actuators])
            data.append(told)
            self.counts[body] = self.count
        self.rng, self.count, self.vector = rng, count, vector
        return np.array(answers).reshape(len(answers), -1), data

    def reset(self) -> None:
        self.counts, self.count = {}, 0

    def reset_bodies(self, bodies: Any) -> None:
        for body in bodies.tolist():
            self.counts[body] = 0

    def update(self, update: Any) -> None:
        self.weight = update

    def teardown(self) -> None:
        pass


class Worth(Objective):
    """The mean of the rewards of its last rows; no value after every ``gap``-th row."""

    def __init__(self, rows: int = 1, gap: int = 0):
        super().__init__()
        self.rows, self.gap, self.count = rows, gap, 0

    def internal_reward(self, memory: Any, **kwargs: Any) -> float | None:
        self.count += 1
        if self.gap and self.count % self.gap == 0:
            return None
        return float(np.mean(memory.tail(self.rows).rewards)) if memory.tail(1).rewards.size else 0.0


class WorthOfAll(BatchObjective):
    """The sum of the rewards of each row, twice."""

    def internal_reward(self, memory: Any, **kwargs: Any) -> float:
        return 2.0 * float(memory.tail(1).rewards[-1].sum())

    def internal_rewards(self, rows: Any) -> Any:
        return [2.0 * float(row.sum()) for row in rows.rewards]


class Thinker(Brain):
    """Makes a weight of all that it remembers.

    Args:
        limit: how many rows it remembers.
        silent: every so many rows it has no update; 0: it always has one.
        initial: what it tells its muscles at first; None: nothing.
        recalls: it tells its muscles what it makes of the rows that are replayed.
    """

    def __init__(self, limit: int = 100, silent: int = 0, initial: float | None = None, recalls: bool = True):
        self.limit, self.silent, self.initial, self.recalls = limit, silent, initial, recalls
        self.weight, self.count = 1.0, 0

    def setup(self) -> None:
        journal.append((self.name, "setup"))
        for memory in self.memories:
            memory.size_limit = self.limit

    def initial_update(self) -> Any:
        journal.append((self.name, "initial_update"))
        return self.initial

    def pretrain(self) -> Any:
        rows = remembered(self.memory)
        journal.append((self.name, "pretrain", rows))
        self.weight = 1.0 + 0.001 * (checksum(rows) % 1000)
        return self.weight if self.recalls else None

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        rows = remembered(self.memory_of(muscle_id))
        ahead = plain(self.next_observations)
        seen = [muscle_id, plain(data_from_muscle), rows, ahead, self.rows_waiting]
        journal.append((self.name, "thinking", *seen))
        self.count += 1
        self.weight = 1.0 + 0.5 * (self.weight % 1.0) + 0.0005 * (checksum(seen) % 1000)
        self.add_statistics("weight", self.weight)
        self.add_statistics("waiting", self.rows_waiting)
        if self.silent and self.count % self.silent == 0:
            return None
        return self.weight

    def evaluated(self, metrics: Mapping[str, float]) -> Mapping[str, float] | None:
        journal.append((self.name, "evaluated", plain(dict(metrics))))
        return {"more": metrics["objective"] + 1.0}

    def store(self) -> None:
        journal.append((self.name, "store", self.weight))
        dump_arrays({"weight": self.weight, "count": self.count}, self._dumpers)

    def load(self) -> None:
        arrays = load_arrays(self._dumpers)
        self.weight, self.count = float(arrays["weight"]), int(arrays["count"])
        journal.append((self.name, "load", self.weight))


class Tutor(Thinker):
    """An update is for the muscle that the row is of."""

    shared_updates = False


class At(TerminationCondition):
    """Gives an answer at one time of some episodes, or after one episode; writes down what it sees.

    Args:
        flow: the answer.
        time: asked at this time or later, in the course of an episode; None: never.
        episodes: in these episodes only; empty: in all.
        after: after the episode with this number, asked about the phase; None: never.
        evaluation: after the evaluation with this number; None: never.
        agents: whose objective values it looks at.
    """

    def __init__(
        self,
        flow: str = "RESET",
        time: int | None = None,
        episodes: Sequence[int] = (),
        after: int | None = None,
        evaluation: int | None = None,
        agents: Sequence[str] = (),
    ):
        self.agents = agents
        self.flow, self.time, self.episodes = SimulationFlowControl[flow], time, episodes
        self.after, self.evaluation = after, evaluation

    def episode_flow_control(self, view: Any) -> SimulationFlowControl:
        ended = {uid: list(flags) for uid, flags in sorted(view.ended.items())}
        endings = dict(sorted(view.endings.items()))
        values = [plain(view.objectives(agent)) for agent in self.agents]
        journal.append(("condition", "episode", view.worker, view.episode, view.time, ended, endings, values))
        due = self.time is not None and view.time >= self.time
        chosen = not self.episodes or view.episode in self.episodes
        return self.flow if due and chosen else SimulationFlowControl.CONTINUE

    def phase_flow_control(self, view: Any) -> SimulationFlowControl:
        last = view.last
        seen = [last.worker, last.episode, last.steps, last.flow.name, last.ended_by, plain(view.history)]
        objectives = {agent: plain(values) for agent, values in last.objectives.items()}
        journal.append(("condition", "phase", view.mode.value, view.workers, *seen, objectives))
        return self.flow if last.episode == self.after else SimulationFlowControl.CONTINUE

    def evaluation_flow_control(self, view: Any) -> SimulationFlowControl:
        metrics = plain({agent: dict(values) for agent, values in view.metrics.items()})
        journal.append(("condition", "evaluation", view.number, metrics))
        return self.flow if view.number == self.evaluation else SimulationFlowControl.CONTINUE
