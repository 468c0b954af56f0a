"""The memory's rows as buffers of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces as gym
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer, RolloutBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from palaestrai_mosaik.core.errors import BrainDumpError, ContractError

Batch = npt.NDArray[Any]

#: the arrays of a replay buffer, one row per transition
_REPLAY = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
#: the arrays of a rollout buffer that training reads
_ROLLOUT = (
    "observations",
    "actions",
    "rewards",
    "returns",
    "episode_starts",
    "values",
    "log_probs",
    "advantages",
)


@dataclass(slots=True)
class Row:
    """One row for the learner: encoded observation, and the data of its muscle.

    ``following``: the muscle's next observation, ``None`` if unknown so far. ``begins``: whether the muscle's
    row before it is missing, so that no return over several steps may span both.
    """

    observation: Batch
    data: npt.NDArray[np.float32]
    reward: float
    terminated: bool
    truncated: bool
    following: Batch | None
    begins: bool = False

    @property
    def done(self) -> bool:
        """Whether the episode ended with this row."""
        return self.terminated or self.truncated

    @property
    def cut_off(self) -> bool:
        """Whether the episode ended but the world did not, so that the next state has a value."""
        return self.truncated and not self.terminated


@dataclass(slots=True)
class Segment:
    """Rows of one muscle since the last training; ``begins``: whether the first one starts an episode."""

    begins: bool = True
    rows: list[Row] = field(default_factory=list)


class Rollouts:
    """The training data of on-policy algorithms: a segment of rows for every muscle."""

    def __init__(self) -> None:
        self.segments: dict[str, Segment] = {}
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def add(self, muscle: str, row: Row) -> None:
        """Add a row of ``muscle``."""
        self.segments.setdefault(muscle, Segment()).rows.append(row)
        self._rows += 1

    def take(self, algorithm: Any) -> RolloutBuffer | None:
        """Remove all complete rows, muscle by muscle, and return them as a full buffer.

        Segments may differ in length. Their advantages are computed one by one; then they are
        concatenated, as Stable-Baselines3 does with several environments. The newest
        row of a muscle stays if its next observation is unknown. ``None`` if no row is complete.
        """
        parts = []
        for segment in self.segments.values():
            rows = segment.rows
            count = len(rows)
            if count and not rows[-1].done and rows[-1].following is None:
                count -= 1
            if not count:
                continue
            complete, remaining = rows[:count], rows[count:]
            following = remaining[0].observation if remaining else complete[-1].following
            parts.append(_rollout(complete, following, segment.begins, algorithm))
            segment.begins, segment.rows = complete[-1].done, remaining
            self._rows -= count
        if len(parts) <= 1:
            return parts[0] if parts else None
        whole = _empty_rollout(sum(part.buffer_size for part in parts), algorithm)
        for name in _ROLLOUT:
            setattr(whole, name, np.concatenate([getattr(part, name) for part in parts]))
        whole.pos, whole.full = whole.buffer_size, True
        return whole


def _empty_rollout(rows: int, algorithm: Any) -> RolloutBuffer:
    return RolloutBuffer(
        rows,
        algorithm.observation_space,
        algorithm.action_space,
        device=algorithm.device,
        gae_lambda=algorithm.gae_lambda,
        gamma=algorithm.gamma,
        n_envs=1,
    )


def _rollout(rows: list[Row], following: Batch | None, begins: bool, algorithm: Any) -> RolloutBuffer:
    buffer = _empty_rollout(len(rows), algorithm)
    buffer.observations[:] = np.stack([row.observation for row in rows]).reshape(buffer.observations.shape)
    data = np.stack([row.data for row in rows])
    buffer.actions[:, 0] = data[:, :-2]
    buffer.values[:, 0], buffer.log_probs[:, 0] = data[:, -2], data[:, -1]
    buffer.rewards[:, 0] = [row.reward for row in rows]
    buffer.episode_starts[:, 0] = [begins, *(row.done for row in rows[:-1])]
    for i, row in enumerate(rows):
        if row.cut_off:
            # time ran out but the world continued: bootstrap with the value of the cut-off part
            if row.following is None:
                raise ContractError("an episode was truncated, but its final observation is not known")
            buffer.rewards[i, 0] += (algorithm.gamma * _value(row.following, algorithm)).item()
    last = rows[-1]
    value = torch.zeros(1, 1) if last.terminated or following is None else _value(following, algorithm)
    buffer.compute_returns_and_advantage(value, np.array([last.done]))
    buffer.pos, buffer.full = len(rows), True
    return buffer


def _value(observation: Batch, algorithm: Any) -> torch.Tensor:
    batch = torch.as_tensor(observation, device=algorithm.device)
    with torch.no_grad():
        value: torch.Tensor = algorithm.policy.predict_values(batch).cpu()
        return value


class ChainedReplay(NStepReplayBuffer):
    """A replay buffer with returns over several steps along the rows of one muscle.

    All muscles share one column, in the order in which their rows become complete.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        #: index of the same muscle's next row in the same episode; -1 without one
        self.next_row = np.full(self.buffer_size, -1)
        #: number and index of each muscle's newest row
        self._newest: dict[str, tuple[int, int]] = {}
        self._rows = 0

    def link(self, muscle: str, begins: bool) -> None:
        """Record the muscle of the row added last; ``begins``: it does not continue the one before."""
        number, index = self._rows, (self.pos - 1) % self.buffer_size
        self._rows += 1
        self.next_row[index] = -1
        earlier, before = self._newest.get(muscle, (number - self.buffer_size, 0))
        # the muscle's last row may have been overwritten meanwhile
        if not begins and number - earlier < self.buffer_size and not self.dones[before, 0]:
            self.next_row[before] = index
        self._newest[muscle] = number, index

    def _get_samples(self, batch_inds: Batch, env: Any = None) -> ReplayBufferSamples:
        """Copy the rows after each sampled one side by side, in the layout that the base class expects."""
        count, steps = len(batch_inds), self.n_steps
        indices = np.empty((count, steps), dtype=np.intp)
        cut = np.zeros((count, steps), dtype=bool)
        indices[:, 0] = batch_inds
        for i in range(1, steps):
            following = self.next_row[indices[:, i - 1]]
            cut[:, i - 1] = following < 0
            indices[:, i] = np.where(cut[:, i - 1], indices[:, i - 1], following)
        gathered = copy(self)
        flat = indices.reshape(-1)
        for name in _REPLAY:
            setattr(gathered, name, getattr(self, name)[flat])
        # the world did not end there, but later rewards are unknown
        gathered.timeouts[cut.reshape(-1) & (gathered.dones[:, 0] == 0)] = 1.0
        gathered.buffer_size, gathered.pos = len(flat), 0
        return super(ChainedReplay, gathered)._get_samples(np.arange(count) * steps, env)

    def in_chains(self, oldest_first: Batch) -> tuple[Batch, Batch]:
        """Return the indices of all rows, chain after chain, and the mask of rows not continued by the next."""
        chain = np.arange(self.buffer_size)
        following = self.next_row.tolist()
        for index in oldest_first.tolist():
            if following[index] >= 0:
                chain[following[index]] = chain[index]
        age = np.empty_like(chain)
        age[oldest_first] = np.arange(len(oldest_first))
        order = oldest_first[np.argsort(age[chain[oldest_first]], kind="stable")]
        ends = (self.next_row[order] < 0) & (self.dones[order, 0] == 0)
        ends[-1:] = False
        return order, ends

    def lie_in_chains(self) -> None:
        """Chain each row to the next one, unless an episode ends or a flag cuts it off."""
        rows = self.size()
        goes_on = (self.dones[:rows, 0] == 0) & (self.timeouts[:rows, 0] == 0)
        self.next_row[:rows] = np.where(goes_on, np.arange(1, rows + 1), -1)
        self.next_row[rows - 1 : rows] = -1


