"""The contract of an environment: what a world must offer for agents to act in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import RenderError
from palaestrai_mosaik.types import ActuatorInformation, RewardInformation, SensorInformation, Topology
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector
from palaestrai_mosaik.types.vectors import initial_values

#: something of several environments: a list, or an array with a row for each
Rows = Sequence[Any] | npt.NDArray[Any]


@dataclass(slots=True)
class EnvironmentBaseline:
    """What an environment offers, declared once before anything runs.

    Attributes:
        sensors: the sensors, with their initial readings.
        actuators: the actuators; a value, where given, is the set-point that holds until an agent gives
            another.
        rewards: the rewards that the environment itself computes, in the order of
            :attr:`EnvironmentState.rewards`.
        start: the date of tick 0.
        world_model: any static description to be stored.
        topology: how its parts are connected, with the sensors and actuators of each, to be stored and drawn.
    """

    sensors: Sequence[SensorInformation]
    actuators: Sequence[ActuatorInformation]
    rewards: Sequence[RewardInformation] = ()
    start: datetime | None = None
    world_model: Any = None
    topology: Topology | None = None


@dataclass(slots=True)
class EnvironmentState:
    """One state of an environment.

    Attributes:
        readings: the readings of all sensors in the order of the baseline, each flattened
            (:meth:`Space.flatten`) and concatenated; shape ``(n_readings,)``, float64. An array of float64 is
            handed on by reference, so an environment makes a new one for each state; a list, or an array of
            another type, is converted.
        rewards: one float for each declared reward.
        terminated: the world itself ended (Gymnasium's sense).
        truncated: time ran out.
        world_state: whatever else shall be stored (JSON-able, or made so by the document's
            ``state_transformer``).
    """

    readings: FloatVector
    rewards: Sequence[float] | FloatVector = field(default_factory=tuple)
    terminated: bool = False
    truncated: bool = False
    world_state: Any = None


class Together(Protocol):
    """Steps several environments of one class, each once, and returns their results together.

    For environments that have something to save where many are stepped (:meth:`Environment.together`).
    """

    #: which of them is being stepped, for the note at its exception
    at: int

    def step(
        self, places: Sequence[int], setpoints: FloatMatrix
    ) -> tuple[Rows, Rows, Sequence[bool], Sequence[bool]]:
        """Step some of the environments.

        Args:
            places: which of them.
            setpoints: a read-only row for each.

        Returns:
            Their readings, rewards, and whether they have terminated, and were truncated, one of each for
            each of them, or arrays with a row for each that nobody writes to again. A row is what
            :meth:`Environment.step` would return.
        """


class World(ABC):
    """What every kind of environment has: identity, clock, randomness, a life cycle.

    The constructor receives the document's ``params``. The framework then sets
    :attr:`uid`, calls :meth:`setup` once, and before every episode sets a fresh
    :attr:`rng` (a function of seed, phase, uid, worker and episode alone).
    """

    #: mosaik ticks from one state to the next
    step_size: int = 1
    #: the ``uid`` in the document
    uid: str = ""
    #: the environment's own random generator, new for every episode
    rng: np.random.Generator
    #: parameters that were given but have no effect, each with the reason; checking a document warns of them
    without_effect: Mapping[str, str] = {}
    #: what :meth:`setup` returned
    baseline: EnvironmentBaseline | None = None
    #: whether an episode can end by this environment's own doing
    ends: bool = True
    #: whether :meth:`setup` leaves behind what later ones of a process are faster by (files that
    #: are read once, say), and no thread and no open file: such an environment is set up once
    #: before processes are forked for many runs
    shares_setup: ClassVar[bool] = False
    #: worker index and episode number of the running episode
    worker: int = 0
    episode: int = 0

    @abstractmethod
    def setup(self) -> EnvironmentBaseline:
        """Prepare the environment and return what it offers. Called once."""

    def state(self) -> Any:
        """Return what of it lasts from episode to episode, to be pickled (``None``: nothing).

        Checkpoints of a run keep it: only an environment that keeps something from one episode to the next has to return it.
        """
        return None

    def restore(self, state: Any) -> None:
        """Go on from what :meth:`state` returned, after :meth:`setup` in another process."""

    def takes_reward(self, reward: Any) -> bool:
        """Return whether it computes the document's ``reward`` itself; it then keeps the object.

        Called before :meth:`setup`. The reward is then among those of its baseline and its states.
        """
        return False

    def enable_frames(self) -> None:
        """Prepare for :meth:`render`; called before :meth:`setup`, only where the document requests frames.

        Raises:
            RenderError: it cannot render frames.
        """
        if type(self).render is World.render:
            raise RenderError(
                f"environment {self.uid!r} cannot render frames: its class {type(self).__name__} has no method "
                "'render'. Give it one that returns a uint8 array (height, width, 3), or remove 'frames' from its entry"
            )

    def render(self) -> Any:
        """Return a picture of the newest state, to be stored: Gymnasium's ``rgb_array``.

        Called after :meth:`enable_frames`, for the states that the document requests. It draws no random
        numbers and changes nothing that later states depend on.

        Returns:
            A uint8 array (height, width, 3): red, green and blue. ``None``: this state has no picture.
        """
        return None

    def shutdown(self) -> None:
        """Release what :meth:`setup` acquired. Called once, also after a failure."""


class Environment(World):
    """An environment that is one class. ``setup`` and ``step`` are mandatory.

    Time: :meth:`reset` gives the state at tick 0 of an episode; at every later multiple
    of :attr:`step_size` the framework calls :meth:`step` with the set-points in force.
    """

    #: an actuator without a new set-point keeps its last one (else it reads NaN)
    hold_setpoints: ClassVar[bool] = True

    def reset(self) -> EnvironmentState:
        """Start a new episode and return its first state.

        The default returns the readings and rewards of the baseline; override it where there is state.
        """
        baseline = self.setup() if self.baseline is None else self.baseline
        parts = [s.space.flatten(s.value) for s in baseline.sensors]
        readings = np.concatenate(parts) if parts else np.empty(0)
        return EnvironmentState(readings, initial_values(baseline.rewards))

    @abstractmethod
    def step(self, setpoints: npt.NDArray[Any]) -> EnvironmentState:
        """Advance by :attr:`step_size` ticks and return the new state.

        ``setpoints``: shape ``(n_setpoints,)``, read-only: the flattened set-points of all
        actuators in the order of the baseline. float64, NaN where no set-point was ever
        given; int64 if all actuators are integers (``Discrete``, for instance) and each has a set-point.
        """

    @classmethod
    def together(cls, copies: Sequence[Any]) -> Together | None:
        """Return what steps ``copies`` of this class faster than one by one (``None``: nothing does).

        Called after their :meth:`setup`.
        """
        return None


class Reward(ABC):
    """Computes one or more named rewards from an environment's state.

    Named in the document beside an environment, it replaces the environment's own
    rewards. The constructor receives the document's ``params``.
    """

    def setup(self, baseline: EnvironmentBaseline) -> Sequence[RewardInformation]:
        """Declare the rewards; called once. The place to look up sensors by uid."""
        from palaestrai_mosaik.types import Box

        return [RewardInformation(0.0, Box(-np.inf, np.inf, shape=()), type(self).__name__)]

    def _join(self, environment: World) -> None:
        """Hook for adapters, called before the environment is set up."""

    @abstractmethod
    def __call__(self, state: EnvironmentState) -> Sequence[float] | FloatVector | float:
        """Return one float for each declared reward (a bare float if there is one)."""


class EnvironmentStateTransformer(ABC):
    """Changes an environment's state before it is stored; what agents see stays as it is."""

    def setup(self, baseline: EnvironmentBaseline) -> None:
        """Look at what the environment offers; called once, before the first state."""

    def _join(self, environment: World) -> None:
        """Hook for adapters, called before the environment is set up."""

    @abstractmethod
    def __call__(self, environment_state: EnvironmentState) -> EnvironmentState:
        """Return the state to store. Do not modify the one given: make another."""
