"""Handles of environments, of batched environments and of their single incarnations, and the protocol of the streams that record rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.core.importing import class_name
from palaestrai_mosaik.environment.batch import BatchEnvironment, BatchState
from palaestrai_mosaik.environment.cosimulation import CoSimulation
from palaestrai_mosaik.environment.environment import (
    EnvironmentState,
    EnvironmentStateTransformer,
    Reward,
    World,
)
from palaestrai_mosaik.environment.faults import (
    Fault,
    baseline_faults,
    channel_faults,
    refusal,
    reward_faults,
    state_faults,
    step_size_faults,
)
from palaestrai_mosaik.experiment.model import BODY_NUMBER, all_channels
from palaestrai_mosaik.types import RewardInformation
from palaestrai_mosaik.types.arrays import AgentRows, EnvironmentRows, FloatMatrix, FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .values import ValueCheck

#: indices in a vector, as a slice if they are adjacent, which is faster
Places = npt.NDArray[np.intp] | slice

Rows_contra = TypeVar("Rows_contra", contravariant=True)


class RowSink(Protocol[Rows_contra]):
    """A recorder of rows (see ``store.streams``)."""

    def append(self, *row: Any, **columns: Any) -> None:
        """Add a row: one argument per column."""

    def append_rows(self, rows: Rows_contra) -> None:
        """Add a row for each body or incarnation."""


AgentSink = RowSink[AgentRows]
EnvironmentSink = RowSink[EnvironmentRows]


class EnvironmentHandle:
    """One environment of one worker, as a part of its world.

    The result of an environment at one time is a *state vector*: all readings (flattened, in
    the baseline's order), all rewards, then terminated and truncated as 0 or 1.
    """

    #: its mosaik entity below that of the environment; "" if it is the environment itself
    entity = ""
    #: its number among the parts of the environment
    number = 0
    #: its incarnations with a single body
    sub_environments: Sequence[EnvironmentHandle] = ()
    #: whether it neither ends nor restarts with the newest state; never known of a batch
    uneventful = True
    #: the recorded set-points of the last step, if it replays
    recorded: FloatVector | None = None

    def __init__(
        self,
        domain: World,
        reward: Reward | None = None,
        transformer: EnvironmentStateTransformer | None = None,
    ):
        self.domain = domain
        self.uid = domain.uid
        self.reward = reward
        self.transformer = transformer
        self.baseline = domain.baseline = domain.setup()
        self._check([*baseline_faults(self.baseline), *step_size_faults(domain.step_size)], "setup")
        self.step_size = int(domain.step_size)
        self.sensors = self._layout(self.baseline.sensors, "sensor")
        self.actuators = self._layout(self.baseline.actuators, "actuator")
        if self.baseline.topology is not None:
            sensors, actuators = map(channel_names, (self.baseline.sensors, self.baseline.actuators))
            self.baseline.topology.check(sensors, actuators, f"environment {self.uid!r}")
        declared = self.baseline.rewards if reward is None else reward.setup(self.baseline)
        self._check(channel_faults("reward", declared), "setup", reward)
        self.rewards: Sequence[RewardInformation] = tuple(declared)
        if transformer is not None:
            transformer.setup(self.baseline)
        self.n_readings = self.sensors.size
        self.n_rewards = len(self.rewards)
        self.stream: EnvironmentSink | None = None
        #: whether it can restart while the episode of the phase continues
        self.begins_again = not isinstance(domain, CoSimulation)
        self.begin()
        #: checks the states of the environment
        self.values = self._value_check()

    def _value_check(self) -> ValueCheck:
        return ValueCheck(self.domain, self.rewards, self.reward)

    @property
    def root(self) -> EnvironmentHandle:
        """The handle of the whole environment: this one, or the one that it is a part of."""
        return self

    @property
    def names(self) -> Sequence[str]:
        """The uids of the environments that end separately: this one, or its incarnations."""
        return (self.uid,)

    @property
    def replays(self) -> bool:
        """Whether it replays a recording, independent of set-points."""
        return False

    def match(self, kind: str, name: str) -> list[str]:
        """Return the full ids of ``kind`` (sensors, actuators) that ``name`` selects, in order.

        ``name`` is an id, or a shell pattern (``grid.bus-*.vm_pu``, ``myenv.[0-4]``).
        """
        offered: Layout = getattr(self, kind)
        if name in offered.index:
            return [name]
        return matching(offered.uids, name)

    def handle_of(self, uid: str) -> EnvironmentHandle | None:
        """Return the handle for a body with the channel ``uid`` (a full id), or ``None`` if it is not here."""
        return self if uid in self.sensors.index or uid in self.actuators.index else None

    def attach_body(self) -> None:
        """Register a body that reads from or acts in it."""

    def _layout(self, channels: Sequence[Any], kind: str) -> Layout:
        return Layout([f"{self.uid}.{c.uid}" for c in channels], [c.space for c in channels])

    def _check(self, faults: Iterable[Fault], method: str, part: Any = None) -> None:
        """Raise :class:`ContractError` if ``method`` of the environment, or of its ``part``, has ``faults``."""
        fault_list = list(faults)
        if fault_list:
            who = f"environment {self.uid!r}"
            if part is None:
                who = f"{who} ({self.domain.source_of(None)})"
            else:
                who = f"{class_name(type(part))} of {who}"
            raise refusal(f"{who}, {method}", fault_list)

    def check_state(self, state: Any) -> None:
        """Raise :class:`ContractError` if ``state`` is not a valid state; its rewards are not checked."""
        self._check(state_faults(state, self.baseline.sensors), self._method())

    def check_rewards(self, rewards: Any) -> None:
        """Raise :class:`ContractError` if ``rewards`` do not match the declared rewards."""
        method = self._method() if self.reward is None else "__call__"
        self._check(reward_faults(rewards, self.rewards), method, self.reward)

    def _method(self) -> str:
        """Return the name of the environment's method that returns the next state."""
        if isinstance(self.domain, CoSimulation):
            return "judge"
        return "reset" if self.steps < 0 or self.done else "step"

    def rewards_of(self, state: EnvironmentState) -> Any:
        """Return the result of the document's reward for ``state``; add a note to its exceptions."""
        assert self.reward is not None
        try:
            return self.reward(state)
        except Exception as error:
            error.add_note(
                f"raised in the reward {class_name(type(self.reward))} of environment {self.uid!r}"
            )
            raise

    def begin(self) -> None:
        """Reset for a new episode."""
        self.vector = np.zeros(self.n_readings + self.n_rewards + 2)
        self.state: EnvironmentState | None = None
        self.steps = -1
        #: number of restarts
        self.episodes = 0
        self.terminated = self.truncated = self.done = False
        #: whether it has ended and does not restart in this episode
        self.stopped = False

    def initial_setpoints(self) -> FloatVector:
        """Return the set-points that hold until an agent acts, NaN without one."""
        return self._initial.copy()

    @cached_property
    def _initial(self) -> FloatVector:
        vector = np.full(self.actuators.size, np.nan)
        for part, actuator in zip(self.actuators.slices, self.baseline.actuators, strict=True):
            if actuator.value is not None:
                vector[part] = actuator.space.flatten(actuator.value)
        return vector

    def take(self, vector: FloatVector) -> Mapping[str, tuple[bool, bool]]:
        """Store the newest state.

        Returns (terminated, truncated) by name of everything that ended with it, or restarted after an end.
        """
        if self.done:
            self.episodes += 1
        self.vector = vector
        self.steps += 1
        before = self.done
        self.terminated, self.truncated = bool(vector[-2]), bool(vector[-1])
        self.done = self.terminated or self.truncated
        return {self.uid: (self.terminated, self.truncated)} if self.done or before else {}

    def _transformed(self, state: EnvironmentState) -> EnvironmentState:
        assert self.transformer is not None
        try:
            changed = self.transformer(state)
        except Exception as error:
            error.add_note(
                f"raised in the state_transformer {class_name(type(self.transformer))} of environment {self.uid!r}"
            )
            raise
        self._check(state_faults(changed, self.baseline.sensors), "__call__", self.transformer)
        return changed

    def record(self, time: int) -> None:
        """Record the newest state."""
        if self.stream is None or self.state is None:
            return
        state = self.state
        if self.transformer is not None:
            state = self._transformed(state)
        when = self.domain.worker, self.domain.episode, self.steps, time
        values = state.readings, self.vector[self.n_readings : -2]
        ends = self.terminated, self.truncated
        self.stream.append(*when, *values, *ends, state.world_state, 0, self.episodes)


def places(indices: Sequence[int]) -> Places:
    """Return ``indices`` as a slice if they are consecutive, otherwise as an array."""
    first = indices[0] if indices else 0
    if list(indices) == list(range(first, first + len(indices))):
        return slice(first, first + len(indices))
    return np.array(indices, dtype=np.intp)


def channel_names(channels: Iterable[Any]) -> list[str]:
    """Return a uid for each number of sensors or actuators: ``level``, or ``levels[0]``, ``levels[1]``."""
    names: list[str] = []
    for channel in channels:
        size = channel.space.size
        names += [channel.uid] if size == 1 else [f"{channel.uid}[{i}]" for i in range(size)]
    return names


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """Return the ``names`` that match the shell ``pattern``; none if it is not a pattern."""
    return [name for name in names if fnmatchcase(name, pattern)] if is_pattern(pattern) else []


def is_pattern(name: str) -> bool:
    """Return whether ``name`` may be a shell pattern."""
    return not set(name).isdisjoint("*?[")


def match(handles: Sequence[EnvironmentHandle], kind: str, name: str) -> list[str]:
    """Return the full ids that ``name`` selects in all environments (:meth:`EnvironmentHandle.match`)."""
    return [uid for handle in handles for uid in handle.match(kind, name)]


def match_all(handles: Sequence[EnvironmentHandle], kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the ids that all ``names`` select (:func:`match`), without duplicates; unknown names are kept."""
    matches = (match(handles, kind, name) or ([] if means_all(handles, name) else [name]) for name in names)
    return tuple(dict.fromkeys(uid for uids in matches for uid in uids))


def means_all(handles: Sequence[EnvironmentHandle], name: str) -> bool:
    """Return whether ``name`` selects all channels of an environment, which may have none of a kind."""
    return any(name == all_channels(handle.root.uid) for handle in handles)


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
        when = self.domain.worker, self.domain.episode, time, self.steps
        numbers = np.arange(self.batch, dtype=np.int32)
        terminated, truncated = vector[:, -2] != 0, vector[:, -1] != 0
        readings, rewards = vector[:, :n], vector[:, n:-2]
        self.stream.append_rows(
            EnvironmentRows(*when, numbers, self.counts, readings, rewards, terminated, truncated)
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
