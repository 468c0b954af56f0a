"""Many bodies of an agent in a batched environment, stepped as arrays.

Equivalent to one :class:`~palaestrai_mosaik.simulation.body.Body` for each; the rows
are the same, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Experience
from palaestrai_mosaik.agent.muscle import BatchMuscle, BatchObjective, BatchReadings, BatchRows
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.core.importing import class_name
from palaestrai_mosaik.types.arrays import (
    AgentRows,
    BoolVector,
    FloatMatrix,
    FloatVector,
    IndexVector,
    IntVector,
)
from palaestrai_mosaik.types.vectors import Layout

from .body import BaseBody, BodyIdentity
from .connections import STATES, EnvironmentPlans, MosaikConnection
from .environment_handle import BatchHandle, EnvironmentHandle, places
from .learner import ExperienceSink, check_statistics

_NO_REWARDS = np.empty(0)


class BatchChannels:
    """The channels of identical bodies; body ``i`` sits in incarnation ``rows[i]``.

    ``sensors`` and ``actuators`` name the channels within an incarnation. ``take`` and ``put`` are
    their indices in its state vector and its set-points.
    """

    def __init__(
        self, handle: BatchHandle, rows: Sequence[int], sensors: Sequence[str], actuators: Sequence[str]
    ):
        self.handle = handle
        self.rows = np.array(rows, dtype=np.intp)
        self._actuators = actuators
        self.sensors, self.take = handle.select("sensors", sensors, rows[0])
        self.actuators, self.put = handle.select("actuators", actuators, rows[0])

    def actuators_of(self, index: int) -> Layout:
        """Return the actuators of the body at index ``index``."""
        return self.handle.select("actuators", self._actuators, int(self.rows[index]))[0]


@dataclass(slots=True, eq=False)
class BatchBodyRows:
    """The rows of one tick, as arrays: one row for each of the bodies at the indices ``places``.

    :meth:`BatchBody.close` sets ``rewards`` and ``objective``. See :class:`~.body.Row`.
    """

    places: IndexVector
    step: IntVector
    time: int
    environment_episode: npt.NDArray[np.int32]
    readings: FloatMatrix
    setpoints: FloatMatrix
    data: Sequence[Any] | None
    wall: float
    proposed: FloatMatrix | None
    statistics: dict[str, Any]
    rewards: FloatMatrix
    objective: FloatVector
    terminated: BoolVector
    truncated: BoolVector
    #: whether the brain has received them
    learned: bool = False

    def of(self, mask: BoolVector) -> BatchBodyRows:
        """Return the rows under ``mask``."""
        arrays: dict[str, Any] = {
            name: value[mask]
            for name in self.__slots__
            if isinstance(value := getattr(self, name), np.ndarray)
        }
        data = self.data
        if data is not None:
            arrays["data"] = [data[i] for i in np.flatnonzero(mask).tolist()]
        return replace(self, **arrays)


class BatchBody(BaseBody[BatchBodyRows]):
    """``n`` identical bodies of one agent, each in a separate incarnation of one batched environment.

    Their rows are not kept for the muscle: there is no memory.
    """

    muscle: BatchMuscle

    def __init__(
        self,
        identity: BodyIdentity,
        muscle: BatchMuscle,
        objective: BatchObjective | None,
        channels: BatchChannels,
        muscles: Sequence[str],
        learner: ExperienceSink | None = None,
    ):
        handle = self.handle = channels.handle
        super().__init__(identity, objective, (handle,), identity.rewards or (), learner)
        first = identity.number or 0
        self.numbers = np.arange(first, first + len(channels.rows), dtype=np.int32)
        self._muscles = tuple(muscles)
        self._index_of = {uid: index for index, uid in enumerate(muscles)}
        self.muscle = muscle
        self.channels = channels
        self.sensors, self.actuators = channels.sensors, channels.actuators
        #: the incarnations, as a slice if they are adjacent, which avoids a copy
        self._rows = places(channels.rows.tolist())
        #: the same for the packet of set-points, as a slice if they are adjacent in both dimensions
        sliced = isinstance(self._rows, slice) and isinstance(channels.put, slice)
        self._neighbours = self._rows if sliced else channels.rows
        self._all = np.array_equal(channels.rows, np.arange(handle.batch))
        self._places = np.arange(len(channels.rows))
        self._reported: list[tuple[int, dict[str, Any]]] = []

    @property
    def muscles(self) -> Sequence[str]:
        return self._muscles

    @property
    def last_row(self) -> int:
        return int(self._steps.max()) - 1

    def update_of(self, muscle: str, update: Any) -> None:
        self.muscle.update_body(self._index_of[muscle], update)

    def wire(self, sockets: EnvironmentPlans) -> list[MosaikConnection]:
        # one packet holds all set-points
        e = sockets.handles.index(self.handle)
        self._output = f"{e}-{self.handle.uid}.setpoints"
        return [MosaikConnection(e, "", self._output, "setpoints", ())] if self.actuators.size else []

    def wired(self) -> dict[str, int]:
        count = len(self.numbers)
        return {STATES: count * self.sensors.size, self._output: count * self.actuators.size}

    def begin(self, worker: int, episode: int, rng: Callable[..., np.random.Generator]) -> None:
        super().begin(worker, episode, rng)
        self.muscle.rngs = [rng(number) for number in self.numbers.tolist()]
        self.muscle.rng = self.muscle.rngs[0]
        count = len(self.numbers)
        self._steps = np.zeros(count, dtype=np.int64)
        self._episodes = np.zeros(count, dtype=np.int32)
        #: mask (n,) of bodies whose episode is over, until the incarnation restarts
        self.outs = np.zeros(count, dtype=bool)
        self._reported = []
        self.values = {self._output: ()}

    def has_ended(self, resets: bool) -> bool:
        # true if any body's environment has ended
        return bool(self.handle.ended_now[self._rows].any())

    def begin_again(self) -> None:
        restarted = self.outs & self.handle.begun_now[self._rows]
        if np.count_nonzero(restarted):
            self.outs = self.outs & ~restarted
            self._episodes = self.handle.counts[self._rows]
            self.muscle.reset_bodies(np.flatnonzero(restarted))
            self.out = False

    def act(self, time: int, states: Sequence[FloatMatrix]) -> None:
        if self.pending is not None:
            self.complete, self.pending = self.pending, None
        (matrix,) = states
        mine = matrix if self._all else matrix[self._rows]
        acting, steps, episodes = self._places, self._steps, self._episodes
        incarnations: Any = self._neighbours
        if np.count_nonzero(self.outs):
            acting = np.flatnonzero(~self.outs)
            mine, steps, episodes = mine[acting], steps[acting], episodes[acting]
            incarnations = self.channels.rows[acting]
        readings = np.ascontiguousarray(mine[:, self.channels.take])
        readings.flags.writeable = False
        started = perf_counter()
        answer = self.muscle.propose_batch(BatchReadings(readings, acting, self.sensors, self.actuators))
        wall = (perf_counter() - started) / len(acting)
        setpoints, data = self._checked(answer, acting)
        statistics = self.muscle.pop_statistics() if self.muscle._statistics else {}
        if statistics:
            self._reported.append((int(steps[-1]), statistics))
        proposed = None
        handle = self.handle
        if handle.replays and handle.recorded is not None:
            proposed = setpoints
            setpoints = handle.recorded[self.channels.rows[acting]][:, self.channels.put]
        never = np.zeros(len(acting), dtype=bool)
        nothing = _NO_REWARDS, _NO_REWARDS, never, never
        self.open = BatchBodyRows(
            acting, steps, time, episodes, readings, setpoints, data, wall, proposed, statistics, *nothing
        )
        # acting once per step of the environment, the bodies have no earlier unread packets
        self.values = {self._output: ((time, self.order, (incarnations, self.channels.put), setpoints),)}

    def _checked(self, answer: Any, acting: IntVector) -> tuple[FloatMatrix, Sequence[Any] | None]:
        count = len(acting)
        who = f"agent {self.agent!r} ({class_name(type(self.muscle))}): propose_batch"
        try:
            proposed, data = answer
        except (TypeError, ValueError):
            raise ContractError(f"{who} must return (set-points, data), not {answer!r}") from None
        try:
            setpoints = np.array(proposed, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ContractError(f"{who} must return set-points as numbers: {error}") from error
        layout = self.actuators
        if setpoints.shape != (count, layout.size):
            raise ContractError(
                f"{who} returned set-points of shape {setpoints.shape}; expected is {(count, layout.size)}: "
                f"{count} bodies, {layout.size} set-points"
            )
        if data is not None and (not hasattr(data, "__len__") or len(data) != count):
            result = f"for {len(data)} bodies" if hasattr(data, "__len__") else f"that is {data!r}"
            raise ContractError(f"{who} returned data {result}; expected is one for each of {count}")
        wrong = layout.outside(setpoints)
        if np.count_nonzero(wrong):
            row = int(np.argmax(wrong.any(axis=1)))
            self.channels.actuators_of(int(acting[row])).check(setpoints[row])
        return setpoints, data

    def collect(self, fresh: Collection[EnvironmentHandle]) -> None:
        """Do nothing: these bodies watch the only environment that they are in, so nothing accumulates."""

    def close(self, fresh: Collection[EnvironmentHandle]) -> None:
        rows, self.open = self.open, None
        assert rows is not None
        handle, everyone = self.handle, len(rows.places) == len(self.numbers)
        if handle in fresh:
            incarnations = self._rows if everyone else self.channels.rows[rows.places]
            rewards = np.array(handle.vector[incarnations, handle.n_readings : -2])
        else:
            rewards = np.zeros((len(rows.places), handle.n_rewards))
        rows.rewards = rewards
        if isinstance(self.objective, BatchObjective):
            values = self.objective.internal_rewards(
                BatchRows(rows.readings, rows.setpoints, rewards, rows.places)
            )
            rows.objective = np.array(values, dtype=np.float64)
            if rows.objective.shape != (len(rows.places),):
                raise ContractError(
                    f"agent {self.agent!r} ({class_name(type(self.objective))}): internal_rewards returned shape "
                    f"{rows.objective.shape}, expected is {(len(rows.places),)}"
                )
        else:
            rows.objective = rewards.sum(axis=1)
        # a new array, because the rows keep the old one
        self._steps = self._steps + 1 if everyone else self._steps.copy()
        if not everyone:
            self._steps[rows.places] += 1
        start, end = self._filled, self._filled + len(rows.places)
        table = self._reserve(end)[start:end]
        table[:, 0] = rows.time
        table[:, 1] = self.numbers[rows.places]
        table[:, 2] = rows.objective
        table[:, 3:] = rewards
        self._filled = end
        self.pending = self.closed = rows

    def end_episode(self, closed: list[Any]) -> None:
        ended = self.handle.ended_now[self._rows]
        self.outs = self.outs | ended
        self.out = bool(self.outs.all())
        rows = self.pending
        if rows is not None:
            last = ended[rows.places]
            self.pending = None if last.all() else rows.of(~last)
            if last.any():
                self._end(rows.of(last), learns=self in closed)

    def think(self, ahead: bool) -> None:
        rows = self.pending
        if rows is not None and not rows.learned:
            self._learn(rows, self.readings_now() if ahead and self.muscle.looks_ahead else None)

    def _end(self, row: BatchBodyRows, *, learns: bool) -> None:
        flags = self.handle.vector[self.channels.rows[row.places], -2:] != 0
        row.terminated = flags[:, 0]
        row.truncated = flags[:, 1] | ~row.terminated
        if self.learns and self.learner is not None:
            final = self.readings_now()
            if learns:
                self._learn(row, final)
            else:
                for i, index in enumerate(row.places.tolist()):
                    flags = bool(row.terminated[i]), bool(row.truncated[i])
                    self.learner.mark_end(self.muscles[index], *flags, final[index])
        self._write(row)

    def readings_now(self) -> FloatMatrix:
        """Return the newest readings of all bodies, (n, readings)."""
        mine = self.handle.vector if self._all else self.handle.vector[self._rows]
        return np.ascontiguousarray(mine[:, self.channels.take])

    def _learn(self, rows: BatchBodyRows, final: FloatMatrix | None) -> None:
        rows.learned = True
        learner = self.learner
        assert learner is not None
        experiences = self._experiences(rows, final)
        before = learner.updates
        update = learner.learn_batch(experiences)
        steps = dict(zip(rows.places.tolist(), rows.step.tolist(), strict=True))
        for uid, statistics in learner.statistics_by_muscle.items():
            check_statistics(self.agent, rows.statistics, statistics)
            self._reported.append((steps[self._index_of[uid]], statistics))
        if update is None:
            return
        if learner.shared_updates:
            (self.on_update or self.muscle.update)(update)
            return
        for experience in experiences:
            number, newest = learner.update_for(experience.muscle)
            if number > before:
                self.update_of(experience.muscle, newest)

    def _experiences(self, rows: BatchBodyRows, final: FloatMatrix | None) -> list[Experience]:
        """Return the rows one by one; ``final``: the newest readings of all bodies."""
        indices, steps, objectives = rows.places.tolist(), rows.step.tolist(), rows.objective.tolist()
        data = repeat(None) if rows.data is None else rows.data
        values = zip(rows.readings, rows.setpoints, rows.rewards, objectives, data, strict=False)
        ends = zip(rows.terminated.tolist(), rows.truncated.tolist(), strict=True)
        finals = repeat(None) if final is None else final[indices]
        # without filters, the muscle's observations and actions are the readings and set-points
        return [
            Experience(self.muscles[index], *value, *value[:2], *end, after, step)
            for index, value, end, after, step in zip(indices, values, ends, finals, steps, strict=False)
        ]

    def _write(self, row: BatchBodyRows) -> None:
        if self.stream is not None:
            times, bodies = np.full(len(row.places), row.time), self.numbers[row.places]
            episodes = row.environment_episode
            values = row.readings, row.setpoints, row.rewards, row.objective, row.terminated, row.truncated
            rows = AgentRows(
                self.worker, self.episode, times, row.step, bodies, episodes, *values, row.wall, row.proposed
            )
            self.stream.append_rows(rows)
        reported, self._reported = self._reported, []
        if self.statistic is not None:
            for step, statistics in reported:
                for key, value in statistics.items():
                    self.statistic(self.worker, self.episode, step, key, value)

    def forget(self) -> None:
        """Drop objective and rewards of the rows so far, so that conditions and the report see only later ones."""
        self._filled = 0
