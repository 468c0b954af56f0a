"""Many bodies of an agent in a batched environment, stepped as arrays.

Does for all of them what :class:`~palaestrai_mosaik.simulation.body.Body` does for one; the rows
that come out are the same to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import repeat
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Experience
from palaestrai_mosaik.agent.batch import BatchMuscle, BatchObjective, BatchReadings, BatchRows
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types import Mode
from palaestrai_mosaik.types.rows import AgentRows
from palaestrai_mosaik.types.vectors import Layout

from .batch_handle import BatchHandle
from .body import Body, BodyIdentity
from .connections import STATES, EnvironmentPlans, MosaikConnection, places
from .environment_handle import AgentStream, EnvironmentHandle
from .learner import ExperienceSink, check_statistics

FloatVector = npt.NDArray[np.float64]
FloatMatrix = npt.NDArray[np.float64]
IntVector = npt.NDArray[np.intp]
BoolVector = npt.NDArray[np.bool_]


class BatchChannels:
    """What alike bodies read, set and are rewarded by; body ``i`` sits in incarnation ``rows[i]``.

    ``sensors`` and ``actuators`` name the channels within an incarnation. ``take`` and ``put`` are
    their places in its state vector and its set-points.
    """

    def __init__(
        self, handle: BatchHandle, rows: Sequence[int], sensors: Sequence[str], actuators: Sequence[str]
    ):
        self.handle = handle
        self.rows = np.array(rows, dtype=np.intp)
        self._actuators = actuators
        self.sensors, self.take = handle.select("sensors", sensors, rows[0])
        self.actuators, self.put = handle.select("actuators", actuators, rows[0])

    def actuators_of(self, place: int) -> Layout:
        """Return the actuators of one of the bodies."""
        return self.handle.select("actuators", self._actuators, int(self.rows[place]))[0]


class BatchBodyRows:
    """The rows of one tick, a row of each array for each of ``places`` among the bodies."""

    _ARRAYS = ("places", "step", "episodes", "readings", "setpoints", "rewards", "value")
    __slots__ = (*_ARRAYS, "time", "wall", "proposed", "data", "learned", "told")

    places: IntVector
    step: npt.NDArray[np.int64]
    episodes: npt.NDArray[np.int32]
    readings: FloatMatrix
    setpoints: FloatMatrix
    rewards: FloatMatrix
    value: FloatVector
    time: int
    wall: float
    proposed: FloatMatrix | None
    data: Sequence[Any] | None
    #: the brain has been told
    learned: bool
    #: what the muscle reported about itself
    told: dict[str, Any]

    def of(self, mask: BoolVector) -> BatchBodyRows:
        """Return those under ``mask``."""
        part = BatchBodyRows()
        for name in BatchBodyRows._ARRAYS:
            setattr(part, name, getattr(self, name)[mask])
        part.time, part.wall, part.learned, part.told = self.time, self.wall, self.learned, self.told
        part.proposed = None if self.proposed is None else self.proposed[mask]
        data = self.data
        part.data = None if data is None else [data[i] for i in np.flatnonzero(mask).tolist()]
        return part


class BatchBody:
    """``n`` alike bodies of one agent, each in its own incarnation of one batched environment."""

    filters = None

    def __init__(
        self,
        identity: BodyIdentity,
        muscle: BatchMuscle,
        objective: BatchObjective | None,
        channels: BatchChannels,
        muscles: Sequence[str],
        learner: ExperienceSink | None = None,
    ):
        self.identity = identity
        self.name, self.agent = identity.name, identity.agent
        first = identity.number or 0
        self.numbers = np.arange(first, first + len(channels.rows), dtype=np.int32)
        #: the uid of every body's muscle, as the brain knows it
        self.muscles = tuple(muscles)
        self._place_of = {uid: place for place, uid in enumerate(self.muscles)}
        self.muscle = muscle
        self.objective = objective
        self.learner = learner
        self.learns = learner is not None
        self.channels = channels
        handle = self.handle = channels.handle
        self.handles: tuple[EnvironmentHandle, ...] = (handle,)
        self.around = self.watched = frozenset([handle])
        self.reward_names = list(identity.rewards or ())
        self.sensors, self.actuators = channels.sensors, channels.actuators
        everyone = np.arange(handle.batch)
        #: the incarnations; a slice where they are neighbours, which copies nothing
        self._rows = places(channels.rows.tolist())
        #: the same for the packet with set-points: places that are neighbours in both directions, or numbers
        sliced = isinstance(self._rows, slice) and isinstance(channels.put, slice)
        self._neighbours = self._rows if sliced else channels.rows
        self._all = len(channels.rows) == handle.batch and bool((channels.rows == everyone).all())
        self._places = np.arange(len(channels.rows))
        #: takes what the brain learned from rows of these bodies (``None``: their muscle)
        self.hand_on: Callable[[Any], None] | None = None
        self.stream: AgentStream | None = None
        self.statistic: Callable[[int, int, int, str, Any], None] | None = None
        self.order = 0
        self.out = False
        #: the rows that wait for their reward, those that have it, and those that can be recorded
        self._open: BatchBodyRows | None = None
        self._pending: BatchBodyRows | None = None
        self._settled: BatchBodyRows | None = None
        #: the rows that were closed last
        self.closed: BatchBodyRows | None = None
        self._reported: list[tuple[int, dict[str, Any]]] = []
        #: time, body, objective, rewards of this episode's closed rows
        self._history = np.empty((256, 3 + len(self.reward_names)))
        self._filled = 0

    @property
    def open(self) -> bool:
        """Whether rows wait for their reward."""
        return self._open is not None

    @property
    def settled(self) -> bool:
        """Whether rows can be recorded."""
        return self._settled is not None

    @property
    def last_row(self) -> int:
        """The number of this episode's last row, of whichever body; -1 if there is none."""
        return int(self._steps.max()) - 1

    def update_of(self, muscle: str, update: Any) -> None:
        """Give the body that the brain knows as ``muscle`` what was learned for it alone."""
        self.muscle.update_body(self._place_of[muscle], update)

    def switch(self, mode: Mode) -> None:
        """Train (and learn) or test in the episodes to come."""
        self.muscle.mode = mode
        self.learns = self.learner is not None and mode is Mode.TRAIN

    def restore(
        self, muscle: BatchMuscle, objective: BatchObjective | None, memory: Any, filters: Any
    ) -> None:
        """Put the parts of a checkpoint in the place of those that were made anew."""
        muscle._dumpers = self.muscle._dumpers
        self.muscle.teardown()
        self.muscle, self.objective = muscle, objective

    @property
    def memory(self) -> None:
        """There is none: what these bodies did is not kept for the muscle."""
        return None

    def wire(self, sockets: EnvironmentPlans) -> list[MosaikConnection]:
        """Return the link of a new world: all set-points in one packet."""
        e = sockets.handles.index(self.handle)
        self._output = f"{e}-{self.handle.uid}.setpoints"
        return [MosaikConnection(e, "", self._output, "setpoints", ())] if self.actuators.size else []

    def wired(self) -> dict[str, int]:
        """Return the number of floats behind each attribute that is wired."""
        count = len(self.numbers)
        return {STATES: count * self.sensors.size, self._output: count * self.actuators.size}

    def begin(self, worker: int, episode: int, rng: Callable[..., np.random.Generator]) -> None:
        """Start an episode. ``rng`` makes the generator for a name below the agent's."""
        self.worker, self.episode = worker, episode
        self.muscle.rngs = [rng(number) for number in self.numbers.tolist()]
        self.muscle.rng = self.muscle.rngs[0]
        count = len(self.numbers)
        self._steps = np.zeros(count, dtype=np.int64)
        self._episodes = np.zeros(count, dtype=np.int32)
        #: (n,): whose episode is over, until the incarnation begins again
        self.outs = np.zeros(count, dtype=bool)
        self.out = False
        self._open = self._pending = self._settled = self.closed = None
        self._reported = []
        self._filled = 0
        self.values: dict[str, Any] = {self._output: ()}

    def has_ended(self, resets: bool) -> bool:
        """Return whether the episode is over for some of the bodies."""
        return bool(self.handle.ended_now[self._rows].any())

    def begin_again(self) -> None:
        """Begin the next episode of the incarnations that have ended, where they are there now."""
        begun = self.outs & self.handle.begun_now[self._rows]
        if np.count_nonzero(begun):
            self.outs = self.outs & ~begun
            self._episodes = self.handle.counts[self._rows]
            self.muscle.reset_bodies(np.flatnonzero(begun))
            self.out = False

    def act(self, time: int, states: Sequence[FloatMatrix]) -> None:
        """Ask the muscle for set-points of all bodies that go on, and lay them out for mosaik.

        ``states``: the newest state vectors of its environment's incarnations (:class:`BatchHandle`).
        """
        if self._pending is not None:
            self._settled, self._pending = self._pending, None
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
        rows = BatchBodyRows()
        rows.places, rows.time, rows.readings, rows.learned = acting, time, readings, False
        rows.step, rows.episodes = steps, episodes
        started = perf_counter()
        answer = self.muscle.propose_batch(BatchReadings(readings, acting, self.sensors, self.actuators))
        rows.wall = (perf_counter() - started) / len(acting)
        rows.setpoints, rows.data = self._checked(answer, acting)
        rows.told = self.muscle.pop_statistics() if self.muscle._statistics else {}
        if rows.told:
            self._reported.append((int(rows.step[-1]), rows.told))
        rows.proposed = None
        handle = self.handle
        if handle.replays and handle.recorded is not None:
            rows.proposed = rows.setpoints
            rows.setpoints = handle.recorded[self.channels.rows[acting]][:, self.channels.put]
        self._open = rows
        self.values = {self._output: (time, self.order, (incarnations, self.channels.put), rows.setpoints)}

    def _checked(self, answer: Any, acting: IntVector) -> tuple[FloatMatrix, Sequence[Any] | None]:
        count = len(acting)
        who = f"{type(self.muscle).__name__}.propose_batch"
        try:
            proposed, data = answer
        except (TypeError, ValueError):
            raise ContractError(f"{who} must return (set-points, data), not {answer!r}") from None
        try:
            setpoints = np.array(proposed, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ContractError(
                f"{who} of agent {self.agent!r} must return set-points as numbers: {error}"
            ) from error
        layout = self.actuators
        if setpoints.shape != (count, layout.size):
            raise ContractError(
                f"{who} returned set-points of shape {setpoints.shape}; expected is {(count, layout.size)}: "
                f"{count} bodies, {layout.size} set-points"
            )
        if data is not None and (not hasattr(data, "__len__") or len(data) != count):
            found = f"for {len(data)} bodies" if hasattr(data, "__len__") else f"that is {data!r}"
            raise ContractError(f"{who} returned data {found}; expected is one for each of {count}")
        wrong = layout.outside(setpoints)
        if np.count_nonzero(wrong):
            place = int(np.argmax(wrong.any(axis=1)))
            self.channels.actuators_of(int(acting[place])).check(setpoints[place])
        return setpoints, data

    def collect(self, fresh: Collection[EnvironmentHandle]) -> None:
        """Nothing is to be added up: these bodies watch the one environment that they are in."""

    def close(self, fresh: Collection[EnvironmentHandle]) -> None:
        """Close the open rows with the rewards since the action."""
        rows, self._open = self._open, None
        assert rows is not None
        handle, everyone = self.handle, len(rows.places) == len(self.numbers)
        if handle in fresh:
            of = self._rows if everyone else self.channels.rows[rows.places]
            rewards = np.array(handle.vector[of, handle.n_readings : -2])
        else:
            rewards = np.zeros((len(rows.places), handle.n_rewards))
        rows.rewards = rewards
        if self.objective is None:
            rows.value = rewards.sum(axis=1)
        else:
            given = self.objective.internal_rewards(
                BatchRows(rows.readings, rows.setpoints, rewards, rows.places)
            )
            rows.value = np.array(given, dtype=np.float64)
            if rows.value.shape != (len(rows.places),):
                raise ContractError(
                    f"{type(self.objective).__name__}.internal_rewards returned shape {rows.value.shape}, expected "
                    f"is {(len(rows.places),)}"
                )
        # the rows have kept the array that there was
        self._steps = self._steps + 1 if everyone else self._steps.copy()
        if not everyone:
            self._steps[rows.places] += 1
        self._remember(rows)
        self._pending = self.closed = rows

    def end_episode(self, closed: list[Any]) -> None:
        """End the episode of the bodies whose incarnations have ended with their newest state."""
        ended = self.handle.ended_now[self._rows]
        self.outs = self.outs | ended
        self.out = bool(self.outs.all())
        rows = self._pending
        if rows is not None:
            last = ended[rows.places]
            self._pending = None if last.all() else rows.of(~last)
            if last.any():
                self._end(rows.of(last), learns=self in closed)

    def think(self, ahead: bool) -> None:
        """Let the brain think about the rows that were closed, and did not end an episode."""
        rows = self._pending
        if rows is not None and not rows.learned:
            nothing = np.zeros(len(rows.places), dtype=bool)
            self._learn(rows, nothing, nothing, self.readings_now() if ahead else None)

    def finish(self, *, learns: bool) -> None:
        """End the episode with the rows that were closed last, and record them."""
        self.record()
        rows, self._pending = self._pending, None
        if rows is not None:
            self._end(rows, learns=learns)

    def _end(self, rows: BatchBodyRows, *, learns: bool) -> None:
        """Record ``rows`` as the last of their episodes; ``learns``: the brain was not told of them."""
        terminated = self.handle.vector[self.channels.rows[rows.places], -2] != 0
        truncated = ~terminated
        if self.learns and self.learner is not None:
            final = self.readings_now()
            if learns:
                self._learn(rows, terminated, truncated, final)
            else:
                for i, place in enumerate(rows.places.tolist()):
                    flags = bool(terminated[i]), bool(truncated[i])
                    self.learner.mark_end(self.muscles[place], *flags, final[place])
        self._write(rows, terminated, truncated)

    def readings_now(self) -> FloatMatrix:
        """(n, readings): what all bodies read in the newest states."""
        mine = self.handle.vector if self._all else self.handle.vector[self._rows]
        return np.ascontiguousarray(mine[:, self.channels.take])

    def _learn(
        self, rows: BatchBodyRows, terminated: BoolVector, truncated: BoolVector, final: FloatMatrix | None
    ) -> None:
        rows.learned = True
        learner = self.learner
        assert learner is not None
        columns = zip(
            rows.places.tolist(),
            rows.readings,
            rows.setpoints,
            rows.rewards,
            rows.value.tolist(),
            repeat(None) if rows.data is None else rows.data,
            terminated.tolist(),
            truncated.tolist(),
            rows.step.tolist(),
            strict=False,
        )
        experiences = [
            Experience(
                self.muscles[place],
                readings,
                setpoints,
                rewards,
                value,
                data,
                readings,
                setpoints,
                ended,
                cut,
                None if final is None else final[place],
                step,
            )
            for place, readings, setpoints, rewards, value, data, ended, cut, step in columns
        ]
        before = learner.updates
        update = learner.learn_batch(experiences)
        steps = dict(zip(rows.places.tolist(), rows.step.tolist(), strict=True))
        for uid, told in learner.told_by.items():
            check_statistics(self.agent, rows.told, told)
            self._reported.append((steps[self._place_of[uid]], told))
        if update is None:
            return
        if learner.shared_updates:
            (self.hand_on or self.muscle.update)(update)
            return
        for experience in experiences:
            number, own = learner.update_for(experience.muscle)
            if number > before:
                self.update_of(experience.muscle, own)

    def record(self) -> None:
        """Record the settled rows, and what muscle and brain report about themselves."""
        rows, self._settled = self._settled, None
        if rows is not None:
            nothing = np.zeros(len(rows.places), dtype=bool)
            self._write(rows, nothing, nothing)

    def _write(self, rows: BatchBodyRows, terminated: BoolVector, truncated: BoolVector) -> None:
        if self.stream is not None:
            self.stream.append_rows(
                AgentRows(
                    self.worker,
                    self.episode,
                    np.full(len(rows.places), rows.time),
                    rows.step,
                    self.numbers[rows.places],
                    rows.episodes,
                    rows.readings,
                    rows.setpoints,
                    rows.rewards,
                    rows.value,
                    terminated,
                    truncated,
                    rows.wall,
                    rows.proposed,
                )
            )
        reported, self._reported = self._reported, []
        if self.statistic is not None:
            for step, told in reported:
                for key, value in told.items():
                    self.statistic(self.worker, self.episode, step, key, value)

    def _remember(self, rows: BatchBodyRows) -> None:
        start, end = self._filled, self._filled + len(rows.places)
        if end > len(self._history):
            more = max(len(self._history), end)
            self._history = np.concatenate([self._history, np.empty((more, self._history.shape[1]))])
        table = self._history[start:end]
        table[:, 0] = rows.time
        table[:, 1] = self.numbers[rows.places]
        table[:, 2] = rows.value
        table[:, 3:] = rows.rewards
        self._filled = end

    def objectives(self) -> FloatVector:
        """(n,): the objective of this episode's closed rows, tick by tick."""
        return self._history[: self._filled, 2]

    def forget(self) -> None:
        """Forget objective and rewards of the rows so far: conditions, and the report, see later ones only."""
        self._filled = 0

    def history(self) -> FloatMatrix:
        """Return (n, 3 + rewards): time, body, objective and rewards of this episode's closed rows."""
        return self._history[: self._filled]


AnyBody = Body | BatchBody
