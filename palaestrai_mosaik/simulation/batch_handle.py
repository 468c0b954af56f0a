"""Handles of a batched environment and of its single incarnations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment.batch import BatchEnvironment, BatchState
from palaestrai_mosaik.environment.environment import (
    EnvironmentState,
    EnvironmentStateTransformer,
    Reward,
    World,
)
from palaestrai_mosaik.experiment.model import BODY_NUMBER
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector
from palaestrai_mosaik.types.rows import EnvironmentRows
from palaestrai_mosaik.types.vectors import Layout

from .environment_handle import EnvironmentHandle, Places, matching, places
from .values import ValueCheck

_NOBODY = np.empty(0, dtype=np.intp)


class BatchHandle(EnvironmentHandle):
    """All incarnations of a batched environment.

    ``vector`` is a matrix: a state vector for each incarnation. The channels are those of one
    incarnation, with :data:`BODY_NUMBER` in their ids.
    """

    domain: BatchEnvironment
    uneventful = False
    sub_environments: Sequence[SubEnvironmentHandle] = ()

    def __init__(
        self,
        domain: BatchEnvironment,
        reward: Reward | None = None,
        transformer: EnvironmentStateTransformer | None = None,
    ):
        if transformer is not None:
            raise ContractError(
                f"environment {domain.uid!r} is batched: a state_transformer has no state of one environment to change"
            )
        self._sub_environments: dict[int, SubEnvironmentHandle] = {}
        self._local: dict[str, tuple[str, ...]] = {}
        super().__init__(domain, reward)
        self._names = tuple(f"{self.uid}.{k}" for k in range(self.batch))

    @property
    def batch(self) -> int:
        """The number of incarnations, known once the environment has been set up."""
        return self.domain.batch

    def _value_check(self) -> ValueCheck:
        return ValueCheck(self.domain, self.rewards, self.reward, self.batch)

    @property
    def names(self) -> Sequence[str]:
        return self._names

    @property
    def replays(self) -> bool:
        return self.domain.replays

    def _layout(self, channels: Sequence[Any], kind: str) -> Layout:
        self._local[f"{kind}s"] = tuple(c.uid for c in channels)
        return self.layout_of(super()._layout(channels, kind), f"{kind}s", BODY_NUMBER)

    def layout_of(self, layout: Layout, kind: str, number: int | str) -> Layout:
        """Return the ``layout`` of one incarnation with the ids of ``number``."""
        return layout.renamed([f"{self.uid}.{number}.{local}" for local in self._local[kind]])

    def select(self, kind: str, local: Sequence[str], number: int) -> tuple[Layout, Places]:
        """Return the channels ``local`` of incarnation ``number``, and their indices in its vectors."""
        whole: Layout = getattr(self, kind)
        chosen = [self._local[kind].index(name) for name in local]
        layout = Layout([f"{self.uid}.{number}.{name}" for name in local], [whole.spaces[i] for i in chosen])
        return layout, places([k for i in chosen for k in range(whole.slices[i].start, whole.slices[i].stop)])

    def match(self, kind: str, name: str) -> list[str]:
        start, locals_ = f"{self.uid}.", self._local[kind]
        number, local_name = self._parted(name)
        if number.isdecimal():
            if int(number) >= self.batch or str(int(number)) != number:
                return []
            local_names = [local_name] if local_name in locals_ else matching(locals_, local_name)
            return [f"{start}{number}.{local}" for local in local_names]
        every = (f"{start}{k}.{local}" for k in range(self.batch) for local in locals_)
        return matching(every, name)

    def _parted(self, name: str) -> tuple[str, str]:
        """Split ``name`` into the incarnation's number, or its placeholder, and the local name."""
        start = f"{self.uid}."
        number, _, local_name = name[len(start) :].partition(".") if name.startswith(start) else ("", "", "")
        return number, local_name

    def handle_of(self, uid: str) -> EnvironmentHandle | None:
        number, local_name = self._parted(uid)
        if not number.isdecimal() or int(number) >= self.batch:
            return None
        exists = local_name in self._local["sensors"] or local_name in self._local["actuators"]
        return self.sub_environment(int(number)) if exists else None

    def sub_environment(self, number: int) -> SubEnvironmentHandle:
        """Return the handle of incarnation ``number``, for a single body."""
        if number not in self._sub_environments:
            self._sub_environments[number] = SubEnvironmentHandle(self, number)
        return self._sub_environments[number]

    def add_sub_environment(self, handle: SubEnvironmentHandle) -> None:
        """Make ``handle`` a separate entity that receives every state, because a single body sits in it."""
        self.sub_environments = sorted({*self.sub_environments, handle}, key=lambda sub: sub.number)

    def begin(self) -> None:
        width = self.n_readings + self.n_rewards + 2
        self.vector = np.zeros((self.batch, width))
        self.recorded = None
        self.state = None
        self.steps = -1
        self.done = self.stopped = False
        #: masks (batch,) of incarnations that have ended, that ended with the newest state, and that
        #: restarted with it; and the number of restarts
        self.dones = np.zeros(self.batch, dtype=bool)
        self.ended_now = self.begun_now = self.dones
        self.counts = np.zeros(self.batch, dtype=np.int32)
        for sub in self._sub_environments.values():
            sub.begin()

    def initial_setpoints(self) -> FloatVector:
        return np.tile(super().initial_setpoints(), (self.batch, 1))

    def pack(self, state: BatchState) -> FloatMatrix:
        """Compute the reward, and return ``state`` as a matrix of state vectors."""
        n, rewards = self.n_readings, state.rewards
        if self.reward is not None:
            rewards = np.stack([self._reward_of(state, k) for k in range(self.batch)])
        matrix: FloatMatrix = self.values.rows[self.values.filled]
        matrix[:, :n] = state.readings
        matrix[:, n:-2] = rewards
        matrix[:, -2] = state.terminated
        matrix[:, -1] = state.truncated
        matrix.flags.writeable = False
        self.values.take(matrix)
        self.recorded = state.recorded
        return matrix

    def _reward_of(self, state: BatchState, k: int) -> FloatVector:
        assert self.reward is not None
        single_state = EnvironmentState(
            state.readings[k], state.rewards[k], bool(state.terminated[k]), bool(state.truncated[k])
        )
        values = self.rewards_of(single_state)
        try:
            rewards = np.atleast_1d(np.asarray(values))
        except ValueError:
            self.check_rewards(values)
            raise
        if rewards.shape != (self.n_rewards,) or rewards.dtype.kind not in "fiub":
            self.check_rewards(values)
        return rewards

    def take(self, vector: FloatVector) -> Mapping[str, tuple[bool, bool]]:
        before, self.vector = self.dones, vector
        self.steps += 1
        flags = vector[:, -2:] != 0
        if np.count_nonzero(flags) or np.count_nonzero(before):
            self.dones = dones = flags[:, 0] | flags[:, 1]
            self.begun_now = before & ~dones
            self.ended_now = dones & ~before
            changed = np.flatnonzero(self.begun_now | self.ended_now)
            if len(changed):
                self.counts = self.counts + self.begun_now
                self.done = bool(dones.all())
        else:
            # no incarnation has ended now or before
            self.ended_now = self.begun_now = before
            changed = _NOBODY
        for sub in self.sub_environments:
            sub.update(vector, flags)
        names = self._names
        return {names[k]: (bool(flags[k, 0]), bool(flags[k, 1])) for k in changed.tolist()}

    def record(self, time: int) -> None:
        if self.stream is None:
            return
        vector, n = self.vector, self.n_readings
        self.stream.append_rows(
            EnvironmentRows(
                self.domain.worker,
                self.domain.episode,
                time,
                self.steps,
                np.arange(self.batch, dtype=np.int32),
                self.counts,
                vector[:, :n],
                vector[:, n:-2],
                vector[:, -2] != 0,
                vector[:, -1] != 0,
            )
        )


