"""One incarnation of an agent in a world: what lasts from row to row, and how it is wired."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Experience, Memory, Muscle, Objective
from palaestrai_mosaik.agent.filter import FilterChain
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types import Mode

from .channels import Channels
from .ports import AgentStream
from .wires import STATES, Link, Sockets, wire_actuators

FloatVector = npt.NDArray[np.float64]


#: rows that a muscle remembers, unless it sets ``memory.size_limit``
MUSCLE_MEMORY = 10_000


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose body it is: the agent's name, the body's number, and the group of alike bodies it is in.

    ``rewards`` are the names of the rewards as they stand for all of the group (``None``: as they are).
    """

    agent: str
    number: int | None = None
    group: int = 0
    rewards: Sequence[str] | None = None

    @property
    def name(self) -> str:
        """What the body is called in the mosaik world; with the sign it is no name of an agent."""
        return self.agent if self.number is None else f"{self.agent}@{self.number}"


class Learning(Protocol):
    """Where a body's rows go in train mode: to the brain, or to the process that has it."""

    #: what the brain told about itself when it took the last row
    told: dict[str, Any]
    #: by muscle: what it told when it took the rows of the last batch
    told_by: dict[str, dict[str, Any]]
    #: the number of updates so far
    updates: int

    @property
    def shared_updates(self) -> bool:
        """Whether what is learned from one body is for all bodies of the agent."""

    def learn(self, experience: Experience) -> Any:
        """Take a row; return the update for the muscle, or ``None``."""

    def learn_batch(self, experiences: Sequence[Experience]) -> Any:
        """Take the rows of alike bodies at one time, one each; return the newest update, or ``None``."""

    def mark_end(self, muscle: str, terminated: bool, truncated: bool, final: FloatVector) -> None:
        """Take note that the episode ended with the muscle's newest row, which was learned before."""

    def update_for(self, muscle: str) -> tuple[int, Any]:
        """Return the newest update that ``muscle`` shall have, and its number (0: none)."""

    def exchange(self, filters: Sequence[FilterChain]) -> None:
        """Take what the muscles' filters have learned, and give them what all have learned."""


def check_statistics(agent: str, muscle: Mapping[str, Any], brain: Mapping[str, Any]) -> None:
    """Raise :class:`ContractError` where muscle and brain report the same about one row."""
    twice = sorted(muscle.keys() & brain.keys())
    if twice:
        raise ContractError(f"muscle and brain of agent {agent!r} both report the statistic {twice[0]!r}")


