"""Rows of the memory as the buffers of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces as gym
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer

from palaestrai_mosaik.errors import BrainDumpError, ContractError

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
    """One row as the learner sees it: encoded observations, and what its muscle sent.

    ``following``: what the muscle saw next, ``None`` where that is not known yet.
    """

    observation: Batch
    data: npt.NDArray[np.float32]
    reward: float
    terminated: bool
    truncated: bool
    following: Batch | None

    @property
    def done(self) -> bool:
        """The episode ended with this row."""
        return self.terminated or self.truncated


@dataclass(slots=True)
class Segment:
    """Rows of one muscle since the last training; ``begins``: the first one begins an episode."""

    begins: bool = True
    rows: list[Row] = field(default_factory=list)


class Rollouts:
    """What on-policy algorithms learn from: a segment of rows for every muscle."""

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
        """Return a full buffer of all complete rows, muscle by muscle, and forget them.

        Segments may differ in length. Their advantages are computed one by one; then they are laid
        out one after the other, as Stable-Baselines3 does with several environments. The newest
        row of a muscle stays if it is not known what follows it. ``None`` if no row is complete.
        """
        parts = []
        for segment in self.segments.values():
            rows = segment.rows
            count = len(rows)
            if count and not rows[-1].done and rows[-1].following is None:
                count -= 1
            if not count:
                continue
            complete, rest = rows[:count], rows[count:]
            following = rest[0].observation if rest else complete[-1].following
            parts.append(_rollout(complete, following, segment.begins, algorithm))
            segment.begins, segment.rows = complete[-1].done, rest
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
        if row.truncated:
            # time ran out, but the world went on: its value stands for what was cut off
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
        return algorithm.policy.predict_values(batch).cpu()


class Replay:
    """Fills the replay buffer of an off-policy algorithm with the rows of several muscles.

    They share one column of the buffer, in the order in which they become complete.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Row] = {}
        self._last: str | None = None

    def complete(self, muscle: str, row: Row) -> list[Row]:
        """Return the rows of ``muscle`` that are complete, now that ``row`` came."""
        rows = []
        waiting = self._waiting.pop(muscle, None)
        if waiting is not None and waiting.following is not None:
            rows.append(waiting)
        if row.terminated and row.following is None:
            # what follows the end of the world is not looked at
            row.following = row.observation
        if row.following is not None:
            rows.append(row)
        elif not row.truncated:
            self._waiting[muscle] = row
        return rows

    def store(self, muscle: str, row: Row, algorithm: Any) -> None:
        """Add a complete row to the replay buffer."""
        buffer: ReplayBuffer = algorithm.replay_buffer
        if self._last not in (None, muscle) and buffer.size() and not buffer.dones[buffer.pos - 1, 0]:
            # Returns over several steps must not run from one muscle's row into another's. This
            # flag ends them there, and has no meaning for a row that ends no episode otherwise.
            buffer.timeouts[buffer.pos - 1] = 1.0
        self._last = muscle
        assert row.following is not None
        action = row.data.astype(algorithm.action_space.dtype)[np.newaxis]
        done = np.array([row.done])
        infos = [{"TimeLimit.truncated": row.truncated}]
        buffer.add(row.observation, row.following, action, np.array([row.reward]), done, infos)


def replay_arrays(buffer: ReplayBuffer) -> dict[str, Batch]:
    """Return the filled part of a replay buffer, oldest transition first where it is full."""
    order = slice(0, buffer.pos)
    arrays = {name: getattr(buffer, name) for name in _REPLAY}
    if not buffer.full:
        return {name: array[order] for name, array in arrays.items()}
    return {name: np.roll(array, -buffer.pos, axis=0) for name, array in arrays.items()}


def fill_replay(buffer: ReplayBuffer, arrays: Mapping[str, Batch]) -> None:
    """Put what :func:`replay_arrays` gave into an empty buffer; the newest that have room."""
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


class StoredBuffer:
    """A replay buffer on its way through pickle: only its filled part."""

    def __init__(self, buffer: ReplayBuffer):
        self._arrays = {name: getattr(buffer, name)[: buffer.size()] for name in _REPLAY}
        # the rest of it: sizes, spaces, position
        self._shell = copy(buffer)
        for name in _REPLAY:
            delattr(self._shell, name)

    def unpack(self) -> ReplayBuffer:
        """Return a buffer equal to the one that was given, in every place that is filled."""
        buffer = self._shell
        for name, filled in self._arrays.items():
            array = np.zeros((buffer.buffer_size, *filled.shape[1:]), filled.dtype)
            array[: len(filled)] = filled
            setattr(buffer, name, array)
        return buffer


def as_data(action: Batch, space: gym.Space[Any], policy: Any) -> npt.NDArray[np.float32]:
    """Return what a muscle would have sent with ``action``, shape ``(1, n)`` (off-policy)."""
    scaled = policy.scale_action(action) if isinstance(space, gym.Box) else action
    return scaled.astype(np.float32).reshape(-1)
