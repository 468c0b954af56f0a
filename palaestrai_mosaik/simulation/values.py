"""Checks values of environments: every reading and reward is finite; counts those outside of their spaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.core.importing import class_name
from palaestrai_mosaik.core.printing import count as counted
from palaestrai_mosaik.environment.environment import Reward, World
from palaestrai_mosaik.types import Box, RewardInformation
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector
from palaestrai_mosaik.types.vectors import ValueRules

#: number of states that are compared with their spaces together
_ROOM = 256
_ANY = Box(-np.inf, np.inf, shape=())


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """The time of a value and, in a batch, its incarnation (-1 without a batch)."""

    evaluation: bool
    worker: int
    episode: int
    time: int
    incarnation: int = -1

    def __str__(self) -> str:
        parts = [f"worker {self.worker}"] if self.worker else []
        parts += [f"{'evaluation' if self.evaluation else 'episode'} {self.episode}", f"t = {self.time}"]
        parts += [f"incarnation {self.incarnation}"] if self.incarnation >= 0 else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Outside:
    """The count of one sensor's or reward's values outside of its space.

    ``kind`` is ``sensor`` or ``reward``, ``index`` that of the worst value in its reading (-1: a
    reading is one number), ``excess`` its distance from the space, ``moment`` its time.
    """

    kind: str
    uid: str
    space: str
    count: int
    worst: float
    index: int
    excess: float
    moment: Moment

    def joined(self, other: Outside) -> Outside:
        """Return the sum of both counts; of two equally bad values, the earlier one is the worst."""
        worst = min(self, other, key=lambda record: (-record.excess, record.moment))
        return replace(worst, count=self.count + other.count)

    def sentence(self, total: int) -> str:
        """Describe the count for a user; there were ``total`` values."""
        values = "reading" if self.kind == "sensor" else "value"
        are = "is" if self.count == 1 else "are"
        where = "" if self.index < 0 else f" in {self.uid}[{self.index}]"
        return (
            f"{self.count:,} of {counted(total, values)} of {self.kind} {self.uid!r} {are} outside of {self.space}; "
            f"the worst is {self.worst!r}{where} ({self.moment})"
        )


@dataclass(slots=True)
class Tally:
    """Counts the values of one environment that were outside of their spaces.

    ``states`` is the number of states (of all incarnations), ``rewarded`` the number of those with rewards: the first
    state of an episode has none. ``outside`` is by the index of the channel among sensors and rewards.
    """

    states: int = 0
    rewarded: int = 0
    outside: dict[int, Outside] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Add the counts of another time or worker."""
        self.states += other.states
        self.rewarded += other.rewarded
        for channel, record in other.outside.items():
            before = self.outside.get(channel)
            self.outside[channel] = record if before is None else before.joined(record)

    def sentences(self) -> Iterator[str]:
        """Yield a sentence for each sensor and reward with values outside of its space, in order."""
        for _, record in sorted(self.outside.items()):
            yield record.sentence(self.states if record.kind == "sensor" else self.rewarded)