class SubEnvironmentHandle(EnvironmentHandle):
    """One incarnation of a batched environment, for a single body."""

    def __init__(self, handle: BatchHandle, number: int):
        # everything that exists once per environment belongs to the batch
        self._root = handle
        self.number = number
        self.entity = str(number)
        self.uid = f"{handle.uid}.{number}"
        self.domain = handle.domain
        self.baseline = handle.baseline
        self.step_size = handle.step_size
        self.begins_again = True
        self.rewards = handle.rewards
        self.n_readings, self.n_rewards = handle.n_readings, handle.n_rewards
        self.sensors = handle.layout_of(handle.sensors, "sensors", number)
        self.actuators = handle.layout_of(handle.actuators, "actuators", number)
        self.stream = None
        self.begin()

    @property
    def root(self) -> EnvironmentHandle:
        return self._root

    @property
    def replays(self) -> bool:
        return self._root.replays

    def attach_body(self) -> None:
        self._root.add_sub_environment(self)

    def update(self, matrix: FloatMatrix, flags: npt.NDArray[np.bool_]) -> None:
        """Store the newest state of this incarnation."""
        self.vector = matrix[self.number]
        self.terminated, self.truncated = bool(flags[self.number, 0]), bool(flags[self.number, 1])
        self.done = self.terminated or self.truncated
        self.episodes = int(self._root.counts[self.number])
        recorded = self._root.recorded
        self.recorded = None if recorded is None else recorded[self.number]


def open_handle(
    domain: World, reward: Reward | None = None, transformer: EnvironmentStateTransformer | None = None
) -> EnvironmentHandle:
    """Set ``domain`` up and return its handle."""
    if isinstance(domain, BatchEnvironment):
        return BatchHandle(domain, reward, transformer)
    return EnvironmentHandle(domain, reward, transformer)
