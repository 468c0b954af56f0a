"""Handles of environments, and the protocol of the streams that record rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.importing import class_name
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
from palaestrai_mosaik.experiment.model import all_channels
from palaestrai_mosaik.types import RewardInformation
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.rows import AgentRows, EnvironmentRows
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


AgentStream = RowSink[AgentRows]
EnvironmentStream = RowSink[EnvironmentRows]


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
        self.stream: EnvironmentStream | None = None
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
        state, n = self.state, self.n_readings
        if self.transformer is not None:
            state = self._transformed(state)
        vector = self.vector
        self.stream.append(
            self.domain.worker,
            self.domain.episode,
            self.steps,
            time,
            state.readings,
            vector[n:-2],
            self.terminated,
            self.truncated,
            state.world_state,
            0,
            self.episodes,
        )


def places(indices: Sequence[int]) -> Places:
    """Return ``indices`` as a slice if they are consecutive, otherwise as an array."""
    first = indices[0] if indices else 0
    if list(indices) == list(range(first, first + len(indices))):
        return slice(first, first + len(indices))
    return np.array(indices, dtype=np.intp)


def channel_names(channels: Iterable[Any]) -> list[str]:
    """Return a uid for each number of sensors or actuators: ``level``, or ``levels[0]``, ``levels[1]``."""
    return [
        name
        for channel in channels
        for name in (
            [channel.uid]
            if channel.space.size == 1
            else [f"{channel.uid}[{i}]" for i in range(channel.space.size)]
        )
    ]


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