class Replay:
    """Adds the rows of several muscles to the replay buffer of an off-policy algorithm."""

    def __init__(self) -> None:
        self._waiting: dict[str, Row] = {}
        self._last: str | None = None
        #: muscles with a newest row that is not in the buffer
        self._gaps: set[str] = set()

    def complete(self, muscle: str, row: Row) -> list[Row]:
        """Return the rows of ``muscle`` that ``row`` completes, possibly including itself."""
        rows = []
        waiting = self._waiting.pop(muscle, None)
        if waiting is not None:
            rows += self.usable(muscle, waiting)
        if row.terminated and row.following is None:
            # the state after termination has no effect on training
            row.following = row.observation
        if row.following is None and not row.cut_off:
            self._waiting[muscle] = row
        else:
            rows += self.usable(muscle, row)
        return rows

    def usable(self, muscle: str, row: Row) -> list[Row]:
        """Return ``row`` in a list, or nothing if its next observation will never be known."""
        if row.following is None:
            self._gaps.add(muscle)
            return []
        row.begins = muscle in self._gaps
        self._gaps.discard(muscle)
        return [row]

    def break_off(self, muscle: str) -> None:
        """Mark that the next row of ``muscle`` does not continue its newest one."""
        self._gaps.add(muscle)

    def store(self, muscle: str, row: Row, algorithm: Any) -> None:
        """Add a complete row to the replay buffer."""
        buffer: ReplayBuffer = algorithm.replay_buffer
        chained = isinstance(buffer, ChainedReplay)
        cut = row.begins or self._last not in (None, muscle)
        if cut and not chained and buffer.size() and not buffer.dones[buffer.pos - 1, 0]:
            # No effect here. But a learner with several steps may load the buffer, and its
            # returns must not run from one muscle's row into another's.
            buffer.timeouts[buffer.pos - 1] = 1.0
        self._last = muscle
        assert row.following is not None
        action = row.data.astype(algorithm.action_space.dtype)[np.newaxis]
        done = np.array([row.done])
        infos = [{"TimeLimit.truncated": row.cut_off}]
        buffer.add(row.observation, row.following, action, np.array([row.reward]), done, infos)
        if isinstance(buffer, ChainedReplay):
            buffer.link(muscle, row.begins)