class Incarnation:
    """A body's muscle, memory, objective and wires, and what it keeps of an episode."""

    def __init__(
        self,
        identity: Identity,
        muscle: Muscle,
        objective: Objective | None,
        channels: Channels,
        learner: Learning | None = None,
        filters: FilterChain | None = None,
    ):
        self.identity = identity
        self.name, self.agent = identity.name, identity.agent
        self.number = identity.number or 0
        self.muscle = muscle
        self.objective = objective
        self.learner = learner
        #: whether rows are learned from: there is a brain, and the mode is train
        self.learns = learner is not None
        self.filters = filters
        self.channels = channels
        self.ports, self.around, self.watched = channels.ports, channels.around, channels.watched
        for port in self.ports:
            port.occupy()
        self.reward_names = channels.rewards if identity.rewards is None else list(identity.rewards)
        self.sensors, self.actuators = channels.sensors, channels.actuators
        #: what the muscle sees of them
        self.seen = self.sensors if filters is None else filters.sensors
        self._offered = self.offered = self.actuators if filters is None else filters.actuators
        #: takes what the brain learned from a row of this body (``None``: its muscle)
        self.hand_on: Callable[[Any], None] | None = None
        #: its filters learn together with those of the agent's other bodies, after all have thought
        self.together = False
        #: how often its environment has begun again
        self.episodes = 0
        self.proposed: FloatVector | None = None
        self.memory = Memory(size_limit=MUSCLE_MEMORY)
        self.stream: AgentStream | None = None
        self.statistic: Callable[[int, int, int, str, Any], None] | None = None
        self.order = 0
        self.rows = 0
        #: a row is open (waits for its reward), or closed and not yet settled
        self.open = self.pending = False
        #: the settled row, as the stream takes it, and what was reported with it
        self.settled: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self.row: tuple[Any, ...] = ()
        #: the rewards that the open row has got so far
        self.collected: FloatVector | None = None
        #: the episode is over for this agent: what it watches has ended
        self.out = False
        #: what muscle and brain report about themselves at the newest row
        self.told: dict[str, Any] = {}
        #: what the muscle sees next, where that was needed before it acts
        self.ahead: FloatVector | None = None
        #: what is replayed: it does what was recorded, whatever it proposes
        self._replayed = [port for port in self.ports if port.replays]
        #: time, body, objective, rewards of this episode's closed rows
        self._history = np.empty((256, 3 + len(self.reward_names)))

    @property
    def muscles(self) -> Sequence[str]:
        """The uid of its muscle."""
        return (self.muscle.uid,)

    def update_of(self, muscle: str, update: Any) -> None:
        """Give ``muscle`` what was learned for it alone."""
        self.muscle.update(update)

    @property
    def last_row(self) -> int:
        """The number of this episode's last row; -1 if there is none."""
        return self.rows - 1

    def switch(self, mode: Mode) -> None:
        """Train (and learn) or test in the episodes to come."""
        self.muscle.mode = mode
        if self.filters is not None:
            self.filters.mode = mode
        self.learns = self.learner is not None and mode is Mode.TRAIN

    def restore(
        self, muscle: Muscle, objective: Objective | None, memory: Memory, filters: FilterChain | None
    ) -> None:
        """Put the parts of a checkpoint in the place of those that were made anew."""
        muscle._dumpers = self.muscle._dumpers
        self.muscle.teardown()
        self.muscle, self.objective, self.memory, self.filters = muscle, objective, memory, filters

    def wire(self, sockets: Sockets) -> list[Link]:
        """Lay the wires of a new world; return the links of its outputs."""
        self.outputs, links = wire_actuators(sockets, self.ports, self.actuators.uids)
        return links

    def wired(self) -> dict[str, int]:
        """Return the number of floats behind each attribute that is wired."""
        setpoints = np.arange(self.actuators.size)
        found = {wire.attribute: setpoints[wire.take].size for wire in self.outputs}
        return {STATES: self.sensors.size, **found}

    def begin(self, worker: int, episode: int, rng: Callable[..., np.random.Generator]) -> None:
        """Start an episode. ``rng`` makes the generator for a name below the agent's."""
        self.worker, self.episode = worker, episode
        generator = rng() if self.identity.number is None else rng(self.number)
        self.muscle.rng = generator
        self.offered = self._offered.bound(generator)
        if self.filters is not None:
            self.filters.reset()
        self.rows = self.episodes = 0
        self.open = self.pending = self.out = False
        self.settled = None
        self.ahead = None
        self.values: dict[str, Any] = {wire.attribute: wire.initial for wire in self.outputs}

    def has_ended(self, resets: bool) -> bool:
        """Return whether the episode is over for this body: what it watches has ended.

        With ``resets``, where environments begin again, one of several is enough.
        """
        if resets and any(port.done and port.begins_again for port in self.watched):
            return True
        return all(port.done for port in self.watched)

    def begin_again(self) -> None:
        """Begin the next episode of an environment that has ended, if it is there now."""
        if self.out and not self.has_ended(True):
            self.out = False
            # of one environment, what counts is how often it has begun, even if it ended at once
            self.episodes = self.ports[0].episodes if len(self.ports) == 1 else self.episodes + 1
            self.muscle.reset()
            if self.filters is not None:
                self.filters.reset()

    def record(self) -> None:
        """Record the settled row, and what muscle and brain report about themselves."""
        if self.settled is None:
            return
        (row, told), self.settled = self.settled, None
        if self.stream is not None:
            self.stream.append(*row)
        if self.statistic is not None:
            for key, value in told.items():
                self.statistic(row[0], row[1], row[2], key, value)

    def objectives(self) -> FloatVector:
        """(n,): the objective of this episode's closed rows."""
        return self._history[: self.rows, 2]

    def history(self) -> npt.NDArray[np.float64]:
        """Return (n, 3 + rewards): time, body, objective and rewards of this episode's closed rows."""
        return self._history[: self.rows]