class ValueCheck:
    """Checks the states of one environment of a worker, and holds the buffer for them.

    A new state vector (in a batch, a matrix) is written to ``rows[filled]``, and not changed after that.
    Its values are checked for finiteness immediately, and compared with their spaces when the buffer is full
    (:meth:`count`). With ``strict``, the buffer holds one state.
    """

    def __init__(
        self,
        domain: World,
        rewards: Sequence[RewardInformation],
        reward: Reward | None = None,
        batch: int | None = None,
    ):
        """Prepare for the states of an environment that is set up.

        Args:
            domain: the environment.
            rewards: the rewards of its states, in order.
            reward: computes them; ``None``: the environment does.
            batch: the number of incarnations; ``None`` without a batch.
        """
        assert domain.baseline is not None
        self._domain, self._reward = domain, reward
        self._alone, self._batch = batch is None, batch or 1
        sensors = domain.baseline.sensors
        self._sensors = len(sensors)
        self._n_readings = sum(sensor.space.size for sensor in sensors)
        # palaestrAI's adapter returns each number of a reward separately
        numbers = [
            reward
            if reward.space.size == 1
            else RewardInformation(reward.value, _ANY, reward.uid, reward.may_be_missing)
            for reward in rewards
        ]
        self._rules = ValueRules([*sensors, *numbers])
        self.strict = False

    @property
    def strict(self) -> bool:
        """Whether a value outside of its space is an error."""
        return self._strict

    @strict.setter
    def strict(self, strict: bool) -> None:
        self._strict = strict
        #: number of states in the buffer
        self.room = 1 if strict else max(1, _ROOM // self._batch)
        width = self._rules.layout.size + 2
        self._shape = (self.room, width) if self._alone else (self.room, self._batch, width)
        #: weights small enough that the weighted sum of finite values is finite
        self.weights = np.full(width * self._batch, 2.0**-500)
        self.begin()

    def begin(self) -> None:
        """Start an episode."""
        self._make_room()
        self._tally = Tally()
        self._steps = 0
        #: for each incarnation, whether its next state is the first of an episode, or repeats the last
        self._begins = np.ones(self._batch, dtype=bool)

    def _make_room(self) -> None:
        self.rows = np.empty(self._shape)
        #: number of states written so far
        self.filled = 0

    def take(self, states: FloatMatrix) -> None:
        """Check the new states of a batch, like :meth:`EpisodeCoordinator.pack` a single state."""
        flat = states.reshape(-1)
        if not isfinite(flat.dot(self.weights)):
            self.check_finite(states)
        self.filled += 1
        if self.filled == self.room:
            self.count()

    def check_finite(self, states: FloatVector | FloatMatrix) -> None:
        """Raise :class:`ContractError` if a value of a state vector, or a matrix of them, must be finite but is not.

        NaN is allowed in readings that may be missing, and in the rewards of the first state of an episode, which
        no agent receives.
        """
        rows = states.reshape(self._batch, -1)[:, :-2]
        wrong = self._rules.not_finite(rows)
        begins = self._begins
        if self.filled:
            begins = (self.rows[self.filled - 1].reshape(self._batch, -1)[:, -2:] != 0).any(axis=1)
        rewards = slice(self._n_readings, None)
        wrong[:, rewards] &= ~(begins[:, None] & np.isnan(rows[:, rewards]))
        if wrong.any():
            raise self._error(rows, wrong, self._steps + self.filled, finite=True)

    def count(self) -> None:
        """Compare the buffered states with their spaces. Raises :class:`ContractError` if ``strict``."""
        steps = self.filled
        rows = self.rows[:steps].reshape(-1, self._shape[-1])
        self._make_room()
        if not steps:
            return
        if self._rules.restricts:
            self._count_outside(rows, steps)
        self._begins = (rows[-self._batch :, -2:] != 0).any(axis=1)
        self._steps += steps

    def _count_outside(self, rows: FloatMatrix, steps: int) -> None:
        """Compare the states of the last ``steps`` with their spaces; ``rows``: (steps times incarnations, numbers)."""
        self._tally.states += len(rows)
        over, wrong = None, None
        highest = np.fmax.reduce(rows)
        if highest[-2] or highest[-1]:
            over = (rows[:, -2:] != 0).any(axis=1).reshape(steps, self._batch)
        if not self._rules.contains(np.fmin.reduce(rows)[:-2], highest[:-2], rows):
            wrong = self._rules.outside(rows[:, :-2]).reshape(steps, self._batch, -1)
        if over is None and wrong is None:
            # the usual case
            self._tally.rewarded += len(rows) - int(np.count_nonzero(self._begins))
        else:
            self._compare(rows.reshape(steps, self._batch, -1)[..., :-2], over, wrong)

    def _compare(
        self,
        values: FloatMatrix,
        over: npt.NDArray[np.bool_] | None,
        wrong: npt.NDArray[np.bool_] | None,
    ) -> None:
        """Count the ``wrong`` elements of ``values`` (steps, incarnations, numbers); ``over`` marks last states."""
        if over is None:
            over = np.zeros(values.shape[:2], dtype=bool)
        begins = np.concatenate([self._begins[None], over[:-1]])
        self._tally.rewarded += begins.size - int(np.count_nonzero(begins))
        # a last state after a last state is the same state, repeated
        stays = begins & over & (not self._alone)
        self._tally.states -= int(np.count_nonzero(stays))
        if wrong is None:
            return
        wrong[..., self._n_readings :] &= ~begins[..., None]
        wrong &= ~stays[..., None]
        if wrong.any():
            if self._strict:
                raise self._error(values[0], wrong[0], self._steps, finite=False)
            self._note(values, wrong)

    def taken(self, *, evaluation: bool) -> Tally:
        """Return the counts of the episode so far, and reset them."""
        self.count()
        tally, self._tally = self._tally, Tally()
        if evaluation:
            tally.outside = {
                channel: replace(record, moment=replace(record.moment, evaluation=True))
                for channel, record in tally.outside.items()
            }
        return tally

    def _note(self, values: FloatMatrix, wrong: npt.NDArray[np.bool_]) -> None:
        """Add the ``wrong`` elements of ``values`` to the counts; both are (steps, incarnations, numbers)."""
        layout = self._rules.layout
        excess = np.where(wrong, self._rules.excess(values), -np.inf)
        records: dict[int, Outside] = {}
        for channel, part in enumerate(layout.slices):
            here = wrong[..., part]
            if not here.any():
                continue
            step, incarnation, index = map(int, np.unravel_index(excess[..., part].argmax(), here.shape))
            space, domain = layout.spaces[channel], self._domain
            time = (self._steps + step) * int(domain.step_size)
            moment = Moment(False, domain.worker, domain.episode, time, -1 if self._alone else incarnation)
            worst, distance = (float(numbers[step, incarnation, part][index]) for numbers in (values, excess))
            kind = "sensor" if channel < self._sensors else "reward"
            count = int(np.count_nonzero(here.any(axis=-1)))
            where = worst, index if space.size > 1 else -1, distance, moment
            records[channel] = Outside(kind, self._id(channel), str(space), count, *where)
        self._tally.add(Tally(outside=records))

    def _id(self, channel: int, incarnation: int | None = None) -> str:
        """Return the full id of a channel, by default with ``*`` for the incarnations of a batch."""
        parts = [self._domain.uid, self._rules.layout.uids[channel]]
        if not self._alone:
            parts.insert(1, "*" if incarnation is None else str(incarnation))
        return ".".join(parts)

    def _position(self, channel: int, index: int) -> str:
        """Return the position of a number in its channel, as text; a channel of one number has none."""
        part, size = self._rules.layout.slices[channel], self._rules.layout.spaces[channel].size
        return f"[{index - part.start}]" if size > 1 else ""

    def _source(self, sensor: str | None) -> str:
        """Return the class or simulator that makes the values of a sensor, or of the rewards (``None``)."""
        if sensor is None and self._reward is not None:
            return class_name(type(self._reward))
        return self._domain.source_of(sensor)

    def _error(
        self, rows: FloatMatrix, wrong: npt.NDArray[np.bool_], step: int, *, finite: bool
    ) -> ContractError:
        """Build the error for the first ``wrong`` value; both are (incarnations, numbers)."""
        domain, layout = self._domain, self._rules.layout
        incarnation, index = map(int, np.argwhere(wrong)[0])
        channel = layout.channel_of(index)
        value = float(rows[incarnation, index])
        is_sensor = channel < self._sensors
        source = self._source(layout.uids[channel] if is_sensor else None)
        more = int(np.count_nonzero(wrong)) - 1
        what = "reading of sensor" if is_sensor else "reward"
        name = self._id(channel, incarnation) + self._position(channel, index)
        value_text = "NaN" if np.isnan(value) else repr(value).replace("inf", "infinity")
        fault = f"environment {domain.uid!r}: {source} gave {value_text} as the {what} {name!r}"
        at = f"at step {step} (t = {step * int(domain.step_size)}) of episode {domain.episode}"
        others_text = f", and {counted(more, 'other value')} like it" if more else ""
        if not finite:
            return ContractError(
                f"{fault} {at}{others_text}; it is outside of {layout.spaces[channel]}, which is an error because the "
                "simulation has 'values: strict'"
            )
        remedy = f"a {'reading' if is_sensor else 'reward'} must be a finite number"
        if is_sensor and np.isnan(value) and domain.missing_remedy:
            remedy += f"; if it may be missing, {domain.missing_remedy}"
        return ContractError(f"{fault} {at}{others_text}; {remedy}")
