"""Handles of environments, and the protocol of the streams that record rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from palaestrai_mosaik.environment.cosimulation import CoSimulation
from palaestrai_mosaik.environment.environment import (
    EnvironmentState,
    EnvironmentStateTransformer,
    Reward,
    World,
)
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.experiment.model import all_channels
from palaestrai_mosaik.types import RewardInformation
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.rows import AgentRows, EnvironmentRows
from palaestrai_mosaik.types.vectors import Layout

Rows_contra = TypeVar("Rows_contra", contravariant=True)


class RowSink(Protocol[Rows_contra]):
    """Where rows are recorded (see ``store.streams``)."""

    def append(self, *row: Any, **columns: Any) -> None:
        """Add a row: one argument per column."""

    def append_rows(self, rows: Rows_contra) -> None:
        """Add a row for each body or incarnation."""


AgentStream = RowSink[AgentRows]
EnvironmentStream = RowSink[EnvironmentRows]


class EnvironmentHandle:
    """One environment of one worker, as its world sees it.

    What an environment says at one time is a *state vector*: all readings (flattened, in
    the baseline's order), all rewards, then terminated and truncated as 0 or 1.
    """

    #: its entity at mosaik's side, of those that the environment has ("": the only one)
    entity = ""
    #: its place among the parts of the environment
    number = 0
    #: its incarnations that have a body of their own
    sub_environments: Sequence[EnvironmentHandle] = ()
    #: it is one environment, not a batch of them
    alone = True
    #: the recorded set-points of the last step, where it replays
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
        self.step_size = int(domain.step_size)
        if self.step_size < 1:
            raise ContractError(
                f"environment {self.uid!r}: step_size must be at least 1, not {self.step_size}"
            )
        self.sensors = self._layout(self.baseline.sensors, "sensor")
        self.actuators = self._layout(self.baseline.actuators, "actuator")
        if self.baseline.topology is not None:
            sensors, actuators = map(channel_names, (self.baseline.sensors, self.baseline.actuators))
            self.baseline.topology.check(sensors, actuators, f"environment {self.uid!r}")
        declared = self.baseline.rewards if reward is None else reward.setup(self.baseline)
        self.rewards: Sequence[RewardInformation] = tuple(declared)
        if transformer is not None:
            transformer.setup(self.baseline)
        self.n_readings = self.sensors.size
        self.n_rewards = len(self.rewards)
        self.stream: EnvironmentStream | None = None
        #: whether it can begin again while the episode of the phase goes on
        self.begins_again = not isinstance(domain, CoSimulation)
        self.begin()

    @property
    def root(self) -> EnvironmentHandle:
        """The environment that this is, or a part of."""
        return self

    @property
    def names(self) -> Sequence[str]:
        """The uids of the environments that end on their own: of this one, or its incarnations."""
        return (self.uid,)

    @property
    def replays(self) -> bool:
        """Whether it replays what was recorded, whatever is set."""
        return False

    def match(self, kind: str, name: str) -> list[str]:
        """Return the full ids of ``kind`` (sensors, actuators) that ``name`` means, in order.

        ``name`` is an id, or a pattern of the shell (``grid.bus-*.vm_pu``, ``myenv.[0-4]``).
        """
        offered: Layout = getattr(self, kind)
        if name in offered.index:
            return [name]
        return matching(offered.uids, name)

    def handle_of(self, uid: str) -> EnvironmentHandle | None:
        """Return the handle for a body that reads or sets the channel ``uid`` (a full id), if the channel is here."""
        return self if uid in self.sensors.index or uid in self.actuators.index else None

    def attach_body(self) -> None:
        """Note that a body reads or acts here."""

    def _layout(self, channels: Sequence[Any], kind: str) -> Layout:
        layout = Layout([f"{self.uid}.{c.uid}" for c in channels], [c.space for c in channels])
        if len(layout.index) != len(layout.uids):
            double = sorted({u for u in layout.uids if layout.uids.count(u) > 1})
            raise ContractError(f"environment {self.uid!r} has several {kind}s named {', '.join(double)}")
        return layout

    def begin(self) -> None:
        """Forget the last episode."""
        self.vector = np.zeros(self.n_readings + self.n_rewards + 2)
        self.state: EnvironmentState | None = None
        self.steps = -1
        #: how often it has begun again
        self.episodes = 0
        self.terminated = self.truncated = self.done = False
        #: it has ended, and does not begin again in this episode
        self.stopped = False

    def initial_setpoints(self) -> FloatVector:
        """Return the set-points that hold until an agent acts (NaN where there is none)."""
        return self._initial.copy()

    @cached_property
    def _initial(self) -> FloatVector:
        vector = np.full(self.actuators.size, np.nan)
        for part, actuator in zip(self.actuators.slices, self.baseline.actuators, strict=True):
            if actuator.value is not None:
                vector[part] = actuator.space.flatten(actuator.value)
        return vector

    def take(self, vector: FloatVector) -> Mapping[str, tuple[bool, bool]]:
        """Take the newest state over.

        Returns (terminated, truncated) by name of what has ended with it or, after an end, begun
        again.
        """
        if self.done:
            self.episodes += 1
        self.vector = vector
        self.steps += 1
        before = self.done
        self.terminated, self.truncated = bool(vector[-2]), bool(vector[-1])
        self.done = self.terminated or self.truncated
        return {self.uid: (self.terminated, self.truncated)} if self.done or before else {}

    def record(self, time: int) -> None:
        """Record the newest state."""
        if self.stream is None or self.state is None:
            return
        state, n = self.state, self.n_readings
        if self.transformer is not None:
            state = self.transformer(state)
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


def channel_names(channels: Iterable[Any]) -> list[str]:
    """Return a uid for each number of sensors or actuators: ``level``, or ``levels[0]``, ``levels[1]``."""
    return [
        name
        for one in channels
        for name in ([one.uid] if one.space.size == 1 else [f"{one.uid}[{i}]" for i in range(one.space.size)])
    ]


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """Return those of ``names`` that ``pattern`` means; none if it is no pattern of the shell."""
    return [name for name in names if fnmatchcase(name, pattern)] if is_pattern(pattern) else []


def is_pattern(name: str) -> bool:
    """Whether ``name`` may be a pattern of the shell."""
    return not set(name).isdisjoint("*?[")


def match(handles: Sequence[EnvironmentHandle], kind: str, name: str) -> list[str]:
    """Return the full ids that ``name`` means (:meth:`EnvironmentHandle.match`), of all environments."""
    return [uid for handle in handles for uid in handle.match(kind, name)]


def match_all(handles: Sequence[EnvironmentHandle], kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return what all ``names`` mean (:func:`match`), each id once; unknown names stay."""
    found = (match(handles, kind, name) or ([] if means_all(handles, name) else [name]) for name in names)
    return tuple(dict.fromkeys(uid for uids in found for uid in uids))


def means_all(handles: Sequence[EnvironmentHandle], name: str) -> bool:
    """Whether ``name`` stands for all channels of an environment, which may have none of a kind."""
    return any(name == all_channels(handle.root.uid) for handle in handles)