def replay_arrays(buffer: ReplayBuffer) -> dict[str, Batch]:
    """Return the filled part of a replay buffer, oldest transition first.

    In a :class:`ChainedReplay`, the oldest chain is first. The flags ``timeouts`` mark rows that the next
    row does not continue.
    """
    order = np.arange(buffer.size())
    if buffer.full:
        order = np.roll(order, -buffer.pos)
    if not isinstance(buffer, ChainedReplay):
        return {name: getattr(buffer, name)[order] for name in _REPLAY}
    order, ends = buffer.in_chains(order)
    arrays = {name: getattr(buffer, name)[order] for name in _REPLAY}
    arrays["timeouts"][ends] = 1.0
    return arrays


def fill_replay(buffer: ReplayBuffer, arrays: Mapping[str, Batch]) -> None:
    """Copy the result of :func:`replay_arrays` into an empty buffer, as many of the newest rows as fit."""
    if set(arrays) != set(_REPLAY):
        raise BrainDumpError(
            f"the replay buffer has the arrays {sorted(arrays)}, expected are {sorted(_REPLAY)}"
        )
    rows = min(len(arrays["rewards"]), buffer.buffer_size)
    for name in _REPLAY:
        target, source = getattr(buffer, name), arrays[name]
        if source.shape[1:] != target.shape[1:]:
            raise BrainDumpError(
                f"the replay buffer has {name} of shape {source.shape[1:]}, this agent's are {target.shape[1:]}"
            )
        target[:rows] = source[len(source) - rows :]
    buffer.full = rows == buffer.buffer_size
    buffer.pos = 0 if buffer.full else rows
    if isinstance(buffer, ChainedReplay):
        buffer.lie_in_chains()


class StoredBuffer:
    """A pickled form of a replay buffer with only its filled part."""

    def __init__(self, buffer: ReplayBuffer):
        names = (*_REPLAY, "next_row") if isinstance(buffer, ChainedReplay) else _REPLAY
        self._arrays = {name: getattr(buffer, name)[: buffer.size()] for name in names}
        # the remaining attributes: sizes, spaces, position
        self._shell = copy(buffer)
        for name in names:
            delattr(self._shell, name)

    def unpack(self) -> ReplayBuffer:
        """Return a buffer that equals the original in all filled rows."""
        buffer = self._shell
        for name, filled in self._arrays.items():
            array = np.zeros((buffer.buffer_size, *filled.shape[1:]), filled.dtype)
            array[: len(filled)] = filled
            setattr(buffer, name, array)
        return buffer


def as_data(action: Batch, space: gym.Space[Any], policy: Any) -> npt.NDArray[np.float32]:
    """Return the data that a muscle would have sent with ``action``, shape ``(1, n)`` (off-policy)."""
    scaled = policy.scale_action(action) if isinstance(space, gym.Box) else action
    return scaled.astype(np.float32).reshape(-1)
